//! Shutdowns as futures: the end wakes a task that waits for it.

use expiry::{
    Ack, AckTracker, ExpiringMap, Lifetime, Lifetimes, ManualClock, Outcome, Reaper, RemovalCause,
    ShutdownMode,
};
use loom::sync::atomic::AtomicBool as Modelled;
use loom::thread::{current, park, Thread};
use loom_tests::{
    after, aside, at_once, builder, large, light, model, thread, Kept, MapRig, Rig, TICK,
};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const EDGE: u64 = 5;

/// A task of a thread that sleeps when there is nothing to do. If no thread wakes it, the checker
/// reports a deadlock.
struct Task {
    thread: Thread,
    /// An atomic of std, not of loom: it only distinguishes a wake-up from others that the thread
    /// may have had.
    woken: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let task = Arc::new(Task { thread: current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(task.clone());
    loop {
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(output) = polled {
            return output;
        }
        while !task.woken.swap(false, Ordering::Relaxed) {
            park();
        }
    }
}

/// The outcomes that the handler received, and a flag that it was called. All orderings of the flag
/// are relaxed.
#[derive(Default)]
struct Told(Mutex<Vec<Outcome>>, Modelled);

/// A tracker with a reaper and one root in flight, and a log of its outcomes.
fn begun() -> (Kept<AckTracker>, Arc<Told>) {
    loom::stop_exploring();
    let told = Arc::<Told>::default();
    let into = told.clone();
    let tracker = builder(&ManualClock::new())
        .on_outcome(move |outcome: Outcome| {
            into.0.lock().unwrap().push(outcome);
            into.1.store(true, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    tracker.issue(EDGE, 42).unwrap();
    loom::explore();
    (Kept::new(tracker), told)
}

// E1: the reaper ends as a task that waits for that goes to sleep. Guards: the fences of both; the
// reaper delivers its last event before it announces its end, by a Release.
model!(e1_end_and_wait, || {
    let (tracker, told) = begun();
    assert!(block_on(tracker.shutdown_async(ShutdownMode::Cancel)).is_empty());
    assert!(told.0.lock().unwrap()[0].is_cancelled());
    assert!(told.1.load(Ordering::Relaxed), "what the handler did");
});

// E1: the returned roots are there at the end; the dropped future takes nothing with it.
model!(e1_returned_at_the_end, || {
    let (tracker, told) = begun();
    drop(tracker.shutdown_async(ShutdownMode::Return));
    let returned = block_on(tracker.shutdown_async(ShutdownMode::Return));
    assert_eq!(returned[0].owner, 42);
    assert!(told.0.lock().unwrap().is_empty());
});

// E2: a polled tracker drains. Its last root is acked, and a thread polls it, as the task that
// waits for the drain goes to sleep. Guards: the fences of both; a poll wakes tasks after it.
model!(e2_drained_and_polled, large, || {
    let rig = Rig::new();
    let root = rig.issue(EDGE, 42).unwrap();
    let ended = pin!(rig.shutdown_async(ShutdownMode::Drain(Duration::MAX)));
    let a = aside(&rig, move |rig| {
        assert_eq!(rig.ack(root, EDGE), Ok(Ack::Completed));
        rig.poll(1 << 20);
    });
    assert!(block_on(ended).is_empty());
    a.join().unwrap();
    assert!(rig.told()[0].is_acked());
});

// E1: the order to stop comes while the reaper is inside a handler that parks, which takes the
// token of the wake-up. Guards: the reaper reads its orders before each sleep.
model!(an_order_to_stop_beside_a_handler_that_parks, light, || {
    let is_ordered = Arc::new(Modelled::new(false));
    let ordered = is_ordered.clone();
    let clock = ManualClock::new();
    let tracker = at_once(|| {
        let handler = move |outcome: Outcome| {
            if outcome.is_timed_out() && is_ordered.load(Ordering::Acquire) {
                park();
            }
        };
        let tracker = builder(&clock).on_outcome(handler).build().unwrap();
        tracker.issue_for(EDGE, 1, after(1)).unwrap();
        tracker.issue_for(EDGE, 2, Lifetime::Never).unwrap();
        Kept::new(tracker)
    });
    clock.advance(TICK);
    tracker.timer_fires(1);
    let ended = tracker.shutdown_async(ShutdownMode::Cancel);
    ordered.store(true, Ordering::Release);
    block_on(ended);
    assert!(tracker.is_empty());
});

// A shared reaper whose last handle is dropped inside a listener with the one store that it has,
// which it may not have met yet. It closes the store, and ends. Guards: the reaper looks whether
// there is a handle before it takes what has joined; the drop of the last handle wakes it.
model!(a_store_that_is_built_and_dropped_in_a_listener_is_closed, light, || {
    let closed = Arc::new(Task { thread: current(), woken: AtomicBool::new(false) });
    let wake = closed.clone();
    let rig = at_once(|| {
        let reaper = Mutex::new(Some(Reaper::new().unwrap()));
        let rig = MapRig::new(|map| {
            map.removal_listener(move |_, _, _| {
                let wake = wake.clone();
                let reaper = reaper.lock().unwrap().take().unwrap();
                let handler = move |_: Outcome| wake.clone().wake();
                let tracker = builder(&ManualClock::new()).on_outcome(handler).reaper(&reaper);
                tracker.build().unwrap().issue(EDGE, 42).unwrap();
            })
        });
        rig.map.insert(1, 1).unwrap();
        rig
    });
    drop(rig.map.remove(&1));
    while !closed.woken.swap(false, Ordering::Relaxed) {
        park();
    }
});

// A listener, which waits for no thread, shuts a map down whose only shard another thread may be
// driving. One of the two closes the map.
model!(a_shutdown_in_a_listener_beside_a_driver, || {
    let rig = MapRig::used(|builder| builder);
    let map = rig.clone();
    let (calls, driven) = at_once(|| {
        rig.insert(1, 10).unwrap();
        let calls = MapRig::new(|builder| builder.removal_listener(move |_, _, _| map.shutdown()));
        calls.map.insert(1, 1).unwrap();
        (calls, rig.clone())
    });
    let driver = thread::spawn(move || {
        driven.poll(usize::MAX);
    });
    calls.map.remove(&1);
    driver.join().unwrap();
    assert_eq!(rig.told(), [(10, RemovalCause::Closed)]);
});

// The listeners of two maps, which two threads drive, shut each other's map down. Neither waits,
// and both maps are closed.
model!(two_stores_shut_each_other_down, large, || {
    let asked = Arc::new(Mutex::new([false; 2]));
    let maps: [Arc<OnceLock<Weak<ExpiringMap<u64, u64>>>>; 2] = Default::default();
    let rigs = at_once(|| {
        [0, 1].map(|at| {
            let (other, asked) = (maps[1 - at].clone(), asked.clone());
            let listener = move |_: &u64, _: &u64, cause| {
                if cause == RemovalCause::Expired {
                    asked.lock().unwrap()[1 - at] = true;
                    let other = other.get().and_then(Weak::upgrade);
                    other.expect("both are there").shutdown();
                }
            };
            let rig = MapRig::new(|builder| builder.removal_listener(listener));
            let _ = maps[at].set(Arc::downgrade(&rig.map));
            let soon = Lifetimes::new().live(after(1));
            rig.insert_for(1, 1, soon).unwrap();
            rig.insert(2, 2).unwrap();
            rig.advance(2);
            rig
        })
    });
    let driven = rigs[0].map.clone();
    let driver = thread::spawn(move || {
        driven.poll(usize::MAX);
    });
    rigs[1].drive();
    driver.join().unwrap();
    // A map that is shut down before its entry has expired does not shut the other one down.
    for (rig, asked) in rigs.iter().zip(*asked.lock().unwrap()) {
        assert_eq!(rig.is_empty(), asked);
    }
});
