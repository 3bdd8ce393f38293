//! Deadlines: from a timeout and the clock to a tick.
//!
//! # The driver's time
//!
//! [`Deadlines`] has two hints of the driver for other threads:
//!
//! * `driven`, the latest clock reading that a round began with. Time does not go back for the
//!   driver. A thread computes a deadline from a reading no earlier than `driven`. Otherwise, if
//!   the clock has gone back, a new entry would be due already by the driver's time.
//! * `caught_up`, the latest tick up to which rounds have ended all that was due.
//!
//! # What a lease expresses (I1)
//!
//! A lease has 40 bits of its deadline. Every thread takes them for a tick from `caught_up - 2^38`
//! to `caught_up + 3 * 2^38` ([`Deadlines::of`]), whatever the clock reads. Two rules keep the
//! deadlines of live leases there:
//!
//! * A round ends what is due before it raises `caught_up`. It may miss an entry whose thread
//!   computed the deadline before the round, and was then held up. The driver later finds that
//!   deadline, whole, as the block's next expiration ([`Deadlines::of_block`]).
//! * No thread sets a later deadline. Timeouts are below 2^39 ticks, so only a clock that has run
//!   ahead of the driver by 2^38 ticks, 8 years at 1 ms, gives one. The computation then returns
//!   [`Behind`](BadTimeout::Behind); the thread drives the engine, and computes anew.

use crate::core::lease::Lease;
use crate::core::threads::Counter;
use crate::kit::panics::{goes_on, is_inside};
use crate::time::{expressible, nanos, Clock, CoarseClock, Lifetime, LifetimeError, Ticks, NEVER};
use crossbeam_utils::CachePadded;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A quarter of the ticks that a lease can express.
const QUARTER: u64 = 1 << 38;

/// How long a thread that waits leaves a clock alone that has panicked.
const RECOVERY: Duration = Duration::from_millis(10);

/// The clock, without a virtual call where it is the default one.
#[derive(Clone)]
pub(crate) enum Source {
    Default(CoarseClock),
    Custom(Arc<dyn Clock>),
}

/// How precise deadlines are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Precision {
    /// To this many nanoseconds, whatever the timeout.
    Interval(u64),
    /// To this many nanoseconds, or a part of the timeout: in [grains](crate::time::Ticks).
    Grains {
        interval: u64,
        /// The shortest default timeout, in nanoseconds.
        shortest: u64,
    },
}

impl Precision {
    pub(crate) fn ticks(self, start: u64) -> Ticks {
        match self {
            Precision::Interval(interval) => Ticks::new(start, interval),
            Precision::Grains { interval, .. } => Ticks::new(start, interval).with_grains(),
        }
    }
}

/// Why an entry cannot have a lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadTimeout {
    Refused(LifetimeError),
    /// The driver is years behind the clock: the caller lets it catch up
    /// ([`Engine::catching_up`](super::Engine::catching_up)).
    Behind,
}

impl From<LifetimeError> for BadTimeout {
    fn from(why: LifetimeError) -> Self {
        BadTimeout::Refused(why)
    }
}

/// The last deadline of a timeout, and the first clock reading for which it holds, with their
/// number.
#[derive(Default)]
struct LastDeadline {
    after: Counter,
    deadline: Counter,
    from: Counter,
    readings: Counter,
}

impl LastDeadline {
    /// The last deadline, if it holds for the clock reading `now`.
    #[inline(always)]
    fn get(&self, now: u64, after: u64) -> Option<u64> {
        let holds = now.wrapping_sub(self.from.get()) < self.readings.get();
        (holds && after == self.after.get()).then(|| self.deadline.get())
    }

    fn set(&self, after: u64, deadline: u64, holds: std::ops::Range<u64>) {
        self.after.set(after);
        self.deadline.set(deadline);
        self.from.set(holds.start);
        self.readings.set(holds.end.saturating_sub(holds.start));
    }
}

/// A thread's last deadlines. Written by one thread at a time.
#[derive(Default)]
pub(crate) struct LastDeadlines {
    default: LastDeadline,
    /// Last deadline of the timeout that the caller gave last.
    own: LastDeadline,
    /// Last tick of [`Deadlines::due`], which takes another clock reading for the same timeout.
    due: LastDeadline,
    /// The tick at which this thread last computed a deadline anew, rounded down to that deadline's
    /// grain: similar timeouts lie equally far ahead of it.
    now: Counter,
}

