//! W7, W12, W13 and what the index leans on: closing, migrating, deferred-free list, retirement and grace periods.
//!
//! Under the model checker a home has one word of its own and one or two in overflow lines, and the smallest table
//! has one home; in some models a home has two words of its own.

use expiry::model::{Index, Inserted, TwoWords};
use expiry::{Ack, AckError, Done};
use loom::sync::atomic::AtomicU32;
use loom_tests::{
    all, aside, at_once, beside, bounded, costly, fill, index, index_with, large, larger, light,
    model, preemptions, thread, Rig, EITHER,
};
use std::sync::atomic::Ordering;
use std::sync::Arc;

fn one_of_two(a: Inserted, b: Inserted) {
    assert!(
        matches!((a, b), (Inserted::Done, Inserted::Found) | (Inserted::Found, Inserted::Done)),
        "{a:?} {b:?}"
    );
}

/// Of two insertions of key 5 one was first, and that is what there is, also when all has been migrated.
fn only_one(index: &Index, a: Inserted, b: Inserted) {
    one_of_two(a, b);
    assert_eq!(all(index, 5).len(), 1);
    index.migrate(100);
    assert_eq!(all(index, 5).len(), 1, "in a table that is not listed?");
}

/// How a thread puts key 5 in, with a slot.
type Put = fn(&Index, u32) -> Inserted;

const INSERT: Put = |index, slot| index.insert(5, slot, EITHER);

/// The fast way, where that is simple.
const INIT: Put = |index, slot| index.init(5, slot, EITHER);

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

/// A thread takes key 5 away while another one does something to the index. If the first one is told that the slot need
/// not rest, the slot may have a new occupant at once.
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

// W7: one key inserted by two threads, one of which sees the old table only. Guards: the older table's home is closed
// before the key's absence there is believed.
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

// W7 with three tables: the inserter has passed the oldest one while the migrating thread moves the key from there to the
// youngest. Guards: the migrating thread closes the middle tables before it takes the old word away.
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

// W7, W12: a table is installed while the migrating thread copies into what was the youngest. Guards: the
// copy is there before the old word goes, and inserts go from old to young.
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

// W12: a look-up while the key is migrated. Guards: old tables are looked at first, words are loaded with Acquire, and a
// copy is there before the old word goes.
model!(w12_migrate_over, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    found_meanwhile(&index, |index| index.migrate(100));
});

// W12 where the look-up has a directory from before the growth. Guards: the directory is read again after a miss.
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

// The same for a pinned thread, which looks at the oldest table only. Guards: of a closed home it says nothing; and a
// thread that pins after a table's grace period has begun does not find that table.
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

// W13: home full, one inserter spills into the overflow line; a word at home goes, and another publishes the key
// there. Guards: both swap the home's header, wherever the word lies. And where the word of 7 goes, and one of the same key
// as the other thread's comes in its place, the header is the same again: every publication counts the version up.
model!(w13_spilled_duplicate, || {
    put_twice(&index_with(&[(4, 7)]), INSERT, |index| index.remove(4, 7));
});

// A word that another thread has merely reserved is not taken for the published one that was there before. Guards: the
// header is read again before a match is believed.
model!(w13_reserved_is_not_published, || {
    let index = index_with(&[(4, 7)]);
    let a = aside(&index, |index| {
        index.remove(4, 7);
        // If the key is there, slot 2 is reserved, if at all, and given back.
        index.insert(5, 2, |slot| slot == 1)
    });
    let b = index.insert(5, 1, |slot| slot == 2);
    // Published before the look-up begins, or never: the slot of a word that was only reserved must not be found.
    let found = index.find(5, EITHER);
    one_of_two(a.join().unwrap(), b);
    assert_eq!(found, Some(if b == Inserted::Done { 1 } else { 2 }));
});

// The same by a pinned thread's glance, beside two inserters of its key, one of which takes another key's word away before.
// Guards: the glance looks at the header again.
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

