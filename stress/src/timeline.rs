//! The time that a store goes by, and the time that events are ordered by.

use expiry::{Clock, CoarseClock, ManualClock};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A clock reading, and the real time.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Real time, in nanoseconds since the run began.
    pub real: u64,
    /// The store's clock.
    pub clock: u64,
}

/// A store's clock, real or simulated.
#[derive(Debug, Clone)]
pub struct Timeline {
    began: Instant,
    clock: Source,
}

/// By how much what a store with this interval says may lag, by a clock whose cheap readings lag by so much: nothing, where that is
/// not small beside the interval, as the store then takes exact ones.
pub fn lag_beside(interval: u64, lag: u64) -> u64 {
    if lag * 4 <= interval {
        lag
    } else {
        0
    }
}

#[derive(Debug, Clone)]
enum Source {
    Real(CoarseClock),
    Simulated(ManualClock),
}

impl Timeline {
    /// A simulated one, which passes only when it is told to, or the default clock of this crate.
    pub fn new(simulated: bool) -> Self {
        Timeline {
            began: Instant::now(),
            clock: if simulated {
                Source::Simulated(ManualClock::new())
            } else {
                Source::Real(CoarseClock::new())
            },
        }
    }

    /// The clock, for the store.
    pub fn clock(&self) -> Arc<dyn Clock> {
        match &self.clock {
            Source::Real(clock) => Arc::new(clock.clone()),
            Source::Simulated(clock) => Arc::new(clock.clone()),
        }
    }

    /// The most that the readings of a store with this interval lag behind.
    pub fn lag(&self, interval: u64) -> u64 {
        match &self.clock {
            Source::Real(clock) => lag_beside(interval, clock.lag()),
            Source::Simulated(_) => 0,
        }
    }

    fn real(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The store's clock alone.
    #[inline]
    pub fn now(&self) -> u64 {
        match &self.clock {
            Source::Real(clock) => clock.now(),
            Source::Simulated(clock) => clock.now(),
        }
    }

    /// For what begins now.
    #[inline]
    pub fn before(&self) -> Reading {
        let real = self.real();
        let clock = self.now();
        Reading { real, clock }
    }

    /// For what has just ended.
    #[inline]
    pub fn after(&self) -> Reading {
        let clock = self.now();
        let real = self.real();
        Reading { real, clock }
    }

    /// Lets simulated time pass. Real time passes by itself.
    pub fn advance(&self, by: Duration) {
        if let Source::Simulated(clock) = &self.clock {
            clock.advance(by);
        }
    }
}
