//! Histograms of durations, and their percentiles for the report.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// A histogram of durations in nanoseconds, three digits exact, up to an hour.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u64>);

/// An hour: what takes longer is counted as this.
const LONGEST: u64 = 3_600_000_000_000;

impl Latency {
    /// An empty one.
    pub fn new() -> Self {
        // Bounds and digits are constants that the library accepts.
        Latency(Histogram::new_with_bounds(1, LONGEST, 3).expect("valid bounds"))
    }

    /// Counts one duration.
    pub fn record(&mut self, took: Duration) {
        self.record_nanos(u64::try_from(took.as_nanos()).unwrap_or(LONGEST));
    }

    /// Counts one duration in nanoseconds.
    pub fn record_nanos(&mut self, nanos: u64) {
        self.0.saturating_record(nanos.min(LONGEST));
    }

    /// Counts everything that `other` has.
    pub fn add(&mut self, other: &Latency) {
        // Both have the same bounds, so that nothing can be out of range.
        self.0.add(&other.0).expect("the same bounds");
    }

    fn curve(&self) -> Vec<(f64, u64)> {
        #[allow(clippy::cast_precision_loss)] // counts below 2^53
        let last = 1.0 - 1.0 / self.0.len().max(2) as f64;
        let steps = self.0.iter_quantiles(2);
        steps
            .map(|step| (step.quantile_iterated_to(), step.value_iterated_to()))
            .take_while(|(share, _)| *share <= last)
            .collect()
    }

    /// The figures for the report.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.0.value_at_quantile(quantile);
        let some = !self.0.is_empty();
        Percentiles {
            count: self.0.len(),
            mean: if some { self.0.mean() } else { 0.0 },
            p50: at(0.50),
            p90: at(0.90),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: self.0.max(),
            curve: self.curve(),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

/// Percentiles in nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Percentiles {
    /// How many were measured.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half are at most this long.
    pub p50: u64,
    /// Nine in ten.
    pub p90: u64,
    /// 99 in a hundred.
    pub p99: u64,
    /// 999 in a thousand.
    pub p99_9: u64,
    /// 9999 in ten thousand.
    pub p99_99: u64,
    /// The longest.
    pub max: u64,
    /// Shares of all, and what they took at most: two for each halving of what takes longer, as far as there were so many.
    pub curve: Vec<(f64, u64)>,
}

/// A number of nanoseconds in a unit that fits.
#[allow(clippy::cast_precision_loss)] // for the eye
pub fn human(nanos: u64) -> String {
    let n = nanos as f64;
    match nanos {
        0..=9_999 => format!("{nanos} ns"),
        10_000..=9_999_999 => format!("{:.1} us", n / 1e3),
        10_000_000..=9_999_999_999 => format!("{:.1} ms", n / 1e6),
        _ => format!("{:.1} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_what_was_recorded() {
        let mut latency = Latency::new();
        assert_eq!(latency.percentiles().max, 0);
        for n in 1..=1000 {
            latency.record_nanos(n);
        }
        let mut other = Latency::new();
        other.record(Duration::from_secs(7200));
        latency.add(&other);
        let figures = latency.percentiles();
        assert_eq!((figures.count, figures.p50), (1001, 501));
        assert!(figures.max >= LONGEST / 1000 * 999);
    }

    #[test]
    fn units_fit() {
        assert_eq!(human(12), "12 ns");
        assert_eq!(human(12_345), "12.3 us");
        assert_eq!(human(12_345_678), "12.3 ms");
        assert_eq!(human(12_345_678_901), "12.3 s");
    }
}
