//! Insertion: makes the key and value of a call an entry that look-ups find. A new entry takes
//! effect when the index names its slot, a replacement at the swap of the old lease to `FORWARD`
//! (`docs/design.md`, "Replacing").

use super::lookup::Seen;
use super::{Eviction, Found, Mine, Pair, RemovalCause, Store, Wanted};
use crate::core::engine::{BadTimeout, Frontend, Pin, Refused, Room};
use crate::core::index::{Insert, Likely, Open};
use crate::core::lease::{Lease, State};
use crate::core::occupancy::{Ended, Occupant, Unnamed, Vacant};
use crate::core::slots::Spot;
use crate::keyed::idle::Term;
use crate::keyed::removed::EndedSlot;
use crate::keyed::StoreError;
use crate::sync::{step, Ordering};
use crate::time::LifetimeError;
use std::borrow::Borrow;

/// How many steps of work a caller that finds the store full does to make room.
pub(super) const ROOM: usize = 64;
/// How often such a caller tries again.
pub(super) const ATTEMPTS: u32 = 16;

/// An entry that a call has put in.
pub(in crate::keyed) struct Entered<'g, 's, K: 'static, V: 'static> {
    pub(in crate::keyed) new: Found<'g, K, V>,
    /// The value that it has replaced.
    pub(in crate::keyed) old: Option<EndedSlot<&'s Store<K, V>, K, V>>,
    /// The entry itself, if this call has ended it again, because the store is shut down.
    pub(in crate::keyed) closed: Option<EndedSlot<&'s Store<K, V>, K, V>>,
}

/// Why an attempt put nothing in. The offer has key and value again.
#[derive(Debug, Clone, Copy)]
pub(in crate::keyed) enum Hindered {
    /// Another thread has changed the key's entry meanwhile: look again.
    Overtaken,
    /// The driver is years behind the clock.
    Behind,
    Refused(StoreError),
}

impl From<BadTimeout> for Hindered {
    fn from(bad: BadTimeout) -> Self {
        match bad {
            BadTimeout::Behind => Hindered::Behind,
            BadTimeout::Refused(why) => Hindered::Refused(why.into()),
        }
    }
}

/// What a call wants to put in: key and value, and the permits that it keeps for them.
///
/// Every insertion goes the same way. It pins, looks the key up, and [enters](Self::enter) an entry
/// or [replaces](Self::replace) the one that it has found. An attempt that has put nothing in says
/// why, and [`resolve`](Self::resolve), unpinned, does something about that. The offer is declared
/// before the pin: where a key's `Eq` panics, key and value are dropped unpinned.
///
/// A replacement may give permits back, and so may a call that [weighs](Self::weigh) more than
/// once. Then the caller calls `Admission::wake_owed` once it is unpinned. A call that puts nothing
/// in [gives up its room](Self::give_up_room) unpinned.
pub(in crate::keyed) struct Offer<'s, K: 'static, V: 'static> {
    store: &'s Store<K, V>,
    hash: u32,
    weight: u64,
    room: Room<'s>,
    /// `None` while they are in a slot.
    key: Option<K>,
    value: Option<V>,
}

/// An offer lacks key and value only while they are in a slot: it takes back what is not put in.
const OFFERED: &str = "an offer has them unless they are in";

