//! Histograms of durations, and their percentiles for the report.

use hdrhistogram::sync::SyncHistogram;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// A histogram of durations in nanoseconds, three digits exact, up to an hour.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u64>);

/// An hour: a longer duration is counted as this.
const LONGEST: u64 = 3_600_000_000_000;
/// How long to wait for threads to hand over what they have counted. A thread that counts nothing
/// just now hands over later.
const HANDOVER: Duration = Duration::from_millis(1);

fn empty() -> Histogram<u64> {
    // Bounds and digits are constants that the library accepts.
    Histogram::new_with_bounds(1, LONGEST, 3).expect("valid bounds")
}

impl Latency {
    /// An empty one.
    pub fn new() -> Self {
        Latency(empty())
    }

    /// Counts one duration.
    pub fn record(&mut self, took: Duration) {
        self.record_nanos(nanos(took));
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

    /// The figures for the report.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles::of(&self.0)
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
    /// Half are at most this long.
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub p99_99: u64,
    pub max: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Percentiles {
            count: histogram.len(),
            p50: at(0.50),
            p90: at(0.90),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: histogram.max(),
        }
    }
}

/// A histogram of durations. Threads fill it, each a part of its own, while a reader looks at it
/// now and then.
pub struct Times {
    all: SyncHistogram<u64>,
    seen: Histogram<u64>,
}

impl Times {
    /// An empty one.
    pub fn new() -> Self {
        Times { all: empty().into(), seen: empty() }
    }

    /// A thread's part.
    pub fn recorder(&self) -> Recorder {
        Recorder(self.all.recorder())
    }

    /// The figures of the samples that were handed over since the last time.
    pub fn since(&mut self) -> Percentiles {
        self.all.refresh_timeout(HANDOVER);
        let mut fresh = self.all.clone();
        // What was seen is part of it.
        fresh.subtract(&self.seen).expect("the same bounds, and less");
        self.seen = self.all.clone();
        Percentiles::of(&fresh)
    }

    /// The figures of all. The threads have dropped their parts.
    pub fn percentiles(&mut self) -> Percentiles {
        self.all.refresh_timeout(HANDOVER);
        Percentiles::of(&self.all)
    }
}

/// A thread's part of [`Times`]. The thread hands over what it has counted when a reader looks, and
/// when the part is dropped.
pub struct Recorder(hdrhistogram::sync::Recorder<u64>);

impl Recorder {
    /// Counts one duration.
    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record(nanos(took).min(LONGEST));
    }
}

/// A duration in nanoseconds, as far as these go.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A number of nanoseconds in a unit that fits.
#[allow(clippy::cast_precision_loss)] // for the eye
pub fn human(nanos: u64) -> String {
    let n = nanos as f64;
    match nanos {
        0..=999 => format!("{nanos} ns"),
        1_000..=999_949 => format!("{:.1} us", n / 1e3),
        999_950..=999_949_999 => format!("{:.1} ms", n / 1e6),
        _ => format!("{:.1} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_is_seen_once_and_not_lost() {
        let mut times = Times::new();
        let mut recorder = times.recorder();
        recorder.record(Duration::from_nanos(100));
        assert_eq!(times.since().count, 0, "not handed over yet");
        recorder.record(Duration::from_nanos(900));
        let mut seen = times.since().count;
        recorder.record(Duration::from_nanos(300));
        drop(recorder);
        seen += times.since().count;
        assert_eq!(seen, 3);
        assert_eq!(times.since().count, 0);
        let all = times.percentiles();
        assert_eq!((all.count, all.p50, all.max), (3, 300, 900));
    }
}
