//! The store under maps, queues and sessions: look-up, insertion, replacement, touch, end.
//!
//! An entry is one slot: its lease, and key and value behind it. `docs/design.md`, "Entries of
//! keyed stores", has the protocol. Here each of its sequences stands once: [`find`](Store::find),
//! [`enter`](Store::enter), [`replace`](Store::replace), [`renew`](Store::renew),
//! [`end`](Store::end). All of them take a pin, and none calls users' code but a key's `Eq`. A
//! caller unpins before it calls the listener, unless it returns a reference to the entry.

use super::idle::{Policy, Term};
use super::removed::{EndedSlot, Holds};
use super::StoreError;
use crate::core::engine::{BadTimeout, Claim, Engine, Face, Look, Pin, Refused, Stripe};
use crate::core::index::{Glance, Insert, Probe};
use crate::core::lease::{set, Lease, State};
use crate::core::slot::{Owned, Slot};
use crate::core::slots::Spot;
use crate::core::threads::{Counter, PerShard};
use crate::error::BuildError;
use crate::panics::caught;
use crate::setup::{shut, Reaper, Setup};
use crate::sync::Ordering;
use crate::time::{nanos, Timeout};
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64 as Statistic;
use std::sync::Arc;
use std::time::Duration;

/// How many steps of work a caller that finds the store full does to make room, and how often it tries again.
const ROOM: usize = 64;
const ATTEMPTS: u32 = 16;

/// For how long a shutdown waits for threads that are pinned, so that it can drop what has ended.
#[cfg(not(expiry_loom))]
const PARTING: Duration = Duration::from_millis(10);
#[cfg(expiry_loom)]
const PARTING: Duration = Duration::ZERO;

/// States of an entry that has not ended.
pub(super) const HELD: u16 = set(&[State::Live, State::LiveIdle, State::Closing, State::Lapsed]);

/// The payload of a keyed slot: key and value. The word beside it is the key's hash; what governs a time to idle is its term.
pub(crate) type Pair<K, V> = Owned<(K, V), Policy>;

/// A claimed slot, and what belongs to it.
type Claimed<'a, K, V> = (Claim<'a, Pair<K, V>>, Spot<'a, Pair<K, V>>);

/// One shard's part of a thread's counters.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counts {
    pub(crate) inserted: Counter,
    /// Replacements of entries whose old slot, and whose new slot, is in this shard.
    pub(crate) replaced: Counter,
    pub(crate) replacing: Counter,
    pub(crate) removed: Counter,
    pub(crate) expired: Counter,
    pub(crate) closed: Counter,
    /// Keys put into, and taken out of, the index of this shard, as a difference.
    pub(crate) keys: Counter,
}

/// A thread's share.
pub(crate) struct Share {
    pub(crate) counts: PerShard<Counts>,
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

/// Told of every end. Runs on the thread that ended the entry, unpinned, when it has: it may call the store, be slow, or panic.
pub(crate) type Listener<K, V> = Box<dyn Fn(&K, &V, Cause) + Send + Sync>;

/// A slot that the index names under a key, as it was just then.
pub(super) struct Found<'a, K: 'static, V: 'static> {
    pub(super) id: u32,
    pub(super) slot: Slot<'a, Pair<K, V>>,
    pub(super) lease: Lease,
    pub(super) hash: u32,
    /// Where in its home the index had it, if in the home's own line.
    pub(super) position: Option<usize>,
}

impl<K, V> Clone for Found<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Found<'_, K, V> {}

impl<'a, K: 'static, V: 'static> Found<'a, K, V> {
    /// As it is now. The caller has been pinned since it was found, so the slot has no other occupant.
    pub(super) fn again(&self) -> Self {
        let lease = self.slot.lease();
        Found { lease, ..*self }
    }

    /// Key and value.
    ///
    /// # Safety
    ///
    /// The caller was pinned when this was found, and is for as long as the reference is used.
    #[inline(always)]
    pub(super) unsafe fn pair<'v>(&self) -> &'v (K, V) {
        // SAFETY: the caller's.
        unsafe { self.slot.value() }
    }

