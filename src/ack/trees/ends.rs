//! The end of a root: one swap of its lease decides which thread ends it, and that thread frees the
//! slot and delivers the outcome.

use super::chosen::At;
use super::tree::Tree;
use super::{Mine, Trees};
use crate::ack::error::AckError;
use crate::ack::outcome::{Outcome, Reason, Root, RootId};
use crate::core::engine::{Claim, Frontend, Refused};
use crate::core::index::ANYWHERE;
use crate::core::lease::{Lease, State};
use crate::error::TokenError;
use crate::sync::Ordering;

/// A root that an operator's call has seen in flight. Slot, generation and key name that one root.
#[derive(Debug, Clone, Copy)]
pub(in crate::ack) struct Seen {
    pub(in crate::ack) id: u32,
    /// The lease as it was seen, live.
    pub(in crate::ack) lease: Lease,
    pub(in crate::ack) key: u64,
}

impl<T: 'static> Trees<T> {
    /// Withdraws a root, or an early entry, that overlapped a shutdown. If this call ends it, it was
    /// never tracked: then this gives the root's token back.
    #[cold]
    pub(super) fn undo(
        &self,
        mine: &Mine,
        claim: Claim<'_, Tree<T>>,
        mut lease: Lease,
        target: u64,
    ) -> Result<(), Option<T>> {
        loop {
            match claim.slot.end(lease) {
                Ok(()) => return Err(self.finish(mine, claim, lease, target, None)),
                Err(now) if now.generation() == lease.generation() && now.state().expires() => {
                    lease = now;
                }
                // Another thread has ended the root and delivered its outcome: it was tracked.
                Err(_) => return Ok(()),
            }
        }
    }

    /// As [`undo`](Self::undo), of a root.
    #[cold]
    pub(super) fn undo_root(
        &self,
        mine: &Mine,
        claim: Claim<'_, Tree<T>>,
        lease: Lease,
        target: u64,
    ) -> Result<(), TokenError<T>> {
        match self.undo(mine, claim, lease, target) {
            Err(Some(token)) => Err(TokenError { error: AckError::Closed, token }),
            _ => Ok(()),
        }
    }

    /// Fails the root that was seen in flight, under whatever lease it has by now. Returns `false`
    /// if that root has ended, or a shutdown will end it. A later root in its slot, even of the
    /// same id, is left alone.
    pub(in crate::ack) fn fail_seen(&self, seen: &Seen) -> bool {
        let Some(slot) = self.engine.slots.slot(seen.id) else {
            return false;
        };
        loop {
            // The lease is read first: the key cannot be older than the lease's root.
            let lease = slot.lease();
            let same = lease.generation() == seen.lease.generation()
                && lease.state() == seen.lease.state()
                && slot.fields().key.load(Ordering::Acquire) == seen.key;
            // The init of a chosen root that the index does not lead to yet owns its slot
            // (`fail_all_beside_an_init` fails without this look).
            if !same || self.may_end(&Claim::of(seen.id, slot, lease), lease).is_none() {
                return false;
            }
            let target = self.target_of(seen.key, lease);
            match self.fail_live(Claim::of(seen.id, slot, lease), lease, target, None) {
                Ok(true) => return true,
                // The root was renewed, or has ended: look again.
                Ok(false) => {}
                Err(_) => return false,
            }
        }
    }

    /// Fails a live root, unless it has another lease by now. Returns whether this call did; an
    /// error if a shutdown will end the root, or the root's own init.
    pub(super) fn fail_live(
        &self,
        claim: Claim<'_, Tree<T>>,
        lease: Lease,
        target: u64,
        by: Option<u64>,
    ) -> Result<bool, Refused> {
        self.engine.with_stripe(|mine, _| {
            let _delivering = mine.frontend.undelivered.announce();
            // This concerns issued roots, too: an operator's call may have found one in flight
            // before its issuer has it.
            if self.engine.has_closed(claim.id) {
                return Err(Refused::Closed);
            }
            let ended = claim.slot.end(lease).is_ok();
            if ended {
                self.finish(mine, claim, lease, target, Some(Reason::Failed { by }));
            }
            Ok(ended)
        })
    }

    /// Finishes a root that this thread has ended: reads what it needs, frees the slot, and
    /// delivers the outcome, with the token. Without a reason there is no outcome: the caller returns
    /// the root, whose token it gets, or the entry was an early one.
    pub(super) fn finish(
        &self,
        mine: &Mine,
        claim: Claim<'_, Tree<T>>,
        lease: Lease,
        target: u64,
        reason: Option<Reason>,
    ) -> Option<T> {
        self.finish_at(mine, claim, lease, target, reason, None)
    }

    /// As [`finish`](Self::finish), for a caller that knows the key's place in the index.
    #[inline(always)] // with a reason known at compile time most of it falls away
    pub(super) fn finish_at(
        &self,
        mine: &Mine,
        claim: Claim<'_, Tree<T>>,
        lease: Lease,
        target: u64,
        reason: Option<Reason>,
        at: Option<At>,
    ) -> Option<T> {
        let key = claim.slot.fields().key.load(Ordering::Relaxed);
        let owner = claim.slot.fields().owner.load(Ordering::Relaxed);
        let latency = if reason.is_some() { self.latency(target, claim.id) } else { None };
        let is_root = reason.is_some() || matches!(lease.state(), State::Live | State::LiveIssued);
        // SAFETY: the caller has ended this root, and no other thread looks at its token.
        let token = is_root.then(|| unsafe { Tree::take_token(claim.slot) });
        let counts = &mine.frontend.counts[self.engine.shard_of(claim.id)];
        match reason {
            Some(Reason::Acked) => counts.acked.add(1),
            Some(Reason::Failed { .. }) => counts.failed.add(1),
            Some(Reason::TimedOut { .. }) => counts.expired.add(1),
            Some(Reason::Cancelled) => counts.cancelled.add(1),
            None if is_root => counts.cancelled.add(1),
            None => {
                self.early.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                counts.early_expired.add(1);
            }
        }
        let root = if lease.is(State::LiveIssued) {
            if self.engine.free(mine, &claim) {
                self.engine.tend_if_wanted(self);
            }
            RootId::Issued(Root(key))
        } else {
            let At { hash, position } =
                at.unwrap_or_else(|| At { hash: self.engine.keys.hash(key), position: ANYWHERE });
            let counts = &mine.frontend.counts[self.engine.keys.shard_of_hash(hash)];
            counts.keys_out.add(1);
            // Before the slot is freed: no slot is reused while the index has a word for it.
            let index = self.engine.keys.index_of(hash);
            let removed = index.remove(&self.engine.pin(), hash, claim.id, position, |_| false);
            if self.engine.free_or_rest(mine, &claim, removed) {
                self.engine.tend_if_wanted(self);
            }
            RootId::Chosen(key)
        };
        if let Some(reason) = reason {
            let outcome = Outcome { root, owner, token: token?, reason, latency };
            self.deliver.tell(outcome);
            #[cfg(feature = "async")]
            if self.deliver.is_awaited() {
                if !mine.is_driving() {
                    mine.frontend.undelivered.without_last(|| self.deliver.wake());
                } else {
                    // The driver keeps its announcement: a shutdown waits for the driver anyway,
                    // and in a waker it only asks.
                    self.deliver.wake();
                }
            }
            return None;
        }
        token
    }
}
