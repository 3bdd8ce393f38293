//! Timeouts of futures, on the engine that all stores share, under any executor or none.
//!
//! [`Timeouts`] is the store. [`Timeout`], [`Sleep`] and [`Interval`] are its futures; each borrows
//! it, or owns an `Arc` of it, and needs only the waker that it is polled with. The process has a
//! store of its own ([`global`]), which the functions of this module use: [`sleep`],
//! [`sleep_until`], [`timeout`], [`timeout_at`], [`interval`], [`interval_at`], as in
//! `tokio::time`.
//!
//! With the feature `async`; `tokio` is another name of the same, and pulls no runtime in.

mod builder;
mod error;
mod global;
mod interval;
mod sleep;
mod timeout;
mod waiters;
mod waker;

pub use builder::TimeoutsBuilder;
pub use error::{TimeoutError, TimerError};
pub use global::{global, interval, interval_at, sleep, sleep_until, timeout, timeout_at, Nap};
pub use interval::{Interval, MissedTick};
pub use sleep::Sleep;
pub use timeout::Timeout;

use crate::core::lateness::Lateness;
use crate::error::BuildError;
use crate::kit::handle::handle;
use crate::kit::lifecycle::{shut, shut_soon, Owner, Reaping, Shut};
use crate::kit::polled::Polled;
use crate::kit::snapshot::snapshot;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};
use waiters::Waiters;

/// Timeouts, sleeps and intervals for futures, on any executor.
///
/// ```
/// use expiry::timeouts::TimeoutError;
/// use expiry::Timeouts;
/// use std::time::Duration;
///
/// let timeouts = Timeouts::new()?; // or `expiry::timeouts::global()`, the process's own
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let limit = Duration::from_secs(30);
/// assert_eq!(timeouts.timeout(limit, async { 42 }).await, Ok(42));
///
/// let forever = std::future::pending::<()>();
/// let ended = timeouts.timeout(Duration::from_millis(5), forever).await;
/// assert_eq!(ended, Err(TimeoutError::Elapsed));
///
/// timeouts.sleep(Duration::from_millis(5)).await?;
///
/// let mut beat = timeouts.interval(Duration::from_millis(2));
/// for _ in 0..3 {
///     beat.tick().await?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// | future | cost |
/// |---|---|
/// | ready when it is first polled | that poll, and nothing else |
/// | any other | an entry of 32 bytes, freed at once when the future is ready or dropped: together 4 atomic read-modify-writes, of which 2 are the waker's reference count |
///
/// Lock-free, and without allocation, but for a chunk of 4096 entries now and then. Only
/// [`shutdown`](Self::shutdown) waits.
///
/// # Borrowing
///
/// Its futures borrow it, so that tasks share no reference count. Those of the process's
/// [own](global) timeouts are `'static`. Any other future that must be `'static` owns an
/// `Arc<Timeouts>`, from [`Timeout::new`] or [`Sleep::new`]:
///
/// ```
/// use expiry::timeouts::{Timeout, TimeoutError};
/// use expiry::Timeouts;
/// use std::{future::Future, sync::Arc, time::Duration};
///
/// fn answer(timeouts: Arc<Timeouts>) -> impl Future<Output = Result<u32, TimeoutError>> + Send + 'static {
///     Timeout::new(timeouts, Duration::from_secs(30), async { 42 })
/// }
/// ```
///
/// # Time
///
/// A deadline is rounded up to the [interval](TimeoutsBuilder::interval), by default 1 ms: late by
/// at most that and the delay of the reaper thread, which then wakes the task; never early. From 64
/// times the lag of the clock's cheap reading on (64 ms) a timeout may be late by that lag (1 ms)
/// on top.
///
/// [`timeout`](Self::timeout) counts from the first poll that finds its future pending,
/// [`sleep`](Self::sleep) and [`interval`](Self::interval) from the call. Zero is over at once, and
/// `Duration::MAX` is 584 years.
///
/// # Cancellation, panics, shutdown
///
/// All futures may be dropped at any time, and polled with any waker each time. The reaper (or the
/// polling thread) calls wakers, one after the other: one that takes long makes others late, one
/// that panics is counted. What waits at a shutdown is woken, and resolves to
/// [`TimerError::Closed`]; so does what comes after it.
pub struct Timeouts {
    waiters: Arc<Waiters>,
    owner: Arc<Owner<Waiters>>,
}

