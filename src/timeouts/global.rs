//! The process's own timeouts, and free functions on them, in place of `tokio::time`'s.

use super::{Interval, Sleep, Timeout, Timeouts, TimerError};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

/// The process's own [`Timeouts`], with default settings: one reaper thread, which the first call
/// starts, and no bound. What it makes is `'static`, and shares no reference count.
///
/// They are of no use in the child of a fork, which has no such thread.
///
/// # Panics
///
/// The first call does where the system gives no memory or no thread.
///
/// # Examples
///
/// ```
/// use expiry::timeouts::{self, TimeoutError};
/// use std::time::Duration;
///
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let hangs = std::future::pending::<()>();
/// let task = tokio::spawn(timeouts::timeout(Duration::from_millis(2), hangs));
/// assert_eq!(task.await?, Err(TimeoutError::Elapsed));
/// assert_eq!(timeouts::global().metrics().waiting, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn global() -> &'static Timeouts {
    static GLOBAL: OnceLock<Timeouts> = OnceLock::new();
    GLOBAL.get_or_init(|| Timeouts::new().expect("a thread for the process's timeouts"))
}

/// [`Timeouts::timeout`] of the process's own.
pub fn timeout<F: IntoFuture>(
    after: Duration,
    future: F,
) -> Timeout<&'static Timeouts, F::IntoFuture> {
    global().timeout(after, future)
}

/// [`Timeouts::timeout_at`] of the process's own.
pub fn timeout_at<F: IntoFuture>(
    at: Instant,
    future: F,
) -> Timeout<&'static Timeouts, F::IntoFuture> {
    global().timeout_at(at, future)
}

/// Is ready so long after this call, by the process's own timeouts. It cannot fail.
///
/// ```
/// use expiry::timeouts::{sleep, sleep_until};
/// use std::time::{Duration, Instant};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let began = Instant::now();
/// sleep(Duration::from_millis(2)).await;
/// assert!(began.elapsed() >= Duration::from_millis(2));
/// sleep_until(began).await; // that is over
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sleep(after: Duration) -> Nap {
    Nap(global().sleep(after))
}

/// Waits until this instant of the system's monotonic clock; otherwise as [`sleep`].
pub fn sleep_until(at: Instant) -> Nap {
    Nap(global().sleep_until(at))
}

/// [`Timeouts::interval`] of the process's own.
pub fn interval(period: Duration) -> Interval<&'static Timeouts> {
    global().interval(period)
}

/// [`Timeouts::interval_at`] of the process's own.
pub fn interval_at(start: Instant, period: Duration) -> Interval<&'static Timeouts> {
    global().interval_at(start, period)
}

/// A [`Sleep`] that cannot fail; from [`sleep`] and [`sleep_until`].
///
/// Where the system gives no memory for it, it asks again at its task's next turn.
///
/// # Panics
///
/// Polling it does after a [shutdown](Timeouts::shutdown) of the process's own timeouts.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are polled"]
pub struct Nap(Sleep<&'static Timeouts>);

impl Nap {
    /// Moves the deadline to `after` from now, as [`Sleep::reset`] does.
    pub fn reset(&mut self, after: Duration) {
        self.0.reset(after);
    }

    /// Whether the time is up, as [`Sleep::is_elapsed`] says.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.0.is_elapsed()
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(()) => Poll::Ready(()),
            Err(TimerError::Closed) => {
                panic!("a sleep after the process's own timeouts were shut down")
            }
            Err(_) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}
