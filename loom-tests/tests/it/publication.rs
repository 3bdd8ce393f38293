//! Orderings whose weakening no other model noticed (`cargo xtask mutate`). What one thread did is
//! visible to the other, by each way in which the other can learn of it.

use crate::index_growth::{found_meanwhile, one_of_two};
use expiry::model::{Index, Inserted, Mail};
use expiry::{Ack, AckError, Done, RemovalCause, Root};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom_tests::{
    after, all, aside, at_once, beside, bounded, fill, index, index_with, large, model,
    preemptions, thread, MapRig, Rig, EITHER,
};
use std::sync::Arc;

/// Two threads do something, each for one tuple, and ack it. The thread that completes the tree
/// sees what the other did. Guards: AcqRel of an ack's swap.
fn a_completion_sees_what_was_done(rig: Arc<Rig>, ack: impl Fn(&Rig, u64) -> Ack + Copy + 'static) {
    let done = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let work = move |rig: &Rig, done: &[AtomicU32; 2], mine: usize| {
        done[mine].store(1, Ordering::Relaxed);
        if ack(rig, [3, 5][mine]) == Ack::Completed {
            assert_eq!(done[1 - mine].load(Ordering::Relaxed), 1, "completed before");
        }
    };
    let both = (rig.clone(), done);
    beside(&both, move |(rig, done)| work(rig, done, 0), |(rig, done)| work(rig, done, 1));
    assert!(rig.is_empty());
}

model!(a_completion_sees_what_was_done_issued, || {
    let rig = Rig::new();
    let root = rig.issue(3 ^ 5, 10).unwrap();
    a_completion_sees_what_was_done(rig, move |rig, edge| rig.ack(root, edge).unwrap());
});

model!(a_completion_sees_what_was_done_chosen, || {
    let rig = Rig::new();
    rig.init(1, 3 ^ 5, 10).unwrap();
    a_completion_sees_what_was_done(rig, |rig, edge| rig.ack(1, edge).unwrap());
});

// Another thread gets a root's id by a way that orders nothing: its ack finds the root, or not yet.
// Guards: Release and Acquire of what leads to a slot.
model!(an_id_that_comes_without_an_edge, || {
    let rig = Rig::new();
    let way = Arc::new(AtomicU64::new(0));
    let (other, sent) = (rig.clone(), way.clone());
    let a = thread::spawn(move || {
        let root = other.issue(3, 10).unwrap();
        sent.store(root.to_bits(), Ordering::Relaxed);
    });
    let come = way.load(Ordering::Relaxed);
    if come != 0 {
        let root = Root::from_bits(come);
        let soon = after(1);
        let reset = rig.reset_timeout_for(root, soon);
        assert!(matches!(reset, Ok(Done::Now) | Err(AckError::NotLive)), "{reset:?}");
        let acked = rig.ack(root, 3);
        assert!(matches!(acked, Ok(Ack::Completed) | Err(AckError::NotLive)), "{acked:?}");
    }
    a.join().unwrap();
});

const NOBODY: fn(u32) -> bool = |_| false;

// One place is left for keys of this hash, and two inserts come: one is refused. Guards: the words
// are counted under the header that the publication expects.
model!(the_last_place_of_a_hash, || {
    let index = index();
    // It gets a table with room for more.
    for _ in 0..2 {
        index.grow();
        index.migrate(100);
    }
    fill(&index, &[(5, 1), (5, 2)]);
    let (a, b) =
        beside(&index, |index| index.insert(5, 3, NOBODY), |index| index.insert(5, 4, NOBODY));
    let mut came = [a, b];
    came.sort_by_key(|inserted| *inserted == Inserted::Alike);
    assert_eq!(came, [Inserted::Done, Inserted::Alike]);
    // While the index grows there is one place more: words in older tables count.
    index.grow();
    assert_eq!([6, 7].map(|slot| index.insert(5, slot, NOBODY)), [Inserted::Done, Inserted::Alike]);
});

// One place is left for keys of this hash, and the others are migrated. Guards: a thread that has
// counted words and their copies does not refuse the key.
model!(the_last_place_of_a_hash_beside_a_migrate, bounded(1), || {
    let index = index_with(&[(5, 1), (5, 2)]);
    index.grow();
    let inserts = |index: &Arc<Index>| index.insert(5, 3, NOBODY);
    let (_, came) = beside(&index, |index| index.migrate(100), inserts);
    assert_eq!(came, Inserted::Done);
});

// W12 of a word that lies beyond its index bucket. Guards: these words are loaded with Acquire too.
model!(w12_migrate_over_of_a_spilled_word, || {
    let index = index_with(&[(4, 7), (5, 1)]);
    index.grow();
    found_meanwhile(&index, |index| index.migrate(100));
});

