//! Which task waits for which: full queues, cycles, order, inactive spouts, ticks; and what a panic
//! costs.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{
    Bolt, BoltCollector, Collect, Context, Failure, Hook, Next, Replay, Seen, Spout,
    SpoutCollector, SpoutStage, TopologyBuilder, Tuple, VecSpout, Wait, WaitStrategy,
};
use std::any::Any;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// A bolt takes nothing for minutes. What is to go to it waits, in order and bounded, and then goes
/// on.
#[test]
fn full_queues_for_minutes_lose_and_reorder_nothing() {
    let (clock, told, came) = (ManualClock::new(), Log::new(), Collect::new());
    let builder = builder(&clock);
    builder.queue(1).batch(1).timeout(SECOND * 1000);
    let numbers = builder.spout("numbers", numbers(0..100, &told)).max_pending(20);
    let pass = bolt(&builder, "pass", &numbers, |tuple, out| {
        // Two of each, so that it has more than its queue holds.
        out.emit(&tuple, *tuple * 2);
        out.emit(&tuple, *tuple * 2 + 1);
        out.ack(tuple);
    });
    builder.bolt("sink", came.instances()).shuffle(&pass);
    let mut topology = builder.simulate(&clock).unwrap();
    assert!(topology.hold("sink", true) && !topology.hold("nobody", true));
    for _ in 0..300 {
        settle(&mut topology);
        clock.advance(SECOND);
    }
    let metrics = topology.metrics();
    assert!(metrics[0].pending <= 20 && metrics[1].overflow > 0, "{metrics:?}");
    assert!(metrics[1].executed < 20, "it goes on without room: {metrics:?}");
    assert!(metrics[1].skipped_back_pressure > SECOND * 250);
    assert!(came.all().is_empty());
    topology.hold("sink", false);
    settle(&mut topology);
    assert!(topology.is_finished());
    assert_eq!(came.all(), (0..200).collect::<Vec<_>>());
    assert_eq!(topology.metrics()[0].acked, 100);
}

/// A queue that is full for real: the bolt behind it is slow, on threads. Nothing waits for itself,
/// and all arrives.
#[test]
fn a_slow_bolt_slows_the_spout_down_and_nothing_else() {
    let (told, came) = (Log::new(), Log::new());
    let builder = TopologyBuilder::new();
    builder.queue(1).batch(2).timeout(Duration::from_secs(600));
    let numbers = builder.spout("numbers", numbers(0..2000, &told));
    let pass = builder.bolt("pass", passes).shuffle(&numbers);
    bolt_with(&builder, "slow", &pass, came.clone(), move |came, tuple, out| {
        for _ in 0..100 {
            std::hint::black_box(());
            std::thread::yield_now();
        }
        came.note(*tuple);
        out.ack(tuple);
    });
    let topology = builder.start().unwrap();
    topology.wait(Duration::from_secs(300)).unwrap();
    assert_eq!(came.all(), (0..2000).collect::<Vec<_>>(), "in order");
    let metrics = topology.kill();
    assert_eq!((metrics[0].acked, metrics[0].dead_letters), (2000, 0));
    assert_eq!(told.all().iter().filter(|told| matches!(told, Told::Ack(_))).count(), 2000);
}

/// A cycle: each message goes round until it has been counted down. Queues of one batch of one
/// message do not make it wait for itself.
#[test]
fn a_cycle_does_not_wait_for_itself() {
    let (clock, told, builder) = rig();
    builder.queue(1).batch(1);
    let numbers = builder.spout("numbers", numbers_by(50, 1..=200, &told)).max_pending(50);
    let down = bolt(&builder, "down", &numbers, |tuple, out| {
        if *tuple > 0 {
            out.emit(&tuple, *tuple / 2);
        }
        out.ack(tuple);
    });
    let back = builder.bolt("back", passes).shuffle(&down);
    down.shuffle(&back);
    let topology = settled(builder, &clock);
    assert!(topology.is_finished(), "{:?}", topology.metrics());
    assert_eq!(topology.metrics()[0].acked, 200);
}

/// A cycle leads to a slow bolt, which works for six timeouts on what may be pending. Bolts on a
/// cycle do not wait for room. If the spout did not wait either, most messages would time out and
/// be emitted again. Their old attempts would pile up before the slow bolt.
#[test]
fn a_slow_way_out_of_a_cycle_slows_the_spout_down() {
    let (clock, told, builder) = rig();
    builder.queue(1).batch(1);
    let numbers =
        builder.spout("numbers", numbers(0..200, &told)).max_pending(64).replay(Replay::default());
    // Even numbers go round, and odd ones out.
    let round = bolt(&builder, "round", &numbers, |tuple, out| {
        let even = *tuple % 2 == 0;
        for _ in 0..if even { 1 } else { 4 } {
            out.emit(&tuple, if even { *tuple + 1 } else { 1000 });
        }
        out.ack(tuple);
    });
    let (again, out) =
        (round.stream().filter(|n| *n < 1000), round.stream().filter(|n| *n == 1000));
    round.shuffle(again);
    bolt_with(&builder, "slow", out, clock.clone(), move |clock, tuple, out| {
        clock.advance(SECOND / 4);
        out.ack(tuple);
    });
    let mut topology = builder.simulate(&clock).unwrap();
    let mut most = 0;
    for _ in 0..5_000 {
        topology.step();
        let metrics = topology.metrics();
        most = most.max(metrics[1].overflow);
    }
    let metrics = topology.metrics();
    assert!(topology.is_finished(), "{most} {metrics:?}");
    assert_eq!((metrics[0].acked, metrics[0].replayed), (200, 0), "{metrics:?}");
    // The two messages are one that was being emitted, and one that lay in the queue.
    assert!(most <= 8, "{most} batches of one message overflowed");
}

