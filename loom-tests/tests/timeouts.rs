//! Wakers in slots: of whoever ends an entry one wakes or drops the waker, once, and no poll that says "pending" is forgotten.
#![cfg(expiry_loom)]

use expiry::timeouts::{Sleep, TimeoutError, TimerError};
use expiry::{ManualClock, Timeouts, TimeoutsBuilder};
use loom::sync::atomic::AtomicUsize;
use loom_tests::{large, model, thread, TICK};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Ticks until what the models wait for.
const LIMIT: u32 = 10;

/// Timeouts without a reaper, of one shard, on a manual clock.
#[derive(Clone)]
struct Rig {
    timeouts: Arc<Timeouts>,
    clock: ManualClock,
}

impl Rig {
    fn new() -> Self {
        Rig::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(TimeoutsBuilder) -> TimeoutsBuilder) -> Self {
        let clock = ManualClock::new();
        let builder = Timeouts::builder()
            .interval(TICK)
            .shards(1)
            .seed(7)
            .clock(clock.clone());
        Rig {
            timeouts: Arc::new(settings(builder).build_manual().unwrap()),
            clock,
        }
    }

    fn sleep(&self) -> Sleep<'_> {
        self.timeouts.sleep(TICK * LIMIT)
    }

    /// One round: what is found due is woken.
    fn poll(&self) {
        self.timeouts.poll(1 << 20);
    }

    fn pass(&self, ticks: u32) {
        self.clock.advance(TICK * ticks);
        while self.timeouts.poll(1 << 20).more {}
    }

    /// Nothing waits, and each that was registered has ended once.
    fn is_done(&self) {
        let metrics = self.timeouts.metrics();
        let ended = metrics.fired + metrics.cancelled + metrics.closed;
        assert_eq!((metrics.waiting, metrics.registered), (0, ended));
    }
}

