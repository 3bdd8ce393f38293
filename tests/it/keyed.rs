//! Keyed stores: one test per promise.

use crate::rig;
use expiry::{ExpiringMap, ManualClock, RemovalCause, StoreShardMetrics};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_entry_is_found_until_its_time_is_up() {
    let clock = ManualClock::new();
    let ends = Arc::new(AtomicUsize::new(0));
    let map = {
        let ends = ends.clone();
        ExpiringMap::builder()
            .time_to_live(SECOND * 10)
            .interval(SECOND)
            .clock(clock.clone())
            .removal_listener(move |key: &String, value: &u64, cause| {
                assert_eq!((key.as_str(), *value, cause), ("a", 1, RemovalCause::Expired));
                ends.fetch_add(1, Relaxed);
            })
            .build_manual()
            .unwrap()
    };
    assert!(map.insert("a".to_string(), 1).unwrap().is_none());
    assert_eq!(map.get("a").as_deref(), Some(&1));
    assert!(map.get("b").is_none());
    clock.advance(SECOND * 9);
    assert!(!map.poll(1000).more);
    assert_eq!(map.get("a").as_deref(), Some(&1));
    clock.advance(SECOND * 2);
    assert!(map.get("a").is_none(), "over, though nobody has polled");
    assert_eq!(map.len(), 1);
    assert!(!map.poll(1000).more);
    assert_eq!((map.len(), ends.load(Relaxed)), (0, 1));
}

/// F7: what happens to an entry is counted at the shard that has its memory: here one of 16.
#[test]
fn what_happens_is_counted_at_the_shard_of_the_entry() {
    let (map, clock) = rig::map(|map| map.time_to_live(SECOND * 10).shards(16));
    for key in 0..100u64 {
        map.insert(key, 0).unwrap();
    }
    for key in 0..20 {
        drop(map.insert(key, 1).unwrap());
    }
    for key in 20..50 {
        drop(map.remove(&key));
    }
    for key in 50..60 {
        map.insert_for(key, 2, SECOND * 100).unwrap();
    }
    clock.advance(SECOND * 20);
    while map.poll(usize::MAX).more {}
    let metrics = map.metrics();
    let of_entries = |shard: &StoreShardMetrics| {
        let mut shard = shard.clone();
        shard.tables = 0;
        shard
    };
    let total = of_entries(&metrics.total);
    let counts = [total.inserted, total.replaced, total.removed, total.expired, total.live];
    assert_eq!(counts, [100, 30, 30, 60, 10]);
    let here: Vec<_> = metrics.shards.iter().map(of_entries).filter(|s| s.slots > 0).collect();
    assert_eq!(here, [total], "{metrics:?}");
    map.clear();
    let metrics = map.metrics();
    let removed = metrics.shards.iter().filter(|shard| shard.removed > 0).count();
    assert_eq!((removed, metrics.total.removed), (1, 40));
}
