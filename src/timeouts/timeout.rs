//! [`Timeout`]: a future with a time limit.

use super::error::TimeoutError;
use super::sleep::Sleep;
use super::Timeouts;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::ops::Deref;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

/// A future that has so much time to become ready. [`Timeouts::timeout`] makes one that borrows
/// the timeouts, [`new`](Self::new) one that owns its `T`, an `Arc<Timeouts>` say.
///
/// The future is polled first, so one that is ready when its time is up is ready. What is inside
/// stays there until this is dropped, also after [`TimeoutError::Elapsed`]; its time may then be
/// [reset](Self::reset), and it may be polled again.
///
/// # Errors
///
/// [`TimeoutError::Elapsed`] when the time is up; [`TimeoutError::Timer`] if the deadline was
/// refused, or shut down. The future has not lost anything then: polling this again polls it, and
/// tries to register again. That is for a caller that has pinned it; an `.await` drops it with what
/// it has begun.
///
/// ```
/// use expiry::timeouts::TimeoutError;
/// use expiry::Timeouts;
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let timeouts = Timeouts::new()?;
/// let ms = Duration::from_millis;
/// let done = AtomicBool::new(false);
/// let work = poll_fn(|_| if done.load(Relaxed) { Poll::Ready(42) } else { Poll::Pending });
/// let mut limited = pin!(timeouts.timeout(ms(2), work));
/// assert_eq!(limited.as_mut().await, Err(TimeoutError::Elapsed)); // the work is still in there
/// limited.as_mut().reset(ms(2)); // a little more time
/// assert_eq!(limited.as_mut().await, Err(TimeoutError::Elapsed));
/// done.store(true, Relaxed);
/// assert_eq!(limited.as_mut().get_pin_mut().await, 42); // without a limit
///
/// // One that has not been pinned gives it back.
/// let limited = timeouts.timeout(ms(2), std::future::ready(43));
/// println!("{:?}", limited.get_ref());
/// assert_eq!(limited.into_inner().await, 43);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless they are polled"]
pub struct Timeout<T: Deref<Target = Timeouts>, F> {
    pub(super) future: F,
    pub(super) sleep: Sleep<T>,
}

impl<T: Deref<Target = Timeouts>, F> Timeout<T, F> {
    /// Gives a future so much time, by these timeouts: as [`Timeouts::timeout`], for a caller that
    /// hands over an `Arc` of them. `T` is as in [`Sleep::new`].
    #[inline(always)]
    pub fn new(timeouts: T, after: Duration, future: impl IntoFuture<IntoFuture = F>) -> Self {
        Timeout { future: future.into_future(), sleep: Sleep::fresh(timeouts, after) }
    }

    /// Limits a future to an instant: as [`Timeouts::timeout_at`]. Otherwise as
    /// [`new`](Self::new).
    pub fn at(timeouts: T, at: Instant, future: impl IntoFuture<IntoFuture = F>) -> Self {
        Timeout { future: future.into_future(), sleep: Sleep::until(timeouts, at) }
    }

    #[inline(always)]
    fn project(self: Pin<&mut Self>) -> (Pin<&mut F>, &mut Sleep<T>) {
        // SAFETY: `future` is pinned with `self`: nothing moves it out or hands it out otherwise,
        // `Drop` is not implemented, and `Timeout` is `Unpin` only if it is. `sleep` is never
        // pinned.
        unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.sleep)
        }
    }

    /// Gives it so much time from now on, as [`Sleep::reset`] does: for a connection, say, that has
    /// been heard from.
    pub fn reset(self: Pin<&mut Self>, after: Duration) {
        self.project().1.reset(after);
    }

    /// The future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The future, to be used while its time runs.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut F> {
        self.project().0
    }

    /// The future, without a limit from now on.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<T: Deref<Target = Timeouts>, F: Future> Future for Timeout<T, F> {
    type Output = Result<F::Output, TimeoutError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (future, sleep) = self.project();
        if let Poll::Ready(output) = future.poll(context) {
            sleep.cancel();
            return Poll::Ready(Ok(output));
        }
        let over = ready!(sleep.poll_over(context.waker()));
        Poll::Ready(Err(over.map_or_else(TimeoutError::from, |()| TimeoutError::Elapsed)))
    }
}

impl<T: Deref<Target = Timeouts>, F: fmt::Debug> fmt::Debug for Timeout<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").field("future", &self.future).field("sleep", &self.sleep).finish()
    }
}