/// A task, which counts how often it was woken.
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Task {
    fn new() -> Arc<Self> {
        Arc::new(Task(AtomicUsize::new(0)))
    }

    fn woken(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(self.clone());
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// Nobody has a waker of it: each was woken or dropped.
    fn is_free(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }
}

/// T1: it fires as its owner lets go of it. One of the two has the waker, and the slot is free once.
#[test]
fn t1_wake_and_drop() {
    model("t1_wake_and_drop", || {
        let rig = Rig::new();
        let task = Task::new();
        let mut sleep = rig.sleep();
        assert!(task.poll(&mut sleep).is_pending());
        rig.clock.advance(TICK * LIMIT);
        let other = rig.clone();
        let a = thread::spawn(move || other.poll());
        drop(sleep);
        a.join().unwrap();
        rig.is_done();
        let fired = rig.timeouts.metrics().fired;
        assert_eq!(task.woken() as u64, fired);
        assert!(task.is_free());
        // The slot is as good as any other.
        let mut next = rig.sleep();
        assert!(task.poll(&mut next).is_pending());
        rig.pass(LIMIT);
        assert_eq!(task.woken() as u64, fired + 1);
    });
}

/// T1: the future is ready as its time is up. It has its output, whatever becomes of the entry.
#[test]
fn t1_wake_and_cancel() {
    model("t1_wake_and_cancel", || {
        let rig = Rig::new();
        let task = Task::new();
        let mut ready = false;
        let inner = std::future::poll_fn(move |_| {
            if std::mem::replace(&mut ready, true) {
                Poll::Ready(7)
            } else {
                Poll::Pending
            }
        });
        let mut limited = rig.timeouts.timeout(TICK * LIMIT, inner);
        assert!(task.poll(&mut limited).is_pending());
        rig.clock.advance(TICK * LIMIT);
        let other = rig.clone();
        let a = thread::spawn(move || other.poll());
        assert_eq!(task.poll(&mut limited), Poll::Ready(Ok(7)));
        a.join().unwrap();
        rig.is_done();
        assert_eq!(task.woken() as u64, rig.timeouts.metrics().fired);
        assert!(task.is_free());
    });
}

/// T2: polled with another waker as it fires. Where the poll says "pending", that waker is woken.
#[test]
fn t2_wake_and_another_waker() {
    model("t2_wake_and_another_waker", || {
        let rig = Rig::new();
        let (first, second) = (Task::new(), Task::new());
        let mut sleep = rig.sleep();
        assert!(first.poll(&mut sleep).is_pending());
        rig.clock.advance(TICK * LIMIT);
        let other = rig.clone();
        let a = thread::spawn(move || other.poll());
        let polled = second.poll(&mut sleep);
        a.join().unwrap();
        // What the driver has passed by while it was neither here nor there.
        rig.pass(0);
        assert_eq!(first.woken() + second.woken(), 1);
        if polled.is_pending() {
            assert_eq!(second.woken(), 1, "told to wait, and forgotten");
        }
        assert_eq!(second.poll(&mut sleep), Poll::Ready(Ok(())));
        rig.is_done();
        assert!(first.is_free() && second.is_free());
    });
}

/// T2: polled with another waker while its bucket is looked through for a neighbour's sake. The scan passes it by, and it fires in time
/// all the same.
#[test]
fn t2_another_waker_beside_a_scan() {
    model("t2_another_waker_beside_a_scan", || {
        let rig = Rig::new();
        let tasks = [Task::new(), Task::new(), Task::new()];
        let mut sleep = rig.sleep();
        let mut neighbour = rig.timeouts.sleep(TICK);
        assert!(tasks[0].poll(&mut sleep).is_pending());
        assert!(tasks[2].poll(&mut neighbour).is_pending());
        rig.clock.advance(TICK);
        let other = rig.clone();
        let a = thread::spawn(move || other.poll());
        assert!(tasks[1].poll(&mut sleep).is_pending());
        a.join().unwrap();
        assert_eq!(tasks.each_ref().map(|task| task.woken()), [0, 0, 1]);
        rig.pass(LIMIT - 1);
        assert_eq!(tasks.each_ref().map(|task| task.woken()), [0, 1, 1]);
        assert_eq!(tasks[0].poll(&mut sleep), Poll::Ready(Ok(())));
        rig.is_done();
    });
}

/// T3: reset to later as it fires. It has fired, or it does not before the new time.
#[test]
fn t3_reset_and_fire() {
    model("t3_reset_and_fire", || {
        let rig = Rig::new();
        let task = Task::new();
        let mut sleep = rig.sleep();
        assert!(task.poll(&mut sleep).is_pending());
        rig.clock.advance(TICK * LIMIT);
        let other = rig.clone();
        let a = thread::spawn(move || other.poll());
        sleep.reset(TICK * 5);
        a.join().unwrap();
        let fired = task.woken();
        rig.pass(4);
        assert_eq!(task.woken(), fired, "early");
        assert!(task.poll(&mut sleep).is_pending());
        rig.pass(1);
        assert_eq!(task.woken(), fired + 1);
        assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
        rig.is_done();
        assert!(task.is_free());
    });
}

/// T3: reset to nearer while the bucket is looked through. The driver hears of it.
#[test]
fn t3_reset_to_nearer_beside_a_scan() {
    model("t3_reset_to_nearer_beside_a_scan", || {
        let rig = Rig::new();
        let task = Task::new();
        let mut sleep = rig.sleep();
        let mut neighbour = rig.timeouts.sleep(TICK);
        assert!(task.poll(&mut sleep).is_pending());
        assert!(Task::new().poll(&mut neighbour).is_pending());
        rig.clock.advance(TICK);
        let other = rig.clone();
        let a = thread::spawn(move || other.poll());
        sleep.reset(TICK * 2);
        a.join().unwrap();
        rig.pass(1);
        assert_eq!(task.woken(), 0);
        rig.pass(1);
        assert_eq!(task.woken(), 1);
        assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
    });
}

/// T4 (W8): it is registered as all is shut down. Refused, or woken by the shutdown: never left waiting.
#[test]
fn t4_shutdown_and_register() {
    model("t4_shutdown_and_register", || {
        let rig = Rig::new();
        let task = Task::new();
        // So that there is a bucket.
        let mut before = rig.sleep();
        assert!(Task::new().poll(&mut before).is_pending());
        let mut limited = rig
            .timeouts
            .timeout(TICK * LIMIT, std::future::pending::<()>());
        let other = rig.clone();
        let a = thread::spawn(move || other.timeouts.shutdown());
        let closed = Poll::Ready(Err(TimeoutError::Timer(TimerError::Closed)));
        let polled = task.poll(&mut limited);
        a.join().unwrap();
        if polled.is_pending() {
            assert_eq!(task.woken(), 1, "told to wait, and forgotten");
            assert_eq!(task.poll(&mut limited), closed);
        } else {
            assert_eq!((polled, task.woken()), (closed, 0));
        }
        rig.is_done();
        assert!(task.is_free());
    });
}

/// T4 (W8): it changes its waker as all is shut down.
#[test]
fn t4_shutdown_and_another_waker() {
    model("t4_shutdown_and_another_waker", || {
        let rig = Rig::new();
        let (first, second) = (Task::new(), Task::new());
        let mut sleep = rig.sleep();
        assert!(first.poll(&mut sleep).is_pending());
        let other = rig.clone();
        let a = thread::spawn(move || other.timeouts.shutdown());
        let polled = second.poll(&mut sleep);
        a.join().unwrap();
        let closed = Poll::Ready(Err(TimerError::Closed));
        if polled.is_pending() {
            assert_eq!(second.woken(), 1, "told to wait, and forgotten");
            assert_eq!(second.poll(&mut sleep), closed);
        } else {
            assert_eq!((polled, second.woken()), (closed, 0));
        }
        rig.is_done();
        assert!(first.is_free() && second.is_free());
    });
}

/// T5 (W6): its slot has another tenant, of another thread, when the owner of what has fired comes to let go of it.
#[test]
fn t5_a_late_owner_and_the_next_tenant() {
    large("t5_a_late_owner_and_the_next_tenant", || {
        let rig = Rig::new();
        let (task, tenants) = (Task::new(), [Task::new(), Task::new()]);
        let mut sleep = rig.sleep();
        assert!(task.poll(&mut sleep).is_pending());
        rig.clock.advance(TICK * LIMIT);
        let (other, theirs) = (rig.clone(), tenants.clone());
        let a = thread::spawn(move || {
            other.poll();
            let mut all = [other.sleep(), other.sleep()];
            for (task, sleep) in theirs.iter().zip(&mut all) {
                assert!(task.poll(sleep).is_pending());
            }
            other.pass(LIMIT);
            theirs.map(|task| task.woken())
        });
        drop(sleep);
        assert_eq!(a.join().unwrap(), [1, 1]);
        rig.is_done();
        assert!(task.is_free());
    });
}

/// Who is woken finds what the one who passed the time has done: the firing hands it on, also to a poll that was not woken.
#[test]
fn t6_a_look_at_what_fires_is_in_order() {
    model("t6_a_look_at_what_fires_is_in_order", || {
        let rig = Rig::new();
        let task = Task::new();
        let mut sleep = rig.sleep();
        assert!(task.poll(&mut sleep).is_pending());
        let passed = Arc::new(AtomicUsize::new(0));
        let (other, set) = (rig.clone(), passed.clone());
        rig.clock.advance(TICK * LIMIT);
        let a = thread::spawn(move || {
            set.store(1, Ordering::Relaxed);
            other.poll();
        });
        if task.poll(&mut sleep).is_ready() {
            assert_eq!(passed.load(Ordering::Relaxed), 1);
        }
        a.join().unwrap();
        assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
    });
}
