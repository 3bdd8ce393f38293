//! W7, W12, W13 and what the index relies on: closing, migrating, deferred-free list, retirement
//! and grace periods.
//!
//! Under the model checker an index bucket has one word of its own and one or two in overflow
//! buckets, and the smallest table has one index bucket. In some models an index bucket has two
//! words of its own.

use expiry::model::{Index, Inserted};
use expiry::{Ack, AckError, Done};
use loom::sync::atomic::AtomicU32;
use loom_tests::{
    all, aside, at_once, beside, bounded, costly, fill, index, index_with, large, larger, light,
    model, preemptions, thread, Rig, EITHER,
};
use std::sync::atomic::Ordering;
use std::sync::Arc;

pub(crate) fn one_of_two(a: Inserted, b: Inserted) {
    assert!(
        matches!((a, b), (Inserted::Done, Inserted::Found) | (Inserted::Found, Inserted::Done)),
        "{a:?} {b:?}"
    );
}

/// One of two insertions of key 5 was first. The index has that one only, also once all has been
/// migrated.
fn only_one(index: &Index, a: Inserted, b: Inserted) {
    one_of_two(a, b);
    assert_eq!(all(index, 5).len(), 1);
    index.migrate(100);
    assert_eq!(all(index, 5).len(), 1, "in a table that is not listed?");
}

/// A way to put key 5 in, with a slot.
type Put = fn(&Index, u32) -> Inserted;

const INSERT: Put = |index, slot| index.insert(5, slot, EITHER);

/// The fast way, where that is simple.
const INIT: Put = |index, slot| index.init(5, slot, EITHER);

/// An index with one key, put there the fast way.
fn inited(key: u32, slot: u32) -> Arc<Index> {
    let index = index();
    assert_eq!(index.init(key, slot, |_| false), Inserted::Done);
    index
}

/// Two threads put key 5 in, one of which does something to the index first.
fn put_twice<R>(index: &Arc<Index>, put: Put, first: impl FnOnce(&Index) -> R) {
    let both = beside(
        index,
        move |index| put(index, 1),
        |index| {
            first(index);
            put(index, 2)
        },
    );
    only_one(index, both.0, both.1);
}

/// A thread looks for key 5, which has slot 1, while another one does something to the index.
pub(crate) fn found_meanwhile<R>(index: &Arc<Index>, meanwhile: impl FnOnce(&Index) -> R) {
    let find = |index: &Arc<Index>| index.find(5, |slot| slot == 1);
    assert_eq!(beside(index, find, |index| meanwhile(index)).0, Some(1));
    assert_eq!(all(index, 5), [1]);
}

/// A thread removes key 5 while another one does something to the index. If `remove` says that the
/// slot need not rest, the slot may have a new occupant at once.
fn removed_meanwhile<R>(
    index: &Arc<Index>,
    remove: fn(&Index, u32, u32) -> bool,
    meanwhile: impl FnOnce(&Index) -> R,
) {
    let remove = move |index: &Arc<Index>| {
        if !remove(index, 5, 1) {
            assert_eq!(all(index, 5), [], "a word for a slot that is free");
        }
    };
    beside(index, remove, |index| meanwhile(index));
    index.migrate(100);
    assert_eq!(all(index, 5), []);
}

fn grow(index: &Index) {
    index.grow();
}

fn grow_and_migrate(index: &Index) {
    index.grow();
    index.migrate(100);
}

/// The table is retired and emptied.
fn retire(index: &Index) {
    grow_and_migrate(index);
    index.turn();
}

// W7: two threads insert one key, and one of them sees the old table only. Guards: the older
// table's index bucket is closed before a thread believes that the key is absent there.
model!(w07_growth, || put_twice(&index(), INSERT, grow));

// W7 with the migrating thread at work between the two.
model!(w07_growth_with_a_migrator, large, || {
    let index = index();
    let a = aside(&index, |index| index.insert(5, 1, EITHER));
    let b = aside(&index, |index| index.insert(5, 2, EITHER));
    index.grow();
    index.migrate(8);
    let (a, b) = (a.join().unwrap(), b.join().unwrap());
    only_one(&index, a, b);
});

// W7 with three tables: the inserting thread has passed the oldest one while the migrating thread
// moves the key from there to the youngest. Guards: the migrating thread closes the middle tables
// before it removes the old word.
model!(w07_an_insert_into_the_middle_table, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    let a = aside(&index, |index| index.insert(5, 2, EITHER));
    index.grow();
    index.migrate(8);
    assert_eq!(a.join().unwrap(), Inserted::Found);
    index.migrate(100);
    assert_eq!(all(&index, 5), [1]);
});

