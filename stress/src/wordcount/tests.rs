//! A run that does not end. The seeded bugs (`xtask/bugs`) show that each check fails when it
//! should.

use super::*;
use crate::options::{parsed, Scenario};

/// The options of `stress wordcount` with these arguments.
fn options(args: &str) -> Wordcount {
    match parsed(&format!("wordcount {args}")) {
        Scenario::Wordcount(options) => options,
        _ => unreachable!(),
    }
}

/// A run over two lines of a word each.
fn prepared(args: &str) -> (Arc<Run>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "one\ntwo\n").unwrap();
    let files = Files::list(Some(dir.path())).unwrap();
    let options = options(args);
    let faults = Faults::new(&options).unwrap();
    let mut run = Run::new(&options, faults, files, Duration::ZERO);
    run.max_pending = 2;
    (Arc::new(run), dir)
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
