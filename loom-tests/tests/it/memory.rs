//! Memory: chunks are given back while threads claim slots in them.

use expiry::model::{Index, Store, BLOCK, CHUNK};
use expiry::{Ack, AckError, Lifetime, Reason, Root};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom_tests::{after, aside, beside, bounded, large, model, thread, Rig};
use std::sync::Arc;

/// A store whose slot 0 has had `occupants` occupants, and the other none.
fn used(occupants: u32) -> Arc<Store> {
    let store = Arc::new(Store::new());
    let (free, base) = store.own(0).expect("nobody else");
    assert_eq!(free, (1 << BLOCK) - 1);
    for occupant in 1..=occupants {
        assert_eq!(store.claim(0, base), occupant);
        store.free(0, occupant);
    }
    store.leave(0);
    store
}

// A chunk's memory goes back while a thread owns a slot block, claims a slot in it, fills it, frees
// it and does all that again. Generations never repeat, and what the occupant wrote stays. Guards:
// the releasing thread owns all slot blocks before it zeroes a slot, and gives them back after. The
// base is raised before that, and read after a slot block is owned.
model!(release_against_claim, || {
    let store = used(3);
    let had = aside(&store, |store| {
        let mut had = Vec::new();
        for key in [100, 200] {
            let Some((free, base)) = store.own(0) else {
                continue;
            };
            assert_eq!(free & 1, 1, "nobody is in it");
            let generation = store.claim(0, base);
            store.publish(0, generation, key);
            assert_eq!(store.occupant(0), (key, key), "an occupant's fields were zeroed");
            // An occupancy may outlive the ownership.
            store.leave(0);
            assert_eq!(store.occupant(0), (key, key), "an occupant's fields were zeroed");
            store.free(0, generation);
            had.push(generation);
        }
        had
    });
    store.release(0);
    let had = had.join().unwrap();
    let mut last = 3;
    for generation in had {
        assert!(generation > last, "generation {generation} after {last}");
        last = generation;
    }
    let (free, base) = store.own(0).expect("no block is lost");
    assert_eq!(free, (1 << BLOCK) - 1, "no slot is lost");
    let generation = store.claim(0, base);
    assert!(generation > last, "generation {generation} after {last}");
});

// Two threads want one slot block. Guards: the flag is taken by a swap.
model!(one_owner, || {
    let store = used(1);
    let (a, b) = beside(&store, |store| store.own(0), |store| store.own(0));
    assert!(a.is_some() ^ b.is_some(), "{a:?} {b:?}");
});

// A slot block changes hands, and a third thread ends one of its slots. The next owner sees all
// that its predecessor claimed. It takes a slot for free only once the thread that ended it has
// finished. Guards: the flag is cleared with Release and taken with Acquire; a slot is freed with
// Release and seen free with Acquire.
model!(a_block_changes_hands, || {
    let store = used(1);
    let (_, base) = store.own(0).expect("nobody else");
    store.publish(0, store.claim(0, base), 100);
    let ends = aside(&store, |store| {
        assert_eq!(store.occupant(0), (100, 100), "somebody moved in too early");
        store.free(0, 2);
    });
    let takes = aside(&store, |store| {
        if let Some((free, base)) = store.own(0) {
            assert_eq!(free & 2, 0, "the second slot is taken");
            if free & 1 != 0 {
                let generation = store.claim(0, base);
                assert_eq!(generation, 3);
                store.publish(0, generation, 200);
            }
        }
    });
    store.publish(1, store.claim(1, base), 101);
    store.leave(0);
    ends.join().unwrap();
    takes.join().unwrap();
    assert_eq!(store.occupant(1), (101, 101));
});

/// Acks a root's only edge.
fn complete(rig: &Rig, root: Root) {
    assert_eq!(rig.ack(root, 3), Ok(Ack::Completed));
}

// The ring is shortened while a thread owns a slot block in a chunk that leaves it, and the thread
// moves on. The chunk's memory goes back all the same. Guards: a thread that leaves a chunk looks
// at the ring by a read-modify-write after it has left its slot block. The driver looks at the slot
// block after it has shortened the ring. A chunk that is owned is set aside and looked at again.
model!(a_chunk_that_is_left_goes_back, || {
    let rig = Rig::new();
    // This thread's roots fill several chunks, and end: it owns a slot block in the last one.
    let roots: Vec<_> = (0..6 * CHUNK).map(|owner| rig.issue(3, owner.into()).unwrap()).collect();
    roots.into_iter().for_each(|root| complete(&rig, root));
    let polls = aside(&rig, |rig| rig.poll(usize::MAX));
    // It moves on.
    let root = rig.issue(3, 99).unwrap();
    polls.join().unwrap();
    assert_eq!(rig.ack(root, 3), Ok(Ack::Completed));
    // The clock stands still: the driver maintains only what a thread has asked for.
    while rig.poll(usize::MAX).more {}
    only_the_ring_and(&rig, &[chunk_of(root)]);
});

