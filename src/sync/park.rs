//! Sleeping and being woken, for the one reaper thread.

use super::thread::Thread;
use std::sync::OnceLock;
use std::time::Duration;

/// Where the reaper leaves its thread handle, for others to wake it.
///
/// A wake-up that comes before the sleep is not lost: `unpark` leaves a token that the next `park`
/// consumes at once.
pub(crate) struct Waker {
    thread: OnceLock<Thread>,
}

impl Waker {
    pub(crate) fn new() -> Self {
        Waker {
            thread: OnceLock::new(),
        }
    }

    /// Names the thread that [`wake`](Self::wake) wakes. The first call counts.
    pub(crate) fn set(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Whether there is a thread to wake.
    pub(crate) fn is_set(&self) -> bool {
        self.thread.get().is_some()
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Sleeps until woken or until `limit` has passed, whichever is first.
#[cfg(not(expiry_loom))]
pub(crate) fn park(limit: Option<Duration>) {
    match limit {
        Some(limit) => std::thread::park_timeout(limit),
        None => std::thread::park(),
    }
}

/// Sleeps until woken, or not at all if the limit has passed. The model checker has no time: models let time pass by
/// moving their clock and calling `Engine::timer_fires`. A sleep that neither ends is reported as a deadlock, which
/// is what a lost wake-up is.
#[cfg(expiry_loom)]
pub(crate) fn park(limit: Option<Duration>) {
    if limit != Some(Duration::ZERO) {
        loom::thread::park();
    }
}

/// Sleeps for a moment, or until woken.
pub(crate) fn doze(limit: Duration) {
    #[cfg(not(expiry_loom))]
    park(Some(limit));
    // A moment that others use.
    #[cfg(expiry_loom)]
    let _ = limit;
    #[cfg(expiry_loom)]
    loom::thread::yield_now();
}
