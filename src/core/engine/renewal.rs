//! Renewals: what the deadline of a live lease becomes.
//!
//! A renewal looks at the lease, reads the clock, and swaps the lease. After a lost swap it looks
//! again and reads the clock again. What it sets, [`renewed`] decides:
//!
//! 1. A deadline that is not before the lease's own one is set, by whatever reading it was
//!    computed.
//! 2. On the first look, a nearer one is computed again from an exact reading, and that one is set.
//! 3. After a swap that was lost to another renewal, a nearer one is not set. This renewal counts
//!    as made just before the other one, and is reported as done.
//!
//! **Promise.** Let a renewal, or an insertion, publish a lease until T and report success. Only a
//! call lowers that deadline that (a) looked at the lease for the first time after it was
//! published, (b) read the exact clock after that look, and (c) whose deadline by that reading is
//! before T.
//!
//! **Why.** The look pairs with the swap that published the lease (Acquire, Release), and the
//! publisher read its clock before that swap. So the exact reading of (b) is no earlier than the
//! publisher's: `Clock::now` does not go back from one thread to the next, and `coarse` is never
//! ahead of it. Deadlines are the same increasing function of reading and timeout on all paths,
//! with the lag added and rounded up. A nearer deadline after (b) therefore comes of a shorter
//! timeout, and **equal timeouts never lower a deadline**.
//!
//! * *Cheap readings.* One thread's coarse reading may be older than another's, by the clock's lag.
//!   Rule 2 is there for that: a cheap reading alone never lowers a deadline.
//! * *Cached deadlines.* A thread uses its last deadline only while a fresh computation from a
//!   cheap reading would give the same tick. So it counts as a cheap reading's deadline.
//! * *A clock that goes back.* No reading is below the driver's latest one, which a thread that has
//!   seen the lease sees too. Beyond that, a clock that breaks its contract may break the promise.
//! * *Calls that overlap.* A call that was entered before the report and looked after the
//!   publication counts as the later one. A lease does not say when it was set, so no call can
//!   know.
//! * *A deadline that is there already.* A renewal whose deadline the lease has swaps nothing. A
//!   call for less that overlaps with it may still lower that deadline.
//! * *A lease that comes back.* A swap compares values. If one call lowers the deadline and another
//!   renews it until the tick that it had before, a third call, which saw the lease before both,
//!   must not take it for that one. So the lease counts the renewals that lower it
//!   ([`Lease::with_deadline`]), modulo 8. What remains: a call that asks for less is held up
//!   between its look and its swap. Meanwhile a multiple of 8 others lower the lease, and one
//!   brings it back to that very tick. Where all timeouts of an entry are equal, nothing is ever
//!   lowered.
//!
//! The model `q06_a_delayed_touch_beside_another` fails where the clock is read before the look.
//! The tests `tracker_leases` fail without rule 2, and without rule 3.
//! `q06_a_delayed_touch_for_less_beside_one_that_comes_back` fails where the lease does not count.

use super::{BadTimeout, Engine, Frontend};
use crate::core::lease::Lease;
use crate::core::slot::Payload;
use crate::sync::park::Backoff;
use crate::time::{Lifetime, LifetimeError};

/// Which look of a renewal at the lease of one occupancy this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    First,
    /// The renewal has lost a swap on this occupancy's lease to another renewal.
    Again,
}

impl Look {
    pub(crate) fn after(has_lost: bool) -> Self {
        if has_lost {
            Look::Again
        } else {
            Look::First
        }
    }
}

/// The deadline that a renewal sets; with `None` the lease stays, and the renewal is done. `found`
/// is the lease's. `cheap` was computed after the look, `exact` reads the exact clock.
#[inline(always)]
fn renewed(found: u64, look: Look, cheap: u64, exact: impl FnOnce() -> u64) -> Option<u64> {
    if cheap >= found {
        return Some(cheap);
    }
    match look {
        Look::First => Some(exact()),
        Look::Again => None,
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// The deadline of what begins or is renewed now, and the clock reading that it comes from.
    #[inline(always)]
    pub(crate) fn deadline(
        &self,
        timeout: Lifetime,
        default: Option<u64>,
    ) -> Result<(u64, u64), BadTimeout> {
        self.with_stripe(|mine, _| self.deadlines.deadline(&mine.deadlines, timeout, default))
    }

    /// The deadline for a renewal that has just looked at `lease`; with `None` the lease stays, and
    /// the renewal is done all the same. The caller swaps `lease` for one with that deadline. If it
    /// loses the swap it looks at the lease again and calls this again.
    #[inline]
    pub(crate) fn renewed(
        &self,
        lease: Lease,
        look: Look,
        timeout: Lifetime,
        default: Option<u64>,
    ) -> Result<Option<u64>, BadTimeout> {
        self.renewed_over(|| self.deadlines.of(lease), look, (timeout, default))
    }

    /// [`renewed`](Self::renewed) for a deadline that is not in a lease.
    #[inline]
    pub(crate) fn renewed_over(
        &self,
        found: impl FnOnce() -> u64,
        look: Look,
        (timeout, default): (Lifetime, Option<u64>),
    ) -> Result<Option<u64>, BadTimeout> {
        let (cheap, _) = self.deadline(timeout, default)?;
        Ok(renewed(found(), look, cheap, || {
            self.deadlines.exact_deadline(timeout, default).unwrap_or(cheap)
        }))
    }

    /// Called when the lease of slot `id`, until now `before`, ends at `deadline`. Notifies the
    /// driver of a nearer one (W11). Otherwise nothing needs to be done: the thread that made the
    /// lease reports its old deadline, and the driver, coming then, finds the new one.
    #[inline]
    pub(crate) fn shortened(&self, id: u32, before: Lease, deadline: u64) {
        if self.deadlines.of(before) > deadline {
            let _ = self.enforce(id, deadline);
        }
    }

    /// Returns what `call` does, which computes a deadline. If the clock has jumped by years and no
    /// thread has polled since, this thread lets the driver catch up, and calls again.
    #[inline(always)]
    pub(crate) fn catching_up<R>(
        &self,
        frontend: &impl Frontend<P>,
        mut call: impl FnMut() -> Result<R, BadTimeout>,
    ) -> Result<R, LifetimeError> {
        loop {
            match call() {
                Ok(done) => return Ok(done),
                Err(BadTimeout::Refused(why)) => return Err(why),
                Err(BadTimeout::Behind) if self.catch_up(frontend) => {}
                Err(BadTimeout::Behind) => return Err(LifetimeError::TooLong),
            }
        }
    }

    /// Drives the engine until all that was due when this began has been ended. False if that is in
    /// vain: the thread that drives a shard stayed behind in a fork.
    #[cold]
    pub(crate) fn catch_up(&self, frontend: &impl Frontend<P>) -> bool {
        let (now, mut backoff) = (self.deadlines.now(), Backoff::new());
        while self.deadlines.caught_up() < self.deadlines.ticks().at(now) {
            if self.poll_beside(now, usize::MAX, frontend).busy {
                if self.shards.iter().any(|shard| shard.driver.is_lost()) {
                    return false;
                }
                backoff.wait();
            }
        }
        true
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_renewal.rs"]
mod tests;
