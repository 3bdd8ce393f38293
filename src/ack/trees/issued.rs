//! Roots that the engine issues: the id contains the number of the root's slot.

use super::tree::{occupy, Tree};
use super::word::fold;
use super::{Mine, Times, Trees};
use crate::ack::error::AckError;
use crate::ack::outcome::{Ack, Done, Outcome, Reason, Root};
use crate::core::engine::{Look, Refused};
use crate::core::header::Header;
use crate::core::lease::{IssuedId, Lease, State};
use crate::core::occupancy::{Ended, Occupant};
use crate::error::TokenError;
use crate::sync::Ordering;
use crate::time::Lifetime;

impl<T: 'static> Trees<T> {
    #[inline]
    pub(crate) fn issue(
        &self,
        xor: u64,
        owner: u64,
        token: T,
        timeout: Lifetime,
    ) -> Result<Root, TokenError<T>> {
        self.engine.with_stripe(|mine, index| {
            let times = match self.times(mine, timeout) {
                Ok(times) => times,
                Err(error) => return Err(TokenError { error, token }),
            };
            let issued = self.fill((mine, index), xor, (owner, token), times);
            let (root, header, look) =
                issued.map_err(|(why, token)| TokenError { error: self.refuse(why), token })?;
            if self.engine.enforce_in(header, IssuedId(root.0).slot(), look).is_err() {
                self.undo_issued(mine, root)?;
            } else if xor == 0 {
                // A root without edges completes at once (A9).
                self.complete_at_once(mine, root);
            }
            Ok(root)
        })
    }

    /// Fills a slot and makes it live. The caller then notifies the driver, by `Engine::enforce_in`
    /// with the header of the slot's block, and the tick of the driver's look.
    #[inline(always)]
    pub(super) fn fill(
        &self,
        (mine, index): (&Mine, usize),
        xor: u64,
        (owner, token): (u64, T),
        times: Times,
    ) -> Result<(Root, &Header, u64), (Refused, T)> {
        let mut refused = Refused::OutOfMemory;
        let Some(vacant) = self.engine.claim(mine, index, times.deadline, true, &mut refused)
        else {
            return Err((refused, token));
        };
        mine.frontend.nonce.add(1);
        let nonce = self.nonce(mine.frontend.nonce.get() ^ index as u64);
        let root = IssuedId::new(vacant.id(), vacant.generation(), nonce).0;
        let target = self.issued_target(root);
        let lease = Lease::new(State::LiveIssued, vacant.generation(), times.deadline);
        let spot = vacant.spot();
        spot.note.store(self.born(target, times.now), Ordering::Relaxed);
        let look = self.begin_idle(vacant.id(), times);
        let live = occupy(vacant, (root, owner, &mut Some(token)), target ^ xor, lease).named();
        mine.frontend.counts[self.engine.shard_of(live.id)].begun.add(1);
        Ok((Root(root), spot.header, look))
    }

    /// The random bits of the `nth` id. One product is not enough: with one factor in twenty, the
    /// upper bits of the multiples repeat after some 2,000 of them.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // the upper 16 bits
    fn nonce(&self, nth: u64) -> u16 {
        let [.., c, d] = self.settings.secrets;
        let mixed = fold(nth ^ c, d | 1);
        ((mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
    }

    /// The root, if it is live just now.
    #[inline(always)]
    fn occupant(&self, root: Root) -> Option<Occupant<'_, Tree<T>>> {
        let id = IssuedId(root.0).slot();
        let slot = self.engine.slots.slot(id)?;
        // survives: I5.
        let lease = slot.lease();
        let same = slot.fields().key.load(Ordering::Acquire) == root.0;
        let live = same && lease.is(State::LiveIssued);
        live.then_some(Occupant { id, slot, lease })
    }

    /// Withdraws a root that overlapped a shutdown. If this call ends it, it was never tracked.
    #[cold]
    #[inline(never)]
    pub(super) fn undo_issued(&self, mine: &Mine, root: Root) -> Result<(), TokenError<T>> {
        match self.occupant(root) {
            Some(live) => self.undo_root(mine, live, self.issued_target(root.0)),
            // Another thread has ended the root and delivered its outcome: it was tracked.
            None => Ok(()),
        }
    }

    /// Ends a root that has no edges, unless another thread has.
    #[cold]
    #[inline(never)]
    pub(super) fn complete_at_once(&self, mine: &Mine, root: Root) {
        if let Some(live) = self.occupant(root) {
            self.complete_issued(mine, live, root.0, self.issued_target(root.0));
        }
    }

    #[inline(always)]
    pub(crate) fn ack_issued(&self, root: Root, xor: u64) -> Result<Ack, AckError> {
        if xor == 0 {
            return Err(AckError::ZeroEdge);
        }
        let id = IssuedId(root.0).slot();
        let Some(slot) = self.engine.slots.slot(id) else {
            return self.late(0);
        };
        let mut word = slot.fields().word.load(Ordering::Acquire);
        let mut lease;
        loop {
            // Relaxed: the key is at least as new as the word. The order of this load and the
            // lease's decides nothing: for a later occupant's word the swap below fails.
            let key = slot.fields().key.load(Ordering::Relaxed);
            lease = slot.lease();
            if key != root.0 || !lease.is(State::LiveIssued) {
                return self.late(id);
            }
            // AcqRel: Release publishes this thread's work to the thread that completes the tree.
            match slot.fields().word.compare_exchange(
                word,
                word ^ xor,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let target = self.issued_target(root.0);
        if word ^ xor != target {
            self.note_use(id);
            return Ok(Ack::Pending);
        }
        self.last_ack(root.0, Occupant { id, slot, lease }, target)
    }

    /// Finishes the ack that made the word its target.
    #[inline(never)] // keeps the others short
    fn last_ack(
        &self,
        root: u64,
        live: Occupant<'_, Tree<T>>,
        target: u64,
    ) -> Result<Ack, AckError> {
        self.engine.with_stripe(|mine, _| {
            if self.complete_issued(mine, live, root, target) {
                Ok(Ack::Completed)
            } else {
                self.count_late(mine, live.id);
                Err(AckError::NotLive)
            }
        })
    }

    /// Ends an issued root whose word is its target. Returns `false` if another thread has.
    ///
    /// The caller loaded the lease of `live` before the word became its target. It is this root's:
    /// a later occupant sets its word before its lease, so a thread that had seen that lease could
    /// not have changed this word.
    #[inline(always)]
    pub(super) fn complete_issued(
        &self,
        mine: &Mine,
        mut live: Occupant<'_, Tree<T>>,
        root: u64,
        target: u64,
    ) -> bool {
        let _delivering = self.announce(mine);
        let ended = loop {
            match live.end() {
                Ok(ended) => break ended,
                Err(now) => live.lease = now,
            }
            // Only the deadline changed, or the root has ended. A later occupant has another key,
            // stored before its lease was.
            // survives: the failed swap read `now` with Acquire, so the key is not older. If it is
            // a later root's, the next swap fails.
            let key = || live.slot.fields().key.load(Ordering::Acquire);
            if !live.lease.is(State::LiveIssued) || key() != root {
                return false;
            }
        };
        self.finish_at(mine, ended, target, Some(Reason::Acked), None);
        true
    }

    pub(crate) fn fail_issued(&self, root: Root, by: Option<u64>) -> Result<Done, AckError> {
        self.end_failed(root, by, |mine, ended, target, reason| {
            self.finish(mine, ended, target, reason);
        })?;
        Ok(Done::Now)
    }

    /// [`fail_issued`](Self::fail_issued), but the caller delivers the outcome.
    pub(crate) fn fail_undelivered(&self, root: Root) -> Result<Outcome<T>, AckError> {
        let failed = self.end_failed(root, None, |mine, ended, target, reason| {
            self.outcome(mine, ended, target, reason, None)
        })?;
        failed.map_err(|_| AckError::NotLive)
    }

    /// Ends a root that fails, and calls `finish` with it, its target and the reason.
    fn end_failed<R>(
        &self,
        root: Root,
        by: Option<u64>,
        finish: impl Fn(&Mine, Ended<'_, Tree<T>>, u64, Option<Reason>) -> R,
    ) -> Result<R, AckError> {
        let (target, reason) = (self.issued_target(root.0), Some(Reason::Failed { by }));
        while let Some(live) = self.occupant(root) {
            match self.end_live(live, |mine, ended| finish(mine, ended, target, reason)) {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        self.late(IssuedId(root.0).slot())
    }

    pub(crate) fn reset_issued(&self, root: Root, timeout: Lifetime) -> Result<Done, AckError> {
        self.check(timeout)?;
        let mut look = Look::First;
        while let Some(live) = self.occupant(root) {
            self.note_use(live.id);
            let Some(deadline) = self.renewed(live.lease, look, timeout)? else {
                return Ok(Done::Now);
            };
            let renewed = live.lease.with_deadline(deadline);
            if live.slot.swap_lease(live.lease, renewed).is_ok() {
                // The root is renewed: no expiry by the old deadline can succeed any more (Q6).
                self.engine.shortened(live.id, live.lease, deadline);
                return Ok(Done::Now);
            }
            look = Look::Again;
        }
        self.late(IssuedId(root.0).slot())
    }
}
