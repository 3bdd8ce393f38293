//! What a scenario knows of itself while it runs.

use crate::latency::Percentiles;
use expiry::{AckTracker, Lateness, StoreMetrics};
use std::time::Duration;

/// A reading. Counts and times are those since the run began.
#[derive(Debug, Clone, Default)]
pub struct Gauge {
    /// What the throughput is of.
    pub done: u64,
    /// Entries now.
    pub live: u64,
    /// Expirations.
    pub expired: u64,
    /// How late they were seen.
    pub lateness: Lateness,
    /// Entries of each shard.
    pub shards: Vec<u64>,
    /// How long the reaper has worked.
    pub reaper: Duration,
    /// Of operations since the reading before.
    pub latency: Option<Percentiles>,
    /// What was found wrong.
    pub violations: u64,
    /// What else there is to say.
    pub text: String,
}

/// A reading of an engine's metrics. A tracker's and a store's are of two types with these fields.
macro_rules! of {
    ($metrics:expr) => {{
        let metrics = $metrics;
        Gauge {
            live: metrics.total.live,
            expired: metrics.total.expired,
            lateness: metrics.lateness,
            shards: metrics.shards.iter().map(|shard| shard.live).collect(),
            reaper: metrics.reaper_busy,
            ..Gauge::default()
        }
    }};
}

impl Gauge {
    /// What a tracker says.
    pub fn of_tracker(tracker: &AckTracker) -> Self {
        of!(tracker.metrics())
    }

    /// What a keyed store says.
    pub fn of_store(metrics: StoreMetrics) -> Self {
        of!(metrics)
    }

    /// The largest shard beside the mean, and the smallest. `None` where nothing is to be compared.
    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    pub fn balance(&self) -> Option<(f64, f64)> {
        let (least, most) = (self.shards.iter().min()?, self.shards.iter().max()?);
        let mean = self.shards.iter().sum::<u64>() as f64 / self.shards.len() as f64;
        (mean > 0.0).then(|| (*least as f64 / mean, *most as f64 / mean))
    }
}
