//! A shard: what all threads share of it, and what its driver alone touches.

use super::notice::{Heard, Notices};
use super::plan::Plans;
use super::ring::{Resident, Ring};
use super::scan::Due;
use crate::core::lateness::Counts;
use crate::sync::exclusive::Exclusive;
use crate::sync::AtomicU64;
use crate::time::NEVER;
use crossbeam_utils::CachePadded;
use expiry_wheel::dense::Wheel;
use expiry_wheel::Geometry;

/// What all threads share of a shard.
pub(super) struct Shard {
    pub(super) notices: Notices,
    /// The tick at which a driver should come for maintenance. Written by the shard's driver.
    pub(super) maintenance: AtomicU64,
    pub(super) ring: Ring,
    /// The latest clock reading up to which all due here has ended. Written by the driver.
    caught_up: std::sync::atomic::AtomicU64,
    /// Lateness of this shard's expirations. Written by the shard's driver.
    pub(super) lateness: Counts,
    pub(super) driver: CachePadded<Exclusive<DriverShard>>,
}

impl Shard {
    /// A shard with this number, of an engine that begins at the clock reading `now`.
    pub(super) fn new(at: usize, now: u64) -> Self {
        Shard {
            notices: Notices::new(),
            maintenance: AtomicU64::new(NEVER),
            ring: Ring::new(at),
            caught_up: std::sync::atomic::AtomicU64::new(now),
            lateness: Counts::new(),
            driver: CachePadded::new(Exclusive::new(DriverShard::new())),
        }
    }
}

impl Shard {
    /// The driver has ended all that was due up to the clock reading `now`.
    #[inline]
    pub(super) fn set_caught_up(&self, now: u64) {
        // Release pairs with `caught_up`.
        self.caught_up.store(now, std::sync::atomic::Ordering::Release);
    }

    /// What was due up to this clock reading has ended.
    #[inline]
    pub(super) fn caught_up(&self) -> u64 {
        // Acquire: this thread finds none of that live, and no more does a thread that decodes a
        // lease by the `earliest` that this one sets (I1).
        self.caught_up.load(std::sync::atomic::Ordering::Acquire)
    }
}

/// What a shard's driver alone touches.
pub(super) struct DriverShard {
    pub(super) wheel: Wheel,
    pub(super) heard: Heard,
    pub(super) resident: Resident,
    pub(super) plans: Plans,
    /// The blocks that the wheel has found due, and that the driver is about to scan.
    pub(super) due: Vec<Due>,
    /// The latest tick of a round that was here.
    pub(super) tick: u64,
    /// The tick from which on a visit maintains memory: not in each tick, because that sums what
    /// all threads have counted.
    pub(super) tend_at: u64,
    /// When the seats of ended threads were last emptied, as a clock reading; first shard only.
    #[cfg(not(expiry_loom))]
    pub(super) cleared: u64,
    /// Something was in the way then, or has ended since: memory is maintained again later.
    pub(super) lingers: bool,
    /// By how many ticks the last look at an unfinished grace period was put off.
    pub(super) backoff: u64,
    /// The index's size at the last look; 0 before.
    #[cfg(feature = "tracing")]
    pub(super) words: u64,
}

impl DriverShard {
    fn new() -> Self {
        DriverShard {
            wheel: Wheel::new(Geometry::TICKS, 0),
            heard: Heard::default(),
            resident: Resident::default(),
            plans: Plans::default(),
            due: Vec::new(),
            tick: 0,
            tend_at: 0,
            #[cfg(not(expiry_loom))]
            cleared: 0,
            lingers: false,
            backoff: 0,
            #[cfg(feature = "tracing")]
            words: 0,
        }
    }
}