// W7, W12: a table is installed while the migrating thread copies into the table that was the
// youngest. Guards: the copy exists before the old word goes, and inserts go from old to young.
model!(w07_growth_while_a_word_is_migrated, || {
    let index = index_with(&[(5, 1)]);
    growth_while_a_word_is_migrated(&index);
});

// The same with a table in the middle, past which the word is migrated.
model!(w07_growth_while_a_word_is_migrated_past_a_table, large, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    growth_while_a_word_is_migrated(&index);
});

/// The word lies in the oldest table.
fn growth_while_a_word_is_migrated(index: &Arc<Index>) {
    index.grow();
    let (a, _) = beside(
        index,
        |index| {
            index.grow();
            index.insert(5, 2, EITHER)
        },
        |index| index.migrate(8),
    );
    assert_eq!(a, Inserted::Found);
    assert_eq!(index.find(5, EITHER), Some(1));
}

// W12: a look-up while the key is migrated. Guards: the look-up visits old tables first, and loads
// words with Acquire; a copy exists before the old word goes.
model!(w12_migrate_over, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    found_meanwhile(&index, |index| index.migrate(100));
});

// W12 where the look-up has a directory from before the growth. Guards: the look-up reads the
// directory again after a miss.
model!(w12_migrate_over_to_a_new_table, || {
    found_meanwhile(&index_with(&[(5, 1)]), grow_and_migrate);
});

// A walk beside a migration. Guards: the walk looks at old tables first, and loads headers and
// words with Acquire.
model!(a_walk_beside_a_migration, light, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    beside(&index, |index| index.migrate(100), |index| assert_eq!(index.walk(), [1]));
    assert_eq!(index.walk(), [1]);
});

// A walk beside growth: the table becomes larger before, between or after the walk's two steps, and
// the words move there. Guards: the walk starts a step again if the directory has changed, and
// the cursor goes by the bits of the hash from the lowest up.
model!(a_walk_beside_growth, costly(1, 3), || {
    let index = index_with(&[(5, 1), (6, 2)]);
    let a = aside(&index, |index| {
        index.grow();
        index.migrate(100);
    });
    assert_eq!(index.walk(), [2, 1]);
    a.join().unwrap();
    assert_eq!(index.walk(), [2, 1]);
});

// The same where the table becomes smaller.
model!(a_walk_beside_shrinking, larger, || {
    let index = index();
    at_once(|| {
        index.grow();
        index.migrate(100);
        while index.turn() {}
        fill(&index, &[(5, 1), (6, 2)]);
    });
    let a = aside(&index, |index| {
        assert!(index.shrink());
        index.migrate(100);
    });
    assert_eq!(index.walk(), [2, 1]);
    a.join().unwrap();
});

// The same with a glance: what has been migrated away is not absent. Guards: as before.
model!(w12_a_glance_beside_a_migrate, || {
    let index = index_with(&[(5, 1)]);
    let a = aside(&index, |index| index.is_absent(5));
    index.grow();
    index.migrate(100);
    assert!(!a.join().unwrap());
});

// The same for a pinned thread, which looks at the oldest table only. Guards: it says nothing of a
// closed index bucket; a thread that pins after a table's grace period has begun does not find that
// table.
model!(w12_a_pinned_glance_beside_a_migrate, || {
    let index = index_with(&[(5, 1)]);
    let a = aside(&index, |index| index.glance_pinned(5));
    index.grow();
    index.migrate(100);
    index.turn();
    assert_ne!(a.join().unwrap(), Some(None));
    assert_eq!(index.glance_pinned(5), Some(Some(1)));
});

// W12 across two steps of growth, one of which the look-up knows of.
model!(w12_migrate_over_twice, costly(1, 3), || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    found_meanwhile(&index, retire);
});

// W13: the index bucket is full, and one inserting thread spills into the overflow bucket. A word
// in the index bucket itself goes, and another thread publishes the key there. Guards: both swap
// the index bucket's header, wherever the word lies. If the word of 7 goes, and one of the other
// thread's key takes its place, the header's bits are the same again: every publication increments
// the version.
model!(w13_spilled_duplicate, || {
    put_twice(&index_with(&[(4, 7)]), INSERT, |index| index.remove(4, 7));
});

