//! What a run leaves behind: the object, and what Ctrl-C makes of it.

use crate::common::{self, count, error, interrupted, start, stress, words};
use std::time::{Duration, Instant};

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none").join("run");
    let args = ["ack", "--seconds", "0.05", "--allowance", "20s", "--json"];
    let output = stress(&[&args[..], &[nowhere.to_str().unwrap()]].concat());
    error(&output, "cannot write");
}

#[test]
fn ctrl_c_ends_a_run_with_its_report() {
    for args in [
        "ack --seconds 3600 --allowance 20s --json",
        "cache --seconds 3600 --allowance 1m --json",
        "histories --seconds 3600 --json",
    ] {
        let (mut run, began) = (start(&words(args)), Instant::now());
        // It runs when it has said something.
        let mut said = run.stderr.take().unwrap();
        std::io::Read::read_exact(&mut said, &mut [0]).unwrap();
        let rest = std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let report = interrupted(run);
        assert!(began.elapsed() < Duration::from_secs(600), "{args}");
        rest.join().unwrap().unwrap();
        assert_eq!(report["passed"], true, "{report}");
        assert_eq!(report["notes"][0], "ended by Ctrl-C");
        assert!(report["seconds"].as_f64() < Some(600.0), "{report}");
        assert!(report["ops_per_s"].as_f64() > Some(0.0), "{report}");
    }
}

#[test]
fn a_soak_runs_in_cycles() {
    let report = common::run("soak --cycles 2 --only cache");
    assert_eq!((count(&report, "runs"), count(&report, "cycles")), (2, 2));
}