impl LastDeadlines {
    /// How many ticks ahead a deadline lies that this thread has just computed, to within one.
    #[inline(always)]
    pub(super) fn ahead(&self, deadline: u64) -> u64 {
        deadline.saturating_sub(self.now.get())
    }
}

/// The clock, its ticks, and the driver's time.
pub(crate) struct Deadlines {
    ticks: Ticks,
    clock: Source,
    /// Caught panics of the clock.
    clock_panics: AtomicU64,
    pauses_in_suspend: bool,
    /// The clock's.
    lag: u64,
    /// Deadlines use the coarse reading; else the exact one.
    is_coarse: bool,
    /// Shorter timeouts, in nanoseconds, get their deadline by the exact reading all the same.
    brief: u64,
    /// The latest clock reading that a round began with.
    driven: CachePadded<AtomicU64>,
    /// The latest tick up to which rounds have ended all that was due.
    caught_up: AtomicU64,
    /// `caught_up - QUARTER`: the first tick that the 40 bits of a live lease can mean.
    earliest: AtomicU64,
    /// The engine's start: an instant, and the clock reading just after it.
    born: (Instant, u64),
}

impl Deadlines {
    /// Ticks from now on. With `exact`, deadlines never use a coarse reading.
    pub(super) fn new(clock: Source, precision: Precision, exact: bool) -> Self {
        let asked: &dyn Clock = match &clock {
            Source::Default(clock) => clock,
            Source::Custom(clock) => clock,
        };
        // In this order: no entry ends before the instant that `expires_at` returns.
        let (at, now) = (Instant::now(), asked.now());
        let (lag, pauses_in_suspend) = (asked.lag(), asked.pauses_in_suspend());
        // A lag that is small beside the interval, or the grain, is added to every deadline.
        let (brief, is_small) = match precision {
            Precision::Interval(interval) => (0, lag <= interval / 4),
            Precision::Grains { shortest, .. } => {
                let brief = lag.saturating_mul(2048);
                (brief, brief <= shortest)
            }
        };
        Deadlines {
            ticks: precision.ticks(now),
            lag,
            is_coarse: !exact && is_small,
            brief,
            clock,
            clock_panics: AtomicU64::new(0),
            pauses_in_suspend,
            driven: CachePadded::new(AtomicU64::new(now)),
            caught_up: AtomicU64::new(0),
            earliest: AtomicU64::new(0),
            born: (at, now),
        }
    }

