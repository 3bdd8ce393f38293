//! What a hostile component, or a hostile setting, could break.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{
    sink, Collect, Context, Derive, Next, Replay, Spout, SpoutCollector, TopologyBuilder, Tuple,
    VecSpout,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An instance that panics is dropped, and that may panic again; and so may the drop of the last
/// ones.
#[test]
fn drops_of_instances_may_panic() {
    let (clock, told, builder) = rig();
    let (log, made) = (told.clone(), AtomicUsize::new(0));
    let dies = builder.spout("dies", move |_| {
        let (is_first, bomb) = (made.fetch_add(1, Relaxed) == 0, Bomb);
        let numbers = Numbers::new(if is_first { 0..8 } else { 0..0 }, &log).at_once(8);
        numbers.then(move |told| {
            let _ = &bomb;
            if is_first && matches!(told, Told::Ack(_)) {
                panic();
            }
        })
    });
    let dies_too = |_: &Context| {
        let (mut left, bomb) = (2, Bomb);
        each(move |tuple, out| {
            let _ = &bomb;
            left -= 1;
            if left == 0 {
                panic();
            }
            out.ack(tuple);
        })
    };
    let dies = dies.replay(Replay::default());
    builder.bolt("dies too", dies_too).parallelism(2).threads(1).shuffle(&dies);
    let topology = ran(builder, &clock, SECOND * 100);
    let mut acked = acks(&told);
    acked.sort_unstable();
    assert_eq!(acked, (0..8).collect::<Vec<_>>());
    assert!(topology.is_finished());
    // Two of them at once, which would end the process.
    drop(topology);
}

/// The executor drops the copy of a message that is kept for another attempt, and its id. A panic
/// there costs the spout its instance, and no outcome.
#[test]
fn drops_of_messages_may_panic() {
    struct Message(#[allow(dead_code)] Option<Bomb>); // dropped
    impl Clone for Message {
        fn clone(&self) -> Self {
            Message(Some(Bomb))
        }
    }
    let (clock, _, builder) = rig();
    let four = VecSpout::new([0; 4].map(|_| Message(None)));
    let source = builder.spout("four", four.instances()).replay(Replay::default());
    let mut executed = 0;
    let rejects = move |_: &Context| {
        sink(move |_: &Message, out: &mut Derive<'_, '_, ()>| {
            executed += 1;
            if executed % 2 == 0 {
                out.reject("no");
            }
        })
    };
    builder.bolt("rejects", rejects).shuffle(&source);
    let topology = settled(builder, &clock);
    let mut rejected: Vec<u64> = four.failed().iter().map(|(id, _)| *id).collect();
    rejected.sort_unstable();
    assert_eq!((four.acked(), rejected), (vec![0, 2], vec![1, 3]));
    assert!(topology.is_finished() && topology.metrics()[0].panics == 4);
}

/// A thread's name may not hold everything that a component's may.
#[test]
fn a_name_may_hold_a_nul() {
    let told = Log::new();
    let builder = TopologyBuilder::new();
    builder.spout("a\0b", numbers(0..4, &told));
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 60).unwrap();
    assert_eq!(topology.kill()[0].name, "a\0b");
    assert_eq!(acks(&told), [0, 1, 2, 3]);
}

/// A task that waits for room at one task still sends to another one.
#[test]
fn what_has_room_is_not_held_up_by_what_has_none() {
    let ((clock, _, builder), came) = (rig(), Collect::new());
    builder.queue(2).batch(2).timeout(SECOND * 1000);
    let numbers = builder.spout("numbers", |_| Numbers::new(0..11, &Log::new()).at_once(11));
    let pass = bolt(&builder, "pass", &numbers, |tuple, out| {
        if *tuple == 0 {
            out.emit(&tuple, 100);
        }
        for _ in 0..3 {
            out.emit(&tuple, *tuple);
        }
        out.ack(tuple);
    });
    let (stalled, free) = (pass.stream().filter(|n| *n < 100), pass.stream().filter(|n| *n == 100));
    builder.bolt("stalled", |_| each(|tuple, out| out.ack(tuple))).shuffle(stalled);
    builder.bolt("free", came.instances()).shuffle(free);
    let mut topology = builder.simulate(&clock).unwrap();
    topology.hold("stalled", true);
    for _ in 0..10 {
        settle(&mut topology);
        clock.advance(SECOND);
    }
    assert_eq!(came.all(), [100]);
}

