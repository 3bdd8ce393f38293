//! What the tests of this scenario share, what each fault does, late acks that take effect, and a
//! run that does not end.

use super::*;
use crate::options::{parsed, Scenario};
use expiry::ManualClock;
use expiry_topology::{Bolt, BoltCollector, Simulation, Tuple};

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

/// A bolt that may say of each attempt that it has ended, which it has not.
struct Liar {
    lies: bool,
    worker: Worker,
}

impl Bolt<Piece, Piece> for Liar {
    fn execute(&mut self, tuple: Tuple<Piece>, out: &mut BoltCollector<'_, Piece>) {
        if self.lies {
            tuple.attempt.end(false);
        }
        self.worker.execute(tuple, out);
    }

    fn tick(&mut self, out: &mut BoltCollector<'_, Piece>) {
        self.worker.tick(out);
    }
}

/// Whether late acks, sent so long after the lines have come, are fine; and how many had no effect.
fn late_acks(lies: bool, after: Duration) -> (bool, u64) {
    let (run, _dir) = prepared("--late 1");
    let clock = ManualClock::new();
    let builder = TopologyBuilder::new();
    builder.timeout(Duration::from_secs(1));
    let own = run.clone();
    let lines =
        builder.spout("lines", move |_| Reader::new(&own)).max_pending(2).replay(Replay::default());
    let own = run.clone();
    builder
        .bolt("late", move |_| Liar { lies, worker: Worker::new(Stage::Split(Vec::new()), &own) })
        .tick_every(TICK)
        .shuffle(&lines);
    let mut topology = builder.simulate(&clock).unwrap();
    assert!(topology.settle(1000));
    assert_eq!(run.stats.held.load(Relaxed), 2);
    // The spout receives the outcome before the acks are sent.
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