    #[inline(always)]
    pub(crate) fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// The clock's time, or the driver's, if the clock has gone back.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.no_earlier(self.reading())
    }

    /// The clock's time, also if it has gone back. `None` if it panics.
    #[inline]
    pub(crate) fn reading(&self) -> Option<u64> {
        match &self.clock {
            Source::Default(clock) => Some(clock.now()),
            Source::Custom(_) => self.read(Clock::now),
        }
    }

    /// [`now`](Self::now) by the coarse clock: no later.
    #[inline]
    pub(crate) fn coarse_now(&self) -> u64 {
        let now = match &self.clock {
            Source::Default(clock) => clock.coarse(),
            Source::Custom(_) => self.read(Clock::coarse).unwrap_or(0),
        };
        now.max(self.driven.load(Relaxed))
    }

    /// This reading, or the driver's time, if that is later or the clock has panicked.
    #[inline]
    pub(crate) fn no_earlier(&self, reading: Option<u64>) -> u64 {
        reading.unwrap_or(0).max(self.driven.load(Relaxed))
    }

    /// Reads the user's clock, and counts its panic.
    #[cold] // keeps the way of the default clock short
    #[inline(never)]
    fn read(&self, read: fn(&dyn Clock) -> u64) -> Option<u64> {
        let Source::Custom(clock) = &self.clock else { return None };
        let now = goes_on(|| read(&**clock));
        if now.is_none() {
            self.clock_panics.fetch_add(1, Relaxed);
        }
        now
    }

    /// How long a thread waits for this tick, by what the clock reads: one that has gone back must
    /// catch up first. The driver's time says nothing about a wait: it may be hours old.
    pub(crate) fn wait(&self, reading: Option<u64>, tick: u64) -> Duration {
        match reading {
            _ if self.ticks.has_begun(tick, self.driven.load(Relaxed)) => Duration::ZERO,
            Some(now) => self.ticks.until(now, tick),
            None => RECOVERY,
        }
    }

    #[inline]
    pub(crate) fn pauses_in_suspend(&self) -> bool {
        self.pauses_in_suspend
    }

    pub(crate) fn clock_panics(&self) -> u64 {
        self.clock_panics.load(Relaxed)
    }

    /// A clock reading that decides what has expired, or whether it is time for something.
    #[inline(always)]
    pub(crate) fn now_for_look(&self) -> u64 {
        self.now_for(u64::MAX).0
    }

    /// A clock reading for the deadline of a timeout of `after` nanoseconds, and what to add to the
    /// timeout for its lag. Never before `driven`.
    #[inline(always)]
    pub(crate) fn now_for(&self, after: u64) -> (u64, u64) {
        match self.lag_for(after) {
            Some(lag) => (self.coarse_now(), lag),
            None => (self.now(), 0),
        }
    }

    /// The clock's lag if the coarse reading is used for the deadline of such a timeout.
    #[inline(always)]
    fn lag_for(&self, after: u64) -> Option<u64> {
        (self.is_coarse && after >= self.brief).then_some(self.lag)
    }

    /// The deadline of what begins now, and the clock reading that it was derived from. `default`
    /// is the default timeout in nanoseconds, always the same; `None` is never.
    #[inline(always)]
    pub(crate) fn deadline(
        &self,
        mine: &LastDeadlines,
        timeout: Lifetime,
        default: Option<u64>,
    ) -> Result<(u64, u64), BadTimeout> {
        let (after, last) = match timeout {
            Lifetime::Never => return Ok((NEVER, self.now_for_look())),
            Lifetime::Default => (default.unwrap_or(NEVER), &mine.default),
            Lifetime::After(after) => (nanos(after), &mine.own),
        };
        let (now, lag) = self.now_for(after);
        // The last deadline holds until a tick has gone by (or the clock has gone back).
        match last.get(now, after) {
            Some(deadline) => Ok((deadline, now)),
            None => Ok((self.deadline_from(mine, last, timeout, default, (now, lag))?, now)),
        }
    }

    #[cold]
    fn deadline_from(
        &self,
        mine: &LastDeadlines,
        last: &LastDeadline,
        timeout: Lifetime,
        default: Option<u64>,
        (now, lag): (u64, u64),
    ) -> Result<u64, BadTimeout> {
        match self.nanos(timeout, default)? {
            None => {
                last.set(NEVER, NEVER, now..now.saturating_add(self.ticks.interval_nanos()));
                Ok(NEVER)
            }
            Some(after) => {
                let deadline = self.compute(mine, last, (now, lag), after);
                let reached = self.reached(deadline);
                if reached != Ok(deadline) {
                    last.readings.set(0);
                }
                reached
            }
        }
    }

    /// The deadline, if a lease can express it. If not, the calling thread has to drive the engine
    /// first. A listener cannot: the driver waits for it. What it puts in after such a jump may end
    /// early.
    #[inline(always)]
    pub(crate) fn reached(&self, deadline: u64) -> Result<u64, BadTimeout> {
        match self.furthest() {
            furthest if deadline <= furthest => Ok(deadline),
            furthest if is_inside() => Ok(furthest),
            _ => Err(BadTimeout::Behind),
        }
    }

    /// The tick at which what takes `after` nanoseconds from now on is over, even if a lease cannot
    /// express it. The same timeout again within a tick costs no division. Uses the coarse clock
    /// whenever its lag is small beside the timeout, though not beside the interval.
    #[inline(always)]
    pub(crate) fn due(&self, mine: &LastDeadlines, after: u64) -> u64 {
        let (now, lag) = match self.lag <= after >> 6 {
            true => (self.coarse_now(), self.lag),
            false => (self.now(), 0),
        };
        match mine.due.get(now, after) {
            Some(deadline) => deadline,
            None => self.compute(mine, &mine.due, (now, lag), after),
        }
    }

    #[cold]
    fn compute(
        &self,
        mine: &LastDeadlines,
        last: &LastDeadline,
        (now, lag): (u64, u64),
        after: u64,
    ) -> u64 {
        let late = after.saturating_add(lag);
        let deadline = self.ticks.deadline(now, late);
        let until = self.ticks.same_deadline_until(deadline, late).saturating_add(1);
        let grain = self.ticks.grain(late);
        let since = until.saturating_sub(grain.saturating_mul(self.ticks.interval_nanos()));
        last.set(after, deadline, since..until);
        let tick = self.ticks.at(now);
        mine.now.set(tick - tick % grain);
        deadline
    }

    /// A timeout in nanoseconds; `None` for never. `Err` if no lease can have it.
    #[inline]
    pub(crate) fn nanos(
        &self,
        timeout: Lifetime,
        default: Option<u64>,
    ) -> Result<Option<u64>, LifetimeError> {
        match timeout {
            Lifetime::Never => Ok(None),
            Lifetime::Default => Ok(default),
            Lifetime::After(after) if after.is_zero() => Err(LifetimeError::Zero),
            Lifetime::After(after) => {
                self.ticks.timeout(after).map(Some).ok_or(LifetimeError::TooLong)
            }
        }
    }

    /// How long an entry has left at the clock reading `now`: zero if it has expired,
    /// [`Duration::MAX`] if it never does.
    pub(crate) fn left(&self, lease: Lease, now: u64) -> Duration {
        match self.of(lease) {
            NEVER => Duration::MAX,
            deadline => self.ticks.until(now, deadline),
        }
    }

    /// When an entry expires by the system's monotonic clock; `None` if it never does. The default
    /// clock keeps its distance from that clock, so the answer is the same until a renewal.
    pub(crate) fn instant(&self, lease: Lease) -> Option<Instant> {
        let (at, now) = match &self.clock {
            Source::Default(_) => self.born,
            Source::Custom(_) => {
                let at = Instant::now();
                (at, self.reading().unwrap_or_else(|| self.driven.load(Relaxed)))
            }
        };
        match self.of(lease) {
            NEVER => None,
            deadline => match self.ticks.begins(deadline) {
                begins if begins < now => at.checked_sub(Duration::from_nanos(now - begins)),
                begins => at.checked_add(Duration::from_nanos(begins - now)),
            },
        }
    }

    /// A timeout's deadline by an exact reading, with the coarse one's lag added. `None` for never.
    #[cold]
    pub(super) fn exact_deadline(&self, timeout: Lifetime, default: Option<u64>) -> Option<u64> {
        let now = self.now();
        let after = self.nanos(timeout, default).ok()??;
        let lag = self.lag_for(after).unwrap_or(0);
        Some(self.ticks.deadline(now, after.saturating_add(lag)))
    }

    /// Begins a driver's round with the clock reading `now`. Returns the time of the round.
    pub(super) fn begin_round(&self, now: u64) -> u64 {
        now.max(self.driven.fetch_max(now, Relaxed))
    }

    /// Notes that all that was due up to the clock reading `now` has been ended.
    pub(super) fn end_round(&self, now: u64) {
        // Another thread's round may have ended since this thread looked at the shards.
        let caught_up = self.ticks.at(now);
        self.earliest.fetch_max(caught_up.saturating_sub(QUARTER), Relaxed);
        // Release, with `furthest`: a thread that finds a deadline set by way of this finds
        // `earliest`, too.
        // survives: both are standard atomics, which loom does not see.
        self.caught_up.fetch_max(caught_up, Release);
    }

    #[inline]
    pub(super) fn caught_up(&self) -> u64 {
        self.caught_up.load(Relaxed)
    }

    /// The deadline of a lease that was live just now (I1).
    #[inline]
    pub(crate) fn of(&self, lease: Lease) -> u64 {
        lease.deadline_from(self.earliest.load(Relaxed))
    }

    /// [`of`](Self::of) for a lease in a block whose next expiration was `next`. A thread may have
    /// been held up between its clock reading and its lease until the deadline was out of reach. It
    /// has lowered its block's next expiration to that very tick.
    #[inline]
    pub(crate) fn of_block(&self, lease: Lease, next: u64) -> u64 {
        if next < self.earliest.load(Relaxed) && lease.deadline_from(next) == next {
            return next;
        }
        self.of(lease)
    }

    /// The latest deadline that a lease can have now.
    #[inline]
    pub(crate) fn furthest(&self) -> u64 {
        // Acquire pairs with `end_round`: the caller's swap of a lease passes `earliest` on, so who
        // reads that lease decodes it by an `earliest` within reach.
        // survives: both are standard atomics.
        expressible(self.caught_up.load(Acquire) + 3 * QUARTER - 2)
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_deadline.rs"]
mod tests;
