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
//! [`tree`] says in what order a slot's words are read and written.

mod batch;
mod chosen;
mod issued;
mod tree;

use self::chosen::At;
use self::tree::Tree;

use super::deliver::Deliver;
use super::error::AckError;
use super::outcome::{Outcome, Reason, Root, RootId};
use crate::core::engine::{BadTimeout, Claim, Engine, Face, Look, Refused, Stripe};
use crate::core::lease::{Lease, State};
use crate::core::per_shard::PerShard;
use crate::core::slot::Slot;
use crate::core::threads::Counter;
#[cfg(feature = "async")]
use crate::setup::Leftovers;
use crate::sync::park::Patience;
use crate::sync::Ordering;
use crate::time::Timeout;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// One shard's part of a thread's counters. A power of two in size: an address is a shift.
#[derive(Debug, Default)]
#[repr(align(128))]
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
    pub(crate) counts: PerShard<Counts>,
    nonce: Counter,
    /// How many roots this thread is about to end, or has ended and has yet to tell of. See [`Share::telling`].
    untold: AtomicU64,
}

impl Share {
    fn new(shards: usize) -> Self {
        Share {
            counts: PerShard::new(shards),
            nonce: Counter::default(),
            untold: AtomicU64::new(0),
        }
    }

    /// Says that this thread is about to end a root, and then to tell of it, until what is returned is dropped. Before the swap that
    /// ends it: who finds the root ended finds this said. (A standard atomic also under loom, as the engine's.)
    #[inline(always)]
    pub(super) fn telling(&self) -> Telling<'_> {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        // By one thread at a time.
        self.untold.store(self.untold.load(relaxed) + 1, relaxed);
        Telling(&self.untold)
    }

    /// Runs `f`, which may do anything, a shutdown included, now that this thread has told of what it has said this for last. What it has
    /// said before stands: `f` may be called in a waker which is called by who has ended another root, and has yet to tell of that.
    #[cfg(feature = "async")]
    #[cold]
    fn told(&self, f: impl FnOnce()) {
        use std::sync::atomic::Ordering::{Relaxed, Release};
        let untold = self.untold.load(Relaxed);
        self.untold.store(untold - 1, Release);
        f();
        self.untold.store(untold, Relaxed);
    }

    fn has_told(&self) -> bool {
        self.untold.load(std::sync::atomic::Ordering::Acquire) == 0
    }
}

/// See [`Share::telling`].
pub(super) struct Telling<'a>(&'a AtomicU64);

impl Drop for Telling<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let untold = self.0.load(std::sync::atomic::Ordering::Relaxed);
        // Release: who finds it gone finds what was told.
        self.0
            .store(untold - 1, std::sync::atomic::Ordering::Release);
    }
}

type Mine = Stripe<Share>;

/// A root that an operator's call has seen in flight. Slot, generation and key name that one root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Slot that the root lies in.
    pub(super) id: u32,
    /// The lease as it was seen, live.
    pub(super) lease: Lease,
    /// Id of the root.
    pub(super) key: u64,
}

pub(crate) struct Settings {
    /// Default timeout in nanoseconds; `None` if timeouts are off.
    pub(crate) timeout: Option<u64>,
    pub(crate) early_timeout: u64,
    pub(crate) early_capacity: u64,
    /// Of 2^32 roots, how many have their latency taken.
    pub(crate) sampled: u64,
    pub(crate) secrets: [u64; 4],
}

/// The trees of one tracker.
pub(crate) struct Trees {
    pub(crate) engine: Engine<Tree, Share>,
    settings: Settings,
    /// Early arrivals held now.
    early: AtomicU64,
    pub(crate) deliver: Deliver,
    #[cfg(feature = "async")]
    pub(crate) returned: Leftovers<Outcome>,
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

impl From<BadTimeout> for AckError {
    fn from(bad: BadTimeout) -> Self {
        match bad {
            BadTimeout::Zero => AckError::ZeroTimeout,
            BadTimeout::TooLong => AckError::TimeoutTooLong,
        }
    }
}

impl Trees {
    pub(crate) fn new(engine: Engine<Tree, Share>, settings: Settings, deliver: Deliver) -> Self {
        Trees {
            engine,
            settings,
            early: AtomicU64::new(0),
            deliver,
            #[cfg(feature = "async")]
            returned: Leftovers::new(),
        }
    }

