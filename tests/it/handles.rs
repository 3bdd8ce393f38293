//! Handles that clone, builders that clone, and what every store can be built as.

use crate::support::Task;
use expiry::{
    edge, AckTracker, BuildError, ExpiringMap, ExpiryQueue, ManualClock, Outcome, RemovalCause,
    SessionInfo, SessionTracker, StoreError, TimeCacheMap, Timeouts, WhenFull,
};
use std::sync::mpsc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);

/// Whether a store with a reaper has one.
fn has_reaper(store: &impl std::fmt::Debug) -> bool {
    format!("{store:?}").contains("reaper: true")
}

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
    other.update(1, LONG).unwrap();
    drop(other);
    assert!(task.block_on(keys.into_stream().recv()).is_none());

    let (sessions, ended) =
        SessionTracker::builder().first_id(1).build_with_channel(8, WhenFull::Wait).unwrap();
    let other = sessions.clone();
    let first = sessions.create(LONG, 7).unwrap();
    drop(sessions);
    assert_ne!(other.create(LONG, 8).unwrap().id(), first.id(), "an id was issued twice");
    drop(other);
    assert!(task.block_on(ended.into_stream().recv()).is_none());

    let timeouts = Timeouts::new().unwrap();
    let other = timeouts.clone();
    drop(timeouts);
    assert_eq!(task.block_on(other.sleep(Duration::from_millis(1))), Ok(()));
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

#[test]
fn build_has_a_reaper_and_build_manual_has_none() {
    let queue = || ExpiryQueue::<u64>::builder();
    let sessions = SessionTracker::builder;
    let map = || ExpiringMap::<u64, u64>::builder();
    let cache = || TimeCacheMap::<u64, u64>::builder(SECOND);
    let tracker = AckTracker::builder;
    assert!(has_reaper(&queue().build().unwrap()));
    assert!(has_reaper(&queue().build_with_channel(1, WhenFull::Drop).unwrap().0));
    assert!(!has_reaper(&queue().build_manual().unwrap()));
    assert!(!has_reaper(&queue().build_manual_with_channel(1, WhenFull::Drop).unwrap().0));
    assert!(has_reaper(&sessions().build().unwrap()));
    assert!(has_reaper(&sessions().build_with_channel(1, WhenFull::Drop).unwrap().0));
    assert!(!has_reaper(&sessions().build_manual().unwrap()));
    assert!(!has_reaper(&sessions().build_manual_with_channel(1, WhenFull::Drop).unwrap().0));
    assert!(has_reaper(&map().build().unwrap()) && !has_reaper(&map().build_manual().unwrap()));
    assert!(has_reaper(&ExpiringMap::<u64, u64>::new(SECOND).unwrap()));
    assert!(has_reaper(&cache().build().unwrap()) && !has_reaper(&cache().build_manual().unwrap()));
    assert!(has_reaper(&tracker().build().unwrap()));
    assert!(!has_reaper(&tracker().build_manual().unwrap()));
    assert!(has_reaper(&Timeouts::new().unwrap()));
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
    let queue = ExpiryQueue::builder().interval(Duration::from_millis(1)).build().unwrap();
    queue.update(7, Duration::from_millis(1)).unwrap();
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

#[test]
fn a_listener_and_a_channel_are_one_too_many() {
    let queue = ExpiryQueue::builder().expiry_listener(|_: &u64| ());
    let refused = queue.clone().build_with_channel(1, WhenFull::Wait);
    assert_eq!(refused.err(), Some(BuildError::TwoReceivers));
    assert_eq!(
        queue.build_manual_with_channel(1, WhenFull::Wait).err(),
        Some(BuildError::TwoReceivers)
    );
    let sessions = SessionTracker::builder().expiry_listener(|_: SessionInfo| ());
    let refused = sessions.build_with_channel(1, WhenFull::Wait);
    assert_eq!(refused.err(), Some(BuildError::TwoReceivers));
}

/// A thread that waits for room in the sessions' channel is let go by the shutdown.
#[test]
fn a_full_channel_of_sessions_holds_up_no_shutdown() {
    let builder = SessionTracker::builder().interval(Duration::from_millis(1));
    let (sessions, ended) = builder.build_with_channel(1, WhenFull::Wait).unwrap();
    for owner in 0..10 {
        sessions.create(Duration::from_millis(1), owner).unwrap();
    }
    while ended.is_empty() {
        std::thread::yield_now();
    }
    let left = sessions.shutdown().len();
    let mut got = 0;
    while ended.try_next().is_some() {
        got += 1;
    }
    assert_eq!(left + got, 10);
}

/// A thread without a reaper that sleeps for as long as polls say ends each entry at its time.
#[test]
fn a_poll_says_when_to_come_back() {
    let clock = ManualClock::new();
    let map = ExpiringMap::builder().interval(SECOND).clock(clock.clone());
    let map = map.build_manual().unwrap();
    for key in 1..=3 {
        map.insert_for(key, (), 10 * SECOND * key).unwrap();
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
