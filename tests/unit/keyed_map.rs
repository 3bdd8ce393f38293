//! Unit tests of `src/keyed/map/mod.rs`.

use super::*;

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
