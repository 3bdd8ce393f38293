//! Publishing through the facade `metrics`: what a recorder gets to see, and that repeating it
//! counts nothing twice.

use crate::rig;
use crate::support::SECOND;
use expiry::publish::{describe, Labels};
use expiry::{edge, AckTracker, ExpiringMap, Lateness, Lifetimes, ManualClock};
use metrics::{
    with_local_recorder, Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Keeps what is recorded, by name and labels as Prometheus writes them.
#[derive(Default)]
struct Kept {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    described: Mutex<BTreeMap<String, (&'static str, Unit)>>,
}

fn written(key: &Key) -> String {
    let labels: Vec<String> =
        key.labels().map(|label| format!("{}={:?}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        let mut described = self.described.lock().unwrap();
        described.insert(key.as_str().into(), ("counter", unit.unwrap()));
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        let mut described = self.described.lock().unwrap();
        described.insert(key.as_str().into(), ("gauge", unit.unwrap()));
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("there are none");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.counters.lock().unwrap();
        Counter::from_arc(counters.entry(written(key)).or_default().clone())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut gauges = self.gauges.lock().unwrap();
        Gauge::from_arc(gauges.entry(written(key)).or_default().clone())
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("what was counted once would be counted again");
    }
}

impl Kept {
    fn counter(&self, series: &str) -> u64 {
        let counters = self.counters.lock().unwrap();
        let known = || panic!("no {series} in {:?}", counters.keys());
        counters.get(series).unwrap_or_else(known).load(SeqCst)
    }

    fn gauge(&self, series: &str) -> f64 {
        f64::from_bits(self.gauges.lock().unwrap()[series].load(SeqCst))
    }

    fn names(&self) -> Vec<String> {
        let (counters, gauges) = (self.counters.lock().unwrap(), self.gauges.lock().unwrap());
        let name = |series: &String| series.split('{').next().unwrap().to_string();
        counters.keys().chain(gauges.keys()).map(name).collect()
    }
}

#[test]
fn a_tracker_s_counters_are_set_and_never_added() {
    let (kept, clock) = (Kept::default(), ManualClock::new());
    let builder = AckTracker::builder().timeout(10 * SECOND).interval(SECOND).clock(clock.clone());
    let tracker = builder.build_manual().unwrap();
    let [acked, failed, _expired] = [1, 2, 3].map(|owner| {
        let edge = edge();
        (tracker.issue(edge, owner).unwrap(), edge)
    });
    tracker.ack(acked.0, acked.1).unwrap();
    tracker.fail(failed.0).unwrap();
    tracker.fail(failed.0).unwrap_err();
    with_local_recorder(&kept, || {
        tracker.metrics().publish("acks");
        assert_eq!(kept.gauge("expiry_live{name=\"acks\"}"), 1.0);
        clock.advance(15 * SECOND);
        tracker.poll(usize::MAX);
        for _ in 0..3 {
            tracker.metrics().publish("acks");
        }
    });
    for (series, value) in [
        ("inserted_total", 3),
        ("acked_total", 1),
        ("failed_total", 1),
        ("expired_total", 1),
        ("late_total", 1),
        ("closed_total", 0),
        ("lateness_seconds_count", 1),
    ] {
        assert_eq!(kept.counter(&format!("expiry_{series}{{name=\"acks\"}}")), value, "{series}");
    }
    assert_eq!(kept.gauge("expiry_live{name=\"acks\"}"), 0.0);
    assert!(kept.gauge("expiry_slots{name=\"acks\"}") >= 16.0);
    tracker.shutdown(expiry::ShutdownMode::Cancel);
}

#[test]
fn lateness_is_cumulative_and_in_seconds() {
    let (kept, (queue, clock)) = (Kept::default(), rig::queue(|queue| queue));
    for late in [0, 3, 3, 200] {
        queue.update(1_u64, SECOND).unwrap();
        let due = queue.wait_time().unwrap();
        clock.advance(due + late * SECOND);
        assert_eq!(queue.poll().len(), 1);
        with_local_recorder(&kept, || queue.metrics().publish("leases"));
    }
    let up_to = |le: &str| {
        kept.counter(&format!("expiry_lateness_seconds_bucket{{name=\"leases\",le=\"{le}\"}}"))
    };
    assert_eq!(up_to("0.000016384"), 1);
    assert_eq!(up_to("2.147483648"), 1);
    assert_eq!(up_to("4.294967296"), 3);
    assert_eq!(up_to("68.719476736"), 3);
    assert_eq!(up_to("+Inf"), 4);
    let buckets = kept.names();
    let buckets = buckets.iter().filter(|name| name.ends_with("_bucket"));
    assert_eq!(buckets.count(), 24);
}

#[test]
fn a_store_by_shards_sums_to_its_total() {
    let kept = Kept::default();
    let map = ExpiringMap::builder().shards(4).build_manual().unwrap();
    for key in 0..100u64 {
        map.insert(key, key).unwrap();
        map.insert(key, key).unwrap();
    }
    map.remove(&7);
    let labels = Labels::new("answers").with("region", "north").by_shard();
    with_local_recorder(&kept, || map.metrics().publish(labels));
    let sum = |name: &str| -> u64 {
        (0..4)
            .map(|shard| {
                let labels = format!("name=\"answers\",region=\"north\",shard=\"{shard}\"");
                kept.counter(&format!("expiry_{name}_total{{{labels}}}"))
            })
            .sum()
    };
    assert_eq!(["inserted", "replaced", "removed"].map(sum), [100, 100, 1]);
    let counters = kept.counters.lock().unwrap();
    assert!(!counters.contains_key("expiry_inserted_total{name=\"answers\",region=\"north\"}"));
    // Not of a shard.
    assert!(counters.contains_key("expiry_spilled_total{name=\"answers\",region=\"north\"}"));
}

#[test]
fn the_lateness_of_a_shard_is_published_in_place_of_the_sum() {
    let (kept, clock) = (Kept::default(), ManualClock::new());
    let builder = AckTracker::builder().shards(4).clock(clock.clone()).timeout(SECOND);
    let tracker = builder.build_manual().unwrap();
    for owner in 0..10_000 {
        tracker.issue(edge(), owner).unwrap();
    }
    clock.advance(3 * SECOND);
    while tracker.poll(usize::MAX).more {}
    let metrics = tracker.metrics();
    with_local_recorder(&kept, || metrics.publish(Labels::new("acks").by_shard()));
    for (number, shard) in metrics.shards.iter().enumerate() {
        let series = |suffix: &str, le: &str| {
            let labels = format!("name=\"acks\",shard=\"{number}\"{le}");
            kept.counter(&format!("expiry_lateness_seconds_{suffix}{{{labels}}}"))
        };
        assert_eq!(series("count", ""), shard.expired);
        assert_eq!(series("bucket", ",le=\"+Inf\""), shard.expired);
        assert_eq!(series("bucket", ",le=\"1.073741824\""), 0); // two seconds late
    }
    assert!(metrics.shards.iter().filter(|shard| shard.expired > 0).count() > 1);
    let mut sum = Lateness::default();
    metrics.shards.iter().for_each(|shard| sum += &shard.lateness);
    assert_eq!((sum.total(), &sum), (10_000, &metrics.total.lateness));
    let counters = kept.counters.lock().unwrap();
    assert!(!counters.contains_key("expiry_lateness_seconds_count{name=\"acks\"}"));
}

#[cfg(feature = "async")]
#[test]
fn timeouts_are_published_under_the_same_names() {
    let kept = Kept::default();
    let timeouts = expiry::Timeouts::new().unwrap();
    let mut sleep = timeouts.sleep(1000 * SECOND);
    assert!(crate::support::Task::new().poll(&mut sleep).is_pending());
    with_local_recorder(&kept, || timeouts.metrics().publish("requests"));
    assert_eq!(kept.gauge("expiry_live{name=\"requests\"}"), 1.0);
    drop(sleep);
    with_local_recorder(&kept, || timeouts.metrics().publish("requests"));
    assert_eq!(kept.gauge("expiry_live{name=\"requests\"}"), 0.0);
    assert_eq!(kept.counter("expiry_removed_total{name=\"requests\"}"), 1);
}

#[test]
fn refusals_are_published_and_the_capacity_where_it_is_bounded() {
    let kept = Kept::default();
    let map = ExpiringMap::builder().capacity(1).build_manual().unwrap();
    map.insert(1_u64, ()).unwrap();
    map.insert(2, ()).unwrap_err();
    let free = ExpiringMap::<u64, ()>::builder().build_manual().unwrap();
    with_local_recorder(&kept, || {
        map.metrics().publish("bounded");
        free.metrics().publish("free");
    });
    assert_eq!(kept.gauge("expiry_capacity{name=\"bounded\"}"), 1.0);
    assert_eq!(kept.counter("expiry_refused_total{name=\"bounded\"}"), 1);
    assert_eq!(kept.counter("expiry_refused_total{name=\"free\"}"), 0);
    let gauges = kept.gauges.lock().unwrap();
    assert!(!gauges.contains_key("expiry_capacity{name=\"free\"}"));
}

/// D10: each of a cache's counts has a series of its own.
#[test]
fn a_cache_publishes_hits_misses_loads_and_evictions() {
    let kept = Kept::default();
    let map = ExpiringMap::builder().max_capacity(2).statistics(true).build_manual().unwrap();
    map.insert(0, 0).unwrap();
    assert!((0..10).all(|_| map.get(&0).is_some()));
    for key in 1..=4 {
        assert!(map.get_or_insert_with(&key, || key).is_ok());
    }
    for _ in 0..2 {
        assert!(map
            .try_get_or_insert_with(&9, || Err::<(u64, Lifetimes), _>("as planned"))
            .is_err());
    }
    assert!(map.get(&9).is_none());
    with_local_recorder(&kept, || map.metrics().publish("pages"));
    for (series, value) in
        [("hits", 10), ("misses", 7), ("loads", 4), ("failed_loads", 2), ("evicted", 3)]
    {
        let series = format!("expiry_{series}_total{{name=\"pages\"}}");
        assert_eq!(kept.counter(&series), value, "{series}");
    }
}

#[test]
fn each_series_is_described_with_its_kind_and_unit() {
    let kept = Kept::default();
    let tracker = AckTracker::builder().capacity(1).build_manual().unwrap();
    let map = ExpiringMap::<u64, u64>::builder().build_manual().unwrap();
    with_local_recorder(&kept, || {
        describe();
        tracker.metrics().publish("acks");
        map.metrics().publish("answers");
    });
    let described = kept.described.lock().unwrap();
    for name in kept.names() {
        let (kind, unit) = described.get(&name).unwrap_or_else(|| panic!("{name}"));
        let counts = name.ends_with("_total") || name.contains("_seconds_");
        assert_eq!(*kind, if counts { "counter" } else { "gauge" }, "{name}");
        assert_eq!(*unit == Unit::Nanoseconds, name.contains("nanoseconds"), "{name}");
    }
    assert!(kept.names().len() > described.len());
}

#[test]
fn without_a_recorder_nothing_happens() {
    let tracker = AckTracker::builder().build_manual().unwrap();
    describe();
    tracker.metrics().publish("acks");
}