// A word that is merely reserved is not migrated. Two homes share an overflow line: while the migrating thread is at the first
// one, the word that it saw there goes, and an inserter that has yet to hear of the new table reserves the
// place for the second. Were it migrated, the inserter would find its own slot. Guards: the migrating thread looks at the
// bit again after it has read the word.
model!(w13_a_reserved_word_is_not_migrated, || {
    let index = index();
    index.grow();
    index.migrate(100);
    // The second home has room in the first one's overflow line only, and there only once 4 is gone.
    fill(&index, &[(2, 20), (4, 7), (5, 21), (3, 22)]);
    let mut migrator = None;
    let inserted = index.insert(5, 1, |slot| {
        // The inserter has its directory, and looks at the other key with this hash.
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

// Deferred: a key ends while the migrating thread copies its word. Whoever ended it is told that the slot must rest, or no
// word for the slot exists any more. Guards: CLOSED in what `remove` returns, the migrating thread's withdrawal.
model!(deferred_removal_beside_a_copy, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    removed_meanwhile(&index, Index::remove, |index| index.migrate(8));
});

// Deferred where the remover has a directory from long ago: its oldest table has been retired, has become the youngest
// again, and holds the copy; the word it was copied from is there yet. Guards: `remove` asks the directory again.
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

// Retire, grace, reuse: a table is retired, emptied and put to use again while an inserter still has the directory of
// before. Guards: the pin, and the grace period before a class may be used again.
model!(grace_stale_publisher, || {
    put_twice(&index(), INSERT, |index| {
        // As soon as nobody is pinned the first table is the successor of its successor.
        retire(index);
        index.shrink();
    });
});

// The whole tracker: roots end and are initialised again, in the same slots, while the driver migrates the index over.
// Every init is acked exactly once. Guards: deferred-free list, the index is cleared before the slot is freed.
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

// Deferred by its purpose: a slot whose word may have a copy on its way is not reused before the copy is withdrawn, or a
// later occupant with the same key would be found under a word that is about to go.
model!(deferred_the_same_key_again, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    // The occupant ends; its slot is reused at once by the same key, if it may be, and else another one is taken.
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

/// Two lives of one table: a removal is interrupted between taking the bit away and zeroing the word (or between
/// reading the header and its swap) while the table is emptied, retired, put to use again, and filled with another key.
fn removal_across_two_lives(remove: fn(&Index, u32, u32) -> bool) {
    let index = index();
    assert_eq!(index.init(5, 1, |_| false), Inserted::Done);
    beside(&index, |index| another_life(index), |index| remove(index, 5, 1));
    assert_eq!(all(&index, 9), [2], "another key's word was taken");
    index.migrate(100);
    assert_eq!(all(&index, 9), [2]);
    assert_eq!(all(&index, 5), []);
}

// Guards: `remove` is pinned, so that the second life does not begin before it is through.
model!(grace_removal_across_two_lives, || removal_across_two_lives(Index::remove));

// The same by who knows the word's place. Guards: the pin, in the fast way too.
model!(grace_removal_at_home_across_two_lives, light, || {
    removal_across_two_lives(Index::remove_found);
});

// W13, the fast way: two inits of one key, both at home. Guards: the version in the swap; and who fails gives the word
// back that it has reserved, so that two keys find room afterwards.
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

// W13 in a home of two words, where there is room beside the key. Guards: who reads a header sees the words that it believes in.
model!(w13_beside_itself_at_home, || {
    let table = Arc::new(TwoWords::new());
    two_inits_beside(&table, || ());
});

// The same where another key's word goes meanwhile: the two inits find different words to be free. Guards: as
// [`w13_at_home_twice`].
model!(w13_beside_a_word_that_goes, || {
    let table = Arc::new(TwoWords::new());
    assert!(table.init(4, 7, |_| false));
    let other = table.clone();
    two_inits_beside(&table, move || other.remove(4, 7, 0));
    assert_eq!(table.all(4), []);
});

/// Two threads put key 5 in, one of which does something first: it is in once.
fn two_inits_beside(table: &Arc<TwoWords>, first: impl FnOnce()) {
    let a = aside(table, |table| table.init(5, 1, EITHER));
    first();
    let b = table.init(5, 2, EITHER);
    let published = if a.join().unwrap() { 1 } else { 2 };
    assert_eq!(b, published == 2, "in twice, or not at all");
    assert_eq!(table.all(5), [published]);
}

// W13, the fast way, where the key lies in the overflow line: as [`w13_spilled_duplicate`]. Guards: a home of which
// something lies beyond is not simple.
model!(w13_spilled_duplicate_at_home, || {
    let index = index();
    assert_eq!(index.init(4, 7, |_| false), Inserted::Done);
    put_twice(&index, INIT, |index| index.remove_found(4, 7));
});

// W13, the fast way: between an init's look and its swap the same key comes and goes, and leaves the same bits. Guards: the
// version.
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

// W7, the fast way: one of two inits of a key sees the old table only. Guards: a closed home is not simple, and the swap
// is from the header that was seen.
model!(w07_at_home_against_growth, || put_twice(&index(), INIT, grow));

// W7, the fast way, with the migrating thread at work.
model!(w07_at_home_with_a_migrator, || {
    put_twice(&index(), INIT, |index| {
        index.grow();
        index.migrate(8);
    });
});

// As [`grace_stale_publisher`], the fast way: an init at home in a table that is retired and put to use again. Guards: the
// pin.
model!(grace_stale_publisher_at_home, || put_twice(&index(), INIT, retire));

// As [`deferred_removal_beside_a_copy`], by who knows the word's place. Guards: the header in the swap that takes the bit
// away, CLOSED in what it returns.
model!(deferred_removal_at_home_beside_a_copy, light, || {
    let index = index();
    assert_eq!(index.init(5, 1, |_| false), Inserted::Done);
    removed_meanwhile(&index, Index::remove_found, grow_and_migrate);
});

// A removal knows the place of its word. Meanwhile the index grows, and in the new table another key's word has that place. Guards: a
// removal at home compares the word.
model!(w07_removal_at_home_beside_growth, || {
    let index = index();
    assert_eq!(index.init(5, 1, |_| false), Inserted::Done);
    let a = aside(&index, |index| index.remove_found(5, 1));
    index.grow();
    // Of the same home in a table of two.
    assert_eq!(index.init(7, 2, |_| false), Inserted::Done);
    while index.migrate(100) {}
    a.join().unwrap();
    index.migrate(100);
    assert_eq!(all(&index, 5), []);
    assert_eq!(all(&index, 7), [2]);
});

/// A slot is found under key 5 in its first occupancy, while `then` happens, and after that the slot is filled for a second
/// one, which is not published, or was filled before. Whoever looks into the slot must not believe that it saw what the index has.
fn found_in_its_second_occupancy(
    filled_first: bool,
    then: fn(&Index),
    find: fn(&Index, &AtomicU32) -> Option<u32>,
) {
    let index = index();
    assert_eq!(index.init(5, 1, |_| false), Inserted::Done);
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

/// The next key takes the same word of the same home.
fn another_key(index: &Index) {
    assert_eq!(index.init(9, 2, |_| false), Inserted::Done);
}

/// The table is retired, and put to use again; the next key takes the same word of the same home, by the first publication
/// there, as the one before was.
fn another_life(index: &Index) {
    retire(index);
    index.shrink();
    index.migrate(100);
    index.turn();
    another_key(index);
}

// W6, W14: a candidate whose slot has another occupant by the time that it is looked into. Guards: the bit, asked again after
// the look.
model!(w14_a_candidate_that_has_ended, bounded(preemptions()), || {
    found_in_its_second_occupancy(false, |_| (), by_candidate);
});

// W6, W14 where another key has the candidate's word. Guards: the version.
model!(w14_a_candidate_whose_word_is_another_keys, both, |filled_first| {
    found_in_its_second_occupancy(filled_first, another_key, by_candidate);
});

// W6, W14 where the candidate's table has begun another life, in which the header is the same. Guards: the directory, asked
// again.
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
    // The last one is large, and one interruption is what it takes: of the look.
    let most = preemptions();
    let all: [(usize, fn(&Index)); 3] =
        [(most, |_| ()), (most, another_key), (most - 2, another_life)];
    for (preemptions, then) in all {
        bounded("w14_found_in_its_second_occupancy", preemptions, move || {
            found_in_its_second_occupancy(false, then, by_find);
        });
    }
}
