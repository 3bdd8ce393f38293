//! Ack trees on the engine's slots: the protocol of `init`, `ack`, `fail` and `reset_timeout`.
//!
//! # The word
//!
//! A slot's word is the XOR of everything seen for its root, *whitened*: XORed with a constant that depends
//! on the root, its incarnation and a secret of this tracker. There are two whitenings, W0 for a root whose
//! init has not come and W1 for one whose init has. A tree is complete if and only if its word is exactly W1.
//!
//! * The one compare-and-swap that makes the word W1 knows it: no second word has to be read, so there is no
//!   store/load race between the last ack and the init.
//! * A compare-and-swap that was prepared against one tenant fails on every other, even for the same key
//!   with the same edge ids (W14), up to a chance of 2^-64.
//!
//! # Linearization points
//!
//! | operation | takes effect |
//! |---|---|
//! | `issue` | the store that makes the lease LIVE (nobody else knows the id yet) |
//! | `init`, fresh | the publication in the index |
//! | `init`, after early acks | the swap EARLY -> INITING, which refuses a second init |
//! | `ack` | the compare-and-swap on the word; refused as late: the load of a lease that is not live |
//! | `ack`, first sign of a chosen root | the publication in the index |
//! | completion | the swap LIVE -> DEAD of the one who made the word W1 |
//! | `fail` | the swap LIVE -> DEAD (or EARLY -> EARLY_FAILED, or the publication) |
//! | `reset_timeout` | the swap of the lease's deadline |
//! | timeout | the driver's swap LIVE -> DEAD |
//!
//! An ack whose XOR lands after the tree has timed out or failed, having seen a live lease before, counts as
//! one that came just before that end; it changes nothing that anybody reads.
//!
//! Loads in every operation on a slot are in the order word, key, lease. The claimer stores in the order
//! key, word (Release), lease (Release). So who reads a tenant's word also reads that tenant's key
//! and lease, or later ones; and of later ones the swap on the word would fail.

use super::deliver::Deliver;
use super::error::AckError;
use super::outcome::{Ack, Done, Outcome, Reason, Root, RootId};
use crate::core::engine::{Claim, Engine, Face, Refused, Stripe};
use crate::core::index::{Insert, Removed};
use crate::core::lease::{set, IssuedId, Lease, State};
use crate::core::slots::Slot;
use crate::core::threads::Counter;
use crate::sync::Ordering;
use crate::time::NEVER;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How long a root may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timeout {
    /// As long as the tracker's timeout says.
    #[default]
    Default,
    /// As long as this, rounded up to the interval.
    After(Duration),
    /// For ever.
    Never,
}

/// One shard's part of a thread's counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) begun: Counter,
    pub(crate) acked: Counter,
    pub(crate) failed: Counter,
    pub(crate) expired: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) late: Counter,
    pub(crate) duplicate: Counter,
    pub(crate) refused: Counter,
    pub(crate) early_held: Counter,
    pub(crate) early_merged: Counter,
    pub(crate) early_expired: Counter,
    /// Keys put into, and taken out of, the index of this shard.
    pub(crate) keys_in: Counter,
    pub(crate) keys_out: Counter,
}

/// A thread's share.
pub(crate) struct Share {
    pub(crate) counts: Box<[Counts]>,
    nonce: Counter,
}

impl Share {
    fn new(shards: usize) -> Self {
        Share {
            counts: (0..shards).map(|_| Counts::default()).collect(),
            nonce: Counter::default(),
        }
    }
}

type Mine = Stripe<Share>;

/// Buckets of the lateness histogram: powers of two of nanoseconds.
pub(crate) const LATENESS: usize = 64;

pub(crate) struct Settings {
    /// Default timeout in nanoseconds; `None` if timeouts are off.
    pub(crate) timeout: Option<u64>,
    pub(crate) early_timeout: u64,
    pub(crate) early_capacity: u64,
    /// Of 2^32 roots, how many have their latency taken.
    pub(crate) sampled: u64,
    /// log2 of the unit of birth stamps, in nanoseconds.
    pub(crate) unit: u32,
    pub(crate) secrets: [u64; 4],
}