#[test]
fn an_inactive_start_emits_nothing_until_it_is_activated() {
    let (clock, told, builder) = rig();
    builder.start_inactive();
    let numbers = builder.spout("numbers", numbers(0..10, &told)).max_pending(2);
    let held = Log::new();
    bolt_with(&builder, "drop", &numbers, held.clone(), move |held, tuple, _| held.note(*tuple));
    let mut topology = settled(builder, &clock);
    clock.advance(SECOND * 5);
    settle(&mut topology);
    assert_eq!((told.all(), topology.next_due()), (vec![], None));
    assert!(topology.metrics()[0].skipped_inactive >= SECOND * 5);
    topology.activate();
    settle(&mut topology);
    assert_eq!(told.take(), [Told::Open, Told::Activate, Told::Emitted(0), Told::Emitted(1)]);
    topology.deactivate();
    clock.advance(SECOND * 12);
    settle(&mut topology);
    // Pending messages end all the same.
    let mut ends = told.take();
    assert!(ends.contains(&Told::Deactivate));
    ends.retain(|told| *told != Told::Deactivate);
    ends.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(ends, [0, 1].map(|id| Told::Fail(id, Why::TimedOut)));
    drop(topology);
    assert_eq!(told.all(), [Told::Close]);
}

/// A topology that ends without having been active neither makes nor closes its spouts.
#[test]
fn a_spout_that_was_never_active_is_not_made() {
    for drains in [false, true] {
        let told = Log::new();
        let builder = TopologyBuilder::new();
        builder.start_inactive().wait(expiry_topology::Parking);
        let numbers = builder.spout("numbers", {
            let told = told.clone();
            move |_| {
                told.note(Told::Open);
                Numbers::new(0..10, &told)
            }
        });
        builder.bolt("sink", |_| Collect::new()).shuffle(&numbers);
        let topology = builder.start().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        if drains {
            topology.drain(SECOND).unwrap();
        } else {
            topology.kill();
        }
        assert_eq!(told.all(), []);
    }
}

#[test]
fn ticks_come_at_their_time() {
    struct Ticking(Log<u64>, ManualClock);
    impl expiry_topology::Bolt<u64, u64> for Ticking {
        fn execute(
            &mut self,
            tuple: Tuple<u64>,
            out: &mut expiry_topology::BoltCollector<'_, u64>,
        ) {
            out.ack(tuple);
        }
        fn tick(&mut self, out: &mut expiry_topology::BoltCollector<'_, u64>) {
            self.0.note(expiry::Clock::now(&self.1) / 1_000_000_000);
            out.emit((), 1);
        }
    }
    let (clock, ticks, came) = (ManualClock::new(), Log::new(), Collect::new());
    let builder = builder(&clock);
    let numbers = builder.spout("numbers", |_| VecSpout::new([]));
    let ticking = builder
        .bolt("ticking", {
            let (ticks, clock) = (ticks.clone(), clock.clone());
            move |_| Ticking(ticks.clone(), clock.clone())
        })
        .shuffle(&numbers)
        .tick_every(SECOND * 3);
    builder.bolt("sink", came.instances()).shuffle(&ticking);
    let mut topology = builder.simulate(&clock).unwrap();
    for _ in 0..10 {
        settle(&mut topology);
        clock.advance(SECOND);
    }
    // A long pause is one tick, not many.
    clock.advance(SECOND * 100);
    settle(&mut topology);
    assert_eq!(ticks.all(), [3, 6, 9, 110]);
    assert_eq!(came.all(), [1; 4]);
}

/// A bolt that panics fails its tuple, at once, and is made anew; the message is emitted again.
#[test]
fn a_panic_fails_the_tuple_and_restarts_the_bolt() {
    let (clock, told) = (ManualClock::new(), Log::new());
    let made = Arc::new(AtomicUsize::new(0));
    let builder = builder(&clock);
    let numbers = builder
        .spout("numbers", numbers(0..10, &told))
        .replay(Replay::default().base(Duration::ZERO));
    builder
        .bolt("panics", {
            let made = made.clone();
            move |_| {
                let instance = made.fetch_add(1, Relaxed);
                each(move |tuple, out| {
                    // Each number once, by the instance of its number.
                    if *tuple == instance as u64 {
                        std::panic::resume_unwind(Box::new("it was to panic"));
                    }
                    out.ack(tuple);
                })
            }
        })
        .shuffle(&numbers);
    let mut topology = builder.simulate(&clock).unwrap();
    run(&mut topology, &clock, SECOND * 5);
    assert!(topology.is_finished());
    let metrics = topology.metrics();
    assert_eq!(metrics[1].panics, made.load(Relaxed) as u64 - 1);
    assert!(metrics[1].panics >= 1);
    assert_eq!((metrics[0].acked, metrics[0].timed_out), (10, 0));
    assert_eq!(metrics[0].failed, metrics[1].panics);
}

