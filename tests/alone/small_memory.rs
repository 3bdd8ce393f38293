//! What a small store costs. It measures the process.

use crate::heap;

use expiry::{AckTracker, ExpiringMap, ExpiryQueue, ManualClock, PendingTable, SessionTracker};
use std::time::Duration;

/// Resident memory of this process in bytes, page by page: `statm` is up to some dozens of pages
/// behind.
fn resident() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Rss:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

/// How many stores are measured at once: what the process needs once does not count much then.
const STORES: usize = 16;

/// What one of the stores that `make` makes takes: bytes resident, or bytes on the heap where the
/// heap has room from before.
fn cost<S>(what: &str, make: impl Fn() -> S) -> usize {
    drop(make());
    let mut stores = Vec::with_capacity(STORES);
    let (heap, before) = (heap::process(), resident());
    stores.extend((0..STORES).map(|_| make()));
    let (heap, cost) = (heap::process() - heap, resident() - before);
    let (heap, cost) = (heap / STORES, cost / STORES);
    println!("{what}: {} KiB resident, {} KiB on the heap", cost >> 10, heap >> 10);
    cost.max(heap)
}

pub fn a_store_of_sixteen_shards_with_one_entry_is_small() {
    const MINUTE: Duration = Duration::from_secs(60);
    let map = |shards| {
        move || {
            let builder = ExpiringMap::<u64, u64>::builder().shards(shards).time_to_live(MINUTE);
            let map = builder.build_manual().unwrap();
            map.insert(1, 1).unwrap();
            map
        }
    };
    let costs = [1, 16, 256].map(|shards| cost(&format!("map, {shards} shards"), map(shards)));
    let polled = cost("map, 16 shards, polled until the entry has expired", || {
        let clock = ManualClock::new();
        let builder = ExpiringMap::<u64, u64>::builder().shards(16).time_to_live(MINUTE);
        let map = builder.clock(clock.clone()).build_manual().unwrap();
        map.insert(1, 1).unwrap();
        map.poll(1000);
        clock.advance(2 * MINUTE);
        map.poll(1000);
        assert_eq!(map.get_cloned(&1), None);
        map.insert(1, 1).unwrap();
        map
    });
    let queue = cost("queue, 16 shards", || {
        let queue = ExpiryQueue::<u64>::builder().shards(16).build_manual().unwrap();
        queue.update(1, MINUTE).unwrap();
        queue
    });
    let sessions = cost("sessions, 16 shards", || {
        let sessions = SessionTracker::builder().shards(16).build_manual().unwrap();
        sessions.create(MINUTE, 7).unwrap();
        sessions
    });
    let table = cost("table, 16 shards", || {
        let table = PendingTable::builder().shards(16).build_manual().unwrap();
        table.insert(1_u64, MINUTE).unwrap();
        table
    });
    let tracker = cost("tracker, 16 shards", || {
        let tracker = AckTracker::builder().shards(16).build_manual().unwrap();
        tracker.init(1, 1, 0).unwrap();
        tracker
    });
    assert!(costs[1] < 300_000, "a map: {}", costs[1]);
    for (what, cost) in [
        ("polled", polled),
        ("queue", queue),
        ("sessions", sessions),
        ("table", table),
        ("tracker", tracker),
    ] {
        assert!(cost < 300_000, "{what}: {cost}");
    }
}
