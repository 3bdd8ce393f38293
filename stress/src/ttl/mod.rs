//! Scenario `ttl`: an expiring map under the load of a cache.
//!
//! A row of a table (see `mix`) says what the load is made of: operations, times to live, sizes, how skewed the keys are. Requests
//! are drawn from it (see `load`) and run from all threads on the real clock; what becomes of each value is entered in the ledger (see `real`). Memory
//! is proportional to the keys, and to the values inserted, 8 bytes each.

mod load;
mod mix;
mod real;
mod value;

use crate::error::Error;
use crate::latency::Percentiles;
use crate::live::Series;
use crate::options::Ttl;
use crate::report::Report;
use load::{squeezed, Done, Load};
use mix::Row;
use serde::Serialize;
use std::time::Duration;
use value::CacheKey;

/// How many requests per second a run on the real clock is planned for.
const PLANNED: f64 = 1e6;
/// The mean time to live is the run's length by this.
const LIVES: f64 = 8.0;

/// What a run is set to.
#[derive(Debug)]
pub struct Setting {
    /// The row.
    pub row: Row,
    /// The map's interval.
    pub interval: Duration,
    keys: usize,
    squeeze: f64,
}

/// The options and the row, for the report.
#[derive(Serialize)]
struct Parameters<'a> {
    #[serde(flatten)]
    options: &'a Ttl,
    load: &'a Row,
}

/// What came of a run.
#[derive(Debug)]
pub struct Summary {
    done: Done,
    took: Duration,
    counts: Vec<(&'static str, u64)>,
    latency: Vec<(&'static str, Percentiles)>,
    series: Series,
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // estimates
impl Setting {
    fn new(options: &Ttl, row: Row) -> Self {
        let requests = options.seconds * PLANNED;
        let sum: f64 = row.ttls.iter().map(|(_, share)| share).sum();
        let weighed = row.ttls.iter().map(|(seconds, share)| *seconds as f64 * share);
        let mean = weighed.sum::<f64>() / sum;
        let squeeze = options.squeeze.unwrap_or(mean * LIVES / options.seconds);
        let fit = (options.memory as usize) << 20;
        let fit = (fit / (row.key_bytes + row.value_bytes)).max(1);
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

    /// All keys, by rank.
    pub fn keys<K: CacheKey>(&self) -> Vec<K> {
        (0..self.keys).map(|rank| K::of(rank, self.row.key_bytes)).collect()
    }
}

/// Runs the scenario.
///
/// # Errors
///
/// If the table or the options make no sense.
pub fn run(options: &Ttl) -> Result<Report, Error> {
    let row = mix::read(options.mix.as_deref(), options.row.as_deref())?;
    let setting = Setting::new(options, row);
    if options.integers {
        run_with::<u64>(options, &setting)
    } else {
        run_with::<String>(options, &setting)
    }
}

fn run_with<K: CacheKey>(options: &Ttl, setting: &Setting) -> Result<Report, Error> {
    let load = Load::new(&setting.row, setting.keys, setting.squeeze);
    let (summary, checks) = real::run::<K>(options, setting, &load)?;
    let mut report = Report::new(
        "ttl",
        ("requests", summary.done.requests),
        summary.took,
        options.seed,
        &checks,
        &Parameters { options, load: &setting.row },
    );
    report.series = summary.series;
    report.counts.extend(summary.done.named());
    report.counts.extend(summary.counts);
    report.counts.insert("keys", setting.keys as u64);
    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    let hits = summary.done.hits as f64 / (summary.done.hits + summary.done.misses).max(1) as f64;
    report.figures.extend([
        ("hit_percent", 100.0 * hits),
        ("interval_ms", setting.interval.as_secs_f64() * 1e3),
        ("squeeze", setting.squeeze),
    ]);
    report.latency.extend(summary.latency);
    let row = &setting.row;
    report.notes.push(format!("cluster {}: {:?}", row.cluster, row.operations));
    if row.zipf.is_none() {
        report.notes.push("the exponent of the keys is unknown: uniform".into());
    }
    Ok(report)
}