/// A spout that panics is made anew. The new instance receives the outcomes of the old one's
/// messages.
#[test]
fn a_spout_that_panics_is_restarted() {
    struct Panics(Numbers, Arc<AtomicUsize>);
    impl Spout<u64> for Panics {
        fn open(&mut self, context: &Context) {
            self.0.open(context);
        }
        fn activate(&mut self) {
            self.0.activate();
        }
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            let asked = self.1.fetch_add(1, Relaxed);
            if asked == 1 {
                std::panic::resume_unwind(Box::new("it was to panic"));
            }
            self.0.next(out)
        }
        fn ack(&mut self, id: u64) {
            self.0.ack(id);
        }
    }
    let (clock, told) = (ManualClock::new(), Log::new());
    let asked = Arc::new(AtomicUsize::new(0));
    let builder = builder(&clock);
    let panics = builder.spout("panics", {
        let (told, asked) = (told.clone(), asked.clone());
        move |_| {
            let first = asked.load(Relaxed) as u64;
            Panics(Numbers::new([first], &told), asked.clone())
        }
    });
    builder
        .bolt("late", |_| {
            let mut kept = None;
            each(move |tuple, out| {
                if let Some(kept) = kept.replace(tuple) {
                    out.ack(kept);
                }
            })
        })
        .shuffle(&panics);
    let mut topology = builder.simulate(&clock).unwrap();
    run(&mut topology, &clock, SECOND * 5);
    let expected = [
        Told::Open,
        Told::Activate,
        Told::Emitted(0),
        Told::Open,
        Told::Activate,
        Told::Emitted(2),
        Told::Ack(0),
    ];
    assert_eq!(told.all(), expected);
    assert_eq!(topology.metrics()[0].panics, 1);
}

/// A spout panics and cannot be made again at once. Outcomes that arrive meanwhile wait for the
/// next instance.
#[test]
fn outcomes_wait_for_a_spout_that_cannot_be_made() {
    struct Panics(Numbers, bool);
    impl Spout<u64> for Panics {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            self.0.next(out)
        }
        fn ack(&mut self, id: u64) {
            self.0.ack(id);
            if self.1 {
                std::panic::resume_unwind(Box::new("it was to panic"));
            }
        }
    }
    let (clock, told) = (ManualClock::new(), Log::new());
    let made = AtomicUsize::new(0);
    let builder = builder(&clock);
    let panics = builder.spout("panics", {
        let told = told.clone();
        move |_| match made.fetch_add(1, Relaxed) {
            0 => Panics(Numbers::new(0..4, &told).at_once(4), true),
            1..=3 => std::panic::resume_unwind(Box::new("it cannot be made")),
            _ => Panics(Numbers::new([], &told), false),
        }
    });
    builder.bolt("ack", |_| each(|tuple, out| out.ack(tuple))).shuffle(&panics);
    let mut topology = builder.simulate(&clock).unwrap();
    run(&mut topology, &clock, SECOND);
    let mut acks = told.all();
    acks.retain(|told| matches!(told, Told::Ack(_)));
    acks.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(acks, [0, 1, 2, 3].map(Told::Ack));
    assert_eq!(topology.metrics()[0].panics, 4);
    assert!(topology.is_finished());
}

/// When a wait for a topology returns, its spouts have received every outcome.
#[test]
fn nothing_is_at_rest_before_the_spout_has_been_told() {
    struct Slow(Numbers, std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>);
    impl Slow {
        fn told(&self) {
            self.1.send(()).unwrap();
            self.2.recv().unwrap();
        }
    }
    impl Spout<u64> for Slow {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            self.0.next(out)
        }
        fn ack(&mut self, _: u64) {
            self.told();
        }
        fn fail(&mut self, _: u64, _: &Failure) {
            self.told();
        }
    }
    for fails in [false, true] {
        let (in_call, is_in_call) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel();
        // Done as soon as it has emitted.
        let numbers = Numbers::new([1], &Log::new()).at_once(2);
        let spout = Slow(numbers, in_call, released);
        let spout = std::sync::Mutex::new(Some(spout));
        let builder = TopologyBuilder::new();
        let slow = builder.spout("slow", move |_| spout.lock().unwrap().take().unwrap());
        bolt(&builder, "end", &slow, move |tuple, out| match fails {
            true => out.fail(tuple),
            false => out.ack(tuple),
        });
        let topology = builder.start().unwrap();
        is_in_call.recv().unwrap();
        let waited = topology.wait(Duration::from_millis(20));
        release.send(()).unwrap();
        assert_eq!(waited.unwrap_err().components[0].name, "slow");
        topology.wait(Duration::from_secs(60)).unwrap();
        let metrics = &topology.metrics()[0];
        assert_eq!((metrics.acked, metrics.dead_letters), if fails { (0, 1) } else { (1, 0) });
    }
}

