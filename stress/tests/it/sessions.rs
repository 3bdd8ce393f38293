//! `stress sessions`, end to end through the binary, about a second each.

use crate::common::{self, count, error, failing, refused, stderr, stress, with_all};

fn run(args: &str) -> serde_json::Value {
    common::run(&format!("sessions {args}"))
}

fn rounds(args: &str) -> serde_json::Value {
    let all = ["inserted", "renewed", "touched", "gone", "removed", "expired"];
    let report = with_all(&all, 0.5, |seconds| {
        run(&format!("--seconds {seconds} --keys 512 --threads 3 --allowance 20s {args}"))
    });
    let ends = count(&report, "removed") + count(&report, "expired");
    assert_eq!(count(&report, "inserted"), ends);
    report
}

#[test]
fn integers_told_by_the_handler() {
    assert_eq!(count(&rounds(""), "pollers"), 0);
}

#[test]
fn strings_told_to_pollers() {
    assert_eq!(count(&rounds("--strings --pollers 2"), "pollers"), 2);
}

#[test]
fn simulated_time() {
    rounds("--simulated --pollers 2");
    rounds("--simulated --strings --interval 1s --longest 30");
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

fn tracker(args: &str) -> serde_json::Value {
    let all = [
        "touched",
        "closings",
        "found_closing",
        "moved",
        "owners_told",
        "upgraded",
        "unknown",
        "reported",
        "removed",
        "expired",
        "left",
    ];
    let report = with_all(&all, 0.5, |seconds| {
        run(&format!(
            "--tracker --seconds {seconds} --keys 1000 --threads 3 --allowance 20s {args}"
        ))
    });
    let ends = ["removed", "expired", "left"];
    let ends: u64 = ends.iter().map(|end| count(&report, end)).sum();
    assert_eq!(count(&report, "created"), ends);
    report
}

#[test]
fn a_trackers_sessions_told_by_the_handler() {
    assert_eq!(count(&tracker(""), "pollers"), 0);
}

#[test]
fn a_trackers_sessions_told_to_pollers() {
    assert_eq!(count(&tracker("--pollers 2"), "pollers"), 2);
    tracker("--simulated --interval 1s --longest 30");
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
            ("--simulated --pollers 0", "reaper does not notice"),
            ("--removes 1", "nothing to remove"),
            ("--contended --threads 1", "nobody meets alone"),
            ("--tracker --strings", "cannot be used with"),
            ("--tracker --simulated --pollers 0", "reaper does not notice"),
            ("--peer zookeeper", "--contended"),
            ("--keys 0", "keys"),
            ("--longest 0", "longest"),
            ("--interval 1us", "too short"),
        ],
    );
}

#[test]
fn a_check_that_fails_fails_the_run() {
    // No thread is punctual to 10 microseconds thousands of times.
    let args = "sessions --seconds 0.3 --interval 10us --allowance 0s";
    let json = failing(args, "none_late", "none_early");
    assert!(json["violations"].to_string().contains("later than promised"));
}
