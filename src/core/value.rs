//! Plain values in slots: one thread puts a value in, and one thread takes it out.

use super::memory::ZeroValid;
use super::slot::{Payload, Slot};
use crate::sync::AtomicU32;
use std::marker::PhantomData;
#[cfg(not(expiry_loom))]
use std::mem::{align_of, size_of};

/// A payload that is a plain value, with a hash in the word beside it, and an `X` for the few slots
/// that need one. With `STAY` the word [stays](Payload::NOTES_STAY).
pub(crate) struct Owned<T, X, const STAY: bool = false>(PhantomData<fn() -> (T, X)>);

// SAFETY: the accessors below read and write a `Place<T>`, which is empty under a `FREE` lease.
unsafe impl<T: 'static, X: ZeroValid + 'static, const STAY: bool> Payload for Owned<T, X, STAY> {
    const NOTES_STAY: bool = STAY;
    const SIZE: usize = Place::<T>::SIZE;
    const ALIGN: usize = Place::<T>::ALIGN;
    type Note = AtomicU32;
    type Term = X;
    #[cfg(expiry_loom)]
    type Cell = Place<T>;
}

/// # Conditions
///
/// The lease says which thread may do what; see the head of [`slot`](super::slot).
impl<T: 'static, X: ZeroValid + 'static, const STAY: bool> Slot<'_, Owned<T, X, STAY>> {
    #[cfg(not(expiry_loom))]
    #[inline(always)]
    fn place(self) -> Place<T> {
        // SAFETY: the payload is the place.
        unsafe { Place::at(self.payload()) }
    }

    #[cfg(expiry_loom)]
    fn place<'a>(self) -> &'a Place<T>
    where
        Self: 'a,
    {
        self.cell()
    }

    /// Puts the payload in.
    ///
    /// # Safety
    ///
    /// As [`Place::put`].
    #[inline(always)]
    pub(crate) unsafe fn put(self, value: T) {
        // SAFETY: the caller's.
        unsafe { self.place().put(value) }
    }

    /// The payload.
    ///
    /// # Safety
    ///
    /// As [`Place::value`].
    #[inline(always)]
    pub(crate) unsafe fn value<'v>(self) -> &'v T {
        // SAFETY: the caller's.
        unsafe { self.place().value() }
    }

    /// Takes the payload out.
    ///
    /// # Safety
    ///
    /// As [`Place::take`].
    #[inline(always)]
    pub(crate) unsafe fn take(self) -> T {
        // SAFETY: the caller's.
        unsafe { self.place().take() }
    }
}

/// Where a slot's value lies, or a pointer to it if size or alignment exceeds [`LARGEST`].
#[cfg(not(expiry_loom))]
pub(crate) struct Place<T>(*mut u8, PhantomData<fn() -> T>);

/// A value of more bytes, or of a greater alignment, is boxed: a decision at compile time.
#[cfg(not(expiry_loom))]
const LARGEST: usize = 64;

#[cfg(not(expiry_loom))]
impl<T> Place<T> {
    const BOXED: bool = size_of::<T>() > LARGEST || align_of::<T>() > LARGEST;
    pub(crate) const SIZE: usize = if Self::BOXED { size_of::<*mut T>() } else { size_of::<T>() };
    pub(crate) const ALIGN: usize =
        if Self::BOXED { align_of::<*mut T>() } else { align_of::<T>() };

    /// # Safety
    ///
    /// At `at` is room of that size and alignment, in a slot that stays while the place is used.
    #[inline(always)]
    pub(crate) unsafe fn at(at: *mut u8) -> Self {
        Place(at, PhantomData)
    }

    /// Puts a value in.
    ///
    /// # Safety
    ///
    /// The caller owns the slot, and there is no value in it.
    #[inline(always)]
    pub(crate) unsafe fn put(self, value: T) {
        // SAFETY: the caller's alone; of that size and alignment.
        unsafe {
            if Self::BOXED {
                self.0.cast::<*mut T>().write(Box::into_raw(Box::new(value)));
            } else {
                self.0.cast::<T>().write(value);
            }
        }
    }

    /// The value.
    ///
    /// # Safety
    ///
    /// The caller owns the slot, or has been pinned since before it found the slot published, for
    /// as long as the reference is used.
    #[inline(always)]
    pub(crate) unsafe fn value<'v>(self) -> &'v T {
        // SAFETY: put there before the lease was published, and not taken before all threads that
        // are pinned have unpinned.
        unsafe {
            if Self::BOXED {
                &**self.0.cast::<*mut T>()
            } else {
                &*self.0.cast::<T>()
            }
        }
    }

    /// Takes the value out.
    ///
    /// # Safety
    ///
    /// The caller owns the slot, no thread looks at the value now or later, and this is done once.
    #[inline(always)]
    pub(crate) unsafe fn take(self) -> T {
        // SAFETY: the caller's alone.
        unsafe {
            if Self::BOXED {
                *Box::from_raw(self.0.cast::<*mut T>().read())
            } else {
                self.0.cast::<T>().read()
            }
        }
    }
}

#[cfg(expiry_loom)]
pub(crate) use cell::Place;

#[cfg(expiry_loom)]
mod cell {
    use super::{AtomicU32, ZeroValid};
    use crate::sync::Ordering;
    use loom::cell::UnsafeCell;

    /// A value under loom, which checks the order of reads and the taking. Loom interrupts a thread
    /// only at atomic accesses, so puts and takings access the second field.
    pub(crate) struct Place<T>(UnsafeCell<Option<T>>, AtomicU32);

    // SAFETY: as the slot's: shared access is by `value`, the others are the owner's. Each store
    // says for which values threads may share it.
    unsafe impl<T> Sync for Place<T> {}

    // SAFETY: nothing is in it.
    unsafe impl<T> ZeroValid for Place<T> {
        fn zeroed() -> Self {
            Place(UnsafeCell::new(None), AtomicU32::new(0))
        }
        fn zero(&self) {}
    }

    impl<T> Place<T> {
        pub(crate) const SIZE: usize = 0;
        pub(crate) const ALIGN: usize = 1;

        fn change<R>(&self, change: impl FnOnce(*mut Option<T>) -> R) -> R {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.with_mut(change)
        }

        pub(crate) unsafe fn put(&self, value: T) {
            // SAFETY: the caller's alone, which loom checks.
            let before = self.change(|cell| unsafe { (*cell).replace(value) });
            assert!(before.is_none(), "a value was still there");
        }

        pub(crate) unsafe fn value<'v>(&self) -> &'v T {
            // SAFETY: no thread writes meanwhile, which loom checks.
            let value: *const Option<T> = self.0.with(|cell| cell);
            // SAFETY: as above.
            unsafe { (*value).as_ref() }.expect("a value")
        }

        pub(crate) unsafe fn take(&self) -> T {
            // SAFETY: the caller's alone, which loom checks.
            let value = self.change(|cell| unsafe { (*cell).take() });
            value.expect("a value")
        }
    }
}
