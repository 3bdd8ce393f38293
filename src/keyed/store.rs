//! The store under the keyed faces: look-up, insertion, touch, end. `replace` has the replacement.

use super::node::{bits_of, is_integer, is_plain, Ended, Node, NONE};
use super::StoreError;
use crate::core::engine::{BadTimeout, Claim, Engine, Face, Leaves, Refused, Stripe};
use crate::core::index::{Glance, Insert, Probe, Removed};
use crate::core::lease::{set, Lease, State};
use crate::core::slots::Slot;
use crate::core::threads::Counter;
use crate::error::BuildError;
use crate::inject::{hit, Bug};
use crate::panics::caught;
use crate::setup::{shut, Reaper, Setup};
#[cfg(feature = "async")]
use crate::setup::{shut_soon, Leftovers};
use crate::sync::grace::Pin;
use crate::sync::Ordering;
use crate::time::{nanos, Timeout};
use std::borrow::Borrow;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64 as Statistic;
use std::sync::Arc;
use std::time::Duration;

/// How many steps of work who finds the store full does to make room, and how often it tries again.
const ROOM: usize = 64;
const ATTEMPTS: u32 = 16;

/// States of an entry that its index word leads to.
pub(super) const HELD: u16 = set(&[State::Live, State::Replacing, State::Closing, State::Lapsed]);

/// One shard's part of a thread's counters.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counts {
    pub(crate) inserted: Counter,
    pub(crate) replaced: Counter,
    pub(crate) removed: Counter,
    pub(crate) expired: Counter,
    pub(crate) closed: Counter,
    /// Keys put into, and taken out of, the index of this shard.
    pub(crate) keys_in: Counter,
    pub(crate) keys_out: Counter,
}

/// A thread's share.
pub(crate) struct Share {
    pub(crate) counts: Box<[Counts]>,
}

type Mine = Stripe<Share>;

/// How an entry ended.
///
/// ```
/// use expiry::{Cause, ExpiringMap};
///
/// let map = ExpiringMap::builder()
///     .on_end(|peer: &u64, _: &(), cause: Cause| match cause {
///         Cause::Expired => println!("{peer} has fallen silent"),
///         Cause::Removed | Cause::Replaced => {}
///         other => println!("{peer}: {other}"),
///     })
///     .build()?;
/// map.insert(7, ())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Its time was up.
    Expired,
    /// Somebody removed it.
    Removed,
    /// A new value took its place.
    Replaced,
    /// The store was shut down.
    Closed,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cause::Expired => "expired",
            Cause::Removed => "removed",
            Cause::Replaced => "replaced",
            Cause::Closed => "closed",
        })
    }
}

/// Told of every end. Runs on the thread that ended the entry, when it has: it may call the store, be slow, or panic.
pub(crate) type Listener<K, V> = Box<dyn Fn(&K, &V, Cause) + Send + Sync>;

/// A slot that was found under a key, as it was just then.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) id: u32,
    pub(super) slot: &'a Slot,
    /// The node, if there are nodes.
    pub(super) word: u64,
    pub(super) lease: Lease,
    /// Where in its home the index had it, if in the home's own line.
    pub(super) position: Option<usize>,
}

/// Where a key belongs, and how it is told from others.
pub(super) struct Wanted<'q, F> {
    /// Shard and hash.
    pub(super) at: (usize, u32),
    /// What its slot has as its key.
    pub(super) bits: u64,
    pub(super) is_key: &'q F,
}

impl<F> Clone for Wanted<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Wanted<'_, F> {}

/// Looks for a key; see [`Probe`].
struct Seek<'s, 'q, K: 'static, V: 'static, S, F> {
    store: &'s Store<K, V, S>,
    wanted: Wanted<'q, F>,
    found: Option<Found<'s>>,
}

impl<K: 'static, V: 'static, S, F: Fn(&K) -> bool> Probe for Seek<'_, '_, K, V, S, F> {
    #[inline(always)]
    fn accept(&mut self, slot: u32) -> bool {
        self.found = self.store.peek(slot, self.wanted.bits, None);
        self.found.is_some()
    }

