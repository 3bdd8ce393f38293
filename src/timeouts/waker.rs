//! A waker in two words, so that a slot can own it.

use std::mem::{size_of, ManuallyDrop};
use std::task::Waker;

const _: () = assert!(size_of::<Waker>() == 2 * size_of::<*const ()>());

/// The words of a waker: two pointers, in the standard library's order. Equal words are the same
/// waker, as [`Waker::will_wake`] has it, while one of the two exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words(pub(super) u64, pub(super) u64);

impl Words {
    /// The words of a waker that stays the caller's.
    #[inline(always)]
    pub(super) fn of(waker: &Waker) -> Self {
        // SAFETY: a waker is data and vtable, two pointers without anything between them: of that
        // size (above), and so with all bytes initialised.
        let [a, b] = unsafe { std::mem::transmute_copy::<Waker, [*const (); 2]>(waker) };
        // Their provenance is exposed: it is found again in `into_waker`.
        Words(a as usize as u64, b as usize as u64)
    }

    /// The words of a waker. Their holder owns the waker from here on.
    #[inline(always)]
    pub(super) fn from_waker(waker: Waker) -> Self {
        Words::of(&ManuallyDrop::new(waker))
    }

    /// The waker.
    ///
    /// # Safety
    ///
    /// The words are from [`from_waker`](Self::from_waker), and this is done once.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // they were pointers
    pub(super) unsafe fn into_waker(self) -> Waker {
        let words = [self.0 as usize as *const (), self.1 as usize as *const ()];
        // SAFETY: these bytes were a waker's, and no other thread has made them into one again.
        unsafe { std::mem::transmute::<[*const (); 2], Waker>(words) }
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/timeouts_waker.rs"]
mod tests;
