//! Ids that name one timer for ever: a place and a serial number.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// Log of how many serials a wheel takes at a time.
const BLOCK_BITS: u32 = 16;

/// Set in every serial, so that none is zero.
const MARK: NonZeroU64 = match NonZeroU64::new(1 << 63) {
    Some(mark) => mark,
    None => panic!("a power of two is not zero"),
};

/// The next block of serials. A read-modify-write never hands out one value twice, whatever its
/// ordering, and the wheels ask for no more than that.
static BLOCKS: AtomicU64 = AtomicU64::new(0);

/// Names one timer of one wheel, from [`schedule`](super::TimerWheel::schedule) until it is fired
/// or descheduled, and nothing else ever after.
///
/// It is an index into the wheel's slab and that timer's generation: a 64-bit serial number that is
/// unique in the process (the first 2^63 timers), across wheels and across uses of a place. So one
/// comparison, in the timer's cache line, finds an id that is stale, or of another wheel; it never
/// names a later timer by accident. 16 bytes, and so is `Option<TimerId>`.
///
/// ```
/// # use expiry_wheel::{Geometry, TimerWheel};
/// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
/// let first = wheel.schedule(10, "first");
/// wheel.cancel(first);
/// let second = wheel.schedule(10, "second"); // in the same place
/// assert_eq!((wheel.get(first), wheel.get(second)), (None, Some(&"second")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerId {
    pub(super) serial: NonZeroU64,
    pub(super) index: u32,
}

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let serial = self.serial.get() & !MARK.get();
        write!(f, "TimerId({}, {serial:#x})", self.index)
    }
}

/// Where a wheel takes serials from: a block of its own, 65,536 at a time.
pub(super) struct Serials {
    next: u64,
}

impl Serials {
    /// Takes no block yet.
    pub(super) const fn new() -> Serials {
        Serials { next: 0 }
    }

    #[inline]
    pub(super) fn take(&mut self) -> NonZeroU64 {
        if self.next & ((1 << BLOCK_BITS) - 1) == 0 {
            self.refill();
        }
        let serial = self.next;
        self.next += 1;
        MARK | serial
    }

    #[cold]
    fn refill(&mut self) {
        self.next = BLOCKS.fetch_add(1, Ordering::Relaxed) << BLOCK_BITS;
    }
}

#[cfg(test)]
#[path = "../tests/unit/id.rs"]
mod tests;
