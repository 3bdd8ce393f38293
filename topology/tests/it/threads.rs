//! How threads wait, and what wakes them.

use crate::common::*;
use expiry_topology::{
    Next, Parking, Progressive, Sleeping, Spout, SpoutCollector, TopologyBuilder, Wait,
    WaitStrategy,
};
use std::collections::HashSet;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Strategies decide how a thread waits, and are asked in rounds counted from the last time that
/// there was something to do.
#[test]
fn waiting_goes_by_the_strategy() {
    let progressive = Progressive { spins: 2, yields: 1 };
    let waits: Vec<Wait> = (0..5).map(|nth| progressive.wait(nth)).collect();
    let park = Wait::Park(Duration::MAX);
    assert_eq!(waits, [Wait::Spin, Wait::Spin, Wait::Yield, park, park]);
    assert_eq!(Parking.wait(0), park);
    assert_eq!(Sleeping(SECOND).wait(7), Wait::Sleep(SECOND));
}

/// A thread asks its strategy in each round without work, and counts such rounds from the last one
/// with work. The spout emits when both threads have been idle for some rounds.
#[test]
fn a_thread_asks_its_strategy_and_counts_from_its_last_work() {
    struct Seldom(u64, usize, Log<(ThreadId, u32)>);
    impl Spout<u64> for Seldom {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            let asked = self.2.all();
            let idle = asked[self.1..].iter().filter(|(_, nth)| *nth > 3);
            if idle.map(|(thread, _)| thread).collect::<HashSet<_>>().len() < 2 {
                return Next::Idle;
            }
            (self.0, self.1) = (self.0 + 1, asked.len());
            out.emit(self.0, self.0).unwrap();
            if self.0 < MESSAGES {
                Next::Ready
            } else {
                Next::Done
            }
        }
    }
    const MESSAGES: u64 = 3;
    let asked = Log::new();
    let (log, builder) = (asked.clone(), TopologyBuilder::new());
    builder.wait(move |nth| {
        log.note((thread::current().id(), nth));
        Wait::Park(Duration::from_millis(1))
    });
    let log = asked.clone();
    let seldom = builder.spout("seldom", move |_| Seldom(0, 0, log.clone()));
    acks_all(&builder, "sink", &seldom);
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 60).unwrap();
    topology.kill();
    let threads: HashSet<_> = asked.all().iter().map(|(thread, _)| *thread).collect();
    assert_eq!(threads.len(), 2);
    for thread in threads {
        let rounds = asked.all().into_iter().filter(|(of, _)| *of == thread).map(|(_, nth)| nth);
        let rounds: Vec<u32> = rounds.collect();
        let goes_on = rounds.windows(2).all(|two| two[1] == two[0] + 1 || two[1] == 0);
        assert!(rounds[0] == 0 && goes_on, "{rounds:?}");
        let begins = rounds.iter().filter(|nth| **nth == 0).count() as u64;
        assert!(begins >= MESSAGES, "a thread has not begun anew: {rounds:?}");
    }
}

/// A spout's thread asks the spout's own strategy, and other threads ask the topology's.
#[test]
fn a_spouts_thread_waits_its_own_way() {
    struct Idles(Log<ThreadId>);
    impl Spout<u64> for Idles {
        fn next(&mut self, _: &mut SpoutCollector<'_, u64>) -> Next {
            self.0.note(thread::current().id());
            Next::Idle
        }
    }
    fn asks(log: &Log<ThreadId>) -> impl WaitStrategy {
        let log = log.clone();
        move |_: u32| {
            log.note(thread::current().id());
            Wait::Park(Duration::from_millis(1))
        }
    }
    let (called, own, others) = (Log::new(), Log::new(), Log::new());
    let builder = TopologyBuilder::new();
    builder.wait(asks(&others));
    let log = called.clone();
    let idles = builder.spout("idles", move |_| Idles(log.clone())).wait(asks(&own));
    acks_all(&builder, "sink", &idles);
    let topology = builder.start().unwrap();
    wait_for("the bolt's thread, and rounds of the spout's", || {
        called.all().iter().zip(others.all()).any(|(spout, other)| *spout != other)
            && called.all().len() > 2
    });
    topology.kill();
    let spout = called.all()[0];
    assert!(!others.all().contains(&spout));
    assert!(own.all().len() > 1 && own.all().iter().all(|thread| *thread == spout));
}

/// A thread that is to sleep sleeps for the whole time, whatever comes.
#[test]
fn a_thread_sleeps_for_as_long_as_its_strategy_says() {
    const SLEEP: Duration = Duration::from_millis(20);
    let (asked, builder) = (Log::new(), TopologyBuilder::new());
    let numbers = builder.spout("numbers", |_| Numbers::new(0..10, &Log::new())).max_pending(1);
    let log = asked.clone();
    acks_all(&builder, "sink", &numbers).wait(move |_: u32| {
        log.note(Instant::now());
        Wait::Sleep(SLEEP)
    });
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 60).unwrap();
    wait_for("some sleeps", || asked.all().len() > 5);
    topology.kill();
    let asked = asked.all();
    assert!(asked.windows(2).all(|two| two[1] - two[0] >= SLEEP), "{asked:?}");
}

/// A thread that waits by a strategy that panics parks instead.
#[test]
fn a_wait_strategy_may_panic() {
    let told = Log::new();
    let builder = TopologyBuilder::new();
    builder.wait(|_: u32| -> Wait { panic() });
    let numbers = builder.spout("numbers", numbers(0..100, &told));
    builder.bolt("ack", |_| each(|tuple, out| out.ack(tuple))).shuffle(&numbers);
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 60).unwrap();
    topology.kill();
    assert_eq!(acks(&told).len(), 100);
}

/// A task that sleeps until there is room is woken when there is some: here nothing else wakes it.
#[test]
fn room_wakes_who_waits_for_it() {
    let builder = TopologyBuilder::new();
    builder.queue(1).batch(1).wait(Parking);
    let [left, right] = ["left", "right"].map(|name| {
        let spout = builder.spout(name, |_| Numbers::new(0..3000, &Log::new()).at_once(8));
        spout.max_pending(64).parallelism(2)
    });
    let pass = builder
        .bolt("pass", |_| expiry_topology::basic(|number: &u64, out| out.emit(*number)))
        .shuffle(&left)
        .shuffle(&right);
    builder.bolt("sink", |_| expiry_topology::sink(|_: &u64, _| ())).global(&pass);
    let topology = builder.start().unwrap();
    topology.wait(Duration::from_secs(60)).unwrap();
    let metrics = topology.kill();
    assert_eq!(metrics[3].executed, 12_000);
    let waited = metrics.iter().any(|metrics| !metrics.skipped_back_pressure.is_zero());
    assert!(waited, "there was always room: {metrics:?}");
}

/// The spout hears of the first tuples of a batch while the last ones still take their time.
#[test]
fn a_slow_tuple_holds_no_acks_back() {
    let told = Log::new();
    let builder = TopologyBuilder::new();
    builder.flush_every(Duration::from_millis(1));
    let numbers = builder.spout("numbers", numbers_by(40, 0..40, &told));
    bolt_with(&builder, "slow", &numbers, told.clone(), |told, tuple, out| {
        if *tuple >= 20 {
            std::thread::sleep(Duration::from_millis(2));
        }
        if *tuple == 39 {
            wait_for("the first acks", || told.all().contains(&Told::Ack(0)));
        }
        out.ack(tuple);
    });
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 100).unwrap();
    assert_eq!(topology.metrics()[1].panics, 0);
}
