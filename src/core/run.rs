//! Runs: slots that lie one after the other in memory.

use super::prefetch_at;
use super::slot::{copies, units, Payload, Slot, Unit};
use std::marker::PhantomData;

pub(crate) struct Run<'a, P: Payload> {
    first: *const Unit<P>,
    length: usize,
    _slots: PhantomData<&'a Unit<P>>,
}

copies!(Run);

// SAFETY: as a slot's.
unsafe impl<P: Payload> Send for Run<'_, P> {}
// SAFETY: as a slot's.
unsafe impl<P: Payload> Sync for Run<'_, P> {}

impl<'a, P: Payload> Run<'a, P> {
    /// # Safety
    ///
    /// From `first` on there are `length` slots, for `'a`.
    #[inline]
    pub(super) unsafe fn new(first: *const Unit<P>, length: usize) -> Self {
        Run { first, length, _slots: PhantomData }
    }

    pub(crate) fn empty() -> Self {
        Run { first: std::ptr::null(), length: 0, _slots: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn get(self, at: usize) -> Option<Slot<'a, P>> {
        if at >= self.length {
            return None;
        }
        // SAFETY: by `new`.
        Some(unsafe { Slot::at(self.first.wrapping_add(at * units::<P>())) })
    }

    #[inline(always)]
    pub(crate) fn iter(self) -> impl Iterator<Item = Slot<'a, P>> {
        (0..self.length).filter_map(move |at| self.get(at))
    }

    /// Starts fetching the slots into the cache.
    #[inline]
    pub(crate) fn prefetch(self) {
        let bytes = self.length * units::<P>() * std::mem::size_of::<Unit<P>>();
        for at in (0..bytes).step_by(64) {
            prefetch_at(self.first.cast::<u8>().wrapping_add(at));
        }
    }
}
