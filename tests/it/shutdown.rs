//! Shutting down without blocking a thread: by wakers that count, and under tokio.

use crate::drops::census::{Census, Counted};
use crate::support::{self, each_once, Task, Told, HOUR, MS, SECOND};
use expiry::timeouts::TimerError;
use expiry::{
    edge, AckError, AckTracker, ExpiringMap, ExpiryQueue, ManualClock, Outcome, Reason,
    RemovalCause, SessionTracker, ShutdownMode, StoreError, Timeouts, WhenFull,
};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

fn block_on<F: Future>(future: F) -> F::Output {
    Task::new().block_on(future)
}

/// A tracker whose handler notes what it gets, and checks that the reaper calls it.
fn tracker() -> (AckTracker, Told<(u64, Reason)>) {
    let told = Told::default();
    let tell = told.handler();
    let note = move |outcome: Outcome| {
        assert_eq!(std::thread::current().name(), Some("expiry-reaper"));
        tell((outcome.owner, outcome.reason));
    };
    let builder = AckTracker::builder().timeouts_off().on_outcome(note);
    (builder.build().unwrap(), told)
}

#[test]
fn a_cancelled_tracker_tells_on_the_reapers_thread() {
    let (tracker, told) = tracker();
    tracker.issue(edge(), 1).unwrap();
    let ended = tracker.shutdown_async(ShutdownMode::Cancel);
    assert_eq!(tracker.issue(edge(), 2), Err(AckError::Closed));
    assert!(block_on(ended).is_empty());
    assert_eq!(told.take(), [(1, Reason::Cancelled)]);
    assert!(tracker.is_empty());
    assert!(block_on(tracker.shutdown_async(ShutdownMode::Cancel)).is_empty());
    assert!(tracker.shutdown(ShutdownMode::Return).is_empty());
}

#[test]
fn draining_ends_with_the_last_root() {
    let (tracker, outcomes) = AckTracker::builder().build_with_channel(8, WhenFull::Wait).unwrap();
    let edges = [edge(), edge()];
    let roots = edges.map(|edge| tracker.issue(edge, 42).unwrap());
    let task = Task::new();
    let mut ended = pin!(tracker.shutdown_async(ShutdownMode::Drain(HOUR)));
    assert!(task.poll(&mut ended).is_pending());
    assert_eq!(tracker.issue(edge(), 43), Err(AckError::Closed));
    tracker.ack(roots[0], edges[0]).unwrap();
    assert!(task.poll(&mut ended).is_pending());
    tracker.ack(roots[1], edges[1]).unwrap();
    assert!(task.block_on(ended).is_empty());
    // The stream ends with it.
    let mut stream = outcomes.into_stream();
    let mut next = || block_on(stream.recv());
    assert!([next(), next()].iter().flatten().all(Outcome::is_acked));
    assert_eq!(next(), None);
}

#[test]
fn what_a_limit_cuts_short_is_cancelled() {
    let (tracker, told) = tracker();
    tracker.issue(edge(), 1).unwrap();
    let drained = tracker.shutdown_async(ShutdownMode::Drain(2 * MS));
    assert!(block_on(drained).is_empty());
    assert_eq!(told.take(), [(1, Reason::Cancelled)]);
}

#[test]
fn another_fate_ends_the_draining() {
    let (tracker, told) = tracker();
    tracker.issue(edge(), 1).unwrap();
    let task = Task::new();
    let mut drained = pin!(tracker.shutdown_async(ShutdownMode::Drain(Duration::MAX)));
    assert!(task.poll(&mut drained).is_pending());
    assert!(block_on(tracker.shutdown_async(ShutdownMode::Cancel)).is_empty());
    assert!(task.poll(&mut drained).is_ready());
    assert_eq!(told.len(), 1);
}

/// The executor's thread goes on while the reaper is held up in a handler, and the future is woken
/// when that is over.
#[test]
fn a_slow_handler_blocks_no_executor() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let builder = AckTracker::builder().timeouts_off();
    let slow = move |_: Outcome| gate.lock().unwrap().recv().unwrap();
    let tracker = builder.on_outcome(slow).build().unwrap();
    tracker.issue(edge(), 1).unwrap();
    let task = Task::new();
    let mut ended = pin!(tracker.shutdown_async(ShutdownMode::Cancel));
    // It cannot have ended: the handler waits for this thread.
    assert!(task.poll(&mut ended).is_pending());
    assert!(task.poll(&mut ended).is_pending());
    assert_eq!(task.woken(), 0);
    go.send(()).unwrap();
    assert!(task.block_on(ended).is_empty());
}

/// A blocking shutdown beside it: both end, and each root is reported once.
#[test]
fn both_kinds_of_shutdown_get_along() {
    for _ in 0..50 {
        let told = Told::default();
        let tell = told.handler();
        let builder = AckTracker::builder().timeouts_off();
        let tracker =
            builder.on_outcome(move |outcome: Outcome| tell(outcome.owner)).build().unwrap();
        for owner in 0..20 {
            tracker.issue(edge(), owner).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| block_on(tracker.shutdown_async(ShutdownMode::Cancel)));
            tracker.shutdown(ShutdownMode::Cancel);
        });
        each_once(told.take(), 20);
    }
}