// A look-up does not take a word that another thread has merely reserved for the published one
// before it. Guards: the look-up reads the header again before it believes a match.
model!(w13_reserved_is_not_published, || {
    let index = index_with(&[(4, 7)]);
    let a = aside(&index, |index| {
        index.remove(4, 7);
        // If the key is there, slot 2 is reserved, if at all, and given back.
        index.insert(5, 2, |slot| slot == 1)
    });
    let b = index.insert(5, 1, |slot| slot == 2);
    // The word of its slot was published before the look-up began, or never: a look-up must not
    // find the slot of a reserved word.
    let found = index.find(5, EITHER);
    one_of_two(a.join().unwrap(), b);
    assert_eq!(found, Some(if b == Inserted::Done { 1 } else { 2 }));
});

// The same by a pinned thread's glance, beside two inserting threads of its key, one of which first
// removes another key's word. Guards: the glance looks at the header again.
model!(w13_reserved_is_not_glanced_at, || {
    let index = index_with(&[(4, 7)]);
    let seen = aside(&index, |index| index.glance_pinned(5).flatten());
    let a = aside(&index, |index| index.insert(5, 2, EITHER));
    index.remove(4, 7);
    let b = index.insert(5, 1, EITHER);
    one_of_two(a.join().unwrap(), b);
    let (seen, published) = (seen.join().unwrap(), all(&index, 5));
    assert!(seen.into_iter().all(|seen| published == [seen]), "{seen:?} {published:?}");
});

// A word that is merely reserved is not migrated. Two index buckets share an overflow bucket, and
// the migrating thread has read a word there for the first one. That word goes, and an inserting
// thread that does not know the new table reserves the place for the second. If the migrating
// thread moved this word, the inserting thread would find its own slot. Guards: the migrating
// thread looks at the bit again after it has read the word.
model!(w13_a_reserved_word_is_not_migrated, || {
    let index = index();
    index.grow();
    index.migrate(100);
    // The second index bucket has room only in the first one's overflow bucket, and there only once
    // 4 is gone.
    fill(&index, &[(2, 20), (4, 7), (5, 21), (3, 22)]);
    let mut migrator = None;
    let inserted = index.insert(5, 1, |slot| {
        // The inserting thread has its directory, and looks at the other key with this hash.
        if slot == 21 && migrator.is_none() {
            index.grow();
            let other = index.clone();
            migrator = Some(thread::spawn(move || other.migrate(3)));
            thread::yield_now();
            index.remove(4, 7);
        }
        slot == 1
    });
    assert_eq!(inserted, Inserted::Done, "it has found its own slot");
    migrator.expect("it has looked").join().unwrap();
    index.migrate(100);
    let mut slots = all(&index, 5);
    slots.sort_unstable();
    assert_eq!(slots, [1, 21]);
});

// Deferred: a key ends while the migrating thread copies its word. Either `remove` says that the
// slot must rest, or no word for the slot exists any more. Guards: CLOSED in what `remove` returns,
// the migrating thread's withdrawal.
model!(deferred_removal_beside_a_copy, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    removed_meanwhile(&index, Index::remove, |index| index.migrate(8));
});

// Deferred where the removing thread has an old directory. Its oldest table has been retired, has
// become the youngest again, and holds the copy; the copied word still exists. Guards: `remove`
// asks the directory again.
model!(deferred_removal_with_an_old_directory, || {
    let index = index();
    index.grow();
    // Two tables, the word in the younger one.
    fill(&index, &[(5, 1)]);
    removed_meanwhile(&index, Index::remove, |index| {
        index.migrate(100);
        index.turn();
        index.shrink();
        index.migrate(100);
    });
});

// Retire, grace, reuse: a table is retired, emptied and put to use again while an inserting thread
// still has the earlier directory. Guards: the pin, and the grace period before a class may be used
// again.
model!(grace_stale_publisher, || {
    put_twice(&index(), INSERT, |index| {
        // Once no thread is pinned, the first table is the successor of its successor.
        retire(index);
        index.shrink();
    });
});

// The whole tracker: roots end and are initialised again, in the same slots, while the driver
// migrates the index. Every init is acked exactly once. Guards: the deferred-free list; the index
// word is cleared before the slot is freed.
model!(deferred_slot_reuse, large, || {
    let rig = Rig::new();
    // Two chosen roots fill the smallest index, and the chunk: from here on it grows.
    rig.init(1, 3, 10).unwrap();
    rig.init(2, 3, 20).unwrap();
    let driver = aside(&rig, |rig| rig.poll(8));
    let first = rig.ack(1, 3);
    let again = rig.init(3, 5, 30);
    driver.join().unwrap();
    assert_eq!((first, again), (Ok(Ack::Completed), Ok(())));
    rig.pass(0);
    assert_eq!(rig.init(1, 3, 11), Ok(()));
    assert_eq!(rig.init(2, 3, 20), Err(AckError::Duplicate));
    assert_eq!(rig.init(3, 3, 20), Err(AckError::Duplicate));
    assert_eq!(rig.fail(2), Ok(Done::Now));
    assert_eq!(rig.ack(3, 5), Ok(Ack::Completed));
    assert_eq!(rig.ack(1, 3), Ok(Ack::Completed));
    assert!(rig.is_empty());
    assert_eq!(rig.told().len(), 4);
});

