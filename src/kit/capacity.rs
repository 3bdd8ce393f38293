//! Waiting for room, where the capacity is bounded.

use crate::core::engine::Door;
use crate::error::Closed;
use crate::sync::tasks::Place;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that is ready when there is room for one more entry, probably; from the method `room`
/// of each store. With the feature `async`.
///
/// Back-pressure for tasks, instead of an error that says `Full`: the task tries, and where that is
/// refused waits, and tries again. The future is ready at once where the capacity has no bound, or
/// is not used up. It reserves nothing: another caller may be faster, and then the task waits
/// again.
///
/// ```
/// use expiry::{ExpiryQueue, Handle, StoreError, Updated};
/// use std::time::Duration;
///
/// async fn enter(leases: &ExpiryQueue<u64>, key: u64) -> Result<Updated, StoreError> {
///     loop {
///         match leases.update(key, Duration::from_secs(10)) {
///             Err(StoreError::Full) => leases.room().await?,
///             done => break done,
///         }
///     }
/// }
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let leases = std::sync::Arc::new(ExpiryQueue::builder().capacity(1).build_manual()?);
/// enter(&leases, 1).await?;
/// let second = tokio::spawn({
///     let leases = leases.clone();
///     async move { enter(&leases, 2).await }
/// });
/// tokio::task::yield_now().await; // it waits now
/// leases.remove(&1);
/// assert!(matches!(second.await?, Ok(Updated::Inserted { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Order of waiting tasks
///
/// Each slot that gets free wakes the task that has waited longest. A task that was woken and found
/// the slot taken keeps its place. A caller that tries without having waited may be faster: where
/// some never wait and take all slots, those that wait starve. Let all producers wait, and each
/// gets its turn.
///
/// A future that was woken must be polled, or dropped: until then the slot that it was woken for
/// wakes no other task. (So do not hold one in a `select!` whose other branch takes long.) When it
/// is dropped, it hands its turn on. When it is polled with another waker than before, it goes to
/// the end of the queue.
///
/// # Cost
///
/// A future that has to wait makes an allocation or two. A thread that ends an entry pays one load
/// while no task waits, and nothing where the capacity has no bound. That thread calls the waker
/// under [`catch_unwind`](std::panic::catch_unwind), when the slot is free and before the removal
/// is delivered. The reaper, or a thread that polls, does so at the end of its round, when it has
/// delivered what it has ended there. So neither a listener that it calls nor the reader of a full
/// channel under [`WhenFull::Wait`](crate::WhenFull::Wait) may wait for a task that waits here.
///
/// # Errors
///
/// [`Closed`]: it was shut down.
#[must_use = "futures do nothing unless they are polled"]
pub struct CapacityReady<'a> {
    door: Door<'a>,
    place: Place,
}

impl<'a> CapacityReady<'a> {
    pub(crate) fn new(door: Door<'a>) -> Self {
        CapacityReady { door, place: Place::default() }
    }
}

impl Future for CapacityReady<'_> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let CapacityReady { door, place } = &mut *self;
        if let Some(found) = door.look() {
            // There may be room for more than one.
            door.deregister(place);
            return Poll::Ready(found);
        }
        match door.register(place, context.waker()) {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        }
    }
}

impl Drop for CapacityReady<'_> {
    fn drop(&mut self) {
        self.door.deregister(&mut self.place);
    }
}

impl fmt::Debug for CapacityReady<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapacityReady").finish_non_exhaustive()
    }
}
