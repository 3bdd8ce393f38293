//! Tests of `src/base.rs`.

use crate::{PartitionStats, SessionStats, SourceStats};
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram};
use metrics::{Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Seen = Arc<Mutex<BTreeMap<String, f64>>>;

/// Keeps the value of each series.
struct Kept(Seen);
struct One(Seen, String);

impl One {
    fn keep(&self, value: f64) {
        self.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl CounterFn for One {
    fn increment(&self, _: u64) {
        unreachable!("snapshots are absolute");
    }
    fn absolute(&self, value: u64) {
        self.keep(value as f64);
    }
}

impl GaugeFn for One {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.keep(value);
    }
}

impl Kept {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        Arc::new(One(self.0.clone(), key.name().to_string() + &labels.collect::<String>()))
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        unreachable!("there is none")
    }
}

#[test]
fn every_field_is_a_series_with_its_labels() {
    let seen = Seen::default();
    let source = SourceStats { acked: 7, held: 3, ..SourceStats::default() };
    let partitions = PartitionStats { beats: 5, ..PartitionStats::default() };
    metrics::with_local_recorder(&Kept(seen.clone()), || {
        source.publish([("consumer", "parse")]);
        partitions.publish([]);
        SessionStats::default().publish([]);
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen["expiry_nats_source_acked_total consumer=parse"], 7.0);
    assert_eq!(seen["expiry_nats_source_held consumer=parse"], 3.0);
    assert_eq!(seen["expiry_nats_partitions_beats_total"], 5.0);
    assert_eq!(seen.len(), 12 + 5 + 5);
}
