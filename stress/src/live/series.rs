//! The course of a run over time: samples at equal distances, never more than [`MOST`].

use super::Gauge;
use crate::latency::nanos;
use crate::usage::resident;
use serde::Serialize;
use std::time::Duration;

/// How many samples are kept. When there are twice as many, neighbours become one.
const MOST: usize = 512;

/// A stretch of a run. Rates are means over it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Sample {
    /// When it ended, in seconds since the run began.
    pub at: f64,
    /// Operations per second.
    pub per_s: f64,
    /// Entries at its end.
    pub live: u64,
    /// Expirations per second.
    pub expired_per_s: f64,
    /// Half of its expirations were at most so late, in ns. This is a bound to a factor of two, an
    /// edge of a histogram's bucket.
    pub lateness_p50: u64,
    pub lateness_p99: u64,
    /// Half of its operations took at most so long, in ns.
    pub latency_p50: u64,
    pub latency_p99: u64,
    /// The reaper's share of one core.
    pub reaper: f64,
    /// Resident bytes at its end.
    pub resident: u64,
    /// Faults injected in it.
    pub faults: u64,
}

impl Sample {
    /// Merges two samples that follow each other, and are as long.
    fn and(self, next: Sample) -> Sample {
        Sample {
            per_s: (self.per_s + next.per_s) / 2.0,
            expired_per_s: (self.expired_per_s + next.expired_per_s) / 2.0,
            reaper: (self.reaper + next.reaper) / 2.0,
            lateness_p50: self.lateness_p50.max(next.lateness_p50),
            lateness_p99: self.lateness_p99.max(next.lateness_p99),
            latency_p50: self.latency_p50.max(next.latency_p50),
            latency_p99: self.latency_p99.max(next.latency_p99),
            faults: self.faults + next.faults,
            ..next
        }
    }
}

/// The samples of a run.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Series {
    samples: Vec<Sample>,
    /// How many readings make a sample, and those that do not make one yet.
    #[serde(skip)]
    folded: usize,
    #[serde(skip)]
    waiting: Vec<Sample>,
    /// What was read last, and when.
    #[serde(skip)]
    before: (Duration, Gauge),
}

impl Series {
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Takes a reading; the rates are those since the one before. `at` is since the run began.
    pub fn read(&mut self, at: Duration, gauge: &Gauge) -> Sample {
        let (since, before) = &self.before;
        let seconds = at.saturating_sub(*since).as_secs_f64().max(1e-9);
        #[allow(clippy::cast_precision_loss)] // counts below 2^53
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let late = gauge.lateness.since(&before.lateness);
        let sample = Sample {
            at: at.as_secs_f64(),
            per_s: rate(gauge.done, before.done),
            live: gauge.live,
            expired_per_s: rate(gauge.expired, before.expired),
            lateness_p50: nanos(late.quantile(0.5).unwrap_or_default()),
            lateness_p99: nanos(late.quantile(0.99).unwrap_or_default()),
            latency_p50: gauge.latency.as_ref().map_or(0, |latency| latency.p50),
            latency_p99: gauge.latency.as_ref().map_or(0, |latency| latency.p99),
            reaper: gauge.reaper.saturating_sub(before.reaper).as_secs_f64() / seconds,
            resident: resident(),
            faults: gauge.faults.saturating_sub(before.faults),
        };
        self.before = (at, gauge.clone());
        self.push(sample);
        sample
    }

    fn push(&mut self, sample: Sample) {
        self.waiting.push(sample);
        if self.waiting.len() < self.folded.max(1) {
            return;
        }
        while self.waiting.len() > 1 {
            fold(&mut self.waiting);
        }
        self.samples.append(&mut self.waiting);
        if self.samples.len() == 2 * MOST {
            fold(&mut self.samples);
            self.folded = 2 * self.folded.max(1);
        }
    }
}

/// Makes one of each two.
fn fold(samples: &mut Vec<Sample>) {
    let pairs = samples.chunks(2).map(|pair| match pair {
        [one, next] => one.and(*next),
        rest => rest[0],
    });
    *samples = pairs.collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(done: u64) -> Gauge {
        Gauge { done, expired: done / 2, live: done, faults: done / 100, ..Gauge::default() }
    }

    #[test]
    fn rates_are_those_since_the_reading_before() {
        let mut series = Series::default();
        series.read(Duration::from_secs(1), &gauge(100));
        let second = series.read(Duration::from_secs(3), &gauge(500));
        assert!((second.per_s - 200.0).abs() < 1e-6);
        assert!((second.expired_per_s - 100.0).abs() < 1e-6);
        assert_eq!(second.faults, 4);
        // What goes backwards, as sums of counters may for a moment, is no rate below zero.
        assert_eq!(series.read(Duration::from_secs(4), &gauge(400)).per_s, 0.0);
    }

    #[test]
    fn a_long_run_has_as_many_samples_as_a_short_one() {
        let mut series = Series::default();
        for second in 1..=10_000 {
            series.read(Duration::from_secs(second), &gauge(second * 100));
            assert!(series.samples().len() < 2 * MOST);
        }
        let samples = series.samples();
        assert!(samples.len() >= MOST);
        let apart: Vec<_> = samples.windows(2).map(|two| two[1].at - two[0].at).collect();
        assert!(apart.iter().all(|apart| *apart == apart.round() && *apart == 16.0));
        assert!(samples.iter().all(|sample| (sample.per_s - 100.0).abs() < 1e-6));
        assert!(samples.iter().all(|sample| sample.faults == 16));
    }

    #[test]
    fn lateness_is_of_what_has_come_since() {
        let late = |counts: &[u64]| {
            let mut gauge = Gauge::default();
            gauge.lateness.counts[..counts.len()].copy_from_slice(counts);
            gauge
        };
        let mut series = Series::default();
        assert_eq!(series.read(Duration::from_secs(1), &late(&[0, 5])).lateness_p99, 4);
        let next = series.read(Duration::from_secs(2), &late(&[0, 5, 0, 1]));
        assert_eq!(next.lateness_p50, 16);
        assert_eq!(series.read(Duration::from_secs(3), &late(&[0, 5, 0, 1])).lateness_p50, 0);
    }
}