impl<K: 'static, V: 'static> Store<K, V> {
    /// Offers a key that has this hash, and its value, which may come later.
    #[inline(always)]
    pub(in crate::keyed) fn offer(&self, hash: u32, key: K, value: Option<V>) -> Offer<'_, K, V> {
        let room = self.engine.admission.room();
        Offer { store: self, hash, weight: 1, room, key: Some(key), value }
    }

    /// Keeps room for an entry of this weight, whose value is yet to come. Ends what is due, and
    /// evicts. The caller is unpinned.
    #[cold]
    pub(in crate::keyed) fn reserve(
        &self,
        room: &mut Room<'_>,
        weight: u64,
        frontend: &impl Frontend<Pair<K, V>>,
    ) -> Result<(), StoreError> {
        let weight = if self.weigher.is_some() { weight } else { 1 };
        if self.engine.admission.is_refusing() {
            return Err(StoreError::Closed);
        }
        room.attempts = 0;
        while let Err(refused) = room.take(weight) {
            if self.engine.admission.limit().is_some_and(|limit| weight > limit) {
                return Err(StoreError::TooHeavy);
            }
            if refused != Refused::Full || !self.makes_room(room, || None, frontend) {
                return Err(refused.into());
            }
        }
        room.keep(weight);
        room.attempts = 0;
        Ok(())
    }

    /// Makes room in a full store: ends what is due, or else evicts what the policy chooses, but
    /// not the call's `own` entry, which the call replaces. Returns whether the call tries again.
    fn makes_room(
        &self,
        room: &mut Room<'_>,
        own: impl FnOnce() -> Option<u32>,
        frontend: &impl Frontend<Pair<K, V>>,
    ) -> bool {
        if let Some(eviction) = &self.eviction {
            return self.ends_due(eviction, room, frontend)
                || self.evict_one(eviction, own(), room);
        }
        tries_again(room, own, || {
            let now = self.engine.deadlines.now();
            let due = self.engine.is_due(now);
            due.then(|| self.engine.poll_beside(now, ROOM, frontend)).is_some()
        })
    }

    /// The slot of the entry that a key has. The caller is unpinned.
    fn slot_of<Q: Eq + ?Sized>(&self, wanted: Wanted<'_, '_, Q>) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        let pin = self.engine.pin();
        let found = self.find(&pin, wanted);
        found.map(|found| found.id)
    }

    /// Shows a withheld entry, if it has not ended. No user code runs in here.
    pub(in crate::keyed) fn show(&self, found: &Found<'_, K, V>) {
        let mut now = *found;
        while let Some(shown) = now.lease.shown() {
            if now.slot.swap_lease(now.lease, shown).is_ok() {
                return;
            }
            now = now.reloaded();
        }
    }

    /// Fills a claimed slot and makes it live, `used` or not. The caller then notifies the driver.
    #[inline(always)]
    fn fill<'a>(
        &self,
        vacant: Vacant<'a, Pair<K, V>>,
        (hash, weight): (u32, u64),
        pair: (K, V),
        term: Term,
        (used, withheld): (bool, bool),
    ) -> Unnamed<'a, Pair<K, V>> {
        let spot = vacant.spot();
        spot.note.store(hash, Ordering::Relaxed);
        self.note_weight(spot, weight);
        let state = match term.idle {
            None => State::Live,
            Some(idle) => {
                spot.term.set(idle);
                State::LiveIdle
            }
        };
        let mut lease = Lease::new(state, vacant.generation(), term.deadline);
        if withheld {
            lease = lease.withheld();
        }
        vacant.fill(pair, if used { lease.used() } else { lease })
    }

    /// Notifies the driver of an entry that this thread has just put in. If the engine was shut
    /// down meanwhile, this thread ends the entry, unless it has ended.
    #[inline(always)]
    fn enforce(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
        spot: Spot<'_, Pair<K, V>>,
        deadline: u64,
    ) -> Option<EndedSlot<&Self, K, V>> {
        if self.engine.enforce_in(spot.header, found.id, deadline).is_ok() {
            return None;
        }
        self.end_anyway(pin, *found, RemovalCause::Closed)
    }
}

/// Whether a call tries again: its key has an entry of its `own` by now, which may need no room; or
/// `makes` has made some.
fn tries_again(
    room: &mut Room<'_>,
    own: impl FnOnce() -> Option<u32>,
    makes: impl FnOnce() -> bool,
) -> bool {
    room.attempts += 1;
    room.attempts < ATTEMPTS && (own().is_some() || makes())
}