// The purpose of the deferred-free list: a slot whose word may be copied just now is not reused
// before the copy is withdrawn. Otherwise a look-up would find a later occupant with the same key
// under a word that is about to go.
model!(deferred_the_same_key_again, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    // The occupant ends. The same key reuses its slot at once if it may, and takes another slot if
    // not.
    let again = |index: &Arc<Index>| {
        let slot = if index.remove(5, 1) { 2 } else { 1 };
        assert_eq!(index.insert(5, slot, |_| false), Inserted::Done);
        slot
    };
    let (slot, _) = beside(&index, again, |index| index.migrate(8));
    assert_eq!(all(&index, 5), [slot]);
    index.migrate(100);
    assert_eq!(all(&index, 5), [slot]);
});

/// Two lives of one table. A removal is interrupted between clearing the bit and zeroing the word,
/// or between reading the header and its swap. Meanwhile the table is emptied, retired, put to use
/// again, and filled with another key.
fn removal_across_two_lives(remove: fn(&Index, u32, u32) -> bool) {
    let index = inited(5, 1);
    beside(&index, |index| another_life(index), |index| remove(index, 5, 1));
    assert_eq!(all(&index, 9), [2], "another key's word was taken");
    index.migrate(100);
    assert_eq!(all(&index, 9), [2]);
    assert_eq!(all(&index, 5), []);
}

// Guards: `remove` is pinned, so that the second life does not begin before it is through.
model!(grace_removal_across_two_lives, || removal_across_two_lives(Index::remove));

// The same for a removal that knows the word's place. Guards: the pin, in the fast way too.
model!(grace_removal_at_home_across_two_lives, light, || {
    removal_across_two_lives(Index::remove_found);
});

// W13, the fast way: two inits of one key, both in the index bucket itself. Guards: the version in
// the swap. An init that fails gives back the word that it has reserved, so two keys find room
// afterwards.
model!(w13_at_home_twice, || {
    let index = index();
    let (a, b) = beside(&index, |index| index.init(5, 1, EITHER), |index| index.init(5, 2, EITHER));
    one_of_two(a, b);
    let [slot] = all(&index, 5)[..] else {
        panic!("{:?}", all(&index, 5));
    };
    assert!(!index.remove_found(5, slot));
    assert_eq!(index.init(6, 3, |_| false), Inserted::Done);
    assert_eq!(index.init(7, 4, |_| false), Inserted::Done);
    assert_eq!(index.tables(), 1, "a word is still reserved, for nobody");
});

// W13, the fast way, where the key lies in the overflow bucket: as [`w13_spilled_duplicate`].
// Guards: an index bucket that has spilled is not simple.
model!(w13_spilled_duplicate_at_home, || {
    let index = inited(4, 7);
    put_twice(&index, INIT, |index| index.remove_found(4, 7));
});

// W13, the fast way: between an init's look and its swap the same key comes and goes, and leaves
// the same bits. Guards: the version.
model!(w13_at_home_the_same_bits_with_other_contents, || {
    let index = index();
    // Found, if the other was first and is there yet.
    let a = aside(&index, |index| index.init(5, 1, EITHER));
    let b = index.init(5, 2, EITHER);
    if b == Inserted::Done {
        index.remove_found(5, 2);
        assert_eq!(index.init(9, 3, |_| false), Inserted::Done);
    }
    let a = a.join().unwrap();
    assert!(a == Inserted::Done || b == Inserted::Done, "{a:?} {b:?}");
    let left = usize::from(a == Inserted::Done);
    assert_eq!(all(&index, 5).len(), left);
    assert_eq!(all(&index, 9).len(), usize::from(b == Inserted::Done));
});

// W7, the fast way: one of two inits of a key sees the old table only. Guards: a closed index
// bucket is not simple, and the swap expects the header that the init has read.
model!(w07_at_home_against_growth, || put_twice(&index(), INIT, grow));

