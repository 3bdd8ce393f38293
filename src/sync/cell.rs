//! A cell for what one thread puts in and another takes: loom checks that the taking comes after.

#[cfg(not(expiry_loom))]
mod imp {
    /// A value that is not looked at until it is taken.
    #[repr(transparent)]
    pub(crate) struct Kept<T>(T);

    impl<T> Kept<T> {
        pub(crate) fn new(value: T) -> Self {
            Kept(value)
        }

        pub(crate) fn into_inner(self) -> T {
            self.0
        }
    }
}

#[cfg(expiry_loom)]
mod imp {
    use loom::cell::UnsafeCell;

    /// See the other one. Taking the value counts as a write, which must come after `new`.
    pub(crate) struct Kept<T>(UnsafeCell<Option<T>>);

    impl<T> Kept<T> {
        pub(crate) fn new(value: T) -> Self {
            Kept(UnsafeCell::new(Some(value)))
        }

        pub(crate) fn into_inner(self) -> T {
            // SAFETY: taken by value: no other thread has it, which loom checks.
            self.0.with_mut(|value| unsafe { (*value).take() }).expect("not taken yet")
        }
    }
}

pub(crate) use imp::Kept;
