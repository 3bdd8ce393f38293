//! A clock that panics: a store catches that, counts it, and goes by the reading with which its
//! last round began.

use crate::support::clocks::{Breaks, Reapers};
use crate::support::{wait_for, GENEROUS, HOUR, MS, SECOND};
use expiry::{
    AckTracker, ExpiringMap, ExpiryQueue, NewSession, Outcome, PendingMap, PendingTable,
    SessionTracker,
};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;

#[test]
fn a_map_goes_by_its_last_round() {
    let clock = Breaks::default();
    let map = ExpiringMap::builder().time_to_live(10 * SECOND).interval(SECOND);
    let map = map.clock(clock.clone()).build_manual().unwrap();
    map.insert(1, 1).unwrap();
    clock.time.advance(5 * SECOND);
    assert!(!map.poll(usize::MAX).more);
    clock.time.advance(9 * SECOND);
    clock.set_broken(true);
    assert!(map.get(&1).is_some(), "its time is not up at second 5");
    map.insert(2, 2).unwrap();
    assert!(!map.poll(usize::MAX).more);
    assert_eq!(map.len(), 2);
    let panics = map.metrics().listener_panics;
    assert!(panics >= 3, "{panics}");
    clock.set_broken(false);
    assert!(map.get(&1).is_none());
    assert!(map.get(&2).is_some(), "inserted at second 5");
    clock.time.advance(2 * SECOND);
    assert!(!map.poll(usize::MAX).more);
    assert!(map.is_empty());
    assert_eq!(map.metrics().listener_panics, panics);
}

/// What begins and ends while the clock panics is given to its caller once.
#[test]
fn no_call_of_any_store_panics() {
    let clock = Breaks::default();
    let (told, outcomes) = mpsc::channel();
    let tracker = AckTracker::builder().latency_sampling(1.0).idle_timeout(SECOND);
    let tracker = tracker.on_outcome(move |outcome: Outcome| told.send(outcome.owner).unwrap());
    let tracker = tracker.clock(clock.clone()).build_manual().unwrap();
    let queue = ExpiryQueue::builder().pause_grace(SECOND).clock(clock.clone());
    let queue = queue.build_manual().unwrap();
    let sessions = SessionTracker::builder().with_tokens().clock(clock.clone());
    let sessions = sessions.build_manual().unwrap();
    let table = PendingTable::builder().clock(clock.clone()).build_manual().unwrap();
    let pending = PendingMap::builder().clock(clock.clone()).build_manual().unwrap();
    clock.set_broken(true);
    let root = tracker.issue(3, 7).unwrap();
    tracker.ack(root, 3).unwrap();
    tracker.ack(9_u64, 5).unwrap();
    tracker.init(9, 5, 8).unwrap();
    assert_eq!(outcomes.try_iter().collect::<Vec<_>>(), [7, 8]);
    for key in 0..100 {
        queue.update(key, SECOND).unwrap();
        pending.insert(key, key, SECOND).unwrap();
        table.insert(key, SECOND).unwrap();
    }
    let session = sessions.create(SECOND, NewSession::from(7).token("mine")).unwrap();
    sessions.touch(session.id()).unwrap();
    assert_eq!(sessions.remove(session.id()).map(|session| session.token), Some("mine"));
    assert!(queue.remove(&0).is_some());
    assert_eq!(pending.take(&0), Some(0));
    assert!(queue.poll().is_empty() && table.poll().is_empty() && pending.poll().is_empty());
    clock.set_broken(false);
    clock.time.advance(HOUR);
    // The queue was due at second 1: it takes the hour for a stall.
    assert_eq!((table.poll().len(), pending.poll().len()), (100, 99));
    assert_eq!(queue.shutdown().len(), 99);
}

/// The last round was an hour ago. The reaper slept until an hour after the entry was due, and
/// counted the hour as its work.
#[test]
fn a_reaper_asks_again_soon() {
    let clock = Reapers::new();
    let (told, ended) = mpsc::channel();
    let queue = ExpiryQueue::builder().interval(MS).clock(clock.clone());
    let queue = queue.expiry_listener(move |key: &u64| told.send(*key).unwrap()).build().unwrap();
    wait_for("the first round", || queue.metrics().reaper_rounds > 0);
    clock.ahead.store(HOUR.as_nanos() as u64, SeqCst);
    clock.panics.store(31, SeqCst);
    queue.update(7, 20 * MS).unwrap();
    assert_eq!(ended.recv_timeout(GENEROUS), Ok(7));
    let metrics = queue.metrics();
    assert!(metrics.reaper_busy < HOUR / 2, "{:?}", metrics.reaper_busy);
}

/// It slept until the next tick after its last round, again and again.
#[test]
fn a_reaper_leaves_a_broken_clock_alone_for_a_while() {
    let clock = Reapers::new();
    let queue = ExpiryQueue::<u64>::builder().interval(MS / 100).clock(clock.clone());
    let queue = queue.build().unwrap();
    for key in 1..1000 {
        queue.update(key, MS * key as u32).unwrap();
    }
    clock.panics.store(usize::MAX, SeqCst);
    std::thread::sleep(10 * MS);
    let (began, before) = (std::time::Instant::now(), queue.metrics().reaper_rounds);
    std::thread::sleep(200 * MS);
    let rounds = u128::from(queue.metrics().reaper_rounds - before);
    let most = began.elapsed().as_millis() / 10 + 2;
    assert!(rounds <= most, "{rounds} rounds, not {most}");
}

/// The last round was an hour ago, and the entry is due.
#[test]
fn a_caller_that_polls_asks_again_soon() {
    let clock = Breaks::default();
    let queue = ExpiryQueue::builder().clock(clock.clone()).build_manual().unwrap();
    queue.update(1, HOUR).unwrap();
    clock.time.advance(HOUR);
    clock.set_broken(true);
    assert!(queue.wait_time().unwrap() < SECOND);
    let polled = queue.poll_into(&mut Vec::new(), 100);
    assert!(!polled.more && polled.next.unwrap() < SECOND, "{polled:?}");
}

/// No clock has measured it.
#[test]
fn an_outcome_has_no_latency() {
    let clock = Breaks::default();
    let (told, outcomes) = mpsc::channel();
    let tracker = AckTracker::builder().latency_sampling(1.0).clock(clock.clone());
    let tracker = tracker.on_outcome(move |outcome: Outcome| told.send(outcome).unwrap());
    let tracker = tracker.build_manual().unwrap();
    let root = tracker.issue(3, 7).unwrap();
    clock.time.advance(SECOND);
    clock.set_broken(true);
    tracker.ack(root, 3).unwrap();
    assert_eq!(outcomes.recv().unwrap().latency, None);
}

#[cfg(feature = "async")]
#[test]
fn a_timeout_wakes_its_task() {
    use crate::support::Task;
    let clock = Breaks::default();
    let timeouts = expiry::Timeouts::builder().clock(clock.clone()).build_manual().unwrap();
    let (task, mut sleep) = (Task::new(), expiry::timeouts::Sleep::new(&timeouts, SECOND));
    clock.set_broken(true);
    assert!(task.poll(&mut sleep).is_pending());
    timeouts.poll(1000);
    clock.set_broken(false);
    clock.time.advance(HOUR);
    timeouts.poll(1000);
    assert_eq!(task.woken(), 1);
    assert_eq!(task.poll(&mut sleep), std::task::Poll::Ready(Ok(())));
}
