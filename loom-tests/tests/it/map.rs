//! What `ExpiringMap` adds to the keyed store, through the public interface: deadlines exact to the
//! tick, times to idle, entries, iteration.

use expiry::expiring_map::Entry;
use expiry::model::stop_at;
use expiry::{ExpiringMap, Lifetimes, ManualClock, RemovalCause};
use loom_tests::{
    after, aside, at_once, beside, bounded, deep, large, light, model, thread, MapRig, TICK,
};
use std::sync::Arc;

/// A map where nothing expires by itself.
fn empty() -> MapRig {
    MapRig::new(|builder| builder)
}

/// A rig that has had an entry.
fn used() -> MapRig {
    MapRig::used(|builder| builder)
}

/// A rig with value 10 under key 1.
fn with(lifetime: Lifetimes) -> MapRig {
    let rig = empty();
    rig.insert_for(1, 10, lifetime).unwrap();
    rig
}

fn live(ticks: u32) -> Lifetimes {
    Lifetimes::new().live(after(ticks))
}

fn idle(ticks: u32) -> Lifetimes {
    Lifetimes::new().idle(after(ticks))
}

// M2: a touch reads the clock, and only then is the entry due. A caller that has observed the
// expiry never observes the opposite. Guards: an expired entry is marked before a look-up reports
// it as absent.
model!(m2_told_gone_and_touched, || {
    let rig = with(live(10));
    let a = aside(&rig, |rig| rig.touch_for(&1, after(20)).unwrap());
    rig.advance(10);
    let seen = rig.get();
    let touched = a.join().unwrap();
    if seen.is_none() {
        assert_eq!(rig.get(), None);
        assert!(!touched);
        rig.drive();
        assert_eq!(rig.told(), [(10, RemovalCause::Expired)]);
    } else {
        assert!(touched);
    }
});

// M2 for look-ups, which read the clock first: a thread that has not found the entry does not find
// it later. Guards: a look-up goes by the state of the lease, too.
model!(m2_told_gone_and_looked_up, || {
    let rig = with(live(10));
    let a = aside(&rig, |rig| (rig.get(), rig.get()));
    rig.advance(10);
    let seen = rig.get();
    let (first, second) = a.join().unwrap();
    assert!(first.is_some() || second.is_none());
    assert!(seen.is_some() || rig.get().is_none());
});

// M2 for an entry that was looked up while it lived, and is due when it is to be removed. Guards:
// it too is marked before the removal answers.
model!(m2_told_changed_and_touched, || {
    let rig = with(live(10));
    let Entry::Occupied(entry) = rig.entry(1) else {
        panic!("it is there");
    };
    let a = aside(&rig, |rig| rig.touch_for(&1, after(20)).unwrap());
    rig.advance(10);
    let removed = entry.remove().is_some();
    let touched = a.join().unwrap();
    assert_eq!(rig.get(), None);
    assert!(removed || !touched);
});

// A read that finds an entry with a time to idle renews it, or the entry was not there. Guards: the
// read looks again if its swap fails.
model!(a_read_renews, || {
    let rig = with(idle(10));
    rig.advance(9);
    let a = aside(&rig, |rig| {
        rig.advance(1);
        rig.drive();
    });
    let seen = rig.get();
    a.join().unwrap();
    if seen.is_some() {
        assert_eq!(rig.told(), []);
        assert_eq!(rig.get(), Some(10));
    } else {
        assert_eq!(rig.told(), [(10, RemovalCause::Expired)]);
    }
});

// A touch shortens an entry's life, and a read meets it: the read does not undo that. The touch
// leaves the deadline as it is, so the read's swap cannot tell. Guards: both look at the bound
// again, and the touch swaps even so.
model!(a_read_stays_within_the_bound, || {
    let rig = with(idle(10));
    rig.advance(1);
    let (a, _) =
        beside(&rig, |rig| rig.get(), |rig| assert_eq!(rig.touch_for(&1, after(9)), Ok(true)));
    assert_eq!(a, Some(10));
    assert_eq!(rig.remaining(&1), Some(TICK * 9));
});

