//! What has ended, as a stream for tasks.

use crate::kit::channel::Receiver;
use crate::sync::tasks::{Place, WaitSet};
use crate::sync::{fence, AtomicBool, Ordering};
use futures_core::Stream;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The tasks that wait at a channel, and whether anything can still come.
pub(crate) struct Listeners {
    tasks: WaitSet,
    finished: AtomicBool,
}

impl Listeners {
    pub(crate) fn new() -> Self {
        Listeners { tasks: WaitSet::new(), finished: AtomicBool::new(false) }
    }

    /// Whether tasks wait; for a thread that has just sent something. crossbeam's send is what
    /// [`tasks`](crate::sync::tasks) asks for: it takes its place in the queue by a sequentially
    /// consistent operation on the tail. A receiver that finds the queue empty has made a fence
    /// before it read the tail. crossbeam's own receivers rely on that.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        // Loom does not see crossbeam's orderings.
        #[cfg(expiry_loom)]
        fence(Ordering::SeqCst);
        !self.tasks.is_empty()
    }

    /// Wakes the tasks that wait. Never panics.
    pub(crate) fn wake(&self) {
        self.tasks.wake();
    }

    /// All has been sent.
    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if !self.tasks.is_empty() {
            self.wake();
        }
    }
}

/// A channel of what has ended, as a [`Stream`]; from [`Receiver::into_stream`]. With the feature
/// `async`.
///
/// It needs nothing but the waker that it is polled with, on any executor. It does not poll by
/// time: the sender wakes it. (Where a sender has taken its place in the channel and has yet to put
/// the item there, a poll waits for that, as every receiver does.) A sender pays one more load
/// while no task waits. A task that always finds something does not yield by itself.
///
/// * **It ends**, with `None`, when all has been taken and no more can come. That is so after a
///   shutdown has returned (or its reaper has ended, where a handler or a waker asked for it), or
///   after all shares of the sending side have been dropped.
/// * **Nothing is lost** when it is dropped, or a future of [`recv`](Self::recv) is: items are in
///   the channel, for the clones, and for a [`Receiver`] that becomes a stream again.
/// * **One task at a time** polls it: the waker of the last poll is woken. For several tasks clone
///   it; each item goes to one of the clones. All that wait are woken by each item, and those that
///   find it gone wait again: it is a work queue for a few tasks, not for thousands.
/// * **Back-pressure**: a sender that waits for room, under
///   [`WhenFull::Wait`](crate::WhenFull::Wait), goes on as soon as something has been taken. A
///   whole thread waits there, so the stream must not be polled by the only thread that ends
///   entries: with an executor of one thread whose tasks also ack, take
///   [`WhenFull::Spill`](crate::WhenFull::Spill).
///
/// The sending thread calls wakers, under [`catch_unwind`](std::panic::catch_unwind). The channel
/// keeps up to 16 wakers of streams that have been dropped, or polled with another waker since,
/// until something is sent.
///
/// ```
/// use expiry::{edge, AckTracker, ShutdownMode, WhenFull};
///
/// let (tracker, outcomes) = AckTracker::builder().build_with_channel(1000, WhenFull::Spill)?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let mut outcomes = outcomes.into_stream();
/// let told = tokio::spawn(async move {
///     let mut failed = 0;
///     while let Some(outcome) = outcomes.recv().await {
///         failed += u32::from(outcome.is_failed());
///     }
///     failed
/// });
/// for owner in 0..3 {
///     let root = tracker.issue(edge(), owner)?;
///     tracker.fail(root)?;
/// }
/// tracker.shutdown(ShutdownMode::Cancel);
/// assert_eq!(told.await?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReceiverStream<T> {
    receiver: Receiver<T>,
    place: Place,
}

impl<T> ReceiverStream<T> {
    pub(crate) fn new(receiver: Receiver<T>) -> Self {
        ReceiverStream { receiver, place: Place::default() }
    }

    /// The next item; `None` if it was the last one. May be dropped at any time: nothing is lost.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Polls for the next item, which [`recv`](Self::recv) awaits.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(item) = self.receiver.try_next() {
            return Poll::Ready(Some(item));
        }
        let listeners = &*self.receiver.listeners;
        let registered = listeners.tasks.register(&mut self.place, context.waker());
        // Before the last look: what was sent is then found by it.
        let finished = listeners.finished.load(Ordering::Acquire);
        if registered || finished {
            if let Some(item) = self.receiver.try_next() {
                return Poll::Ready(Some(item));
            }
        }
        if !finished {
            return Poll::Pending;
        }
        // No sender will come that takes this task off the stack.
        listeners.tasks.deregister(&mut self.place);
        listeners.tasks.wake();
        Poll::Ready(None)
    }

    /// The channel's end, for what needs no waiting: [`drain_into`](Receiver::drain_into) takes
    /// many at once.
    #[must_use]
    pub fn receiver(&self) -> &Receiver<T> {
        &self.receiver
    }

    /// The channel's end, for threads.
    #[must_use]
    pub fn into_receiver(self) -> Receiver<T> {
        self.receiver.clone()
    }
}

// Items are never pinned in it.
impl<T> Unpin for ReceiverStream<T> {}

impl<T> Stream for ReceiverStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_recv(context)
    }

    // No hint of its size: what is there now may go to a clone.
}

impl<T> Clone for ReceiverStream<T> {
    fn clone(&self) -> Self {
        ReceiverStream::new(self.receiver.clone())
    }
}

impl<T> Drop for ReceiverStream<T> {
    fn drop(&mut self) {
        self.receiver.listeners.tasks.deregister(&mut self.place);
    }
}

impl<T> fmt::Debug for ReceiverStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverStream").field("len", &self.receiver.len()).finish_non_exhaustive()
    }
}