    #[inline(always)]
    fn confirm(&mut self) -> bool {
        // SAFETY: the look-up is pinned, and the index believes in the slot.
        self.found
            .is_some_and(|found| unsafe { found.has_key::<K, V>(self.wanted.is_key) })
    }
}

impl<'a> Found<'a> {
    /// One that was not found by its key.
    pub(super) fn of(id: u32, slot: &'a Slot, word: u64, lease: Lease) -> Self {
        Found {
            id,
            slot,
            word,
            lease,
            position: None,
        }
    }

    /// As it is now, if the slot still has this node. The caller has been pinned since it was found: no other node can have its
    /// address.
    pub(super) fn again(&self) -> Option<Self> {
        let lease = self.slot.lease();
        let same = self.slot.word.load(Ordering::Acquire) == self.word;
        same.then_some(Found { lease, ..*self })
    }

    /// Whether its key is the one, which for integers the slot has said.
    ///
    /// # Safety
    ///
    /// The look-up was pinned and still is, and the index has been found to believe in the slot since.
    #[inline(always)]
    unsafe fn has_key<K: 'static, V: 'static>(&self, is_key: &impl Fn(&K) -> bool) -> bool {
        // SAFETY: the node was published when the word was read, after the pin; so it has not been freed.
        is_integer::<K>() || is_key(unsafe { Node::<K, V>::at(self.word) }.key())
    }

    /// Where it is, its slot having `bits` as its key.
    pub(super) fn place(&self, bits: u64) -> Place {
        Place {
            id: self.id,
            incarnation: self.lease.incarnation(),
            bits,
        }
    }

    pub(super) fn claim(&self) -> Claim<'a> {
        Claim::of(self.id, self.slot, self.lease)
    }
}

/// What became of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Its deadline is another one now.
    Renewed,
    /// It had this deadline before.
    Unchanged,
    /// It is not there (any more).
    Gone,
    /// Somebody is taking leave of it.
    Closing,
}

impl Touched {
    /// Whether it lives until the deadline that it was touched with.
    pub(crate) fn is_alive(self) -> bool {
        matches!(self, Touched::Renewed | Touched::Unchanged)
    }
}

/// Names one tenancy of one slot: an entry from its insertion, or last replacement, to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) id: u32,
    pub(crate) incarnation: u32,
    pub(crate) bits: u64,
}

/// What became of an insertion.
pub(super) enum Entered<'a> {
    /// It is in.
    Done(Place),
    /// It was in, and this call has ended it again, because the store is shut down.
    Closed,
    /// Something is there already.
    Found(Found<'a>),
}

/// What became of an update.
pub(super) enum Update {
    /// The key was not there: it is in.
    Entered(Place),
    /// As [`Entered::Closed`].
    Closed,
    /// It was there.
    Touched(Touched),
}

pub(crate) struct Store<K: 'static, V: 'static, S> {
    pub(crate) engine: Engine<Share>,
    pub(super) hasher: S,
    /// The default timeout in nanoseconds; `None`: for ever.
    pub(super) timeout: Option<u64>,
    /// The default time to idle in nanoseconds, if there is one.
    pub(super) idle: Option<u64>,
    pub(super) listener: Option<Listener<K, V>>,
    /// Panics of the listener that were caught.
    pub(crate) panics: Statistic,
    #[cfg(feature = "async")]
    kept: Leftovers<Left<K, V>>,
    _nodes: PhantomData<(K, V)>,
}

/// What a shutdown has ended.
#[cfg(feature = "async")]
pub(super) type Left<K, V> = (Ended<K, V>, Lease);

/// A slot on its way in: freed, unless it gets there.
struct Entering<'a, K: 'static, V: 'static, S> {
    store: &'a Store<K, V, S>,
    mine: &'a Mine,
    shard: usize,
    claim: Claim<'a>,
}