// Two touches set different bounds: the deadline is that of the later one. Guards: a thread that
// has swapped the lease looks at the bound again.
model!(two_bounds, || {
    let rig = with(idle(10));
    let (a, _) = beside(
        &rig,
        |rig| rig.touch_for(&1, after(3)).unwrap(),
        |rig| assert_eq!(rig.touch_for(&1, after(5)), Ok(true)),
    );
    assert!(a);
    let left = rig.remaining(&1).unwrap();
    assert!(left == TICK * 3 || left == TICK * 5);
    // A read goes by the bound that the deadline was made of.
    rig.get().unwrap();
    assert_eq!(rig.remaining(&1), Some(left));
});

// Two touches with one timeout, and the clock moves between them. The touch that read the clock
// first may be the last to change the bound. Guards: a touch changes the bound by a
// compare-and-swap, so it does not write an older bound over a later one.
model!(two_touches_across_a_tick, || {
    let rig = with(idle(20));
    let touch = |rig: &MapRig| rig.touch_for(&1, after(10));
    let a = aside(&rig, move |rig| {
        rig.advance(5);
        touch(rig)
    });
    assert_eq!(touch(&rig), Ok(true));
    assert_eq!(a.join().unwrap(), Ok(true));
    assert_eq!(rig.remaining(&1), Some(TICK * 10));
});

fn kept() -> Lifetimes {
    Lifetimes::new().keep()
}

// A replacement keeps the lifetime of the entry that it replaces, and a touch prolongs that entry:
// in either order the new entry has the touch's deadline. Guards: the replacing thread takes the
// deadline from the very lease that its swap takes away.
model!(a_kept_lifetime_beside_a_touch, || {
    let rig = with(live(10));
    let a = aside(&rig, |rig| rig.touch_for(&1, after(20)).unwrap());
    rig.insert_for(1, 20, kept()).map(drop).unwrap();
    assert!(a.join().unwrap());
    assert_eq!(rig.remaining(&1), Some(TICK * 20));
});

// The same for an entry with a time to idle. The touch changes the bound, and leaves the deadline
// as it is. Guards: such a touch counts in the lease.
model!(a_kept_lifetime_beside_a_touch_of_an_idle_entry, || {
    let rig = with(idle(10));
    let a = aside(&rig, |rig| rig.touch_for(&1, after(20)).unwrap());
    rig.insert_for(1, 20, kept()).map(drop).unwrap();
    assert!(a.join().unwrap());
    for _ in 0..2 {
        rig.advance(9);
        assert_eq!(rig.get(), Some(20));
    }
    assert_eq!(rig.remaining(&1), Some(TICK * 2), "the touch's bound is lost");
});

/// A thread reads or touches a value with a time to idle, while another one replaces it by a value
/// without, or the other way round. Each value keeps its own lifetime. Guards: node and lease are
/// of one occupancy, or are read again.
#[test]
fn a_policy_is_its_own_values() {
    large("a_policy_is_its_own_values, read", || {
        let rig = with(idle(10));
        rig.advance(1);
        beside(&rig, |rig| rig.get(), |rig| drop(rig.insert_for(1, 20, live(5)).unwrap()));
        assert_eq!(rig.remaining(&1), Some(TICK * 5));
    });
    large("a_policy_is_its_own_values, touched", || {
        let rig = with(live(20));
        let a = aside(&rig, |rig| rig.touch_for(&1, after(20)).unwrap());
        rig.insert_for(1, 20, idle(5)).unwrap();
        assert!(a.join().unwrap());
        assert_eq!(rig.remaining(&1), Some(TICK * 5));
    });
}

