//! What an attack on the core found, each as the shortest sequence that reached it.

use crate::support::{each_once, MS, SECOND};
use expiry::{edge, AckTracker, ManualClock, Outcome, ShutdownMode, WhenFull};
use std::sync::{Arc, Weak};
use std::time::Duration;

fn manual(shards: usize) -> AckTracker {
    AckTracker::builder().shards(shards).build_manual().unwrap()
}

/// A chunk that had room further on, but began with long-lived roots, was entered at its beginning
/// again and again: `issue` never returned.
#[test]
fn long_lived_roots_at_the_beginning_of_a_chunk_do_not_hold_up_new_ones() {
    for shards in [1, 4] {
        let tracker = manual(shards);
        for _ in 0..70 * shards {
            tracker.issue(edge(), 0).unwrap();
        }
        for _ in 0..40_000 {
            let id = edge();
            let root = tracker.issue(id, 0).unwrap();
            tracker.ack(root, id).unwrap();
        }
        assert_eq!(tracker.len(), 70 * shards);
    }
}

/// After a jump of the clock by years every free slot lay in a block that had waited too long: the
/// same.
#[test]
fn a_jump_of_years_leaves_room_for_new_roots() {
    let clock = ManualClock::new();
    let tracker =
        AckTracker::builder().shards(1).interval(MS).clock(clock.clone()).build_manual().unwrap();
    for _ in 0..4096 {
        let id = edge();
        let root = tracker.issue(id, 0).unwrap();
        tracker.ack(root, id).unwrap();
    }
    clock.advance(Duration::from_millis((1 << 38) + 100_000));
    let id = edge();
    let root = tracker.issue(id, 0).unwrap();
    while tracker.poll(1000).more {}
    assert!(tracker.ack(root, id).is_ok(), "not due for 30 s");
}

/// Slots that waited for the migrating thread kept their share of the capacity.
#[test]
fn ended_entries_give_their_capacity_back_at_once() {
    let tracker = AckTracker::builder().shards(1).capacity(3000).build_manual().unwrap();
    for round in 0..3u64 {
        for id in 0..3000 {
            assert_eq!(tracker.init(round << 32 | id, 5, 0), Ok(()));
        }
        for id in 0..3000 {
            tracker.ack(round << 32 | id, 5).unwrap();
        }
        assert!(tracker.is_empty());
    }
}

/// `shutdown` in a handler that `shutdown` had called waited for itself.
#[test]
fn a_shutdown_in_a_handler_of_a_shutdown_returns() {
    let tracker = Arc::new_cyclic(|tracker: &Weak<AckTracker>| {
        let inner = tracker.clone();
        let handler = move |_: Outcome| _ = inner.upgrade().unwrap().shutdown(ShutdownMode::Cancel);
        AckTracker::builder().on_outcome(handler).build().unwrap()
    });
    tracker.issue(edge(), 0).unwrap();
    assert!(tracker.shutdown(ShutdownMode::Cancel).is_empty());
    assert_eq!(tracker.metrics().total.cancelled, 1);
}

/// A shutdown on the thread that reads a full channel waited for itself.
#[test]
fn a_shutdown_on_the_receiving_thread_returns() {
    let (tracker, outcomes) = AckTracker::builder().build_with_channel(1, WhenFull::Wait).unwrap();
    for owner in 0..5 {
        tracker.issue(edge(), owner).unwrap();
    }
    tracker.shutdown(ShutdownMode::Cancel);
    each_once(std::iter::from_fn(|| outcomes.try_next()).map(|it| it.owner).collect(), 5);
}

/// One clock reading served a whole batch, however long its callback took.
#[test]
fn a_slow_batch_does_not_make_its_roots_early() {
    let clock = ManualClock::new();
    let tracker =
        AckTracker::builder().timeout(30 * SECOND).clock(clock.clone()).build_manual().unwrap();
    let items: Vec<_> = (0..4).map(|id| (id, 5, id)).collect();
    tracker.init_many(&items, |_, done| {
        done.unwrap();
        clock.advance(20 * SECOND);
    });
    while tracker.poll(1000).more {}
    // Begun 80, 60, 40 and 20 seconds ago.
    assert!(tracker.ack(3u64, 5).is_ok());
    assert_eq!(tracker.metrics().total.expired, 3);
}
