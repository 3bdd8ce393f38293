//! Insertion: from a claimed slot to an entry that look-ups find.

use super::lookup::Seen;
use super::{Cause, Found, Fresh, Mine, Pair, Store, Wanted};
use crate::core::engine::{Claim, Face, Pin, Refused};
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

/// What an insertion came to.
pub(in crate::keyed) enum Entered<'a, K: 'static, V: 'static> {
    /// The entry is in.
    Done(Found<'a, K, V>),
    /// The entry was in, and this call has ended it again, because the store is shut down.
    Closed(Found<'a, K, V>, EndedSlot<&'a Store<K, V>, K, V>),
    /// The key has an entry already.
    Found(Found<'a, K, V>),
    /// The key's entry has been forwarded meanwhile: look again.
    Again,
}

/// A slot on its way in, with key and value in it. A key's `Eq` that panics drops it; then the
/// driver frees the slot.
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
    /// Takes key and value back, and frees the slot, which the index has never named.
    fn give_back(self) -> (K, V) {
        let this = ManuallyDrop::new(self);
        this.store.keys(this.mine, this.hash).sub(1);
        // SAFETY: never published, so no thread has looked at them.
        let pair = unsafe { this.claim.slot.take() };
        this.store.engine.free(this.mine, &this.claim);
        pair
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Fills a claimed slot and makes it live. The caller notifies the driver afterwards.
    #[inline(always)]
    pub(super) fn fill(
        &self,
        (claim, spot): Claimed<'_, K, V>,
        hash: u32,
        pair: (K, V),
        term: Term,
    ) -> Lease {
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

    /// Puts a new entry in, unless the key has one. In an error nothing has changed. Key and value
    /// that are not in stay in `fresh`.
    pub(in crate::keyed) fn enter(
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
            let Some((claim, spot)) = self.engine.claim(mine, stripe, term.deadline, &mut refused)
            else {
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
                .insert_simply(pin, hash, claim.id)
            {
                // SAFETY: this thread's until it is published; from then on this thread is pinned.
                let key = unsafe { &claim.slot.value().0 };
                let mut seek = self.seek(Wanted::new(hash, key));
                let entered = self.engine.publish(pin, hash, claim.id, &mut seek, self);
                let instead = match (entered, seek.seen) {
                    (Insert::Done, _) => None,
                    (Insert::Found, Seen::Entry(found)) => Some(Ok(Entered::Found(found))),
                    (Insert::Found, Seen::Forwarded(tail)) => {
                        self.swing(pin, hash, None, tail);
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
                position: ANYWHERE,
            };
            if let Some(ended) = self.enforce(pin, mine, &found, spot, term.deadline) {
                return Ok(Entered::Closed(found, ended));
            }
            Ok(Entered::Done(found))
        })
    }

    /// The engine has refused a slot. An entry that is there already needs none.
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
        let found = self.find_anywhere(pin, Wanted::new(hash, key));
        found.map(Entered::Found).ok_or(refused.into())
    }

    /// Notifies the driver of an entry that this thread has just put in. If the engine was shut
    /// down meanwhile, this thread ends the entry, unless it has ended.
    #[inline(always)]
    pub(super) fn enforce(
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
        while !now.has_ended() {
            if self.engine.end(now.slot, now.lease).is_ok() {
                return Some(self.finish(
                    pin,
                    mine,
                    &now.claim(),
                    now.hash,
                    ANYWHERE,
                    Cause::Closed,
                ));
            }
            now = now.again();
        }
        None
    }

    /// Makes room after an insertion was refused with this error, if entries are due. Returns
    /// whether the caller tries again.
    #[cold]
    pub(in crate::keyed) fn makes_room(
        &self,
        error: StoreError,
        attempts: &mut u32,
        face: &impl Face<Pair<K, V>>,
    ) -> bool {
        let now = self.engine.clock().now();
        *attempts += 1;
        let full = error == StoreError::Full && self.engine.is_due(now);
        // Slots that wait to be freed are room where there is no memory for more.
        let waits = error == StoreError::OutOfMemory && self.engine.unreclaimed() > 0;
        let tries = (full || waits) && *attempts < ATTEMPTS;
        if tries && waits {
            self.engine.reclaim_now(usize::MAX, face);
        } else if tries {
            self.engine.poll_beside(now, ROOM, face);
        } else if error != StoreError::Closed {
            self.engine.count_refusal();
        }
        tries
    }
}
