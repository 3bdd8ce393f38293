//! Where a task's input lies, and how its thread is woken.

use crate::sync::{fence, AtomicBool, Ordering, Parker, Unparker};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::time::Duration;

/// Wakes a thread that has gone to sleep. Who sends does so first and rings then; who sleeps says so first and looks once more:
/// with a fence between the two on both sides one of them sees the other.
pub(crate) struct Bell {
    asleep: AtomicBool,
    unparker: Unparker,
}

impl Bell {
    pub(crate) fn new() -> (Arc<Self>, Parker) {
        let parker = Parker::new();
        let bell = Bell {
            asleep: AtomicBool::new(false),
            unparker: parker.unparker().clone(),
        };
        (Arc::new(bell), parker)
    }

    /// After something was sent.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.unparker.unpark();
        }
    }

    /// Sleeps until it rings, for `limit` at most, unless there `is_something` to do.
    pub(crate) fn sleep(
        &self,
        parker: &Parker,
        limit: Duration,
        is_something: impl FnOnce() -> bool,
    ) {
        // A swap: of one of these and one in `ring` it is plain which came first.
        self.asleep.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if !is_something() {
            if limit == Duration::MAX {
                parker.park();
            } else {
                parker.park_timeout(limit);
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// A bounded lock-free queue, and the bell of the thread that empties it.
pub(crate) struct Inbox<T> {
    queue: ArrayQueue<T>,
    bell: Arc<Bell>,
}

impl<T> Inbox<T> {
    pub(crate) fn new(length: usize, bell: Arc<Bell>) -> Self {
        Inbox {
            queue: ArrayQueue::new(length),
            bell,
        }
    }

    /// Puts an item in; if there is no room, it comes back.
    #[inline]
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        self.queue.push(item)?;
        self.bell.ring();
        Ok(())
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        self.queue.pop()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
