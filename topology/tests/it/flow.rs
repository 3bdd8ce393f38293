//! Which task waits for which: full queues, cycles, order, inactive spouts, ticks; and what a panic
//! costs.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{
    Collect, Context, Failure, Hook, Next, Replay, Seen, Spout, SpoutCollector, TopologyBuilder,
    VecSpout,
};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

/// A bolt takes nothing for minutes. What is to go to it waits, in order and bounded, and then goes
/// on.
#[test]
fn full_queues_for_minutes_lose_and_reorder_nothing() {
    let ((clock, told, builder), came) = (rig(), Collect::new());
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

#[test]
fn ticks_come_at_their_time() {
    let ((clock, _, builder), ticks, came) = (rig(), Log::new(), Collect::new());
    let numbers = builder.spout("numbers", |_| VecSpout::new([]));
    let log = ticks.clone();
    let ticking = holds(&builder, "ticking", &numbers, move |_, out| {
        log.note(out.now().as_secs());
        out.emit((), 1);
    });
    builder.bolt("sink", came.instances()).shuffle(&ticking.tick_every(SECOND * 3));
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

/// A spout that panics is made anew. The new instance is opened and activated, and receives the
/// outcomes of the old one's messages.
#[test]
fn a_spout_that_panics_is_restarted() {
    let (clock, told, builder) = rig();
    let (log, made) = (told.clone(), AtomicUsize::new(0));
    let panics = builder.spout("panics", move |_| {
        let nth = made.fetch_add(1, Relaxed) as u64;
        Numbers::new([nth], &log).then(|told| {
            if told == Told::Emitted(0) {
                panic();
            }
        })
    });
    bolt(&builder, "drops", &panics, |tuple, _| drop(tuple));
    let topology = ran(builder, &clock, SECOND * 100);
    let instance = |nth| [Told::Open, Told::Activate, Told::Emitted(nth)];
    assert_eq!(told.all()[..6], [instance(0), instance(1)].concat());
    let mut ends = ends(&told);
    ends.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(ends, [0, 1].map(|id| Told::Fail(id, Why::TimedOut)));
    assert_eq!(topology.metrics()[0].panics, 1);
}

/// A spout panics and cannot be made again at once. Outcomes that arrive meanwhile wait for the
/// next instance, and do not keep the thread busy.
#[test]
fn outcomes_wait_for_a_spout_that_cannot_be_made() {
    let (clock, told, builder) = rig();
    let (log, made) = (told.clone(), AtomicUsize::new(0));
    let panics = builder.spout("panics", move |_| match made.fetch_add(1, Relaxed) {
        0 => Numbers::new(0..4, &log).at_once(4).then(|told| {
            if matches!(told, Told::Ack(_)) {
                panic();
            }
        }),
        1..=3 => panic(),
        _ => Numbers::new([], &log),
    });
    acks_all(&builder, "ack", &panics);
    let mut topology = settled(builder, &clock);
    assert_eq!(
        (acks(&told).len(), topology.metrics()[0].panics),
        (1, 2),
        "one attempt, and a pause"
    );
    run(&mut topology, &clock, SECOND);
    let mut acked = acks(&told);
    acked.sort_unstable();
    assert_eq!((acked, topology.metrics()[0].panics), (vec![0, 1, 2, 3], 4));
    assert!(topology.is_finished());
}

/// When a wait for a topology returns, its spouts have received every outcome, and no bolt executes
/// a tuple, also where no spout waits for an ack.
#[test]
fn nothing_is_at_rest_during_a_call() {
    for slow in ["ack", "fail", "execute"] {
        let (in_call, is_in_call) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let wait = Mutex::new(move || {
            in_call.send(()).unwrap();
            released.recv().unwrap();
        });
        let (in_spout, in_bolt) = (Arc::new(wait), slow == "execute");
        let wait = in_spout.clone();
        let builder = TopologyBuilder::new();
        builder.acking(!in_bolt);
        let spout = builder.spout("spout", move |_| {
            let wait = in_spout.clone();
            Numbers::new([1], &Log::new()).at_once(2).then(move |told| {
                if !in_bolt && matches!(told, Told::Ack(_) | Told::Fail(..)) {
                    (wait.lock().unwrap())();
                }
            })
        });
        let ends = bolt_with(&builder, "bolt", &spout, wait, move |wait, tuple, out| {
            if in_bolt {
                (wait.lock().unwrap())();
            }
            out.emit(&tuple, 2);
            match slow {
                "fail" => out.fail(tuple),
                _ => out.ack(tuple),
            }
        });
        acks_all(&builder, "sink", &ends);
        let topology = builder.start().unwrap();
        is_in_call.recv().unwrap();
        let waited = topology.wait(Duration::from_millis(20));
        release.send(()).unwrap();
        let name = if in_bolt { "bolt" } else { "spout" };
        assert_eq!(waited.unwrap_err().components[0].metrics.name, name);
        topology.wait(SECOND * 60).unwrap();
        let metrics = topology.metrics();
        let failed = u64::from(slow == "fail");
        assert_eq!((metrics[0].acked, metrics[0].dead_letters), (1 - failed, failed));
        assert_eq!(metrics[2].executed, 1);
    }
}

/// What takes ten seconds is counted as ten seconds.
#[test]
fn latencies_are_what_they_were() {
    let (clock, _, builder) = rig();
    let numbers = builder.spout("numbers", |_| VecSpout::new(0..100)).timeout(SECOND * 100);
    bolt_with(&builder, "takes", &numbers, clock.clone(), move |clock, tuple, out| {
        clock.advance(SECOND / 10);
        out.ack(tuple);
        clock.advance(SECOND / 10);
    });
    let topology = settled(builder, &clock);
    let near =
        |latency: Duration, seconds: f64| (latency.as_secs_f64() / seconds - 1.0).abs() < 0.02;
    let [spout, bolt] = &topology.metrics()[..] else { panic!() };
    let [input] = &bolt.inputs[..] else { panic!() };
    for (latency, seconds) in [(&bolt.latency, 0.2), (&input.execute, 0.2), (&input.process, 0.1)] {
        assert!(near(latency.percentile(50.0), seconds), "{bolt:?}");
        assert!(near(latency.max(), seconds), "{bolt:?}");
    }
    assert!(spout.latency.max() > SECOND && spout.latency.mean() > SECOND, "{spout:?}");
    assert_eq!(
        (spout.latency.count(), bolt.latency.count()),
        (100_u64.div_ceil(16), 100_u64.div_ceil(16))
    );
}

/// Hooks are notified of everything, with what it took, and one that panics does no harm.
#[test]
fn hooks_are_told() {
    struct Reports;
    impl Spout<u64> for Reports {
        fn replay_by_default() -> Replay {
            Replay::once()
        }

        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            (1..=2).for_each(|n| out.emit(n, n).unwrap());
            out.report(&"that is all");
            Next::Done
        }
    }
    fn seen(tuple: &Seen<'_>) -> String {
        let Seen { source, source_task, took, .. } = tuple;
        format!("of {source} {source_task} after {took:?}")
    }
    struct Tell(Log<String>);
    impl Hook for Tell {
        fn emit(&self, task: &Context, message: &dyn Any) {
            let message = message.downcast_ref::<u64>().unwrap();
            self.0.note(format!("{} emits {message}", task.component()));
        }
        fn execute(&self, task: &Context, tuple: &Seen<'_>) {
            self.0.note(format!("{} executes one {}", task.component(), seen(tuple)));
        }
        fn ack(&self, task: &Context, tuple: &Seen<'_>, message: &dyn Any) {
            let message = message.downcast_ref::<u64>().unwrap();
            self.0.note(format!("{} acks {message} {}", task.component(), seen(tuple)));
        }
        fn fail(&self, task: &Context, tuple: &Seen<'_>) {
            self.0.note(format!("{} fails one {}", task.component(), seen(tuple)));
        }
        fn spout_ack(&self, _: &Context, id: &dyn fmt::Debug, took: Duration) {
            self.0.note(format!("{id:?} is acked after {took:?}"));
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
    let ((clock, _, builder), heard) = (rig(), Log::new());
    builder.hook(Rude).hook(Tell(heard.clone()));
    let numbers = builder.spout("numbers", |_| Reports);
    clock.advance(SECOND);
    bolt_with(&builder, "even", &numbers, clock.clone(), |clock, tuple, out| {
        clock.advance(SECOND * *tuple as u32);
        if *tuple % 2 == 0 {
            out.ack(tuple);
        } else {
            out.report(&"odd");
            out.fail_with(tuple, "even ones only");
        }
        clock.advance(SECOND * 2);
    });
    let topology = settled(builder, &clock);
    let mut heard = heard.all();
    heard.sort();
    let expected = [
        "1: it was failed by \"even\": even ones only, true",
        "2 is acked after 7s",
        "even acks 2 of numbers 0 after 2s",
        "even executes one of numbers 0 after 3s",
        "even executes one of numbers 0 after 4s",
        "even fails one of numbers 0 after 1s",
        "even: odd",
        "numbers emits 1",
        "numbers emits 2",
        "numbers: that is all",
    ];
    assert_eq!(heard, expected);
    let [spout, bolt] = &topology.metrics()[..] else { panic!() };
    assert_eq!((spout.panics, spout.errors, bolt.errors), (1, 1, 1));
}

/// A wait for the topology names a spout that blocks, and a drain leaves it behind. Its thread ends
/// when the call does.
#[test]
fn a_spout_that_blocks_is_named_and_left_behind() {
    struct Blocks(Arc<AtomicUsize>, std::sync::mpsc::Receiver<()>, Log<Told>);
    impl Spout<u64> for Blocks {
        fn next(&mut self, _: &mut SpoutCollector<'_, u64>) -> Next {
            self.0.fetch_add(1, Relaxed);
            let _ = self.1.recv();
            Next::Done
        }
        fn close(&mut self) {
            self.2.note(Told::Close);
        }
    }
    let told = Log::new();
    let (release, blocked) = std::sync::mpsc::channel();
    let blocked = std::sync::Mutex::new(Some(blocked));
    let builder = TopologyBuilder::new();
    let (called, into) = (Arc::<AtomicUsize>::default(), told.clone());
    let counts = called.clone();
    let blocks = builder.spout("blocks", move |_| {
        Blocks(counts.clone(), blocked.lock().unwrap().take().unwrap(), into.clone())
    });
    builder.bolt("sink", |_| each(|tuple, out| out.ack(tuple))).shuffle(&blocks);
    let topology = builder.start().unwrap();
    wait_for("the spout is in its call", || called.load(Relaxed) == 1);
    let stuck = topology.wait(Duration::from_millis(1)).unwrap_err();
    assert_eq!(stuck.components[0].metrics.name, "blocks");
    assert!(stuck.to_string().contains("blocks"));
    assert_eq!(topology.drain(Duration::ZERO).unwrap_err().components[0].metrics.name, "blocks");
    assert_eq!(told.all(), []);
    drop(release);
    wait_for("the end of the thread", || told.all() == [Told::Close]);
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

/// A bolt cannot be made for a while, say because its database is away. That costs no message:
/// messages wait for it. The task tries again after pauses that grow.
#[test]
fn messages_wait_for_a_bolt_that_cannot_be_made() {
    let ((clock, told, builder), tries) = (rig(), Log::new());
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
    let acked = acks(&told).len();
    let failed = told.all().contains(&Told::Fail(5, Why::Failed));
    assert_eq!((acked, failed, topology.metrics()[0].failed), (9, true, 1));
    let tries = tries.all();
    assert_eq!(tries[..6], [0, 1, 3, 7, 15, 31], "{tries:?}");
    assert!(tries.len() < 20, "{tries:?}");
}
