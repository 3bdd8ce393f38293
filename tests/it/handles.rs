//! Handles that clone, builders that clone, and what every store can be built as.

use crate::rig;
use crate::support::{Task, HOUR, MS, SECOND};
use expiry::{
    edge, AckTracker, ExpiringMap, ExpiryQueue, ManualClock, Outcome, RemovalCause, SessionTracker,
    StoreError, Timeouts, WhenFull,
};
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn a_store_ends_with_its_last_handle() {
    for manual in [false, true] {
        let (sender, told) = mpsc::channel();
        let builder = ExpiringMap::builder()
            .removal_listener(move |key: &u64, _: &u64, cause| sender.send((*key, cause)).unwrap());
        let map = if manual { builder.build_manual() } else { builder.build() }.unwrap();
        let other = map.clone();
        map.insert(1, 10).unwrap();
        drop(map);
        assert!(told.try_recv().is_err(), "ended with the first handle");
        assert_eq!(other.get(&1).as_deref(), Some(&10));
        drop(other);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [(1, RemovalCause::Closed)]);

        let (sender, told) = mpsc::channel();
        let builder = AckTracker::builder()
            .on_outcome(move |outcome: Outcome| sender.send(outcome.is_cancelled()).unwrap());
        let tracker = if manual { builder.build_manual() } else { builder.build() }.unwrap();
        let other = tracker.clone();
        tracker.issue(edge(), 1).unwrap();
        drop(tracker);
        assert!(told.try_recv().is_err(), "ended with the first handle");
        assert!(other.issue(edge(), 2).is_ok());
        drop(other);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [true, true]);
    }
}

/// The stream of a channel ends when the last handle has gone.
#[test]
fn queues_sessions_and_timeouts_end_with_their_last_handle() {
    let task = Task::new();
    let (queue, keys) = ExpiryQueue::builder().build_with_channel(8, WhenFull::Wait).unwrap();
    let other = queue.clone();
    drop(queue);
    other.update(1_u64, HOUR).unwrap();
    drop(other);
    assert!(task.block_on(keys.into_stream().recv()).is_none());

    let (sessions, ended) =
        SessionTracker::builder().first_id(1).build_with_channel(8, WhenFull::Wait).unwrap();
    let other = sessions.clone();
    let first = sessions.create(HOUR, 7).unwrap();
    drop(sessions);
    assert_ne!(other.create(HOUR, 8).unwrap().id(), first.id(), "an id was issued twice");
    drop(other);
    assert!(task.block_on(ended.into_stream().recv()).is_none());

    let timeouts = Timeouts::new().unwrap();
    let other = timeouts.clone();
    drop(timeouts);
    assert_eq!(task.block_on(other.sleep(MS)), Ok(()));
}

#[test]
fn a_builder_builds_more_than_one_store() {
    let (sender, told) = mpsc::channel();
    let builder = ExpiringMap::builder()
        .capacity(1)
        .removal_listener(move |key: &u64, _: &u64, _| sender.send(*key).unwrap());
    let maps = [builder.clone(), builder].map(|builder| builder.build_manual().unwrap());
    maps[0].insert(1, 1).unwrap();
    assert!(maps[1].is_empty(), "the two are one");
    maps[1].insert(2, 2).unwrap();
    assert_eq!(maps[1].insert(3, 3).unwrap_err().error, StoreError::Full);
    drop(maps);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2]);
}

/// Polls of a store with a listener call it, and return nothing.
#[test]
fn a_listener_hears_of_expiry_only() {
    let clock = ManualClock::new();
    let (sender, told) = mpsc::channel();
    let queue = ExpiryQueue::builder()
        .interval(SECOND)
        .clock(clock.clone())
        .expiry_listener(move |key: &u64| sender.send(*key).unwrap())
        .build_manual()
        .unwrap();
    for key in 1..4 {
        queue.update(key, 5 * SECOND * u32::try_from(key).unwrap()).unwrap();
    }
    queue.remove(&1);
    clock.advance(11 * SECOND);
    assert!(queue.poll().is_empty());
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [2]);
    assert_eq!(*queue.shutdown()[0], 3);
    assert!(told.try_recv().is_err(), "a shutdown is no expiry");
}

/// Keys expire in a queue that reports to no thread.
#[test]
fn a_queue_without_a_listener_ends_its_keys_unheard() {
    let queue = ExpiryQueue::builder().interval(MS).build().unwrap();
    queue.update(7_u64, MS).unwrap();
    while !queue.is_empty() {
        std::thread::yield_now();
    }
    assert!(queue.poll().is_empty());
    assert_eq!(queue.metrics().total.expired, 1);
}

/// Expired sessions go into a channel as keys do: with a policy, counts, and an end.
#[test]
fn sessions_expire_into_a_channel() {
    let clock = ManualClock::new();
    let builder = SessionTracker::builder().interval(SECOND).clock(clock.clone());
    let (sessions, ended) = builder.build_manual_with_channel(2, WhenFull::Drop).unwrap();
    for owner in 1..=3 {
        sessions.create(5 * SECOND, owner).unwrap();
    }
    let kept = sessions.create(60 * SECOND, 4).unwrap();
    clock.advance(7 * SECOND);
    assert!(sessions.poll().is_empty());
    let metrics = sessions.metrics();
    assert_eq!((ended.len(), metrics.undelivered, metrics.spilled), (2, 1, 0));
    assert!(ended.try_next().is_some_and(|gone| (1..=3).contains(&gone.owner)));
    assert_eq!(sessions.shutdown()[0].id, kept.id());
    let mut stream = ended.into_stream();
    let task = Task::new();
    assert!(task.block_on(stream.recv()).is_some());
    assert!(task.block_on(stream.recv()).is_none(), "the stream ends with the shutdown");
}

/// A thread without a reaper that sleeps for as long as polls say ends each entry at its time.
#[test]
fn a_poll_says_when_to_come_back() {
    let (map, clock) = rig::map(|map| map);
    for key in 1..=3 {
        map.insert_for(key, (), Duration::from_secs(10 * key)).unwrap();
    }
    let (mut slept, mut ends) = (Duration::ZERO, Vec::new());
    for _ in 0..100 {
        let before = map.len();
        let polled = map.poll(usize::MAX);
        assert!(!polled.more);
        ends.extend((map.len() < before).then_some(slept));
        let Some(next) = polled.next else { break };
        clock.advance(next);
        slept += next;
    }
    assert_eq!(ends.len(), 3);
    for (end, key) in ends.into_iter().zip(1..) {
        let due = 10 * SECOND * key;
        assert!(end >= due && end <= due + 2 * SECOND, "{end:?}");
    }
}
