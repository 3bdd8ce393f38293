//! Sleeping and being woken, for the one reaper thread.

#[cfg(not(expiry_loom))]
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(expiry_loom)]
use loom::thread::Thread;
#[cfg(not(expiry_loom))]
use std::thread::Thread;

/// Where the reaper leaves its thread handle, for others to wake it.
///
/// A wake-up that comes before the sleep is not lost: `unpark` leaves a token that the next `park`
/// consumes at once.
pub(crate) struct Waker {
    #[cfg(not(expiry_loom))]
    thread: OnceLock<Thread>,
    #[cfg(expiry_loom)]
    thread: loom::sync::Mutex<Option<Thread>>,
}

impl Waker {
    pub(crate) fn new() -> Self {
        Waker {
            #[cfg(not(expiry_loom))]
            thread: OnceLock::new(),
            #[cfg(expiry_loom)]
            thread: loom::sync::Mutex::new(None),
        }
    }

    /// Names the thread that [`wake`](Self::wake) wakes. The first call counts.
    pub(crate) fn set(&self, thread: Thread) {
        #[cfg(not(expiry_loom))]
        let _ = self.thread.set(thread);
        #[cfg(expiry_loom)]
        {
            *self.thread.lock().unwrap() = Some(thread);
        }
    }

    pub(crate) fn wake(&self) {
        #[cfg(not(expiry_loom))]
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        #[cfg(expiry_loom)]
        if let Some(thread) = self.thread.lock().unwrap().as_ref() {
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
