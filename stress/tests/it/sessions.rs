//! `stress sessions`, end to end through the binary, about a second each.

use crate::common::{self, count};

fn run(args: &str) -> serde_json::Value {
    common::run(&format!("sessions --keys 1 {args}"))
}

#[test]
fn fresh_keys_on_which_threads_meet() {
    let report = run("");
    assert_eq!(count(&report, "stranded"), 0);
    assert!(count(&report, "refused_zero") > 0 && count(&report, "removed") > 0);
    assert!(report["notes"].as_array().unwrap().len() == 4, "{report}");
}

#[test]
fn fresh_strings_with_two_pollers_and_three_threads() {
    let report = run("--strings --pollers 2 --removes 0.5 --threads 3");
    assert!(report["notes"].to_string().contains("polled_removes"));
}
