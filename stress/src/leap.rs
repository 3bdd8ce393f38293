//! Real time that can be set forward.

use expiry::{Clock, CoarseClock};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Arc;

/// A clock that goes, so much ahead of the machine's.
#[derive(Debug, Clone, Default)]
pub struct Leaping {
    clock: CoarseClock,
    ahead: Arc<AtomicU64>,
}

impl Leaping {
    /// Sets it forward, by nanoseconds. A reaper that sleeps does not notice.
    pub fn leap(&self, by: u64) {
        self.ahead.fetch_add(by, AcqRel);
    }
}

impl Clock for Leaping {
    #[inline]
    fn now(&self) -> u64 {
        self.clock.now() + self.ahead.load(Acquire)
    }

    #[inline]
    fn coarse(&self) -> u64 {
        self.clock.coarse() + self.ahead.load(Acquire)
    }

    fn lag(&self) -> u64 {
        self.clock.lag()
    }
}

/// The most that the readings of a store with this interval lag behind. The store takes exact
/// readings where the lag of cheap ones is not small beside the interval.
pub fn lag_beside(clock: &dyn Clock, interval: u64) -> u64 {
    let lag = clock.lag();
    if lag * 4 <= interval {
        lag
    } else {
        0
    }
}
