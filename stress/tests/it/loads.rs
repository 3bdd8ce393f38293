//! `stress growth` and `stress mass-expiry`, end to end through the binary, about a second each.

use crate::common::{count, run};

#[test]
fn growth_of_all_kinds_and_back() {
    let report = run("growth --entries 20000 --threads 3 --readers 2");
    assert_eq!(count(&report, "inserted"), 60_000);
    for kind in ["insert_issued", "insert_chosen", "insert_map"] {
        assert_eq!(report["latency"][kind]["count"], 20_000, "{kind}");
    }
}

#[test]
fn a_bounded_engine_lets_in_as_many_as_there_is_room_for() {
    let report = run("growth --bounded --entries 5000 --threads 3");
    // Each kind is full, and full again when a tenth has made room.
    assert_eq!(count(&report, "inserted"), 3 * 5500);
}

#[test]
fn what_expires_at_once_stops_nobody() {
    let common = "mass-expiry --entries 5000 --threads 3 --seconds 0.1 --allowance 1m";
    let report = run(&format!("{common} --intervals 3"));
    assert_eq!(count(&report, "filled"), 5000);
    // The handler that held up the reaper saw the threads do that many.
    assert!(count(&report, "foreground_during") >= 3000);
    let report = run(&format!("{common} --pollers 2 --budget 50"));
    let most = count(&report, "longest_poll_entries");
    assert!(count(&report, "expired") > 0 && (1..=65).contains(&most), "{most}");
}
