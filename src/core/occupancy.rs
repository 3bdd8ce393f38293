//! Ownership of a slot, from its claim until it is free again. Each step takes one value and gives
//! the next, so a slot has at most one [`Vacant`], [`Unnamed`] or [`Ended`] at a time (I3).
//!
//! ```text
//!             claim           publish            named               end              free
//!   free slot -----> Vacant ---------> Unnamed ---------> Occupant --------> Ended ---------> free
//!                                         |  withdraw                          ^
//!                                         +------------------------------------+
//! ```
//!
//! An [`Occupant`] is what one load of the lease showed, so any number of threads may have one. The
//! one thread whose swap of that lease succeeds gets the [`Ended`].

use super::lease::{Lease, State};
use super::memory::ZeroValid;
use super::slot::{copies, Fields, Payload, Slot};
use super::slots::Spot;
use super::value::Owned;

/// A free slot that this thread has claimed. It leaves its block's free slots by
/// [`publish`](Self::publish), or is given back
/// ([`Engine::give_back`](super::engine::Engine::give_back)).
#[must_use]
pub(crate) struct Vacant<'a, P: Payload> {
    id: u32,
    /// The next occupant's generation.
    generation: u32,
    spot: Spot<'a, P>,
}

impl<'a, P: Payload> Vacant<'a, P> {
    /// Called for a slot that the caller has claimed from a block that it owns.
    #[inline(always)]
    pub(super) fn claimed(id: u32, generation: u32, spot: Spot<'a, P>) -> Self {
        Vacant { id, generation, spot }
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    #[inline(always)]
    pub(crate) fn spot(&self) -> Spot<'a, P> {
        self.spot
    }

    /// Stores the lease of the slot's next occupant, whose payload is there.
    #[inline(always)]
    fn lease(self, lease: Lease) -> Unnamed<'a, P> {
        self.spot.slot.set_lease(lease);
        Unnamed(Occupant { id: self.id, slot: self.spot.slot, lease })
    }
}

impl<P: Payload> Vacant<'_, P> {
    /// Leaves the slot out of use for good.
    #[cold]
    pub(crate) fn retire(self) {
        self.spot.slot.set_lease(Lease::new(State::Dead, self.generation, 0));
    }

    #[cfg(feature = "async")]
    pub(super) fn free(self) {
        self.spot.slot.set_lease(Lease::free(self.generation));
    }
}

impl<'a, P: Fields> Vacant<'a, P> {
    /// Publishes the slot, whose fields the caller has set.
    #[inline(always)]
    pub(crate) fn publish(self, lease: Lease) -> Unnamed<'a, P> {
        self.lease(lease)
    }
}

impl<'a, T: 'static, X: ZeroValid + 'static, const STAY: bool> Vacant<'a, Owned<T, X, STAY>> {
    /// Puts a value in, and publishes the slot.
    #[inline(always)]
    pub(crate) fn fill(self, value: T, lease: Lease) -> Unnamed<'a, Owned<T, X, STAY>> {
        // SAFETY: a vacant slot is this thread's, and has no value.
        unsafe { self.spot.slot.put(value) };
        self.lease(lease)
    }
}

/// A slot with a payload and a lease that the index does not name yet. In a store that goes by its
/// index ([`Frontend::may_end`](super::engine::Frontend::may_end)) no other thread ends it.
#[must_use]
pub(crate) struct Unnamed<'a, P: Payload>(Occupant<'a, P>);

impl<'a, P: Payload> Unnamed<'a, P> {
    /// The index names the slot now, or the store has no index.
    #[inline(always)]
    pub(crate) fn named(self) -> Occupant<'a, P> {
        self.0
    }

    /// The index will not name the slot.
    ///
    /// # Safety
    ///
    /// The store goes by its index, which has never named the slot.
    #[inline(always)]
    pub(crate) unsafe fn withdraw(self) -> Ended<'a, P> {
        Ended { id: self.0.id, slot: self.0.slot, lease: self.0.lease }
    }
}

impl<'a, P: Payload> std::ops::Deref for Unnamed<'a, P> {
    type Target = Occupant<'a, P>;

    #[inline(always)]
    fn deref(&self) -> &Occupant<'a, P> {
        &self.0
    }
}

/// An occupied slot, as one load of its lease showed it.
pub(crate) struct Occupant<'a, P: Payload> {
    pub(crate) id: u32,
    pub(crate) slot: Slot<'a, P>,
    pub(crate) lease: Lease,
}

copies!(Occupant);

impl<'a, P: Payload> Occupant<'a, P> {
    /// Ends this occupancy: one swap of the lease, which succeeds for one thread. If the lease has
    /// changed, returns what it is now.
    #[inline(always)]
    pub(crate) fn end(self) -> Result<Ended<'a, P>, Lease> {
        self.slot.end(self.lease)?;
        Ok(Ended { id: self.id, slot: self.slot, lease: self.lease })
    }

    /// Ends this occupancy, and makes the slot lead to slot `target`.
    #[inline(always)]
    pub(crate) fn forward(self, target: u32) -> Result<Ended<'a, P>, Lease> {
        self.slot.swap_lease(self.lease, self.lease.with_link(State::Forward, target))?;
        Ok(Ended { id: self.id, slot: self.slot, lease: self.lease })
    }
}

/// A slot whose end this thread has won. The slot stays as it is until it is freed:
/// [at once](super::engine::Engine::free), or
/// [when no thread looks at it](super::engine::Engine::free_later).
#[must_use]
pub(crate) struct Ended<'a, P: Payload> {
    id: u32,
    slot: Slot<'a, P>,
    lease: Lease,
}

impl<'a, P: Payload> Ended<'a, P> {
    #[inline(always)]
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> Slot<'a, P> {
        self.slot
    }

    #[inline(always)]
    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    #[inline(always)]
    pub(crate) fn free(self) {
        self.slot.set_lease(Lease::free(self.lease.generation()));
    }
}
