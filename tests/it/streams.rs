//! Streams of what has ended: by wakers that count, and under tokio.

use crate::support::clocks::Moved;
use crate::support::{on_threads, poll_with, wait_for, waker, Task, SECOND};
use crate::threads::begin_until_closed;
use expiry::{
    edge, AckTracker, ExpiryQueue, ManualClock, Outcome, Outcomes, Reason, ReceiverStream, Root,
    ShutdownMode, WhenFull,
};
use futures_core::Stream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

fn owner(task: &Arc<Task>, stream: &mut ReceiverStream<Outcome>) -> u64 {
    match task.next(stream) {
        Poll::Ready(Some(outcome)) => outcome.owner,
        other => panic!("no outcome: {other:?}"),
    }
}

/// A waker that does something, once.
fn once(calls: impl Fn() + Send + Sync + 'static) -> Waker {
    let called = AtomicBool::new(false);
    waker(move || {
        if !called.swap(true, Ordering::SeqCst) {
            calls();
        }
    })
}

/// Waits for the outcome of the root of this owner, which is the stream's last.
fn ends_after(mut stream: ReceiverStream<Outcome>, owner: u64) {
    let task = Task::new();
    assert_eq!(task.block_on(stream.recv()).unwrap().owner, owner);
    assert!(task.block_on(stream.recv()).is_none());
}

fn tracker(length: usize, when_full: WhenFull) -> (AckTracker, Outcomes) {
    let builder = AckTracker::builder().shards(1).timeouts_off();
    builder.build_with_channel(length, when_full).unwrap()
}

fn issue(tracker: &AckTracker, owner: u64) -> Root {
    tracker.issue(edge(), owner).unwrap()
}

fn fail(tracker: &AckTracker, owner: u64) {
    let root = issue(tracker, owner);
    tracker.fail(root).unwrap();
}

#[test]
fn who_waits_is_woken_once() {
    let (tracker, outcomes) = tracker(8, WhenFull::Spill);
    let (task, mut stream) = (Task::new(), outcomes.into_stream());
    assert!(task.next(&mut stream).is_pending());
    assert!(task.next(&mut stream).is_pending());
    assert_eq!((task.woken(), task.held()), (0, 1), "registered once");
    fail(&tracker, 1);
    fail(&tracker, 2);
    assert_eq!(task.woken(), 1);
    assert_eq!(stream.receiver().len(), 2);
    assert_eq!(stream.size_hint(), (0, None), "a clone may take them");
    assert_eq!(owner(&task, &mut stream), 1);
    assert_eq!(owner(&task, &mut stream), 2);
    fail(&tracker, 3);
    assert_eq!(task.woken(), 1, "nobody waited");
    assert_eq!(owner(&task, &mut stream), 3);
    assert!(task.next(&mut stream).is_pending());
    fail(&tracker, 4);
    assert_eq!(task.woken(), 2);
}

/// In simulated time, on one thread: what a poll expires wakes the task, and the shutdown ends the
/// stream.
#[test]
fn without_a_reaper_a_poll_wakes() {
    let (clock, second) = (ManualClock::new(), SECOND);
    let builder = AckTracker::builder().timeout(second).clock(clock.clone());
    let (tracker, outcomes) = builder.build_manual_with_channel(8, WhenFull::Spill).unwrap();
    let builder = ExpiryQueue::builder().clock(clock.clone());
    let (queue, expired) = builder.build_manual_with_channel(8, WhenFull::Spill).unwrap();
    let (task, other) = (Task::new(), Task::new());
    let (mut outcomes, mut expired) = (outcomes.into_stream(), expired.into_stream());
    issue(&tracker, 7);
    queue.update(1, second).unwrap();
    assert!(task.next(&mut outcomes).is_pending());
    assert!(other.next(&mut expired).is_pending());
    clock.advance(2 * second);
    assert_eq!((task.woken(), other.woken()), (0, 0));
    tracker.poll(1000);
    assert!(queue.poll().is_empty(), "it is in the channel");
    assert_eq!((task.woken(), other.woken()), (1, 1));
    assert_eq!(owner(&task, &mut outcomes), 7);
    match other.next(&mut expired) {
        Poll::Ready(Some(key)) => assert_eq!(*key.key(), 1_u64),
        ended => panic!("no key: {ended:?}"),
    }
    assert!(task.next(&mut outcomes).is_pending());
    assert!(other.next(&mut expired).is_pending());
    tracker.shutdown(ShutdownMode::Cancel);
    assert!(queue.shutdown().is_empty());
    assert!(matches!(task.next(&mut outcomes), Poll::Ready(None)));
    assert!(matches!(other.next(&mut expired), Poll::Ready(None)));
}

