//! Scenario `ttl`: an expiring map under the load of a cache.
//!
//! A row (see `load`) sets the load: operations, times to live, sizes, how skewed the keys are. All
//! threads draw requests from it and run them on the real clock. The
//! ledger records what becomes of each value (see `real`). Memory is proportional to the keys, and
//! to the values inserted, 8 bytes each.

mod load;
mod real;
mod value;

use crate::error::Error;
use crate::keys::Key;
use crate::options::Ttl;
use crate::report::Report;
use load::{row, squeezed, Row};
use std::time::Duration;

/// How many requests per second a run on the real clock is planned for.
const PLANNED: f64 = 1e6;
/// The most that keys and values may take together, in bytes.
const MEMORY: usize = 256 << 20;
/// The mean time to live is the run's length by this.
const LIVES: f64 = 8.0;

#[derive(Debug)]
pub struct Setting {
    pub row: &'static Row,
    pub interval: Duration,
    keys: usize,
    squeeze: f64,
}

// These numbers are estimates.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
impl Setting {
    fn new(options: &Ttl, row: &'static Row) -> Self {
        let requests = options.seconds * PLANNED;
        let sum: f64 = row.ttls.iter().map(|(_, share)| share).sum();
        let weighed = row.ttls.iter().map(|(seconds, share)| *seconds as f64 * share);
        let mean = weighed.sum::<f64>() / sum;
        let squeeze = options.squeeze.unwrap_or(mean * LIVES / options.seconds);
        let fit = (MEMORY / (row.key_bytes + row.value_bytes)).max(1);
        let keys = options.keys.map_or((requests / row.frequency) as usize, |keys| keys as usize);
        let shortest = row.ttls.iter().map(|(seconds, _)| squeezed(*seconds, squeeze)).min();
        let interval = Duration::from_nanos(shortest.unwrap_or(0) / 16);
        let interval = interval.clamp(Duration::from_millis(1), Duration::from_secs(1));
        Setting {
            interval: options.interval.unwrap_or(interval),
            keys: keys.clamp(1, fit),
            squeeze,
            row,
        }
    }

    pub fn keys<K: Key>(&self) -> Vec<K> {
        (0..self.keys).map(|rank| K::of_length(rank as u64, self.row.key_bytes)).collect()
    }
}

pub fn run(options: &Ttl) -> Result<Report, Error> {
    let setting = Setting::new(options, row(options.row)?);
    if options.integers {
        real::run::<u64>(options, &setting)
    } else {
        real::run::<String>(options, &setting)
    }
}