/// The same of bolts, where no spout waits for an ack.
#[test]
fn nothing_is_at_rest_while_a_bolt_executes() {
    struct Untracked;
    impl Spout<u64> for Untracked {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            out.emit_untracked(1);
            Next::Done
        }
    }
    let (in_call, is_in_call) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let ends = std::sync::Mutex::new(Some((in_call, released)));
    let builder = TopologyBuilder::new();
    let untracked = builder.spout("untracked", |_| Untracked);
    let slow = builder
        .bolt("slow", move |_| {
            let (in_call, released) = ends.lock().unwrap().take().unwrap();
            each(move |tuple, out| {
                in_call.send(()).unwrap();
                released.recv().unwrap();
                out.emit(&tuple, 2);
                out.ack(tuple);
            })
        })
        .shuffle(&untracked);
    builder.bolt("sink", |_| each(|tuple, out| out.ack(tuple))).shuffle(&slow);
    let topology = builder.start().unwrap();
    is_in_call.recv().unwrap();
    let waited = topology.wait(Duration::from_millis(20));
    release.send(()).unwrap();
    assert_eq!(waited.unwrap_err().components[0].name, "slow");
    topology.wait(Duration::from_secs(60)).unwrap();
    assert_eq!(topology.metrics()[2].executed, 1);
}

/// What takes ten seconds is counted as ten seconds.
#[test]
fn latencies_are_what_they_were() {
    let clock = ManualClock::new();
    let builder = builder(&clock);
    let numbers = builder.spout("numbers", |_| VecSpout::new(0..100)).timeout(SECOND * 100);
    bolt_with(&builder, "takes", &numbers, clock.clone(), move |clock, tuple, out| {
        clock.advance(SECOND / 10);
        out.ack(tuple);
    });
    let topology = settled(builder, &clock);
    let near =
        |latency: Duration, seconds: f64| (latency.as_secs_f64() / seconds - 1.0).abs() < 0.02;
    let [spout, bolt] = &topology.metrics()[..] else { panic!() };
    assert!(near(bolt.latency.percentile(50.0), 0.1), "{bolt:?}");
    assert!(near(bolt.latency.max(), 0.1), "{bolt:?}");
    assert!(spout.latency.max() > SECOND && spout.latency.mean() > SECOND, "{spout:?}");
    assert_eq!(
        (spout.latency.count(), bolt.latency.count()),
        (100_u64.div_ceil(16), 100_u64.div_ceil(16))
    );
}

/// Hooks are notified of everything, and one that panics does no harm.
#[test]
fn hooks_are_told() {
    struct Tell(Log<String>);
    impl Hook for Tell {
        fn emit(&self, task: &Context, message: &dyn Any) {
            let message = message.downcast_ref::<u64>().unwrap();
            self.0.note(format!("{} emits {message}", task.component()));
        }
        fn execute(&self, task: &Context, _: &Seen<'_>) {
            self.0.note(format!("{} executes", task.component()));
        }
        fn ack(&self, task: &Context, tuple: &Seen<'_>, message: &dyn Any) {
            let Seen { source, source_task, took, .. } = tuple;
            let message = message.downcast_ref::<u64>().unwrap();
            let task = task.component();
            self.0.note(format!("{task} acks {message} of {source} {source_task} after {took:?}"));
        }
        fn fail(&self, task: &Context, _: &Seen<'_>) {
            self.0.note(format!("{} fails", task.component()));
        }
        fn spout_ack(&self, _: &Context, id: &dyn fmt::Debug, _took: Duration) {
            self.0.note(format!("{id:?} is acked"));
        }
        fn spout_fail(&self, _: &Context, id: &dyn fmt::Debug, failure: &Failure, is_last: bool) {
            self.0.note(format!("{id:?}: {failure}, {is_last}"));
        }
        fn error(&self, task: &Context, error: &str) {
            self.0.note(format!("{}: {error}", task.component()));
        }
    }
    struct Rude;
    impl Hook for Rude {
        fn spout_ack(&self, _: &Context, _: &dyn fmt::Debug, _: Duration) {
            std::panic::resume_unwind(Box::new("rude"));
        }
    }
    let (clock, heard) = (ManualClock::new(), Log::new());
    let builder = builder(&clock);
    builder.hook(Rude).hook(Tell(heard.clone()));
    let numbers = builder.spout("numbers", |_| VecSpout::new([1, 2]));
    clock.advance(SECOND);
    bolt_with(&builder, "even", &numbers, clock.clone(), |clock, tuple, out| {
        if *tuple % 2 == 0 {
            clock.advance(SECOND);
            out.ack(tuple);
        } else {
            out.report(&"odd");
            out.fail_with(tuple, "even ones only");
        }
    });
    let topology = settled(builder, &clock);
    let mut heard = heard.all();
    heard.sort();
    let expected = [
        "0: it was failed by \"even\": even ones only, true",
        "1 is acked",
        "even acks 2 of numbers 0 after 1s",
        "even executes",
        "even executes",
        "even fails",
        "even: odd",
        "numbers emits 1",
        "numbers emits 2",
    ];
    assert_eq!(heard, expected);
    assert_eq!((topology.metrics()[0].panics, topology.metrics()[1].errors), (1, 1));
}

