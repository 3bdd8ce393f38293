//! The time of a run: real time that can be set forward, or simulated time.

use expiry::{Clock, CoarseClock, ManualClock};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Arc;
use std::time::Duration;

/// A clock that leaps when it is told to. Between leaps it goes, or stands still.
#[derive(Debug, Clone)]
pub enum Leaping {
    /// It stands still.
    Simulated(ManualClock),
    /// It goes, so much ahead of the machine's.
    Real(CoarseClock, Arc<AtomicU64>),
}

impl Leaping {
    pub fn new(simulated: bool) -> Self {
        if simulated {
            Leaping::Simulated(ManualClock::new())
        } else {
            Leaping::Real(CoarseClock::new(), Arc::default())
        }
    }

    /// The most that the readings of a store with this interval lag behind. Where the lag of cheap readings is not small beside the
    /// interval, the store takes exact ones.
    pub fn lag_beside(&self, interval: u64) -> u64 {
        let lag = self.lag();
        if lag * 4 <= interval {
            lag
        } else {
            0
        }
    }

    /// Sets it forward. A reaper that sleeps does not notice.
    pub fn leap(&self, by: Duration) {
        match self {
            Leaping::Simulated(clock) => clock.advance(by),
            Leaping::Real(_, ahead) => {
                let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
                ahead.fetch_add(by, AcqRel);
            }
        }
    }
}

impl Clock for Leaping {
    #[inline]
    fn now(&self) -> u64 {
        match self {
            Leaping::Simulated(clock) => clock.now(),
            Leaping::Real(clock, ahead) => clock.now() + ahead.load(Acquire),
        }
    }

    #[inline]
    fn coarse(&self) -> u64 {
        match self {
            Leaping::Simulated(clock) => clock.coarse(),
            Leaping::Real(clock, ahead) => clock.coarse() + ahead.load(Acquire),
        }
    }

    fn lag(&self) -> u64 {
        match self {
            Leaping::Simulated(clock) => clock.lag(),
            Leaping::Real(clock, _) => clock.lag(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leaps_and_goes_on() {
        for simulated in [true, false] {
            let clock = Leaping::new(simulated);
            let before = clock.now();
            clock.leap(Duration::from_secs(3600));
            assert!(clock.now() - before >= 3_600_000_000_000, "{simulated}");
            let (cheap, now) = (clock.coarse(), clock.now());
            assert!(cheap <= now && cheap > before, "{simulated}");
        }
    }
}
