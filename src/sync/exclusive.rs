//! [`Exclusive`]: a value that one thread at a time may enter, and nobody waits for.

use super::{AtomicBool, Ordering};
use crate::inject::{hit, Bug};
#[cfg(expiry_loom)]
use loom::cell::UnsafeCell;
#[cfg(not(expiry_loom))]
use std::cell::UnsafeCell;

/// A value guarded by a flag that is only ever *tried*.
///
/// This is how a shard's wheel belongs to one driver at a time although any thread may call `poll`: who
/// finds the flag taken goes away with [`None`] instead of waiting, so no operation of the crate ever
/// blocks on it.
///
/// Orderings: the swap that takes the flag (`Acquire`) pairs with the store that gives it back
/// (`Release`), so each owner sees all that the previous one did.
pub(crate) struct Exclusive<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `enter` hands out at most one reference at a time, whichever thread asks; moving that
// access between threads needs `T: Send` and nothing more.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Exclusive {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Whether somebody is inside. By the time that the caller knows it may be otherwise.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// Runs `f` on the value, or returns `None` at once when somebody else is inside.
    ///
    /// A panic in `f` gives the value back as `f` left it.
    pub(crate) fn enter<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        struct GiveBack<'a>(&'a AtomicBool);
        impl Drop for GiveBack<'_> {
            fn drop(&mut self) {
                if hit(Bug::KeptShard) {
                    return;
                }
                #[cfg(not(expiry_loom))]
                self.0.store(false, Ordering::Release);
                // Loom does not know that this comes after the swap of who has found it taken.
                #[cfg(expiry_loom)]
                self.0.swap(false, Ordering::Release);
            }
        }
        if self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        let _give_back = GiveBack(&self.taken);
        #[cfg(not(expiry_loom))]
        // SAFETY: the flag was false and is now true: no other reference exists until it is given back.
        let result = f(unsafe { &mut *self.value.get() });
        #[cfg(expiry_loom)]
        // SAFETY: as above; loom checks the claim.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        Some(result)
    }
}
