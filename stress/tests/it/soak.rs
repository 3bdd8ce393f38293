//! `stress soak`, end to end through the binary: it runs, goes on where it was killed, and fails if
//! a run fails.

use crate::common::{count, interrupted, start, stderr, stress, words};
use std::path::Path;

/// Three quick runs a cycle.
const QUICK: [&str; 9] = [
    "soak",
    "--each",
    "50ms",
    "--only",
    "ttl",
    "--only",
    "histories",
    "--also",
    "ack --seconds 0.05",
];

/// Soaks with these words more, and these arguments: its exit status and its object.
fn soak(args: &str, more: &[&str], log: &Path) -> (Option<i32>, serde_json::Value) {
    let log = ["--json", "--log", log.to_str().unwrap()];
    let output = stress(&[&QUICK, &words(args)[..], more, &log].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text);
    let json = json.unwrap_or_else(|why| panic!("{why}: {text} {}", stderr(&output)));
    (output.status.code(), json)
}

fn lines(log: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn it_runs_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("soak.jsonl");
    let (code, report) = soak("--minutes 10 --cycles 1", &[], &log);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(count(&report, "runs"), 3);
    assert!(count(&report, "operations_checked") > 0);
    assert!(report["notes"].to_string().contains("ended by its cycles"));
    let first = lines(&log);
    assert_eq!(first.len(), 1 + 3 + 1);

    // Killed while it wrote a line.
    let mut text = std::fs::read_to_string(&log).unwrap();
    text.truncate(text.trim_end().rfind('\n').unwrap() + 10);
    std::fs::write(&log, text).unwrap();
    let (code, report) = soak("--minutes 10 --cycles 2", &[], &log);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(count(&report, "runs"), 6);
    let all = lines(&log);
    assert_eq!(all[..4], first[..4], "what was there is there");
    let places: Vec<_> = all
        .iter()
        .filter(|line| line["kind"] == "run")
        .map(|line| (line["cycle"].as_u64().unwrap(), line["place"].as_u64().unwrap()))
        .collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    let seeds: std::collections::HashSet<_> =
        all.iter().map(|line| line["arguments"].to_string()).collect();
    assert!(seeds.len() > 4, "seeds change: {seeds:?}");

    // The soak's time has passed: it runs nothing more.
    let (code, report) = soak("--minutes 0.001", &[], &log);
    assert_eq!((code, count(&report, "runs")), (Some(0), 6));
}

#[test]
fn it_fails_if_a_run_fails_and_remembers_that() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("soak.jsonl");
    // No thread is punctual to 10 microseconds thousands of times.
    let late =
        "ack --seconds 0.2 --timeout-rate 1 --fail-rate 0 --duplicate-rate 0 --timeout 10ms \
                --interval 10us --allowance 0s --in-flight 1000";
    let (code, report) = soak("--minutes 10 --cycles 1", &["--also", late], &log);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["checks"]["runs_pass"], false);
    assert_eq!((count(&report, "runs"), count(&report, "runs_failed")), (4, 1));
    assert!(report["violations"].to_string().contains("later than promised"));
    // Nothing is run any more, and it has failed all the same.
    let (code, report) = soak("--minutes 10 --cycles 1", &["--also", late], &log);
    assert_eq!((code, count(&report, "runs_failed")), (Some(1), 1));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_it_with_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("soak.jsonl");
    let also = "ack --seconds 0.05";
    let log_name = log.to_str().unwrap();
    let soak = start(&["soak", "--hours", "1", "--also", also, "--json", "--log", log_name]);
    let began = std::time::Instant::now();
    // It runs: there is a line of a run.
    while std::fs::read_to_string(&log).unwrap_or_default().lines().count() < 2 {
        assert!(began.elapsed().as_secs() < 60, "nothing is run");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let report = interrupted(soak);
    assert_eq!(count(&report, "runs") > 0, report["passed"] == true);
}
