//! Timers of one owner behind a mutex, and a thread that fires them every millisecond: what one would write oneself.

use super::{Fired, SharedTimers};
use crate::timers::{BTree, CompactingHeap, Timers, Wheel};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Timers that go from thread to thread under a lock, and what they are called in tables then.
pub trait Lockable: Timers + Send + 'static {
    /// The name.
    const LOCKED: &'static str;
}

impl Lockable for BTree {
    const LOCKED: &'static str = "mutex + BTreeMap";
}

impl Lockable for CompactingHeap {
    const LOCKED: &'static str = "mutex + BinaryHeap, compacting";
}

impl Lockable for Wheel {
    const LOCKED: &'static str = "mutex + TimerWheel";
}

struct Shared<T> {
    /// The timers, and how many there are.
    timers: Mutex<(T, u64)>,
    began: Instant,
    over: AtomicBool,
}

impl<T: Timers> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, (T, u64)> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn drive(&self, fired: &Fired) {
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
            let now = self.milliseconds();
            let mut guard = self.lock();
            let (timers, live) = &mut *guard;
            timers.advance(now, |value| {
                *live -= 1;
                fired.tell(value);
            });
        }
    }
}

/// The timers and their thread.
pub struct Locked<T: Lockable> {
    shared: Arc<Shared<T>>,
    driver: Option<JoinHandle<()>>,
}

impl<T: Lockable> SharedTimers for Locked<T>
where
    T::Id: Send,
{
    const NAME: &'static str = T::LOCKED;
    type Id = T::Id;
    type Handle = ();

    fn new(fired: &'static Fired) -> Self {
        let shared = Arc::new(Shared {
            timers: Mutex::new((T::with(|timers| timers), 0)),
            began: Instant::now(),
            over: AtomicBool::new(false),
        });
        let own = shared.clone();
        let driver = std::thread::spawn(move || own.drive(fired));
        Locked {
            shared,
            driver: Some(driver),
        }
    }

    fn handle(&self) {}

    #[inline]
    fn schedule(&self, (): &mut (), after: Duration, value: u64) -> T::Id {
        let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        // The millisecond that has begun is not over.
        let deadline = self.shared.milliseconds() + 1 + after;
        let mut guard = self.shared.lock();
        guard.1 += 1;
        guard.0.schedule(deadline, value)
    }

    #[inline]
    fn cancel(&self, (): &mut (), id: T::Id) -> bool {
        let mut guard = self.shared.lock();
        let there = guard.0.cancel(id);
        guard.1 -= u64::from(there);
        there
    }

    fn live(&self, _scheduled: u64) -> u64 {
        self.shared.lock().1
    }
}

impl<T: Lockable> Drop for Locked<T> {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(driver) = self.driver.take() {
            // If it has panicked, what it owed is missing.
            let _ = driver.join();
        }
    }
}
