//! Deadlines: from a timeout and the clock to a tick, and what a jump of the clock by years takes.

use super::{Engine, Face, LastDeadline, Stripe, MAX_LAPSE};
use crate::core::lease::Lease;
use crate::inject::{hit, Bug};
use crate::sync::thread;
use crate::time::{nanos, Timeout, NEVER};
use std::sync::atomic::Ordering::Relaxed;

/// A timeout that cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadTimeout {
    Zero,
    /// Longer than a lease can express.
    TooLong,
}

impl<C> Engine<C> {
    /// A clock reading for a deadline, and what to add to the timeout for its lag.
    ///
    /// Never before the time that the driver has seen: if the clock has gone back, what begins now would
    /// otherwise be due already by the driver's time.
    #[inline(always)]
    pub(crate) fn now_for_deadline(&self) -> (u64, u64) {
        let driven = self.driven.load(Relaxed);
        match self.lag {
            Some(lag) => (self.clock.coarse().max(driven), lag),
            None => (self.clock.now().max(driven), 0),
        }
    }

    /// A tick near the deadlines that there are, for telling them apart: all are within 2^39 of it. They are no earlier than what has
    /// been caught up with, but for those of who has stalled; and who sets one is less than [`MAX_LAPSE`] past that.
    #[inline]
    pub(crate) fn about_now(&self) -> u64 {
        self.caught_up.load(Relaxed) + MAX_LAPSE
    }

    /// The deadline of what begins now, and the clock reading that it was derived from. `default` is the default timeout in
    /// nanoseconds, `None` for never, and always the same.
    #[inline(always)]
    pub(crate) fn deadline(
        &self,
        mine: &Stripe<C>,
        timeout: Timeout,
        default: Option<u64>,
    ) -> Result<(u64, u64), BadTimeout> {
        let (now, lag) = self.now_for_deadline();
        let last = match timeout {
            Timeout::Never => return Ok((NEVER, now)),
            Timeout::Default => &mine.default,
            Timeout::After(_) => &mine.own,
        };
        // The same as last time, unless a tick has gone by (or the clock went back).
        let until = last.until.get();
        let fresh = now < until && until - now <= self.ticks.interval_nanos();
        if fresh && !matches!(timeout, Timeout::After(after) if nanos(after) != last.after.get()) {
            return Ok((last.deadline.get(), now));
        }
        Ok((
            self.deadline_from(mine, last, timeout, default, (now, lag))?,
            now,
        ))
    }

    #[cold]
    fn deadline_from(
        &self,
        mine: &Stripe<C>,
        last: &LastDeadline,
        timeout: Timeout,
        default: Option<u64>,
        (now, lag): (u64, u64),
    ) -> Result<u64, BadTimeout> {
        mine.lapsed.set(self.lapse(now).unwrap_or(0));
        let after = match timeout {
            Timeout::Never => None,
            Timeout::Default => default,
            Timeout::After(after) if after.is_zero() && !hit(Bug::ZeroTimeout) => {
                return Err(BadTimeout::Zero);
            }
            Timeout::After(after) => Some(self.ticks.timeout(after).ok_or(BadTimeout::TooLong)?),
        };
        let (deadline, until) = match after {
            None => (NEVER, now.saturating_add(self.ticks.interval_nanos())),
            Some(after) => {
                last.after.set(after);
                let after = after.saturating_add(lag);
                let stale = u64::from(hit(Bug::StaleClock)) * 8;
                let late = u64::from(hit(Bug::LateDeadline)) * 4096;
                let deadline = self.ticks.deadline(now, after).saturating_sub(stale) + late;
                let until = self.ticks.same_deadline_until(deadline, after);
                (deadline, until.saturating_add(1))
            }
        };
        last.deadline.set(deadline);
        last.until.set(until);
        Ok(deadline)
    }

