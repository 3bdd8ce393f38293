//! The races of keyed stores (M1 to M5, W15 and W16, and those that they share with the queue),
//! through the public interface.

use crate::polling::{keys, queue, Queue};
use expiry::{ExpiryQueue, Handle, ManualClock, RemovalCause, Updated};
use loom_tests::{aside, at_once, beside, deep, large, model, MapRig, TICK};
use std::time::Duration;

/// A map with a time to live of ten ticks.
fn map() -> MapRig {
    MapRig::new(|builder| builder.time_to_live(TICK * 10))
}

/// A rig with value 10 under key 1.
fn with_10() -> MapRig {
    let rig = map();
    rig.insert(1, 10).unwrap();
    rig
}

/// Time passes, and no thread renews.
fn pass(rig: &MapRig) {
    rig.advance(11);
    rig.drive();
}

// Two threads replace one value: one of the new values is replaced too, and the other one remains.
// Guards: the swap of the lease to `FORWARD` has one winner.
model!(two_replacements, large, || {
    let rig = with_10();
    let (a, b) = beside(&rig, |rig| rig.put(20), |rig| rig.put(30));
    let left = match (a, b) {
        (Some(10), Some(20)) => 30,
        (Some(30), Some(10)) => 20,
        other => panic!("{other:?}"),
    };
    assert_eq!(rig.get(), Some(left));
    assert_eq!(rig.len(), 1);
    let mut ended = [10, 20, 30].map(|value| (value, RemovalCause::Replaced)).to_vec();
    ended.retain(|&(value, _)| value != left);
    assert_eq!(rig.ends(), ended);
});

// A replacing thread meets another thread's forward, whose slot is removed before it can swing the
// word. A removed entry stays removed. Guards: a look-up follows a forward to a live slot only.
model!(m2_a_helper_comes_too_late, deep(2), || {
    let rig = with_10();
    let a = aside(&rig, |rig| {
        rig.insert(1, 20).unwrap();
        rig.take()
    });
    rig.insert(1, 30).unwrap();
    let a = a.join().unwrap();
    let removed = a.expect("20, or what has taken its place");
    let left = rig.get();
    assert_ne!(left, Some(removed));
    let mut ends: Vec<u64> = rig.told().iter().map(|&(value, _)| value).collect();
    ends.extend(left);
    ends.sort_unstable();
    assert_eq!(ends, [10, 20, 30]);
    assert_eq!(rig.len(), left.iter().count());
});

// W16: a replacement meets the expiry of the value that it replaces. Guards: the replacing swap and
// the ending one are of one word.
model!(w16_replace_and_expire, || {
    let rig = with_10();
    rig.advance(10);
    let (_, old) = beside(&rig, |rig| while rig.poll(usize::MAX).more {}, |rig| rig.put(20));
    // Its time was up when the insertion began: it is never found alive.
    assert_eq!(old, None);
    assert_eq!(rig.ends(), [(10, RemovalCause::Expired)]);
    assert_eq!(rig.get(), Some(20));
    pass(&rig);
    assert_eq!(rig.ends(), [(10, RemovalCause::Expired), (20, RemovalCause::Expired)]);
    assert!(rig.is_empty());
});

// M5, D4: a removal meets a replacement. Guards: as before.
model!(m5_replace_and_remove, large, || {
    let rig = with_10();
    let (a, b) = beside(&rig, |rig| rig.take(), |rig| rig.put(20));
    match (a, b) {
        // Removed, then inserted; or replaced, then removed.
        (Some(10), None) => assert_eq!(rig.get(), Some(20)),
        (Some(20), Some(10)) => assert_eq!(rig.get(), None),
        other => panic!("{other:?}"),
    }
});

// W15: a reader has found an entry that another thread removes meanwhile. Guards: the pin; the word
// is cleared before the node is retired.
model!(w15_get_and_remove, || {
    let rig = with_10();
    let a = aside(&rig, |rig| drop(rig.remove(&1)));
    let seen = rig.get();
    assert!(seen.is_none() || seen == Some(10));
    a.join().unwrap();
    assert_eq!(rig.get(), None);
});