    /// Where it is.
    pub(super) fn place(&self) -> Place {
        Place {
            id: self.id,
            generation: self.lease.incarnation(),
            hash: self.hash,
        }
    }

    pub(super) fn claim(&self) -> Claim<'a, Pair<K, V>> {
        Claim::of(self.id, self.slot, self.lease)
    }
}

/// Where a key belongs, and how it is told from others.
pub(super) struct Wanted<'q, F> {
    pub(super) hash: u32,
    pub(super) is_key: &'q F,
}

impl<F> Clone for Wanted<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Wanted<'_, F> {}

/// Looks for a key; see [`Probe`].
struct Seek<'s, 'q, K: 'static, V: 'static, F> {
    store: &'s Store<K, V>,
    wanted: Wanted<'q, F>,
    seen: Seen<'s, K, V>,
}

/// What a [`Seek`] has seen in the slot that it accepted last.
enum Seen<'s, K: 'static, V: 'static> {
    Nothing,
    Entry(Found<'s, K, V>),
    /// Its entry has a new value, in this slot: the word is to be swung.
    Forwarded(u32),
}

impl<K: 'static, V: 'static, F: Fn(&K) -> bool> Probe for Seek<'_, '_, K, V, F> {
    #[inline(always)]
    fn accept(&mut self, id: u32) -> bool {
        self.seen = self.store.look(id, self.wanted.hash, None);
        !matches!(self.seen, Seen::Nothing)
    }

    #[inline(always)]
    fn confirm(&mut self) -> bool {
        match &self.seen {
            // SAFETY: the look-up is pinned, and the index believes in the slot.
            Seen::Entry(found) => (self.wanted.is_key)(unsafe { &found.pair().0 }),
            Seen::Forwarded(_) => true,
            Seen::Nothing => false,
        }
    }
}

/// What became of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Its deadline is this tick now.
    Renewed(u64),
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
        matches!(self, Touched::Renewed(_) | Touched::Unchanged)
    }
}

/// Names one entry: a slot, its generation, and the key's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) id: u32,
    pub(crate) generation: u32,
    pub(crate) hash: u32,
}

/// Key and value on their way in; taken out once they are.
pub(super) type Fresh<K, V> = Option<(K, V)>;

/// What became of an insertion.
pub(super) enum Entered<'a, K: 'static, V: 'static> {
    /// It is in.
    Done(Found<'a, K, V>),
    /// It was in, and this call has ended it again, because the store is shut down.
    Closed(Found<'a, K, V>, EndedSlot<&'a Store<K, V>, K, V>),
    /// Something is there already.
    Found(Found<'a, K, V>),
    /// The entry that is there has been forwarded meanwhile: look again.
    Again,
}

/// What became of a replacement.
pub(super) enum Replaced<'a, K: 'static, V: 'static> {
    /// The old value, and the new entry, which this call has ended again if the store is shut down.
    Done {
        old: EndedSlot<&'a Store<K, V>, K, V>,
        new: Found<'a, K, V>,
        closed: Option<EndedSlot<&'a Store<K, V>, K, V>>,
    },
    /// The entry has changed meanwhile.
    Changed,
}

pub(crate) struct Store<K: 'static, V: 'static> {
    pub(crate) engine: Engine<Pair<K, V>, Share>,
    /// The default timeout in nanoseconds; `None`: for ever.
    pub(super) timeout: Option<u64>,
    /// The default time to idle in nanoseconds, if there is one.
    pub(super) idle: Option<u64>,
    pub(super) listener: Option<Listener<K, V>>,
    /// Panics of the listener that were caught.
    pub(crate) panics: Statistic,
    /// Panics of keys' and values' `Drop` that were caught.
    pub(crate) drop_panics: Statistic,
    /// It may be shared between threads as far as keys and values may.
    _pairs: std::marker::PhantomData<(K, V)>,
}

/// A slot on its way in, with key and value in it. Dropped by a panic of a key's `Eq`, it is left to the driver.
struct Entering<'a, K: 'static, V: 'static> {
    store: &'a Store<K, V>,
    mine: &'a Mine,
    hash: u32,
    claim: Claim<'a, Pair<K, V>>,
}

