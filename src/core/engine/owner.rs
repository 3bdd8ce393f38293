//! What an entry's owner does without a read-modify-write: registering it, and ending it.
//!
//! An entry of [`timeouts`](crate::timeouts) has one owner, and nearly all are ended by theirs, long before they are due. So the owner leaves
//! the fence that each of the two takes to who drives, by a [`Barrier`]. Of the other faces' entries anybody may end any: they do not use this.
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
//! If the light side comes before the heavy one, the scan finds the lease. If not, the owner finds the bucket's next expiration taken, or what
//! somebody has put there since, which the next scan takes, behind a heavy side of its own: *covers* means that it is no later than `d`
//! and has news, so that the scan will look at all slots. A shutdown closes the bucket in the same place, and a closed one covers nothing.
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
//! If the light side comes before the heavy one, who scans finds slot and lease named, or the name gone and with it the slot freed. If not, the owner
//! finds the bucket scanned and swaps; or finds that over, and with it what the scan has ended. So of the two one at most goes without a swap, and
//! knows that the other leaves the slot alone; and what is named, and has that lease, its owner ends, so that the scan need not come back for it.
//! An owner who comes too late names a lease that is no more there: that is passed over. No code of the user's runs while a slot is
//! named. A shutdown leaves `scanned` as it is, and waits until no slot of the shard is named: a few instructions of other threads.
//!
//! The number of stripes read is that of threads that have ever run at once, once for as many buckets as are looked at together.

use super::{Engine, BUCKET_U32};
use crate::core::lease::Lease;
use crate::core::slot::Payload;
use crate::sync::park::Patience;
use crate::sync::{AtomicU64, Ordering};
#[cfg(feature = "async")]
use {
    super::deadline::MAX_LAPSE,
    super::{Refused, Stripe},
    crate::core::header::Header,
    crate::core::lease::State,
    crate::core::slot::Slot,
    crate::sync::asymmetric::Barrier,
};

/// The deadlines of two leases look the same that are so many ticks apart, or a multiple.
#[cfg(feature = "async")]
const ALIKE_AGAIN: u64 = 1 << 40;

/// What a thread is about to end without a swap. Written by it only.
pub(super) struct Ending {
    /// The slot, plus one; 0 for none.
    slot: AtomicU64,
    /// The lease that it has.
    lease: AtomicU64,
}

impl Ending {
    pub(super) fn none() -> Self {
        Ending {
            slot: AtomicU64::new(0),
            lease: AtomicU64::new(0),
        }
    }

    /// Release, both: who finds one of these finds what this thread has ended before; and with the slot its lease, or a later one.
    #[cfg(feature = "async")]
    #[inline(always)]
    fn name(&self, id: u32, lease: Lease) {
        self.lease.store(lease.0, Ordering::Release);
        self.slot.store(u64::from(id) + 1, Ordering::Release);
    }

    #[cfg(feature = "async")]
    #[inline(always)]
    fn unname(&self) {
        // Release: who finds it gone finds the slot free.
        self.slot.store(0, Ordering::Release);
    }

