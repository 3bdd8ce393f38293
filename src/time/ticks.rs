//! Ticks: time since the engine's start in units of the interval, rounded so that nothing is early.
//!
//! # Grains
//!
//! A store whose user has chosen no interval has short ticks, and deadlines of long timeouts are
//! multiples of several ticks, of a *grain*. So what lives for 20 ms is precise in a store of
//! hours, and the driver comes once for all the long-lived entries of a second.
//!
//! Grains are of 1, 2, 10, 20, 100, .. ticks: every multiple of a longer one is a multiple of a
//! shorter one. So of two timeouts from the same moment on, the longer one's deadline is never the
//! earlier one. And the deadline of a round number of seconds is exact.

use super::clock::nanos;
use std::time::Duration;

/// The tick that never comes: a deadline for what has none.
pub(crate) const NEVER: u64 = u64::MAX;

/// The longest timeout, in ticks. A lease keeps 40 bits of its deadline. Deadlines are compared by
/// their distance from a tick that is known to be at most this far away.
const MAX_TIMEOUT_TICKS: u64 = (1 << 39) - 1;

/// The one tick modulo 2^40 that a lease cannot express: these bits mean that it has no deadline.
const LAST: u64 = (1 << 40) - 1;

/// Returns this tick, or the next one in place of [`LAST`].
#[inline]
pub(crate) fn expressible(tick: u64) -> u64 {
    tick.saturating_add(u64::from(tick & LAST == LAST))
}

/// Conversion between a clock's nanoseconds and an engine's ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    start: u64,
    interval: u64,
    /// The longest grain, in ticks.
    coarsest: u64,
}

/// A grain is at most this part of its timeout.
const PART: u64 = 256;

/// The longest grain of at most 2^n ticks.
const GRAINS: [u64; 18] = [
    1, 2, 2, 2, 10, 20, 20, 100, 200, 200, 1000, 2000, 2000, 2000, 10_000, 20_000, 20_000, 100_000,
];

impl Ticks {
    /// `interval` is at least 1 ns; the builder has checked it.
    pub(crate) fn new(start: u64, interval: u64) -> Self {
        Ticks { start, interval: interval.max(1), coarsest: 1 }
    }

    /// The same with grains of up to a second.
    pub(crate) fn with_grains(self) -> Self {
        let fits = |&&ticks: &&u64| ticks.saturating_mul(self.interval) <= 1_000_000_000;
        Ticks { coarsest: GRAINS.iter().rev().find(fits).copied().unwrap_or(1), ..self }
    }

    /// Number of ticks that the deadline of a timeout of `after` nanoseconds is a multiple of.
    #[inline]
    pub(crate) fn grain(&self, after: u64) -> u64 {
        // Powers of two instead of a division.
        let most = after.max(1).ilog2().saturating_sub(self.interval.ilog2() + PART.ilog2() + 1);
        GRAINS[(most as usize).min(GRAINS.len() - 1)].min(self.coarsest)
    }

    /// How many ticks so many nanoseconds are; at least one.
    pub(crate) fn within(&self, nanos: u64) -> u64 {
        (nanos / self.interval).max(1)
    }

    /// The tick that has begun at clock reading `now`: what has a deadline up to it is due.
    #[inline]
    pub(crate) fn at(&self, now: u64) -> u64 {
        now.saturating_sub(self.start) / self.interval
    }

    /// Whether `tick` has begun at clock reading `now`: [`at`](Self::at) without its division.
    #[inline]
    pub(crate) fn has_begun(&self, tick: u64, now: u64) -> bool {
        let begins = tick.checked_mul(self.interval);
        begins.is_some_and(|begins| begins <= now.saturating_sub(self.start))
    }

    /// The first multiple of the [grain](Self::grain) that begins at or after `now + after`: a
    /// deadline set to it is never early, and late by less than the grain.
    #[inline]
    pub(crate) fn deadline(&self, now: u64, after: u64) -> u64 {
        let due = now.saturating_sub(self.start).saturating_add(after);
        let grain = self.grain(after);
        expressible(due.div_ceil(grain * self.interval) * grain)
    }

    /// The last clock reading from which `after` leads to this deadline.
    #[inline]
    pub(crate) fn same_deadline_until(&self, deadline: u64, after: u64) -> u64 {
        self.start.saturating_add(deadline.saturating_mul(self.interval).saturating_sub(after))
    }

    /// The clock reading at which `tick` begins; saturates.
    pub(crate) fn begins(&self, tick: u64) -> u64 {
        self.start.saturating_add(tick.saturating_mul(self.interval))
    }

    /// How long after `now` the tick begins; zero if it has.
    pub(crate) fn until(&self, now: u64, tick: u64) -> Duration {
        Duration::from_nanos(self.begins(tick).saturating_sub(now))
    }

    /// The clock reading that ticks are counted from.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    #[inline]
    pub(crate) fn interval_nanos(&self) -> u64 {
        self.interval
    }

    /// A timeout in nanoseconds if its ticks fit in a lease.
    pub(crate) fn timeout(&self, timeout: Duration) -> Option<u64> {
        let timeout = nanos(timeout);
        (timeout <= self.longest_nanos()).then_some(timeout)
    }

    pub(crate) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos())
    }

    fn longest_nanos(&self) -> u64 {
        // A deadline is rounded up by a tick, or by a grain, and later by the clock's lag.
        let most = (MAX_TIMEOUT_TICKS - 1).saturating_mul(self.interval);
        most - 2 * (self.coarsest - 1) * self.interval
    }
}

#[cfg(test)]
#[path = "../../tests/unit/time_ticks.rs"]
mod tests;