/// A timeout of `settle` names the spout that is asked for ever.
#[test]
fn a_spout_that_is_not_done_is_named() {
    struct Never;
    impl Spout<u64> for Never {
        fn next(&mut self, _: &mut SpoutCollector<'_, u64>) -> Next {
            Next::Idle
        }
    }
    let builder = TopologyBuilder::new();
    builder.spout("never", |_| Never);
    let topology = builder.start().unwrap();
    let stuck = topology.wait(Duration::ZERO).unwrap_err();
    assert_eq!(stuck.components.len(), 1, "{stuck}");
}

/// Starts as many topologies as `owns` has places, each with a bolt that drops the topology in its
/// place. The bolts have all been called when the first one drops.
fn dropped_by_bolts(owns: &[usize]) {
    let places: Arc<Vec<Mutex<Option<expiry_topology::Topology>>>> =
        Arc::new(owns.iter().map(|_| Mutex::new(None)).collect());
    let meet = Arc::new(std::sync::Barrier::new(owns.len()));
    let (done, is_done) = std::sync::mpsc::channel();
    for (&own, place) in owns.iter().zip(places.iter()) {
        let builder = TopologyBuilder::new();
        builder.start_inactive();
        let numbers = builder.spout("numbers", |_| Numbers::new(0..64, &Log::new()).at_once(64));
        let (places, meet, done) = (places.clone(), meet.clone(), done.clone());
        let drops = move |_: &Context| {
            let (places, meet, done) = (places.clone(), meet.clone(), done.clone());
            let mut first = true;
            each(move |tuple, out| {
                if std::mem::take(&mut first) {
                    meet.wait();
                    let owned = places[own].lock().unwrap().take();
                    let drops = std::panic::AssertUnwindSafe(|| drop(owned));
                    let _ = done.send(std::panic::catch_unwind(drops).is_ok());
                }
                out.ack(tuple);
            })
        };
        builder.bolt("drops", drops).shuffle(&numbers);
        let topology = builder.start().unwrap();
        *place.lock().unwrap() = Some(topology);
    }
    for place in places.iter() {
        let place = place.lock().unwrap();
        place.as_ref().unwrap().activate();
    }
    for _ in owns {
        assert_eq!(is_done.recv_timeout(SECOND * 20), Ok(true));
    }
}

/// Bolts drop their own topology, or each other's.
#[test]
fn a_topology_may_be_dropped_by_a_bolt() {
    dropped_by_bolts(&[0]);
    dropped_by_bolts(&[1, 0]);
}

/// A tuple may travel anywhere: in another topology it belongs to no component.
#[test]
fn a_tuple_of_another_topology_does_no_harm() {
    let (clock, told) = (ManualClock::new(), Log::new());
    let (send, receive) = std::sync::mpsc::channel();
    let receive = Arc::new(Mutex::new(receive));
    let far = builder(&clock);
    far.seed(1);
    let first = far.spout("first", |_| VecSpout::new([]));
    far.bolt("second", |_| each(|tuple, out| out.ack(tuple))).shuffle(&first);
    let third = far.spout("third", |_| VecSpout::new(0..3));
    far.bolt("sends", move |_| {
        let send = send.clone();
        each(move |tuple, _| send.send(tuple).unwrap())
    })
    .shuffle(&third);
    let mut far = far.simulate(&clock).unwrap();
    settle(&mut far);
    let near = builder(&clock);
    near.seed(2);
    let numbers = near.spout("numbers", numbers(0..3, &told));
    near.bolt("receives", move |_| {
        let receive = receive.clone();
        each(move |tuple, out| {
            let other = receive.lock().unwrap().recv().unwrap();
            assert_eq!(out.source(&tuple), "numbers");
            assert!(!out.reset_timeout(&other));
            match *tuple {
                0 => drop(other),
                1 => out.fail(other),
                _ => assert!(!out.ack_now(other)),
            }
            out.ack(tuple);
        })
    })
    .shuffle(&numbers);
    let mut near = near.simulate(&clock).unwrap();
    settle(&mut near);
    assert_eq!(acks(&told), [0, 1, 2]);
    assert_eq!((near.metrics()[1].panics, near.metrics()[1].late), (0, 2));
    run(&mut far, &clock, SECOND * 100);
    assert_eq!(far.metrics()[2].timed_out, 3);
}