snapshot! {
    /// Counters. Monotonic but for `waiting` and `slots`; read one after another while others
    /// count. When nothing is going on, `registered` is `waiting + fired + cancelled + closed`.
    ///
    /// ```
    /// use expiry::timeouts::TimeoutsMetrics;
    /// use expiry::{ManualClock, Timeouts};
    /// use std::{future::pending, time::Duration};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let timeouts = Timeouts::builder().clock(clock.clone()).build_manual()?;
    /// timeouts.timeout(second, async { 42 }).await?; // ready when it is polled: not registered
    /// let late = timeouts.timeout(second, pending::<()>());
    /// let in_time = timeouts.timeout(second, tokio::task::yield_now());
    /// let _ = tokio::join!(late, in_time, async {
    ///     tokio::task::yield_now().await;
    ///     clock.advance(second);
    ///     timeouts.poll(1000);
    /// });
    /// let TimeoutsMetrics { registered, fired, cancelled, waiting, .. } = timeouts.metrics();
    /// assert_eq!((registered, fired, cancelled, waiting), (2, 1, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Default)]
    pub struct TimeoutsMetrics of [] waiters: Waiters {
        /// Futures that wait now.
        waiting: u64 as LIVE = waiters.engine.len(waiters) as u64;
        /// Slots whose memory is held, in use or not: about 37 bytes each.
        slots: u64 as SLOTS
            = (0..waiters.engine.shards()).map(|shard| waiters.engine.held(shard)).sum();
        /// The most futures that may wait at once, if that is bounded.
        capacity: Option<u64> as CAPACITY = waiters.engine.admission.limit();
        /// Polls that found no room for their deadline: no capacity, or no memory.
        refused: u64 as REFUSED = waiters.engine.refusals();
        /// How often a future was found pending, and its deadline registered.
        registered: u64 as INSERTED = waiters.engine.sum(|counts| &counts.registered);
        /// Deadlines that came.
        fired: u64 as EXPIRED = waiters.engine.sum(|counts| &counts.fired);
        /// Deadlines that did not, because the future was ready, or dropped.
        cancelled: u64 as REMOVED = waiters.engine.sum(|counts| &counts.cancelled);
        /// Timers that ended with the shutdown.
        closed: u64 as CLOSED = waiters.engine.sum(|counts| &counts.closed);
        /// How late fired deadlines were seen, beyond the rounding up, before the task was woken.
        lateness: Lateness as LATENESS = waiters.engine.total_lateness();
        /// Time that rounds of the reaper have taken, wakers included.
        reaper_busy: Duration as REAPER_BUSY = Duration::from_nanos(waiters.engine.busy.get());
        /// Rounds of the reaper.
        reaper_rounds: u64 as REAPER_ROUNDS = waiters.engine.rounds.get();
        /// Panics of wakers that were caught, and of the clock.
        waker_panics: u64 as HANDLER_PANICS
            = waiters.panics.count() + waiters.engine.deadlines.clock_panics();
    }
    /// `waiting` is `expiry_live`, `registered` and `fired` are `expiry_inserted_total` and
    /// `expiry_expired_total`, `cancelled` is `expiry_removed_total`.
    publish
}

handle! {
    Timeouts<> { waiters, owner } by waiters,
    /// A caller that got [`TimerError::Full`] waits here.
    room
}

impl Timeouts {
    /// With default settings, and a reaper thread.
    ///
    /// # Errors
    ///
    /// [`BuildError::OutOfMemory`], [`BuildError::NoThread`].
    pub fn new() -> Result<Self, BuildError> {
        Self::builder().build()
    }

    /// Settings with defaults.
    pub fn builder() -> TimeoutsBuilder {
        TimeoutsBuilder::default()
    }

