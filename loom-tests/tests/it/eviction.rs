//! Eviction beside other calls: each entry ends once, and the bound holds.

use expiry::{RemovalCause, StoreError};
use loom_tests::{aside, at_once, beside, bounded, costly, model, MapRig};

/// A full map that evicts: value 10 under key 1, of at most so many entries.
fn full(capacity: usize) -> MapRig {
    let rig = MapRig::used(|builder| builder.max_capacity(capacity));
    at_once(|| drop(rig.insert(1, 10).unwrap()));
    rig
}

// Another thread's slot is filled and not published yet: an eviction that ended it would leave the
// key in the index, or take key and value away under the inserting thread. Guards: a thread evicts
// what the index names.
model!(eviction_beside_an_insertion, || {
    let rig = MapRig::used(|builder| builder.max_capacity(1));
    let (a, b) = beside(&rig, |rig| rig.try_put(1, 10), |rig| rig.try_put(2, 20));
    assert!(rig.len() <= 1);
    let (left, evicted) = (rig.left(), rig.told());
    // A call is refused only where the other one is in the middle of its insertion.
    let refused = [&a, &b].into_iter().filter(|done| done.is_err()).count();
    assert!([a, b].iter().all(|done| matches!(done, Ok(()) | Err(StoreError::Full))));
    assert!(evicted.iter().all(|&(_, cause)| cause == RemovalCause::Size));
    assert_eq!(left.len() + evicted.len() + refused, 2);
    assert_eq!(left.len(), 1);
});

// Guards: the swap of the lease decides which of two ends an entry. The removing thread holds the
// entry's place until it has taken the index word away: meanwhile there is nothing to evict.
model!(eviction_beside_a_removal, || {
    let rig = full(1);
    let a = aside(&rig, |rig| rig.remove(&1).is_some());
    let b = rig.try_put(2, 20);
    let removed = a.join().unwrap();
    let cause = if removed { RemovalCause::Removed } else { RemovalCause::Size };
    assert_eq!(rig.told(), [(10, cause)]);
    assert!(b == Ok(()) || removed && b == Err(StoreError::Full));
    assert_eq!(rig.map.get(&2).as_deref(), b.ok().map(|()| &20));
});

// A value that is replaced needs no room, and an entry that is evicted meanwhile is inserted anew.
// Guards: as above, by the old lease.
model!(eviction_beside_a_replacement, bounded(1), || {
    let rig = full(1);
    let a = aside(&rig, |rig| rig.try_put(1, 11));
    let b = rig.try_put(2, 20);
    let a = a.join().unwrap();
    let refused = [&a, &b].into_iter().filter(|done| done.is_err()).count();
    let mut told: Vec<_> = rig.ends().into_iter().map(|(value, _)| value).collect();
    told.extend(rig.left());
    told.sort_unstable();
    assert_eq!(told.len() + refused, 3, "{told:?}");
    told.dedup();
    assert_eq!(told.len() + refused, 3, "each value once");
    assert!(rig.len() <= 1);
});

// A reader marks the entry as used while the entry is evicted, and its slot takes another one.
// Guards: the mark is a swap of the lease that the reader has found.
model!(eviction_beside_a_read, || {
    let rig = full(1);
    let a = aside(&rig, |rig| rig.get());
    rig.insert(2, 20).unwrap();
    rig.drive();
    let seen = a.join().unwrap();
    assert!(matches!(seen, None | Some(10)));
    assert_eq!(rig.told(), [(10, RemovalCause::Size)]);
    assert_eq!(rig.map.get(&2).as_deref(), Some(&20));
});

// Two threads evict at once, from a map of two. Guards: each ends another entry, or looks again.
model!(two_evictions, costly(1, 3), || {
    let rig = full(2);
    at_once(|| drop(rig.insert(2, 20).unwrap()));
    assert_eq!(beside(&rig, |rig| rig.try_put(3, 30), |rig| rig.try_put(4, 40)), (Ok(()), Ok(())));
    assert_eq!((rig.len(), rig.told().len()), (2, 2));
    assert!(rig.told().iter().all(|&(_, cause)| cause == RemovalCause::Size));
});

/// A map of at most so much in all, whose values are weights.
fn weighing(bound: usize) -> MapRig {
    MapRig::used(|builder| {
        builder.max_weight(bound, |_, &weight| u32::try_from(weight).expect("a small one"))
    })
}

/// No permit was lost, and none was made.
fn fits(rig: &MapRig, bound: u64) {
    let sum: u64 = rig.left().into_iter().sum();
    assert!(sum <= bound, "{sum}");
    rig.map.clear();
    let before = rig.told().len();
    for key in 10..10 + bound {
        rig.insert(key, 1).unwrap();
    }
    assert_eq!((rig.len() as u64, rig.told().len()), (bound, before));
}

// Guards: permits are taken before an entry is published, and all are given back where it is not,
// or has ended.
model!(two_insertions_that_weigh, bounded(2), || {
    let rig = weighing(3);
    beside(&rig, |rig| drop(rig.insert(1, 2)), |rig| drop(rig.insert(1, 1)));
    fits(&rig, 3);
});

// Guards: a replacement gives back what it took if its swap fails, and the difference if the new
// value is lighter.
model!(weights_replaced_beside_a_removal, bounded(2), || {
    let rig = weighing(3);
    at_once(|| drop(rig.insert(1, 2).unwrap()));
    let a = aside(&rig, |rig| drop(rig.remove(&1)));
    drop(rig.insert(1, 3));
    drop(rig.insert(1, 1));
    a.join().unwrap();
    fits(&rig, 3);
});

// A call keeps the permits of what it evicts until it has enough, and gives them back if it finds
// nothing to evict. Guards: each permit is an entry's, a call's, or free.
model!(a_heavy_insertion_beside_a_light_one, costly(1, 2), || {
    let rig = weighing(2);
    at_once(|| (1..3).for_each(|key| drop(rig.insert(key, 1).unwrap())));
    let (heavy, light) = beside(&rig, |rig| rig.try_put(3, 2), |rig| rig.try_put(4, 1));
    assert!([heavy, light].iter().all(|done| matches!(done, Ok(()) | Err(StoreError::Full))));
    fits(&rig, 2);
});

// A bound is lowered beside an insertion. Guards: the limit and the permits change by the same
// difference. (That no call uses permits while there is a debt takes two insertions in progress: a
// model of three threads is too large. `a_bound_that_is_lowered_amid_insertions_holds_afterwards`
// of the crate's tests shows it.)
model!(a_lowered_bound_beside_an_insertion, bounded(2), || {
    let rig = full(2);
    at_once(|| drop(rig.insert(2, 20).unwrap()));
    let a = aside(&rig, |rig| rig.try_put(3, 30));
    rig.map.set_max_capacity(1).unwrap();
    let a = a.join().unwrap();
    assert!(rig.len() <= 1 && rig.map.weight() <= Some(1));
    assert!(matches!(a, Ok(()) | Err(StoreError::Full)));
    assert!(rig.told().iter().all(|&(_, cause)| cause == RemovalCause::Size));
});
