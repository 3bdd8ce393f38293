//! Acks of chosen roots, and their completion.

use super::{Found, Key, OPEN};
use crate::ack::error::AckError;
use crate::ack::outcome::{Ack, Reason};
use crate::ack::trees::{Mine, Trees};
use crate::core::index::Candidate;
use crate::core::lease::State;
use crate::sync::Ordering;

impl<T: 'static> Trees<T> {
    pub(crate) fn ack_chosen(&self, id: u64, xor: u64) -> Result<Ack, AckError> {
        if xor == 0 {
            return Err(AckError::ZeroEdge);
        }
        let key = self.key(id);
        self.ack_chosen_at(key.index.candidate(key.hash), key, xor)
    }

    #[inline(always)]
    pub(in crate::ack::trees) fn ack_chosen_at(
        &self,
        candidate: Option<Candidate<'_>>,
        key: Key<'_>,
        xor: u64,
    ) -> Result<Ack, AckError> {
        let found = self.find_at(candidate, key.id);
        match found.and_then(|found| self.ack_found(&found, key, xor)) {
            Some(done) => done,
            None => self.ack_anywhere(key, xor),
        }
    }

    /// [`ack_chosen_at`](Self::ack_chosen_at) for a root elsewhere, or whose word has just changed.
    #[cold]
    #[inline(never)]
    fn ack_anywhere(&self, key: Key<'_>, xor: u64) -> Result<Ack, AckError> {
        loop {
            let done = match self.find_anywhere(key) {
                Some(found) => self.ack_found(&found, key, xor),
                None => {
                    let held = self.hold(key, State::Early, xor)?;
                    held.then_some(Ok(Ack::Held))
                }
            };
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// Acks the root that was found. `None` if its word has changed since: look again.
    #[inline(always)]
    fn ack_found(
        &self,
        found: &Found<'_, T>,
        key: Key<'_>,
        xor: u64,
    ) -> Option<Result<Ack, AckError>> {
        let Found { word, lease, .. } = *found;
        if !lease.is_in(OPEN) {
            return Some(match lease.state() {
                State::InitingFailed => self.late(found.id),
                _ => Ok(Ack::Held),
            });
        }
        let next = word ^ xor;
        let tree = found.slot.fields();
        tree.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let target = self.target(key.id, lease.generation());
        Some(if next == target {
            self.last_ack_of(found, key, target)
        } else if lease.is(State::Early) {
            Ok(Ack::Held)
        } else {
            self.note_use(found.id);
            Ok(Ack::Pending)
        })
    }

    /// Finishes the ack that made the word its target.
    #[inline(never)] // keeps the others short
    fn last_ack_of(
        &self,
        found: &Found<'_, T>,
        key: Key<'_>,
        target: u64,
    ) -> Result<Ack, AckError> {
        self.engine.with_stripe(|mine, _| {
            if self.complete_chosen(mine, found, key, target) {
                Ok(Ack::Completed)
            } else {
                self.count_late(mine, found.id);
                Err(AckError::NotLive)
            }
        })
    }

    /// Ends a chosen root whose word is its target. Returns `false` if another thread has, or will.
    ///
    /// A shutdown may have missed the root, which was not in the index yet. Its unfinished init
    /// then finds the block closed and ends the root without an outcome.
    #[inline(always)]
    pub(super) fn complete_chosen(
        &self,
        mine: &Mine,
        found: &Found<'_, T>,
        key: Key<'_>,
        target: u64,
    ) -> bool {
        let seen = found.lease;
        let mut live = found.by(found.slot.lease());
        let _delivering = self.announce(mine);
        if self.engine.fence.is_closing() {
            return false;
        }
        loop {
            // survives: I5.
            let same = live.lease.generation() == seen.generation()
                && matches!(live.lease.state(), State::Live | State::Initing)
                && live.slot.fields().key.load(Ordering::Acquire) == key.id;
            if !same {
                return false;
            }
            match live.end() {
                Ok(ended) => {
                    let acked = Some(Reason::Acked);
                    self.finish_at(mine, ended, target, acked, Some((key, found.position)));
                    return true;
                }
                Err(now) => live.lease = now,
            }
        }
    }
}