// As before, where the thread has two slot blocks, for entries that fall due at different times, in
// two chunks. Guards: the thread gives back what it owns outside its last two chunks, and notifies
// the driver of each.
model!(chunks_that_a_thread_with_two_blocks_leaves_go_back, || {
    let rig = Rig::new();
    let issue = |far| rig.issue_for(3, 9, after(if far { 15 } else { 10 })).unwrap();
    let ack = |root| complete(&rig, root);
    let mut roots: Vec<_> = (0..5 * CHUNK).map(|_| issue(false)).collect();
    // Others fall due at another time, and get slot blocks of their own. The last of these lies in
    // the chunk that the thread has walked through last.
    roots.extend([true, false, true, true].map(issue));
    let [.., near, _, far] = roots[..] else {
        unreachable!("there are several");
    };
    assert_ne!(chunk_of(near), chunk_of(far));
    roots.into_iter().for_each(ack);
    let polls = aside(&rig, |rig| rig.poll(usize::MAX));
    // It moves on, twice.
    let mut seen = Vec::new();
    for _ in 0..3 * CHUNK {
        let root = issue(false);
        seen.push(chunk_of(root));
        ack(root);
    }
    polls.join().unwrap();
    while rig.poll(usize::MAX).more {}
    seen.dedup();
    only_the_ring_and(&rig, &seen[seen.len() - 2..]);
});

// As before, where the thread moves to a chunk that is just leaving the ring, and whose memory goes
// back, and then moves on from there.
model!(a_chunk_taken_as_it_leaves_the_ring_goes_back, || {
    let rig = Rig::new();
    let issue = || rig.issue(3, 9).unwrap();
    let ack = |root| complete(&rig, root);
    let roots: Vec<_> = (0..6 * CHUNK).map(|_| issue()).collect();
    roots.into_iter().for_each(ack);
    // Round the ring, as far as its fifth chunk.
    (0..4 * CHUNK).for_each(|_| ack(issue()));
    beside(&rig, |rig| rig.poll(usize::MAX), |_| ack(issue()));
    let mut root = issue();
    for _ in 0..CHUNK {
        ack(root);
        root = issue();
    }
    ack(root);
    while rig.poll(usize::MAX).more {}
    only_the_ring_and(&rig, &[chunk_of(root)]);
});

// A chunk is added while the driver maintains memory: the memory held is that of the ring. Guards:
// the driver looks first whether the ring has grown.
model!(a_chunk_added_beside_the_driver_is_counted, || {
    let rig = Rig::new();
    for _ in 0..CHUNK {
        rig.issue(3, 9).unwrap();
    }
    beside(&rig, |rig| rig.poll(usize::MAX), |rig| rig.issue(3, 9).unwrap());
    assert_eq!(rig.metrics().total.slots, u64::from(2 * CHUNK));
});

/// The chunk that a root lies in.
#[allow(clippy::cast_possible_truncation)] // an id's low half is its place
fn chunk_of(root: Root) -> u32 {
    root.to_bits() as u32 / CHUNK
}

/// Only chunks on the ring, and those in which this thread owns a slot block, have their memory.
fn only_the_ring_and(rig: &Rig, sits: &[u32]) {
    let (ring, used) = rig.chunks();
    for chunk in used {
        assert!(
            chunk < ring || sits.contains(&chunk),
            "chunk {chunk} stays; the ring has {ring}, it sits in {sits:?}"
        );
    }
    let chunks = rig.metrics().total.slots / u64::from(CHUNK);
    let most = u64::from(ring.max(1)) + sits.len() as u64;
    assert!(chunks <= most, "{chunks} are counted");
}

