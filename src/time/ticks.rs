//! Ticks: time since the engine's start in units of the interval, rounded so that nothing is early.

use super::clock::nanos;
use std::time::Duration;

/// The tick that never comes: a deadline for what has none.
pub(crate) const NEVER: u64 = u64::MAX;

/// The longest timeout, in ticks. A lease keeps 40 bits of its deadline, and a deadline is told from
/// its neighbours by its distance from a tick that is known to be at most this far away.
pub(crate) const MAX_TIMEOUT_TICKS: u64 = (1 << 39) - 1;

/// Conversion between a clock's nanoseconds and an engine's ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    start: u64,
    interval: u64,
}

impl Ticks {
    /// `interval` is at least 1 ns; the builder has checked it.
    pub(crate) fn new(start: u64, interval: u64) -> Self {
        Ticks { start, interval: interval.max(1) }
    }

    /// The tick that has begun at clock reading `now`: what has a deadline up to it is due.
    #[inline]
    pub(crate) fn at(&self, now: u64) -> u64 {
        now.saturating_sub(self.start) / self.interval
    }

    /// Whether `tick` has begun at clock reading `now`, as [`at`](Self::at) would say. A
    /// multiplication, where that takes a division.
    #[inline]
    pub(crate) fn has_begun(&self, tick: u64, now: u64) -> bool {
        let begins = tick.checked_mul(self.interval);
        begins.is_some_and(|begins| begins <= now.saturating_sub(self.start))
    }

    /// The first tick that begins at or after `now + after`: a deadline set to it is never early and
    /// at most one interval late.
    #[inline]
    pub(crate) fn deadline(&self, now: u64, after: u64) -> u64 {
        let due = now.saturating_sub(self.start).saturating_add(after);
        due.div_ceil(self.interval)
    }

    /// How many nanoseconds of the clock, from `now` on, a [`deadline`](Self::deadline) stays the same.
    #[inline]
    pub(crate) fn same_deadline_until(&self, deadline: u64, after: u64) -> u64 {
        // The last `now` for which ceil((now - start + after) / interval) is still `deadline`.
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

    /// The longest timeout that [`timeout`](Self::timeout) accepts.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos())
    }

    fn longest_nanos(&self) -> u64 {
        (MAX_TIMEOUT_TICKS - 1).saturating_mul(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_early_and_at_most_one_interval_late() {
        let ticks = Ticks::new(17, 10);
        for now in 0..200 {
            for after in 0..60 {
                let deadline = ticks.deadline(now, after);
                let due = now.max(17) + after;
                assert!(ticks.begins(deadline) >= due);
                assert!(ticks.begins(deadline) < due + 10);
                assert_eq!(ticks.at(ticks.begins(deadline)), deadline);
                if deadline > 0 {
                    assert!(ticks.at(ticks.begins(deadline) - 1) < deadline);
                }
            }
        }
    }

    #[test]
    fn a_tick_has_begun_where_the_clock_stands_at_it_or_later() {
        for interval in [1, 7, 10, 1 << 40] {
            let ticks = Ticks::new(17, interval);
            let readings = (0..200).chain([interval * 3 + 16, interval * 3 + 17, u64::MAX]);
            for now in readings {
                let at = ticks.at(now);
                for tick in [0, 1, 2, 3, at.saturating_sub(1), at, at.saturating_add(1), NEVER] {
                    assert_eq!(ticks.has_begun(tick, now), tick <= at, "{tick} at {now}");
                }
            }
        }
    }

    #[test]
    fn a_cached_deadline_holds_exactly_as_long_as_it_is_right() {
        let ticks = Ticks::new(5, 10);
        for now in 5..100 {
            for after in 0..40 {
                let deadline = ticks.deadline(now, after);
                let until = ticks.same_deadline_until(deadline, after);
                assert!(until >= now);
                assert_eq!(ticks.deadline(until, after), deadline);
                assert!(ticks.deadline(until + 1, after) > deadline);
            }
        }
    }

    #[test]
    fn huge_times_saturate() {
        let ticks = Ticks::new(0, 1);
        assert_eq!(ticks.deadline(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(ticks.until(u64::MAX, 3), Duration::ZERO);
        assert_eq!(ticks.timeout(Duration::MAX), None);
    }
}