#[test]
fn what_spills_wakes_too() {
    let (tracker, outcomes) = tracker(1, WhenFull::Spill);
    let mut streams: Vec<_> = (0..2).map(|_| outcomes.clone().into_stream()).collect();
    let task = Task::new();
    fail(&tracker, 1);
    assert_eq!(owner(&task, &mut streams[0]), 1);
    assert!(task.next(&mut streams[0]).is_pending());
    fail(&tracker, 2);
    assert_eq!(task.woken(), 1);
    // It has yet to come, and the channel is full.
    assert_eq!(tracker.metrics().spilled, 0);
    let waiting = Task::new();
    let mut taken = Vec::new();
    while let Poll::Ready(item) = waiting.next(&mut streams[1]) {
        taken.push(item.unwrap().owner);
    }
    fail(&tracker, 3);
    fail(&tracker, 4);
    assert_eq!((tracker.metrics().spilled, waiting.woken()), (1, 1));
    assert_eq!(outcomes.len(), 2, "one of them has spilled");
    let mut list = Vec::new();
    assert_eq!((outcomes.drain_into(&mut list, 1), outcomes.len()), (1, 1));
    taken.push(list[0].owner);
    while let Poll::Ready(item) = waiting.next(&mut streams[1]) {
        taken.push(item.unwrap().owner);
    }
    assert_eq!(taken, [2, 3, 4]);
}

#[test]
fn a_stream_ends_with_a_shutdown_when_all_was_taken() {
    let (tracker, outcomes) = tracker(8, WhenFull::Wait);
    let (task, mut stream) = (Task::new(), outcomes.into_stream());
    issue(&tracker, 1);
    assert!(task.next(&mut stream).is_pending());
    tracker.shutdown(ShutdownMode::Cancel);
    assert!(task.woken() >= 1);
    match task.next(&mut stream) {
        Poll::Ready(Some(outcome)) => assert_eq!(outcome.reason, Reason::Cancelled),
        other => panic!("no outcome: {other:?}"),
    }
    assert_eq!(task.next(&mut stream), Poll::Ready(None));
    assert_eq!(task.next(&mut stream), Poll::Ready(None));
    assert_eq!(task.held(), 0);
    let mut another = stream.clone();
    assert_eq!(task.next(&mut another), Poll::Ready(None));
}

#[test]
fn who_waits_is_woken_by_the_end() {
    for drops in [false, true] {
        let (tracker, outcomes) = tracker(8, WhenFull::Spill);
        let (task, mut stream) = (Task::new(), outcomes.into_stream());
        assert!(task.next(&mut stream).is_pending());
        if drops {
            drop(tracker);
        } else {
            tracker.shutdown(ShutdownMode::Return);
        }
        assert_eq!(task.woken(), 1);
        assert_eq!(task.next(&mut stream), Poll::Ready(None));
        assert_eq!((task.woken(), task.held()), (1, 0));
    }
}

#[test]
fn a_dropped_stream_loses_nothing() {
    let (tracker, outcomes) = tracker(8, WhenFull::Spill);
    let (one, two) = (Task::new(), Task::new());
    let mut stream = outcomes.into_stream();
    assert!(one.next(&mut stream).is_pending());
    fail(&tracker, 1);
    // Woken, and gone.
    let mut stream = stream.into_receiver().into_stream();
    assert_eq!(owner(&two, &mut stream), 1);
    assert!(two.next(&mut stream).is_pending());
    let mut other = stream.clone();
    drop(stream);
    assert!(one.next(&mut other).is_pending());
    fail(&tracker, 2);
    assert_eq!((one.woken(), two.woken()), (2, 0), "only who waits still");
    assert_eq!(owner(&one, &mut other), 2);
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    let (tracker, outcomes) = tracker(8, WhenFull::Spill);
    let (one, two) = (Task::new(), Task::new());
    let mut stream = outcomes.into_stream();
    assert!(one.next(&mut stream).is_pending());
    assert!(two.next(&mut stream).is_pending());
    fail(&tracker, 1);
    assert_eq!((one.woken(), two.woken()), (0, 1));
    assert_eq!(one.held(), 0);
}

#[test]
fn all_clones_are_woken_and_each_item_goes_to_one() {
    let (tracker, outcomes) = tracker(8, WhenFull::Spill);
    let tasks: Vec<_> = (0..5).map(|_| Task::new()).collect();
    let mut streams: Vec<_> = (0..5).map(|_| outcomes.clone().into_stream()).collect();
    for (task, stream) in tasks.iter().zip(&mut streams) {
        assert!(task.next(stream).is_pending());
    }
    fail(&tracker, 1);
    let mut found = 0;
    for (task, stream) in tasks.iter().zip(&mut streams) {
        assert_eq!(task.woken(), 1);
        found += usize::from(task.next(stream).is_ready());
    }
    assert_eq!(found, 1);
}

