//! `stress sessions`, end to end through the binary, about a second each.

use crate::common::{self, count, error, refused, stderr, stress};

fn run(args: &str) -> serde_json::Value {
    common::run(&format!("sessions {args}"))
}

#[test]
fn a_queues_keys_and_a_trackers_sessions() {
    for args in ["", "--tracker"] {
        let report = run(&format!("--seconds 0.5 {args}"));
        assert_eq!(report["scenario"], "sessions");
        assert!(count(&report, "histories") >= count(&report, "rounds"), "{report}");
    }
}

fn contended(args: &str) -> serde_json::Value {
    run(&format!("--contended --keys 1 {args}"))
}

#[test]
fn fresh_keys_on_which_threads_meet() {
    let report = contended("");
    assert_eq!(count(&report, "stranded"), 0);
    assert!(count(&report, "refused_zero") > 0 && count(&report, "removed") > 0);
    assert!(report["notes"].as_array().unwrap().len() == 4, "{report}");
}

#[test]
fn fresh_strings_with_two_pollers_and_three_threads() {
    let report = contended("--strings --pollers 2 --removes 0.5 --threads 3");
    assert!(report["notes"].to_string().contains("polled_removes"));
}

#[test]
fn a_report_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let name = file.to_str().unwrap();
    let output = stress(&["sessions", "--seconds", "0.1", "--json", name]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("PASSED"));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["scenario"], "sessions");
    let nowhere = folder.path().join("none").join("report.json");
    let nowhere = nowhere.to_str().unwrap();
    let output = stress(&["sessions", "--seconds", "0.1", "--json", nowhere]);
    error(&output, "cannot write");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    refused(
        "sessions",
        &[
            ("--contended --threads 1", "nobody meets alone"),
            ("--tracker --contended", "cannot be used with"),
            ("--strings", "--contended"),
            ("--keys 257", "use less"),
            ("--peer zookeeper", "--contended"),
            ("--keys 0", "keys"),
        ],
    );
}
