//! Tests of the bolts: what each fault does, and late acks that take effect.

use super::*;
use crate::wordcount::attempt::End;
use crate::wordcount::spout::Reader;
use crate::wordcount::tests::{begun, prepared};
use crate::wordcount::TICK;
use expiry::ManualClock;
use expiry_topology::TopologyBuilder;
use std::time::Duration;

/// Of two lines of a word each: lines and words processed, lines acked, faults of this kind.
fn each(args: &str, fault: Fault) -> (u64, u64, u64) {
    let (run, _dir) = prepared(args);
    let clock = ManualClock::new();
    let mut topology = begun(args, &run, &clock);
    if fault == Fault::Late {
        clock.advance(TICK);
        assert!(topology.settle(1000));
    }
    let metrics = topology.metrics();
    drop(topology);
    assert_eq!(run.stats.held.load(Relaxed), 0);
    let counted = held(&run.counted).values().sum();
    // Those that are not acked have no outcome when the topology is gone.
    let open = 2 - metrics[0].acked;
    assert_eq!(run.checks.violations(), open, "{args}");
    (counted, metrics[0].acked, run.stats.fault(fault))
}

#[test]
fn each_fault_does_what_it_says() {
    assert_eq!(each("", Fault::Drop), (2, 2, 0));
    assert_eq!(each("--drop 1", Fault::Drop), (0, 0, 2));
    assert_eq!(each("--fail 1", Fault::Fail), (0, 0, 2));
    // Each line is taken apart twice, and each word of that counted twice.
    assert_eq!(each("--duplicate 1", Fault::Duplicate), (8, 2, 6));
    assert_eq!(each("--late 1", Fault::Late), (2, 2, 4));
    assert_eq!(each("--stall 1", Fault::Stall), (2, 2, 4));
}

/// Does nothing, but may say of each attempt that it has ended, which it has not.
struct Nothing {
    lies: bool,
}

impl Process for Nothing {
    fn process(&mut self, tuple: &Tuple<Piece>, _out: &mut BoltCollector<'_, Piece>) {
        if self.lies {
            tuple.attempt.end(End::Unsuccessful);
        }
    }
}

/// Whether late acks, sent so long after the lines have come, are fine; and how many had no effect.
fn late_acks(lies: bool, after: Duration) -> (bool, u64) {
    let (run, _dir) = prepared("--late 1");
    let clock = ManualClock::new();
    let mut builder = TopologyBuilder::new();
    builder.clock(clock.clone()).timeout(Duration::from_secs(1));
    let own = run.clone();
    builder
        .spout("lines", move |_| Reader::new(&own))
        .max_pending(2)
        .replay(expiry_topology::Replay::default());
    let own = run.clone();
    builder
        .bolt("late", move |_| Worker::new(Nothing { lies }, &own))
        .tick_every(TICK)
        .shuffle("lines");
    let mut topology = builder.start_manual().unwrap();
    assert!(topology.settle(1000));
    assert_eq!(run.stats.held.load(Relaxed), 2);
    // The spout is told before the acks are sent.
    topology.hold("late", true);
    clock.advance(after);
    assert!(topology.settle(1000));
    topology.hold("late", false);
    clock.advance(TICK);
    assert!(topology.settle(1000));
    (run.checks.holds("late_refused"), topology.metrics()[1].late)
}

#[test]
fn a_late_ack_that_takes_effect_is_a_violation() {
    assert_eq!(late_acks(false, TICK), (true, 0));
    assert_eq!(late_acks(false, Duration::from_secs(3)), (true, 2));
    assert_eq!(late_acks(true, TICK), (false, 0));
}
