//! Roots that callers choose: found through the index, in any order of arrival.

use super::tree::{occupy, read, Tree};
use super::{Mine, Trees};
use crate::ack::error::AckError;
use crate::ack::outcome::{Ack, Done, Reason};
use crate::core::engine::{Claim, Look, Refused};
use crate::core::header::Header;
use crate::core::index::{Candidate, Insert};
use crate::core::lease::{set, Lease, State};
use crate::core::slot::Slot;
use crate::sync::Ordering;
use crate::time::Timeout;
use std::time::Duration;

/// States of a chosen root that its index word leads to.
const HELD: u16 = set(&[
    State::Early,
    State::EarlyFailed,
    State::EarlyFailedBy,
    State::Initing,
    State::InitingFailed,
    State::Live,
]);
/// Those in which acks count.
const OPEN: u16 = set(&[State::Early, State::Initing, State::Live]);

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
    slot: Slot<'a, Tree>,
    word: u64,
    lease: Lease,
    /// Where in its home the index had it, if in the home's own line.
    position: Option<usize>,
}

/// A chosen root, or the first sign of one, on its way in.
#[derive(Clone, Copy)]
pub(super) struct New {
    /// The key's hash.
    pub(super) hash: u32,
    pub(super) key: u64,
    pub(super) owner: u64,
    pub(super) deadline: u64,
    pub(super) now: u64,
}

/// Where a key is in the index: its hash, and the position in the home if it is known.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) hash: u32,
    pub(super) position: Option<usize>,
}