/// Strategies decide how a thread waits, and are asked in rounds counted from the last time that
/// there was something to do.
#[test]
fn waiting_goes_by_the_strategy() {
    use expiry_topology::{Parking, Progressive, Sleeping};
    let progressive = Progressive { spins: 2, yields: 1 };
    let waits: Vec<Wait> = (0..5).map(|nth| progressive.wait(nth)).collect();
    let park = Wait::Park(Duration::MAX);
    assert_eq!(waits, [Wait::Spin, Wait::Spin, Wait::Yield, park, park]);
    assert_eq!(Parking.wait(0), park);
    assert_eq!(Sleeping(SECOND).wait(7), Wait::Sleep(SECOND));

    for strategy in 0..3 {
        let builder = TopologyBuilder::new();
        match strategy {
            0 => builder.wait(Parking),
            1 => builder.wait(Sleeping(Duration::from_micros(100))),
            _ => builder.wait(|_: u32| Wait::Yield),
        };
        let numbers = builder.spout("numbers", |_| VecSpout::new(0..1000)).max_pending(3);
        builder.bolt("sink", |_| each(|tuple, out| out.ack(tuple))).shuffle(&numbers);
        let topology = builder.start().unwrap();
        topology.wait(Duration::from_secs(60)).unwrap();
        assert_eq!(topology.metrics()[0].acked, 1000);
    }
}

/// A wait for the topology names a spout that blocks, and a drain leaves it behind. Its thread ends
/// when the call does.
#[test]
fn a_spout_that_blocks_is_named_and_left_behind() {
    struct Blocks(std::sync::mpsc::Receiver<()>, Log<Told>);
    impl Spout<u64> for Blocks {
        fn next(&mut self, _: &mut SpoutCollector<'_, u64>) -> Next {
            let _ = self.0.recv();
            Next::Done
        }
        fn close(&mut self) {
            self.1.note(Told::Close);
        }
    }
    let told = Log::new();
    let (release, blocked) = std::sync::mpsc::channel();
    let blocked = std::sync::Mutex::new(Some(blocked));
    let builder = TopologyBuilder::new();
    let into = told.clone();
    let blocks = builder
        .spout("blocks", move |_| Blocks(blocked.lock().unwrap().take().unwrap(), into.clone()));
    builder.bolt("sink", |_| each(|tuple, out| out.ack(tuple))).shuffle(&blocks);
    let topology = builder.start().unwrap();
    // This loops until the spout is in its call.
    let stuck = loop {
        let stuck = topology.wait(Duration::from_millis(1)).unwrap_err();
        if !stuck.components.is_empty() {
            break stuck;
        }
    };
    assert_eq!(stuck.components[0].name, "blocks");
    assert!(stuck.to_string().contains("blocks"));
    assert_eq!(topology.drain(Duration::ZERO).unwrap_err().components[0].name, "blocks");
    assert_eq!(told.all(), []);
    drop(release);
    wait_for("the end of the thread", || told.all() == [Told::Close]);
}

/// A drain comes while the topology works: each emitted message has been acked.
#[test]
fn a_drain_leaves_nothing_behind() {
    for _ in 0..20 {
        let told = Log::new();
        let builder = TopologyBuilder::new();
        let numbers = builder.spout("numbers", numbers(0.., &told)).max_pending(10);
        builder.bolt("sink", |_| each(|tuple, out| out.ack(tuple))).shuffle(&numbers);
        let topology = builder.start().unwrap();
        while told.all().len() < 100 {
            std::thread::yield_now();
        }
        let metrics = topology.drain(Duration::from_secs(60)).unwrap();
        let told = told.all();
        let count = |of: fn(&Told) -> bool| told.iter().filter(|told| of(told)).count() as u64;
        let emitted = count(|told| matches!(told, Told::Emitted(_)));
        assert_eq!(count(|told| matches!(told, Told::Ack(_))), emitted);
        assert_eq!((metrics[0].emitted, metrics[0].acked), (emitted, emitted));
        assert_eq!(told.last(), Some(&Told::Close));
    }
}

/// A message that panics when it is copied to be emitted again is given up, and holds nothing up.
#[test]
fn a_message_that_cannot_be_copied_is_a_dead_letter() {
    struct Fragile(Arc<AtomicUsize>);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            if self.0.fetch_add(1, Relaxed) == 1 {
                std::panic::resume_unwind(Box::new("it was to panic"));
            }
            Fragile(self.0.clone())
        }
    }
    let (once, letters) = (VecSpout::new([Fragile(Arc::default())]), Log::new());
    let (clock, builder) = (ManualClock::new(), TopologyBuilder::new());
    let source =
        builder.spout("once", once.instances()).replay(Replay::default().base(Duration::ZERO));
    builder
        .bolt("no", |_| expiry_topology::sink(|_: &Fragile, _| Err::<(), _>("no")))
        .shuffle(&source);
    let log = letters.clone();
    builder
        .bolt("letters", move |_| {
            let log = log.clone();
            expiry_topology::sink(move |id: &String, _| log.note(id.clone()))
        })
        .shuffle(source.dead_letters().map(|letter| letter.id));
    let mut topology = builder.simulate(&clock).unwrap();
    assert!(topology.settle(1000));
    assert!(topology.is_finished());
    let metrics = &topology.metrics()[0];
    assert_eq!((metrics.panics, metrics.dead_letters, metrics.pending), (1, 1, 0));
    assert_eq!(letters.all(), ["0"]);
    assert_eq!((once.acked(), once.failed().len()), (vec![], 1));
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

