//! Insertion: from a claimed slot to an entry that look-ups find.

use super::lookup::Seen;
use super::{Found, Mine, Pair, RemovalCause, Store, Wanted};
use crate::core::engine::{Claim, Frontend, Pin, Refused, Room};
use crate::core::index::{Insert, ANYWHERE};
use crate::core::lease::{Lease, State};
use crate::core::slots::Spot;
use crate::keyed::idle::Term;
use crate::keyed::removed::EndedSlot;
use crate::keyed::StoreError;
use crate::sync::Ordering;
use std::mem::ManuallyDrop;

/// How many steps of work a caller that finds the store full does to make room.
const ROOM: usize = 64;
/// How often it tries again.
const ATTEMPTS: u32 = 16;

/// A claimed slot, and what belongs to it.
pub(super) type Claimed<'a, K, V> = (Claim<'a, Pair<K, V>>, Spot<'a, Pair<K, V>>);

/// An entry that a call has put in.
pub(in crate::keyed) struct Entered<'a, K: 'static, V: 'static> {
    pub(in crate::keyed) new: Found<'a, K, V>,
    /// The value that it has replaced.
    pub(in crate::keyed) old: Option<EndedSlot<&'a Store<K, V>, K, V>>,
    /// The entry itself, if this call has ended it again, because the store is shut down.
    pub(in crate::keyed) closed: Option<EndedSlot<&'a Store<K, V>, K, V>>,
}

/// Why an attempt has put nothing in. It has changed nothing.
#[derive(Debug, Clone, Copy)]
pub(in crate::keyed) enum Hindered {
    /// Another thread has changed the key's entry meanwhile: look again.
    Overtaken,
    Refused(StoreError),
}

/// One attempt to put an entry in. Gives key and value back if they are not in.
pub(in crate::keyed) type Attempt<'a, K, V> = Result<Entered<'a, K, V>, (Hindered, (K, V))>;

/// A slot on its way in, with key and value in it. A key's `Eq` that panics drops it; then the
/// driver frees the slot.
struct Entering<'a, 'r, K: 'static, V: 'static> {
    store: &'a Store<K, V>,
    mine: &'a Mine,
    room: &'a mut Room<'r>,
    hash: u32,
    claim: Claim<'a, Pair<K, V>>,
}

impl<K: 'static, V: 'static> Drop for Entering<'_, '_, K, V> {
    #[cold]
    fn drop(&mut self) {
        self.store.keys(self.mine, self.hash).sub(1);
        let weight = self.store.weight_of(self.claim.id);
        self.room.keep(weight - 1);
        self.store.engine.abandon(self.mine, &self.claim, weight);
    }
}

