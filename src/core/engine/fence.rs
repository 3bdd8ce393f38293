//! Two things that threads do without a read-modify-write: register an entry, and ask whether a
//! shutdown has begun. Each stores, then loads; the driver's [`Barrier`] is the fence in between.
//!
//! [`timeouts`](crate::timeouts), trackers and pending tables register this way, and keyed stores by
//! a read-modify-write.
//!
//! # Registering
//!
//! ```text
//!   the thread that makes an entry                   the driver
//!   lease := LIVE, deadline d                        n := next.take()
//!   light                                            heavy
//!   next covers d: that is all                       scan the block's leases
//!   if not: next.lower(d), as a keyed store does
//! ```
//!
//! If the light side comes before the heavy one, the scan finds the lease. If not, the thread finds
//! the block's next expiration taken, or a value that another thread has put there since. The next
//! scan takes that value, behind a heavy side of its own. A next expiration *covers* `d` if it is
//! no later and has the dirty bit, so that the scan will look at all slots. A shutdown closes the
//! block's next expiration, and a closed one covers nothing.
//!
//! # Asking whether a shutdown has begun
//!
//! ```text
//!   the thread that is about to end a root           the shutdown
//!   undelivered := 1       (in its stripe)           closing := true
//!   light                                            heavy
//!   not closing: end the root by a swap              scan, and wait for undelivered = 0
//! ```
//!
//! If the light side comes before the heavy one, the shutdown sees the root, and that its outcome
//! is on its way. If not, the thread finds that a shutdown has begun. It leaves the root to the
//! shutdown, or to the root's init, which finds its block closed (R6).

use crate::core::header::Header;
use crate::sync::asymmetric::Barrier;
use crate::sync::{fence, AtomicBool, Ordering};

/// The driver's [`Barrier`], and the flag of a shutdown.
pub(crate) struct Fence {
    /// Off in keyed stores.
    barrier: Barrier,
    /// Whether a shutdown has begun to end entries.
    closing: AtomicBool,
}

impl Fence {
    pub(super) fn new(wanted: bool) -> Self {
        Fence { barrier: Barrier::new(wanted), closing: AtomicBool::new(false) }
    }

    /// Whether the driver makes the heavy side before it scans.
    #[inline]
    pub(super) fn exists(&self) -> bool {
        self.barrier.was_on()
    }

    /// Whether the block covers the lease just set, to expire at `tick`: no notice is needed.
    #[inline(always)]
    pub(super) fn is_covered(&self, header: &Header, tick: u64) -> bool {
        if !self.barrier.is_on() {
            return false;
        }
        Barrier::light();
        header.next.covers(tick)
    }

    /// Called after the driver has taken the next expirations of blocks, or a shutdown has closed
    /// them, and before the scan of their leases. `t7_register_beside_a_scan` and
    /// `t4_shutdown_and_register_beside_another` fail without it.
    pub(super) fn before_scan(&self) {
        self.barrier.heavy();
    }

    /// Called when a shutdown begins, before it ends entries.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.barrier.heavy();
        // survives: models that end roots beside a shutdown have the fence of two sides.
        if !self.barrier.is_on() {
            fence(Ordering::SeqCst);
        }
    }

    /// Whether a shutdown has begun. It ends the live entries that it sees; the claimer of any
    /// other finds its block closed, and ends it. If none has begun, it will see all that this
    /// thread has done before: the light side comes before the heavy one of [`close`](Self::close).
    #[inline(always)]
    pub(crate) fn is_closing(&self) -> bool {
        // survives: the models of R6 do not fail without either. A thread that scans a root after
        // this one has ended it reads that from the lease. Left are roots that the index leads to
        // only after the scan: the announcement of their end is no atomic of loom's.
        if self.barrier.is_on() {
            Barrier::light();
        } else {
            fence(Ordering::SeqCst);
        }
        self.closing.load(Ordering::Relaxed)
    }

    /// For tests: the system refuses the fence from now on.
    #[cfg(all(test, feature = "async"))]
    pub(crate) fn forget(&self) {
        self.barrier.heavy_by(|| false);
    }
}
