//! Renewals: what the deadline of a live lease becomes.
//!
//! # Renewals
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
//! published, (b) read the exact clock after that look, and (c) asked for less: that reading and
//! its timeout come to less than T.
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
//! * *Cached deadlines.* A thread's last deadline answers only while a fresh computation would give
//!   the same tick, so it is a cheap reading's deadline and nothing else.
//! * *A clock that goes back.* Both readings are at least the driver's latest one, which a thread
//!   that has seen the lease sees too. Beyond that, a clock that breaks its contract may break the
//!   promise.
//! * *Calls that overlap.* A call that was entered before the report and looked after the
//!   publication counts as the later one. A lease does not say when it was set, so no call can
//!   know.
//! * *A lease that comes back.* A swap compares values. If one call lowers the deadline and another
//!   renews it until the tick that it had before, a third call, which saw the lease before both,
//!   must not take it for that one. So the lease counts the renewals that lower it
//!   ([`Lease::with_deadline`]), modulo 16. What remains: a call that asks for less is held up
//!   between its look and its swap. Meanwhile a multiple of 16 others lower the lease, and one
//!   brings it back to that very tick. Where all timeouts of an entry are equal, nothing is ever
//!   lowered.
//! * *Jumps of years.* A handler may renew while the driver that has called it catches up with such
//!   a jump. Deadlines that handlers set then may be further apart than a lease can express, and
//!   are not compared right.
//!
//! The model `q06_a_delayed_touch_beside_another` fails where the clock is read before the look.
//! The tests `tracker_leases` fail without rule 2, and without rule 3.
//! `q06_a_delayed_touch_for_less_beside_one_that_comes_back` fails where the lease does not count.

use super::{BadTimeout, Engine, Frontend};
use crate::core::lease::Lease;
use crate::core::slot::Payload;
use crate::panics::is_inside;
use crate::sync::park::Backoff;
use crate::time::Lifetime;

/// Which look of a renewal at the lease of one occupancy this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    First,
    /// The renewal has lost a swap on this occupancy's lease to another renewal.
    Again,
}

impl Look {
    /// `Again` if a swap on this occupancy's lease was lost to another renewal.
    pub(crate) fn after(has_lost: bool) -> Self {
        if has_lost {
            Look::Again
        } else {
            Look::First
        }
    }
}

/// The deadline that a renewal sets; `None` leaves the lease as it is, and the renewal is done all
/// the same. See "Renewals" in the module's head.
///
/// `found` is the deadline that the lease has. `cheap` was computed after the look, and `exact`
/// computes the deadline from an exact reading.
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
    /// The deadline of what is renewed now, and the clock reading that it was derived from.
    #[inline(always)]
    pub(crate) fn renewal(
        &self,
        timeout: Lifetime,
        default: Option<u64>,
        frontend: &impl Frontend<P>,
    ) -> Result<(u64, u64), BadTimeout> {
        self.with_stripe(|mine, _| {
            let (deadline, now) = self.deadlines.deadline(&mine.deadlines, timeout, default)?;
            if mine.has_lapsed() {
                self.catch_up(now, frontend);
                return self.deadlines.deadline(&mine.deadlines, timeout, default);
            }
            Ok((deadline, now))
        })
    }

    /// The deadline that a renewal sets which has just looked at `lease`; `None` leaves the lease
    /// as it is, and the renewal is done all the same. See "Renewals" in the module's head.
    ///
    /// The caller swaps `lease` for one with that deadline. If it loses the swap it looks at the
    /// lease again and calls this again.
    #[inline]
    pub(crate) fn renewed(
        &self,
        lease: Lease,
        look: Look,
        timeout: Lifetime,
        default: Option<u64>,
        frontend: &impl Frontend<P>,
    ) -> Result<Option<u64>, BadTimeout> {
        self.renewed_over(
            |engine| lease.deadline_near(engine.deadlines.about_now()),
            look,
            (timeout, default),
            frontend,
        )
    }

    /// As [`renewed`](Self::renewed), of a tick that stands elsewhere; `found` is asked once the
    /// driver has caught up.
    #[inline]
    pub(crate) fn renewed_over(
        &self,
        found: impl FnOnce(&Self) -> u64,
        look: Look,
        (timeout, default): (Lifetime, Option<u64>),
        frontend: &impl Frontend<P>,
    ) -> Result<Option<u64>, BadTimeout> {
        let (cheap, _) = self.renewal(timeout, default, frontend)?;
        Ok(renewed(found(self), look, cheap, || {
            self.deadlines.exact_deadline(timeout, default).unwrap_or(cheap)
        }))
    }

    /// The lease of slot `id`, until now `before`, ends at `deadline`. If that is nearer, this
    /// notifies the driver (W11). If it is not, nothing needs to be done. The thread that made the
    /// lease has reported, or is about to report, its old deadline, and the driver, coming then,
    /// finds the new one.
    #[inline]
    pub(crate) fn shortened(&self, id: u32, before: Lease, deadline: u64) {
        if before.is_after(deadline) {
            let _ = self.enforce(id, deadline);
        }
    }

    /// The deadline of a lease of slot `id`, which is live; `tick` is about now.
    pub(crate) fn deadline_of(&self, id: u32, lease: Lease, tick: u64) -> u64 {
        match self.slots.header(id).and_then(|header| header.next.get()) {
            // The deadlines in a bucket are not before its next expiration.
            Some(next) => lease.deadline_from(next),
            // It is being looked at just now.
            None => lease.deadline_near(tick),
        }
    }

    /// Drives the engine until nothing is due that has waited for years. Called where the clock has
    /// jumped by more than a lease can express, and no thread has polled since. A new deadline
    /// beside old ones could not be distinguished from one that has long passed.
    ///
    /// The calling thread may be pinned: the memory that this store frees then waits for the
    /// listeners and drops that these rounds run.
    #[cold]
    pub(crate) fn catch_up(&self, now: u64, frontend: &impl Frontend<P>) {
        if is_inside() {
            // The driver may wait for this thread, or be this thread.
            return;
        }
        let mut backoff = Backoff::new();
        while self.deadlines.lapse(now).is_some() {
            if self.poll_beside(now, usize::MAX, frontend).busy {
                if self.shards.iter().any(|shard| shard.driver.is_lost()) {
                    return;
                }
                backoff.wait();
            }
        }
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_renewal.rs"]
mod tests;