impl<'s, K: 'static, V: 'static> Offer<'s, K, V> {
    /// The same offer, with the room that a call has kept for it.
    #[inline(always)]
    pub(in crate::keyed) fn with_room(self, room: Room<'s>) -> Self {
        Offer { room, ..self }
    }

    #[inline(always)]
    pub(in crate::keyed) fn key(&self) -> &K {
        self.key.as_ref().expect(OFFERED)
    }

    #[inline(always)]
    fn take(&mut self) -> (K, V) {
        (self.key.take().expect(OFFERED), self.value.take().expect(OFFERED))
    }

    fn take_back(&mut self, (key, value): (K, V)) {
        (self.key, self.value) = (Some(key), Some(value));
    }

    /// Whether it keeps permits of an attempt that put nothing in.
    #[inline(always)]
    pub(in crate::keyed) fn has_room(&self) -> bool {
        self.room.keeps_any()
    }

    /// Gives the permits back that it keeps. The caller is unpinned.
    pub(in crate::keyed) fn give_up_room(&mut self) {
        self.room.give_back_beyond(0);
    }

    /// Key and value, which are not in.
    pub(in crate::keyed) fn into_pair(mut self) -> (K, V) {
        self.take()
    }

    /// The key, which is not in, and its value, if it has one.
    pub(in crate::keyed) fn into_parts(mut self) -> (K, Option<V>) {
        (self.key.take().expect(OFFERED), self.value.take())
    }

    /// Offers another value with the key, or none. Returns the one before.
    pub(in crate::keyed) fn replace_value(&mut self, value: Option<V>) -> Option<V> {
        std::mem::replace(&mut self.value, value)
    }

    /// Key and value, which are not in.
    pub(in crate::keyed) fn pair(&self) -> (&K, &V) {
        (self.key(), self.value.as_ref().expect(OFFERED))
    }

    #[inline(always)]
    pub(in crate::keyed) fn wanted(&self, likely: Likely<'s>) -> Wanted<'s, '_, K>
    where
        K: Eq,
    {
        Wanted::at(likely, self.key())
    }

    /// Where an entry of that key most likely is. The caller is not pinned yet.
    #[inline(always)]
    pub(in crate::keyed) fn likely(&self) -> Likely<'s> {
        self.store.engine.keys.likely(self.hash)
    }

    /// Finds out what the entry weighs. Runs the user's code.
    #[inline(always)]
    pub(in crate::keyed) fn weigh(&mut self) -> Result<(), StoreError> {
        if let Some(weigher) = &self.store.weigher {
            let (key, value) = self.pair();
            self.weight = self.store.weigh(weigher, key, value)?;
        }
        Ok(())
    }

    /// Puts in an entry of a key that had none just now, where a look-up has found it `open`. If it
    /// is `withheld`, no look-up finds it until the caller [shows](Store::show) it. While key and
    /// value are in the slot, the key's `Eq` may run, and no other code of the user's.
    #[inline(always)]
    pub(in crate::keyed) fn enter<'g>(
        &mut self,
        (pin, mine): (&'g Pin, &Mine),
        open: Option<Open<'_>>,
        term: Term,
        withheld: bool,
    ) -> Result<Entered<'g, 's, K, V>, Hindered>
    where
        K: Eq,
        's: 'g,
    {
        let store = self.store;
        let vacant = self.claim(pin, mine, self.weight, term.deadline)?;
        let spot = vacant.spot();
        // Where nothing is evicted, no `get` has anything to note.
        let used = store.eviction.as_ref().map_or(true, Eviction::begins_used);
        let (hash, pair) = (self.hash, self.take());
        let new = store.fill(vacant, (hash, self.weight), pair, term, (used, withheld));
        store.keys(mine, hash).add(1);
        let new = match open.is_some_and(|open| open.publish(new.id)) {
            true => new.named(),
            false => self.enter_anywhere(pin, mine, new)?,
        };
        self.room.release();
        store.count(mine, new.id).inserted.add(1);
        if let Some(eviction) = &store.eviction {
            eviction.note(new.id, new.lease.generation(), hash);
        }
        let new = Found::under(pin, new, hash, None);
        let closed = store.enforce(pin, &new, spot, term.deadline);
        Ok(Entered { new, old: None, closed })
    }

