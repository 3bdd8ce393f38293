//! A cell for what readers may look at until a grace period has passed: loom checks that they do not do so later.

#[cfg(not(expiry_loom))]
mod imp {
    /// A value that is only read until it is taken.
    #[repr(transparent)]
    pub(crate) struct Kept<T>(T);

    impl<T> Kept<T> {
        pub(crate) fn new(value: T) -> Self {
            Kept(value)
        }

        #[inline(always)]
        pub(crate) fn get(&self) -> &T {
            &self.0
        }

        pub(crate) fn into_inner(self) -> T {
            self.0
        }
    }
}

#[cfg(expiry_loom)]
mod imp {
    use loom::cell::UnsafeCell;

    /// See the other one. A look counts as a read, taking it as a write: they must be in order.
    pub(crate) struct Kept<T>(UnsafeCell<Option<T>>);

    // SAFETY: shared access is by `get` only, taking by value.
    unsafe impl<T: Sync> Sync for Kept<T> {}
    // SAFETY: owns its value.
    unsafe impl<T: Send> Send for Kept<T> {}

    impl<T> Kept<T> {
        pub(crate) fn new(value: T) -> Self {
            Kept(UnsafeCell::new(Some(value)))
        }

        pub(crate) fn get(&self) -> &T {
            // SAFETY: nobody writes before it is taken by value, which loom checks.
            let value: &Option<T> = self.0.with(|value| unsafe { &*value });
            value.as_ref().expect("not taken yet")
        }

        pub(crate) fn into_inner(self) -> T {
            // SAFETY: taken by value: nobody else has it, which loom checks.
            self.0.with_mut(|value| unsafe { (*value).take() }).expect("not taken yet")
        }
    }
}

pub(crate) use imp::Kept;
