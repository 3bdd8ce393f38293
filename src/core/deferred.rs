//! The deferred-free list: slots that have ended, which other threads may still be looking at.
//!
//! Each stripe has one list. The stripe's thread pushes a slot; the driver takes the whole list by
//! a swap, so there is no ABA. A slot is on at most one list. A `DEAD` slot holds the link in its
//! lease, in place of the deadline. Readers still follow a `FORWARD` lease, so such a slot holds
//! the link in the word beside its lease.

use super::lease::{Lease, State};
use super::slot::{Note, Payload, Slot};
use super::slots::Slots;
use crate::sync::{AtomicU64, Ordering};

/// No slot: ids are smaller.
const NONE: u32 = u32::MAX;

/// The list of one stripe.
pub(crate) struct Deferred {
    /// The slot on top, plus one; 0 if there is none.
    head: AtomicU64,
}

/// Slots that were taken from a list.
pub(crate) struct Chain(u32);

impl Deferred {
    pub(crate) fn new() -> Self {
        Deferred { head: AtomicU64::new(0) }
    }

    /// Pushes slots that the caller has ended and owns: slot `first`, and those that it is linked
    /// to, down to `last`. Returns whether the list was empty. Lock-free.
    #[inline]
    pub(crate) fn push<P: Payload>(
        &self,
        slots: &Slots<P>,
        first: u32,
        (last, slot): (u32, Slot<'_, P>),
    ) -> bool {
        let lease = slot.lease_relaxed();
        let beside = beside(slots, last, lease);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            #[allow(clippy::cast_possible_truncation)] // 0 becomes NONE, else an id
            let next = (head as u32).wrapping_sub(1);
            match beside {
                Some(note) => note.set_link(next),
                None => slot.set_link(lease.with_link(State::Dead, next)),
            }
            // Release: the driver finds the links, and the entry out of the index.
            match self.head.compare_exchange_weak(
                head,
                u64::from(first) + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(before) => return before == 0,
                Err(now) => head = now,
            }
        }
    }

    /// Whether the list looked empty just then.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn take(&self) -> Option<Chain> {
        // The load saves the swap of an empty list, as most are. A push that it misses comes later.
        if self.is_empty() {
            return None;
        }
        // survives: the driver begins a wait before it follows a link (`Reclaim::gather`). When
        // crossbeam defers and flushes that, it makes a SeqCst fence, which acquires what the push
        // released. No thread reads anything behind the 0 that the swap leaves.
        let head = self.head.swap(0, Ordering::AcqRel);
        #[allow(clippy::cast_possible_truncation)] // an id plus one
        Some(Chain((head as u32).wrapping_sub(1)))
    }
}

/// The word beside slot `id`, if the slot has its link there.
#[inline(always)]
fn beside<P: Payload>(slots: &Slots<P>, id: u32, lease: Lease) -> Option<&P::Note> {
    if lease.is(State::Forward) {
        slots.note(id)
    } else {
        None
    }
}

impl Chain {
    /// The next slot, whose link has been read: from here on the caller may free it.
    #[inline(always)]
    pub(crate) fn pop<'a, P: Payload>(
        &mut self,
        slots: &'a Slots<P>,
    ) -> Option<(u32, Slot<'a, P>)> {
        let id = self.0;
        if id == NONE {
            return None;
        }
        let slot = slots.slot(id)?;
        let lease = slot.lease();
        self.0 = beside(slots, id, lease).map_or_else(|| lease.link(), Note::link);
        Some((id, slot))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == NONE
    }
}