// W7, the fast way, with the migrating thread at work.
model!(w07_at_home_with_a_migrator, || {
    put_twice(&index(), INIT, |index| {
        index.grow();
        index.migrate(8);
    });
});

// As [`grace_stale_publisher`], the fast way: an init in the index bucket itself, in a table that
// is retired and put to use again. Guards: the pin.
model!(grace_stale_publisher_at_home, || put_twice(&index(), INIT, retire));

// As [`deferred_removal_beside_a_copy`], for a removal that knows the word's place. Guards: the
// header in the swap that clears the bit, CLOSED in what it returns.
model!(deferred_removal_at_home_beside_a_copy, light, || {
    let index = inited(5, 1);
    removed_meanwhile(&index, Index::remove_found, grow_and_migrate);
});

// A removal knows the place of its word. Meanwhile the index grows, and in the new table another
// key's word has that place. Guards: such a removal compares the word.
model!(w07_removal_at_home_beside_growth, || {
    let index = inited(5, 1);
    let a = aside(&index, |index| index.remove_found(5, 1));
    index.grow();
    // Key 7 has the same index bucket in a table of two.
    assert_eq!(index.init(7, 2, |_| false), Inserted::Done);
    while index.migrate(100) {}
    a.join().unwrap();
    index.migrate(100);
    assert_eq!(all(&index, 5), []);
    assert_eq!(all(&index, 7), [2]);
});

/// A slot is found under key 5 in its first occupancy, while `then` happens. The slot is filled for
/// a second occupancy after that, or before, and is not published. A thread that looks into the
/// slot must not take it for what the index named.
fn found_in_its_second_occupancy(
    filled_first: bool,
    then: fn(&Index),
    find: fn(&Index, &AtomicU32) -> Option<u32>,
) {
    let index = inited(5, 1);
    let occupancy = Arc::new(AtomicU32::new(1));
    let (other, slot) = (index.clone(), occupancy.clone());
    let a = thread::spawn(move || find(&other, &slot));
    index.remove_found(5, 1);
    if filled_first {
        occupancy.store(2, Ordering::Release);
        then(&index);
    } else {
        then(&index);
        occupancy.store(2, Ordering::Release);
    }
    assert_ne!(a.join().unwrap(), Some(2), "what is not published was found");
}

fn by_candidate(index: &Index, slot: &AtomicU32) -> Option<u32> {
    index.candidate(5, |_| slot.load(Ordering::Acquire))
}

fn by_find(index: &Index, slot: &AtomicU32) -> Option<u32> {
    let mut seen = None;
    index.find(5, |_| {
        seen = Some(slot.load(Ordering::Acquire));
        true
    })?;
    seen
}

/// The next key takes the same word of the same index bucket.
fn another_key(index: &Index) {
    assert_eq!(index.init(9, 2, |_| false), Inserted::Done);
}

/// The table is retired, and put to use again. The next key takes the same word of the same index
/// bucket, by the first publication there, as the key before did.
fn another_life(index: &Index) {
    retire(index);
    index.shrink();
    index.migrate(100);
    index.turn();
    another_key(index);
}

// W6, W14: a candidate's slot has another occupant by the time of the look into it. Guards: the
// thread asks for the bit again after the look.
model!(w14_a_candidate_that_has_ended, bounded(preemptions()), || {
    found_in_its_second_occupancy(false, |_| (), by_candidate);
});

// W6, W14 where another key has the candidate's word. Guards: the version.
model!(w14_a_candidate_whose_word_is_another_keys, both, |filled_first| {
    found_in_its_second_occupancy(filled_first, another_key, by_candidate);
});

// W6, W14 where the candidate's table has begun another life, in which the header is the same.
// Guards: the thread asks the directory again.
model!(w14_a_candidate_in_another_life, both, |filled_first| {
    found_in_its_second_occupancy(filled_first, another_life, by_candidate);
});

/// A model, where the slot is filled first, and where it is not.
fn both(name: &str, scene: fn(bool)) {
    for filled_first in [false, true] {
        bounded(name, preemptions(), move || scene(filled_first));
    }
}

/// The same three for a look-up in all tables.
#[test]
fn w14_found_in_its_second_occupancy() {
    // The last one is large, and needs one interruption only: in the look-up.
    let most = preemptions();
    let all: [(usize, fn(&Index)); 3] =
        [(most, |_| ()), (most, another_key), (most - 2, another_life)];
    for (preemptions, then) in all {
        bounded("w14_found_in_its_second_occupancy", preemptions, move || {
            found_in_its_second_occupancy(false, then, by_find);
        });
    }
}