    /// What a caller is told for whose entry there is no room, or no more is to come. The former is counted.
    #[cold]
    pub(super) fn refuse(&self, why: impl Into<AckError>) -> AckError {
        let why = why.into();
        if why != AckError::Closed {
            self.engine.count_refusal();
        }
        why
    }

    /// Makes a thread's share; see [`Engine::new`].
    pub(crate) fn share(shards: usize) -> impl Fn() -> Share + Send + Sync + 'static {
        move || Share::new(shards)
    }

    // ---- the word ----

    #[inline]
    pub(super) fn issued_target(&self, root: u64) -> u64 {
        let [a, b, ..] = self.settings.secrets;
        fold(root ^ a, b | 1)
    }

    /// W1 of a chosen id.
    #[inline(always)]
    pub(super) fn target(&self, key: u64, incarnation: u32) -> u64 {
        let [a, b, c, _] = self.settings.secrets;
        // Above the bits that a multiplication leaves alone, and below the top.
        fold(key ^ a, (b ^ c ^ u64::from(incarnation) << 24) | 1)
    }

    /// W0 ^ W1: what an init XORs into the word besides its edges. Never zero.
    #[inline]
    pub(super) fn init_mark(&self, target: u64) -> u64 {
        let [_, b, _, d] = self.settings.secrets;
        fold(target ^ d, b | 1) | 1
    }

    #[inline]
    pub(super) fn is_sampled(&self, target: u64) -> bool {
        (target >> 32) < self.settings.sampled
    }

    pub(super) fn set_birth(&self, id: u32, stamp: u64) {
        if let Some(spot) = self.engine.spot(id) {
            // Published by the lease, which is set after it.
            spot.note.store(stamp, Ordering::Relaxed);
        }
    }

