//! Grace periods: when is memory that other threads may still look at free to go?
//!
//! Two things wait for one. The slots of ended entries, of which a reader may hold a reference
//! (W15). And a retired table of an index, in which a stale publisher's compare-and-swap could
//! succeed once the table is in use again.
//!
//! A grace period only *says* that it is over, by a flag: no code of the user's runs in it. Each
//! engine has a domain of its own, so a thread that stays pinned in one store holds back no other
//! store's memory. A thread's handle lies in its stripe of that store ([`Seat`]), and goes to the
//! next thread that gets the stripe.
//!
//! The grace period is crossbeam-epoch's. Under loom a stand-in orders what the real one orders,
//! and no more:
//!
//! * A pin is a relaxed read-modify-write and a sequentially consistent fence; an unpin is a
//!   release.
//! * A period begins with such a fence. It waits for the pins that its thread sees after the fence,
//!   and for no pin that comes later. The real one may let a later reader pass its end, too.
//! * The thread that ends a period makes such a fence, reads those pins relaxed, and makes an
//!   acquire fence.

#[cfg(not(expiry_loom))]
mod imp {
    use crossbeam_epoch::{Collector, Guard as Inner, LocalHandle};
    use std::cell::UnsafeCell;

    /// One domain of grace periods.
    pub(crate) struct Grace(Collector);

    /// Where a thread's handle to a domain is kept.
    pub(crate) struct Seat(UnsafeCell<Option<LocalHandle>>);

    // SAFETY: only the thread that has the seat touches the handle (`Grace::pin`). A handle is
    // plain memory that must not be used by two threads at a time; the next thread that gets the
    // seat sees what the last one did.
    unsafe impl Sync for Seat {}
    // SAFETY: as above.
    unsafe impl Send for Seat {}

    /// Holds off the end of grace periods that begin later, while it lives.
    pub(crate) struct Guard(Inner);

    impl Guard {
        /// Runs `f` after all threads that are pinned now have unpinned, on a thread that pins,
        /// unpins or turns then.
        pub(crate) fn after(&self, f: impl FnOnce() + Send + 'static) {
            self.0.defer(f);
            self.0.flush();
        }
    }

    impl Seat {
        pub(crate) fn new() -> Self {
            Seat(UnsafeCell::new(None))
        }

        /// Whether nothing waits; for tests in which no thread pins meanwhile.
        #[cfg(test)]
        pub(crate) fn is_empty(&self) -> bool {
            // SAFETY: no thread changes it.
            unsafe { &*self.0.get() }.is_none()
        }

        /// Takes the handle out of the domain, which looks at each handle in it whenever a period
        /// is to end. What its threads have deferred goes to the domain.
        ///
        /// # Safety
        ///
        /// The seat is the calling thread's alone, and no guard of it lives.
        pub(crate) unsafe fn clear(&self) {
            // SAFETY: the caller's alone.
            drop(unsafe { &mut *self.0.get() }.take());
        }
    }

    impl Grace {
        pub(crate) fn new() -> Self {
            Grace(Collector::new())
        }

        /// # Safety
        ///
        /// The seat is the calling thread's, for as long as the guard lives, and of this domain.
        #[inline(always)]
        pub(crate) unsafe fn pin(&self, seat: &Seat) -> Guard {
            // SAFETY: the caller's alone.
            let handle = unsafe { &mut *seat.0.get() };
            match handle {
                Some(handle) => Guard(handle.pin()),
                None => self.sit_down(handle),
            }
        }

        #[cold]
        #[inline(never)]
        fn sit_down(&self, handle: &mut Option<LocalHandle>) -> Guard {
            Guard(handle.insert(self.0.register()).pin())
        }

        /// Lets a due grace period end. Never waits.
        ///
        /// # Safety
        ///
        /// As [`pin`](Self::pin).
        pub(crate) unsafe fn turn(&self, seat: &Seat) {
            // SAFETY: the caller's.
            unsafe { self.pin(seat) }.0.flush();
        }
    }
}

#[cfg(expiry_loom)]
mod imp {
    use crate::sync::{fence, AtomicUsize, Ordering};
    use std::cell::{Cell, OnceCell};
    use std::sync::atomic::AtomicUsize as Number;
    use std::sync::Arc;