#[test]
fn a_tracker_that_is_polled_drains_as_it_is_polled() {
    let clock = ManualClock::new();
    let builder = AckTracker::builder().timeout(SECOND).clock(clock.clone());
    let tracker = builder.build_manual().unwrap();
    tracker.issue(edge(), 1).unwrap();
    let task = Task::new();
    let mut drained = pin!(tracker.shutdown_async(ShutdownMode::Drain(Duration::MAX)));
    assert!(task.poll(&mut drained).is_pending());
    assert_eq!(task.woken(), 0, "it does not wake itself");
    tracker.poll(1000);
    assert_eq!(task.woken(), 1);
    assert!(task.poll(&mut drained).is_pending());
    clock.advance(2 * SECOND);
    tracker.poll(1000);
    assert_eq!(task.woken(), 2);
    assert!(task.poll(&mut drained).is_ready());
    assert_eq!(tracker.metrics().total.expired, 1);

    let tracker = AckTracker::builder().build_manual().unwrap();
    tracker.issue(edge(), 1).unwrap();
    let woken = task.woken();
    let mut drained = pin!(tracker.shutdown_async(ShutdownMode::Drain(HOUR)));
    assert!(task.poll(&mut drained).is_pending());
    tracker.shutdown(ShutdownMode::Cancel);
    assert_eq!(task.woken(), woken + 1);
    assert!(task.poll(&mut drained).is_ready());

    let tracker = AckTracker::builder().build_manual().unwrap();
    tracker.issue(edge(), 1).unwrap();
    let returned = block_on(tracker.shutdown_async(ShutdownMode::Return));
    assert_eq!(returned[0].owner, 1);
    let tracker = AckTracker::builder().build_manual().unwrap();
    tracker.issue(edge(), 1).unwrap();
    assert!(block_on(tracker.shutdown_async(ShutdownMode::Drain(Duration::ZERO))).is_empty());
    assert!(tracker.is_empty());
}

#[test]
fn a_queue_gives_back_what_there_was() {
    let (queue, expired) = ExpiryQueue::builder().build_with_channel(8, WhenFull::Wait).unwrap();
    for key in [2, 1, 3] {
        queue.update(key, HOUR * u32::try_from(key).unwrap()).unwrap();
    }
    drop(queue.shutdown_async());
    assert_eq!(queue.update(4, HOUR).err(), Some(StoreError::Closed));
    let left = block_on(queue.shutdown_async());
    assert_eq!(left.iter().map(|key| **key).collect::<Vec<u64>>(), [1, 2, 3]);
    assert!(block_on(queue.shutdown_async()).is_empty());
    assert!(block_on(expired.into_stream().recv()).is_none());

    let polled = ExpiryQueue::builder().build_manual().unwrap();
    polled.update(7_u64, HOUR).unwrap();
    let ended = polled.shutdown_async();
    assert!(polled.is_empty());
    assert_eq!(*block_on(ended)[0], 7);
}

/// What the future that was dropped was to have goes to the next shutdown, which may be one that
/// blocks; also without a reaper.
#[test]
fn what_a_dropped_future_leaves_goes_to_the_next_shutdown() {
    let queue = |reaper: bool| {
        let builder = ExpiryQueue::builder();
        let queue = if reaper {
            builder.expiry_listener(|_: &u64| ()).build()
        } else {
            builder.build_manual()
        };
        let queue = queue.unwrap();
        queue.update(7, HOUR).unwrap();
        drop(queue.shutdown_async());
        queue
    };
    let sessions = |reaper: bool| {
        let builder = SessionTracker::builder();
        let sessions =
            if reaper { builder.expiry_listener(|_| ()).build() } else { builder.build_manual() };
        let sessions = sessions.unwrap();
        sessions.create(HOUR, 7).unwrap();
        drop(sessions.shutdown_async());
        sessions
    };
    let tracker = |reaper: bool| {
        let builder = AckTracker::builder();
        let tracker = if reaper { builder.build() } else { builder.build_manual() };
        let tracker = tracker.unwrap();
        tracker.issue(edge(), 7).unwrap();
        drop(tracker.shutdown_async(ShutdownMode::Return));
        tracker
    };
    for (reaper, ends) in [(true, true), (true, false), (false, false)] {
        let end = || {
            if ends {
                std::thread::sleep(20 * MS); // the reaper, mostly
            }
        };
        let (one, two) = (queue(reaper), queue(reaper));
        end();
        assert_eq!(*one.shutdown()[0], 7);
        assert!(one.shutdown().is_empty() && block_on(one.shutdown_async()).is_empty());
        assert_eq!(*block_on(two.shutdown_async())[0], 7);
        assert!(two.shutdown().is_empty() && block_on(two.shutdown_async()).is_empty());

        let (one, two) = (sessions(reaper), sessions(reaper));
        end();
        assert_eq!(one.shutdown()[0].owner, 7);
        assert!(one.shutdown().is_empty());
        assert_eq!(block_on(two.shutdown_async())[0].owner, 7);
        assert!(two.shutdown().is_empty());

        let (one, two) = (tracker(reaper), tracker(reaper));
        end();
        assert_eq!(one.shutdown(ShutdownMode::Return)[0].owner, 7);
        assert!(one.shutdown(ShutdownMode::Return).is_empty());
        assert_eq!(block_on(two.shutdown_async(ShutdownMode::Return))[0].owner, 7);
        assert!(two.shutdown(ShutdownMode::Return).is_empty());
    }
}

