//! One thread: what the models check in all interleavings, here at full size.

use super::table::{Publish, Table};
use super::{Index, Insert, Removed};
use crate::core::params::{ALIKE, CLASSES, HOME, OVER};
use crate::core::pins::Pins;
use crate::sync::Ordering;
use std::collections::HashMap;

#[allow(clippy::cast_possible_truncation)]
fn hash(slot: u32) -> u32 {
    (u64::from(slot).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// As uneven as chance makes it, which the above is not.
#[allow(clippy::cast_possible_truncation)]
fn random(n: u32) -> u32 {
    let mixed = (u64::from(n) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ mixed >> 31) as u32
}

/// An index by itself.
struct Alone {
    index: Index,
    pins: Pins,
}

impl Alone {
    fn new() -> Self {
        Alone { index: Index::new().expect("memory"), pins: Pins::new() }
    }

    fn remove(&self, hash: u32, slot: u32) -> Removed {
        self.index.remove(&self.pins.pin(), hash, slot, None, |_| false)
    }

    fn migrate(&self, budget: usize) -> bool {
        let copier = self.pins.copier().expect("no thread gathers");
        self.index.migrate(&copier, &mut { budget }, |slot| slot)
    }

    fn turn(&self) -> bool {
        self.index.turn(|| self.pins.turn())
    }
}

impl std::ops::Deref for Alone {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.index
    }
}

fn insert(index: &Alone, slot: u32) -> bool {
    let mut crowded = false;
    let pin = index.pins.pin();
    matches!(
        index.insert(&pin, hash(slot), slot, &mut crowded, &mut |found| found == slot),
        Insert::Done
    )
}

fn found(index: &Alone, slot: u32) -> bool {
    index.find(hash(slot), &mut |found| found == slot).is_some()
}

fn migrate(index: &Alone) {
    while index.migrate(1000) {}
    for _ in 0..10_000 {
        if !index.turn() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("a grace period does not end although nobody is pinned");
}

#[test]
fn grows_and_shrinks_without_losing_a_word() {
    let index = Alone::new();
    let keys = 100_000;
    for slot in 0..keys {
        assert!(insert(&index, slot));
        assert!(!insert(&index, slot), "a key is published once");
        if slot % 7 == 0 {
            index.remove(hash(slot), slot);
            assert!(!found(&index, slot));
        }
        if slot % 1000 == 0 {
            migrate(&index);
        }
    }
    for slot in 0..keys {
        assert_eq!(found(&index, slot), slot % 7 != 0);
    }
    migrate(&index);
    let (tables, large) = index.shape();
    assert_eq!(tables, 1);
    assert!(large >= 6 * u64::from(keys) / 7);
    for slot in (0..keys).filter(|slot| slot % 7 != 0) {
        assert!(found(&index, slot));
        if slot >= 100 {
            index.remove(hash(slot), slot);
        }
    }
    assert!(index.shrink_if_empty(|| 100));
    migrate(&index);
    let (tables, small) = index.shape();
    assert_eq!(tables, 1);
    assert!(small * 16 < large);
    for slot in (0..100).filter(|slot| slot % 7 != 0) {
        assert!(found(&index, slot), "{slot} was lost in shrinking");
    }
    // And again, through classes that have been in use before.
    for slot in keys..2 * keys {
        assert!(insert(&index, slot));
        if slot % 5000 == 0 {
            migrate(&index);
        }
    }
    assert!((keys..2 * keys).all(|slot| found(&index, slot)));
}

/// More than any table holds.
const CROWD: u64 = 1 << 32;

/// A table is not put to use again while a thread may be in it; growth goes on to the next class.
#[test]
fn growth_passes_over_a_table_that_somebody_may_be_in() {
    let index = Alone::new();
    assert!(insert(&index, 1));
    assert!(index.grow_if_full(CROWD));
    migrate(&index);
    assert!(index.shrink_if_empty(|| 0));
    let pin = index.pins.pin();
    while index.migrate(1000) {}
    assert!(index.turn(), "the grace period of class 2 cannot be over");
    assert!(index.grow_if_full(CROWD), "there are larger classes");
    assert_eq!(index.shape(), (2, Index::capacity_of(3)));
    drop(pin);
    migrate(&index);
    assert!(found(&index, 1));
    assert!(index.shrink_if_empty(|| 0), "class 0 or 2 has been given back");
}

/// A class is in the directory once, however it came there.
#[test]
fn growth_passes_over_a_table_that_is_in_use() {
    let index = Alone::new();
    for slot in 0..100 {
        assert!(insert(&index, slot));
    }
    assert!(index.grow_if_full(CROWD));
    migrate(&index);
    assert_eq!(index.shape(), (1, Index::capacity_of(2)));
    assert!(index.shrink_if_empty(|| 0));
    assert_eq!(index.shape(), (2, Index::capacity_of(0)));
    assert!(index.grow_if_full(CROWD));
    assert_eq!(index.shape(), (3, Index::capacity_of(3)));
    migrate(&index);
    assert_eq!(index.shape(), (1, Index::capacity_of(3)));
    assert!((0..100).all(|slot| found(&index, slot)));
}

#[test]
fn a_removal_from_a_closed_home_says_so() {
    let index = Alone::new();
    let mut slot = 0;
    while index.shape().0 == 1 {
        assert!(insert(&index, slot));
        slot += 1;
    }
    // Nothing has been migrated yet. An insert that looks for a key closes its old home.
    let mut seen = HashMap::new();
    for old in 0..slot {
        assert!(!insert(&index, old));
        *seen.entry(index.remove(hash(old), old) == Removed::Copied).or_insert(0) += 1;
    }
    assert!(seen[&true] > 0, "no removal met a closed home");
}

#[test]
fn keys_of_one_home_spill_and_make_the_table_grow() {
    let index = Alone::new();
    // The low bits are the same: one home in every small table.
    for slot in 0..64u32 {
        let hash = slot << 20 | 5;
        let mut crowded = false;
        let done =
            index.insert(&index.pins.pin(), hash, slot, &mut crowded, &mut |found| found == slot);
        assert!(matches!(done, Insert::Done));
    }
    for slot in 0..64u32 {
        let hash = slot << 20 | 5;
        assert_eq!(index.find(hash, &mut |found| found == slot), Some(slot));
    }
    migrate(&index);
    for slot in 0..64u32 {
        let hash = slot << 20 | 5;
        assert_eq!(index.find(hash, &mut |found| found == slot), Some(slot));
        index.remove(hash, slot);
        assert_eq!(index.find(hash, &mut |_| true), None);
    }
}

/// No larger table would part them: more than so many are refused, the table stays as it is, and
/// others have room beside them.
#[test]
#[allow(clippy::cast_possible_truncation)]
fn keys_of_one_hash_do_not_make_the_table_grow() {
    let index = Alone::new();
    let alike = |slot: u32| {
        index.insert(&index.pins.pin(), 5, slot, &mut false, &mut |found| found == slot)
    };
    let beside = |slot: u32| {
        index.insert(&index.pins.pin(), slot << 24 | 5, slot, &mut false, &mut |_| false)
    };
    let (_, words) = index.shape();
    let most = ALIKE as u32;
    let odd = |slot: &u32| slot % 2 == 1;
    assert!((0..most).filter(odd).all(|slot| matches!(alike(slot), Insert::Done)));
    assert!((30..38).all(|slot| matches!(beside(slot), Insert::Done)));
    for slot in 0..100 {
        match alike(slot) {
            Insert::Found => assert!(slot < most && odd(&slot)),
            Insert::Done => assert!(slot < most && !odd(&slot)),
            Insert::Alike => assert!(slot >= most),
            Insert::Full => panic!("full"),
        }
    }
    assert!((38..45).all(|slot| matches!(beside(slot), Insert::Done)));
    assert_eq!(index.shape(), (1, words), "15 others have room");
    // They are counted in all tables, and while there are more than one, one more is taken.
    let mut slot = 1000;
    while index.shape().0 == 1 {
        assert!(insert(&index, slot));
        slot += 1;
    }
    assert!(matches!(alike(101), Insert::Done));
    assert!(matches!(alike(100), Insert::Alike));
    index.remove(5, 3);
    assert!(matches!(alike(100), Insert::Done));
    assert!(matches!(alike(3), Insert::Alike));
    assert!(matches!(alike(5), Insert::Found));
    migrate(&index);
    let there = |slot| index.find(5, &mut |found| found == slot).is_some();
    assert!((0..=100)
        .filter(|&slot| slot < most || slot == 100)
        .all(|slot| there(slot) == (slot != 3)));
    assert!(matches!(alike(3), Insert::Alike));
}

/// How full a table gets before a home has nowhere left to spill: the more homes, the longer the
/// tail of their loads.
#[test]
fn a_table_is_more_than_half_full_before_it_must_grow() {
    for class in [6, 10, 16] {
        let table = <Table>::map(class).expect("memory");
        let words = table.homes.as_slice().len() * HOME + table.overflow.as_slice().len() * OVER;
        let mut held = 0;
        while let Publish::Done(_) = table.publish(random(held), held, ALIKE, &mut |_| false) {
            held += 1;
        }
        assert!(held as usize * 100 > words * 55, "{held} of {words}");
    }
}

/// In a model a home has one word of its own, so that a key that is there leaves no room beside it.
#[test]
fn a_key_at_home_is_not_published_beside_itself() {
    let index = Alone::new();
    assert!(index.insert_simply(&index.pins.pin(), hash(1), 1));
    assert!(!index.insert_simply(&index.pins.pin(), hash(1), 2));
    assert!(index.insert_simply(&index.pins.pin(), hash(1) ^ 1 << 30, 3));
    assert!(found(&index, 1));
}

/// Keys that share their hash in groups. Groups that meet fill a home, and no larger table parts
/// them for sure: neither insertions nor the migration let the index cost much more than its keys.
#[test]
fn groups_of_one_hash_do_not_blow_the_index_up() {
    for (keys, group, every) in [(64_000, 16, 100), (64_000, 8, 10_000), (1000, 16, 100)] {
        let index = Alone::new();
        let (mut taken, mut refused) = (0, 0);
        for slot in 0..keys {
            let hash = random(slot / group);
            match index.insert(&index.pins.pin(), hash, slot, &mut false, &mut |_| false) {
                Insert::Done => taken += 1,
                Insert::Alike => refused += 1,
                _ => panic!("slot {slot}"),
            }
            if slot % every == 0 {
                index.migrate(64);
                index.turn();
            }
        }
        migrate(&index);
        assert!(taken > (keys * 8 / group) / 10 * 9, "{taken} taken, {refused} refused");
        // Each table once, and nothing of it is given back: address space.
        let words: u64 = (0..CLASSES)
            .filter(|&class| !index.tables[class].load(Ordering::Relaxed).is_null())
            .map(Index::capacity_of)
            .sum();
        assert!(words < 64 * u64::from(taken), "{words} words for {taken} keys");
    }
}

/// More keys of one home than it holds, which no table of a fair size parts: they are refused.
#[test]
fn a_crowded_home_does_not_blow_the_index_up() {
    let index = Alone::new();
    for slot in 0..200 {
        let hash = slot << 20 | 5;
        index.insert(&index.pins.pin(), hash, slot, &mut false, &mut |_| false);
        index.migrate(10_000);
    }
    let (_, words) = index.shape();
    assert_eq!(words, Index::capacity_of(6), "4,096 homes");
    let full = index.insert(&index.pins.pin(), 5 << 25 | 5, 200, &mut false, &mut |_| false);
    assert!(matches!(full, Insert::Alike));
    assert!((0..31).all(|slot| index.find(slot << 20 | 5, &mut |_| true) == Some(slot)));
    assert!(insert(&index, 1000), "another home has room");
}
