//! Counters: one row for each source, sink and set of a connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A snapshot of the counters of one source, sink or set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// `"source"`, `"sink"` or `"partitions"`.
    pub kind: &'static str,
    /// The consumer, stream or set.
    pub name: String,
    /// Each counter's name and value.
    pub values: Vec<(&'static str, u64)>,
}

impl Metrics {
    /// The value of the counter with this name; 0 if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        let found = self.values.iter().find(|(counter, _)| *counter == name);
        found.map_or(0, |(_, value)| *value)
    }
}

/// The counters of one source, sink or set. `N` counters, by their place in `names`.
#[derive(Debug)]
pub(crate) struct Counters {
    kind: &'static str,
    name: String,
    names: &'static [&'static str],
    values: Vec<AtomicU64>,
}

impl Counters {
    pub(crate) fn add(&self, counter: usize, n: u64) {
        self.values[counter].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, counter: usize, value: u64) {
        self.values[counter].store(value, Ordering::Relaxed);
    }

    fn snapshot(&self) -> Metrics {
        let values = self
            .values
            .iter()
            .map(|value| value.load(Ordering::Relaxed));
        Metrics {
            kind: self.kind,
            name: self.name.clone(),
            values: self.names.iter().copied().zip(values).collect(),
        }
    }
}

/// All counters of a connection.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Vec<Arc<Counters>>>);

impl Registry {
    /// Makes a row of counters, all zero. A row of the same kind and name goes on where it is.
    pub(crate) fn row(
        &self,
        kind: &'static str,
        name: &str,
        names: &'static [&'static str],
    ) -> Arc<Counters> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = rows.iter().find(|row| row.kind == kind && row.name == name);
        if let Some(row) = same {
            return row.clone();
        }
        let row = Arc::new(Counters {
            kind,
            name: name.to_string(),
            names,
            values: names.iter().map(|_| AtomicU64::new(0)).collect(),
        });
        rows.push(row.clone());
        row
    }

    pub(crate) fn snapshot(&self) -> Vec<Metrics> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter().map(|row| row.snapshot()).collect()
    }
}

/// Publishes the counters through the facade `metrics`, as gauges named
/// `expiry_nats_{kind}_{counter}` with the label `name`.
#[cfg(feature = "metrics")]
pub fn publish(rows: &[Metrics]) {
    for row in rows {
        for (counter, value) in &row.values {
            let key = format!("expiry_nats_{}_{counter}", row.kind);
            #[allow(clippy::cast_precision_loss)] // a gauge is a float
            metrics::gauge!(key, "name" => row.name.clone()).set(*value as f64);
        }
    }
}