    /// Gives an entry that was found live the offered value. Runs none of the user's code.
    #[inline(always)]
    pub(in crate::keyed) fn replace<'g>(
        &mut self,
        (pin, mine): (&'g Pin, &Mine),
        found: &Found<'_, K, V>,
        term: Term,
    ) -> Result<Entered<'g, 's, K, V>, Hindered>
    where
        's: 'g,
    {
        let store = self.store;
        // The term goes by the very lease that the swap takes away: after a touch it fails.
        let term = if term.keeps { store.term_of(*found) } else { term };
        // The new entry takes over the old one's share of the capacity.
        let old = store.weight_of(found.id);
        let more = self.weight.saturating_sub(old);
        let vacant = self.claim(pin, mine, more, term.deadline)?;
        let spot = vacant.spot();
        let (hash, pair) = (self.hash, self.take());
        let new = store.fill(vacant, (hash, self.weight), pair, term, (true, false));
        let Ok(dead) = found.seen.forward(new.id) else {
            // SAFETY: no lease has led to it, and no word names it.
            let new = unsafe { new.withdraw() };
            // SAFETY: as above.
            self.take_back(unsafe { new.slot().take() });
            // The old entry keeps its share of the capacity.
            new.free();
            self.room.keep(more);
            return Err(Hindered::Overtaken);
        };
        step("forwarded");
        store.swing(pin, hash, found.word, new.id);
        let new = new.named();
        self.room.keep(old.saturating_sub(self.weight));
        self.room.release();
        store.count(mine, found.id).replaced.add(1);
        store.count(mine, new.id).replacing.add(1);
        // The index names the new slot now.
        let old = EndedSlot::of(store, dead);
        let new = Found::under(pin, new, hash, None);
        let closed = store.enforce(pin, &new, spot, term.deadline);
        Ok(Entered { new, old: Some(old), closed })
    }

