//! `stress nats`, end to end through the binary: brokers and workers are processes.

use crate::common::{self, count};

#[test]
fn nothing_is_lost_by_killed_and_stopped_processes() {
    let report = common::run("nats --lines 3000 --kill --pause --poison 1");
    assert_eq!(count(&report, "missing"), 0);
    assert_eq!(count(&report, "dead_letters"), 1);
    // The one that was killed, and those that the poison killed.
    assert!(count(&report, "workers_started_again") >= 4, "{report}");
}