impl<K: 'static, V: 'static, S> Drop for Entering<'_, K, V, S> {
    fn drop(&mut self) {
        // Never published, so still ours alone (see `may_end`).
        self.claim.slot.word.store(NONE, Ordering::Relaxed);
        self.mine.face.counts[self.shard].keys_out.add(1);
        self.store.engine.free(self.mine, &self.claim);
    }
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => StoreError::Full,
            Refused::OutOfMemory => StoreError::OutOfMemory,
            Refused::Closed => StoreError::Closed,
        }
    }
}

impl From<BadTimeout> for StoreError {
    fn from(bad: BadTimeout) -> Self {
        match bad {
            BadTimeout::Zero => StoreError::ZeroTimeout,
            BadTimeout::TooLong => StoreError::TimeoutTooLong,
        }
    }
}

impl<K: 'static, V: 'static, S> Store<K, V, S> {
    /// A thread's share; see [`Engine::new`].
    fn share(shards: usize) -> impl Fn() -> Share + Send + Sync + 'static {
        move || Share {
            counts: (0..shards).map(|_| Counts::default()).collect(),
        }
    }

    /// A store with these settings and default times.
    pub(super) fn build(
        setup: &Setup,
        hasher: S,
        timeout: Option<Duration>,
        idle: Option<Duration>,
        listener: Option<Listener<K, V>>,
    ) -> Result<Self, BuildError>
    where
        K: Send + Sync,
        V: Send + Sync,
    {
        // The shorter one first: it is what the interval is made for.
        let mut timeouts: Vec<_> = timeout.into_iter().chain(idle).collect();
        timeouts.sort_unstable();
        let (config, _) = setup.config(&timeouts)?;
        let share = Self::share(config.shards);
        Ok(Store {
            engine: Engine::new(config, share).map_err(|_| BuildError::OutOfMemory)?,
            hasher,
            timeout: timeout.map(nanos),
            idle: idle.map(nanos),
            listener,
            panics: Statistic::new(0),
            #[cfg(feature = "async")]
            kept: Leftovers::new(),
            _nodes: PhantomData,
        })
    }

    #[inline(always)]
    pub(super) fn wanted<'q, F>(&self, bits: u64, is_key: &'q F) -> Wanted<'q, F> {
        Self::wanted_at(self.engine.hash(bits), bits, is_key)
    }

    /// As [`wanted`](Self::wanted), for who has hashed before.
    #[inline(always)]
    pub(super) fn wanted_at<'q, F>(at: (usize, u32), bits: u64, is_key: &'q F) -> Wanted<'q, F> {
        Wanted { at, bits, is_key }
    }

    /// Held while nodes are looked at. Plain entries have none, and need no pin.
    #[inline(always)]
    pub(super) fn pin(&self, shard: usize) -> Option<Pin> {
        (!is_plain::<K, V>()).then(|| self.engine.index(shard).pin())
    }

    /// Slot `id`, which the index led to, if it seems to hold a key with these bits right now. The caller is pinned, if there are
    /// nodes. A node and a live lease that are returned are one tenancy's: the word has been the same before and after, and as long
    /// as we are pinned no other node has this one's address.
    #[inline(always)]
    fn peek(&self, id: u32, bits: u64, position: Option<usize>) -> Option<Found<'_>> {
        let slot = self.engine.slot(id)?;
        loop {
            let (word, lease) = slot.read(bits, HELD)?;
            if !is_plain::<K, V>() {
                if word == NONE {
                    return None;
                }
                if slot.word.load(Ordering::Acquire) != word {
                    continue;
                }
            }
            return Some(Found {
                id,
                slot,
                word,
                lease,
                position,
            });
        }
    }

    /// The entry of a key. The caller is pinned.
    #[inline(always)]
    pub(super) fn find<F: Fn(&K) -> bool>(&self, wanted: Wanted<'_, F>) -> Option<Found<'_>> {
        if hit(Bug::MissedLookUp) {
            return None;
        }
        let index = self.engine.index(wanted.at.0);
        match index.glance(wanted.at.1) {
            Glance::There(candidate) => {
                let position = Some(candidate.position());
                if let Some(found) = self.peek(candidate.slot(), wanted.bits, position) {
                    // SAFETY: the caller is pinned, and the index believes in the slot.
                    if candidate.is_believed() && unsafe { found.has_key::<K, V>(wanted.is_key) } {
                        return Some(found);
                    }
                }
            }
            Glance::Absent => return None,
            Glance::Unclear => {}
        }
        self.find_anywhere(wanted)
    }

    #[cold]
    #[inline(never)]
    fn find_anywhere<F: Fn(&K) -> bool>(&self, wanted: Wanted<'_, F>) -> Option<Found<'_>> {
        let mut seek = Seek {
            store: self,
            wanted,
            found: None,
        };
        // Never inside `find`'s closure after it has returned a slot: what was found last is what it is.
        self.engine
            .index(wanted.at.0)
            .find(wanted.at.1, &mut seek)?;
        seek.found
    }

    /// Puts a new entry in, unless the key has one. The caller is pinned. In an error nothing has changed; `word` is the
    /// caller's still, unless it is in.
    pub(super) fn enter<F: Fn(&K) -> bool>(
        &self,
        wanted: Wanted<'_, F>,
        word: u64,
        deadline: u64,
    ) -> Result<Entered<'_>, StoreError> {
        self.engine.with_stripe(|mine, stripe| {
            let mut refused = Refused::OutOfMemory;
            let Some((claim, spot)) = self.engine.claim(mine, stripe, &mut refused) else {
                // What is there already needs no room.
                return match self.find_anywhere(wanted) {
                    Some(found) if refused != Refused::Closed => Ok(Entered::Found(found)),
                    _ => Err(refused.into()),
                };
            };
            let (shard, hash) = wanted.at;
            let lease = Lease::new(State::Live, claim.incarnation, deadline);
            spot.occupy(wanted.bits, NONE, word, lease);
            mine.face.counts[shard].keys_in.add(1);
            let _telling = mine.telling(deadline);
            let entering = Entering {
                store: self,
                mine,
                shard,
                claim,
            };
            if !self.engine.index(shard).insert_at_home(hash, claim.id) {
                let mut seek = Seek {
                    store: self,
                    wanted,
                    found: None,
                };
                let entered = self.engine.publish(wanted.at, claim.id, &mut seek, self);
                match (entered, seek.found) {
                    (Insert::Done, _) => {}
                    (Insert::Found, Some(found)) => return Ok(Entered::Found(found)),
                    (Insert::Alike, _) => return Err(StoreError::Collisions),
                    _ => return Err(StoreError::OutOfMemory),
                }
            }
            std::mem::forget(entering);
            self.count(mine, claim.id).inserted.add(1);
            // If the engine was shut down meanwhile it ends here, unless it has ended.
            let enforced = self.engine.enforce_in(spot.header, claim.id, deadline);
            self.engine.heed(claim.id, deadline);
            if enforced.is_err() && self.end_closed(&claim, lease) {
                return Ok(Entered::Closed);
            }
            if hit(Bug::LostInsert) && self.engine.end(claim.slot, lease).is_ok() {
                drop(self.finish(mine, &claim, None, Cause::Removed));
            }
            Ok(Entered::Done(Place {
                id: claim.id,
                incarnation: claim.incarnation,
                bits: wanted.bits,
            }))
        })
    }

    /// The entry of a key; if it has none, as [`enter`](Self::enter).
    #[inline(always)]
    pub(super) fn find_or_enter<F: Fn(&K) -> bool>(
        &self,
        wanted: Wanted<'_, F>,
        word: u64,
        deadline: u64,
    ) -> Result<Entered<'_>, StoreError> {
        match self.find(wanted) {
            Some(found) => Ok(Entered::Found(found)),
            None => self.enter(wanted, word, deadline),
        }
    }

    /// Ends what came in while the engine was shut down. False if it has ended before.
    #[cold]
    #[inline(never)]
    pub(super) fn end_closed(&self, claim: &Claim<'_>, mut lease: Lease) -> bool {
        while lease.incarnation() == claim.incarnation && lease.is_in(HELD) {
            if lease.state() == State::Replacing {
                self.settle(claim.slot, claim.id, lease);
                lease = claim.slot.lease();
                continue;
            }
            match self.engine.end(claim.slot, lease) {
                Ok(()) => {
                    self.ended(claim, None, Cause::Closed);
                    return true;
                }
                Err(now) => lease = now,
            }
        }
        false
    }

    /// What the one who ended a slot does: [`finish`](Self::finish), and the listener is told.
    pub(super) fn ended(
        &self,
        claim: &Claim<'_>,
        position: Option<usize>,
        cause: Cause,
    ) -> Ended<K, V> {
        let ended = self
            .engine
            .with_stripe(|mine, _| self.finish(mine, claim, position, cause));
        self.tell(&ended, cause);
        ended
    }

    #[inline]
    pub(super) fn count<'m>(&self, mine: &'m Mine, id: u32) -> &'m Counts {
        &mine.face.counts[self.engine.shard_of(id)]
    }

    /// Takes the node out of a slot that the caller ended, takes its word out of the index, and frees it.
    pub(super) fn finish(
        &self,
        mine: &Mine,
        claim: &Claim<'_>,
        position: Option<usize>,
        cause: Cause,
    ) -> Ended<K, V> {
        let slot = claim.slot;
        let bits = slot.key.load(Ordering::Relaxed);
        let (shard, hash) = self.engine.hash(bits);
        let word = slot.word.load(Ordering::Acquire);
        if !is_plain::<K, V>() {
            // Before it is retired nobody may find it here any more, be it as an offer that has been taken.
            let offer = slot.owner.load(Ordering::Acquire);
            if offer == word {
                let _ =
                    slot.owner
                        .compare_exchange(offer, NONE, Ordering::AcqRel, Ordering::Relaxed);
            }
            slot.word.store(NONE, Ordering::Release);
        }
        let counts = self.count(mine, claim.id);
        match cause {
            _ if hit(Bug::LostCount) => {}
            Cause::Expired => counts.expired.add(1),
            Cause::Closed => counts.closed.add(1),
            _ => counts.removed.add(1),
        }
        mine.face.counts[shard].keys_out.add(1);
        let index = self.engine.index(shard);
        let position = position.or_else(|| {
            let likely = index.candidate(hash)?;
            (likely.slot() == claim.id).then(|| likely.position())
        });
        // Before the slot is freed: no slot is reused while the index has a word for it.
        match index.remove(hash, claim.id, position) {
            Removed::Clean => {
                if self.engine.free(mine, claim) && self.engine.wants_tending(self) {
                    self.engine.tend_soon();
                }
            }
            Removed::Copied => self.engine.to_limbo(shard, claim),
        }
        // SAFETY: ended by this thread, and out of the slot.
        unsafe { Ended::new(word, bits, index.grace().clone()) }
    }

    /// Tells the listener. Never panics.
    #[inline]
    pub(super) fn tell(&self, ended: &Ended<K, V>, cause: Cause) {
        let Some(listener) = self.listener.as_ref().filter(|_| !hit(Bug::LostOutcome)) else {
            return;
        };
        let cause = if hit(Bug::WrongCause) {
            Cause::Removed
        } else {
            cause
        };
        self.guard(|| listener(ended.key(), ended.value(), cause));
        if hit(Bug::DoubleOutcome) {
            self.guard(|| listener(ended.key(), ended.value(), cause));
        }
    }

    /// Runs what the user wants to be called. Never panics.
    #[inline]
    pub(super) fn guard(&self, told: impl FnOnce()) {
        if caught(told) {
            self.panics
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Whether an entry's time was up at `now`, although the driver has not come to it yet.
    #[inline]
    pub(super) fn is_over(&self, lease: Lease, now: u64) -> bool {
        // By what has been caught up with: years later, its deadline could be taken for one that is yet to come.
        lease.deadline_near(self.engine.about_now()) <= self.engine.ticks.at(now)
    }

    /// Ends an entry whose time is up, and tells the listener. False if it has changed meanwhile.
    pub(super) fn expire(&self, found: &Found<'_>) -> bool {
        if self.engine.end(found.slot, found.lease).is_err() {
            return false;
        }
        self.ended(&found.claim(), found.position, Cause::Expired);
        true
    }

    /// Moves the deadline of an entry that was found. `None` if it has changed meanwhile.
    #[inline]
    pub(super) fn renew(&self, found: &Found<'_>, deadline: u64) -> Option<Touched> {
        match found.lease.state() {
            State::Live => {
                let renewed = found.lease.with_deadline(deadline);
                if renewed == found.lease {
                    // When it was found it had this deadline: there is nothing to swap.
                    self.engine.heed(found.id, deadline);
                    return Some(Touched::Unchanged);
                }
                if hit(Bug::LateTouch) {
                    return Some(Touched::Renewed);
                }
                let renew = || {
                    found.slot.swap_lease(found.lease, renewed).ok()?;
                    // Renewed: no expiry by the old deadline can succeed any more (Q6).
                    self.engine.shortened(found.id, found.lease, deadline);
                    self.engine.heed(found.id, deadline);
                    Some(Touched::Renewed)
                };
                if deadline >= found.lease.deadline_near(deadline) {
                    return renew();
                }
                self.engine.with_stripe(|mine, _| {
                    let _telling = mine.telling(deadline);
                    renew()
                })
            }
            State::Replacing => {
                self.see_through(found);
                None
            }
            State::Closing if hit(Bug::Reopened) => {
                let renewed = found.lease.with_state(State::Live).with_deadline(deadline);
                found.slot.swap_lease(found.lease, renewed).ok()?;
                let _ = self.engine.enforce(found.id, deadline);
                Some(Touched::Renewed)
            }
            _ => Some(Touched::Closing),
        }
    }

    /// Renews the entry of a key.
    #[inline]
    pub(crate) fn touch(&self, bits: u64, is_key: impl Fn(&K) -> bool, deadline: u64) -> Touched {
        let wanted = self.wanted(bits, &is_key);
        let _pin = self.pin(wanted.at.0);
        loop {
            let Some(found) = self.find(wanted) else {
                return Touched::Gone;
            };
            if let Some(touched) = self.renew(&found, deadline) {
                return touched;
            }
        }
    }

    /// Renews an entry by its place: no look-up, no pin.
    #[inline]
    pub(crate) fn touch_at(&self, place: Place, deadline: u64) -> Touched {
        let Some(slot) = self.engine.slot(place.id) else {
            return Touched::Gone;
        };
        loop {
            // The lease is read first: the key cannot be older than the lease's tenant.
            let lease = slot.lease();
            let same = lease.incarnation() == place.incarnation
                && slot.key.load(Ordering::Acquire) == place.bits;
            if !same && !hit(Bug::StaleGeneration) {
                return Touched::Gone;
            }
            if !lease.is_in(HELD) {
                return Touched::Gone;
            }
            // It may have taken another's place, and not everybody has noticed.
            let replacing = lease.state() == State::Replacing;
            let _pin = replacing.then(|| self.pin(self.engine.hash(place.bits).0));
            let found = Found::of(place.id, slot, NONE, lease);
            if let Some(touched) = self.renew(&found, deadline) {
                return touched;
            }
        }
    }

    /// Ends the entry of a key, be its time up or not. Returns its lease too.
    pub(crate) fn remove(
        &self,
        bits: u64,
        is_key: impl Fn(&K) -> bool,
    ) -> Option<(Ended<K, V>, Lease)> {
        let wanted = self.wanted(bits, &is_key);
        let _pin = self.pin(wanted.at.0);
        loop {
            let found = self.find(wanted)?;
            if found.lease.state() == State::Replacing {
                self.see_through(&found);
            } else if self.engine.end(found.slot, found.lease).is_ok() {
                let ended = self.ended(&found.claim(), found.position, Cause::Removed);
                if is_plain::<K, V>() && hit(Bug::LostRemove) {
                    let deadline = found.lease.deadline_near(self.engine.about_now());
                    let _ = self.enter(wanted, NONE, deadline);
                }
                return Some((ended, found.lease));
            }
        }
    }

    /// Inserts an entry without a value, or renews the one that the key has.
    pub(super) fn update(
        &self,
        key: K,
        bits: u64,
        value: V,
        deadline: u64,
        face: &impl Face,
    ) -> Result<Update, StoreError>
    where
        K: Eq,
    {
        let at = self.engine.hash(bits);
        let Some(pin) = self.pin(at.0) else {
            let any = |_: &K| true;
            return self.update_with(Self::wanted_at(at, bits, &any), NONE, deadline, face);
        };
        let fresh = Node::fresh(key, value, None, &pin);
        let same = |other: &K| fresh.key() == other;
        let wanted = Self::wanted_at(at, bits, &same);
        let updated = self.update_with(wanted, fresh.word(), deadline, face);
        if let Ok(Update::Entered(_) | Update::Closed) = updated {
            fresh.settle_in();
        }
        updated
    }

    fn update_with<F: Fn(&K) -> bool>(
        &self,
        wanted: Wanted<'_, F>,
        word: u64,
        deadline: u64,
        face: &impl Face,
    ) -> Result<Update, StoreError> {
        let mut attempts = 0;
        loop {
            let found = match self.find_or_enter(wanted, word, deadline) {
                Ok(Entered::Done(place)) => return Ok(Update::Entered(place)),
                Ok(Entered::Closed) => return Ok(Update::Closed),
                Ok(Entered::Found(found)) => found,
                Err(error) => {
                    if self.makes_room(error, &mut attempts, face) {
                        continue;
                    }
                    return Err(error);
                }
            };
            if let Some(touched) = self.renew(&found, deadline) {
                return Ok(Update::Touched(touched));
            }
        }
    }

    /// The deadline of what begins now.
    #[inline]
    pub(crate) fn deadline(&self, timeout: Timeout) -> Result<u64, StoreError>
    where
        Self: Face,
    {
        Ok(self.engine.renewal(timeout, self.timeout, self)?)
    }

    /// Ends everything, and tells the listener.
    pub(crate) fn close(&self) {
        self.engine.close(self, |claim, _| {
            self.ended(&claim, None, Cause::Closed);
        });
        if !is_plain::<K, V>() {
            // Nobody comes to this store any more.
            self.engine
                .reclaim(true, self.engine.ticks.at(self.engine.clock.now()));
        }
    }

    /// What the reaper does before it ends, or a shutdown as a future without one.
    pub(super) fn last(&self) {
        #[cfg(feature = "async")]
        self.kept
            .fill(|left| self.close_with(|ended, lease| left.push((ended, lease))));
        self.close();
    }

    /// As [`shut_with`](Self::shut_with), by the reaper if there is one; see [`shut_soon`].
    #[cfg(feature = "async")]
    pub(super) fn shut_with_soon<'a>(
        &'a self,
        reaper: Option<&'a Reaper>,
    ) -> impl Future<Output = Vec<Left<K, V>>> + 'a {
        self.kept.want();
        let ended = shut_soon(&self.engine, reaper, || self.last());
        async move {
            ended.await;
            self.kept.take()
        }
    }

    /// Starts a reaper.
    pub(super) fn start(self: &Arc<Self>, budget: usize) -> Result<Reaper, BuildError>
    where
        Self: Send + Sync,
        K: Send + Sync,
        V: Send + Sync,
        S: 'static,
    {
        Reaper::start(self, |store| &store.engine, budget, Store::last)
    }

    /// Ends everything, stops the reaper, and waits for it, as [`shut`] does.
    pub(super) fn shut(&self, reaper: Option<&Reaper>) {
        shut(&self.engine, reaper, || self.close());
    }

    /// An insertion was refused with this error. Whether to try again: the store was full, and something that was due may have
    /// made room.
    #[cold]
    pub(super) fn makes_room(
        &self,
        error: StoreError,
        attempts: &mut u32,
        face: &impl Face,
    ) -> bool {
        let now = self.engine.clock.now();
        *attempts += 1;
        let tries = error == StoreError::Full && *attempts < ATTEMPTS && self.engine.is_due(now);
        if tries {
            self.engine.poll_beside(now, ROOM, face);
        } else if error != StoreError::Closed {
            self.engine.count_refusal();
        }
        tries
    }

    /// What is left of entries that a driver ends and gives away.
    pub(super) fn lends(&self) -> Leaves {
        match self.leaves() {
            Leaves::Nothing => Leaves::Nothing,
            Leaves::Retired | Leaves::Lent => Leaves::Lent,
        }
    }

    /// As [`shut`](Self::shut), and gives what there was, with its lease, to `left`, and not to the listener. In a round of the driver
    /// nothing is given, as the reaper closes when it stops.
    pub(super) fn shut_with(
        &self,
        reaper: Option<&Reaper>,
        mut left: impl FnMut(Ended<K, V>, Lease),
    ) {
        let closes = !self.engine.is_driving();
        if closes {
            self.close_with(&mut left);
        }
        self.shut(reaper);
        #[cfg(feature = "async")]
        if closes {
            // Of a future that was dropped, or has yet to end.
            for (ended, lease) in self.kept.take() {
                left(ended, lease);
            }
        }
    }

    /// Ends everything, and gives it away.
    pub(super) fn close_with(&self, mut left: impl FnMut(Ended<K, V>, Lease)) {
        self.engine.close(self, |claim, lease| {
            let ended = self
                .engine
                .with_stripe(|mine, _| self.finish(mine, &claim, None, Cause::Closed));
            left(ended, lease);
        });
    }

    /// Entries now; about, while others come and go.
    pub(crate) fn len(&self) -> usize {
        self.engine.len(self)
    }
}

