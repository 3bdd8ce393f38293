//! Times to idle: entries that end unless they are used.
//!
//! The lease of such an entry is `LIVE_IDLE`, and a [`Policy`] beside its slot has its time to
//! idle, and the *bound* that its time to live sets. The lease's deadline is the nearer of the
//! bound and the last use plus the time to idle. Deadlines are ticks, so of the reads in one
//! interval only the first changes the lease.
//!
//! A touch changes the bound and then the deadline, which are two words. A thread that has swapped
//! the lease looks at the bound again, and sets the deadline anew if the bound has changed. A touch
//! changes the lease even where the deadline stays the same ([`Lease::counted`]). So if a touch and
//! a read meet, either the read's swap comes first, and the touch's fails; or the touch's comes
//! first, and the read finds the new bound. A replacement that keeps the bound fails beside a touch
//! in the same way. When all calls have returned, the deadline is not after the bound that was set
//! last. It is no earlier than the last use plus the time to idle, or than the bound if that is
//! earlier.

use super::store::{Found, Store};
use crate::core::engine::{BadTimeout, Look};
use crate::core::lease::{Lease, State};
use crate::core::memory::ZeroValid;
use crate::sync::{AtomicU64, Ordering};
use crate::time::{Lifetime, NEVER};

/// What governs an entry with a time to idle.
pub(crate) struct Policy {
    /// In nanoseconds.
    idle: AtomicU64,
    /// The entry's [`Bound`].
    bound: AtomicU64,
    /// The entry's weight, in a map that weighs.
    pub(super) weight: AtomicU64,
}

/// The tick at which an entry's time to live is up, used or not, in the lower 56 bits. The
/// upper 8 count the touches that have made it nearer, as a lease counts them
/// ([`Lease::with_deadline`]).
#[derive(Clone, Copy)]
struct Bound(u64);

impl Bound {
    const TICKS: u64 = (1 << 56) - 1;

    fn tick(self) -> u64 {
        match self.0 & Self::TICKS {
            Self::TICKS => NEVER,
            tick => tick,
        }
    }

    /// The bound that a touch sets in place of this one.
    fn moved(self, tick: u64) -> Self {
        let lowered = u64::from(tick < self.tick()) << 56;
        let counted = self.0.wrapping_add(lowered) & !Self::TICKS;
        // A clock reading in nanoseconds is less than 2^51 ticks.
        Bound(counted | tick.min(Self::TICKS))
    }
}

// SAFETY: three atomics, valid as zeroes.
unsafe impl ZeroValid for Policy {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        Policy { idle: AtomicU64::new(0), bound: AtomicU64::new(0), weight: AtomicU64::new(0) }
    }
    fn zero(&self) {
        // survives: no model gives the memory of such entries back.
        self.idle.store(0, Ordering::Release);
        self.bound.store(0, Ordering::Release);
        self.weight.store(0, Ordering::Release);
    }
}

/// When an entry that begins now ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    pub(super) deadline: u64,
    /// Its time to idle in nanoseconds, if it has one, and its bound.
    pub(super) idle: Option<(u64, u64)>,
    /// An entry that takes the place of another one has that one's term instead.
    pub(super) keeps: bool,
}

impl Term {
    /// Makes the term of an entry without a time to idle.
    pub(super) fn until(deadline: u64) -> Self {
        Term { deadline, idle: None, keeps: false }
    }
}

impl Policy {
    /// Notes what governs an entry on its way in. Its lease publishes this.
    pub(super) fn set(&self, (idle, bound): (u64, u64)) {
        self.idle.store(idle, Ordering::Relaxed);
        self.bound.store(Bound(0).moved(bound).0, Ordering::Relaxed);
    }

    fn bound(&self) -> Bound {
        Bound(self.bound.load(Ordering::Relaxed))
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// What governs an entry's time to idle, if it has one.
    #[inline(always)]
    pub(super) fn policy(&self, found: &Found<'_, K, V>) -> Option<&Policy> {
        if !found.lease.is(State::LiveIdle) {
            return None;
        }
        Some(self.engine.slots.spot(found.id)?.term)
    }

    /// The term that an entry has by the lease with which it was found.
    #[cold]
    #[inline(never)]
    pub(super) fn term_of(&self, found: Found<'_, K, V>) -> Term {
        let deadline = self.engine.deadlines.of(found.lease);
        let policy = self.policy(&found);
        let idle =
            policy.map(|policy| (policy.idle.load(Ordering::Relaxed), policy.bound().tick()));
        Term { deadline, idle, keeps: true }
    }

    /// The tick at which something used now has been idle for so many nanoseconds.
    pub(super) fn idle_until(&self, idle: u64) -> u64 {
        let (now, lag) = self.engine.deadlines.now_for(idle);
        self.engine.deadlines.ticks().deadline(now, idle.saturating_add(lag))
    }

    /// An entry is used: its time to idle, if it has one, begins anew. False if it has ended.
    #[inline(never)]
    pub(super) fn prolong(&self, found: Found<'_, K, V>) -> bool {
        let policy = self.policy(&found);
        policy.map_or(true, |policy| self.renew_idle(&found, policy, false))
    }

    /// [`prolong`](Self::prolong), and the time to live begins anew. The new bound is computed
    /// after the old one was read, as a lease's deadline is.
    pub(super) fn rebound(
        &self,
        found: &Found<'_, K, V>,
        policy: &Policy,
        timeout: Lifetime,
    ) -> Result<bool, BadTimeout> {
        let mut look = Look::First;
        // survives: models' clocks are standard atomics. A touch reads the clock after the old
        // bound, or an older reading could make the bound nearer. The swap survives, too.
        let mut held = Bound(policy.bound.load(Ordering::Acquire));
        loop {
            let times = (timeout, self.timeout);
            let Some(bound) = self.engine.renewed_over(|| held.tick(), look, times)? else {
                // Another touch, which has come since, has set a later one.
                return Ok(self.renew_idle(found, policy, true));
            };
            // The swap of the lease publishes the bound, too: such a swap orders each read of it.
            let swapped = policy.bound.compare_exchange(
                held.0,
                held.moved(bound).0,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match swapped {
                Ok(_) => return Ok(self.renew_idle(found, policy, true)),
                Err(now) => (held, look) = (Bound(now), Look::Again),
            }
        }
    }

    /// Sets the deadline of an entry that is used now. With `swaps` it changes the lease even if
    /// that stays.
    fn renew_idle(&self, found: &Found<'_, K, V>, policy: &Policy, mut swaps: bool) -> bool {
        let idle_until = self.idle_until(policy.idle.load(Ordering::Relaxed));
        let idle_until = idle_until.min(self.engine.deadlines.furthest());
        let mut lease = found.lease;
        let mut bound = policy.bound().tick();
        while Self::is_still(found, lease) {
            // Other threads may have used it later than this one.
            let latest = idle_until.max(self.engine.deadlines.of(lease));
            let deadline = latest.min(bound);
            let mut renewed = lease.with_deadline(deadline);
            if swaps && renewed == lease {
                renewed = lease.counted();
            }
            if renewed != lease {
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
            bound = policy.bound().tick();
            if lease == renewed && bound == before && !swaps {
                return true;
            }
        }
        false
    }

    /// Whether this lease is still the found entry's, and it lives. The caller is pinned:
    /// the slot has no other occupant.
    #[inline]
    fn is_still(found: &Found<'_, K, V>, lease: Lease) -> bool {
        lease.generation() == found.lease.generation() && lease.is(State::LiveIdle)
    }
}
