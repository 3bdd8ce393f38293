//! What the tests of this scenario share, and a run that comes to no end.

use super::*;
use crate::options::{parsed, Scenario};
use expiry::ManualClock;
use expiry_topology::ManualTopology;

/// The options of `stress wordcount` with these arguments.
pub fn options(args: &str) -> Wordcount {
    match parsed(&format!("wordcount {args}")) {
        Scenario::Wordcount(options) => options,
        _ => unreachable!(),
    }
}

/// A run over two lines of a word each, whose stalls take no time and whose late acks are due at once.
pub fn prepared(args: &str) -> (Arc<Run>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "one\ntwo\n").unwrap();
    let checks = Arc::new(Checks::new(verdict::names(true)));
    let run = Run {
        files: Files::list(Some(dir.path())).unwrap(),
        faults: Faults::new(&options(args)).unwrap(),
        books: Arc::new(Books::new(checks.clone())),
        checks,
        // The tracker goes by a simulated clock, attempts by the real one.
        timeout: Duration::ZERO,
        late_after: Duration::ZERO,
        stall_for: Duration::ZERO,
        max_pending: 2,
        max_bytes: 1 << 20,
        stats: Stats::default(),
        spouts: Mutex::default(),
        counted: Mutex::default(),
    };
    (Arc::new(run), dir)
}

/// The whole topology in simulated time, after everything that happens at once.
pub fn begun(args: &str, run: &Arc<Run>, clock: &ManualClock) -> ManualTopology<Piece> {
    let mut builder = topology(&options(args), run);
    builder.clock(clock.clone());
    let mut topology = builder.start_manual().unwrap();
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
    // And each attempt says so itself.
    topology.kill();
    assert_eq!(run.checks.violations(), 3);
}
