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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::three_roots;

    /// Three roots, one of which was failed and then acked too late.
    fn sound() -> (Tally, Metrics) {
        let tally = Tally {
            issued: 3,
            acked: 2,
            completed: 2,
            failed: 1,
            fails_done: 1,
            refused: 1,
            ..Tally::default()
        };
        (tally, three_roots())
    }

    fn failing(spoil: impl FnOnce(&mut Tally, &mut Metrics, &mut u64)) -> Vec<Check> {
        let ((mut tally, mut metrics), mut left) = (sound(), 0);
        spoil(&mut tally, &mut metrics, &mut left);
        let checks = Checks::new(&NAMES);
        verdict(&tally, &metrics, left, &checks);
        checks.failing()
    }

    #[test]
    fn a_sound_run_passes() {
        assert!(failing(|_, _, _| {}).is_empty());
    }

    #[test]
    fn outcomes_that_are_missing_or_doubled_are_seen() {
        let lost = failing(|tally, _, _| tally.issued += 1);
        assert!(lost.contains(&"every_root_ended"));
        assert_eq!(failing(|tally, _, _| tally.completed += 1), ["one_outcome_each"]);
        assert_eq!(failing(|tally, _, _| tally.completed -= 1), ["one_outcome_each"]);
        assert_eq!(failing(|tally, _, _| tally.fails_done += 1), ["one_outcome_each"]);
    }

    #[test]
    fn what_is_left_is_seen() {
        assert_eq!(failing(|_, _, left| *left = 1), ["nothing_left"]);
        assert_eq!(failing(|_, metrics, _| metrics.total.live = 1), ["nothing_left"]);
    }

    #[test]
    fn metrics_must_add_up() {
        for spoil in [
            |metrics: &mut Metrics| metrics.total.inserted += 1,
            |metrics: &mut Metrics| metrics.total.acked += 1,
            |metrics: &mut Metrics| metrics.total.failed += 1,
            |metrics: &mut Metrics| metrics.total.expired += 1,
            |metrics: &mut Metrics| metrics.total.cancelled += 1,
            |metrics: &mut Metrics| metrics.total.late += 1,
            |metrics: &mut Metrics| metrics.total.duplicate += 1,
            |metrics: &mut Metrics| metrics.total.early_held += 1,
            |metrics: &mut Metrics| (metrics.total.early_held, metrics.total.early_merged) = (1, 1),
            |metrics: &mut Metrics| metrics.total.early_refused += 1,
            |metrics: &mut Metrics| metrics.total.lateness.counts[0] += 1,
            |metrics: &mut Metrics| metrics.handler_panics += 1,
            |metrics: &mut Metrics| metrics.undelivered += 1,
        ] {
            assert_eq!(failing(|_, metrics, _| spoil(metrics)), ["metrics_add_up"]);
        }
    }
}