    /// Claims a slot, and takes so many permits for it. The room keeps these if there is no slot.
    #[inline(always)]
    fn claim(
        &mut self,
        pin: &Pin,
        mine: &Mine,
        permits: u64,
        deadline: u64,
    ) -> Result<Vacant<'s, Pair<K, V>>, Hindered> {
        let (engine, mut refused) = (&self.store.engine, Refused::OutOfMemory);
        // Elsewhere a claim needs only a free slot.
        if engine.admission.asks() {
            self.room.take(permits).map_err(|refused| Hindered::Refused(refused.into()))?;
        }
        match engine.claim(mine, pin.index().number(), deadline, false, &mut refused) {
            Some(vacant) => Ok(vacant),
            None => {
                self.room.keep(permits);
                Err(Hindered::Refused(refused.into()))
            }
        }
    }

    /// Publishes a filled slot; if the key has an entry, the offer has key and value again.
    #[cold]
    #[inline(never)]
    fn enter_anywhere(
        &mut self,
        pin: &Pin,
        mine: &Mine,
        new: Unnamed<'s, Pair<K, V>>,
    ) -> Result<Occupant<'s, Pair<K, V>>, Hindered>
    where
        K: Eq,
    {
        let (store, hash) = (self.store, self.hash);
        // As in a look-up, a younger table mostly has an open home.
        if store.engine.keys.index_of(hash).insert_simply(pin, hash, new.id) {
            return Ok(new.named());
        }
        // SAFETY: this thread's until it is named; from then on this thread is pinned.
        let (id, key) = (new.id, unsafe { &new.slot.value().0 });
        let mut entering = Entering { offer: self, mine, new: Some(new) };
        let mut seek = store.seek(pin, Wanted::new(&store.engine.keys, hash, key));
        let hindered = match store.engine.publish(pin, hash, id, &mut seek, store) {
            Insert::Done => match entering.new.take() {
                Some(new) => return Ok(new.named()),
                None => Hindered::Overtaken,
            },
            Insert::Found => {
                if let Seen::Forwarded(tail) = seek.seen {
                    store.swing(pin, hash, None, tail);
                }
                Hindered::Overtaken
            }
            Insert::Alike => Hindered::Refused(StoreError::Collisions),
            Insert::Full => Hindered::Refused(StoreError::OutOfMemory),
        };
        entering.give_back();
        Err(hindered)
    }

    /// Unpinned, does something about what hindered an attempt. `Ok`: the caller tries again.
    #[cold]
    #[inline(never)]
    pub(in crate::keyed) fn resolve(
        &mut self,
        hindered: Hindered,
        frontend: &impl Frontend<Pair<K, V>>,
    ) -> Result<(), StoreError>
    where
        K: Eq,
    {
        let (store, engine) = (self.store, &self.store.engine);
        let is_too_heavy = engine.admission.limit().is_some_and(|limit| self.weight > limit);
        let wanted = Wanted::new(&engine.keys, self.hash, self.key.as_ref().expect(OFFERED));
        let own = || store.slot_of(wanted);
        let goes_on = match hindered {
            // The bound was lowered since the entry was weighed.
            Hindered::Refused(StoreError::Full) if is_too_heavy && store.eviction.is_some() => {
                engine.count_refusal();
                return Err(StoreError::TooHeavy);
            }
            Hindered::Overtaken => return Ok(()),
            Hindered::Behind if engine.catch_up(frontend) => return Ok(()),
            Hindered::Behind => return Err(LifetimeError::TooLong.into()),
            Hindered::Refused(StoreError::Full) => {
                let goes_on = store.makes_room(&mut self.room, own, frontend);
                // Here, unpinned: the call may return a pinned reference to what it puts in.
                self.room.give_back_beyond(self.weight);
                goes_on
            }
            // Slots that wait to be freed are room where there is no memory for more.
            Hindered::Refused(StoreError::OutOfMemory) => tries_again(&mut self.room, own, || {
                let waits = engine.unreclaimed() > 0;
                waits.then(|| engine.reclaim_now(usize::MAX, frontend)).is_some()
            }),
            Hindered::Refused(StoreError::Collisions) => false,
            Hindered::Refused(error) => return Err(error),
        };
        match hindered {
            Hindered::Refused(error) if !goes_on => {
                engine.count_refusal();
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

/// A slot on its way in, with key and value in it. If a key's `Eq` panics, the driver frees it.
struct Entering<'o, 's, K: 'static, V: 'static> {
    offer: &'o mut Offer<'s, K, V>,
    mine: &'o Mine,
    /// `None` once it is in, or taken back.
    new: Option<Unnamed<'s, Pair<K, V>>>,
}

impl<'s, K: 'static, V: 'static> Entering<'_, 's, K, V> {
    /// The slot, if the index has not got it.
    fn withdraw(&mut self) -> Option<Ended<'s, Pair<K, V>>> {
        let new = self.new.take()?;
        self.offer.store.keys(self.mine, self.offer.hash).sub(1);
        self.offer.room.keep(self.offer.weight);
        // SAFETY: the driver asks the index about keyed entries, and it has never named this one.
        Some(unsafe { new.withdraw() })
    }

    /// Takes key and value back, and frees the slot.
    fn give_back(mut self) {
        if let Some(dead) = self.withdraw() {
            // SAFETY: no thread has looked at them.
            self.offer.take_back(unsafe { dead.slot().take() });
            dead.free();
            self.offer.store.engine.ended(self.mine, 1);
        }
    }
}

impl<K: 'static, V: 'static> Drop for Entering<'_, '_, K, V> {
    #[inline]
    fn drop(&mut self) {
        if let Some(dead) = self.withdraw() {
            self.offer.store.engine.abandon(self.mine, dead, self.offer.weight);
        }
    }
}
