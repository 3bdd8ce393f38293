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

/// Sleeps until woken. The model checker has no time: a sleep with a limit is one without, so a model
/// in which only the limit would have ended the sleep is reported as a deadlock, which is what a lost
/// wake-up is.
#[cfg(expiry_loom)]
pub(crate) fn park(_limit: Option<Duration>) {
    loom::thread::park();
}
