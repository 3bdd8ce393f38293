//! `hierarchical_hash_wheel_timer` on a thread of its own, asked through its channel, with a state of its user's instead of boxed closures.
//!
//! Neither scheduling nor cancelling tells anything, so how many timers there are is known by those whose state was dropped: fired or
//! cancelled. That is counted on its thread alone. Where a timer is due within 5 ms its thread does not sleep but yields.

use super::{Fired, SharedTimers};
use hierarchical_hash_wheel_timer::thread_timer::{TimerRef, TimerWithThread};
use hierarchical_hash_wheel_timer::{OneshotState, PeriodicState, Timer, TimerReturn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What it told, and how many timers have ended.
#[derive(Debug)]
struct Told {
    fired: &'static Fired,
    ended: AtomicU64,
    marks: AtomicU64,
}

/// A timer.
#[derive(Debug)]
struct State {
    value: u64,
    told: &'static Told,
}

/// The value of those that only show that all before them are through.
const MARK: u64 = u64::MAX;

impl OneshotState for State {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.value
    }

    #[inline]
    fn trigger(self) {
        if self.value == MARK {
            self.told.marks.fetch_add(1, Ordering::Release);
        } else {
            self.told.fired.tell(self.value);
        }
    }
}

impl Drop for State {
    #[inline]
    fn drop(&mut self) {
        if self.value != MARK {
            self.told.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Nobody has periodic timers.
#[derive(Debug)]
enum Never {}

impl PeriodicState for Never {
    type Id = u64;

    fn id(&self) -> &u64 {
        match *self {}
    }

    fn trigger(self) -> TimerReturn<Self> {
        match self {}
    }
}

/// The wheel's thread.
pub struct HashWheelThread {
    /// Taken when it is shut down.
    thread: Option<TimerWithThread<u64, State, Never>>,
    told: &'static Told,
}

/// What a thread asks through.
pub struct Asking(TimerRef<u64, State, Never>);

impl SharedTimers for HashWheelThread {
    const NAME: &'static str = "hierarchical_hash_wheel_timer, thread";
    /// The value.
    type Id = u64;
    type Handle = Asking;

    fn new(fired: &'static Fired) -> Self {
        let told = Box::leak(Box::new(Told {
            fired,
            ended: AtomicU64::new(0),
            marks: AtomicU64::new(0),
        }));
        HashWheelThread {
            thread: Some(TimerWithThread::new().expect("a thread can be started")),
            told,
        }
    }

    fn handle(&self) -> Asking {
        let thread = self.thread.as_ref().expect("not shut down");
        Asking(thread.timer_ref())
    }

    #[inline]
    fn schedule(&self, handle: &mut Asking, after: Duration, value: u64) -> u64 {
        let told = self.told;
        handle.0.schedule_once(after, State { value, told });
        value
    }

    #[inline]
    fn cancel(&self, handle: &mut Asking, id: u64) -> bool {
        handle.0.cancel(&id);
        true
    }

    fn sync(&self) {
        let mark = self.told.marks.load(Ordering::Relaxed) + 1;
        // Its channel keeps the order.
        self.schedule(&mut self.handle(), Duration::ZERO, MARK);
        while self.told.marks.load(Ordering::Acquire) < mark {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn live(&self, scheduled: u64) -> u64 {
        scheduled - self.told.ended.load(Ordering::Relaxed)
    }
}

impl Drop for HashWheelThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // It says itself if it cannot.
            let _ = thread.shutdown();
        }
    }
}