impl Trees {
    /// Whether slot `id`, which the index led to, from this `position` if it is known, holds `key` right now.
    #[inline(always)]
    pub(super) fn holds(&self, id: u32, key: u64, position: Option<usize>) -> Option<Found<'_>> {
        let slot = self.engine.slot(id)?;
        let (word, lease) = read(slot, key, HELD)?;
        Some(Found {
            id,
            slot,
            word,
            lease,
            position,
        })
    }

    /// The counters of the shard whose index has the keys of this hash.
    #[inline(always)]
    fn keys<'m>(&self, mine: &'m Mine, hash: u32) -> &'m super::Counts {
        &mine.face.counts[self.engine.shard_of_hash(hash)]
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u32, key: u64) -> Option<Found<'_>> {
        let candidate = self.engine.index_of(hash).candidate(hash);
        self.find_with(candidate, hash, key)
    }

    /// As [`find`](Self::find), with what [`candidate`](crate::core::index::Index::candidate) has said.
    #[inline(always)]
    pub(super) fn find_with(
        &self,
        candidate: Option<Candidate<'_>>,
        hash: u32,
        key: u64,
    ) -> Option<Found<'_>> {
        if let Some(candidate) = candidate {
            let found = self.holds(candidate.slot(), key, Some(candidate.position()));
            if found.is_some() && candidate.is_believed() {
                return found;
            }
        }
        self.find_anywhere(hash, key)
    }

    #[cold]
    #[inline(never)]
    fn find_anywhere(&self, hash: u32, key: u64) -> Option<Found<'_>> {
        let mut seen = None;
        self.engine.index_of(hash).find(hash, &mut |id| {
            seen = self.holds(id, key, None);
            seen.is_some()
        })?;
        seen
    }

    /// Claims a slot and fills it, with the word that `word` makes of its target. It is this thread's alone until the
    /// index has it. If there is none, `refused` says why.
    #[inline(always)]
    fn place(
        &self,
        (mine, index): (&Mine, usize),
        new: &New,
        state: State,
        word: impl FnOnce(u64) -> u64,
        refused: &mut Refused,
    ) -> Option<(Claim<'_, Tree>, &Header)> {
        let (claim, spot) = self.engine.claim(mine, index, refused)?;
        let target = self.target(new.key, claim.incarnation);
        let lease = Lease::new(state, claim.incarnation, new.deadline);
        spot.note
            .store(self.born(target, new.now), Ordering::Relaxed);
        occupy(&spot, new.key, new.owner, word(target), lease);
        self.keys(mine, new.hash).keys_in.add(1);
        Some((claim, spot.header))
    }

    /// Publishes a placed slot in the index. `Some` if the key is there already.
    #[inline(never)]
    fn enter(
        &self,
        mine: &Mine,
        new: &New,
        claim: &Claim<'_, Tree>,
    ) -> Result<Option<Found<'_>>, AckError> {
        let mut found = None;
        let mut probe = |id| {
            found = self.holds(id, new.key, None);
            found.is_some()
        };
        let entered = self
            .engine
            .publish(&self.engine.pin(), new.hash, claim.id, &mut probe, self);
        if let Insert::Done = entered {
            return Ok(None);
        }
        // Never published, so still ours alone (see `may_end`).
        self.keys(mine, new.hash).keys_out.add(1);
        self.engine.free(mine, claim);
        match entered {
            Insert::Found => Ok(found),
            Insert::Alike => Err(self.refuse(AckError::Collisions)),
            _ => Err(self.refuse(AckError::OutOfMemory)),
        }
    }

    pub(crate) fn init(
        &self,
        key: u64,
        xor: u64,
        owner: u64,
        timeout: Timeout,
    ) -> Result<(), AckError> {
        let hash = self.engine.hash(key);
        // On its way while the clock is read and a slot is claimed.
        self.engine.index_of(hash).prefetch(hash);
        self.engine.with_stripe(|mine, index| {
            let (deadline, now) = self.deadline(mine, timeout)?;
            let new = New {
                hash,
                key,
                owner,
                deadline,
                now,
            };
            self.init_at((mine, index), &new, (xor, timeout))
        })
    }

    /// Inits a root with these edges. `timeout` is what the deadline in `new` was made of.
    #[inline(always)]
    pub(super) fn init_at(
        &self,
        who: (&Mine, usize),
        new: &New,
        (xor, timeout): (u64, Timeout),
    ) -> Result<(), AckError> {
        let mut refused = Refused::OutOfMemory;
        let placed = self.place(who, new, State::Live, |target| target ^ xor, &mut refused);
        let Some((claim, header)) = placed else {
            return self.init_anywhere(who, *new, (xor, timeout), Err(refused));
        };
        let id = claim.id;
        let index = self.engine.index_of(new.hash);
        if !index.insert_at_home(&self.engine.pin(), new.hash, id) {
            return self.init_anywhere(who, *new, (xor, timeout), Ok(claim));
        }
        who.0.face.counts[self.engine.shard_of(id)].begun.add(1);
        if self.engine.enforce_in(header, id, new.deadline).is_ok() && xor != 0 {
            return Ok(());
        }
        self.init_ended(who.0, new, xor, &claim)
    }

    /// An init that has been published, and ends at once: it has no edges, or the engine was shut down.
    #[cold]
    #[inline(never)]
    fn init_ended(
        &self,
        mine: &Mine,
        new: &New,
        xor: u64,
        claim: &Claim<'_, Tree>,
    ) -> Result<(), AckError> {
        let target = self.target(new.key, claim.incarnation);
        let lease = Lease::new(State::Live, claim.incarnation, new.deadline);
        if self.engine.enforce(claim.id, new.deadline).is_err() {
            return self.undo(mine, *claim, lease, target);
        }
        if xor == 0 {
            let found = Found {
                id: claim.id,
                slot: claim.slot,
                word: target,
                lease,
                position: None,
            };
            self.complete_chosen(mine, new.hash, &found, new.key, target);
        }
        Ok(())
    }

    /// As [`init_at`](Self::init_at), where something is in the way: no room in the key's home, or the key itself, or no
    /// free slot.
    #[inline(never)]
    fn init_anywhere<'a>(
        &'a self,
        who: (&Mine, usize),
        mut new: New,
        (xor, timeout): (u64, Timeout),
        mut placed: Result<Claim<'a, Tree>, Refused>,
    ) -> Result<(), AckError> {
        let mine = who.0;
        let New {
            hash, key, owner, ..
        } = new;
        loop {
            let New { deadline, now, .. } = new;
            let found = match placed {
                Ok(claim) => match self.enter(mine, &new, &claim)? {
                    None => {
                        mine.face.counts[self.engine.shard_of(claim.id)]
                            .begun
                            .add(1);
                        return self.init_ended(mine, &new, xor, &claim);
                    }
                    Some(found) => found,
                },
                Err(Refused::Closed) => return Err(AckError::Closed),
                // What is there already needs no room.
                Err(refused) => match self.find_anywhere(hash, key) {
                    Some(found) => found,
                    None => return Err(self.refuse(refused)),
                },
            };
            match found.lease.state() {
                // Early acks are waiting; since years ago, perhaps, and then they have waited in vain.
                State::Early
                    if mine.has_lapsed() && !mine.is_driving() && self.engine.has_lapsed(now) =>
                {
                    self.engine.catch_up(now, self);
                    // Handlers have been called, and may have taken their time.
                    (new.deadline, new.now) = self.deadline(mine, timeout)?;
                }
                State::Early => {
                    if self.merge(mine, &found, key, xor, owner, deadline, now)? {
                        return Ok(());
                    }
                }
                // An early fail is.
                State::EarlyFailed | State::EarlyFailedBy => {
                    let _telling = mine.face.telling();
                    if self.engine.has_closed(found.id) {
                        return Err(AckError::Closed);
                    }
                    if self.engine.end(found.slot, found.lease).is_ok() {
                        self.early
                            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                        let counts = &mine.face.counts[self.engine.shard_of(found.id)];
                        counts.begun.add(1);
                        counts.early_merged.add(1);
                        let target = self.target(key, found.lease.incarnation());
                        let by = (found.lease.state() == State::EarlyFailedBy)
                            .then(|| found.slot.fields().word.load(Ordering::Relaxed) ^ target);
                        found.slot.fields().owner.store(owner, Ordering::Relaxed);
                        self.set_birth(found.id, self.born(target, now));
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
                    self.keys(mine, hash).duplicate.add(1);
                    return Err(AckError::Duplicate);
                }
            }
            let mut refused = Refused::OutOfMemory;
            placed = self
                .place(who, &new, State::Live, |target| target ^ xor, &mut refused)
                .map(|(claim, _)| claim)
                .ok_or(refused);
        }
    }

    /// The init of a root whose acks came first. False if the entry was gone, or changed, and is to be looked up again. Refused if a shutdown
    /// will end it, or who has brought the first sign of it.
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
    ) -> Result<bool, AckError> {
        let slot = found.slot;
        let early = found.lease;
        // With its deadline from here on: a renewal that comes before the root is live moves that
        // one.
        let mut initing = Lease::new(State::Initing, early.incarnation(), deadline);
        // Also of what a shutdown finds under way here, and leaves to this thread.
        let telling = mine.face.telling();
        if self.engine.has_closed(found.id) {
            return Err(AckError::Closed);
        }
        // Refuses a second init, and keeps the early timeout away from here on.
        if slot.swap_lease(early, initing).is_err() {
            return Ok(false);
        }
        self.early
            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        let counts = &mine.face.counts[self.engine.shard_of(found.id)];
        counts.begun.add(1);
        counts.early_merged.add(1);
        let incarnation = early.incarnation();
        let target = self.target(key, incarnation);
        self.set_birth(found.id, self.born(target, now));
        slot.fields().owner.store(owner, Ordering::Relaxed);
        // AcqRel: Release publishes the owner to whoever's ack completes the word. Only acks change
        // it, by XOR, so this commutes with them.
        let mark = self.init_mark(target) ^ xor;
        let complete = slot.fields().word.fetch_xor(mark, Ordering::AcqRel) ^ mark == target;
        let mut until = deadline;
        let goes_on = |now: Lease, state| now.incarnation() == incarnation && now.state() == state;
        let mut live = initing.with_state(State::Live);
        let mut swapped = slot.swap_lease(initing, live);
        while let Err(now) = swapped {
            if !goes_on(now, State::Initing) {
                break;
            }
            // A call has renewed it meanwhile, and was told so.
            initing = now;
            live = initing.with_state(State::Live);
            until = live.deadline_near(self.engine.about_now());
            swapped = slot.swap_lease(initing, live);
        }
        match swapped {
            Ok(()) => {
                if self.engine.enforce(found.id, until).is_err() {
                    // Shut down: an init that returns after that has not been.
                    if self.engine.end(slot, live).is_ok() {
                        self.finish(mine, found.claim(), live, target, Some(Reason::Cancelled));
                    }
                } else if complete {
                    // It is as any other now: who ends it says so.
                    drop(telling);
                    self.complete_chosen(mine, self.engine.hash(key), found, key, target);
                }
            }
            // A fail came between: it is ours to report.
            Err(now) if goes_on(now, State::InitingFailed) => {
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
        Ok(true)
    }

    /// Ends a chosen root whose word is its target. False if somebody else has ended it, or will: where a shutdown has been, it may not have seen
    /// the root, which was not in the index yet. Then its init, which is not through, finds the bucket closed, and nobody is told.
    pub(super) fn complete_chosen(
        &self,
        mine: &Mine,
        hash: u32,
        found: &Found<'_>,
        key: u64,
        target: u64,
    ) -> bool {
        let (slot, seen) = (found.slot, found.lease);
        let mut lease = slot.lease();
        let _telling = mine.face.telling();
        if self.engine.has_closed(found.id) {
            return false;
        }
        loop {
            let same = lease.incarnation() == seen.incarnation()
                && matches!(lease.state(), State::Live | State::Initing)
                && slot.fields().key.load(Ordering::Acquire) == key;
            if !same {
                return false;
            }
            match self.engine.end(slot, lease) {
                Ok(()) => {
                    let acked = Some(Reason::Acked);
                    let at = At {
                        hash,
                        position: found.position,
                    };
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
        let hash = self.engine.hash(key);
        let candidate = self.engine.index_of(hash).candidate(hash);
        self.ack_chosen_at(hash, candidate, key, xor)
    }

    #[inline(always)]
    pub(super) fn ack_chosen_at(
        &self,
        hash: u32,
        candidate: Option<Candidate<'_>>,
        key: u64,
        xor: u64,
    ) -> Result<Ack, AckError> {
        let mut seen = self.find_with(candidate, hash, key);
        loop {
            let Some(found) = seen else {
                match self.hold(hash, key, State::Early, Held::Share(xor))? {
                    true => return Ok(Ack::Held),
                    false => {
                        seen = self.find_anywhere(hash, key);
                        continue;
                    }
                }
            };
            if !found.lease.is_in(OPEN) {
                return match found.lease.state() {
                    State::InitingFailed => self.late(found.id),
                    _ => Ok(Ack::Held),
                };
            }
            let next = found.word ^ xor;
            if found
                .slot
                .fields()
                .word
                .compare_exchange(found.word, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                seen = self.find_anywhere(hash, key);
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
            return self.last_ack_of(hash, &found, key, target);
        }
    }

    /// The ack that made the word its target.
    #[inline(never)] // keeps the others short
    fn last_ack_of(
        &self,
        hash: u32,
        found: &Found<'_>,
        key: u64,
        target: u64,
    ) -> Result<Ack, AckError> {
        self.engine.with_stripe(|mine, _| {
            if self.complete_chosen(mine, hash, found, key, target) {
                Ok(Ack::Completed)
            } else {
                self.count_late(mine, found.id);
                Err(AckError::NotLive)
            }
        })
    }

    /// Holds the first sign of a chosen root that is not its init. False if another was first.
    #[cold]
    pub(super) fn hold(
        &self,
        hash: u32,
        key: u64,
        state: State,
        held: Held,
    ) -> Result<bool, AckError> {
        use std::sync::atomic::Ordering::Relaxed;
        self.engine.with_stripe(|mine, index| {
            let full = self.early.fetch_add(1, Relaxed) >= self.settings.early_capacity;
            if full {
                self.early.fetch_sub(1, Relaxed);
                self.keys(mine, hash).refused.add(1);
                return Err(AckError::EarlyFull);
            }
            let (deadline, now) = self.early_deadline();
            self.engine.note_lapse(mine, now);
            let new = New {
                hash,
                key,
                owner: 0,
                deadline,
                now,
            };
            let word = |target| match held {
                Held::Share(xor) => target ^ self.init_mark(target) ^ xor,
                Held::Culprit(by) => target ^ by,
            };
            let mut refused = Refused::OutOfMemory;
            let entered = match self.place((mine, index), &new, state, word, &mut refused) {
                Some((claim, _)) => self
                    .enter(mine, &new, &claim)
                    .map(|found| found.is_none().then_some(claim)),
                // Another was first, perhaps: what is there already needs no room.
                None if refused != Refused::Closed && self.find_anywhere(hash, key).is_some() => {
                    Ok(None)
                }
                None => Err(self.refuse(refused)),
            };
            let Ok(Some(claim)) = entered else {
                self.early.fetch_sub(1, Relaxed);
                return entered.map(|_| false);
            };
            mine.face.counts[self.engine.shard_of(claim.id)]
                .early_held
                .add(1);
            if self.engine.enforce(claim.id, deadline).is_err() {
                let lease = Lease::new(state, claim.incarnation, deadline);
                self.undo(mine, claim, lease, self.target(key, claim.incarnation))?;
            }
            Ok(true)
        })
    }

    pub(crate) fn fail_chosen(&self, key: u64, by: Option<u64>) -> Result<Done, AckError> {
        let hash = self.engine.hash(key);
        loop {
            let Some(found) = self.find(hash, key) else {
                let (state, word) = match by {
                    None => (State::EarlyFailed, Held::Share(0)),
                    Some(by) => (State::EarlyFailedBy, Held::Culprit(by)),
                };
                match self.hold(hash, key, state, word)? {
                    true => return Ok(Done::Held),
                    false => continue,
                }
            };
            let lease = found.lease;
            match lease.state() {
                State::Live => {
                    let target = self.target(key, lease.incarnation());
                    match self.fail_live(found.claim(), lease, target, by) {
                        Ok(true) => return Ok(Done::Now),
                        Ok(false) => {}
                        Err(_) => return self.late(found.id),
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
        (self.engine.ticks().deadline(now, after), now)
    }

    /// Puts the culprit into the word of an early entry that has just been failed. If its init comes between, or its
    /// time runs out, the outcome names nobody.
    fn name_culprit(&self, found: &Found<'_>, mut failed: Lease, key: u64, by: u64) {
        let target = self.target(key, failed.incarnation());
        let mut word = found.slot.fields().word.load(Ordering::Acquire);
        loop {
            // The word is read first: if the lease is the same, so is the tenant. Acks that have seen
            // it as merely early may still change the word; after this swap their own fails.
            let now = found.slot.lease();
            if now.incarnation() != failed.incarnation() || now.state() != State::EarlyFailed {
                return;
            }
            failed = now;
            match found.slot.fields().word.compare_exchange(
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
        let hash = self.engine.hash(key);
        self.check(timeout)?;
        // Early signs all wait equally long.
        let early = Timeout::After(Duration::from_nanos(self.settings.early_timeout));
        let mut lost = None;
        loop {
            let Some(found) = self.find(hash, key) else {
                match self.hold(hash, key, State::Early, Held::Share(0))? {
                    true => return Ok(Done::Held),
                    false => continue,
                }
            };
            let lease = found.lease;
            let (timeout, done) = match lease.state() {
                // An init that is under way keeps what it finds in the lease, and tells the driver
                // of it.
                State::Live | State::Initing => (timeout, Done::Now),
                State::Early | State::EarlyFailed | State::EarlyFailedBy => (early, Done::Held),
                _ => return self.late(found.id),
            };
            // Of a later root under this id it is the first look, and where early signs have met
            // their init. A swap that was lost to a change of the state alone was lost to no
            // renewal.
            let is_again = |(id, before, was): (u32, Lease, Done)| {
                (id, was, before.incarnation()) == (found.id, done, lease.incarnation())
                    && before.with_state(lease.state()) != lease
            };
            let look = Look::after(lost.is_some_and(is_again));
            let Some(deadline) = self.renewed(lease, look, timeout)? else {
                return Ok(done);
            };
            let renewed = lease.with_deadline(deadline);
            if found.slot.swap_lease(lease, renewed).is_ok() {
                self.engine.shortened(found.id, lease, deadline);
                return Ok(done);
            }
            lost = Some((found.id, lease, done));
        }
    }
}

impl<'a> Found<'a> {
    fn claim(&self) -> Claim<'a, Tree> {
        Claim::of(self.id, self.slot, self.lease)
    }
}