/// W12 where another index bucket shares the overflow bucket of the migrated word, reserves that
/// word and gives it back. A thread that finds the word empty sees the copy. Guards: reserving is
/// AcqRel and giving back is Release, so they pass on what the migrating thread has published.
///
/// There are two cases. The migrating thread closes the reserver's index bucket after it has
/// emptied that word, and then before. In the second case, a thread that finds the index bucket
/// closed learns nothing from it.
#[test]
fn w12_migrate_over_beside_a_reservation() {
    let name = "w12_migrate_over_beside_a_reservation";
    // The word lies in an overflow bucket that the other, full index bucket has too: that of the
    // second key, and of the third.
    for (keys, sought, inserted) in
        [([(2, 20), (4, 7), (5, 21), (3, 22)], 4, 5), ([(3, 20), (5, 7), (4, 21), (2, 22)], 5, 4)]
    {
        bounded(name, preemptions().saturating_sub(2), move || {
            let index = index();
            index.grow();
            index.migrate(100);
            fill(&index, &keys);
            let mut others = None;
            let inserted = index.insert(inserted, 1, |slot| {
                // The inserting thread has its directory, and looks at the other key with this
                // hash.
                if slot == 21 && others.is_none() {
                    index.grow();
                    let (migrator, seeker) = (index.clone(), index.clone());
                    others = Some((
                        thread::spawn(move || migrator.migrate(100)),
                        thread::spawn(move || seeker.find(sought, |slot| slot == 7)),
                    ));
                    thread::yield_now();
                }
                slot == 1
            });
            assert_eq!(inserted, Inserted::Done);
            let (migrator, seeker) = others.expect("it has looked");
            migrator.join().unwrap();
            assert_eq!(seeker.join().unwrap(), Some(7));
        });
    }
}

// W12 where an init reserves the word in the index bucket itself, and gives it back. The word's key
// has come and been migrated away since the init read the header. Guards: giving back is a
// Release.
model!(
    w12_migrate_over_beside_a_reservation_at_home,
    bounded(preemptions().saturating_sub(1)),
    || {
        let index = index();
        let a = aside(&index, |index| index.init(4, 9, NOBODY));
        thread::yield_now();
        assert_eq!(index.init(5, 1, NOBODY), Inserted::Done);
        let b = aside(&index, |index| index.is_absent(5));
        thread::yield_now();
        index.grow();
        index.migrate(100);
        assert_eq!(a.join().unwrap(), Inserted::Done);
        assert!(!b.join().unwrap());
    }
);

// W14 where the candidate's word has gone. The word in its place is reserved for the same key, and
// given back, as a third thread comes first. Guards: the word is loaded with Acquire once more, so
// the thread sees another header.
model!(w14_a_candidate_that_was_only_reserved, bounded(preemptions().saturating_sub(1)), || {
    let index = index();
    assert_eq!(index.init(5, 1, NOBODY), Inserted::Done);
    let claimed = Arc::new(AtomicU32::new(0));
    let (other, slot) = (index.clone(), claimed.clone());
    let a = thread::spawn(move || {
        let mut at = 0;
        let candidate = other.candidate(5, |id| {
            at = id;
            slot.load(Ordering::Acquire)
        });
        candidate.map(|seen| (at, seen))
    });
    let b = aside(&index, |index| index.insert(5, 3, |slot| slot != 1));
    claimed.store(2, Ordering::Release);
    index.remove_found(5, 1);
    let mine = index.insert(5, 2, |slot| slot != 1);
    b.join().unwrap();
    let seen = a.join().unwrap();
    if mine == Inserted::Found {
        assert_ne!(seen, Some((2, 2)), "what is not published was found");
    }
});

// W7 where a third thread has closed the index bucket: a thread that finds it closed sees what was
// published there before. Guards: the load that finds it closed is an Acquire.
model!(w07_growth_closed_by_a_third, large, || {
    let index = index();
    let a = aside(&index, |index| index.insert(5, 1, EITHER));
    let c = aside(&index, |index| {
        index.grow();
        index.insert(4, 9, NOBODY)
    });
    let b = index.insert(5, 2, EITHER);
    let a = a.join().unwrap();
    assert_eq!(c.join().unwrap(), Inserted::Done);
    one_of_two(a, b);
    assert_eq!(all(&index, 5).len(), 1);
});

