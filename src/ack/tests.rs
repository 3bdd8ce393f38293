//! What needs to know where a root's word lies in the index.

use super::{Ack, AckError, AckTracker, Done, Fate};
use crate::core::lease::{IssuedId, Lease};
use crate::time::ManualClock;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Two roots with one hash. The index cannot tell them apart: whose slot it is, the slot says.
fn alike(tracker: &AckTracker) -> (u64, u64) {
    let mut seen = HashMap::new();
    (0..)
        .find_map(|key| {
            // The index keeps 31 bits.
            let hash = tracker.trees.engine.hash(key) | 1 << 31;
            seen.insert(hash, key).map(|other| (other, key))
        })
        .expect("2^31 hashes")
}

#[test]
fn roots_with_one_hash_are_told_apart() {
    let tracker = AckTracker::builder()
        .shards(1)
        .seed(7)
        // A call that does not find a root would have to make an early entry.
        .early_capacity(0)
        .clock(ManualClock::new())
        .timeout(Duration::from_secs(1))
        .build_manual()
        .expect("settings");
    let (first, second) = alike(&tracker);
    for key in [first, second] {
        assert_eq!(tracker.init(key, 3, key), Ok(()));
        assert_eq!(tracker.init(key, 3, key), Err(AckError::Duplicate));
    }
    for key in [first, second] {
        assert_eq!(tracker.ack(key, 1), Ok(Ack::Pending));
        assert_eq!(tracker.reset_timeout(key), Ok(Done::Now));
    }
    assert_eq!(tracker.ack(second, 2), Ok(Ack::Completed));
    assert_eq!(tracker.ack(second, 2), Err(AckError::EarlyFull));
    assert_eq!(tracker.fail(first), Ok(Done::Now));
    assert!(tracker.is_empty());
}

/// Counts that are added up while others count may come to none where a root is in flight: draining
/// waits for it all the same.
#[test]
fn what_the_counts_miss_is_waited_for() {
    let tracker = AckTracker::builder().shards(1).build_manual().expect("settings");
    let root = tracker.issue(3, 42).expect("room");
    // As an end whose beginning was looked for too early.
    let engine = &tracker.trees.engine;
    engine.with_stripe(|mine, _| mine.face.counts[0].acked.add(1));
    assert!(tracker.is_empty());
    assert!(!engine.is_vacant(&*tracker.trees));
    let limit = Duration::from_millis(20);
    let began = Instant::now();
    tracker.shutdown(Fate::Drain(limit));
    assert!(began.elapsed() >= limit, "it was not waited for");
    assert_eq!(tracker.fail(root), Err(AckError::NotLive));
}

#[test]
fn the_driver_carries_what_has_grown() {
    let tracker = AckTracker::builder()
        .shards(1)
        // With one seed in 200, a home is crowded while the table is nearly empty: the driver
        // installs the smaller table again as soon as it has carried.
        .seed(7)
        .clock(ManualClock::new())
        .build_manual()
        .expect("settings");
    let index = tracker.trees.engine.index(0);
    let mut key = 0;
    while index.tables_to_carry() == 0 {
        assert_eq!(tracker.init(key, 3, key), Ok(()));
        key += 1;
    }
    assert!(!tracker.poll(usize::MAX).more);
    assert_eq!(index.tables_to_carry(), 0);
    assert!((0..key).all(|key| tracker.ack(key, 3) == Ok(Ack::Completed)));
}

/// A13: the count of a slot's occupants comes round after 65,536 of them. The 16 random bits then tell an
/// old id from the new one: it is taken for it with a chance of 2^-32 for each new occupant.
#[test]
fn a13_a_slot_whose_occupants_come_round() {
    const RANDOM: u64 = 0xffff << 48;
    let tracker = AckTracker::builder().shards(1).build_manual().unwrap();
    let engine = &tracker.trees.engine;
    for turns in 0..4 {
        let old = tracker.issue(5, 0).unwrap();
        tracker.ack(old, 5).unwrap();
        let slot = engine.slot(IssuedId(old.to_bits()).slot()).unwrap();
        // As if all but one of the next 65,536 occupants had come and gone.
        let before = (old.to_bits() >> 32 & 0xffff) as u32;
        slot.set_lease(Lease::free(before.wrapping_sub(1) & 0xffff));
        let new = (0..2 * 4096).find_map(|_| {
            let root = tracker.issue(5, 0).unwrap();
            let is_there = (root.to_bits() ^ old.to_bits()) & !RANDOM == 0;
            if !is_there {
                tracker.ack(root, 5).unwrap();
            }
            is_there.then_some(root)
        });
        let new = new.expect("the slot is taken again");
        assert_ne!(new, old, "turn {turns}");
        assert_eq!(tracker.ack(old, 5), Err(AckError::NotLive));
        assert_eq!(tracker.ack(new, 5), Ok(Ack::Completed));
    }
}
