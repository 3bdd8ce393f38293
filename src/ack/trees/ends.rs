//! The end of a root: the thread whose swap ends the lease frees the slot, and then delivers the
//! outcome. So a handler may call the tracker, be slow, or panic, and affects only its own thread.

use super::chosen::Key;
use super::tree::Tree;
use super::{Mine, Trees};
use crate::ack::error::AckError;
use crate::ack::outcome::{Outcome, Reason, Root, RootId};
use crate::core::engine::{Frontend, Refused};
use crate::core::lease::{State, EXPIRING};
use crate::core::occupancy::{Ended, Occupant};
use crate::error::TokenError;
use crate::kit::target::Target;
use crate::sync::Ordering;

impl<T: 'static> Trees<T> {
    /// Withdraws a root, or an early entry, that overlapped a shutdown. If this call ends it, it
    /// was never tracked, and this gives the root's token back.
    #[cold]
    pub(super) fn undo(
        &self,
        mine: &Mine,
        mut live: Occupant<'_, Tree<T>>,
        target: u64,
    ) -> Result<(), Option<T>> {
        let generation = live.lease.generation();
        loop {
            match live.end() {
                Ok(ended) => return Err(self.finish(mine, ended, target, None)),
                Err(now) if now.generation() == generation && now.is_in(EXPIRING) => {
                    live.lease = now;
                }
                // Another thread has ended the root and delivered its outcome: it was tracked.
                Err(_) => return Ok(()),
            }
        }
    }

    /// [`undo`](Self::undo) of a root.
    #[cold]
    pub(super) fn undo_root(
        &self,
        mine: &Mine,
        live: Occupant<'_, Tree<T>>,
        target: u64,
    ) -> Result<(), TokenError<T>> {
        match self.undo(mine, live, target) {
            Err(Some(token)) => Err(TokenError { error: AckError::Closed, token }),
            _ => Ok(()),
        }
    }

    /// Fails the root that was seen in flight, under whatever lease it has by now. `false` if that
    /// root has ended, or a shutdown will end it. A later root in its slot is left alone: slot,
    /// generation and key name one root.
    pub(in crate::ack) fn fail_seen(&self, seen: Occupant<'_, Tree<T>>, root: RootId) -> bool {
        let (RootId::Issued(Root(key)) | RootId::Chosen(key)) = root;
        loop {
            // The lease first (I5).
            let lease = seen.slot.lease();
            let same = lease.generation() == seen.lease.generation()
                && lease.state() == seen.lease.state()
                && seen.slot.fields().key.load(Ordering::Relaxed) == key;
            // The init of a chosen root that the index does not lead to yet owns its slot
            // (`fail_all_beside_an_init` fails without this look).
            let live = Occupant { lease, ..seen };
            if !same || self.may_end(&live).is_none() {
                return false;
            }
            match self.fail_live(live, self.target_of(key, lease), None) {
                Ok(true) => return true,
                // The root was renewed, or has ended: look again.
                Ok(false) => {}
                Err(_) => return false,
            }
        }
    }

    /// Fails a live root, unless its lease has changed. Returns whether this call did; an error if
    /// a shutdown will end the root, or the root's own init.
    pub(super) fn fail_live(
        &self,
        live: Occupant<'_, Tree<T>>,
        target: u64,
        by: Option<u64>,
    ) -> Result<bool, Refused> {
        let reason = Some(Reason::Failed { by });
        self.end_live(live, |mine, ended| self.finish(mine, ended, target, reason))
            .map(|done| done.is_some())
    }

    /// Ends a live root, or an early failure, unless its lease has changed, and calls `finish` with
    /// it. An error if a shutdown will end it.
    pub(super) fn end_live<'s, R>(
        &self,
        live: Occupant<'s, Tree<T>>,
        finish: impl FnOnce(&Mine, Ended<'s, Tree<T>>) -> R,
    ) -> Result<Option<R>, Refused> {
        self.engine.with_stripe(|mine, _| {
            let _delivering = self.announce(mine);
            // Issued roots ask too: `fail_all` may find one before its `issue` has returned.
            if self.engine.fence.is_closing() {
                return Err(Refused::Closed);
            }
            Ok(live.end().ok().map(|ended| finish(mine, ended)))
        })
    }

    /// Finishes a root that this thread has ended: reads what it needs, frees the slot, and
    /// delivers the outcome, with the token. Without a reason there is no outcome, and the caller
    /// gets the token of a root; an early entry has none.
    pub(super) fn finish(
        &self,
        mine: &Mine,
        ended: Ended<'_, Tree<T>>,
        target: u64,
        reason: Option<Reason>,
    ) -> Option<T> {
        self.finish_at(mine, ended, target, reason, None)
    }

    /// [`finish`](Self::finish), given the key of a chosen root and its position in its home.
    #[inline(always)] // with a reason known at compile time most of it falls away
    pub(super) fn finish_at(
        &self,
        mine: &Mine,
        ended: Ended<'_, Tree<T>>,
        target: u64,
        reason: Option<Reason>,
        at: Option<(Key<'_>, Option<usize>)>,
    ) -> Option<T> {
        let outcome = match self.outcome(mine, ended, target, reason, at) {
            Ok(outcome) => outcome,
            Err(token) => return token,
        };
        self.deliver(mine, outcome);
        None
    }

    /// Delivers an outcome, and wakes the tasks that wait for it. Never panics.
    #[inline(always)]
    #[cfg_attr(not(feature = "async"), allow(unused_variables))]
    fn deliver(&self, mine: &Mine, outcome: Outcome<T>) {
        match &self.target {
            Target::Listener(handler) => self.panics.guard(|| handler(outcome)),
            Target::Channel(sender) => {
                sender.put(&self.panics, outcome);
                #[cfg(feature = "async")]
                if sender.listeners.is_awaited() {
                    let wake = || sender.listeners.wake();
                    match mine.is_driving() {
                        // The driver keeps its announcement: a shutdown waits for the driver
                        // anyway, and in a waker it only asks.
                        true => wake(),
                        false => mine.frontend.undelivered.without_last(wake),
                    }
                }
            }
            // A token that no receiver takes is dropped here.
            Target::Unheard | Target::Poll(_) if std::mem::needs_drop::<T>() => {
                self.panics.guard(|| drop(outcome));
            }
            Target::Unheard | Target::Poll(_) => {}
        }
    }

    /// [`finish_at`](Self::finish_at), but returns the outcome, or without a reason the token.
    #[inline(always)]
    pub(super) fn outcome(
        &self,
        mine: &Mine,
        ended: Ended<'_, Tree<T>>,
        target: u64,
        reason: Option<Reason>,
        at: Option<(Key<'_>, Option<usize>)>,
    ) -> Result<Outcome<T>, Option<T>> {
        let (id, lease, tree) = (ended.id(), ended.lease(), ended.slot().fields());
        let key = tree.key.load(Ordering::Relaxed);
        let owner = tree.owner.load(Ordering::Relaxed);
        let latency = if reason.is_some() { self.latency(target, id) } else { None };
        let is_root = reason.is_some() || matches!(lease.state(), State::Live | State::LiveIssued);
        // SAFETY: the caller has ended this root, and no other thread looks at its token.
        let token = is_root.then(|| unsafe { Tree::token(ended.slot()).take() });
        let counts = &mine.frontend.counts[self.engine.shard_of(id)];
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
            if self.engine.free(mine, ended) {
                self.engine.tend_if_wanted(self);
            }
            RootId::Issued(Root(key))
        } else {
            let (at, position) = at.unwrap_or_else(|| (self.key(key), None));
            self.keys(mine, at).keys_out.add(1);
            // Before the slot is freed: no slot is reused while the index has a word for it.
            let removed = at.index.remove_at(&self.engine.pin(), at.hash, id, position);
            if self.engine.free_or_rest(mine, ended, removed) {
                self.engine.tend_if_wanted(self);
            }
            RootId::Chosen(key)
        };
        match (reason, token) {
            (Some(reason), Some(token)) => Ok(Outcome { root, owner, token, reason, latency }),
            (_, token) => Err(token),
        }
    }
}