/// This holds for a handler's queue too, whose keys have nodes; what no caller asks for goes with
/// the queue.
#[test]
fn what_is_kept_is_given_once_or_dropped() {
    for asks in [false, true] {
        let census = Census::new();
        let builder = ExpiryQueue::builder();
        let queue = builder.expiry_listener(|_: &Counted| {}).build().unwrap();
        for key in 0..5 {
            queue.update(Counted::of(&census, key), HOUR).unwrap();
        }
        drop(queue.shutdown_async());
        if asks {
            assert_eq!(block_on(queue.shutdown_async()).len(), 5);
        }
        // The last handle to the store drops what is left in it.
        drop(queue);
        assert_eq!(census.left(), 0, "a key is lost");
    }
}

#[test]
fn a_maps_listener_is_told_before_the_end() {
    for manual in [false, true] {
        let ends = Arc::new(AtomicUsize::new(0));
        let told = ends.clone();
        let builder = ExpiringMap::builder().time_to_live(HOUR).removal_listener(
            move |_: &u64, _: &u64, cause| {
                assert_eq!(cause, RemovalCause::Closed);
                told.fetch_add(1, Ordering::SeqCst);
            },
        );
        let map = if manual { builder.build_manual() } else { builder.build() };
        let map = map.unwrap();
        (0..10).for_each(|key| drop(map.insert(key, key).unwrap()));
        let ended = map.shutdown_async();
        assert!(map.insert(11, 11).is_err());
        block_on(ended);
        assert_eq!(ends.load(Ordering::SeqCst), 10);
    }
}

#[test]
fn what_waits_in_timeouts_is_told() {
    let timeouts = Timeouts::new().unwrap();
    let task = Task::new();
    let mut sleep = pin!(timeouts.sleep(HOUR));
    assert!(task.poll(&mut sleep).is_pending());
    let ended = timeouts.shutdown_async();
    assert_eq!(block_on(timeouts.sleep(HOUR)), Err(TimerError::Closed));
    block_on(ended);
    assert_eq!(task.woken(), 1);
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Err(TimerError::Closed)));
}

/// What the system knows of a thread of this process: how often it has gone to sleep, and for how
/// long it has had a processor.
#[cfg(target_os = "linux")]
fn slept_and_ran(thread: u32) -> (u64, Duration) {
    let read = |file: &str| {
        let path = format!("/proc/self/task/{thread}/{file}");
        std::fs::read_to_string(path).unwrap()
    };
    let (status, ran) = (read("status"), read("schedstat"));
    let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let ran = ran.split(' ').next().unwrap().parse().unwrap();
    (slept.unwrap().trim().parse().unwrap(), Duration::from_nanos(ran))
}

/// The thread that shuts down waits for a handler that takes its time, without a processor of its
/// own.
#[cfg(target_os = "linux")]
#[test]
fn a_shutdown_beside_a_slow_handler_sleeps() {
    let waits = Arc::new(AtomicUsize::new(0));
    let (entered, in_handler) = mpsc::channel();
    let of_handler = waits.clone();
    // Until the other thread has slept a few times since it began to wait, or has run for long.
    let slow = move |_: &u64, _: &u64, _: RemovalCause| {
        entered.send(()).unwrap();
        support::wait_for("a thread that waits", || of_handler.load(Ordering::SeqCst) != 0);
        let thread = u32::try_from(of_handler.load(Ordering::SeqCst)).unwrap();
        let (slept, ran) = slept_and_ran(thread);
        support::wait_for("sleep", || {
            let (slept_now, ran_now) = slept_and_ran(thread);
            slept_now >= slept + 20 || ran_now > ran + (300 * MS)
        });
    };
    let builder = ExpiringMap::builder().time_to_live(MS).interval(MS).removal_listener(slow);
    let map = builder.build().unwrap();
    map.insert(1, 1).unwrap();
    in_handler.recv().unwrap();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let thread = u32::try_from(thread).unwrap();
    let (_, ran) = slept_and_ran(thread);
    waits.store(thread as usize, Ordering::SeqCst);
    map.shutdown();
    let took = slept_and_ran(thread).1 - ran;
    assert!(took < 100 * MS, "it ran for {took:?}");
}