/// Two increments: none is lost. Guards: an entry replaces the very value that was looked at.
#[test]
fn two_upserts() {
    for present in [true, false] {
        large("two_upserts", move || {
            let rig = if present { with(live(10)) } else { used() };
            let add = |rig: &MapRig| {
                let one_more = |old: Option<&u64>| (old.map_or(11, |old| old + 1), ());
                rig.upsert(1, one_more).unwrap();
            };
            beside(&rig, move |rig| add(rig), |rig| add(rig));
            assert_eq!(rig.get(), Some(12));
            assert_eq!(rig.len(), 1);
        });
    }
}

// Two threads want the value of a fresh key: they get the same one. Guards: the index refuses the
// second.
model!(two_first_readers, large, || {
    let rig = used();
    let (a, b) = beside(
        &rig,
        |rig| *rig.entry(1).or_insert(20).unwrap(),
        |rig| *rig.entry(1).or_insert(30).unwrap(),
    );
    assert_eq!(a, b);
    assert_eq!((rig.get(), rig.len()), (Some(a), 1));
    assert_eq!(rig.told(), []);
});

/// A thread removes an entry that it has looked at, while another thread renews or replaces it. The
/// very value is removed, or nothing. Guards: the slot is the value's identity under a pin; the
/// lease's swap decides.
#[test]
fn a_value_is_removed_by_its_identity() {
    model("a_value_is_removed_by_its_identity, touched", || {
        let rig = with(live(10));
        beside(
            &rig,
            |rig| rig.touch_for(&1, after(20)).unwrap(),
            |rig| assert!(rig.remove_if(&1, |_, value| *value == 10).is_some()),
        );
        assert_eq!(rig.get(), None);
    });
    large("a_value_is_removed_by_its_identity, replaced", || {
        let rig = with(live(10));
        let Entry::Occupied(entry) = rig.entry(1) else { panic!("it is there") };
        let (replaced, removed) =
            beside(&rig, |rig| rig.put(20), |_| entry.remove().map(|ended| *ended.value()));
        assert_eq!(rig.get(), Some(20));
        assert!(removed.is_some() != replaced.is_some());
        assert_eq!(removed.or(replaced), Some(10));
    });
}

// A walk meets a key whose value is replaced meanwhile once, with one value or the other. Guards:
// the walk follows forwards.
model!(a_walk_meets_what_is_replaced, || {
    let rig = with(live(10));
    let a = aside(&rig, move |rig| rig.insert(1, 20).map(drop).unwrap());
    let met: Vec<u64> = rig.iter().map(|entry| *entry).collect();
    a.join().unwrap();
    assert!(met == [10] || met == [20], "{met:?}");
});

// `clear` beside a replacement: whichever comes first, the key is gone. Guards: `retain` asks again
// about the value that has replaced the one that it was to remove.
model!(clear_beside_a_replacement, light, || {
    let rig = with(live(10));
    let a = aside(&rig, |rig| {
        if let Entry::Occupied(entry) = rig.entry(1) {
            drop(entry.insert(20));
        }
    });
    rig.clear();
    a.join().unwrap();
    assert_eq!(rig.get(), None);
});

// A walk looks for the slots of two keys that share their hash, while their values are replaced. It
// meets each once. Both are replaced between the walk's looks at the two words, so the walk begins
// again. Guards: the walk takes the later one of two slots of one key that it has seen.
model!(a_walk_meets_keys_of_one_hash, || {
    let map = ExpiringMap::builder().shards(1).seed(7).hasher(OneHash);
    let map = Arc::new(map.clock(ManualClock::new()).build_manual().unwrap());
    at_once(|| (1..3).for_each(|key| drop(map.insert(key, 10 * key).unwrap())));
    let a = aside(&map, |map| (1..3).for_each(|key| drop(map.insert(key, 11 * key).unwrap())));
    stop_at(|step| step == "met");
    let mut met: Vec<u64> = map.iter().map(|entry| *entry.key()).collect();
    stop_at(|_| false);
    a.join().unwrap();
    met.sort_unstable();
    assert_eq!(met, [1, 2]);
});

/// Gives all keys one hash.
struct OneHash;

