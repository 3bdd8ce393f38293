//! How threads wait, and what wakes them.

use crate::common::*;
use expiry_topology::{basic, TopologyBuilder, VecSpout, WaitStrategy};
use std::time::Duration;

/// All messages come through, however the threads wait. Each waits for the other one.
#[test]
fn threads_wait_in_each_way() {
    use WaitStrategy::{Park, Progressive, Sleep};
    let progressive = Progressive { spins: 2, yields: 1 };
    let longest = Progressive { spins: u32::MAX, yields: u32::MAX };
    for strategy in [progressive, longest, Park, Sleep(SECOND / 1000)] {
        let (told, builder) = (Log::new(), TopologyBuilder::new());
        builder.wait(strategy);
        let numbers = builder.spout("numbers", numbers(0..100, &told)).max_pending(1);
        acks_all(&builder, "sink", &numbers);
        let topology = builder.start().unwrap();
        topology.wait(SECOND * 60).unwrap();
        topology.kill();
        assert_eq!(acks(&told).len(), 100, "{strategy:?}");
    }
}

/// The topology's threads would sleep for ever, and those of two components do not. The end of the
/// topology wakes the third one.
#[test]
fn a_components_threads_wait_their_own_way() {
    let (told, builder) = (Log::new(), TopologyBuilder::new());
    builder.wait(WaitStrategy::Sleep(Duration::MAX));
    let numbers = builder.spout("numbers", numbers(0..100, &told)).max_pending(1);
    acks_all(&builder, "sink", &numbers.wait(WaitStrategy::Park)).wait(WaitStrategy::Park);
    builder.spout("asleep", |_| VecSpout::<u64>::new([]));
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 60).unwrap();
    topology.kill();
    assert_eq!(acks(&told).len(), 100);
}

/// All threads would sleep for ever, until the drain.
#[test]
fn a_drain_does_not_wait_for_sleepers() {
    let (told, builder) = (Log::new(), TopologyBuilder::new());
    builder.wait(WaitStrategy::Sleep(Duration::MAX));
    let numbers = builder.spout("numbers", numbers(0..100, &told)).max_pending(10);
    let passes = builder.bolt("passes", |_| basic(|n: &u64, out| out.emit(*n))).shuffle(&numbers);
    acks_all(&builder, "sink", &passes);
    let topology = builder.start().unwrap();
    while topology.metrics()[0].emitted == 0 {
        std::thread::yield_now();
    }
    let metrics = topology.drain(SECOND * 60).unwrap();
    assert_eq!((metrics[0].acked, metrics[0].pending), (metrics[0].emitted, 0));
}

/// A timeout wakes the spout's thread, which would sleep for ever.
#[test]
fn a_timeout_is_not_late_by_a_sleep() {
    let (told, builder) = (Log::new(), TopologyBuilder::new());
    builder.timeout(SECOND / 50);
    let numbers = builder.spout("numbers", numbers(0..1, &told));
    bolt(&builder, "drops", &numbers.wait(WaitStrategy::Sleep(Duration::MAX)), |tuple, _| {
        drop(tuple)
    });
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 60).unwrap();
    assert_eq!(ends(&told), [Told::Fail(0, Why::TimedOut)]);
}

#[test]
fn a_simulation_does_not_sleep() {
    let (clock, told, builder) = rig();
    builder.wait(WaitStrategy::Sleep(Duration::MAX));
    acks_all(&builder, "sink", &builder.spout("numbers", numbers(0..100, &told)).max_pending(1));
    assert!(settled(builder, &clock).is_finished());
    assert_eq!(acks(&told).len(), 100);
}
