//! Birth stamps: when each root began, and its age.

use super::Trees;
use crate::sync::Ordering;
use std::time::Duration;

impl<T: 'static> Trees<T> {
    #[inline]
    pub(super) fn is_sampled(&self, target: u64) -> bool {
        (target >> 32) < self.settings.sampled
    }

    #[inline(always)]
    pub(super) fn latency(&self, target: u64, id: u32) -> Option<Duration> {
        if self.is_sampled(target) {
            self.now_exactly().map(|now| self.age(id, now))
        } else {
            None
        }
    }

    /// Birth stamp of a root that begins `now`: an exact reading if its latency will be reported.
    #[inline(always)]
    pub(super) fn born(&self, target: u64, now: u64) -> u64 {
        if self.is_sampled(target) {
            self.now_exactly().unwrap_or(now)
        } else {
            now
        }
    }

    #[cold]
    #[inline(never)]
    fn now_exactly(&self) -> Option<u64> {
        self.engine.deadlines.reading()
    }

    /// Age of a live root: zero if its birth stamp comes from a later clock reading than `now`.
    pub(crate) fn age(&self, id: u32, now: u64) -> Duration {
        let spot = self.engine.slots.spot(id);
        let birth = spot.map_or(0, |spot| spot.note.load(Ordering::Relaxed));
        Duration::from_nanos(now.saturating_sub(birth))
    }
}