    /// The tick at which what takes `after` nanoseconds from now on is over, be that more than a lease can express. The same timeout
    /// again within a tick costs no division.
    ///
    /// By the coarse clock also where its lag is small beside the timeout, though not beside the interval.
    #[cfg(feature = "async")]
    #[inline(always)]
    pub(crate) fn due(&self, mine: &Stripe<C>, after: u64) -> u64 {
        let lag = self.clock.lag();
        let (now, lag) = if lag <= after >> 6 {
            (self.coarse_now(), lag)
        } else {
            (self.now(), 0)
        };
        let last = &mine.own;
        let until = last.until.get();
        let fresh = now < until && until - now <= self.ticks.interval_nanos();
        if fresh && after == last.after.get() {
            return last.deadline.get();
        }
        self.due_from(mine, after, (now, lag))
    }

    #[cfg(feature = "async")]
    #[cold]
    fn due_from(&self, mine: &Stripe<C>, after: u64, (now, lag): (u64, u64)) -> u64 {
        mine.lapsed.set(self.lapse(now).unwrap_or(0));
        let last = &mine.own;
        last.after.set(after);
        let after = after.saturating_add(lag);
        let due = self.ticks.deadline(now, after);
        let until = self.ticks.same_deadline_until(due, after);
        last.deadline.set(due);
        last.until.set(until.saturating_add(1));
        due
    }

    /// The time: the clock's, or the driver's, if the clock has gone back.
    #[cfg(feature = "async")]
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.now().max(self.driven.load(Relaxed))
    }

    /// As [`now`](Self::now), by the coarse clock: no later.
    #[cfg(feature = "async")]
    #[inline]
    pub(crate) fn coarse_now(&self) -> u64 {
        self.clock.coarse().max(self.driven.load(Relaxed))
    }

    /// The deadline of what is renewed now.
    pub(crate) fn renewal(
        &self,
        timeout: Timeout,
        default: Option<u64>,
        face: &impl Face,
    ) -> Result<u64, BadTimeout> {
        self.with_stripe(|mine, _| {
            let (deadline, now) = self.deadline(mine, timeout, default)?;
            if mine.lapsed.get() == 0 {
                return Ok(deadline);
            }
            self.catch_up(now, face);
            Ok(self.deadline(mine, timeout, default)?.0)
        })
    }

    /// The lease of slot `id`, until now `before`, ends at `deadline`. If that is nearer the driver must hear of it (W11).
    /// If it is not, nothing needs to be done: who made the lease has told, or is about to tell, of its old deadline, and
    /// the driver, coming then, finds the new one.
    #[inline]
    pub(crate) fn shortened(&self, id: u32, before: Lease, deadline: u64) {
        if deadline < before.deadline_near(deadline) {
            let _ = self.enforce(id, deadline);
        }
    }

    /// The deadline of a lease of slot `id`, which is live; `tick` is about now.
    pub(crate) fn deadline_of(&self, id: u32, lease: Lease, tick: u64) -> u64 {
        match self.slots.header(id).and_then(|header| header.next.get()) {
            // The deadlines in a bucket are not before its next expiration.
            Some(next) => lease.deadline_from(next),
            // It is being looked at just now.
            None => lease.deadline_near(tick),
        }
    }

    /// By how many ticks the driver is behind the clock reading `now`, if that is more than a lease can express
    /// beside a full timeout: the clock has jumped by years, and nobody has polled since.
    pub(crate) fn lapse(&self, now: u64) -> Option<u64> {
        let tick = self.ticks.at(now);
        let long = tick.saturating_sub(self.caught_up.load(Relaxed)) >= MAX_LAPSE;
        (long && !hit(Bug::UnseenJump)).then_some(tick)
    }

    /// The clock has jumped by more than a lease can express, and nobody has polled since. A new deadline beside old
    /// ones could not be told from one that has long passed: what is due goes first.
    #[cold]
    pub(crate) fn catch_up(&self, now: u64, face: &impl Face) {
        // A handler that the driver has called cannot wait for the driver: it is that round.
        let driving = self.is_driving();
        while !driving && self.lapse(now).is_some() {
            if self.poll_beside(now, usize::MAX, face).busy {
                thread::yield_now();
            }
        }
    }
}
