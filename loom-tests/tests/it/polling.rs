//! Several pollers, `wait_time`, and stalls: Q10, Q12, W4 for shards that have a driver, C8.

use expiry::{Expired, ExpiryQueue, ExpiryQueueBuilder, ManualClock};
use loom_tests::{after, aside, at_once, beside, bounded, light, model, preemptions, Awake, TICK};
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Queue = Arc<ExpiryQueue<u64>>;

/// A queue by itself, with these settings and keys, each with its timeout in ticks.
pub(crate) fn queue(
    settings: impl FnOnce(ExpiryQueueBuilder<u64>) -> ExpiryQueueBuilder<u64>,
    keys: &[(u64, u32)],
) -> (Queue, ManualClock) {
    let clock = ManualClock::new();
    let builder = ExpiryQueue::builder().interval(TICK).shards(1).seed(7).clock(clock.clone());
    let queue = Arc::new(settings(builder).build_manual().unwrap());
    at_once(|| {
        for &(key, ticks) in keys {
            queue.update(key, TICK * ticks).unwrap();
        }
    });
    (queue, clock)
}

pub(crate) fn keys(expired: &[Expired<u64>]) -> Vec<u64> {
    let mut keys: Vec<u64> = expired.iter().map(|key| **key).collect();
    keys.sort_unstable();
    keys
}

/// There is something to wait for, in this time or less.
fn waits(queue: &ExpiryQueue<u64>, at_most: Duration) {
    let wait = queue.wait_time();
    assert!(wait.is_some_and(|wait| wait <= at_most), "{wait:?}");
}

// Q10: two pollers of two shards, and a key that falls due meanwhile. One of them delivers what was
// due before they began. No key is delivered twice, and none stays. Guards: each shard's flag; a
// dirty bit that is set while a driver is at a shard makes it look again.
model!(q10_two_pollers_of_two_shards, bounded(preemptions() - 2), || {
    // Two slots to a chunk: the third key is in the other shard.
    let (queue, clock) = queue(|builder| builder.shards(2), &[(1, 1), (2, 9), (3, 1)]);
    clock.advance(TICK);
    let a = aside(&queue, |queue| keys(&queue.poll()));
    queue.update(4, TICK).unwrap();
    clock.advance(TICK);
    let mut all = keys(&queue.poll());
    all.extend(a.join().unwrap());
    all.sort_unstable();
    assert!(all == [1, 3] || all == [1, 3, 4], "{all:?}");
    clock.advance(TICK * 9);
    all.extend(keys(&queue.poll()));
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4]);
    assert!(queue.is_empty(), "immortal");
});

// Q10 with a budget that is too small: what one poller leaves, the other one or the next one finds.
model!(q10_what_a_budget_leaves, || {
    let (queue, clock) = queue(|builder| builder, &[(1, 1), (2, 1), (3, 1)]);
    clock.advance(TICK);
    let a = aside(&queue, |queue| {
        let mut some = Vec::new();
        queue.poll_into(&mut some, 1);
        keys(&some)
    });
    let mut some = Vec::new();
    queue.poll_into(&mut some, 1);
    let mut all = keys(&some);
    all.extend(a.join().unwrap());
    all.extend(keys(&queue.poll()));
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3]);
    assert_eq!(queue.wait_time(), None);
});

// W4: the reaper skips a shard that has a poller, and goes to sleep. The poller has taken the dirty
// slot block out of the inbox, or has come too late for it. Guards: a thread that leaves a shard
// looks at the announcement, then at what is wanted there; the announcement is compared with the
// wheels.
model!(w04_a_shard_left_to_a_poller, light, || {
    let rig = Awake::new();
    let poll = aside(&rig, |rig| rig.poll(100));
    rig.issue_for(3, 10, after(2)).unwrap();
    rig.pass(2);
    assert_eq!(rig.wait_for(1)[0].owner, 10);
    poll.join().unwrap();
});

// W4 where the poller's budget is too small for what is due: the reaper does the rest.
model!(w04_what_a_poller_leaves, || {
    let (rig, ()) = Awake::with(
        |builder| builder,
        |tracker| {
            for owner in 1..=2 {
                tracker.issue_for(3, owner, after(1)).unwrap();
            }
        },
    );
    let poll = aside(&rig, |rig| rig.poll(1));
    rig.pass(1);
    assert_eq!(rig.wait_for(2).len(), 2);
    poll.join().unwrap();
});