    /// Gives a future so much time, from the first poll that finds it pending. The future is polled
    /// before the time is looked at.
    ///
    /// The error of the [`Timeout`] is [`TimeoutError::Elapsed`], or says that the deadline was
    /// refused.
    #[inline]
    #[doc(alias = "deadline")]
    pub fn timeout<F: IntoFuture>(
        &self,
        after: Duration,
        future: F,
    ) -> Timeout<&Self, F::IntoFuture> {
        Timeout::new(self, after, future)
    }

    /// Limits a future to an instant of the system's monotonic clock; otherwise as
    /// [`timeout`](Self::timeout). An instant that has passed leaves the future one poll.
    pub fn timeout_at<F: IntoFuture>(
        &self,
        at: Instant,
        future: F,
    ) -> Timeout<&Self, F::IntoFuture> {
        Timeout::at(self, at, future)
    }

    /// A future that is ready so long after this call.
    #[doc(alias("delay", "schedule"))]
    pub fn sleep(&self, after: Duration) -> Sleep<&Self> {
        Sleep::new(self, after)
    }

    /// A future that is ready at an instant of the system's monotonic clock; at once if that has
    /// passed.
    pub fn sleep_until(&self, at: Instant) -> Sleep<&Self> {
        Sleep::until(self, at)
    }

    /// Ticks at once, and then at this period, or at the interval if that is longer.
    pub fn interval(&self, period: Duration) -> Interval<&Self> {
        Interval::new(self, period)
    }

    /// Ticks every `period`, first at an instant of the system's monotonic clock; otherwise as
    /// [`interval`](Self::interval). If that instant has passed, the first tick is at once, and
    /// what was missed since `start` is treated as [`missed_tick`](Interval::missed_tick) says.
    /// Ticks that lie before the origin of the clock of these timeouts are left out.
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval<&Self> {
        Interval::at(self, start, period)
    }

    /// Wakes what is due, with at most about `budget` steps of work. For timeouts without a reaper,
    /// and harmless on others. Never waits: any number of threads may poll, each leaves out the
    /// shards that another one drives.
    pub fn poll(&self, budget: usize) -> Polled {
        self.waiters.engine.poll_once(budget, &*self.waiters)
    }

    /// The time now, since the origin of the clock of these timeouts; an exact reading. For a
    /// caller that notes when something happened, and resets a [`Sleep`] only when that is ready.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.waiters.engine.deadlines.now())
    }

    /// Number of futures that wait; approximate while others come and go.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.engine.len(&*self.waiters)
    }

    /// Whether no future waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters. O(threads * shards).
    #[must_use]
    pub fn metrics(&self) -> TimeoutsMetrics {
        TimeoutsMetrics::of(&self.waiters)
    }

    /// Wakes the futures that wait: they resolve to [`TimerError::Closed`], unless their time was
    /// up. Later ones are refused with that error, unless they are ready when they are first
    /// polled. Waits for the reaper. In a waker that the reaper or a poll calls, it only asks: the
    /// reaper, or that poll, does the rest when its round is over.
    pub fn shutdown(&self) {
        self.owner.shut();
    }

    /// Shuts down without blocking the thread; otherwise as [`shutdown`](Self::shutdown). These
    /// timeouts refuse later calls when this returns. The reaper wakes the tasks that wait, and the
    /// future ends when that is done. The shutdown goes on if the future is dropped. Without a
    /// reaper all is done when this returns; if a waker calls this inside a poll, when that poll
    /// returns.
    ///
    /// In a server shut this down last: requests, and the draining of trackers, need timers.
    pub fn shutdown_async(&self) -> impl std::future::Future<Output = ()> + Send + '_ {
        shut_soon(&self.waiters.engine, self.owner.reaper(), &*self.waiters)
    }

    /// For models: the clock has come to `tick`.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn timer_fires(&self, tick: u64) {
        self.waiters.engine.wakeup.timer_fires(tick);
    }
}

impl Shut for Waiters {
    fn shut(&self, reaper: Option<&Reaping>) {
        shut(&self.engine, reaper, self);
    }
}