    /// As many threads as loom has.
    const THREADS: usize = 5;

    struct Local {
        /// How often its thread has pinned and unpinned: odd while it is pinned.
        turns: AtomicUsize,
        /// Number of guards that the seat's own thread has.
        guards: Cell<usize>,
    }

    // SAFETY: `guards` is the own thread's.
    unsafe impl Sync for Local {}
    // SAFETY: as above.
    unsafe impl Send for Local {}

    /// What is to be run when a grace period is over.
    struct Deferred {
        /// The pins that it waits for: a thread's number, and its `turns` when the period began.
        pins: Vec<(usize, usize)>,
        run: Box<dyn FnOnce() + Send>,
    }

    struct Domain {
        locals: [Local; THREADS],
        taken: Number,
        deferred: loom::sync::Mutex<Vec<Deferred>>,
    }

    impl Domain {
        fn turns(&self, local: usize) -> usize {
            self.locals[local].turns.load(Ordering::Relaxed)
        }

        /// The pins that the calling thread sees.
        fn pins(&self) -> Vec<(usize, usize)> {
            fence(Ordering::SeqCst);
            // Seats that no thread has taken are not pinned yet.
            let taken = self.taken.load(std::sync::atomic::Ordering::Relaxed);
            let pins = (0..taken).map(|local| (local, self.turns(local)));
            pins.filter(|(_, turns)| turns % 2 == 1).collect()
        }
    }

    pub(crate) struct Grace(Arc<Domain>);

    pub(crate) struct Seat(OnceCell<usize>);

    // SAFETY: as the other one.
    unsafe impl Sync for Seat {}
    // SAFETY: as the other one.
    unsafe impl Send for Seat {}

    pub(crate) struct Guard {
        domain: Arc<Domain>,
        local: usize,
    }

    impl Guard {
        pub(crate) fn after(&self, f: impl FnOnce() + Send + 'static) {
            let mut deferred = self.domain.deferred.lock().unwrap();
            deferred.push(Deferred { pins: self.domain.pins(), run: Box::new(f) });
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            let local = &self.domain.locals[self.local];
            let guards = local.guards.get() - 1;
            local.guards.set(guards);
            if guards == 0 {
                local.turns.fetch_add(1, Ordering::Release);
            }
        }
    }

    impl Seat {
        pub(crate) fn new() -> Self {
            Seat(OnceCell::new())
        }
    }

    impl Grace {
        pub(crate) fn new() -> Self {
            Grace(Arc::new(Domain {
                locals: std::array::from_fn(|_| Local {
                    turns: AtomicUsize::new(0),
                    guards: Cell::new(0),
                }),
                taken: Number::new(0),
                deferred: loom::sync::Mutex::new(Vec::new()),
            }))
        }

        pub(crate) unsafe fn pin(&self, seat: &Seat) -> Guard {
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            let at = *seat.0.get_or_init(|| self.0.taken.fetch_add(1, relaxed));
            let local = &self.0.locals[at];
            local.guards.set(local.guards.get() + 1);
            if local.guards.get() == 1 {
                // A pin goes on with the release of the unpin before it: the thread that ends a
                // period may see the later pin only. Crossbeam makes it a read-modify-write, too.
                local.turns.fetch_add(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
            }
            Guard { domain: self.0.clone(), local: at }
        }

        pub(crate) unsafe fn turn(&self, _: &Seat) {
            let due: Vec<Deferred> = {
                let mut deferred = self.0.deferred.lock().unwrap();
                if deferred.is_empty() {
                    return;
                }
                fence(Ordering::SeqCst);
                let is_held = |&(local, turns): &(usize, usize)| self.0.turns(local) == turns;
                for waiting in deferred.iter_mut() {
                    waiting.pins.retain(is_held);
                }
                fence(Ordering::Acquire);
                let (due, left) = std::mem::take(&mut *deferred)
                    .into_iter()
                    .partition(|waiting| waiting.pins.is_empty());
                *deferred = left;
                due
            };
            for waiting in due {
                (waiting.run)();
            }
        }
    }
}

pub(crate) use imp::{Grace, Guard, Seat};
