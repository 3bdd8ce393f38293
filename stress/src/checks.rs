//! Checks and their violations: a check holds as long as no thread has reported a violation of it.

use expiry::Metrics;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// How many violations are kept in full; the rest are only counted.
const KEPT: usize = 100;

/// The check that an engine's counters agree with what was counted from outside.
pub const METRICS_ADD_UP: Check = "metrics_add_up";

/// A check: its name in the report.
pub type Check = &'static str;

/// The checks of one run. Shared by all its threads; costs nothing while everything holds.
#[derive(Debug)]
pub struct Checks {
    counts: BTreeMap<Check, AtomicU64>,
    texts: Mutex<Vec<String>>,
}

impl Checks {
    /// All the checks that the run makes. Each holds until a thread reports a violation.
    pub fn new(names: &[Check]) -> Self {
        Checks {
            counts: names.iter().map(|&name| (name, AtomicU64::new(0))).collect(),
            texts: Mutex::new(Vec::new()),
        }
    }

    /// Reports a violation of `check`. Makes the text only if it is kept.
    ///
    /// # Panics
    ///
    /// If the run has not named this check: a violation must never go unreported.
    pub fn violated(&self, check: Check, text: impl FnOnce() -> String) {
        let count = self.counts.get(check);
        let count = count.unwrap_or_else(|| panic!("the check {check} was not declared"));
        count.fetch_add(1, Ordering::Relaxed);
        let mut texts = match self.texts.lock() {
            Ok(texts) => texts,
            Err(poisoned) => poisoned.into_inner(),
        };
        if texts.len() < KEPT {
            texts.push(format!("{check}: {}", text()));
        }
    }

    /// Reports a violation unless `holds`.
    pub fn expect(&self, check: Check, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.violated(check, text);
        }
    }

    /// Reports a violation unless the two are equal.
    pub fn equal(&self, check: Check, what: &str, is: u64, should: u64) {
        self.expect(check, is == should, || format!("{what}: {is}, should be {should}"));
    }

    /// Compares a tracker's counters with each other and with what was counted from outside: roots
    /// issued, acked, failed and timed out, and operations refused as late.
    pub fn metrics_add_up(
        &self,
        metrics: &Metrics,
        [issued, acked, failed, timed_out, late]: [u64; 5],
    ) {
        let total = &metrics.total;
        let ended = total.acked + total.failed + total.expired + total.cancelled;
        let sum = "acked + failed + expired + cancelled";
        let histogram = "expirations in the lateness histogram";
        for (what, is, should) in [
            ("inserted", total.inserted, issued),
            (sum, ended, total.inserted),
            ("acked", total.acked, acked),
            ("failed", total.failed, failed),
            ("expired", total.expired, timed_out),
            ("late", total.late, late),
            (histogram, metrics.total.lateness.total(), timed_out),
            ("panics of the handler", metrics.handler_panics, 0),
            ("undelivered outcomes", metrics.undelivered, 0),
        ] {
            self.equal(METRICS_ADD_UP, what, is, should);
        }
    }

    /// Whether no thread has reported a violation of `check`.
    #[cfg(test)]
    pub fn holds(&self, check: Check) -> bool {
        self.counts[check].load(Ordering::Relaxed) == 0
    }

    /// How many violations have been reported.
    pub fn violations(&self) -> u64 {
        self.counts.values().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Each check and whether it holds; the violations in words; how many there were in all.
    pub fn verdict(&self) -> (BTreeMap<Check, bool>, Vec<String>, u64) {
        let verdict = self
            .counts
            .iter()
            .map(|(&name, count)| (name, count.load(Ordering::Relaxed) == 0))
            .collect();
        let texts = match self.texts.lock() {
            Ok(texts) => texts.clone(),
            Err(poisoned) => poisoned.into_inner().clone(),
        };
        (verdict, texts, self.violations())
    }

    /// The checks that do not hold.
    #[cfg(test)]
    pub fn failing(&self) -> Vec<Check> {
        let failing = self.verdict().0.into_iter().filter(|(_, holds)| !holds);
        failing.map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_holds_until_it_is_violated() {
        let checks = Checks::new(&["a", "b"]);
        assert!(checks.holds("a") && checks.holds("b"));
        checks.expect("a", true, || unreachable!());
        checks.equal("a", "things", 3, 3);
        assert!(checks.holds("a"));
        checks.equal("b", "things", 3, 4);
        assert!(checks.holds("a") && !checks.holds("b"));
        let (verdict, texts, all) = checks.verdict();
        assert_eq!(verdict, BTreeMap::from([("a", true), ("b", false)]));
        assert_eq!(texts, ["b: things: 3, should be 4"]);
        assert_eq!(all, 1);
    }
}