impl<K: 'static, V: 'static> Drop for Entering<'_, K, V> {
    #[cold]
    fn drop(&mut self) {
        self.store.keys(self.mine, self.hash).sub(1);
        self.store.engine.abandon(self.mine, &self.claim);
    }
}

impl<K: 'static, V: 'static> Entering<'_, K, V> {
    /// Takes key and value back, and frees the slot: the index has not had it.
    fn give_back(self) -> (K, V) {
        let this = ManuallyDrop::new(self);
        this.store.keys(this.mine, this.hash).sub(1);
        // SAFETY: never published, so no thread has looked at them.
        let pair = unsafe { this.claim.slot.take() };
        this.store.engine.free(this.mine, &this.claim);
        pair
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

/// Where slot `id` leads to, and the lease that says that it goes no further.
fn tail<K: 'static, V: 'static>(
    engine: &Engine<Pair<K, V>, Share>,
    mut id: u32,
) -> (u32, Option<Lease>) {
    loop {
        match engine.slot(id).map(Slot::lease) {
            Some(lease) if lease.state() == State::Forward => id = lease.link(),
            lease => return (id, lease),
        }
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// A store with these settings and default times.
    pub(super) fn build(
        setup: &Setup,
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
        let shards = config.shards;
        let share = move || Share {
            counts: PerShard::new(shards),
        };
        Ok(Store {
            engine: Engine::new(config, share).map_err(|_| BuildError::OutOfMemory)?,
            timeout: timeout.map(nanos),
            idle: idle.map(nanos),
            listener,
            panics: Statistic::new(0),
            drop_panics: Statistic::new(0),
            _pairs: std::marker::PhantomData,
        })
    }

    // ---- look-up ----

    /// What slot `id` holds, which the index led to.
    #[inline(always)]
    fn look(&self, id: u32, hash: u32, position: Option<usize>) -> Seen<'_, K, V> {
        let Some(slot) = self.engine.slot(id) else {
            return Seen::Nothing;
        };
        let lease = slot.lease();
        if lease.is_in(HELD) {
            return Seen::Entry(Found {
                id,
                slot,
                lease,
                hash,
                position,
            });
        }
        if lease.state() == State::Forward {
            // By the lease that ended the way there: read again, it could be a forwarded one by now. A copy that is to be withdrawn
            // leads to an entry that has ended.
            if let (tail, Some(lease)) = tail(&self.engine, id) {
                if lease.is_in(HELD) {
                    return Seen::Forwarded(tail);
                }
            }
        }
        Seen::Nothing
    }

    fn is_held(&self, id: u32) -> bool {
        let slot = self.engine.slot(id);
        slot.is_some_and(|slot| slot.lease().is_in(HELD))
    }

    /// The entry of a key.
    #[inline(always)]
    pub(super) fn find<F: Fn(&K) -> bool>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, F>,
    ) -> Option<Found<'_, K, V>> {
        match self.engine.index_of(wanted.hash).glance(wanted.hash) {
            Glance::There(candidate) => {
                let position = Some(candidate.position());
                if let Seen::Entry(found) = self.look(candidate.slot(), wanted.hash, position) {
                    // SAFETY: this thread is pinned, and the index believes in the slot.
                    if candidate.is_believed() && (wanted.is_key)(unsafe { &found.pair().0 }) {
                        return Some(found);
                    }
                }
            }
            Glance::Absent => return None,
            Glance::Unclear => {}
        }
        self.find_anywhere(pin, wanted)
    }

    #[cold]
    #[inline(never)]
    fn find_anywhere<F: Fn(&K) -> bool>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, F>,
    ) -> Option<Found<'_, K, V>> {
        loop {
            let mut seek = self.seek(wanted);
            self.engine
                .index_of(wanted.hash)
                .find(wanted.hash, &mut seek)?;
            // Never inside the look-up after it has returned a slot: what was seen last is what it is.
            match seek.seen {
                Seen::Entry(found) => return Some(found),
                Seen::Forwarded(tail) => self.swing(pin, wanted.hash, tail),
                Seen::Nothing => {}
            }
        }
    }

    fn seek<'q, F: Fn(&K) -> bool>(&self, wanted: Wanted<'q, F>) -> Seek<'_, 'q, K, V, F> {
        Seek {
            store: self,
            wanted,
            seen: Seen::Nothing,
        }
    }

    /// Makes the index name slot `target`, to which another slot has been forwarded.
    #[cold]
    fn swing(&self, pin: &Pin, hash: u32, target: u32) {
        let is_live = || self.is_held(target);
        let tail = |id| tail(&self.engine, id).0;
        self.engine
            .index_of(hash)
            .swing(pin, hash, target, tail, is_live);
    }

    // ---- insertion and replacement ----

    /// Fills a claimed slot and makes it live. The driver has yet to hear of it.
    #[inline(always)]
    fn fill(&self, (claim, spot): Claimed<'_, K, V>, hash: u32, pair: (K, V), term: Term) -> Lease {
        // SAFETY: just claimed.
        unsafe { claim.slot.put(pair) };
        spot.note.store(hash, Ordering::Relaxed);
        let state = match term.idle {
            None => State::Live,
            Some(idle) => {
                spot.term.set(idle);
                State::LiveIdle
            }
        };
        let lease = Lease::new(state, claim.incarnation, term.deadline);
        claim.slot.set_lease(lease);
        lease
    }

    /// Puts a new entry in, unless the key has one. In an error nothing has changed. What is not in stays in `fresh`.
    pub(super) fn enter(
        &self,
        pin: &Pin,
        hash: u32,
        fresh: &mut Fresh<K, V>,
        term: Term,
    ) -> Result<Entered<'_, K, V>, StoreError>
    where
        K: Eq,
    {
        self.engine.with_stripe(|mine, stripe| {
            let mut refused = Refused::OutOfMemory;
            let Some((claim, spot)) = self.engine.claim(mine, stripe, &mut refused) else {
                return self.enter_refused(pin, hash, fresh, refused);
            };
            let Some(pair) = fresh.take() else {
                unreachable!("a call inserts what it has yet to insert");
            };
            let lease = self.fill((claim, spot), hash, pair, term);
            self.keys(mine, hash).add(1);
            let _telling = mine.telling(term.deadline);
            let entering = Entering {
                store: self,
                mine,
                hash,
                claim,
            };
            if !self
                .engine
                .index_of(hash)
                .insert_at_home(pin, hash, claim.id)
            {
                // SAFETY: this thread's until it is published, and from then on this thread is pinned.
                let key = unsafe { &claim.slot.value().0 };
                let is_key = |other: &K| other == key;
                let mut seek = self.seek(Wanted {
                    hash,
                    is_key: &is_key,
                });
                let entered = self.engine.publish(pin, hash, claim.id, &mut seek, self);
                let instead = match (entered, seek.seen) {
                    (Insert::Done, _) => None,
                    (Insert::Found, Seen::Entry(found)) => Some(Ok(Entered::Found(found))),
                    (Insert::Found, Seen::Forwarded(tail)) => {
                        self.swing(pin, hash, tail);
                        Some(Ok(Entered::Again))
                    }
                    (Insert::Alike, _) => Some(Err(StoreError::Collisions)),
                    _ => Some(Err(StoreError::OutOfMemory)),
                };
                if let Some(instead) = instead {
                    *fresh = Some(entering.give_back());
                    return instead;
                }
            }
            std::mem::forget(entering);
            self.count(mine, claim.id).inserted.add(1);
            let found = Found {
                id: claim.id,
                slot: claim.slot,
                lease,
                hash,
                position: None,
            };
            if let Some(ended) = self.enforce(pin, mine, &found, spot, term.deadline) {
                return Ok(Entered::Closed(found, ended));
            }
            Ok(Entered::Done(found))
        })
    }

    /// There is no slot to be had. What is there already needs none.
    #[cold]
    fn enter_refused(
        &self,
        pin: &Pin,
        hash: u32,
        fresh: &Fresh<K, V>,
        refused: Refused,
    ) -> Result<Entered<'_, K, V>, StoreError>
    where
        K: Eq,
    {
        let Some((key, _)) = fresh.as_ref().filter(|_| refused != Refused::Closed) else {
            return Err(refused.into());
        };
        let is_key = |other: &K| other == key;
        let wanted = Wanted {
            hash,
            is_key: &is_key,
        };
        let found = self.find_anywhere(pin, wanted);
        found.map(Entered::Found).ok_or(refused.into())
    }

    /// The driver hears of an entry that has just come in. If the engine was shut down meanwhile the entry ends here, unless it has
    /// ended.
    #[inline(always)]
    fn enforce(
        &self,
        pin: &Pin,
        mine: &Mine,
        found: &Found<'_, K, V>,
        spot: Spot<'_, Pair<K, V>>,
        deadline: u64,
    ) -> Option<EndedSlot<&Self, K, V>> {
        let enforced = self.engine.enforce_in(spot.header, found.id, deadline);
        self.engine.heed(found.id, deadline);
        if enforced.is_ok() {
            return None;
        }
        self.end_closed(pin, mine, found)
    }

    #[cold]
    #[inline(never)]
    fn end_closed(
        &self,
        pin: &Pin,
        mine: &Mine,
        found: &Found<'_, K, V>,
    ) -> Option<EndedSlot<&Self, K, V>> {
        let mut now = *found;
        // Under the pin the slot has no other occupant.
        while now.lease.is_in(HELD) {
            if self.engine.end(now.slot, now.lease).is_ok() {
                return Some(self.finish(pin, mine, &now.claim(), now.hash, None, Cause::Closed));
            }
            now = now.again();
        }
        None
    }

    /// Gives an entry that was found live a new value. Linearizes where its lease is swapped to `FORWARD`. What is not in stays in
    /// `fresh`.
    pub(super) fn replace(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
        fresh: &mut Fresh<K, V>,
        term: Term,
    ) -> Result<Replaced<'_, K, V>, StoreError> {
        self.engine.with_stripe(|mine, stripe| {
            let mut refused = Refused::OutOfMemory;
            // The old entry's room is the new one's.
            let place = self.engine.claim_instead(mine, stripe, &mut refused);
            let Some((claim, spot)) = place else {
                return Err(refused.into());
            };
            let Some(pair) = fresh.take() else {
                unreachable!("a call inserts what it has yet to insert");
            };
            let lease = self.fill((claim, spot), found.hash, pair, term);
            let _telling = mine.telling(term.deadline);
            let forward = found.lease.with_link(State::Forward, claim.id);
            if found.slot.swap_lease(found.lease, forward).is_err() {
                // SAFETY: no lease has led to it.
                *fresh = Some(unsafe { claim.slot.take() });
                self.engine.free_instead(&claim);
                return Ok(Replaced::Changed);
            }
            self.swing(pin, found.hash, claim.id);
            self.count(mine, found.id).replaced.add(1);
            self.count(mine, claim.id).replacing.add(1);
            // SAFETY: forwarded by this thread, and the index names the new slot now.
            let old = unsafe { EndedSlot::new(self, found.id) };
            let new = Found {
                id: claim.id,
                slot: claim.slot,
                lease,
                hash: found.hash,
                position: None,
            };
            let closed = self.enforce(pin, mine, &new, spot, term.deadline);
            Ok(Replaced::Done { old, new, closed })
        })
    }

    // ---- ends ----

    #[inline(always)]
    pub(super) fn count<'m>(&self, mine: &'m Mine, id: u32) -> &'m Counts {
        &mine.face.counts[self.engine.shard_of(id)]
    }

    /// The count of keys of the shard whose index has this hash.
    #[inline(always)]
    fn keys<'m>(&self, mine: &'m Mine, hash: u32) -> &'m Counter {
        &mine.face.counts[self.engine.shard_of_hash(hash)].keys
    }

    /// Ends an entry that was found. `None` if it has changed meanwhile.
    #[inline]
    pub(super) fn end(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
        cause: Cause,
    ) -> Option<EndedSlot<&Self, K, V>> {
        self.engine.end(found.slot, found.lease).ok()?;
        let claim = found.claim();
        Some(self.engine.with_stripe(|mine, _| {
            self.finish(pin, mine, &claim, found.hash, found.position, cause)
        }))
    }

    /// Takes a slot that the caller has ended out of the index.
    #[inline]
    fn finish(
        &self,
        pin: &Pin,
        mine: &Mine,
        claim: &Claim<'_, Pair<K, V>>,
        hash: u32,
        position: Option<usize>,
        cause: Cause,
    ) -> EndedSlot<&Self, K, V> {
        let counts = self.count(mine, claim.id);
        match cause {
            Cause::Expired => counts.expired.add(1),
            Cause::Closed => counts.closed.add(1),
            _ => counts.removed.add(1),
        }
        self.keys(mine, hash).sub(1);
        let index = self.engine.index_of(hash);
        let position = position.or_else(|| {
            let likely = index.candidate(hash)?;
            (likely.slot() == claim.id).then(|| likely.position())
        });
        let leads = |id| id != claim.id && tail(&self.engine, id).0 == claim.id;
        index.remove(pin, hash, claim.id, position, leads);
        if self.engine.freed(mine) && self.engine.wants_tending(self) {
            self.engine.tend_soon();
        }
        // SAFETY: ended by the caller, and out of the index.
        unsafe { EndedSlot::new(self, claim.id) }
    }

    /// An ended entry goes to the deferred-free list of this thread.
    #[inline]
    pub(super) fn free_later(&self, id: u32) {
        let drops = std::mem::needs_drop::<(K, V)>();
        let many = self
            .engine
            .with_stripe(|mine, _| self.engine.free_later(mine, id, drops));
        if many {
            self.engine.reclaim_now(self);
        }
    }

    /// Drops what has ended, if the store is shut down and so has no driver that would. A driver's
    /// own round leaves it to the driver, which drops when it is away from every shard.
    #[cold]
    pub(super) fn free_undriven(&self) {
        if self.engine.is_refusing() && !self.engine.is_driving() {
            self.engine.flush(Duration::ZERO, self);
        }
    }

    /// Frees an ended slot whose payload the caller has taken, because no thread can be looking at it.
    pub(super) fn free_now(&self, slot: Slot<'_, Pair<K, V>>) {
        slot.set_lease(Lease::free(slot.lease().incarnation()));
    }

    /// Tells the listener. Never panics. The caller is unpinned.
    #[inline]
    pub(super) fn tell<H: Holds<Target = Self>>(&self, ended: &EndedSlot<H, K, V>, cause: Cause) {
        let Some(listener) = &self.listener else {
            return;
        };
        self.guard(|| listener(ended.key(), ended.value(), cause));
    }

    /// Runs what the user wants to be called. Never panics.
    #[inline]
    pub(super) fn guard(&self, told: impl FnOnce()) {
        if caught(told) {
            self.panics
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Takes an entry out that the driver, or a shutdown, has ended.
    pub(super) fn ended_by_driver(
        &self,
        claim: &Claim<'_, Pair<K, V>>,
        cause: Cause,
    ) -> EndedSlot<&Self, K, V> {
        let hash = self.hash_of(claim.id);
        let pin = self.engine.pin();
        self.engine
            .with_stripe(|mine, _| self.finish(&pin, mine, claim, hash, None, cause))
    }

    /// The hash of the key in a slot that is in use.
    #[inline]
    fn hash_of(&self, id: u32) -> u32 {
        let spot = self.engine.spot(id);
        spot.map_or(0, |spot| spot.note.load(Ordering::Relaxed))
    }

    // ---- renewal ----

    /// Whether an entry's time was up at `now`, although the driver has not come to it yet.
    #[inline]
    pub(super) fn is_over(&self, lease: Lease, now: u64) -> bool {
        // By what has been caught up with: years later, its deadline could be taken for one that is yet to come.
        lease.deadline_near(self.engine.about_now()) <= self.engine.ticks.at(now)
    }

    /// Moves the deadline of an entry that was found. `None` if it has changed meanwhile: look again. `face` hears of what ends where
    /// the clock has jumped by years.
    ///
    /// `lost` is the entry whose lease this call has lost a swap on; `None` at first. What is set is decided by
    /// [`Engine::renewed`], which reads the clock after the lease was read.
    #[inline]
    pub(super) fn renew(
        &self,
        found: &Found<'_, K, V>,
        lost: &mut Option<Place>,
        timeout: Timeout,
        face: &impl Face<Pair<K, V>>,
    ) -> Result<Option<Touched>, StoreError> {
        if found.lease.state() != State::Live {
            // A timeout that cannot be kept is refused all the same.
            self.deadline(timeout, face)?;
            return Ok(Some(Touched::Closing));
        }
        let look = Look::after(*lost == Some(found.place()));
        let renewed = self
            .engine
            .renewed(found.lease, look, timeout, self.timeout, face)?;
        let Some(deadline) = renewed else {
            // Made just before the other one: by this call's own timeout.
            return Ok(Some(Touched::Renewed(self.deadline(timeout, face)?)));
        };
        let renewed = found.lease.with_deadline(deadline);
        if renewed == found.lease {
            // When it was found it had this deadline: there is nothing to swap.
            self.engine.heed(found.id, deadline);
            return Ok(Some(Touched::Unchanged));
        }
        let mut renew = || {
            if found.slot.swap_lease(found.lease, renewed).is_err() {
                *lost = Some(found.place());
                return None;
            }
            // Renewed: no expiry by the old deadline can succeed any more (Q6).
            self.engine.shortened(found.id, found.lease, deadline);
            self.engine.heed(found.id, deadline);
            Some(Touched::Renewed(deadline))
        };
        if deadline >= found.lease.deadline_near(deadline) {
            return Ok(renew());
        }
        Ok(self.engine.with_stripe(|mine, _| {
            let _telling = mine.telling(deadline);
            renew()
        }))
    }

    /// Renews the entry of a key.
    #[inline]
    pub(super) fn touch<F: Fn(&K) -> bool>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, F>,
        timeout: Timeout,
        face: &impl Face<Pair<K, V>>,
    ) -> Result<Touched, StoreError> {
        let mut lost = None;
        loop {
            let Some(found) = self.find(pin, wanted) else {
                // What cannot be kept is refused also where there is nothing to be kept.
                self.deadline(timeout, face)?;
                return Ok(Touched::Gone);
            };
            if let Some(touched) = self.renew(&found, &mut lost, timeout, face)? {
                return Ok(touched);
            }
        }
    }

    /// Renews an entry by its place: no look-up, no pin. Of a store in which nothing is replaced.
    #[inline]
    pub(super) fn touch_at(
        &self,
        place: Place,
        timeout: Timeout,
        face: &impl Face<Pair<K, V>>,
    ) -> Result<Touched, StoreError> {
        let Some(spot) = self.engine.spot(place.id) else {
            return Ok(Touched::Gone);
        };
        let mut lost = None;
        loop {
            // The lease is read first: the hash cannot be older than the lease's occupant.
            let lease = spot.slot.lease();
            let same = lease.incarnation() == place.generation
                && spot.note.load(Ordering::Acquire) == place.hash;
            if !same || !lease.is_in(HELD) {
                self.deadline(timeout, face)?;
                return Ok(Touched::Gone);
            }
            let found = Found {
                id: place.id,
                slot: spot.slot,
                lease,
                hash: place.hash,
                position: None,
            };
            if let Some(touched) = self.renew(&found, &mut lost, timeout, face)? {
                return Ok(touched);
            }
        }
    }

    /// Ends the entry of a key, be its time up or not. Returns its lease too.
    pub(super) fn remove<F: Fn(&K) -> bool>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, F>,
    ) -> Option<(EndedSlot<&Self, K, V>, Lease)> {
        loop {
            let found = self.find(pin, wanted)?;
            if let Some(ended) = self.end(pin, &found, Cause::Removed) {
                return Some((ended, found.lease));
            }
        }
    }

    /// The deadline of what begins now.
    #[inline]
    pub(super) fn deadline(
        &self,
        timeout: Timeout,
        face: &impl Face<Pair<K, V>>,
    ) -> Result<u64, StoreError> {
        Ok(self.engine.renewal(timeout, self.timeout, face)?)
    }

    // ---- shutdown ----

    /// Ends everything, and tells the listener.
    pub(crate) fn close(&self) {
        self.engine.close(self, |claim, _| {
            let ended = self.ended_by_driver(&claim, Cause::Closed);
            self.tell(&ended, Cause::Closed);
        });
        // Nothing drives the store from here on. A caller that is pinned is not waited for for long.
        self.engine.flush(PARTING, self);
    }

    /// Ends everything, and gives it away.
    pub(super) fn close_with(&self, mut left: impl FnMut(EndedSlot<&Self, K, V>, Lease)) {
        self.engine.close(self, |claim, lease| {
            left(self.ended_by_driver(&claim, Cause::Closed), lease);
        });
    }

    /// Starts a reaper.
    pub(super) fn start(self: &Arc<Self>, budget: usize) -> Result<Reaper, BuildError>
    where
        K: Send + Sync,
        V: Send + Sync,
    {
        Reaper::start(self, |store| &store.engine, budget, Store::close)
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
        face: &impl Face<Pair<K, V>>,
    ) -> bool {
        let now = self.engine.clock.now();
        *attempts += 1;
        let full = error == StoreError::Full && self.engine.is_due(now);
        // Where there is no memory for another slot, those that wait to be freed are room.
        let waits = error == StoreError::OutOfMemory && self.engine.unreclaimed() > 0;
        let tries = (full || waits) && *attempts < ATTEMPTS;
        if tries && waits {
            self.engine.reclaim_now(face);
        } else if tries {
            self.engine.poll_beside(now, ROOM, face);
        } else if error != StoreError::Closed {
            self.engine.count_refusal();
        }
        tries
    }

    /// Waits until all that ended before has been dropped, and drops it on this thread, for at most so long. Whether it has.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        self.engine.flush(limit, self)
    }

    /// Entries now; about, while others come and go.
    pub(crate) fn len(&self) -> usize {
        self.engine.len(self)
    }
}

