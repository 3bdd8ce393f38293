//! The verdict over a whole run: the counts of all threads compared with each other and with the
//! metrics.

use super::tally::Tally;
use crate::checks::{Check, Checks, METRICS_ADD_UP};
use expiry::Metrics;

pub const NAMES: [Check; 9] = [
    "every_root_ended",
    "one_outcome_each",
    "completions_true",
    "none_early",
    "none_late",
    "late_harmless",
    "nothing_left",
    "metrics_add_up",
    "no_surprises",
];

/// Checks everything that can be checked after the run.
pub fn verdict(tally: &Tally, metrics: &Metrics, left: u64, checks: &Checks) {
    let total = &metrics.total;
    let ended = tally.acked + tally.failed + tally.timed_out;
    checks.equal("every_root_ended", "outcomes", ended, tally.issued);
    // An init that finds all acks there completes the root itself.
    let by_init = tally.acked.wrapping_sub(tally.completed);
    checks.expect("one_outcome_each", by_init <= tally.early, || {
        format!("{} roots acked, {} acks that completed", tally.acked, tally.completed)
    });
    checks.equal("one_outcome_each", "fails that took effect", tally.fails_done, tally.failed);
    checks.equal("nothing_left", "entries at the end", total.live, 0);
    checks.equal("nothing_left", "roots returned at shutdown", left, 0);
    let counted = [tally.issued, tally.acked, tally.failed, tally.timed_out, tally.refused];
    checks.metrics_add_up(metrics, counted);
    let early = total.early_merged + total.early_expired;
    for (what, is, should) in [
        ("duplicate inits", total.duplicate, 0),
        ("early arrivals merged and expired", early, total.early_held),
        ("early arrivals refused", total.early_refused, tally.early_full),
    ] {
        checks.equal(METRICS_ADD_UP, what, is, should);
    }
    checks.expect("metrics_add_up", total.early_merged <= tally.early, || {
        format!("{} early arrivals merged, {} sent", total.early_merged, tally.early)
    });
}
