//! What threads do without a read-modify-write: registering an entry, asking whether a shutdown has
//! begun, and, as its owner, ending it.
//!
//! An entry of [`timeouts`](crate::timeouts) has one owner, and nearly all are ended by theirs,
//! long before they are due. So the owner leaves the fence that each of the two takes to the
//! driver, by a [`Barrier`].
//!
//! Any thread may end a root of an [`AckTracker`](crate::AckTracker), by a swap. The tracker's
//! threads register roots this way, and ask this way whether a shutdown has begun. Keyed entries do
//! neither: a thread that finds its bucket lowered leans on the read-modify-write (Q12).
//!
//! # Registering
//!
//! ```text
//!   owner                                            who is at the shard
//!   lease := LIVE, deadline d                        n := next.take()
//!   light                                            heavy
//!   next covers d: that is all                       scan the bucket's leases
//!   if not: next.lower(d), as everybody
//! ```
//!
//! If the light side comes before the heavy one, the scan finds the lease. If not, the owner finds
//! the bucket's next expiration taken, or what another thread has put there since. The next scan
//! takes that, behind a heavy side of its own. *Covers* means that it is no later than `d` and has
//! the dirty bit, so that the scan will look at all slots. A shutdown closes the bucket in the same
//! place, and a closed one covers nothing.
//!
//! # Asking whether a shutdown has begun
//!
//! ```text
//!   the thread that is about to end a root           the shutdown
//!   undelivered := 1       (in its stripe)           closing := true
//!   light                                            heavy
//!   not closing: end the root by a swap              scan, and wait for undelivered = 0
//! ```
//!
//! If the light side comes before the heavy one, the shutdown sees what that thread has done and
//! has seen: the root, and that its outcome is on its way. If not, the thread finds that a shutdown
//! has begun, and leaves the root to it, or to the root's init, which finds its bucket closed (R6).
//!
//! # Ending
//!
//! ```text
//!   owner                                            who is at the shard
//!   ending := slot, lease   (in its stripe)          scanned := true    (in the bucket's header)
//!   light                                            heavy
//!   not scanned, and the lease is its own:           read all stripes' ending
//!     take what is in the slot, lease := FREE        end what is due by a swap, but for what is named there
//!   ending := none                                   scanned := false
//!   if scanned: by a swap, as everybody
//! ```
//!
//! If the light side comes before the heavy one, the driver finds slot and lease announced, or the
//! announcement gone and with it the slot freed. If not, the owner finds the bucket scanned and
//! swaps; or it finds the scan over, and with it what the scan has ended. So at most one of the two
//! goes without a swap, and knows that the other leaves the slot alone. The owner ends a slot that
//! is announced and has that lease, so the scan need not come back for it. An owner that comes too
//! late announces a lease that the slot no longer has: the scan passes that over. No code of the
//! user's runs while a slot is announced. A shutdown leaves `scanned` as it is, and waits until no
//! slot of the shard is announced: a few instructions of other threads.
//!
//! The number of stripes read is that of threads that have ever run at once, once for as many
//! buckets as are looked at together.

use crate::core::header::Header;
use crate::core::lease::Lease;
use crate::sync::asymmetric::Barrier;
use crate::sync::park::Backoff;
use crate::sync::{fence, AtomicBool, AtomicU64, Ordering};
#[cfg(feature = "async")]
use {crate::core::slot::Payload, crate::core::slots::Spot};

/// What a thread is about to end without a swap. Written by it only.
pub(super) struct Ending {
    /// The slot, plus one; 0 for none.
    slot: AtomicU64,
    /// The lease that it has.
    lease: AtomicU64,
}

impl Ending {
    pub(super) fn none() -> Self {
        Ending { slot: AtomicU64::new(0), lease: AtomicU64::new(0) }
    }

    /// Release, both: a driver that finds one of these finds what this thread has ended before.
    /// With the slot it finds its lease, or a later one.
    #[cfg(feature = "async")]
    #[inline(always)]
    fn name(&self, id: u32, lease: Lease) {
        // survives: loom reads the newest lease in a swap; hardware may not. Pairs with `get`: a
        // driver that finds a second announcement finds the first slot free before it swaps that
        // lease. Holds for both stores.
        self.lease.store(lease.0, Ordering::Release);
        self.slot.store(u64::from(id) + 1, Ordering::Release);
    }

    #[cfg(feature = "async")]
    #[inline(always)]
    fn unname(&self) {
        // Release: a driver that finds the announcement gone finds the slot free.
        // survives: as `name`: the driver must not swap a lease that the owner is yet to store.
        self.slot.store(0, Ordering::Release);
    }