/// A task that sleeps until there is room is woken when there is some: here nothing else wakes it.
#[test]
fn room_wakes_who_waits_for_it() {
    let builder = TopologyBuilder::new();
    builder.queue(1).batch(1).wait(expiry_topology::Parking);
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

/// A sleeping spout is asked when it is called, and not before. A spout that had nothing is asked
/// after its pause, or when it is called.
#[test]
fn a_spout_is_asked_when_it_is_called() {
    struct Fed {
        feed: Arc<Mutex<Vec<u64>>>,
        asked: Arc<AtomicUsize>,
        otherwise: Next,
    }
    impl Spout<u64> for Fed {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            self.asked.fetch_add(1, Relaxed);
            let Some(number) = self.feed.lock().unwrap().pop() else {
                return self.otherwise;
            };
            out.emit(number, number).unwrap();
            Next::Ready
        }
    }
    for otherwise in [Next::Idle, Next::Asleep] {
        let (clock, asked) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
        let (feed, waker) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let builder = builder(&clock);
        let fed = builder.spout("fed", {
            let (feed, asked, waker) = (feed.clone(), asked.clone(), waker.clone());
            move |context| {
                *waker.lock().unwrap() = Some(context.waker());
                let (feed, asked) = (feed.clone(), asked.clone());
                Fed { feed, asked, otherwise }
            }
        });
        let bolt = |_: &Context| each(|tuple, out| out.ack(tuple));
        builder.bolt("sink", bolt).shuffle(&fed);
        let mut topology = settled(builder, &clock);
        assert_eq!(asked.load(Relaxed), 1);
        feed.lock().unwrap().push(1);
        settle(&mut topology);
        assert_eq!(asked.load(Relaxed), 1, "nobody has called");
        waker.lock().unwrap().as_ref().unwrap().wake();
        settle(&mut topology);
        assert_eq!((asked.load(Relaxed), topology.metrics()[0].acked), (3, 1));
        clock.advance(SECOND);
        settle(&mut topology);
        let again = usize::from(otherwise == Next::Idle);
        assert_eq!(asked.load(Relaxed), 3 + again);
    }
}

/// Holds tuples until another thread has an answer, and calls its waker.
struct Asks(Vec<Tuple<u64>>, mpsc::Receiver<bool>);

impl Asks {
    /// Adds the bolt, and returns what gives it answers.
    fn add<'t>(
        builder: &'t TopologyBuilder,
        source: &SpoutStage<'t, u64>,
    ) -> Box<dyn Fn(bool) + Send> {
        let (sender, answers) = mpsc::channel();
        let (give, wakers) = mpsc::channel();
        let answers = Mutex::new(Some(answers));
        builder
            .bolt("asks", move |context| {
                give.send(context.waker()).unwrap();
                Asks(Vec::new(), answers.lock().unwrap().take().unwrap())
            })
            .shuffle(source);
        let waker = OnceCell::new();
        Box::new(move |answer| {
            sender.send(answer).unwrap();
            waker.get_or_init(|| wakers.recv().unwrap()).wake();
        })
    }
}

impl Bolt<u64, u64> for Asks {
    fn execute(&mut self, tuple: Tuple<u64>, _: &mut BoltCollector<'_, u64>) {
        self.0.push(tuple);
    }

    fn woken(&mut self, out: &mut BoltCollector<'_, u64>) {
        for answer in self.1.try_iter() {
            match (self.0.pop().unwrap(), answer) {
                (tuple, true) => out.ack(tuple),
                (tuple, false) => out.fail(tuple),
            }
        }
    }
}

/// A waker calls its bolt once, also while the topology is inactive.
#[test]
fn a_bolt_is_called_by_its_waker() {
    let (clock, told, builder) = rig();
    let log = told.clone();
    let numbers = builder.spout("numbers", move |_| Numbers::new([1, 2], &log));
    let answer = Asks::add(&builder, &numbers);
    let mut topology = settled(builder, &clock);
    assert_eq!(topology.metrics()[1].held, 2);
    answer(true);
    assert!(topology.step(), "the call is something to do");
    settle(&mut topology);
    topology.deactivate();
    settle(&mut topology);
    assert!(!topology.step(), "the call was taken");
    told.take();
    answer(false);
    settle(&mut topology);
    assert_eq!(told.all(), [Told::Fail(1, Why::Failed)]);
    assert!(topology.is_finished());
}

