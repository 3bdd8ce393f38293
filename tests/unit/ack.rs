//! What needs to know where a root's word lies in the index.

use super::{Ack, AckError, AckTracker, Done, ShardMetrics, ShutdownMode};
use crate::core::lease::{IssuedId, Lease};
use crate::sync::counted::{LOOKUPS, PREFETCHES};
use crate::time::{Lifetime, ManualClock};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Two roots with one hash. The index cannot distinguish them: the slot says which root it has.
fn alike(tracker: &AckTracker) -> (u64, u64) {
    let mut seen = HashMap::new();
    (0..)
        .find_map(|key| {
            // The index keeps 31 bits.
            let hash = tracker.trees.engine.keys.hash(key) | 1 << 31;
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
    engine.with_stripe(|mine, _| mine.frontend.counts[0].acked.add(1));
    assert!(tracker.is_empty());
    assert!(!engine.is_vacant(&*tracker.trees));
    let limit = Duration::from_millis(20);
    let began = Instant::now();
    tracker.shutdown(ShutdownMode::Drain(limit));
    assert!(began.elapsed() >= limit, "it was not waited for");
    assert_eq!(tracker.fail(root), Err(AckError::NotLive));
}

/// Number of memory fetches that `call` has begun when it first calls the closure that it is given,
/// and number of its look-ups of this thread's stripe.
fn costs(call: impl FnOnce(&mut dyn FnMut())) -> (usize, usize) {
    let (fetches, lookups) = (PREFETCHES.get(), LOOKUPS.get());
    let mut before = None;
    call(&mut || {
        before.get_or_insert(PREFETCHES.get() - fetches);
    });
    (before.expect("the closure was called"), LOOKUPS.get() - lookups)
}

/// A17: a batch is no loop of single calls. It looks up the thread's stripe once, and fetches the
/// memory of a group before it looks at the first member.
#[test]
fn a17_a_batch_is_no_loop_of_single_calls() {
    const MANY: u64 = 64;
    // A fixed seed: with one secret in some 400 so many ids share a home that the index begins to
    // grow, and while it has two tables a batch does not fetch slots.
    let tracker = AckTracker::builder().shards(1).seed(7).build_manual().unwrap();
    // The first calls of a thread make its stripe, and find it memory.
    tracker.init(1 << 40, 1, 0).unwrap();
    let inits: Vec<_> = (0..MANY).map(|id| (id, 1, 0)).collect();
    let (fetches, lookups) = costs(|each| {
        tracker.init_many(&inits, |_, done| {
            done.unwrap();
            each();
        });
    });
    assert!(fetches as u64 >= MANY, "{fetches} fetches before the first init");
    assert!((lookups as u64) < MANY / 4, "{lookups} look-ups for {MANY} inits");
    let (_, singles) = costs(|each| {
        for id in MANY..2 * MANY {
            tracker.init(id, 1, 0).unwrap();
            each();
        }
    });
    assert!(singles as u64 >= MANY, "what is counted is not what single calls do: {singles}");

    let acks: Vec<_> = (0..MANY).map(|id| (id, 1)).collect();
    let (fetches, _) = costs(|each| {
        tracker.ack_many(&acks, |_, done| {
            assert_eq!(done, Ok(Ack::Completed));
            each();
        });
    });
    // A home and a slot for each.
    assert!(fetches as u64 >= 2 * MANY, "{fetches} fetches before the first ack");

    let mut roots = Vec::new();
    let items = [(1, 0); MANY as usize];
    let (_, lookups) = costs(|each| {
        tracker.issue_many(&items, &mut roots).unwrap();
        each();
    });
    assert!((lookups as u64) < MANY / 4, "{lookups} look-ups for {MANY} roots");
}

/// F7: what is counted by the shard of a root's hash, and what by the shard of its slot.
#[test]
fn f07_what_happens_is_counted_at_its_own_shard() {
    const SHARDS: usize = 16;
    let clock = ManualClock::new();
    let tracker = AckTracker::builder()
        .shards(SHARDS)
        .early_capacity(1)
        .timeout(Duration::from_millis(100))
        .interval(Duration::from_millis(1))
        .clock(clock.clone())
        .build_manual()
        .unwrap();
    let engine = &tracker.trees.engine;
    // The shards at which `call` has made `of` count, each so often.
    let counted = |of: fn(&ShardMetrics) -> u64, call: &dyn Fn()| -> Vec<(usize, u64)> {
        let before = tracker.metrics();
        call();
        let after = tracker.metrics();
        let shards = before.shards.iter().zip(&after.shards).map(|(a, b)| of(b) - of(a));
        shards.enumerate().filter(|&(_, more)| more > 0).collect()
    };
    let place = |root: u64| engine.shard_of(IssuedId(root).slot());
    let mut by_slot = std::collections::BTreeSet::new();
    for turn in 0..64 {
        let root = tracker.issue(3, 0).unwrap();
        let shard = place(root.to_bits());
        by_slot.insert(shard);
        let here = |what: &str, counted: Vec<(usize, u64)>| {
            assert_eq!(counted, [(shard, 1)], "{what}, turn {turn}");
        };
        match turn % 3 {
            0 => {
                let ack = || assert_eq!(tracker.ack(root, 3), Ok(Ack::Completed));
                here("acked", counted(|shard| shard.acked, &ack));
            }
            1 => {
                let fail = || assert_eq!(tracker.fail(root), Ok(Done::Now));
                here("failed", counted(|shard| shard.failed, &fail));
            }
            _ => {
                let expire = || {
                    clock.advance(Duration::from_millis(101));
                    while tracker.poll(usize::MAX).more {}
                };
                here("expired", counted(|shard| shard.expired, &expire));
            }
        }
        let late = || assert_eq!(tracker.ack(root, 3), Err(AckError::NotLive));
        here("late", counted(|shard| shard.late, &late));
        // So that the next root lies in another chunk of slots, and in another shard.
        for _ in 0..1000 {
            tracker.issue_for(1, 0, Lifetime::Never).unwrap();
        }
    }
    assert!(by_slot.len() > 1, "all roots lay in one shard");
    tracker.ack(1 << 40, 1).unwrap();
    for root in 0..64 {
        let shard = engine.keys.shard_of_hash(engine.keys.hash(root));
        tracker.init(root, 3, 0).unwrap();
        let twice = || assert_eq!(tracker.init(root, 3, 0), Err(AckError::Duplicate));
        assert_eq!(counted(|shard| shard.duplicate, &twice), [(shard, 1)], "root {root}");
        tracker.ack(root, 3).unwrap();
        let full = || assert_eq!(tracker.ack(root, 3), Err(AckError::EarlyFull));
        assert_eq!(counted(|shard| shard.early_refused, &full), [(shard, 1)], "root {root}");
    }
}

/// A13: the count of a slot's occupants comes round after 65,536 of them. The 16 random bits then
/// distinguish an old id from the new one: it is taken for it with a chance of 2^-32 for each new
/// occupant.
#[test]
fn a13_a_slot_whose_occupants_come_round() {
    const RANDOM: u64 = 0xffff << 48;
    let tracker = AckTracker::builder().shards(1).build_manual().unwrap();
    let engine = &tracker.trees.engine;
    for turns in 0..4 {
        let old = tracker.issue(5, 0).unwrap();
        tracker.ack(old, 5).unwrap();
        let slot = engine.slots.slot(IssuedId(old.to_bits()).slot()).unwrap();
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
