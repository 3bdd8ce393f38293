//! Ticks at a fixed period.

use super::error::TimerError;
use super::sleep::Sleep;
use super::Timeouts;
use crate::time::nanos;
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

/// A tick no later than this, or than two intervals if that is more, counts as kept; as tokio's.
const KEPT: u64 = 5_000_000;

/// What comes after a tick that was missed: one that was taken more than 5 ms (or two intervals, if
/// that is more) after its time. As tokio's of the same names.
///
/// ```
/// use expiry::timeouts::MissedTick;
/// use expiry::{ManualClock, Timeouts};
/// use std::{future::poll_fn, task::Poll, time::Duration};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let second = Duration::from_secs(1);
/// for (missed, at_once) in [(MissedTick::Burst, 3), (MissedTick::Delay, 1), (MissedTick::Skip, 1)] {
///     let clock = ManualClock::new();
///     let timeouts = Timeouts::builder().clock(clock.clone()).build_manual()?;
///     let mut beat = timeouts.interval(second).missed_tick(missed);
///     beat.tick().await?;            // the first one: at once
///     clock.advance(7 * second / 2); // the ticks at 1, 2 and 3 s were missed
///     let mut ticks = 0;
///     while poll_fn(|context| Poll::Ready(beat.poll_tick(context))).await.is_ready() {
///         ticks += 1;
///     }
///     assert_eq!(ticks, at_once, "{missed:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MissedTick {
    /// All that were missed, at once; then as if none had been.
    #[default]
    Burst,
    /// The next one a period after the late one.
    Delay,
    /// Those that were missed are left out; the next one is when it would have been.
    Skip,
}

impl MissedTick {
    /// The time of the tick after the one that was due `at` and is taken `now`.
    fn next(self, at: u64, now: u64, period: u64) -> u64 {
        match self {
            MissedTick::Burst => at.saturating_add(period),
            MissedTick::Delay => now.saturating_add(period),
            MissedTick::Skip => {
                let into = now.saturating_sub(at) % period;
                now.saturating_add(period - into)
            }
        }
    }
}

/// Ticks at a fixed period; from [`Timeouts::interval`](crate::Timeouts::interval), and
/// [`interval_at`](crate::Timeouts::interval_at).
///
/// Ticks go by the clock, not by when the caller took the one before: they do not drift. Dropping
/// the interval cancels it at once.
///
/// A task that is spawned owns the timeouts: [`Interval::new`] takes an `Arc` of them.
///
/// A tick that is an error is no tick: `tick().await?`, and in a `select!` not `_ = beat.tick()`.
/// After a shutdown each call is an error at once, and a loop that goes on takes a whole core.
///
/// ```
/// use expiry::Timeouts;
/// use std::time::Duration;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let timeouts = Timeouts::new()?;
/// let mut beat = timeouts.interval(Duration::from_millis(5));
/// assert_eq!(beat.period(), Duration::from_millis(5));
/// beat.tick().await?; // at once
/// beat.tick().await?; // 5 ms after it
/// beat.reset();
/// beat.tick().await?; // 5 ms after the reset
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Interval<T: Deref<Target = Timeouts>> {
    sleep: Sleep<T>,
    /// The clock reading at which the next tick is due.
    at: u64,
    /// In nanoseconds; not zero.
    period: u64,
    missed: MissedTick,
}

impl<T: Deref<Target = Timeouts>> Interval<T> {
    /// Ticks by these timeouts: as [`Timeouts::interval`], for a caller that hands over an `Arc` of
    /// them. `T` is as in [`Sleep::new`].
    pub fn new(timeouts: T, period: Duration) -> Self {
        Self::after(timeouts, Duration::ZERO, Duration::ZERO, period)
    }

    /// Ticks first at an instant: as [`Timeouts::interval_at`]. Otherwise as [`new`](Self::new).
    pub fn at(timeouts: T, start: Instant, period: Duration) -> Self {
        let now = Instant::now();
        let wait = start.saturating_duration_since(now);
        Self::after(timeouts, wait, now.saturating_duration_since(start), period)
    }

    /// Ticks first after `first`. `ago` is how long ago the first tick was due, if it was.
    fn after(timeouts: T, first: Duration, ago: Duration, period: Duration) -> Self {
        let deadlines = &timeouts.waiters.engine.deadlines;
        let at = deadlines.now().saturating_add(nanos(first)).saturating_sub(nanos(ago));
        let period = nanos(period).max(deadlines.ticks().interval_nanos());
        let sleep = Sleep::new(timeouts, first);
        Interval { sleep, at, period, missed: MissedTick::default() }
    }

    /// Sets what comes after a missed tick; [`MissedTick::Burst`] by default.
    #[must_use]
    pub fn missed_tick(mut self, missed: MissedTick) -> Self {
        self.missed = missed;
        self
    }

    /// The period.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// Waits for the next tick. If what this returns is dropped before it is ready, no tick is
    /// lost.
    ///
    /// # Errors
    ///
    /// As [`Sleep`]'s; the tick is still to come then.
    pub async fn tick(&mut self) -> Result<(), TimerError> {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// Polls for the next tick, which [`tick`](Self::tick) awaits.
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TimerError>> {
        ready!(self.sleep.poll_over(context.waker()))?;
        let engine = &self.sleep.waiters().engine;
        let now = engine.deadlines.now();
        let kept = KEPT.max(engine.deadlines.ticks().interval_nanos().saturating_mul(2));
        let next = if now.saturating_sub(self.at) > kept {
            self.missed.next(self.at, now, self.period)
        } else {
            self.at.saturating_add(self.period)
        };
        self.set(next);
        Poll::Ready(Ok(()))
    }

    fn set(&mut self, at: u64) {
        self.at = at;
        let due = self.sleep.waiters().engine.deadlines.ticks().deadline(at, 0);
        self.sleep.set(due);
    }

    /// Makes the next tick a period from now. It has to be polled for again.
    pub fn reset(&mut self) {
        let now = self.sleep.waiters().engine.deadlines.now();
        self.set(now.saturating_add(self.period));
    }
}

impl<T: Deref<Target = Timeouts>> fmt::Debug for Interval<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval")
            .field("period", &self.period())
            .field("missed", &self.missed)
            .finish_non_exhaustive()
    }
}
