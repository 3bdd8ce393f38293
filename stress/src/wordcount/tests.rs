//! What each fault does, a run that does not end, and a line that comes again. The seeded bugs
//! (`xtask/bugs`) show that each check fails when it should.

use super::*;
use crate::options::{parsed, Scenario};
use expiry::ManualClock;
use expiry_topology::Simulation;

/// The options of `stress wordcount` with these arguments.
pub fn options(args: &str) -> Wordcount {
    match parsed(&format!("wordcount {args}")) {
        Scenario::Wordcount(options) => options,
        _ => unreachable!(),
    }
}

/// A run over two lines of a word each, whose stalls take no time and whose late acks are due at
/// once.
pub fn prepared(args: &str) -> (Arc<Run>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "one\ntwo\n").unwrap();
    let files = Files::list(Some(dir.path())).unwrap();
    let options = options(args);
    let faults = Faults::new(&options).unwrap();
    let mut run = Run::new(&options, faults, files, Duration::ZERO);
    // The tracker goes by a simulated clock, attempts by the real one.
    (run.timeout, run.late_after, run.stall_for) = Default::default();
    run.max_pending = 2;
    (Arc::new(run), dir)
}

/// The whole topology in simulated time, after everything that happens at once.
pub fn begun(args: &str, run: &Arc<Run>, clock: &ManualClock) -> Simulation {
    let builder = topology(&options(args), run);
    let mut topology = builder.simulate(clock).unwrap();
    assert!(topology.settle(1000));
    topology
}

#[test]
fn lines_that_have_no_outcome_for_long_are_a_violation() {
    let args = "--drop 1 --timeout 1h";
    let (run, _dir) = prepared(args);
    let topology = topology(&options(args), &run).start().unwrap();
    finish(&topology, &run, Duration::from_millis(20));
    assert_eq!(run.checks.failing(), ["every_root_ended"]);
    assert_eq!(run.checks.violations(), 1);
    // Each attempt says so itself, too.
    topology.kill();
    assert_eq!(run.checks.violations(), 3);
}

/// A run over two lines of a word each. Returns lines and words processed, lines acked, faults of
/// this kind.
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
    // Messages that are not acked have no outcome when the topology is gone.
    let open = 2 - metrics[0].acked;
    assert_eq!(run.checks.violations(), open, "{args}");
    (counted, metrics[0].acked, run.stats.faults[fault as usize].load(Relaxed))
}

#[test]
fn each_fault_does_what_it_says() {
    for (args, fault, result) in [
        ("", Fault::Drop, (2, 2, 0)),
        ("--drop 1", Fault::Drop, (0, 0, 2)),
        ("--fail 1", Fault::Fail, (0, 0, 2)),
        // Each line is taken apart twice, and each word of that counted twice.
        ("--duplicate 1", Fault::Duplicate, (8, 2, 6)),
        ("--late 1", Fault::Late, (2, 2, 4)),
        ("--stall 1", Fault::Stall, (2, 2, 4)),
    ] {
        assert_eq!(each(args, fault), result, "{args}");
    }
}

#[test]
fn a_line_that_times_out_comes_again_as_another_attempt() {
    let args = "--drop 1 --timeout 1s --interval 1ms";
    let (run, _dir) = prepared(args);
    let clock = ManualClock::new();
    let mut topology = begun(args, &run, &clock);
    clock.advance(Duration::from_secs(2));
    assert!(topology.settle(1000));
    clock.advance(Duration::from_millis(2));
    assert!(topology.settle(1000));
    assert_eq!(topology.metrics()[0].replayed, 2);
    drop(topology);
    let tally = &*held(&run.spouts);
    assert_eq!((tally.counts.timed_out, tally.counts.roots, tally.most_attempts), (2, 4, 2));
    assert_eq!(tally.lateness.percentiles().count, 2);
    assert_eq!(tally.latency.percentiles().count, 0, "none of them was acked");
}
