//! A map that weighs, evicts and loads, beside calls that come in the middle of its own.

use super::ground::Ground;
use crate::subject::Kind;
use expiry::expiring_map::Loaded;
use expiry::{ExpiringMap, RemovalCause};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// A map whose values are their weights.
type Map = ExpiringMap<u64, u32>;

/// Weight of a heavy entry beside light ones, and what all together may weigh.
const HEAVY: u32 = 100;
const BOUND: u64 = 1000;

/// Which entries of a full map are in use: bits, by key.
const USED: [u64; 5] = [0, u64::MAX, 0x5555, 0xAAAA, 0x00FF];

/// Whether the fault applies.
pub fn is_map(kind: Kind) -> bool {
    kind == Kind::Map
}

/// A removal comes in the middle of a load, an insertion in the middle of a heavier one, and an
/// entry is replaced by one that needs the room of others.
pub fn caches_interrupted(ground: &Ground) {
    for key in 0..u64::from(ground.options.size / 100).max(1) {
        removal_beside_load(ground, key);
    }
    light_beside_heavy(ground);
    for number in 2..=15 {
        for (key, used) in (0..number).flat_map(|key| USED.map(|used| (key, used))) {
            replaced_in_a_full_map(ground, number, key, used);
        }
    }
}

fn weighing(bound: u64, listener: impl Fn(u64, RemovalCause) + Send + Sync + 'static) -> Map {
    let bound = usize::try_from(bound).expect("a small bound");
    ExpiringMap::builder()
        .max_weight(bound, |_, &weight| weight)
        .removal_listener(move |&key, _, cause| listener(key, cause))
        .build_manual()
        .expect("a map")
}

fn removal_beside_load(ground: &Ground, key: u64) {
    let map = weighing(BOUND, |_, _| ());
    let Ok(Loaded::Absent(guard)) = map.get_or_guard(&key) else {
        return ground.expect(false, || format!("key {key} has no value, and no load"));
    };
    drop(map.remove(&key));
    let loaded = guard.insert(1).map(|value| *value);
    ground.expect(matches!(loaded, Ok(1)), || format!("a load came to {loaded:?}"));
    ground.expect(!map.contains_key(&key), || format!("key {key} is there after its removal"));
}

/// For each entry that a heavy insertion evicts, the listener inserts a light one, which evicts its
/// own.
fn light_beside_heavy(ground: &Ground) {
    let (own, inside) = (Arc::new(OnceLock::<Map>::new()), AtomicBool::new(false));
    let evicted = Arc::new(AtomicU64::new(0));
    let (into, count) = (Arc::downgrade(&own), evicted.clone());
    let map = own.get_or_init(|| {
        weighing(BOUND, move |_, _| {
            if inside.swap(true, Relaxed) {
                return;
            }
            let number = count.fetch_add(1, Relaxed);
            // Else an insertion that keeps nothing would go on for ever.
            if let (Some(own), true) = (into.upgrade(), number < 3 * u64::from(HEAVY)) {
                let _ = own.get().map(|map| map.insert(BOUND + number, 1).map(drop));
            }
            inside.store(false, Relaxed);
        })
    });
    let refused = (0..BOUND).any(|key| map.insert(key, 1).is_err());
    ground.expect(!refused, || "a light entry was refused".into());
    let refused = map.insert(u64::MAX, HEAVY).map(drop);
    ground.expect(refused.is_ok(), || format!("the heavy entry was refused: {refused:?}"));
    let evicted = evicted.load(Relaxed);
    ground.expect(evicted == u64::from(HEAVY), || {
        format!("an entry of weight {HEAVY} has evicted {evicted} of weight 1")
    });
    map.shutdown();
}

/// The map is full of entries of weight 4. The replacement of one by weight 8 evicts another one.
fn replaced_in_a_full_map(ground: &Ground, number: u64, key: u64, used: u64) {
    let lost = Arc::new(Mutex::new(Vec::new()));
    let into = lost.clone();
    let map = weighing(4 * number + 2, move |key, cause| {
        if cause == RemovalCause::Size {
            into.lock().expect("no panic").push(key);
        }
    });
    for key in 0..number {
        let refused = map.insert(key, 4).is_err();
        ground.expect(!refused, || format!("entry {key} of {number} was refused"));
    }
    (0..number).filter(|other| used >> other & 1 == 1).for_each(|other| drop(map.get(&other)));
    let replaced = map.insert(key, 8).map(|old| old.map(|old| *old));
    ground.expect(matches!(replaced, Ok(Some(4))), || {
        format!("the replacement of {key} of {number} came to {replaced:?}")
    });
    let lost = lost.lock().expect("no panic");
    ground.expect(!lost.contains(&key), || format!("{key} of {number} was evicted for itself"));
}