// W15: a thread removes an entry, and drops it by a flush, while a reader may look at it. Guards: a
// removed entry waits for a grace period.
model!(w15_get_and_drop, large, || {
    let rig = with_10();
    let a = aside(&rig, |rig| {
        drop(rig.remove(&1));
        rig.flush(Duration::ZERO)
    });
    let seen = rig.get();
    assert!(seen.is_none() || seen == Some(10));
    a.join().unwrap();
    assert!(rig.flush(Duration::ZERO));
    assert_eq!(rig.metrics().unreclaimed, 0);
});

// A thread takes the deferred-free lists while another thread removes two entries. Each of them is
// freed. Guards: a thread takes a list by a swap.
model!(a_flush_beside_removals, || {
    loom::stop_exploring();
    let rig = with_10();
    rig.insert(2, 20).unwrap();
    loom::explore();
    let a = aside(&rig, |rig| {
        drop(rig.remove(&1));
        drop(rig.remove(&2));
    });
    rig.flush(Duration::ZERO);
    a.join().unwrap();
    while !rig.flush(Duration::ZERO) {}
    assert_eq!(rig.metrics().unreclaimed, 0);
});

// A thread takes the deferred-free lists, and finds nothing, while another thread removes an entry.
// A later round frees it. Guards: what is wanted is withdrawn by a swap with Acquire. So the thread
// that withdraws another one's request finds that one's list.
model!(a_flush_beside_a_removal, || {
    let rig = at_once(with_10);
    let a = aside(&rig, |rig| drop(rig.remove(&1)));
    rig.flush(Duration::ZERO);
    a.join().unwrap();
    loom::stop_exploring();
    for _ in 0..9 {
        rig.advance(9);
        rig.drive();
    }
    assert_eq!(rig.metrics().unreclaimed, 0);
});

// W15: a thread replaces a value, and takes the old one out, while a reader may look at it. Guards:
// `try_into_value` returns the value only after the grace periods.
model!(w15_get_and_take, large, || {
    let rig = with_10();
    let a = aside(&rig, |rig| {
        let old = rig.insert(1, 20).unwrap().expect("it was there");
        old.try_into_value().map_or_else(|old| *old, |value| value)
    });
    let seen = rig.get();
    assert!(matches!(seen, Some(10 | 20)));
    assert_eq!(a.join().unwrap(), 10);
    assert!(rig.flush(Duration::ZERO));
    assert_eq!(rig.metrics().unreclaimed, 0);
});