// Two threads let the index grow, and insert a key each: neither's table is lost. Guards: the
// directory's swap expects what was read; a thread whose swap fails gives its table back.
model!(two_growths, || {
    let index = index();
    let a = aside(&index, |index| {
        index.grow();
        index.insert(5, 1, NOBODY)
    });
    index.grow();
    assert_eq!(index.insert(4, 2, NOBODY), Inserted::Done);
    assert_eq!(a.join().unwrap(), Inserted::Done);
    assert_eq!((all(&index, 5), all(&index, 4)), (vec![1], vec![2]));
    assert_eq!(index.in_use(), index.tables(), "a class is lost");
});

// The index grows, and a key is inserted, while the migrating thread takes the oldest table off the
// directory. Guards: as before, of that swap.
model!(growth_while_a_table_is_retired, || {
    let index = index();
    index.grow();
    let a = aside(&index, |index| {
        index.grow();
        index.insert(5, 1, NOBODY)
    });
    index.migrate(100);
    assert_eq!(a.join().unwrap(), Inserted::Done);
    assert_eq!(all(&index, 5), [1]);
    index.migrate(100);
    assert_eq!(all(&index, 5), [1]);
});

// A table that was emptied and given back is put to use again by another thread than the driver.
// Guards: UNUSED is stored with Release and taken with Acquire, so that its index buckets are open
// and empty.
model!(grace_another_puts_a_table_to_use, || {
    let index = index_with(&[(5, 1)]);
    index.grow();
    index.migrate(100);
    index.turn();
    index.shrink();
    index.migrate(100);
    let a = aside(&index, |index| index.turn());
    index.grow();
    assert_eq!(index.insert(4, 2, NOBODY), Inserted::Done);
    assert_eq!(all(&index, 4), [2]);
    a.join().unwrap();
    index.migrate(100);
    assert_eq!((all(&index, 4), all(&index, 5)), (vec![2], vec![1]));
});

// As [`grace_another_puts_a_table_to_use`], by an insertion into a full table: its thread was
// pinned, which fences, before it took the table. Guards: as there.
model!(grace_a_pinned_thread_puts_a_table_to_use, || {
    let index = index_with(&[(5, 1)]);
    at_once(|| {
        index.grow();
        index.migrate(100);
        index.turn();
        index.shrink();
        index.migrate(100);
        fill(&index, &[(4, 2)]);
    });
    let a = aside(&index, |index| index.turn());
    assert_eq!(index.insert(6, 3, NOBODY), Inserted::Done);
    assert_eq!(all(&index, 6), [3]);
    a.join().unwrap();
});

// A slot goes onto the deferred-free list while a driver empties it. Guards: the swap that pushes
// publishes the list's links, and the swap that takes sees them. With an old link, which is a key,
// another slot would be freed.
model!(deferred_is_emptied_meanwhile, large, || {
    let rig = Rig::new();
    // They fill the smallest index. Taken for a link, the second key would lead to the first one's
    // slot.
    rig.init(2, 3, 20).unwrap();
    rig.init(1, 3, 10).unwrap();
    let a = aside(&rig, |rig| {
        rig.poll(8);
        rig.poll(8);
    });
    assert_eq!(rig.ack(1, 3), Ok(Ack::Completed));
    a.join().unwrap();
    rig.pass(0);
    assert_eq!(rig.fail(2), Ok(Done::Now));
    assert!(rig.is_empty());
});

// One thread replaces a value twice, another once. Guards: a thread that helps a replacement reads
// the replacement descriptor and the word with Acquire, before it loads the lease. Otherwise a
// helper of the first replacement would let the second's value move in too early.
model!(three_replacements, bounded(preemptions().saturating_sub(2)), || {
    let rig = MapRig::new(|builder| builder);
    let insert = |rig: &MapRig, value| rig.insert(1, value).map(drop).unwrap();
    insert(&rig, 10);
    beside(&rig, move |rig| [20, 30].map(|value| insert(rig, value)), |rig| insert(rig, 40));
    let there = rig.get().expect("nobody removes it");
    let mut values: Vec<u64> = rig.told().iter().map(|&(value, _)| value).collect();
    values.push(there);
    values.sort_unstable();
    assert_eq!(values, [10, 20, 30, 40]);
    assert!(rig.told().iter().all(|&(_, cause)| cause == RemovalCause::Replaced));
});

// Two slot blocks are pushed at once: the driver finds both. Guards: the swap that pushes expects
// the head that was linked.
model!(two_pushes, || {
    let mail = Arc::new(Mail::new(2));
    beside(&mail, |mail| assert!(mail.lower(0, 5)), |mail| assert!(mail.lower(1, 7)));
    let mut taken = mail.take();
    taken.sort_unstable();
    assert_eq!(taken, [(0, Some(5)), (1, Some(7))]);
});