/// Another bolt may ack a tuple than the one that received it.
#[test]
fn a_tuple_may_be_acked_by_another_bolt() {
    let (clock, told) = (ManualClock::new(), Log::new());
    let (send, receive) = std::sync::mpsc::channel::<Tuple<u64>>();
    let receive = Arc::new(Mutex::new(receive));
    let builder = builder(&clock);
    let numbers = builder.spout("numbers", numbers(0..10, &told));
    let gives = builder
        .bolt("gives", move |_| {
            let send = send.clone();
            each(move |tuple, out| {
                out.emit(&tuple, *tuple);
                send.send(tuple).unwrap();
            })
        })
        .shuffle(&numbers);
    let takes = builder
        .bolt("takes", move |_| {
            let receive = receive.clone();
            each(move |tuple, out| {
                let other = receive.lock().unwrap().recv().unwrap();
                out.emit(&[&tuple, &other], 100);
                out.ack(tuple);
                out.ack(other);
            })
        })
        .shuffle(&gives);
    builder.bolt("ends", |_| each(|tuple, out| out.ack(tuple))).shuffle(&takes);
    let topology = settled(builder, &clock);
    assert_eq!(acks(&told).len(), 10);
    let metrics = topology.metrics();
    assert!(metrics.iter().all(|metrics| metrics.late + metrics.failed == 0));
    assert!(topology.is_finished());
}

/// Tens of thousands of tasks: none has a way to those that do not listen to it. (With one they
/// take 64 GB.)
#[test]
fn many_tasks_have_no_ways_that_they_do_not_need() {
    let (clock, told, builder) = rig();
    builder.queue(1);
    let numbers = builder.spout("numbers", numbers_by(100, 0..100, &told));
    let many = bolt(&builder, "many", &numbers, |tuple, out| {
        out.emit(&tuple, 1);
        out.ack(tuple);
    })
    .parallelism(1 << 15)
    .threads(1);
    builder.bolt("one", |_| each(|tuple, out| out.ack(tuple))).shuffle(&many).shuffle(&numbers);
    let topology = settled(builder, &clock);
    assert_eq!(acks(&told).len(), 100);
    assert_eq!(topology.metrics()[2].acked, 200);
}

/// Timeouts, pauses and ticks at their shortest and longest are refused or kept; so is a clock that
/// jumps to its end.
#[test]
fn times_at_their_limits() {
    let times = [
        Duration::ZERO,
        Duration::from_nanos(1),
        SECOND,
        Duration::from_nanos(u64::MAX),
        Duration::MAX,
    ];
    let mut started = 0;
    for timeout in times {
        for interval in times {
            for own in times {
                let (clock, _, builder) = rig();
                builder.timeout(timeout).interval(interval).flush_every(own);
                let numbers = builder
                    .spout("numbers", |_| VecSpout::new([1]))
                    .timeout(own)
                    .replay(Replay::default().base(own).cap(own).factor(f64::MAX));
                builder
                    .bolt("drops", |_| each(|tuple, _| drop(tuple)))
                    .tick_every(own)
                    .shuffle(&numbers);
                let Ok(mut topology) = builder.simulate(&clock) else {
                    continue;
                };
                started += 1;
                for by in [1, 1_000_000_000, u64::MAX / 2] {
                    settle(&mut topology);
                    clock.advance(Duration::from_nanos(by));
                }
                settle(&mut topology);
                // At the end of all time a tick is always due.
                clock.advance(Duration::MAX);
                topology.settle(100);
                let metrics = &topology.metrics()[0];
                let ended = metrics.acked + metrics.dead_letters;
                assert_eq!(metrics.panics, 0, "{timeout:?} {interval:?} {own:?}");
                assert!(ended + metrics.pending <= 1, "{metrics:?}");
                clock.set(0);
                settle(&mut topology);
            }
        }
    }
    assert!(started > 0);
}

