//! Roots that callers choose: found through the index, in any order of arrival.

use super::{Mine, Trees};
use crate::ack::error::AckError;
use crate::ack::outcome::{Ack, Done, Reason};
use crate::ack::Timeout;
use crate::core::engine::{Claim, Face, Refused};
use crate::core::index::Insert;
use crate::core::lease::{set, Lease, State};
use crate::core::slots::Slot;
use crate::sync::Ordering;

/// States of a chosen root that its index word leads to.
const HELD: u16 = set(&[
    State::Early,
    State::EarlyFailed,
    State::EarlyFailedBy,
    State::Initing,
    State::InitingFailed,
    State::Live,
]);
/// What the word of an early entry holds.
#[derive(Clone, Copy)]
pub(super) enum Held {
    /// The XOR of early acks.
    Share(u64),
    /// Who failed it.
    Culprit(u64),
}

/// A slot that was found under a chosen id, as it was just then.
pub(super) struct Found<'a> {
    id: u32,
    slot: &'a Slot,
    word: u64,
    lease: Lease,
}

impl Trees {
    /// Whether slot `id`, which the index led to, holds `key` right now.
    #[inline(always)]
    pub(super) fn holds(&self, id: u32, key: u64) -> Option<Found<'_>> {
        let slot = self.engine.slot(id)?;
        let word = slot.word.load(Ordering::Acquire);
        if slot.key.load(Ordering::Acquire) != key {
            return None;
        }
        let lease = slot.lease();
        lease.is_in(HELD).then_some(Found {
            id,
            slot,
            word,
            lease,
        })
    }

    #[inline(always)]
    pub(super) fn find(&self, shard: usize, hash: u32, key: u64) -> Option<Found<'_>> {
        // Two words rather than an `Option<Found>`: stored and loaded as they are, not as halves of a whole.
        let (mut word, mut lease) = (0, Lease(0));
        let id = self.engine.index(shard).find(hash, |id| {
            self.holds(id, key).is_some_and(|found| {
                (word, lease) = (found.word, found.lease);
                true
            })
        })?;
        let slot = self.engine.slot(id)?;
        Some(Found {
            id,
            slot,
            word,
            lease,
        })
    }

    /// Claims a slot for `key` in `state`, with the word that `word` makes of its target, and publishes it.
    ///
    /// `Ok(Err(found))` if the key is there already.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn publish(
        &self,
        (mine, index): (&Mine, usize),
        (shard, hash): (usize, u32),
        key: u64,
        owner: u64,
        state: State,
        deadline: u64,
        now: u64,
        word: impl FnOnce(u64) -> u64,
    ) -> Result<Result<(Claim<'_>, Lease, u64), Found<'_>>, AckError> {
        let claim = match self.engine.claim(mine, index) {
            Ok(claim) => claim,
            // What is there already needs no room.
            Err(refused) => {
                return match self.find(shard, hash, key) {
                    Some(found) if refused != Refused::Closed => Ok(Err(found)),
                    _ => Err(refused.into()),
                }
            }
        };
        let target = self.target(key, claim.incarnation);
        let born = if self.is_sampled(target) {
            self.engine.clock.now()
        } else {
            now
        };
        self.engine.set_birth(claim.id, self.stamp(born));
        let lease = Lease::new(state, claim.incarnation, deadline);
        claim.slot.key.store(key, Ordering::Relaxed);
        claim.slot.owner.store(owner, Ordering::Relaxed);
        claim.slot.set_word(word(target));
        claim.slot.set_lease(lease);
        let counts = &mine.face.counts[shard];
        counts.keys_in.add(1);
        let mut crowded = false;
        let mut found = None;
        let inserted = self
            .engine
            .index(shard)
            .insert(hash, claim.id, &mut crowded, |id| {
                found = self.holds(id, key);
                found.is_some()
            });
        if crowded {
            let (_, keys) = self.live(shard);
            if self.engine.index(shard).grow_if_full(keys) {
                // There is something to carry.
                self.engine.wake_by(1);
            }
        }
        match inserted {
            Insert::Done => Ok(Ok((claim, lease, target))),
            refused => {
                // Never published, so still ours alone (see `may_end`).
                counts.keys_out.add(1);
                self.engine.free(mine, &claim);
                match (refused, found) {
                    (Insert::Found, Some(found)) => Ok(Err(found)),
                    _ => Err(AckError::OutOfMemory),
                }
            }
        }
    }

    pub(crate) fn init(
        &self,
        key: u64,
        xor: u64,
        owner: u64,
        timeout: Timeout,
    ) -> Result<(), AckError> {
        let at = self.engine.hash(key);
        // On its way while the clock is read and a slot is claimed.
        self.engine.index(at.0).prefetch(at.1);
        self.engine.with_stripe(|mine, index| {
            let (deadline, now) = self.deadline(mine, timeout)?;
            self.init_at((mine, index), at, key, xor, owner, deadline, now)
        })
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn init_at(
        &self,
        who: (&Mine, usize),
        at: (usize, u32),
        key: u64,
        xor: u64,
        owner: u64,
        deadline: u64,
        now: u64,
    ) -> Result<(), AckError> {
        let mine = who.0;
        loop {
            let published =
                self.publish(who, at, key, owner, State::Live, deadline, now, |target| {
                    target ^ xor
                })?;
            let found = match published {
                Ok((claim, lease, target)) => {
                    let counts = &mine.face.counts[self.engine.shard_of(claim.id)];
                    counts.begun.add(1);
                    if self.engine.enforce(claim.id, deadline).is_err() {
                        return self.undo(mine, claim, lease, target);
                    }
                    if xor == 0 {
                        let found = Found {
                            id: claim.id,
                            slot: claim.slot,
                            word: target,
                            lease,
                        };
                        self.complete_chosen(mine, at, &found, key, target);
                    }
                    return Ok(());
                }
                Err(found) => found,
            };
            match found.lease.state() {
                // Early acks are waiting; since years ago, perhaps, and then they have waited in vain.
                State::Early
                    if mine.lapsed.get() != 0
                        && mine.driving.get() == 0
                        && self.engine.lapse(now).is_some() =>
                {
                    self.catch_up(now);
                }
                State::Early => {
                    if self.merge(mine, &found, key, xor, owner, deadline, now) {
                        return Ok(());
                    }
                }
                // An early fail is.
                State::EarlyFailed | State::EarlyFailedBy => {
                    if self.engine.end(found.slot, found.lease).is_ok() {
                        self.early
                            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                        let counts = &mine.face.counts[self.engine.shard_of(found.id)];
                        counts.begun.add(1);
                        counts.early_merged.add(1);
                        let target = self.target(key, found.lease.incarnation());
                        let by = (found.lease.state() == State::EarlyFailedBy)
                            .then(|| found.slot.word.load(Ordering::Relaxed) ^ target);
                        found.slot.owner.store(owner, Ordering::Relaxed);
                        let born = if self.is_sampled(target) {
                            self.engine.clock.now()
                        } else {
                            now
                        };
                        self.engine.set_birth(found.id, self.stamp(born));
                        self.finish(
                            mine,
                            found.claim(),
                            found.lease,
                            target,
                            Some(Reason::Failed { by }),
                        );
                        return Ok(());
                    }
                }
                // Somebody else's init was first (S3, S7).
                _ => {
                    mine.face.counts[at.0].duplicate.add(1);
                    return Err(AckError::Duplicate);
                }
            }
        }
    }

    /// The init of a root whose acks came first. False if the entry was gone, or changed, and is to be looked up again.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn merge(
        &self,
        mine: &Mine,
        found: &Found<'_>,
        key: u64,
        xor: u64,
        owner: u64,
        deadline: u64,
        now: u64,
    ) -> bool {
        let slot = found.slot;
        let early = found.lease;
        let initing = early.with_state(State::Initing);
        // Refuses a second init, and keeps the early timeout away from here on.
        if slot.swap_lease(early, initing).is_err() {
            return false;
        }
        self.early
            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        let counts = &mine.face.counts[self.engine.shard_of(found.id)];
        counts.begun.add(1);
        counts.early_merged.add(1);
        let incarnation = early.incarnation();
        let target = self.target(key, incarnation);
        let born = if self.is_sampled(target) {
            self.engine.clock.now()
        } else {
            now
        };
        self.engine.set_birth(found.id, self.stamp(born));
        slot.owner.store(owner, Ordering::Relaxed);
        // AcqRel: Release publishes the owner to whoever's ack completes the word. Only acks change
        // it, by XOR, so this commutes with them.
        let mark = self.init_mark(target) ^ xor;
        let complete = slot.word.fetch_xor(mark, Ordering::AcqRel) ^ mark == target;
        let live = Lease::new(State::Live, incarnation, deadline);
        match slot.swap_lease(initing, live) {
            Ok(()) => {
                if self.engine.enforce(found.id, deadline).is_err() {
                    // Shut down: an init that returns after that has not been.
                    if self.engine.end(slot, live).is_ok() {
                        self.finish(mine, found.claim(), live, target, Some(Reason::Cancelled));
                    }
                } else if complete {
                    self.complete_chosen(mine, self.engine.hash(key), found, key, target);
                }
            }
            // A fail came between: it is ours to report.
            Err(now) if now == initing.with_state(State::InitingFailed) => {
                if self.engine.end(slot, now).is_ok() {
                    self.finish(
                        mine,
                        found.claim(),
                        now,
                        target,
                        Some(Reason::Failed { by: None }),
                    );
                }
            }
            // An ack completed it before the swap, and has reported it.
            Err(_) => {}
        }
        true
    }

    /// Ends a chosen root whose word is its target. False if somebody else has ended it, or will.
    pub(super) fn complete_chosen(
        &self,
        mine: &Mine,
        at: (usize, u32),
        found: &Found<'_>,
        key: u64,
        target: u64,
    ) -> bool {
        let (slot, seen) = (found.slot, found.lease);
        let mut lease = slot.lease();
        loop {
            let same = lease.incarnation() == seen.incarnation()
                && matches!(lease.state(), State::Live | State::Initing)
                && slot.key.load(Ordering::Acquire) == key;
            if !same {
                return false;
            }
            match self.engine.end(slot, lease) {
                Ok(()) => {
                    let acked = Some(Reason::Acked);
                    self.finish_at(mine, found.claim(), lease, target, acked, Some(at));
                    return true;
                }
                Err(now) => lease = now,
            }
        }
    }

    pub(crate) fn ack_chosen(&self, key: u64, xor: u64) -> Result<Ack, AckError> {
        if xor == 0 {
            return Err(AckError::ZeroEdge);
        }
        let at = self.engine.hash(key);
        self.ack_chosen_at(at, key, xor)
    }

    #[inline]
    pub(super) fn ack_chosen_at(
        &self,
        at: (usize, u32),
        key: u64,
        xor: u64,
    ) -> Result<Ack, AckError> {
        loop {
            let Some(found) = self.find(at.0, at.1, key) else {
                match self.hold(at, key, State::Early, Held::Share(xor))? {
                    true => return Ok(Ack::Held),
                    false => continue,
                }
            };
            match found.lease.state() {
                State::EarlyFailed | State::EarlyFailedBy => return Ok(Ack::Held),
                State::InitingFailed => return self.late(found.id),
                _ => {}
            }
            let next = found.word ^ xor;
            if found
                .slot
                .word
                .compare_exchange(found.word, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            let target = self.target(key, found.lease.incarnation());
            if next != target {
                return Ok(if found.lease.state() == State::Early {
                    Ack::Held
                } else {
                    Ack::Pending
                });
            }
            return self.engine.with_stripe(|mine, _| {
                if self.complete_chosen(mine, at, &found, key, target) {
                    Ok(Ack::Completed)
                } else {
                    self.count_late(mine, found.id);
                    Err(AckError::NotLive)
                }
            });
        }
    }

    /// Holds the first sign of a chosen root that is not its init. False if another was first.
    #[cold]
    pub(super) fn hold(
        &self,
        at: (usize, u32),
        key: u64,
        state: State,
        held: Held,
    ) -> Result<bool, AckError> {
        use std::sync::atomic::Ordering::Relaxed;
        self.engine.with_stripe(|mine, index| {
            if self.early.fetch_add(1, Relaxed) >= self.settings.early_capacity {
                self.early.fetch_sub(1, Relaxed);
                mine.face.counts[at.0].refused.add(1);
                return Err(AckError::EarlyFull);
            }
            let (deadline, now) = self.early_deadline();
            mine.lapsed.set(self.engine.lapse(now).unwrap_or(0));
            let published = self.publish(
                (mine, index),
                at,
                key,
                0,
                state,
                deadline,
                now,
                |target| match held {
                    Held::Share(xor) => target ^ self.init_mark(target) ^ xor,
                    Held::Culprit(by) => target ^ by,
                },
            );
            match published {
                Ok(Ok((claim, lease, target))) => {
                    mine.face.counts[self.engine.shard_of(claim.id)]
                        .early_held
                        .add(1);
                    if self.engine.enforce(claim.id, deadline).is_err() {
                        self.undo(mine, claim, lease, target)?;
                    }
                    Ok(true)
                }
                Ok(Err(_)) => {
                    self.early.fetch_sub(1, Relaxed);
                    Ok(false)
                }
                Err(error) => {
                    self.early.fetch_sub(1, Relaxed);
                    Err(error)
                }
            }
        })
    }

    pub(crate) fn fail_chosen(&self, key: u64, by: Option<u64>) -> Result<Done, AckError> {
        let at = self.engine.hash(key);
        loop {
            let Some(found) = self.find(at.0, at.1, key) else {
                let (state, word) = match by {
                    None => (State::EarlyFailed, Held::Share(0)),
                    Some(by) => (State::EarlyFailedBy, Held::Culprit(by)),
                };
                match self.hold(at, key, state, word)? {
                    true => return Ok(Done::Held),
                    false => continue,
                }
            };
            let lease = found.lease;
            match lease.state() {
                State::Live => {
                    if self.engine.end(found.slot, lease).is_ok() {
                        let target = self.target(key, lease.incarnation());
                        self.engine.with_stripe(|mine, _| {
                            let reason = Reason::Failed { by };
                            self.finish(mine, found.claim(), lease, target, Some(reason));
                        });
                        return Ok(Done::Now);
                    }
                }
                State::Early => {
                    let failed = lease.with_state(State::EarlyFailed);
                    if found.slot.swap_lease(lease, failed).is_ok() {
                        if let Some(by) = by {
                            self.name_culprit(&found, failed, key, by);
                        }
                        return Ok(Done::Held);
                    }
                }
                State::Initing => {
                    let failed = lease.with_state(State::InitingFailed);
                    if found.slot.swap_lease(lease, failed).is_ok() {
                        return Ok(Done::Now);
                    }
                }
                // It has failed already, and its init has yet to come.
                State::EarlyFailed | State::EarlyFailedBy => return Ok(Done::Held),
                _ => return self.late(found.id),
            }
        }
    }

    /// Until when what comes before its init waits for it, and the clock reading that this was derived from.
    fn early_deadline(&self) -> (u64, u64) {
        let (now, lag) = self.engine.now_for_deadline();
        let after = self.settings.early_timeout.saturating_add(lag);
        (self.engine.ticks.deadline(now, after), now)
    }

    /// Puts the culprit into the word of an early entry that has just been failed. If its init comes between, or its
    /// time runs out, the outcome names nobody.
    fn name_culprit(&self, found: &Found<'_>, mut failed: Lease, key: u64, by: u64) {
        let target = self.target(key, failed.incarnation());
        let mut word = found.slot.word.load(Ordering::Acquire);
        loop {
            // The word is read first: if the lease is the same, so is the tenant. Acks that have seen
            // it as merely early may still change the word; after this swap their own fails.
            let now = found.slot.lease();
            if now.incarnation() != failed.incarnation() || now.state() != State::EarlyFailed {
                return;
            }
            failed = now;
            match found.slot.word.compare_exchange(
                word,
                target ^ by,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        loop {
            match found
                .slot
                .swap_lease(failed, failed.with_state(State::EarlyFailedBy))
            {
                // Renewed meanwhile, perhaps.
                Err(now)
                    if now.incarnation() == failed.incarnation()
                        && now.state() == State::EarlyFailed =>
                {
                    failed = now;
                }
                _ => return,
            }
        }
    }

    pub(crate) fn reset_chosen(&self, key: u64, timeout: Timeout) -> Result<Done, AckError> {
        let at = self.engine.hash(key);
        let deadline = self.renewal(timeout)?;
        loop {
            let Some(found) = self.find(at.0, at.1, key) else {
                match self.hold(at, key, State::Early, Held::Share(0))? {
                    true => return Ok(Done::Held),
                    false => continue,
                }
            };
            let lease = found.lease;
            match lease.state() {
                State::Live => {
                    let renewed = lease.with_deadline(deadline);
                    if found.slot.swap_lease(lease, renewed).is_ok() {
                        let _ = self.engine.enforce(found.id, deadline);
                        return Ok(Done::Now);
                    }
                }
                // Its init, which is under way, sets a full timeout in a moment.
                State::Initing => return Ok(Done::Now),
                State::Early | State::EarlyFailed | State::EarlyFailedBy => {
                    let (deadline, _) = self.early_deadline();
                    let renewed = lease.with_deadline(deadline);
                    if found.slot.swap_lease(lease, renewed).is_ok() {
                        let _ = self.engine.enforce(found.id, deadline);
                        return Ok(Done::Held);
                    }
                }
                _ => return self.late(found.id),
            }
        }
    }
}

impl<'a> Found<'a> {
    fn claim(&self) -> Claim<'a> {
        Claim {
            id: self.id,
            incarnation: self.lease.incarnation(),
            slot: self.slot,
        }
    }
}