/// The trees of one tracker.
pub(crate) struct Trees {
    pub(crate) engine: Engine<Share>,
    settings: Settings,
    /// Early arrivals held now.
    early: AtomicU64,
    pub(crate) deliver: Deliver,
    /// Written by the driver only.
    pub(crate) lateness: [Counter; LATENESS],
    /// Nanoseconds that rounds of the reaper have taken. Written by it only.
    pub(crate) busy: Counter,
    pub(crate) rounds: Counter,
}

/// States of a chosen root that its index word leads to.
const HELD: u16 = set(&[
    State::Early,
    State::EarlyFailed,
    State::Initing,
    State::InitingFailed,
    State::Live,
]);
/// A slot that was found under a chosen id, as it was just then.
struct Found<'a> {
    id: u32,
    slot: &'a Slot,
    word: u64,
    lease: Lease,
}

#[inline]
#[allow(clippy::cast_possible_truncation)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl From<Refused> for AckError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => AckError::Full,
            Refused::OutOfMemory => AckError::OutOfMemory,
            Refused::Closed => AckError::Closed,
        }
    }
}

impl Trees {
    pub(crate) fn new(engine: Engine<Share>, settings: Settings, deliver: Deliver) -> Self {
        Trees {
            engine,
            settings,
            early: AtomicU64::new(0),
            deliver,
            lateness: std::array::from_fn(|_| Counter::default()),
            busy: Counter::default(),
            rounds: Counter::default(),
        }
    }