impl<K: 'static, V: 'static> Face<Pair<K, V>> for Store<K, V> {
    fn may_end(&self, claim: &Claim<'_, Pair<K, V>>, _: Lease) -> bool {
        // Its claimer still owns it, and may withdraw it, until the index leads to it.
        let hash = self.hash_of(claim.id);
        let index = self.engine.index_of(hash);
        let likely = index.candidate(hash);
        if likely.is_some_and(|likely| likely.slot() == claim.id && likely.is_believed()) {
            return true;
        }
        // Before the look at where others lead to.
        let pin = self.engine.pin();
        let leads = |id| tail(&self.engine, id).0 == claim.id;
        match index.find(hash, &mut { leads }) {
            Some(id) if id != claim.id => {
                self.swing(&pin, hash, claim.id);
                true
            }
            found => found.is_some(),
        }
    }

    fn prepare(&self, id: u32, _: Slot<'_, Pair<K, V>>, _: Lease) {
        let hash = self.hash_of(id);
        self.engine.index_of(hash).prefetch(hash);
    }

    fn expired(&self, claim: Claim<'_, Pair<K, V>>, _: Lease, _: u64, _: u64) {
        let ended = self.ended_by_driver(&claim, Cause::Expired);
        self.tell(&ended, Cause::Expired);
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.engine.balance(|share| {
            let Some(counts) = share.counts.get(shard) else {
                return (0, 0);
            };
            let come = [&counts.inserted, &counts.replacing];
            let gone = [
                &counts.removed,
                &counts.expired,
                &counts.closed,
                &counts.replaced,
            ];
            (Counter::balance(&come, &gone), counts.keys.get())
        })
    }

    fn tail(&self, id: u32) -> u32 {
        tail(&self.engine, id).0
    }

    fn discard(&self, slot: Slot<'_, Pair<K, V>>, free: impl FnOnce()) {
        // SAFETY: from the deferred-free list: no thread that could have found it is pinned any more.
        let pair = unsafe { slot.take() };
        free();
        if std::mem::needs_drop::<(K, V)>() && caught(|| drop(pair)) {
            self.drop_panics
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl<K: 'static, V: 'static> Drop for Store<K, V> {
    fn drop(&mut self) {
        // No other thread uses it any more: what is left goes.
        self.engine.for_each(|claim, lease| {
            if lease.state() != State::Free {
                // SAFETY: a slot that is not free has its key and value.
                let pair = unsafe { claim.slot.take() };
                claim.slot.set_lease(Lease::free(lease.incarnation()));
                caught(|| drop(pair));
            }
        });
    }
}