// `wait_time` beside a poll that finds nothing in the inbox yet. Guards: the poll does not raise
// the shard's next expiration over a dirty slot block, and the touch lowers it after the push.
model!(q12_wait_time_beside_a_poll, || {
    let (queue, clock) = queue(|builder| builder, &[(1, 1), (2, 30)]);
    clock.advance(TICK);
    let a = aside(&queue, |queue| keys(&queue.poll()));
    assert!(queue.touch(&2, TICK * 4).unwrap());
    waits(&queue, TICK * 4);
    assert_eq!(a.join().unwrap(), [1]);
    waits(&queue, TICK * 4);
    clock.advance(TICK * 4);
    assert_eq!(queue.wait_time(), Some(Duration::ZERO));
    assert_eq!(keys(&queue.poll()), [2]);
});

// `wait_time` after a poll, beside a touch that has lowered another key of the same slot block but
// has not notified the driver yet. The poll finds the inbox empty. Guards: the poll does not raise
// the shard's next expiration above a deadline that another thread has announced but not pushed
// yet.
model!(q12_wait_time_after_a_poll_beside_an_update, || {
    let (queue, _) = queue(|builder| builder, &[(1, 20), (2, 30)]);
    at_once(|| assert!(queue.poll().is_empty(), "the block is out of the inbox"));
    let a = aside(&queue, |queue| assert!(queue.touch(&1, TICK * 2).unwrap()));
    assert!(queue.touch(&2, TICK * 5).unwrap());
    assert!(queue.poll().is_empty());
    a.join().unwrap();
    assert_eq!(queue.wait_time(), Some(TICK * 2));
});

/// A queue that was due at 2, and stalled from 2 to 10.
fn stalled(keys: &[(u64, u32)]) -> (Queue, ManualClock) {
    let (queue, clock) = queue(|builder| builder.pause_grace(TICK * 2), keys);
    at_once(|| assert!(queue.poll().is_empty()));
    clock.advance(TICK * 10);
    (queue, clock)
}

fn due(queue: &ExpiryQueue<u64>) -> Vec<Duration> {
    queue.dump().into_keys().collect()
}

// C8: the grace meets a touch. The key lives until the touch's deadline. Guards: the grace is a
// swap of the lease.
model!(c8_pause_grace_beside_a_touch, || {
    let (queue, clock) = stalled(&[(1, 2)]);
    let (a, _) = beside(
        &queue,
        |queue| queue.touch(&1, TICK * 5).unwrap(),
        |queue| assert!(queue.poll().is_empty()),
    );
    assert!(a, "it could not have been touched before");
    assert_eq!(due(&queue), [TICK * 15]);
    loom::stop_exploring();
    for left in (0..5).rev() {
        clock.advance(TICK);
        assert_eq!(queue.poll().is_empty(), left != 0);
    }
    assert!(queue.is_empty());
});

// C8: two polls find one stall, in two ticks. It is added once: from 2 to 10, or from 2 to 11.
// Guards: one of them decides, after a second look at when it was expected. Both know before they
// get to a shard.
model!(c8_two_polls_find_one_stall, || {
    let (queue, clock) = stalled(&[(1, 2)]);
    let a = aside(&(queue.clone(), clock.clone()), |(queue, clock)| {
        clock.advance(TICK);
        queue.poll()
    });
    let mut expired = queue.poll();
    expired.extend(a.join().unwrap());
    loom::stop_exploring();
    clock.advance(TICK);
    expired.extend(queue.poll());
    assert_eq!(keys(&expired), [1]);
    let expiry = expired[0].expiry();
    assert!(expiry == TICK * 11 || expiry == TICK * 12, "{expiry:?}");
});

// C8: a poll finds a stall, and its budget runs out; another poll goes on. It gives the other keys
// their grace, too. Guards: the first poll's announcement of the next one makes this poll look in
// time; it still finds that a stall stands.
model!(c8_a_stall_outlasts_a_budget, || {
    let (queue, _) = stalled(&[(1, 2), (2, 2), (3, 2), (4, 2)]);
    let a = aside(&queue, |queue| {
        let mut expired = Vec::new();
        queue.poll_into(&mut expired, 1);
        expired.len()
    });
    let b = queue.poll().len();
    assert_eq!((a.join().unwrap(), b), (0, 0), "ended without its grace");
});