impl std::hash::BuildHasher for OneHash {
    type Hasher = Zero;

    fn build_hasher(&self) -> Zero {
        Zero
    }
}

struct Zero;

impl std::hash::Hasher for Zero {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _: &[u8]) {}
}

// A reader is late when it swings the index to a new value: that value has been replaced already.
// Guards: a swing looks where the word leads to, and gives up if its target is no longer live.
model!(a_late_swing_changes_nothing, deep(3), || {
    let rig = with(live(10));
    let a = aside(&rig, |rig| rig.get());
    rig.insert_for(1, 20, live(10)).map(drop).unwrap();
    rig.insert_for(1, 30, live(3)).map(drop).unwrap();
    assert!(a.join().unwrap().is_some());
    assert_eq!(rig.remaining(&1), Some(TICK * 3));
    assert_eq!(rig.get(), Some(30));
});

// A walk meets an entry that a thread is inserting, while another thread has inserted the
// same key first. The walk yields no entry that never existed, and none whose memory has gone.
// Guards: a walk takes slots from published words only.
model!(a_walk_meets_no_stillborn, bounded(1), || {
    let rig = empty();
    let a = aside(&rig, |rig| *rig.entry(1).or_insert(20).unwrap());
    let b = aside(&rig, |rig| *rig.entry(1).or_insert(30).unwrap());
    let met: Vec<u64> = rig.iter().map(|entry| *entry).collect();
    let there = a.join().unwrap();
    assert_eq!(b.join().unwrap(), there);
    assert!(met.iter().all(|value| *value == there), "{met:?}, {there}");
});

/// The next key makes the index grow while it has one table to empty already. With two of them, an
/// inserting thread helps.
const BEFORE_HELP: u64 = 3;

/// An inserting thread helps to migrate the index, and stalls there. A poll still ends what is due.
/// Guards: a thread that helps does not become the shard's driver.
#[test]
fn expiry_beside_a_helper() {
    let grown = || {
        let rig = empty();
        rig.insert_for(1, 10, live(5)).unwrap();
        for key in 2..=BEFORE_HELP {
            rig.insert_for(key, key, live(20)).unwrap();
        }
        rig
    };
    let tables = |rig: &MapRig| rig.metrics().total.tables;
    let insert = |rig: &MapRig| {
        let next = BEFORE_HELP + 1;
        rig.insert_for(next, next, live(20)).map(drop).unwrap();
    };
    bounded("expiry_beside_a_helper, the helper alone", 1, move || {
        loom::stop_exploring();
        let rig = grown();
        assert_eq!(tables(&rig), 2);
        insert(&rig);
        assert_eq!(tables(&rig), 1, "nothing has been migrated");
    });
    bounded("expiry_beside_a_helper", 1, move || {
        loom::stop_exploring();
        let rig = grown();
        loom::explore();
        let a = aside(&rig, move |rig| insert(rig));
        // The driver must not come first: it would leave nothing to migrate.
        thread::yield_now();
        rig.advance(5);
        rig.drive();
        assert_eq!(rig.told(), [(10, RemovalCause::Expired)]);
        // What follows is another model's subject.
        loom::stop_exploring();
        a.join().unwrap();
    });
}

// A slot is handed over while a driver takes the deferred-free lists: this driver frees it, or a
// later one does. Guards: a driver that announces an empty list has found what was pushed before.
// Otherwise the push asks for a driver after that.
model!(a_slot_handed_over_beside_a_driver, large, || {
    let rig = at_once(|| {
        let rig = with(live(100));
        rig.insert_for(2, 20, live(100)).unwrap();
        drop(rig.remove(&2));
        rig.advance(2);
        rig
    });
    beside(&rig, |rig| drop(rig.remove(&1)), |rig| rig.drive());
    loom::stop_exploring();
    for _ in 0..4 {
        rig.advance(16);
        rig.drive();
    }
    assert_eq!(rig.metrics().unreclaimed, 0, "no driver knows of it");
});