/// Another thread wakes a bolt whose thread is parked. A drain waits for the tuples that the bolt
/// holds, and for its calls.
#[test]
fn a_drain_waits_for_what_a_waker_is_to_settle() {
    let builder = TopologyBuilder::new();
    builder.timeout(SECOND * 600).wait(expiry_topology::Parking);
    let numbers = builder.spout("numbers", |_| VecSpout::new([1, 2]));
    let answer = Asks::add(&builder, &numbers);
    let topology = builder.start().unwrap();
    while topology.metrics()[1].held < 2 {
        std::thread::yield_now();
    }
    let pause = Duration::from_millis(20);
    std::thread::sleep(pause);
    answer(true);
    while topology.metrics()[0].acked < 1 {
        std::thread::yield_now();
    }
    let (began, peer) = (
        Instant::now(),
        std::thread::spawn(move || {
            std::thread::sleep(pause);
            answer(true);
        }),
    );
    let metrics = topology.drain(SECOND * 60).unwrap();
    assert!(began.elapsed() >= pause);
    assert_eq!((metrics[0].acked, metrics[1].held), (2, 0));
    peer.join().unwrap();
}

/// A drain does not wait for a tick that is an hour away. Bolts tick once they have nothing more to
/// execute, one after another.
#[test]
fn a_drain_does_not_wait_for_ticks() {
    struct Hold(Vec<Tuple<u64>>, bool);
    impl expiry_topology::Bolt<u64, u64> for Hold {
        fn execute(&mut self, tuple: Tuple<u64>, _: &mut expiry_topology::BoltCollector<'_, u64>) {
            self.0.push(tuple);
        }
        fn tick(&mut self, out: &mut expiry_topology::BoltCollector<'_, u64>) {
            if self.1 {
                out.emit(&self.0, self.0.len() as u64);
            }
            self.0.drain(..).for_each(|tuple| out.ack(tuple));
        }
    }
    let hour = Duration::from_secs(3600);
    let builder = TopologyBuilder::new();
    builder.timeout(hour * 2).wait(expiry_topology::Parking);
    let numbers = builder.spout("numbers", |_| Numbers::new(0..1000, &Log::new()).at_once(10));
    let first = builder.bolt("first", |_| Hold(Vec::new(), true));
    let first = first.shuffle(&numbers).tick_every(hour).parallelism(2);
    builder.bolt("second", |_| Hold(Vec::new(), false)).shuffle(&first).tick_every(hour);
    let topology = builder.start().unwrap();
    // All of them are held, and nothing else will happen.
    while topology.metrics()[1].held < 1000 {
        std::thread::yield_now();
    }
    let metrics = topology.drain(Duration::from_secs(60)).unwrap();
    assert_eq!((metrics[0].acked, metrics[0].pending), (1000, 0));
    assert!(metrics[2].acked >= 2);
}

/// A bolt cannot be made for a while, say because its database is away. That costs no message:
/// messages wait for it. The task tries again after pauses that grow.
#[test]
fn messages_wait_for_a_bolt_that_cannot_be_made() {
    let (clock, told, tries) = (ManualClock::new(), Log::new(), Log::new());
    let builder = builder(&clock);
    builder.batch(4);
    let numbers = builder.spout("numbers", numbers_by(10, 0..10, &told));
    builder
        .bolt("late", {
            let (clock, tries) = (clock.clone(), tries.clone());
            // It is away from the beginning, and again after its sixth tuple, which it panics over.
            move |_| {
                let now = expiry::Clock::now(&clock) / 1_000_000;
                tries.note(now);
                assert!((3000..3001).contains(&(now / 1000 * 1000)) || now >= 6000, "away");
                each(move |tuple, out| {
                    if *tuple == 5 {
                        std::panic::resume_unwind(Box::new("five"));
                    }
                    out.ack(tuple);
                })
            }
        })
        .shuffle(&numbers);
    let mut topology = settled(builder, &clock);
    let took = run(&mut topology, &clock, SECOND * 60);
    assert!(topology.is_finished());
    assert!(took < SECOND * 10, "{took:?}");
    let acked = told.all().iter().filter(|told| matches!(told, Told::Ack(_))).count();
    let failed = told.all().contains(&Told::Fail(5, Why::Failed));
    assert_eq!((acked, failed, topology.metrics()[0].failed), (9, true, 1));
    let tries = tries.all();
    assert_eq!(tries[..6], [0, 1, 3, 7, 15, 31], "{tries:?}");
    assert!(tries.len() < 20, "{tries:?}");
}

/// Emits what it is sent, and notes which thread calls it.
struct Sent {
    numbers: mpsc::Receiver<u64>,
    calls: Log<(Told, ThreadId)>,
}

impl Sent {
    /// Adds the spout, and returns what sends it numbers. It is asked again after each of them.
    fn add<'t>(
        builder: &'t TopologyBuilder,
        calls: &Log<(Told, ThreadId)>,
    ) -> (SpoutStage<'t, u64>, Box<dyn Fn(u64)>) {
        let (sender, numbers) = mpsc::channel();
        let (give, wakers) = mpsc::channel();
        let (numbers, calls) = (Mutex::new(Some(numbers)), calls.clone());
        let stage = builder.spout("numbers", move |context| {
            give.send(context.waker()).unwrap();
            let numbers = numbers.lock().unwrap().take().unwrap();
            Sent { numbers, calls: calls.clone() }
        });
        let waker = OnceCell::new();
        let send = move |number| {
            sender.send(number).unwrap();
            waker.get_or_init(|| wakers.recv().unwrap()).wake();
        };
        (stage, Box::new(send))
    }

    fn note(&self, told: Told) {
        self.calls.note((told, thread::current().id()));
    }
}

