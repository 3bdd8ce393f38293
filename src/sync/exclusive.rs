//! [`Exclusive`]: a value that one thread at a time may enter, and for which no thread waits.

use super::{process, AtomicU32, Ordering};
#[cfg(expiry_loom)]
use loom::cell::UnsafeCell;
#[cfg(not(expiry_loom))]
use std::cell::UnsafeCell;

/// A value guarded by a flag that is only ever *tried*.
///
/// This is how a shard's wheel belongs to one driver at a time although any thread may call `poll`.
/// A thread that finds the flag taken gets [`None`]: no operation of the crate blocks on it.
///
/// Orderings: the swap that takes the flag (`Acquire`) pairs with the store that gives it back
/// (`Release`), so each owner sees all that the previous one did.
pub(crate) struct Exclusive<T> {
    /// The process whose thread is inside; 0 if none is.
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: `enter` hands out at most one reference at a time, whichever thread asks; moving that
// access between threads needs `T: Send` and nothing more.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Exclusive { taken: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Whether a thread is inside. This may have changed by the time that the caller knows.
    pub(crate) fn is_taken(&self) -> bool {
        // survives: for the reaper the announcement orders it (`depart`). `Engine::standing_pauses`
        // needs it, by the test `others_expire_while_a_handler_is_slow`.
        self.taken.load(Ordering::Acquire) != 0
    }

    /// Whether a thread was inside when this process was forked. The child has no such thread: the
    /// value is in the midst of a change for ever.
    pub(crate) fn is_lost(&self) -> bool {
        // survives: stronger than needed: another process's number is read only in a child of
        // `fork`, whose threads have it by their spawn; and no thread reads anything behind it.
        let taken = self.taken.load(Ordering::Acquire);
        taken != 0 && taken != process::current()
    }

    /// Runs `f` on the value, or returns `None` at once when another thread is inside.
    ///
    /// A panic in `f` gives the value back as `f` left it.
    pub(crate) fn enter<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        struct GiveBack<'a>(&'a AtomicU32);
        impl Drop for GiveBack<'_> {
            fn drop(&mut self) {
                #[cfg(not(expiry_loom))]
                self.0.store(0, Ordering::Release);
                // Loom does not order this after the swap of a thread that found it taken.
                #[cfg(expiry_loom)]
                self.0.swap(0, Ordering::Release);
            }
        }
        let here = process::current();
        let before = self.taken.swap(here, Ordering::Acquire);
        if before != 0 {
            if before != here {
                // The thread inside was lost in a fork: its mark goes back, for `is_lost`.
                self.taken.swap(before, Ordering::Relaxed);
            }
            return None;
        }
        let _give_back = GiveBack(&self.taken);
        #[cfg(not(expiry_loom))]
        // SAFETY: the flag was 0 and is not now: no other reference exists until it is given back.
        let result = f(unsafe { &mut *self.value.get() });
        #[cfg(expiry_loom)]
        // SAFETY: as above; loom checks the claim.
        let result = self.value.with_mut(|value| f(unsafe { &mut *value }));
        Some(result)
    }
}
