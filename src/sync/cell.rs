//! Cells for what one thread puts in and another takes: loom checks that the taking comes after.

#[cfg(not(expiry_loom))]
mod imp {
    use std::cell::UnsafeCell;
    use std::mem::ManuallyDrop;

    /// A value in a shared place, which leaves it once. It is not dropped with the place.
    #[repr(transparent)]
    pub(crate) struct Given<T>(UnsafeCell<ManuallyDrop<T>>);

    impl<T> Given<T> {
        pub(crate) fn new(value: T) -> Self {
            Given(UnsafeCell::new(ManuallyDrop::new(value)))
        }

        /// The value, where no other thread has come to it.
        pub(crate) fn into_inner(self) -> T {
            ManuallyDrop::into_inner(self.0.into_inner())
        }

        /// Takes the value out.
        ///
        /// # Safety
        ///
        /// Done once, by the thread that put the value in, or by one that has seen it put in.
        pub(crate) unsafe fn take(&self) -> T {
            // SAFETY: the caller's: no other thread touches the value.
            unsafe { ManuallyDrop::take(&mut *self.0.get()) }
        }

        /// Lends the value.
        ///
        /// # Safety
        ///
        /// The caller has seen the value put in, and no thread takes it meanwhile. Threads that
        /// borrow it at once need a `T` that is `Sync`.
        pub(crate) unsafe fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
            // SAFETY: the caller's.
            f(unsafe { &*self.0.get() })
        }
    }
}

#[cfg(expiry_loom)]
mod imp {
    use loom::cell::UnsafeCell;

    /// As above. Taking the value counts as a write, which must come after `new`. A value that no
    /// thread takes is dropped here, which models notice.
    pub(crate) struct Given<T>(UnsafeCell<Option<T>>);

    impl<T> Given<T> {
        pub(crate) fn new(value: T) -> Self {
            Given(UnsafeCell::new(Some(value)))
        }

        pub(crate) fn into_inner(self) -> T {
            // SAFETY: taken by value: no other thread has it.
            unsafe { self.take() }
        }

        pub(crate) unsafe fn take(&self) -> T {
            // SAFETY: no other thread touches the value meanwhile, which loom checks.
            self.0.with_mut(|value| unsafe { (*value).take() }).expect("not taken yet")
        }

        pub(crate) unsafe fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
            // SAFETY: no thread takes the value meanwhile, which loom checks.
            self.0.with(|value| f(unsafe { &*value }.as_ref().expect("not taken yet")))
        }
    }
}

// SAFETY: one thread puts the value in, and one takes it. Threads borrow it only if `T` is `Sync`.
unsafe impl<T: Send> Sync for Given<T> {}

pub(crate) use imp::Given;
