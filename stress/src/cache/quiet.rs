//! What one thread checks after the load, while the clock stands still.

use super::books::{Books, BOUND};
use super::caller::Caller;
use super::{Map, HEAVIEST};
use expiry::ExpiringMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// What the entries may weigh, the keys that are inserted, and how often each is.
const FEW: u64 = 64;
/// Weight of a heavy entry beside light ones, and what all together may weigh.
const HEAVY: u32 = 100;
const LIGHT: u64 = 1000;

pub fn check(map: &Map, books: &Books) {
    while map.poll(1024).more {}
    map.set_max_weight(FEW as usize).expect("a map that weighs");
    let mut weight = 0;
    for entry in map.iter() {
        books.ledger.accepted(entry.value().number);
        weight += u64::from(entry.value().weight);
    }
    books.checks.expect(BOUND, weight <= FEW && map.weight() == Some(weight), || {
        format!("the entries weigh {weight}, or {:?}, and may weigh {FEW}", map.weight())
    });
    let mut caller = Caller::new(map, books, 0);
    for key in (0..FEW).flat_map(|_| 0..FEW) {
        let is_there = map.contains_key(&key);
        let replaces = caller.insert(key, if is_there { HEAVIEST } else { 1 });
        books.checks.expect(BOUND, is_there == replaces, || {
            format!("the replacement of key {key} has evicted its own entry")
        });
    }
    heavy_among_light(books);
}

/// For each entry that a heavy insertion evicts, the listener inserts a light one, which evicts
/// another one.
fn heavy_among_light(books: &Books) {
    let own = Arc::new(OnceLock::<ExpiringMap<u64, u32>>::new());
    let (into, is_inside, inserted) =
        (Arc::downgrade(&own), AtomicBool::new(false), AtomicU64::new(LIGHT));
    let builder = ExpiringMap::builder().max_weight(LIGHT as usize, |_, &weight| weight);
    let builder = builder.removal_listener(move |_: &u64, _: &u32, _| {
        let key = inserted.fetch_add(1, Relaxed);
        // Else an insertion that keeps nothing would go on for ever.
        if key < 2 * LIGHT && !is_inside.swap(true, Relaxed) {
            let own = into.upgrade();
            own.and_then(|own| own.get()?.insert(key, 1).ok().map(drop));
            is_inside.store(false, Relaxed);
        }
    });
    let map = own.get_or_init(|| builder.build_manual().expect("a map"));
    let is_full = (0..LIGHT).all(|key| map.insert(key, 1).is_ok());
    let is_in = is_full && map.insert(u64::MAX, HEAVY).is_ok();
    let evicted = map.metrics().total.evicted;
    books.checks.expect(BOUND, is_in && evicted == 2 * u64::from(HEAVY), || {
        format!("weight {HEAVY}, and as much for the listener, have evicted {evicted} of weight 1")
    });
    map.shutdown();
}
