//! Grace periods: when may the memory of a retired index table be used again?
//!
//! Only threads that publish a chosen id in the index hold a [`Pin`]; look-ups, acks and removals do
//! not need one, because index memory is never unmapped while the engine lives and a stale reader
//! validates what it finds. A stale *publisher* would be harmful: its compare-and-swap could succeed
//! on a table that was emptied and put to use again in the meantime. So a retired table is put to use
//! again only after every publisher that was pinned at its retirement has gone.
//!
//! The grace period is crossbeam-epoch's. Under loom a counter stands in for it: nothing is released
//! while anybody is pinned, which is the same promise with less concurrency, checked by the models.

#[cfg(not(expiry_loom))]
mod imp {
    /// Holds off every [`Grace::after`] that is asked for while it lives.
    pub(crate) struct Pin {
        _guard: crossbeam_epoch::Guard,
    }

    /// One domain of grace periods.
    pub(crate) struct Grace;

    impl Grace {
        pub(crate) fn new() -> Self {
            Grace
        }

        #[inline]
        pub(crate) fn pin(&self) -> Pin {
            Pin {
                _guard: crossbeam_epoch::pin(),
            }
        }

        /// Runs `f` some time after everyone who is pinned now has unpinned, on some thread.
        pub(crate) fn after(&self, f: impl FnOnce() + Send + 'static) {
            let guard = crossbeam_epoch::pin();
            guard.defer(f);
            guard.flush();
        }

        /// Lets due grace periods end. Never waits.
        pub(crate) fn turn(&self) {
            crossbeam_epoch::pin().flush();
        }
    }
}

#[cfg(expiry_loom)]
mod imp {
    use crate::sync::{AtomicUsize, Ordering};
    use loom::sync::{Arc, Mutex};

    type Deferred = Box<dyn FnOnce() + Send>;

    pub(crate) struct Pin {
        pinned: Arc<AtomicUsize>,
    }

    impl Drop for Pin {
        fn drop(&mut self) {
            self.pinned.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) struct Grace {
        pinned: Arc<AtomicUsize>,
        deferred: Mutex<Vec<Deferred>>,
    }

    impl Grace {
        pub(crate) fn new() -> Self {
            Grace {
                pinned: Arc::new(AtomicUsize::new(0)),
                deferred: Mutex::new(Vec::new()),
            }
        }

        pub(crate) fn pin(&self) -> Pin {
            self.pinned.fetch_add(1, Ordering::AcqRel);
            Pin {
                pinned: self.pinned.clone(),
            }
        }

        pub(crate) fn after(&self, f: impl FnOnce() + Send + 'static) {
            self.deferred.lock().unwrap().push(Box::new(f));
            self.turn();
        }

        pub(crate) fn turn(&self) {
            if self.pinned.fetch_add(0, Ordering::AcqRel) == 0 {
                let due = std::mem::take(&mut *self.deferred.lock().unwrap());
                for f in due {
                    f();
                }
            }
        }
    }
}

pub(crate) use imp::{Grace, Pin};