/// Abandoned registrations do not pile up while nothing is sent.
#[test]
fn wakers_of_those_that_have_left_are_let_go() {
    let (tracker, outcomes) = tracker(8, WhenFull::Spill);
    let (stays, goes) = (Task::new(), Task::new());
    let mut stream = outcomes.clone().into_stream();
    assert!(stays.next(&mut stream).is_pending());
    let mut most = 0;
    for _ in 0..1000 {
        let mut other = outcomes.clone().into_stream();
        assert!(goes.next(&mut other).is_pending());
        drop(other);
        most = most.max(goes.held());
        assert!(stays.next(&mut stream).is_pending());
    }
    assert!((1..=16).contains(&most), "{most} wakers were kept");
    assert_eq!(goes.woken(), 0);
    let before = stays.woken();
    fail(&tracker, 1);
    assert_eq!(stays.woken(), before + 1);
}

/// A sender that waits for room under `WhenFull::Wait` goes on when the stream takes something.
#[test]
fn taking_makes_room_for_who_waits() {
    let (tracker, outcomes) = tracker(1, WhenFull::Wait);
    let tracker = Arc::new(tracker);
    let sender = {
        let tracker = tracker.clone();
        std::thread::spawn(move || (0..100).for_each(|owner| fail(&tracker, owner)))
    };
    let (task, mut stream) = (Task::new(), outcomes.into_stream());
    let mut taken = Vec::new();
    while taken.len() < 100 {
        let woken = task.woken();
        match task.next(&mut stream) {
            Poll::Ready(outcome) => taken.push(outcome.unwrap().owner),
            Poll::Pending => {
                while task.woken() == woken {
                    std::thread::yield_now();
                }
            }
        }
    }
    sender.join().unwrap();
    assert!(taken.into_iter().eq(0..100));
    assert_eq!(tracker.metrics().spilled, 0);
}

/// A waker may do what it likes, the end of the whole included, on a thread that is about to report
/// something.
#[test]
fn a_waker_may_shut_the_tracker_down() {
    let (tracker, outcomes) = tracker(8, WhenFull::Wait);
    let (tracker, task) = (Arc::new(tracker), Task::new());
    let (theirs, called) = (tracker.clone(), Arc::new(AtomicBool::new(false)));
    let calls = called.clone();
    let last = once(move || {
        calls.store(true, Ordering::SeqCst);
        theirs.shutdown(ShutdownMode::Cancel);
    });
    let mut stream = outcomes.into_stream();
    assert!(stream.poll_recv(&mut Context::from_waker(&last)).is_pending());
    issue(&tracker, 1);
    fail(&tracker, 2);
    assert!(called.load(Ordering::SeqCst));
    assert_eq!(owner(&task, &mut stream), 2);
    // The waker has only asked: the reaper cancels the other one.
    let cancelled = task.block_on(stream.recv());
    assert_eq!(cancelled.map(|outcome| outcome.owner), Some(1));
    assert_eq!(task.block_on(stream.recv()), None);
}

/// The waker of a task that waits for room fails a second root. That wakes a stream, whose waker
/// shuts the tracker down. The first root has ended, but is not delivered yet: the stream does not
/// end before that.
#[test]
fn a_waker_within_a_waker_may_shut_the_tracker_down() {
    let builder = AckTracker::builder().capacity(2).timeouts_off();
    let (tracker, outcomes) = builder.build_with_channel(8, WhenFull::Spill).unwrap();
    let tracker = Arc::new(tracker);
    let [first, second] = [1, 2].map(|owner| issue(&tracker, owner));
    let last = once({
        let tracker = tracker.clone();
        move || drop(tracker.shutdown(ShutdownMode::Cancel))
    });
    let told = Arc::new(Mutex::new(Vec::new()));
    let fails = once({
        let (tracker, outcomes, told) = (tracker.clone(), outcomes.clone(), told.clone());
        move || {
            tracker.fail(second).unwrap();
            let (task, mut stream) = (Task::new(), outcomes.clone().into_stream());
            while let Poll::Ready(item) = task.next(&mut stream) {
                told.lock().unwrap().push(item.map(|outcome| outcome.owner));
                if item.is_none() {
                    break;
                }
            }
        }
    });
    let mut stream = outcomes.into_stream();
    assert!(stream.poll_recv(&mut Context::from_waker(&last)).is_pending());
    let mut room = tracker.room();
    assert!(poll_with(&mut room, &fails).is_pending());
    tracker.fail(first).unwrap();
    assert_eq!(*told.lock().unwrap(), [Some(2)], "not the end");
    ends_after(stream, 1);
}

