//! hyper's timer.

use expiry::timeouts::{self, Sleep, TimerError};
use expiry::Timeouts;
use hyper::rt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

/// The pause before a refused sleep tries again.
const PAUSE: Duration = Duration::from_millis(10);

/// A [`hyper::rt::Timer`]: hyper's own limits, such as that of a request's head, go by these
/// timeouts.
///
/// `T` is a `&'static Timeouts`, or an `Arc<Timeouts>`, of which each sleep owns a clone. hyper
/// wants a box for each sleep, so `sleep` allocates. `reset` does not: it is one compare-and-swap.
///
/// # Refusals
///
/// A sleep of hyper's cannot fail. One whose deadline finds no room (`Full`, `OutOfMemory`) tries
/// again every 10 ms, by the [global](timeouts::global) timeouts, and is late by as much at the
/// most. A sleep is ready at once where those refuse it too, and after a shutdown of its own
/// timeouts: hyper then takes its limits for exceeded. Shut timeouts down last.
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
pub struct ExpiryTimer<T = &'static Timeouts> {
    timeouts: T,
    /// An instant, and the reading of the timeouts' clock then.
    anchor: (Instant, Duration),
}

impl<T: Deref<Target = Timeouts>> ExpiryTimer<T> {
    /// A timer on these timeouts. It reads the system's clock once. From then on hyper's instants
    /// go by the clock of the timeouts.
    #[must_use]
    pub fn new(timeouts: T) -> Self {
        ExpiryTimer { anchor: (Instant::now(), timeouts.now()), timeouts }
    }

    /// The timeouts.
    #[must_use]
    pub const fn timeouts(&self) -> &T {
        &self.timeouts
    }
}

impl<T> rt::Timer for ExpiryTimer<T>
where
    T: Deref<Target = Timeouts> + Clone + Send + Sync + 'static,
{
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Unfailing { sleep: Sleep::new(self.timeouts.clone(), duration), again: None })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> Instant {
        let (instant, then) = self.anchor;
        let passed = self.timeouts.now().saturating_sub(then);
        instant.checked_add(passed).unwrap_or(instant)
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Unfailing<T>>() {
            Some(ours) => {
                let rest = deadline.saturating_duration_since(self.now());
                ours.get_mut().sleep.reset(rest);
            }
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// A sleep that waits for room where it is refused.
struct Unfailing<T: Deref<Target = Timeouts>> {
    sleep: Sleep<T>,
    /// Wakes a sleep that was refused.
    again: Option<Sleep<&'static Timeouts>>,
}

impl<T: Deref<Target = Timeouts> + Send + Sync + 'static> rt::Sleep for Unfailing<T> {}

impl<T: Deref<Target = Timeouts>> Future for Unfailing<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match ready!(Pin::new(&mut self.sleep).poll(context)) {
                Ok(()) | Err(TimerError::Closed) => return Poll::Ready(()),
                Err(_) => {}
            }
            let again = self.again.get_or_insert_with(|| timeouts::global().sleep(PAUSE));
            if ready!(Pin::new(again).poll(context)).is_err() {
                return Poll::Ready(());
            }
            self.again = None;
        }
    }
}
