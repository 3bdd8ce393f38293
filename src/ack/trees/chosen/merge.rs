//! The init of a chosen root that has an early entry. It takes the entry over in place. Acks go on
//! meanwhile: they commute with the init, which is one XOR of the word.

use super::{Found, New};
use crate::ack::error::AckError;
use crate::ack::outcome::Reason;
use crate::ack::trees::tree::Tree;
use crate::ack::trees::{Mine, Times, Trees};
use crate::core::lease::{Lease, State};
use crate::sync::Ordering;

impl<T: 'static> Trees<T> {
    /// Puts the part of root `new` into the early entry `found`, which this thread has taken over.
    /// Returns the entry's target.
    fn adopt(
        &self,
        mine: &Mine,
        found: &Found<'_, T>,
        new: &New<'_>,
        token: &mut Option<T>,
    ) -> u64 {
        self.early.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        let counts = &mine.frontend.counts[self.engine.shard_of(found.id)];
        counts.begun.add(1);
        counts.early_merged.add(1);
        let target = self.target(new.key.id, found.lease.generation());
        if let Some(spot) = self.engine.slots.spot(found.id) {
            // Relaxed: the lease, which is stored after it, publishes it.
            spot.note.store(self.born(target, new.times.now), Ordering::Relaxed);
        }
        // Acks and resets may have come since the entry was taken over.
        self.adopt_idle(found.id, new.times);
        found.slot.fields().owner.store(new.owner, Ordering::Relaxed);
        if let Some(token) = token.take() {
            // SAFETY: early entries have no token. Either this thread has ended the entry, or no
            // thread ends it before the word has its mark.
            unsafe { Tree::token(found.slot).put(token) };
        }
        target
    }

    /// Ends the root `new` at its init: `found` holds an earlier failure. Returns as `merge`.
    pub(super) fn merge_failed(
        &self,
        found: &Found<'_, T>,
        new: &New<'_>,
        token: &mut Option<T>,
    ) -> Result<bool, AckError> {
        let ended = self.end_live(found.by(found.lease), |mine, ended| {
            let target = self.adopt(mine, found, new, token);
            self.finish(mine, ended, target, Some(Reason::Failed { by: None }));
        })?;
        Ok(ended.is_some())
    }

    /// Takes over the early entry `found` for the root `new` with this `token`. Returns `false` if
    /// the entry is gone, or has changed, and must be looked up again; an error if a shutdown, or
    /// the thread that made it, will end it, or this call has. In both cases `token` has the token.
    pub(super) fn merge(
        &self,
        mine: &Mine,
        found: &Found<'_, T>,
        new: &New<'_>,
        xor: u64,
        token: &mut Option<T>,
    ) -> Result<bool, AckError> {
        let New { key, times: Times { deadline, .. }, .. } = *new;
        let slot = found.slot;
        let early = found.lease;
        // From here on the entry has the root's deadline, which renewals may already move.
        let mut initing = Lease::new(State::Initing, early.generation(), deadline);
        // The announcement covers what a shutdown finds on its way here, and leaves to this thread.
        let delivering = self.announce(mine);
        if self.engine.fence.is_closing() {
            return Err(AckError::Closed);
        }
        // This swap refuses a second init, and keeps the early timeout away from here on.
        if slot.swap_lease(early, initing).is_err() {
            return Ok(false);
        }
        let generation = early.generation();
        let target = self.adopt(mine, found, new, token);
        // AcqRel: Release publishes owner and token to the thread whose ack completes the word
        // (`an_ack_beside_an_init_returns_the_token` fails without it). Only acks change the word,
        // by XOR, so this commutes with them.
        let mark = self.init_mark(target) ^ xor;
        let complete = slot.fields().word.fetch_xor(mark, Ordering::AcqRel) ^ mark == target;
        let mut until = deadline;
        let goes_on = |now: Lease, state| now.generation() == generation && now.state() == state;
        let mut live = initing.with_state(State::Live);
        let mut swapped = slot.swap_lease(initing, live);
        while let Err(now) = swapped {
            if !goes_on(now, State::Initing) {
                break;
            }
            // A renewal has changed the deadline meanwhile, and has returned that it did.
            initing = now;
            live = initing.with_state(State::Live);
            until = self.engine.deadlines.of(live);
            swapped = slot.swap_lease(initing, live);
        }
        match swapped {
            Ok(()) => {
                let root = found.by(live);
                if self.engine.enforce(found.id, self.idle_or(&root, until)).is_err() {
                    self.undo(mine, root, target).map_err(|back| {
                        *token = back;
                        AckError::Closed
                    })?;
                } else if complete {
                    // Now the root is like any other: the thread that ends it announces that.
                    drop(delivering);
                    self.complete_chosen(mine, found, key, target);
                }
            }
            // A failure came between: this thread delivers it.
            Err(now) if goes_on(now, State::InitingFailed) => {
                if let Ok(ended) = found.by(now).end() {
                    self.finish(mine, ended, target, Some(Reason::Failed { by: None }));
                }
            }
            // An ack completed the root before the swap, and has delivered the outcome.
            Err(_) => {}
        }
        Ok(true)
    }
}
