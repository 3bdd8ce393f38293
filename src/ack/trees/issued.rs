//! Roots that the engine issues: an id is a place.

use super::{fold, Mine, Trees};
use crate::ack::error::AckError;
use crate::ack::outcome::{Ack, Done, Reason, Root};
use crate::ack::Timeout;
use crate::core::engine::Claim;
use crate::core::lease::{IssuedId, Lease, State};
use crate::sync::Ordering;

impl Trees {
    pub(crate) fn issue(&self, xor: u64, owner: u64, timeout: Timeout) -> Result<Root, AckError> {
        self.engine.with_stripe(|mine, index| {
            let (deadline, now) = self.deadline(mine, timeout)?;
            self.issue_at(mine, index, xor, owner, deadline, now)
        })
    }

    #[inline]
    pub(super) fn issue_at(
        &self,
        mine: &Mine,
        index: usize,
        xor: u64,
        owner: u64,
        deadline: u64,
        now: u64,
    ) -> Result<Root, AckError> {
        let claim = self.engine.claim(mine, index)?;
        mine.face.nonce.add(1);
        let [.., c, d] = self.settings.secrets;
        let nonce = fold(mine.face.nonce.get() ^ c ^ index as u64, d | 1) >> 52;
        let root = IssuedId::new(claim.id, claim.incarnation, nonce);
        let target = self.issued_target(root.0);
        let born = if self.is_sampled(target) {
            self.engine.clock.now()
        } else {
            now
        };
        self.engine.set_birth(claim.id, self.stamp(born));
        let lease = Lease::new(State::LiveIssued, claim.incarnation, deadline);
        claim.slot.key.store(root.0, Ordering::Relaxed);
        claim.slot.owner.store(owner, Ordering::Relaxed);
        claim.slot.set_word(target ^ xor);
        claim.slot.set_lease(lease);
        let counts = &mine.face.counts[self.engine.shard_of(claim.id)];
        counts.begun.add(1);
        if self.engine.enforce(claim.id, deadline).is_err() {
            return self.undo(mine, claim, lease, target).map(|()| Root(root.0));
        }
        if xor == 0 {
            // No edges: complete at once (A9).
            self.complete_issued(mine, claim, root.0, target);
        }
        Ok(Root(root.0))
    }

    pub(crate) fn ack_issued(&self, root: Root, xor: u64) -> Result<Ack, AckError> {
        if xor == 0 {
            return Err(AckError::ZeroEdge);
        }
        let id = IssuedId(root.0).slot();
        let Some(slot) = self.engine.slot(id) else {
            return self.late(0);
        };
        let mut word = slot.word.load(Ordering::Acquire);
        loop {
            let key = slot.key.load(Ordering::Acquire);
            let lease = slot.lease();
            if key != root.0 || lease.state() != State::LiveIssued {
                return self.late(id);
            }
            // AcqRel: Release passes on what this thread did for its tuple to whoever completes the tree.
            match slot
                .word
                .compare_exchange(word, word ^ xor, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let target = self.issued_target(root.0);
        if word ^ xor != target {
            return Ok(Ack::Pending);
        }
        self.engine.with_stripe(|mine, _| {
            let claim = Claim {
                id,
                incarnation: slot.lease().incarnation(),
                slot,
            };
            if self.complete_issued(mine, claim, root.0, target) {
                Ok(Ack::Completed)
            } else {
                self.count_late(mine, id);
                Err(AckError::NotLive)
            }
        })
    }

    /// Ends an issued root whose word is its target. False if somebody else has ended it.
    #[inline]
    pub(super) fn complete_issued(
        &self,
        mine: &Mine,
        mut claim: Claim<'_>,
        root: u64,
        target: u64,
    ) -> bool {
        let mut lease = claim.slot.lease();
        loop {
            // A later tenant has another key, stored before its lease was.
            if lease.state() != State::LiveIssued || claim.slot.key.load(Ordering::Acquire) != root
            {
                return false;
            }
            match self.engine.end(claim.slot, lease) {
                Ok(()) => {
                    claim.incarnation = lease.incarnation();
                    self.finish_at(mine, claim, lease, target, Some(Reason::Acked), None);
                    return true;
                }
                // Only the deadline changed, or it is over: look again.
                Err(now) => lease = now,
            }
        }
    }

    pub(crate) fn fail_issued(&self, root: Root, by: Option<u64>) -> Result<Done, AckError> {
        let id = IssuedId(root.0).slot();
        let Some(slot) = self.engine.slot(id) else {
            return self.late(0);
        };
        loop {
            // The lease is read first: the key cannot be older than the lease's tenant.
            let lease = slot.lease();
            if lease.state() != State::LiveIssued || slot.key.load(Ordering::Acquire) != root.0 {
                return self.late(id);
            }
            if self.engine.end(slot, lease).is_ok() {
                let claim = Claim {
                    id,
                    incarnation: lease.incarnation(),
                    slot,
                };
                let target = self.issued_target(root.0);
                self.engine.with_stripe(|mine, _| {
                    self.finish(mine, claim, lease, target, Some(Reason::Failed { by }));
                });
                return Ok(Done::Now);
            }
        }
    }

    pub(crate) fn reset_issued(&self, root: Root, timeout: Timeout) -> Result<Done, AckError> {
        let deadline = self.renewal(timeout)?;
        let id = IssuedId(root.0).slot();
        let Some(slot) = self.engine.slot(id) else {
            return self.late(0);
        };
        loop {
            let lease = slot.lease();
            if lease.state() != State::LiveIssued || slot.key.load(Ordering::Acquire) != root.0 {
                return self.late(id);
            }
            if slot
                .swap_lease(lease, lease.with_deadline(deadline))
                .is_ok()
            {
                // Renewed: no expiry by the old deadline can succeed any more (Q6). A deadline nearer than
                // before must reach the reaper (W11); for a later one this changes nothing.
                let _ = self.engine.enforce(id, deadline);
                return Ok(Done::Now);
            }
        }
    }
}
