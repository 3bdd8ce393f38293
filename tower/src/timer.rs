//! hyper's timer.

use expiry::timeouts::{Sleep, TimerError};
use expiry::Timeouts;
use hyper::rt;
use std::future::Future;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

/// A [`hyper::rt::Timer`]: hyper's own limits, such as that of a request's head, go by these
/// timeouts.
///
/// hyper wants a box for each sleep, so `sleep` allocates. `reset` does not: it is one
/// compare-and-swap.
///
/// # Refusals
///
/// A sleep of hyper's cannot fail. One whose deadline finds no room (`Full`, `OutOfMemory`) tries
/// again at its task's next turn, which it asks for at once: meanwhile the task takes a whole core.
/// It is ready in time all the same. A sleep is ready at once after a shutdown of the timeouts, and
/// hyper then takes its limits for exceeded: shut them down last.
///
/// # Examples
///
/// ```
/// use expiry::timeouts;
/// use expiry_tower::ExpiryTimer;
/// use hyper::server::conn::http1;
/// use std::time::Duration;
///
/// let mut server = http1::Builder::new();
/// server.timer(ExpiryTimer::new(timeouts::global()));
/// server.header_read_timeout(Duration::from_secs(10));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ExpiryTimer {
    timeouts: &'static Timeouts,
}

impl ExpiryTimer {
    /// A timer on these timeouts.
    #[must_use]
    pub const fn new(timeouts: &'static Timeouts) -> Self {
        ExpiryTimer { timeouts }
    }
}

impl rt::Timer for ExpiryTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Unfailing(self.timeouts.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Unfailing(self.timeouts.sleep_until(deadline)))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Unfailing>() {
            Some(ours) => {
                ours.get_mut().0.reset(deadline.saturating_duration_since(Instant::now()));
            }
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// A sleep that waits for room where it is refused.
struct Unfailing(Sleep<'static>);

impl rt::Sleep for Unfailing {}

impl Future for Unfailing {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(()) | Err(TimerError::Closed) => Poll::Ready(()),
            Err(_) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}