/// A waker that is called in a poll asks for the end, and the reaper, which has nothing to do for
/// hours, brings it.
#[test]
fn a_waker_in_a_poll_may_shut_the_tracker_down() {
    let clock = ManualClock::new();
    let builder = AckTracker::builder().timeout(60 * SECOND);
    let builder = builder.clock(Moved(clock.clone()));
    let (tracker, outcomes) = builder.build_with_channel(8, WhenFull::Spill).unwrap();
    let tracker = Arc::new(tracker);
    issue(&tracker, 1);
    let last = once({
        let tracker = tracker.clone();
        move || drop(tracker.shutdown(ShutdownMode::Cancel))
    });
    let mut stream = outcomes.into_stream();
    assert!(stream.poll_recv(&mut Context::from_waker(&last)).is_pending());
    clock.advance(70 * SECOND);
    while tracker.poll(1000).more {}
    ends_after(stream, 1);
}

/// Tasks take what threads end, while one of them shuts the whole down: each root that was issued
/// is delivered once, and then the streams end.
fn all_are_told_before_the_end(runtime: &tokio::runtime::Runtime) {
    for round in 0..50 {
        let builder = AckTracker::builder().timeouts_off().shards(2);
        let (tracker, outcomes) = builder.build_with_channel(4, WhenFull::Spill).unwrap();
        let tracker = Arc::new(tracker);
        let takers: Vec<_> = (0..3)
            .map(|_| {
                let mut stream = outcomes.clone().into_stream();
                runtime.spawn(async move {
                    let mut owners = Vec::new();
                    while let Some(outcome) = stream.recv().await {
                        owners.push(outcome.owner);
                    }
                    owners
                })
            })
            .collect();
        let threads = {
            let tracker = tracker.clone();
            let begins = move || on_threads(3, |me| begin_until_closed(&tracker, me, || ()));
            std::thread::spawn(begins)
        };
        while tracker.metrics().total.acked < 10 * round {
            std::thread::yield_now();
        }
        tracker.shutdown(ShutdownMode::Cancel);
        // The tracker is there still: its shutdown is what ends the streams.
        let mut told = Vec::new();
        for taker in takers {
            told.extend(runtime.block_on(taker).unwrap());
        }
        let mut begun: Vec<_> =
            threads.join().unwrap().concat().into_iter().map(|one| one.0).collect();
        begun.sort_unstable();
        told.sort_unstable();
        assert_eq!(begun, told);
    }
}

#[test]
fn all_are_told_before_the_end_under_tokio() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    all_are_told_before_the_end(&builder.worker_threads(2).build().unwrap());
}

#[test]
fn all_are_told_before_the_end_on_one_thread() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    all_are_told_before_the_end(&builder.build().unwrap());
}

/// Threads that have outcomes to deliver wait for room, and the shutdown does not wait for them:
/// then the last of them ends the stream.
#[test]
fn a_stream_ends_although_a_shutdown_in_a_listener_waits_for_no_thread() {
    for threads in [1, 3].repeat(5) {
        let builder = AckTracker::builder().shards(1);
        let (tracker, outcomes) = builder.build_manual_with_channel(1, WhenFull::Wait).unwrap();
        fail(&tracker, 0);
        let waits = |owner| {
            let tracker = tracker.clone();
            std::thread::spawn(move || fail(&tracker, owner))
        };
        let waits: Vec<_> = (1..=threads).map(waits).collect();
        wait_for("the failures", || tracker.metrics().total.failed == threads + 1);
        let clock = ManualClock::new();
        let listener = {
            let tracker = tracker.clone();
            move |_: &u64| drop(tracker.shutdown(ShutdownMode::Cancel))
        };
        let queue = ExpiryQueue::builder().clock(clock.clone()).expiry_listener(listener);
        let queue = queue.build_manual().unwrap();
        queue.update(1, SECOND).unwrap();
        clock.advance(2 * SECOND);
        assert!(queue.poll().is_empty());
        waits.into_iter().for_each(|wait| wait.join().unwrap());
        let (task, mut stream) = (Task::new(), outcomes.into_stream());
        let mut owners: Vec<_> = (0..=threads).map(|_| owner(&task, &mut stream)).collect();
        owners.sort_unstable();
        assert!(owners.into_iter().eq(0..=threads));
        assert!(matches!(task.next(&mut stream), Poll::Ready(None)), "{threads} threads");
    }
}
