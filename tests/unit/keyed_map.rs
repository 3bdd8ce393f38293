//! Unit tests of `src/keyed/map/mod.rs`.

use super::*;
use crate::time::{Clock, ManualClock};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// With the default settings no caller can know in advance which keys' hashes collide: a key's
/// hasher and the index each have a seed of their own.
#[test]
fn two_maps_hash_in_two_ways() {
    let map = || ExpiringMap::<u64, ()>::builder().build_manual().unwrap();
    let (one, other) = (map(), map());
    let bits = |map: &ExpiringMap<u64, ()>| [1, 2, 3].map(|bits| map.store.engine.keys.hash(bits));
    assert_ne!(bits(&one), bits(&other));
    assert!((0..4).any(|key| one.hash(&key) != other.hash(&key)));
    assert!((0..4_u64).any(|key| one.hasher.hash_one(key) != other.hasher.hash_one(key)));
    let map = || ExpiringMap::<u64, ()>::builder().seed(7).build_manual().unwrap();
    let (one, other) = (map(), map());
    assert!((0..4).all(|key| one.hash(&key) == other.hash(&key)), "of one seed");
}

/// A touch beside a replacement that keeps the lifetime has set another bound: the second entry
/// stands for the one that has taken the first one's place.
#[test]
fn a_clock_that_panics_when_a_kept_bound_has_moved_leaves_the_call_its_end() {
    static IS_BROKEN: AtomicBool = AtomicBool::new(false);
    struct Broken(ManualClock);
    impl Clock for Broken {
        fn now(&self) -> u64 {
            if IS_BROKEN.load(Relaxed) {
                resume_unwind(Box::new("a clock that is broken for a moment"));
            }
            self.0.now()
        }
    }
    let second = Duration::from_secs(1);
    let builder = ExpiringMap::<u64, ()>::builder().time_to_idle(2 * second);
    let map = builder.clock(Broken(ManualClock::new())).build_manual().unwrap();
    map.insert_for(1, (), second).unwrap();
    map.insert_for(2, (), 2 * second).unwrap();
    let (store, pin) = (&*map.store, map.store.engine.pin());
    let [old, new] = [1, 2].map(|key| store.find(&pin, map.wanted(map.hash(&key), &key)).unwrap());
    let (_, kept) = store.term_of(new).idle.unwrap();
    let before = store.term_of(new).deadline;
    IS_BROKEN.store(true, Relaxed);
    store.keep_bound(old, new, kept);
    let (old, new) = (store.term_of(old), store.term_of(new.again()));
    assert_eq!(new.idle.unwrap().1, old.idle.unwrap().1);
    assert!(new.deadline <= old.idle.unwrap().1 && old.idle.unwrap().1 < before);
}