// A chunk was set aside because a thread owned a part of it. The thread leaves it, but an entry
// there lives on, and then ends. The chunk's memory goes back, if only after a while, though
// nothing else is to do. Guards: the driver announces when it will look again.
model!(a_chunk_set_aside_and_then_in_use_goes_back, || {
    let rig = Rig::new();
    let issue = || rig.issue_for(3, 9, Lifetime::Never).unwrap();
    let mut roots: Vec<_> = (0..6 * CHUNK).map(|_| issue()).collect();
    let stays = roots.pop().unwrap();
    roots.into_iter().for_each(|root| complete(&rig, root));
    let polls = aside(&rig, |rig| rig.poll(usize::MAX).more);
    // It moves on; the other thread may have found it sitting there.
    let root = issue();
    polls.join().unwrap();
    while rig.poll(usize::MAX).more {}
    complete(&rig, root);
    complete(&rig, stays);
    // A reaper sleeps until it is time, and comes again.
    while let Some(next) = rig.poll(usize::MAX).next {
        rig.clock.advance(next);
    }
    only_the_ring_and(&rig, &[chunk_of(root)]);
});

// Chunks whose memory goes back had deadlines that no entry has any more. Threads use the chunks
// again while that happens, with later deadlines. Guards: what the driver knew of them goes with
// their memory.
model!(a_chunk_that_went_back_is_used_again, || {
    let rig = Rig::new();
    let issue = |ticks| rig.issue_for(3, 9, after(ticks)).unwrap();
    let roots: Vec<_> = (0..4 * CHUNK).map(|_| issue(5)).collect();
    rig.poll(usize::MAX);
    roots.into_iter().for_each(|root| complete(&rig, root));
    let (_, mut again) = beside(&rig, |rig| rig.poll(usize::MAX), |_| vec![issue(10)]);
    again.extend((0..4 * CHUNK).map(|_| issue(10)));
    rig.pass(10);
    for root in again {
        assert!(matches!(rig.outcomes(root)[..], [Reason::TimedOut { .. }]));
    }
});

// The capacity is exact: the last place is given to one of two threads, and comes back.
model!(capacity_is_exact, || {
    let rig = Rig::with(|builder| builder.capacity(1));
    let (a, b) = beside(&rig, |rig| rig.issue(3, 10), |rig| rig.issue(3, 11));
    let root = match (a, b) {
        (Ok(root), Err(AckError::Full)) | (Err(AckError::Full), Ok(root)) => root,
        other => panic!("{other:?}"),
    };
    assert_eq!(rig.ack(root, 3), Ok(Ack::Completed));
    assert!(rig.issue(3, 12).is_ok());
});

// Two threads add the first chunk, and a third thread's root is where its id says. Guards: the
// segment is published once, chunks are given out once.
model!(the_first_chunk_is_added_once, large, || {
    let rig = Rig::new();
    let a = aside(&rig, |rig| {
        let root = rig.issue(3, 10).unwrap();
        assert_eq!(rig.ack(root, 3), Ok(Ack::Completed));
    });
    let root = rig.issue(3, 11).unwrap();
    assert_eq!(rig.ack(root, 3), Ok(Ack::Completed));
    a.join().unwrap();
    assert_eq!(rig.told().len(), 2);
    assert!(rig.is_empty());
});

// Another thread ends a grace period than the one that waits for it. The waiting thread touches the
// object after the readers. Guards: the flag of the wait, which hands on what the ending thread
// knows.
model!(a_grace_period_that_another_thread_ends, bounded(2), || {
    let index = Arc::new(Index::new());
    let shared = Arc::new(Shared { is_there: AtomicBool::new(true), value: UnsafeCell::new(7) });
    let (theirs, pins) = (shared.clone(), index.clone());
    let reader = thread::spawn(move || {
        let _pin = pins.pin();
        if theirs.is_there.load(Ordering::Acquire) {
            // SAFETY: the writer waits until this thread is no longer pinned.
            theirs.value.with(|value| assert_eq!(unsafe { *value }, 7));
        }
    });
    let ender = aside(&index, |index| (0..2).for_each(|_| index.advance()));
    shared.is_there.store(false, Ordering::Release);
    let waits = index.retire().expect("no thread copies");
    for _ in 0..4 {
        if waits.is_over() {
            // SAFETY: no reader is pinned that has found it.
            shared.value.with_mut(|value| unsafe { *value = 8 });
            break;
        }
        thread::yield_now();
    }
    reader.join().unwrap();
    ender.join().unwrap();
});

/// A value that readers find as long as it is there.
struct Shared {
    is_there: AtomicBool,
    value: UnsafeCell<u32>,
}

// SAFETY: the model above checks that.
unsafe impl Send for Shared {}
// SAFETY: the same.
unsafe impl Sync for Shared {}
