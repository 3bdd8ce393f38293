//! Times to idle: entries that end unless somebody uses them.
//!
//! Such an entry has a [`Policy`]: its time to idle, and the *bound* that its time to live sets. Its lease's deadline is the
//! nearer of the bound and the last use plus the time to idle. Deadlines are ticks: of the reads in one interval only the
//! first changes anything.
//!
//! A touch changes the bound and then the deadline, which are two words. So whoever has swapped the lease looks at the bound
//! again, and if it is another than before, goes by that one; and a touch swaps the lease even where the deadline stays the
//! same. Of a touch and a read that meet either the read's swap comes first, and makes the touch's fail; or the touch's does, and
//! the read, which has read it, finds the new bound. When all have returned the deadline is not after the bound that was set
//! last, and not before any use plus the time to idle, unless the bound is.

use super::node::Node;
use super::store::{Found, Store};
use crate::core::lease::{Lease, State};
use crate::sync::{AtomicU64, Ordering};

/// What governs an entry with a time to idle.
pub(crate) struct Policy {
    /// In nanoseconds.
    idle: u64,
    /// The tick at which its time to live is up, used or not.
    bound: AtomicU64,
}

impl Policy {
    pub(crate) fn new(idle: u64, bound: u64) -> Self {
        Policy {
            idle,
            bound: AtomicU64::new(bound),
        }
    }
}

impl<K: 'static, V: 'static, S> Store<K, V, S> {
    /// What governs an entry's time to idle. The caller was pinned when it found the entry, and still is.
    #[inline(always)]
    pub(super) fn policy<'a>(&self, found: &Found<'a>) -> Option<&'a Policy> {
        // SAFETY: published when it was found, after the pin.
        unsafe { Node::<K, V>::policy(found.word) }
    }

    /// The tick at which something used now has been idle for so many nanoseconds.
    pub(super) fn idle_until(&self, idle: u64) -> u64 {
        let (now, lag) = self.engine.now_for_deadline();
        self.engine.ticks.deadline(now, idle.saturating_add(lag))
    }

    /// An entry with a time to idle is used. False if it has ended meanwhile, or got another value.
    #[inline]
    pub(super) fn used(&self, found: &Found<'_>, policy: &Policy) -> bool {
        self.renew_idle(found, policy, false)
    }

    /// As [`used`](Self::used), and from now on `bound` is when its time to live is up.
    pub(super) fn rebound(&self, found: &Found<'_>, policy: &Policy, bound: u64) -> bool {
        // Published by the swap of the lease, as all that is read of it is ordered by one.
        policy.bound.store(bound, Ordering::Relaxed);
        self.renew_idle(found, policy, true)
    }

    /// Sets the deadline of an entry that is used now; `swaps` the lease even if that does not change it.
    fn renew_idle(&self, found: &Found<'_>, policy: &Policy, mut swaps: bool) -> bool {
        let idle_until = self.idle_until(policy.idle);
        let mut lease = found.lease;
        let mut bound = policy.bound.load(Ordering::Relaxed);
        while self.is_still(found, lease) {
            // Others may have used it later than this.
            let latest = idle_until.max(lease.deadline_near(idle_until));
            let deadline = latest.min(bound);
            let renewed = lease.with_deadline(deadline);
            if swaps || renewed != lease {
                match found.slot.swap_lease(lease, renewed) {
                    Ok(()) => {
                        swaps = false;
                        self.engine.shortened(found.id, lease, deadline);
                        lease = renewed;
                    }
                    Err(now) => lease = now,
                }
            }
            let before = bound;
            bound = policy.bound.load(Ordering::Relaxed);
            if lease == renewed && bound == before && !swaps {
                return true;
            }
        }
        false
    }

    /// Whether this lease is still the found entry's, and it lives.
    #[inline]
    fn is_still(&self, found: &Found<'_>, lease: Lease) -> bool {
        lease.incarnation() == found.lease.incarnation() && lease.state() == State::Live
    }
}
