//! Wake-up of the reaper: until when it sleeps, and which threads wake it earlier.
//!
//! # The reaper goes to sleep
//!
//! ```text
//!   a thread that wants something             the reaper
//!   say what is wanted, and by which tick     announced.swap(tick)       (read-modify-write)
//!   announced.fetch_min(tick)                 second look: is anything wanted before that tick?
//!   if that lowered it: wake the reaper       if not: sleep until that tick
//! ```
//!
//! A thread wants something when it has lowered a shard's next expiration, has handed over a slot
//! to be freed, or asks for maintenance. It publishes that first, and then lowers the announcement.
//! If its read-modify-write comes after the reaper's swap, it lowers an announcement that was too
//! late, and wakes the reaper. If it comes before, the reaper's second look finds what is wanted
//! (W4).
//!
//! # A thread leaves a shard
//!
//! The second look passes over the shards that another thread drives. That thread, after it has
//! left a shard, looks at the announcement by a read-modify-write, and then whether anything is
//! wanted at the shard ([`Wakeup::depart`]). If its read-modify-write comes before the reaper's
//! swap, the reaper's second look includes the shard. If it comes after, the thread finds the
//! announcement, and all that was wanted before that.

use crate::sync::park::Sleeper;
use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::sync::OnceLock;

/// Something is wanted at once. A sleeping reaper announces a later tick, at least 1.
pub(super) const AT_ONCE: u64 = 0;

/// The reaper's announcement, and its thread.
pub(crate) struct Wakeup {
    /// The tick that the reaper sleeps until; 0 while it is awake, or if there is none.
    announced: CachePadded<AtomicU64>,
    /// For models: until when the reaper sleeps, or is about to; 0 if it does not.
    #[cfg(expiry_loom)]
    sleeps_until: std::sync::atomic::AtomicU64,
    reaper: OnceLock<Sleeper>,
}

impl Wakeup {
    pub(super) fn new() -> Self {
        Wakeup {
            announced: CachePadded::new(AtomicU64::new(0)),
            #[cfg(expiry_loom)]
            sleeps_until: std::sync::atomic::AtomicU64::new(0),
            reaper: OnceLock::new(),
        }
    }

    pub(crate) fn set_reaper(&self, reaper: Sleeper) {
        let _ = self.reaper.set(reaper);
        // The reaper may have gone to sleep before another thread could wake it.
        self.wake();
    }

    pub(super) fn has_reaper(&self) -> bool {
        self.reaper.get().is_some()
    }

    /// Wakes the reaper whatever it has announced: it has new orders.
    pub(crate) fn wake(&self) {
        if let Some(reaper) = self.reaper.get() {
            reaper.wake();
        }
    }

    /// Wakes the reaper if it sleeps, but not from a pause. The caller has given an order before,
    /// which the reaper reads after its announcement.
    #[cfg(feature = "async")]
    pub(crate) fn wake_from_sleep(&self) {
        self.wake_by(AT_ONCE);
    }

    /// Lowers the announcement to `tick`, and wakes the reaper if that lowered it. The caller has
    /// published before what it wants then.
    pub(super) fn wake_by(&self, tick: u64) {
        if self.announced.fetch_min(tick, Ordering::AcqRel) > tick {
            self.wake();
        }
    }

    /// Announces that the reaper will sleep until `tick`. Returns whether it may: `is_quiet` is the
    /// second look, whether nothing is wanted before that tick.
    pub(super) fn announce(&self, tick: u64, is_quiet: impl FnOnce() -> bool) -> bool {
        self.announced.swap(tick, Ordering::AcqRel);
        #[cfg(expiry_loom)]
        self.sleeps_until.store(tick, std::sync::atomic::Ordering::Relaxed);
        is_quiet()
    }

    /// The reaper is awake: no thread needs to wake it.
    pub(crate) fn awake(&self) {
        // survives: the next announcement swaps the same word. It acquires what this swap did not,
        // and there is one more round.
        self.announced.swap(0, Ordering::AcqRel);
        #[cfg(expiry_loom)]
        self.sleeps_until.store(0, std::sync::atomic::Ordering::Relaxed);
    }

    /// Called when this thread has left a shard at which something is `wanted` by a tick. A reaper
    /// that sleeps, or is about to, has left that shard to this thread.
    pub(super) fn depart(&self, wanted: impl FnOnce() -> u64) {
        if !self.has_reaper() {
            return;
        }
        // First: if the reaper's swap comes later, it finds the shard left.
        let announced = self.announced.fetch_add(0, Ordering::AcqRel);
        // A reaper that is awake has yet to look.
        if announced != 0 {
            let wanted = wanted();
            if wanted < announced {
                self.wake_by(wanted);
            }
        }
    }

    /// For models: the clock has come to `tick`, which ends the reaper's sleep if it was to end by
    /// then. The reaper's own announcement decides: a thread that has lowered it has to wake the
    /// reaper.
    #[cfg(expiry_loom)]
    pub(crate) fn timer_fires(&self, tick: u64) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let until = self.sleeps_until.load(relaxed);
        if until != 0 && until <= tick {
            self.wake();
        }
    }
}