/// A message of a spout without a timeout is pending for as long as it takes.
#[test]
fn a_spout_may_have_no_timeout() {
    let (clock, told, builder) = rig();
    let never = builder.spout("never", numbers([1], &told)).timeout(Duration::MAX);
    let default = builder.spout("default", numbers([2], &told));
    holds(&builder, "holds", &never, |_, _| ()).shuffle(&default);
    let mut topology = settled(builder, &clock);
    for _ in 0..10 {
        clock.advance(SECOND * 86_400);
        settle(&mut topology);
    }
    assert_eq!(ends(&told), [Told::Fail(2, Why::TimedOut)]);
    let pending: Vec<u64> = topology.metrics().iter().map(|metrics| metrics.pending).collect();
    assert_eq!((pending, topology.next_due()), (vec![1, 0, 0], None));
}

/// A window of many tuples is joined in less than their number squared.
#[test]
fn a_join_of_many_is_quick() {
    const MANY: usize = 100_000;
    let (clock, _, builder) = rig();
    let numbers = builder
        .spout("numbers", move |_| Numbers::new(0..MANY as u64, &Log::new()).at_once(MANY))
        .max_pending(MANY);
    let joins = builder
        .bolt("joins", move |_| {
            let mut held: Vec<Tuple<u64>> = Vec::new();
            each(move |tuple, out| {
                held.push(tuple);
                if held.len() == MANY {
                    let twice: Vec<&Tuple<u64>> = held.iter().chain(&held).collect();
                    let began = Instant::now();
                    out.emit(&twice[..], 1);
                    // Compared one with another they take minutes.
                    assert!(began.elapsed() < SECOND * 10);
                    drop(twice);
                    held.drain(..).for_each(|tuple| out.ack(tuple));
                }
            })
        })
        .shuffle(&numbers);
    bolt(&builder, "ack", &joins, |tuple, out| {
        assert_eq!(tuple.roots().count(), MANY);
        out.ack(tuple);
    });
    let topology = settled(builder, &clock);
    assert!(topology.is_finished());
    assert_eq!(topology.metrics()[0].acked, MANY as u64);
}

/// Several threads open and close the gate. Each spout's last call matches the last state, no spout
/// is called twice for one state, and all comes to rest.
#[test]
fn a_storm_at_the_gate() {
    let told: Log<Told> = Log::new();
    let builder = TopologyBuilder::new();
    let numbers = builder.spout("numbers", numbers(0.., &told));
    builder.bolt("ack", |_| each(|tuple, out| out.ack(tuple))).shuffle(&numbers);
    let topology = builder.start().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    topology.deactivate();
                    topology.activate();
                    std::thread::yield_now();
                }
            });
        }
    });
    let metrics = topology.drain(SECOND * 60).unwrap();
    assert_eq!((metrics[0].pending, metrics[0].acked), (0, metrics[0].emitted));
    let told = told.all();
    let gate = told.iter().filter(|told| matches!(told, Told::Activate | Told::Deactivate));
    let gate: Vec<_> = gate.collect();
    assert!(gate.windows(2).all(|two| two[0] != two[1]));
    assert_eq!(gate.last(), Some(&&Told::Deactivate));
    assert_eq!(told.last(), Some(&Told::Close));
}