    fn birth(&self, id: u32) -> u64 {
        let spot = self.engine.spot(id);
        spot.map_or(0, |spot| spot.note.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn latency(&self, target: u64, id: u32) -> Option<Duration> {
        if self.is_sampled(target) {
            Some(self.age_now(id))
        } else {
            None
        }
    }

    #[cold]
    fn age_now(&self, id: u32) -> Duration {
        self.age(id, self.engine.clock().now())
    }

    /// The birth stamp of a root with this target that begins `now`: an exact reading if its
    /// latency will be reported.
    #[inline(always)]
    pub(super) fn born(&self, target: u64, now: u64) -> u64 {
        if self.is_sampled(target) {
            self.now_exactly()
        } else {
            now
        }
    }

    #[cold]
    #[inline(never)]
    fn now_exactly(&self) -> u64 {
        self.engine.clock().now()
    }

    /// The deadline of a root that begins now, and the clock reading that it was derived from.
    #[inline(always)]
    pub(super) fn deadline(&self, mine: &Mine, timeout: Timeout) -> Result<(u64, u64), AckError> {
        let default = self.settings.timeout;
        Ok(self.engine.deadline(mine, timeout, default)?)
    }

    /// Refuses a timeout that a renewal cannot have. Before the root is looked for: whether there
    /// is one makes no difference.
    #[inline]
    pub(super) fn check(&self, timeout: Timeout) -> Result<(), AckError> {
        self.engine.nanos(timeout, self.settings.timeout)?;
        Ok(())
    }

    /// The deadline that a renewal sets which has just looked at `lease`; `None` leaves the lease
    /// as it is, and the renewal is done.
    #[inline]
    pub(super) fn renewed(
        &self,
        lease: Lease,
        look: Look,
        timeout: Timeout,
    ) -> Result<Option<u64>, AckError> {
        let default = self.settings.timeout;
        Ok(self.engine.renewed(lease, look, timeout, default, self)?)
    }

    /// Age of a live root. Zero where its birth stamp comes from a later reading than `now`.
    pub(crate) fn age(&self, id: u32, now: u64) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.birth(id)))
    }

    /// The engine was shut down while an entry was on its way in. If this ends it, it never was.
    #[cold]
    pub(super) fn undo(
        &self,
        mine: &Mine,
        claim: Claim<'_, Tree>,
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

    #[cold]
    #[inline(never)]
    pub(super) fn late<T>(&self, id: u32) -> Result<T, AckError> {
        self.engine.with_stripe(|mine, _| self.count_late(mine, id));
        Err(AckError::NotLive)
    }

    #[cold]
    pub(super) fn count_late(&self, mine: &Mine, id: u32) {
        mine.face.counts[self.engine.shard_of(id)].late.add(1);
    }

    // ---- ends ----

    /// Fails the root that was seen in flight, under whatever lease it has by now. False if that
    /// root has ended, or a shutdown will end it; a later root in its slot, be it of the same id,
    /// is left alone.
    pub(super) fn fail_seen(&self, seen: &Seen) -> bool {
        let Some(slot) = self.engine.slot(seen.id) else {
            return false;
        };
        loop {
            // The lease is read first: the key cannot be older than the lease's root.
            let lease = slot.lease();
            let same = lease.incarnation() == seen.lease.incarnation()
                && lease.state() == seen.lease.state()
                && slot.fields().key.load(Ordering::Acquire) == seen.key;
            if !same {
                return false;
            }
            let target = if lease.state() == State::LiveIssued {
                self.issued_target(seen.key)
            } else {
                self.target(seen.key, lease.incarnation())
            };
            match self.fail_live(Claim::of(seen.id, slot, lease), lease, target, None) {
                Ok(true) => return true,
                // It was renewed, or has ended: look again.
                Ok(false) => {}
                Err(_) => return false,
            }
        }
    }

    /// Fails a live root, unless it has another lease by now. Whether this did; refused if a shutdown will end it, or its init.
    fn fail_live(
        &self,
        claim: Claim<'_, Tree>,
        lease: Lease,
        target: u64,
        by: Option<u64>,
    ) -> Result<bool, Refused> {
        self.engine.with_stripe(|mine, _| {
            let _telling = mine.face.telling();
            // Also of an issued one: it may have been found among those in flight before its issuer has it.
            if self.engine.has_closed(claim.id) {
                return Err(Refused::Closed);
            }
            let ended = self.engine.end(claim.slot, lease).is_ok();
            if ended {
                self.finish(mine, claim, lease, target, Some(Reason::Failed { by }));
            }
            Ok(ended)
        })
    }

    /// What the one who ended a slot does with it: reads what it needs, frees it, and tells the owner.
    /// Without a reason nobody is told: it never was, or was an early arrival.
    pub(super) fn finish(
        &self,
        mine: &Mine,
        claim: Claim<'_, Tree>,
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
        claim: Claim<'_, Tree>,
        lease: Lease,
        target: u64,
        reason: Option<Reason>,
        at: Option<At>,
    ) {
        let key = claim.slot.fields().key.load(Ordering::Relaxed);
        let owner = claim.slot.fields().owner.load(Ordering::Relaxed);
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
            let At { hash, position } = at.unwrap_or_else(|| At {
                hash: self.engine.hash(key),
                position: None,
            });
            let counts = &mine.face.counts[self.engine.shard_of_hash(hash)];
            counts.keys_out.add(1);
            // Before the slot is freed: no slot is reused while the index has a word for it.
            let index = self.engine.index_of(hash);
            let removed = index.remove(&self.engine.pin(), hash, claim.id, position, |_| false);
            if self.engine.free_or_rest(mine, &claim, removed) {
                self.maybe_tend();
            }
            RootId::Chosen(key)
        };
        if let Some(reason) = reason {
            let outcome = Outcome {
                root,
                owner,
                reason,
                latency,
            };
            self.deliver.tell(&outcome);
            #[cfg(feature = "async")]
            if self.deliver.is_awaited() {
                if !mine.is_driving() {
                    mine.face.told(|| self.deliver.wake());
                } else {
                    // Who is at a shard says nothing: a shutdown waits there, and in a waker only asks.
                    self.deliver.wake();
                }
            }
        }
    }

    #[cold]
    pub(super) fn maybe_tend(&self) {
        if self.engine.wants_tending(self) {
            self.engine.tend_soon();
        }
    }

    /// Ends everything that is live, told to `f` instead of the handler if there is one.
    pub(crate) fn close(&self, mut f: Option<&mut dyn FnMut(Outcome)>) {
        self.engine.close(self, |claim, lease| {
            let early = !matches!(lease.state(), State::Live | State::LiveIssued);
            self.engine.with_stripe(|mine, _| {
                let key = claim.slot.fields().key.load(Ordering::Relaxed);
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
                            owner: claim.slot.fields().owner.load(Ordering::Relaxed),
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
        self.finish_telling();
    }

    /// The reaper's last. Nothing is left to close, unless it was told to stop by a handler, or by a task.
    pub(crate) fn last(&self) {
        #[cfg(feature = "async")]
        {
            let close = |left: &mut Vec<_>| self.close(Some(&mut |outcome| left.push(outcome)));
            if self.returned.fill(close) {
                return;
            }
        }
        self.close(None);
    }

    /// Whether this thread has ended a root and has yet to put that into the channel: it is in a waker of somebody who waits for room.
    pub(crate) fn is_telling(&self) -> bool {
        let has_told = || self.engine.with_stripe(|mine, _| mine.face.has_told());
        self.deliver.is_channel() && !has_told()
    }

    /// All roots have ended: waits for those that ended some and have yet to put them into the channel, if there is one.
    fn finish_telling(&self) {
        if !self.deliver.is_channel() {
            return;
        }
        let mut patience = Patience::new();
        while !self.engine.stripes().all(Share::has_told) && !self.engine.has_lost(&patience) {
            patience.wait();
        }
        self.deliver.finish();
    }
}

impl Face<Tree> for Trees {
    fn may_end(&self, claim: &Claim<'_, Tree>, lease: Lease) -> bool {
        if lease.state() == State::LiveIssued {
            return true;
        }
        // Its claimer still owns it, and may withdraw it, until the index has it.
        let hash = self
            .engine
            .hash(claim.slot.fields().key.load(Ordering::Acquire));
        self.engine
            .index_of(hash)
            .find(hash, &mut |id| id == claim.id)
            .is_some()
    }

    fn prepare(&self, _: u32, slot: Slot<'_, Tree>, lease: Lease) {
        if lease.state() != State::LiveIssued {
            let hash = self.engine.hash(slot.fields().key.load(Ordering::Relaxed));
            self.engine.index_of(hash).prefetch(hash);
        }
    }

    fn expired(&self, claim: Claim<'_, Tree>, lease: Lease, deadline: u64, now: u64) {
        let key = claim.slot.fields().key.load(Ordering::Relaxed);
        let ticks = self.engine.ticks();
        let (reason, target) = match lease.state() {
            State::Live | State::LiveIssued => {
                let due = ticks.begins(deadline);
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
        self.engine.balance(|share| {
            let Some(counts) = share.counts.get(shard) else {
                return (0, 0);
            };
            let ended = [
                &counts.acked,
                &counts.failed,
                &counts.expired,
                &counts.cancelled,
                &counts.early_merged,
                &counts.early_expired,
            ];
            let slots = Counter::balance(&[&counts.begun, &counts.early_held], &ended);
            (
                slots,
                Counter::balance(&[&counts.keys_in], &[&counts.keys_out]),
            )
        })
    }
}