impl<K: 'static, V: 'static> Entering<'_, '_, K, V> {
    /// Takes key and value back, and frees the slot, which the index has never named.
    fn give_back(self) -> (K, V) {
        let mut this = ManuallyDrop::new(self);
        this.store.keys(this.mine, this.hash).sub(1);
        // SAFETY: never published, so no thread has looked at them.
        let pair = unsafe { this.claim.slot.take() };
        let weight = this.store.weight_of(this.claim.id);
        this.room.keep(weight - 1);
        this.store.engine.free(this.mine, &this.claim);
        pair
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Fills a claimed slot and makes it live, `used` or not. The caller notifies the driver
    /// afterwards.
    #[inline(always)]
    pub(super) fn fill(
        &self,
        (claim, spot): Claimed<'_, K, V>,
        hash: u32,
        pair: (K, V),
        term: Term,
        used: bool,
    ) -> Lease {
        // SAFETY: just claimed.
        unsafe { claim.slot.put(pair) };
        spot.note.store(hash, Ordering::Relaxed);
        self.note_weight(spot, term.weight);
        let state = match term.idle {
            None => State::Live,
            Some(idle) => {
                spot.term.set(idle);
                State::LiveIdle
            }
        };
        let lease = Lease::new(state, claim.generation, term.deadline);
        let lease = if used { lease.used() } else { lease };
        claim.slot.set_lease(lease);
        lease
    }

    /// Puts in an entry of a key that had none just now. The only code of the user's that this runs
    /// is the key's `Eq`, while key and value are in the slot.
    #[inline(always)]
    pub(in crate::keyed) fn enter(
        &self,
        pin: &Pin,
        room: &mut Room<'_>,
        hash: u32,
        pair: (K, V),
        term: Term,
    ) -> Attempt<'_, K, V>
    where
        K: Eq,
    {
        if let Err(refused) = room.take(term.weight) {
            return Err((Hindered::Refused(refused.into()), pair));
        }
        self.engine.with_stripe(|mine, stripe| {
            let mut refused = Refused::OutOfMemory;
            let place = self.engine.claim_permitted(mine, stripe, term.deadline, &mut refused);
            let Some((claim, spot)) = place else {
                room.keep(term.weight);
                return Err((Hindered::Refused(refused.into()), pair));
            };
            // Where nothing is evicted, no `get` has anything to note.
            let used = self.eviction.is_none();
            let lease = self.fill((claim, spot), hash, pair, term, used);
            self.keys(mine, hash).add(1);
            let _telling = mine.telling(term.deadline);
            let index = self.engine.keys.index_of(hash);
            if !index.insert_simply(pin, hash, claim.id) {
                self.enter_anywhere(pin, mine, room, hash, claim)?;
            }
            room.give_back();
            self.count(mine, claim.id).inserted.add(1);
            if let Some(eviction) = &self.eviction {
                eviction.note(claim.id, claim.generation, hash);
            }
            let new = Found { id: claim.id, slot: claim.slot, lease, hash, position: ANYWHERE };
            let closed = self.enforce(pin, &new, spot, term.deadline);
            Ok(Entered { new, old: None, closed })
        })
    }

    /// Publishes a slot that is filled, unless the key has an entry.
    #[cold]
    #[inline(never)]
    fn enter_anywhere(
        &self,
        pin: &Pin,
        mine: &Mine,
        room: &mut Room<'_>,
        hash: u32,
        claim: Claim<'_, Pair<K, V>>,
    ) -> Result<(), (Hindered, (K, V))>
    where
        K: Eq,
    {
        let entering = Entering { store: self, mine, room, hash, claim };
        // SAFETY: this thread's until it is published; from then on this thread is pinned.
        let key = unsafe { &claim.slot.value().0 };
        let mut seek = self.seek(Wanted::new(hash, key));
        let hindered = match self.engine.publish(pin, hash, claim.id, &mut seek, self) {
            Insert::Done => {
                std::mem::forget(entering);
                return Ok(());
            }
            Insert::Found => {
                if let Seen::Forwarded(tail) = seek.seen {
                    self.swing(pin, hash, None, tail);
                }
                Hindered::Overtaken
            }
            Insert::Alike => Hindered::Refused(StoreError::Collisions),
            Insert::Full => Hindered::Refused(StoreError::OutOfMemory),
        };
        Err((hindered, entering.give_back()))
    }

    /// Notifies the driver of an entry that this thread has just put in. If the engine was shut
    /// down meanwhile, this thread ends the entry, unless it has ended.
    #[inline(always)]
    pub(super) fn enforce(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
        spot: Spot<'_, Pair<K, V>>,
        deadline: u64,
    ) -> Option<EndedSlot<&Self, K, V>> {
        let enforced = self.engine.enforce_in(spot.header, found.id, deadline);
        self.engine.ensure_reported(found.id, deadline);
        if enforced.is_ok() {
            return None;
        }
        self.end_anyway(pin, found, RemovalCause::Closed)
    }

    /// Makes room after an insertion was refused with this error: ends what is due, and if nothing
    /// is due, evicts where the map evicts. The key's own entry is not evicted: the caller replaces
    /// it. Returns whether the caller tries again; it does also where the key of a map that refuses
    /// has an entry by now, which may need no room. The caller is unpinned.
    #[cold]
    pub(in crate::keyed) fn makes_room(
        &self,
        error: StoreError,
        wanted: Wanted<'_, K>,
        room: &mut Room<'_>,
        frontend: &impl Frontend<Pair<K, V>>,
    ) -> bool
    where
        K: Eq,
    {
        if !matches!(error, StoreError::Full | StoreError::OutOfMemory | StoreError::Collisions) {
            return false;
        }
        let now = self.engine.deadlines.clock().now();
        let own = || self.find(&self.engine.pin(), wanted).map(|found| found.id);
        let eviction = self.eviction.as_ref().filter(|_| error == StoreError::Full);
        let full = match eviction {
            Some(eviction) => self.may_be_due(eviction, now),
            None => error == StoreError::Full && self.engine.is_due(now),
        };
        if let (Some(eviction), true) = (eviction, !full || room.attempts + 1 >= ATTEMPTS) {
            return self.evict_one(eviction, own(), room);
        }
        room.attempts += 1;
        if eviction.is_none()
            && error != StoreError::Collisions
            && room.attempts < ATTEMPTS
            && own().is_some()
        {
            return true;
        }
        // Slots that wait to be freed are room where there is no memory for more.
        let waits = error == StoreError::OutOfMemory && self.engine.unreclaimed() > 0;
        let tries = (full || waits) && room.attempts < ATTEMPTS;
        if tries && waits {
            self.engine.reclaim_now(usize::MAX, frontend);
        } else if tries {
            self.engine.poll_beside(now, ROOM, frontend);
        } else {
            self.engine.count_refusal();
        }
        tries
    }
}