impl Spout<u64> for Sent {
    fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
        match self.numbers.try_recv() {
            Ok(number) => {
                self.note(Told::Emitted(number));
                out.emit(number, number).unwrap();
                Next::Ready
            }
            Err(mpsc::TryRecvError::Empty) => Next::Asleep,
            Err(mpsc::TryRecvError::Disconnected) => Next::Done,
        }
    }
    fn ack(&mut self, id: u64) {
        self.note(Told::Ack(id));
    }
    fn fail(&mut self, id: u64, failure: &Failure) {
        self.note(Told::Fail(id, failure.into()));
    }
}

/// A thread asks its strategy in each round without work, and counts such rounds from the last one
/// with work.
#[test]
fn a_thread_asks_its_strategy_and_counts_from_its_last_work() {
    const MESSAGES: u64 = 3;
    let (asked, calls, worked) = (Log::new(), Log::new(), Log::new());
    let builder = TopologyBuilder::new();
    builder.wait({
        let asked = asked.clone();
        move |nth| {
            asked.note((thread::current().id(), nth));
            Wait::Park(Duration::from_millis(1))
        }
    });
    let (numbers, send) = Sent::add(&builder, &calls);
    bolt_with(&builder, "sink", &numbers, worked.clone(), move |worked, tuple, out| {
        worked.note(thread::current().id());
        out.ack(tuple);
    });
    let topology = builder.start().unwrap();
    for number in 0..MESSAGES {
        let before = asked.all().len();
        wait_for("both threads to be idle for some rounds", || {
            let all = asked.all();
            let idle = all[before..].iter().filter(|(_, nth)| *nth > 3).map(|(thread, _)| thread);
            idle.collect::<HashSet<_>>().len() == 2
        });
        send(number);
        wait_for("the ack", || calls.all().iter().any(|(told, _)| *told == Told::Ack(number)));
    }
    topology.kill();
    let (spout, bolt) = (calls.all()[0].1, worked.all()[0]);
    assert_ne!(spout, bolt);
    for (thread, name) in [(spout, "the spout's"), (bolt, "the bolt's")] {
        let all = asked.all();
        let rounds = all.iter().filter(|(of, _)| *of == thread).map(|(_, nth)| *nth);
        let rounds: Vec<u32> = rounds.collect();
        let goes_on = rounds.windows(2).all(|two| two[1] == two[0] + 1 || two[1] == 0);
        assert!(rounds[0] == 0 && goes_on, "{name}: {rounds:?}");
        let begins = rounds.iter().filter(|nth| **nth == 0).count() as u64;
        assert!(begins > MESSAGES, "{name} thread has not begun anew: {rounds:?}");
    }
}

/// A spout's thread is parked, and only an outcome wakes it. Another thread brings the outcome
/// about, and the spout's own thread calls the spout.
#[test]
fn an_outcome_from_another_thread_comes_back_to_the_spouts() {
    let (asked, calls, settled) = (Log::new(), Log::new(), Log::new());
    let builder = TopologyBuilder::new();
    builder.timeout(Duration::from_secs(3600)).wait({
        let asked = asked.clone();
        move |_| {
            asked.note(thread::current().id());
            Wait::Park(Duration::MAX)
        }
    });
    let (numbers, send) = Sent::add(&builder, &calls);
    let pass = builder.bolt("pass", passes).shuffle(&numbers);
    // Settles a tuple when the test says so: 0 is acked, 1 is failed, 2 is kept.
    let (go, may_go) = mpsc::channel::<()>();
    let may_go = Mutex::new(Some(may_go));
    builder
        .bolt("settles", {
            let settled = settled.clone();
            move |_| {
                let (settled, may_go) = (settled.clone(), may_go.lock().unwrap().take().unwrap());
                let mut kept = Vec::new();
                each(move |tuple: Tuple<u64>, out| {
                    may_go.recv().unwrap();
                    settled.note(thread::current().id());
                    match *tuple {
                        0 => out.ack(tuple),
                        1 => out.fail(tuple),
                        _ => kept.push(tuple),
                    }
                })
            }
        })
        .shuffle(&pass);
    let topology = builder.start().unwrap();
    // If an assertion fails, the bolt waits no more before the topology is dropped.
    let go = go;
    for number in 0..2 {
        send(number);
        wait_for("the message", || {
            calls.all().iter().any(|(told, _)| *told == Told::Emitted(number))
        });
        let spout = calls.all()[0].1;
        // The spout's thread has nothing to do until the message is settled.
        wait_for("its thread to sleep", || asked.all().contains(&spout));
        asked.take();
        go.send(()).unwrap();
        wait_for("the bolt", || settled.all().len() as u64 == number + 1);
        let expected = match number {
            0 => Told::Ack(0),
            _ => Told::Fail(1, Why::Failed),
        };
        let is_told = || calls.all().iter().any(|(told, _)| *told == expected);
        wait_for("the spout is told", is_told);
    }
    let threads: HashSet<_> = calls.all().iter().map(|(_, thread)| *thread).collect();
    assert_eq!(threads.len(), 1, "one thread calls all functions of a spout");
    assert!(settled.all().iter().all(|thread| !threads.contains(thread)));
    assert!(!threads.contains(&thread::current().id()));
    topology.kill();
}