impl<K: Hash + 'static, V: 'static, S: BuildHasher> Store<K, V, S> {
    /// What the slot of this key has as its key: its hash, or itself if it is an integer.
    #[inline(always)]
    pub(crate) fn bits<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        K: Borrow<Q>,
    {
        if is_integer::<K>() {
            bits_of(key)
        } else {
            self.hasher.hash_one(key)
        }
    }
}

impl<K: 'static, V: 'static, S> Face for Store<K, V, S> {
    fn may_end(&self, claim: &Claim<'_>, lease: Lease) -> bool {
        // Its claimer still owns it, and may withdraw it, until the index has it.
        let (shard, hash) = self.engine.hash(claim.slot.key.load(Ordering::Acquire));
        let index = self.engine.index(shard);
        let likely = index.candidate(hash);
        let published = likely
            .is_some_and(|likely| likely.slot() == claim.id && likely.is_believed())
            || index.find(hash, &mut |id| id == claim.id).is_some();
        if published && lease.state() == State::Replacing {
            // The end with this lease then fails, and who wanted it looks again.
            let _pin = self.pin(shard);
            self.settle(claim.slot, claim.id, lease);
        }
        published
    }

    fn prepare(&self, slot: &Slot, _lease: Lease) {
        let (shard, hash) = self.engine.hash(slot.key.load(Ordering::Relaxed));
        self.engine.index(shard).prefetch(hash);
    }

    fn expired(&self, claim: Claim<'_>, _: Lease, _: u64, _: u64) {
        self.ended(&claim, None, Cause::Expired);
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.engine.balance(|share| {
            let counts = &share.counts[shard];
            let ended = [&counts.removed, &counts.expired, &counts.closed];
            let slots = Counter::balance(&[&counts.inserted], &ended);
            (
                slots,
                Counter::balance(&[&counts.keys_in], &[&counts.keys_out]),
            )
        })
    }

    fn leaves(&self) -> Leaves {
        if is_plain::<K, V>() {
            Leaves::Nothing
        } else {
            Leaves::Retired
        }
    }
}

impl<K: 'static, V: 'static, S> Drop for Store<K, V, S> {
    fn drop(&mut self) {
        if is_plain::<K, V>() {
            return;
        }
        // Nobody uses it any more: what is left (entries that somebody was taking leave of) goes.
        self.engine.for_each(|claim, _| {
            let word = claim.slot.word.swap(NONE, Ordering::AcqRel);
            if word != NONE {
                // SAFETY: found in its slot by the only one who is left.
                unsafe { Node::<K, V>::free(word) };
            }
        });
    }
}
