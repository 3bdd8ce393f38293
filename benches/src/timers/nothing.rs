//! Nobody: what the harness itself costs.

use super::Timers;

/// Does nothing.
pub struct Nothing(u64);

impl Timers for Nothing {
    const NAME: &'static str = "(harness alone)";
    const WORKS: bool = false;
    type Id = u64;

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        f(Nothing(0))
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> u64 {
        self.0 = self.0.wrapping_add(deadline ^ value);
        self.0
    }

    #[inline]
    fn reschedule(&mut self, id: &mut u64, deadline: u64, value: u64) {
        *id ^= deadline ^ value;
    }

    #[inline]
    fn cancel(&mut self, id: u64) -> bool {
        self.0 ^= id;
        true
    }

    #[inline]
    fn advance(&mut self, now: u64, mut fired: impl FnMut(u64)) {
        self.0 = std::hint::black_box(self.0 ^ now);
        if self.0 == u64::MAX {
            fired(0);
        }
    }
}
