//! Grace periods: when may memory that readers may still look at be used again, or freed?
//!
//! Two things wait for them. A retired table of the index is put to use again only after every publisher that was pinned
//! at its retirement has gone: a stale publisher's compare-and-swap could succeed on a table that was emptied and put
//! to use again meanwhile. And the node of a keyed entry, which holds its key and value, is freed only after every
//! reader that may have found it has gone (W15).
//!
//! The grace period is crossbeam-epoch's. Under loom a counter stands in for it: nothing is released while anybody is
//! pinned, and everything as soon as nobody is, which is the same promise, used to the full.

#[cfg(not(expiry_loom))]
mod imp {
    /// Holds off everything that is deferred while it lives.
    pub(crate) struct Pin {
        guard: crossbeam_epoch::Guard,
    }

    impl Pin {
        /// Runs `f` some time after everyone who is pinned now has unpinned, on some thread that pins or unpins then.
        ///
        /// # Safety
        ///
        /// `f` may run on any thread, and after anything that it borrows has gone: what it captures must bear both.
        #[inline]
        pub(crate) unsafe fn retire(&self, f: impl FnOnce()) {
            // SAFETY: the caller's.
            unsafe { self.guard.defer_unchecked(f) };
        }
    }

    /// One domain of grace periods.
    #[derive(Clone)]
    pub(crate) struct Grace;

    impl Grace {
        pub(crate) fn new() -> Self {
            Grace
        }

        #[inline]
        pub(crate) fn pin(&self) -> Pin {
            Pin {
                guard: crossbeam_epoch::pin(),
            }
        }

        /// As [`Pin::retire`], handed over at once.
        pub(crate) fn after(&self, f: impl FnOnce() + Send + 'static) {
            let guard = crossbeam_epoch::pin();
            guard.defer(f);
            guard.flush();
        }

        /// Hands over what this thread has retired, and lets due grace periods end. Never waits.
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

    struct Domain {
        pinned: AtomicUsize,
        deferred: Mutex<Vec<Deferred>>,
    }

    impl Domain {
        fn release(&self) {
            let due = {
                // Nothing is added meanwhile: what is in the list was retired by somebody who has unpinned since.
                let mut deferred = self.deferred.lock().unwrap();
                if self.pinned.fetch_add(0, Ordering::AcqRel) != 0 {
                    return;
                }
                std::mem::take(&mut *deferred)
            };
            for f in due {
                f();
            }
        }
    }

    pub(crate) struct Pin(Arc<Domain>);

    impl Pin {
        /// See the other one.
        pub(crate) unsafe fn retire(&self, f: impl FnOnce()) {
            let f: Box<dyn FnOnce() + '_> = Box::new(f);
            // SAFETY: the caller's: what it captures bears to be called at any time, on any thread.
            let f: Deferred = unsafe { std::mem::transmute(f) };
            self.0.deferred.lock().unwrap().push(f);
        }
    }

    impl Drop for Pin {
        fn drop(&mut self) {
            if self.0.pinned.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.0.release();
            }
        }
    }

    #[derive(Clone)]
    pub(crate) struct Grace(Arc<Domain>);

    impl Grace {
        pub(crate) fn new() -> Self {
            Grace(Arc::new(Domain {
                pinned: AtomicUsize::new(0),
                deferred: Mutex::new(Vec::new()),
            }))
        }

        pub(crate) fn pin(&self) -> Pin {
            self.0.pinned.fetch_add(1, Ordering::AcqRel);
            Pin(self.0.clone())
        }

        pub(crate) fn after(&self, f: impl FnOnce() + Send + 'static) {
            self.0.deferred.lock().unwrap().push(Box::new(f));
            self.turn();
        }

        pub(crate) fn turn(&self) {
            self.0.release();
        }
    }
}

pub(crate) use imp::{Grace, Pin};