    /// The slot and the lease. Between two announcements this may find the slot of the first with
    /// the lease of the second: then the first is over.
    fn get(&self) -> Option<(u32, Lease)> {
        // survives: loom reads the newest lease in a swap; hardware may not. Both loads pair with
        // `name`, the first also with `unname`.
        let slot = self.slot.load(Ordering::Acquire).checked_sub(1)?;
        let lease = Lease(self.lease.load(Ordering::Acquire));
        Some((u32::try_from(slot).ok()?, lease))
    }
}

/// What owners and drivers agree by. See the module's head.
pub(crate) struct Owners {
    /// Off where entries have no owners.
    barrier: Barrier,
    /// Whether a shutdown has begun to end entries.
    closing: AtomicBool,
}

impl Owners {
    pub(super) fn new(wanted: bool) -> Self {
        Owners { barrier: Barrier::new(wanted), closing: AtomicBool::new(false) }
    }

    /// Whether a driver has to [meet](Self::meet) owners before it scans.
    #[inline]
    pub(super) fn exist(&self) -> bool {
        self.barrier.was_on()
    }

    /// Whether the bucket covers a lease that this thread has just set, to expire at `tick`, so
    /// that the driver need not be notified.
    #[inline(always)]
    pub(super) fn is_covered(&self, header: &Header, tick: u64) -> bool {
        if !self.barrier.is_on() {
            return false;
        }
        Barrier::light();
        header.next.covers(tick)
    }

    /// A shutdown begins: it ends all entries after this.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.barrier.heavy();
        if !self.barrier.is_on() {
            fence(Ordering::SeqCst);
        }
    }

    /// Whether a shutdown has begun. If not, the shutdown sees all that this thread has done
    /// before: the light side comes before the heavy one of [`close`](Self::close).
    #[inline(always)]
    pub(super) fn are_closing(&self) -> bool {
        // survives: the models of R6 do not fail without either. Whoever scans a root after this
        // thread has ended it reads that from the lease. Left are roots that the index leads to only
        // after the scan: the announcement of their end is no atomic of loom's.
        if self.barrier.is_on() {
            Barrier::light();
        } else {
            fence(Ordering::SeqCst);
        }
        self.closing.load(Ordering::Relaxed)
    }

    /// Ends the entry of an owner, by a plain store where no driver scans its bucket, else by
    /// `end`, which swaps the lease. Calls `free` if this has ended the entry, and returns what
    /// that does.
    #[cfg(feature = "async")]
    #[inline(always)]
    pub(super) fn end<P: Payload, T>(
        &self,
        ending: &Ending,
        (id, lease): (u32, Lease),
        spot: Spot<'_, P>,
        end: impl Fn() -> bool,
        free: impl FnOnce() -> T,
    ) -> Option<T> {
        if !self.barrier.was_on() {
            return end().then(free);
        }
        if spot.slot.lease() != lease {
            return None;
        }
        ending.name(id, lease);
        Barrier::light();
        // Acquire: if a scan is over, then with what it has ended.
        let alone = self.barrier.is_on() && !spot.header.scanned.load(Ordering::Acquire);
        let ended = if alone { spot.slot.lease() == lease } else { end() };
        let freed = ended.then(free);
        ending.unname();
        freed
    }

    /// Calls `owned` with each slot that its owner is ending just now, and whose lease `is_there`.
    /// The driver calls this before it scans buckets whose headers say so, and whose next
    /// expirations it has taken.
    pub(super) fn meet<'a>(
        &self,
        endings: impl Iterator<Item = &'a Ending>,
        is_there: impl Fn(u32, Lease) -> bool,
        mut owned: impl FnMut(u32),
    ) {
        self.barrier.heavy();
        for (id, lease) in endings.filter_map(Ending::get) {
            // If another lease is there, the owner that announced this one is late, and leaves it
            // alone.
            if is_there(id, lease) {
                owned(id);
            }
        }
    }

    /// Waits until no owner is ending anything in a shard without a swap, nor will be. A shutdown
    /// calls this before it ends all slots of that shard, whose headers say that they are scanned.
    /// `is_lost` says of a wait that it is in vain.
    pub(super) fn await_none<'a>(
        &self,
        endings: impl Iterator<Item = &'a Ending>,
        is_here: impl Fn(u32) -> bool,
        is_lost: impl Fn(&Backoff) -> bool,
    ) {
        if !self.barrier.was_on() {
            return;
        }
        self.barrier.heavy();
        for ending in endings {
            let mut backoff = Backoff::new();
            while ending.get().is_some_and(|(id, _)| is_here(id)) && !is_lost(&backoff) {
                backoff.wait();
            }
        }
    }

    /// The system refuses the fence from now on.
    #[cfg(all(test, feature = "async"))]
    pub(crate) fn forget_fence(&self) {
        self.barrier.heavy_by(|| false);
    }
}