    /// The slot and the lease. Of two namings the slot of the first with the lease of the second may be found: then the first is over.
    fn get(&self) -> Option<(u32, Lease)> {
        let slot = self.slot.load(Ordering::Acquire).checked_sub(1)?;
        let lease = Lease(self.lease.load(Ordering::Acquire));
        Some((u32::try_from(slot).ok()?, lease))
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// As [`enforce_in`](Self::enforce_in), for the owner of a lease that has just been set.
    #[cfg(feature = "async")]
    #[inline(always)]
    pub(crate) fn enforce_own(&self, header: &Header, id: u32, tick: u64) -> Result<(), Refused> {
        if self.barrier.is_on() {
            Barrier::light();
            if header.next.covers(tick) {
                return Ok(());
            }
        }
        self.enforce_in(header, id, tick)
    }

    /// Whether what is due then is less than three quarters of the ticks away after which leases look the same.
    #[cfg(feature = "async")]
    pub(crate) fn is_near(&self, due: u64) -> bool {
        let behind = due.saturating_sub(self.deadlines.caught_up());
        behind < ALIKE_AGAIN - MAX_LAPSE
    }

    /// Whether this is the lease of who is due then, in the state `LiveIssued`, and not another's that looks the same: that one would have
    /// been [near](Self::is_near) when it was made, and by then what is due here had been caught up with long since.
    #[cfg(feature = "async")]
    #[inline(always)]
    fn is_own(&self, slot: Slot<'_, P>, lease: Lease, due: u64) -> bool {
        // In this order: who finds the other's lease finds what its claimer has gone by.
        slot.lease() == lease && self.deadlines.caught_up() < due.saturating_add(MAX_LAPSE / 2)
    }

    /// Ends the entry of an owner who was due then, and frees its slot but for [`freed`](Self::freed); what `take` takes out of it before.
    /// `None` if the entry had ended, and in the slot there may be another one. (Or if what was due there has waited for years: whoever drives
    /// next ends that.)
    ///
    /// Without a swap only in the state `LiveIssued`: two owners whose leases look the same would end one entry. Those of the state `Live` are
    /// ended by swaps, of which one succeeds.
    #[cfg(feature = "async")]
    #[inline(always)]
    pub(crate) fn end_own<T>(
        &self,
        mine: &Stripe<C>,
        (id, lease, due): (u32, Lease, u64),
        take: impl FnOnce(Slot<'_, P>) -> T,
    ) -> Option<T> {
        let spot = self.slots.spot(id)?;
        let free = || {
            let taken = take(spot.slot);
            spot.slot.set_lease(Lease::free(lease.incarnation()));
            taken
        };
        if lease.state() != State::LiveIssued || !self.barrier.was_on() {
            return self.end(spot.slot, lease).is_ok().then(free);
        }
        if !self.is_own(spot.slot, lease, due) {
            return None;
        }
        mine.ending.name(id, lease);
        Barrier::light();
        // Acquire: if a scan is over, then with what it has ended.
        let alone = self.barrier.is_on() && !spot.header.scanned.load(Ordering::Acquire);
        let ended = if alone {
            spot.slot.lease() == lease
        } else {
            self.end(spot.slot, lease).is_ok()
        };
        let taken = ended.then(free);
        mine.ending.unname();
        taken
    }

    /// Before buckets are scanned whose headers say so, and whose next expirations have been taken: calls `owned` with the bucket and the place
    /// of each slot that its owner is ending just now.
    pub(super) fn meet_owners(&self, mut owned: impl FnMut(u32, u32)) {
        self.barrier.heavy();
        for stripe in self.stripes.iter() {
            let Some((id, lease)) = stripe.ending.get() else {
                continue;
            };
            // If it is another's, who named it is late, and leaves it alone.
            if self
                .slots
                .slot(id)
                .is_some_and(|slot| slot.lease() == lease)
            {
                owned(id / BUCKET_U32, id % BUCKET_U32);
            }
        }
    }

    /// Before all of a shard is ended, whose headers say that it is: no owner is ending anything there without a swap, nor will be.
    pub(super) fn await_owners(&self, shard: usize) {
        if !self.barrier.was_on() {
            return;
        }
        self.barrier.heavy();
        for stripe in self.stripes.iter() {
            let is_here = |(id, _): (u32, Lease)| self.shard_of(id) == shard;
            let mut patience = Patience::new();
            while stripe.ending.get().is_some_and(is_here) && !self.has_lost(&patience) {
                patience.wait();
            }
        }
    }

    /// The system refuses the fence from now on.
    #[cfg(all(test, feature = "async"))]
    pub(crate) fn forget_fence(&self) {
        self.barrier.heavy_by(|| false);
    }
}