// W15 with a replacement: the reader sees one or the other, and not the old one again. The reader
// is the spawned thread: loom finds little to interrupt where the main thread only reads
// (`docs/verification.md`).
model!(w15_get_and_replace, || {
    let rig = at_once(with_10);
    let (a, _) = beside(&rig, |rig| (rig.get(), rig.get()), |rig| drop(rig.insert(1, 20)));
    match a {
        (Some(10), Some(10 | 20)) | (Some(20), Some(20)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.get(), Some(20));
});

// M2: a value that has expired does not come back. Guards: fresh node, fresh slot or generation.
model!(m2_two_inserts_of_a_fresh_key, large, || {
    let rig = MapRig::used(|builder| builder.time_to_live(TICK * 10));
    let (a, b) = beside(&rig, |rig| rig.put(20), |rig| rig.put(30));
    let left = match (a, b) {
        (None, Some(20)) => 30,
        (Some(30), None) => 20,
        other => panic!("{other:?}"),
    };
    assert_eq!(rig.get(), Some(left));
    pass(&rig);
    assert!(rig.is_empty(), "immortal");
    assert_eq!(rig.ends().len(), 2);
});

/// Everything comes out, each once, and nothing stays.
fn drain(queue: &ExpiryQueue<u64>, clock: &ManualClock) -> Vec<u64> {
    clock.advance(TICK * 100);
    let expired = keys(&queue.poll());
    assert!(queue.is_empty(), "immortal");
    expired
}

fn is_new(updated: Updated) -> bool {
    matches!(updated, Updated::Inserted { .. })
}

// Q1, Q8: a key is removed while it is updated. It is there or it is not, and if it is, it expires.
model!(q1_q8_update_and_remove, || {
    let (queue, clock) = queue(|queue| queue, &[(1, 5)]);
    let (a, fresh) = beside(
        &queue,
        |queue| queue.remove(&1).is_some(),
        |queue| is_new(queue.update(1, TICK * 7).unwrap()),
    );
    assert!(a, "it was there all the time");
    // Updated before it was removed, or inserted after.
    assert_eq!(queue.len(), usize::from(fresh));
    assert_eq!(drain(&queue, &clock).len(), usize::from(fresh));
});

// Q2, Q3: two updates with different timeouts. The key expires, once, by one of them.
model!(q2_q3_two_updates, || {
    let (queue, clock) = queue(|queue| queue, &[(1, 5)]);
    let (a, b) = beside(
        &queue,
        |queue| is_new(queue.update(1, TICK * 2).unwrap()),
        |queue| is_new(queue.update(1, TICK * 9).unwrap()),
    );
    assert!(!a && !b);
    clock.advance(TICK * 2);
    let early = queue.poll();
    clock.advance(TICK * 7);
    let late = queue.poll();
    assert_eq!(early.len() + late.len(), 1, "{early:?} {late:?}");
    assert!(queue.is_empty(), "immortal");
});

// Q2 for a fresh key: two threads meet on it.
model!(q2_two_updates_of_a_fresh_key, large, || {
    let (queue, clock) = queue(|queue| queue, &[]);
    at_once(|| {
        assert!(is_new(queue.update(99, TICK).unwrap()));
        assert_eq!(drain(&queue, &clock), [99]);
    });
    let (a, b) = beside(
        &queue,
        |queue| is_new(queue.update(1, TICK * 2).unwrap()),
        |queue| is_new(queue.update(1, TICK * 9).unwrap()),
    );
    assert!(a != b, "one of them was first");
    assert_eq!(drain(&queue, &clock), [1]);
});

// Q4, Q5: an update is interrupted until its own deadline comes, and another thread polls.
model!(q4_q5_stalled_update_and_poll, || {
    let (queue, clock) = queue(|queue| queue, &[]);
    let a = aside(&(queue.clone(), clock.clone()), |(queue, clock)| {
        clock.advance(TICK * 3);
        queue.poll().len()
    });
    assert!(is_new(queue.update(1, TICK * 2).unwrap()));
    assert_eq!(a.join().unwrap() + drain(&queue, &clock).len(), 1);
});

/// A touch meets the poll of its key's old deadline. If the touch returns "renewed", the key lives
/// on. If not, the key has expired, and stays so.
fn touch_and_poll(touch: impl FnOnce(&ExpiryQueue<u64>, Handle) -> bool) {
    let (queue, clock) = queue(|queue| queue, &[]);
    let Updated::Inserted { handle, .. } = queue.update(1, TICK * 2).unwrap() else {
        panic!("it is new")
    };
    clock.advance(TICK * 2);
    let (a, renewed) = beside(&queue, |queue| queue.poll().len(), |queue| touch(queue, handle));
    assert_eq!(a, usize::from(!renewed));
    assert_eq!(queue.len(), usize::from(renewed));
    assert_eq!(drain(&queue, &clock).len(), usize::from(renewed));
}

// Q6, Q7, by key.
model!(q6_q7_touch_and_poll, || {
    touch_and_poll(|queue, _| queue.touch(&1, TICK * 5).unwrap());
});

// Q6 by handle.
model!(q6_touch_by_handle_and_poll, || {
    touch_and_poll(|queue, handle| queue.touch_by(handle, TICK * 5).unwrap());
});

// Q10: two pollers. Each key goes to one of them.
model!(q10_two_pollers, || {
    let (queue, clock) = queue(|queue| queue, &[(1, 1), (2, 2)]);
    clock.advance(TICK * 2);
    let poll = |queue: &Queue| keys(&queue.poll());
    let (a, mut all) = beside(&queue, poll, poll);
    all.extend(a);
    all.extend(poll(&queue));
    all.sort_unstable();
    assert_eq!(all, [1, 2]);
    assert!(queue.is_empty());
});

// W8: an update of a fresh key meets the shutdown: it is refused, or the key is returned. Guards:
// the thread that ends a late entry reports that.
model!(w08_update_and_shutdown, || {
    let (queue, _) = queue(|queue| queue, &[]);
    let (a, left) =
        beside(&queue, |queue| queue.update(1, TICK * 2).is_ok(), |queue| queue.shutdown());
    assert_eq!(a, left.len() == 1);
    assert!(queue.is_empty());
});
