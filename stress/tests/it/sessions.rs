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
}

#[test]
fn fresh_strings_on_which_three_threads_meet() {
    assert!(count(&run("--strings --threads 3"), "keys_shared") > 0);
}