    /// Makes a thread's share; see [`Engine::new`].
    pub(crate) fn share(shards: usize) -> impl Fn() -> Share + Send + Sync + 'static {
        move || Share::new(shards)
    }

    // ---- the word ----

    #[inline]
    fn issued_target(&self, root: u64) -> u64 {
        let [a, b, ..] = self.settings.secrets;
        fold(root ^ a, b | 1)
    }

    /// W1 of a chosen id.
    #[inline]
    fn target(&self, key: u64, incarnation: u32) -> u64 {
        let [a, b, c, _] = self.settings.secrets;
        fold(fold(key ^ a, b | 1) ^ u64::from(incarnation) ^ c, c | 1)
    }

    /// W0 ^ W1: what an init XORs into the word besides its edges. Never zero.
    #[inline]
    fn init_mark(&self, target: u64) -> u64 {
        let [_, b, _, d] = self.settings.secrets;
        fold(target ^ d, b | 1) | 1
    }

    #[inline]
    fn is_sampled(&self, target: u64) -> bool {
        (target >> 32) < self.settings.sampled
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // birth stamps are modulo 2^32 by design
    fn stamp(&self, now: u64) -> u32 {
        (now >> self.settings.unit) as u32
    }

    fn latency(&self, target: u64, id: u32) -> Option<Duration> {
        self.is_sampled(target).then(|| {
            let now = self.stamp(self.engine.clock.now());
            Duration::from_nanos(
                u64::from(now.wrapping_sub(self.engine.birth(id))) << self.settings.unit,
            )
        })
    }

    /// Age of a live root, for operators.
    pub(crate) fn age(&self, id: u32, now: u64) -> Duration {
        let stamp = self.stamp(now).wrapping_sub(self.engine.birth(id));
        // The stamp may come from a reading a little later than `now`.
        let stamp = if stamp > u32::MAX - (1 << 16) {
            0
        } else {
            stamp
        };
        Duration::from_nanos(u64::from(stamp) << self.settings.unit)
    }

    // ---- deadlines ----

    /// The deadline of a root that begins now, and the clock reading that it was derived from.
    #[inline(always)]
    fn deadline(&self, mine: &Mine, timeout: Timeout) -> Result<(u64, u64), AckError> {
        let (now, lag) = self.engine.now_for_deadline();
        if timeout == Timeout::Default {
            // The same as last time, unless a tick has gone by (or the clock went back).
            let until = mine.deadline_until.get();
            if now < until && until - now <= self.engine.ticks.interval_nanos() {
                return Ok((mine.deadline.get(), now));
            }
        }
        Ok((self.deadline_from(mine, timeout, now, lag)?, now))
    }

    #[cold]
    fn deadline_from(
        &self,
        mine: &Mine,
        timeout: Timeout,
        now: u64,
        lag: u64,
    ) -> Result<u64, AckError> {
        let ticks = &self.engine.ticks;
        match timeout {
            Timeout::Default => {
                let Some(after) = self.settings.timeout else {
                    return Ok(NEVER);
                };
                let after = after.saturating_add(lag);
                let deadline = ticks.deadline(now, after);
                let until = ticks.same_deadline_until(deadline, after);
                mine.deadline.set(deadline);
                mine.deadline_until.set(until.saturating_add(1));
                Ok(deadline)
            }
            Timeout::Never => Ok(NEVER),
            Timeout::After(after) if after.is_zero() => Err(AckError::ZeroTimeout),
            Timeout::After(after) => {
                let after = ticks.timeout(after).ok_or(AckError::TimeoutTooLong)?;
                Ok(ticks.deadline(now, after.saturating_add(lag)))
            }
        }
    }

    // ---- issued roots ----

    pub(crate) fn issue(&self, xor: u64, owner: u64, timeout: Timeout) -> Result<Root, AckError> {
        self.engine.with_stripe(|mine, index| {
            let (deadline, now) = self.deadline(mine, timeout)?;
            self.issue_at(mine, index, xor, owner, deadline, now)
        })
    }

    #[inline]
    fn issue_at(
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

    /// The engine was shut down while an entry was on its way in. If this ends it, it never was.
    #[cold]
    fn undo(
        &self,
        mine: &Mine,
        claim: Claim<'_>,
        mut lease: Lease,
        target: u64,
    ) -> Result<(), AckError> {
        loop {
            match self.engine.end(claim.slot, lease) {
                Ok(()) => {
                    self.finish(mine, claim, lease, target, None);
                    return Err(AckError::Closed);
                }
                Err(now) if now.incarnation() == lease.incarnation() && now.state().expires() => {
                    lease = now;
                }
                // Ended by somebody else, who has told the owner: it was tracked.
                Err(_) => return Ok(()),
            }
        }
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
    fn complete_issued(&self, mine: &Mine, mut claim: Claim<'_>, root: u64, target: u64) -> bool {
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
        let (deadline, _) = self
            .engine
            .with_stripe(|mine, _| self.deadline(mine, timeout))?;
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

    fn late<T>(&self, id: u32) -> Result<T, AckError> {
        self.engine.with_stripe(|mine, _| self.count_late(mine, id));
        Err(AckError::NotLive)
    }

    fn count_late(&self, mine: &Mine, id: u32) {
        mine.face.counts[self.engine.shard_of(id)].late.add(1);
    }

    // ---- chosen roots ----

    /// Whether slot `id`, which the index led to, holds `key` right now.
    #[inline(always)]
    fn holds(&self, id: u32, key: u64) -> Option<Found<'_>> {
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
    fn find(&self, shard: usize, hash: u32, key: u64) -> Option<Found<'_>> {
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
    fn publish(
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
        let claim = self.engine.claim(mine, index)?;
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
    fn init_at(
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
                // Early acks are waiting.
                State::Early => {
                    if self.merge(mine, &found, key, xor, owner, deadline, now) {
                        return Ok(());
                    }
                }
                // An early fail is.
                State::EarlyFailed => {
                    if self.engine.end(found.slot, found.lease).is_ok() {
                        self.early
                            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                        let counts = &mine.face.counts[self.engine.shard_of(found.id)];
                        counts.begun.add(1);
                        counts.early_merged.add(1);
                        let by = found.slot.owner.load(Ordering::Relaxed);
                        found.slot.owner.store(owner, Ordering::Relaxed);
                        let by = by.checked_sub(1);
                        let target = self.target(key, found.lease.incarnation());
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
    fn merge(
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
    fn complete_chosen(
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
    fn ack_chosen_at(&self, at: (usize, u32), key: u64, xor: u64) -> Result<Ack, AckError> {
        loop {
            let Some(found) = self.find(at.0, at.1, key) else {
                match self.hold(at, key, State::Early, 0, xor)? {
                    true => return Ok(Ack::Held),
                    false => continue,
                }
            };
            match found.lease.state() {
                State::EarlyFailed => return Ok(Ack::Held),
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
    fn hold(
        &self,
        at: (usize, u32),
        key: u64,
        state: State,
        owner: u64,
        xor: u64,
    ) -> Result<bool, AckError> {
        use std::sync::atomic::Ordering::Relaxed;
        self.engine.with_stripe(|mine, index| {
            if self.early.fetch_add(1, Relaxed) >= self.settings.early_capacity {
                self.early.fetch_sub(1, Relaxed);
                mine.face.counts[at.0].refused.add(1);
                return Err(AckError::EarlyFull);
            }
            let (now, lag) = self.engine.now_for_deadline();
            let after = self.settings.early_timeout.saturating_add(lag);
            let deadline = self.engine.ticks.deadline(now, after);
            let published = self.publish(
                (mine, index),
                at,
                key,
                owner,
                state,
                deadline,
                now,
                |target| target ^ self.init_mark(target) ^ xor,
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
        // Held fails keep the culprit where the owner will be, plus one, so that zero is nobody.
        let held = by.map_or(0, |by| by.saturating_add(1));
        loop {
            let Some(found) = self.find(at.0, at.1, key) else {
                match self.hold(at, key, State::EarlyFailed, held, 0)? {
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
                State::EarlyFailed => return Ok(Done::Held),
                _ => return self.late(found.id),
            }
        }
    }

    pub(crate) fn reset_chosen(&self, key: u64, timeout: Timeout) -> Result<Done, AckError> {
        let at = self.engine.hash(key);
        let (deadline, _) = self
            .engine
            .with_stripe(|mine, _| self.deadline(mine, timeout))?;
        loop {
            let Some(found) = self.find(at.0, at.1, key) else {
                match self.hold(at, key, State::Early, 0, 0)? {
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
                State::Early | State::EarlyFailed => {
                    let (now, lag) = self.engine.now_for_deadline();
                    let after = self.settings.early_timeout.saturating_add(lag);
                    let deadline = self.engine.ticks.deadline(now, after);
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

    // ---- ends ----

    /// What the one who ended a slot does with it: reads what it needs, frees it, and tells the owner.
    /// Without a reason nobody is told: it never was, or was an early arrival.
    fn finish(
        &self,
        mine: &Mine,
        claim: Claim<'_>,
        lease: Lease,
        target: u64,
        reason: Option<Reason>,
    ) {
        self.finish_at(mine, claim, lease, target, reason, None);
    }

    /// As [`finish`](Self::finish), for who knows the key's place in the index already.
    #[inline(always)] // with a reason known at compile time most of it falls away
    fn finish_at(
        &self,
        mine: &Mine,
        claim: Claim<'_>,
        lease: Lease,
        target: u64,
        reason: Option<Reason>,
        at: Option<(usize, u32)>,
    ) {
        let key = claim.slot.key.load(Ordering::Relaxed);
        let owner = claim.slot.owner.load(Ordering::Relaxed);
        let latency = if reason.is_some() {
            self.latency(target, claim.id)
        } else {
            None
        };
        let counts = &mine.face.counts[self.engine.shard_of(claim.id)];
        match reason {
            Some(Reason::Acked) => counts.acked.add(1),
            Some(Reason::Failed { .. }) => counts.failed.add(1),
            Some(Reason::TimedOut { .. }) => counts.expired.add(1),
            Some(Reason::Cancelled) => counts.cancelled.add(1),
            None if matches!(lease.state(), State::Live | State::LiveIssued) => {
                counts.cancelled.add(1);
            }
            None => {
                self.early
                    .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                counts.early_expired.add(1);
            }
        }
        let root = if lease.state() == State::LiveIssued {
            if self.engine.free(mine, &claim) {
                self.maybe_tend();
            }
            RootId::Issued(Root(key))
        } else {
            let (shard, hash) = at.unwrap_or_else(|| self.engine.hash(key));
            mine.face.counts[shard].keys_out.add(1);
            // Before the slot is freed: no slot is reused while the index has a word for it.
            match self.engine.index(shard).remove(hash, claim.id) {
                Removed::Clean => {
                    if self.engine.free(mine, &claim) {
                        self.maybe_tend();
                    }
                }
                Removed::Copied => self.engine.to_limbo(shard, &claim),
            }
            RootId::Chosen(key)
        };
        if let Some(reason) = reason {
            self.deliver.tell(&Outcome {
                root,
                owner,
                reason,
                latency,
            });
        }
    }

    #[cold]
    fn maybe_tend(&self) {
        if self.engine.wants_tending(self) {
            self.engine.tend_soon();
        }
    }

    /// Ends everything that is live, told to `f` instead of the handler if there is one.
    pub(crate) fn close(&self, mut f: Option<&mut dyn FnMut(Outcome)>) {
        self.engine.close(self, |claim, lease| {
            let early = !matches!(lease.state(), State::Live | State::LiveIssued);
            self.engine.with_stripe(|mine, _| {
                let key = claim.slot.key.load(Ordering::Relaxed);
                let target = if lease.state() == State::LiveIssued {
                    self.issued_target(key)
                } else {
                    self.target(key, lease.incarnation())
                };
                match &mut f {
                    Some(f) if !early => {
                        f(Outcome {
                            root: if lease.state() == State::LiveIssued {
                                RootId::Issued(Root(key))
                            } else {
                                RootId::Chosen(key)
                            },
                            owner: claim.slot.owner.load(Ordering::Relaxed),
                            reason: Reason::Cancelled,
                            latency: self.latency(target, claim.id),
                        });
                        self.finish(mine, claim, lease, target, None);
                    }
                    _ => {
                        let reason = (!early).then_some(Reason::Cancelled);
                        self.finish(mine, claim, lease, target, reason);
                    }
                }
            });
        });
    }

    // ---- batches ----

    /// Starts fetching what an ack of `root` will touch.
    #[inline]
    pub(crate) fn prefetch_issued(&self, root: Root) {
        if let Some(slot) = self.engine.slot(IssuedId(root.0).slot()) {
            crate::core::prefetch(slot);
        }
    }

    pub(crate) fn issue_batch(
        &self,
        items: &[(u64, u64)],
        timeout: Timeout,
        into: &mut Vec<Root>,
    ) -> Result<(), AckError> {
        self.engine.with_stripe(|mine, index| {
            let (deadline, now) = self.deadline(mine, timeout)?;
            for &(xor, owner) in items {
                into.push(self.issue_at(mine, index, xor, owner, deadline, now)?);
            }
            Ok(())
        })
    }

    pub(crate) fn init_batch(
        &self,
        items: &[(u64, u64, u64)],
        timeout: Timeout,
        mut each: impl FnMut(usize, Result<(), AckError>),
    ) {
        self.engine.with_stripe(|mine, index| {
            let (deadline, now) = match self.deadline(mine, timeout) {
                Ok(deadline) => deadline,
                Err(error) => {
                    (0..items.len()).for_each(|at| each(at, Err(error)));
                    return;
                }
            };
            self.in_groups(
                items,
                |item| item.0,
                |at, place, &(key, xor, owner)| {
                    let done = self.init_at((mine, index), place, key, xor, owner, deadline, now);
                    each(at, done);
                },
            );
        });
    }

    pub(crate) fn ack_chosen_batch(
        &self,
        items: &[(u64, u64)],
        mut each: impl FnMut(usize, Result<Ack, AckError>),
    ) {
        self.in_groups(
            items,
            |item| item.0,
            |at, place, &(key, xor)| {
                each(
                    at,
                    if xor == 0 {
                        Err(AckError::ZeroEdge)
                    } else {
                        self.ack_chosen_at(place, key, xor)
                    },
                );
            },
        );
    }

    /// Goes through `items` in groups: hash all, fetch their homes, fetch the slots these name, act.
    fn in_groups<T>(
        &self,
        items: &[T],
        key: impl Fn(&T) -> u64,
        mut act: impl FnMut(usize, (usize, u32), &T),
    ) {
        /// As many misses as a core has outstanding, and then some: a tree's acks often come together.
        const GROUP: usize = 64;
        let mut places = [(0usize, 0u32); GROUP];
        for (group, items) in items.chunks(GROUP).enumerate() {
            for (place, item) in places.iter_mut().zip(items) {
                *place = self.engine.hash(key(item));
                self.engine.index(place.0).prefetch(place.1);
            }
            for place in &places[..items.len()] {
                self.engine.index(place.0).peek(place.1, |id| {
                    if let Some(slot) = self.engine.slot(id) {
                        crate::core::prefetch(slot);
                    }
                });
            }
            for (at, item) in items.iter().enumerate() {
                act(group * GROUP + at, places[at], item);
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

impl Face for Trees {
    fn may_end(&self, claim: &Claim<'_>, lease: Lease) -> bool {
        if lease.state() == State::LiveIssued {
            return true;
        }
        // Its claimer still owns it, and may withdraw it, until the index has it.
        let (shard, hash) = self.engine.hash(claim.slot.key.load(Ordering::Acquire));
        self.engine
            .index(shard)
            .find(hash, |id| id == claim.id)
            .is_some()
    }

    fn expired(&self, claim: Claim<'_>, lease: Lease, deadline: u64, now: u64) {
        let key = claim.slot.key.load(Ordering::Relaxed);
        let ticks = &self.engine.ticks;
        let (reason, target) = match lease.state() {
            State::Live | State::LiveIssued => {
                let due = ticks.begins(deadline);
                let late = now.saturating_sub(due);
                self.lateness[(late.max(1).ilog2() as usize).min(LATENESS - 1)].add(1);
                let reason = Reason::TimedOut {
                    due: Duration::from_nanos(due.saturating_sub(ticks.start())),
                    seen: Duration::from_nanos(now.max(due).saturating_sub(ticks.start())),
                };
                let target = if lease.state() == State::LiveIssued {
                    self.issued_target(key)
                } else {
                    self.target(key, lease.incarnation())
                };
                (Some(reason), target)
            }
            _ => (None, 0),
        };
        self.engine
            .with_stripe(|mine, _| self.finish(mine, claim, lease, target, reason));
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        let (mut slots, mut keys) = (0u64, 0u64);
        for share in self.engine.stripes() {
            let counts = &share.counts[shard];
            slots = slots
                .wrapping_add(counts.begun.get())
                .wrapping_add(counts.early_held.get())
                .wrapping_sub(counts.acked.get())
                .wrapping_sub(counts.failed.get())
                .wrapping_sub(counts.expired.get())
                .wrapping_sub(counts.cancelled.get())
                .wrapping_sub(counts.early_merged.get())
                .wrapping_sub(counts.early_expired.get());
            keys = keys
                .wrapping_add(counts.keys_in.get())
                .wrapping_sub(counts.keys_out.get());
        }
        // Counters are read one after another while others count: a little below zero is zero.
        let sane = |n: u64| if n > i64::MAX as u64 { 0 } else { n };
        (sane(slots), sane(keys))
    }
}
