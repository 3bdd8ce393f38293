//! Look-up: from a key to the slot that its entry lies in.
//!
//! A pinned thread first *glances* at the likeliest place: the key's home in the oldest index
//! table.
//!
//! 1. It loads the home's header, compares the home's words with the hash, and loads the word that
//!    matches.
//! 2. It loads the header again. If the home's version and the word's bit are as before, the index
//!    named the word's slot at that moment. The pin keeps that slot's payload in place.
//! 3. It loads the slot's lease, and compares the key. The key's `Eq` is the only code of the
//!    user's that a look-up runs.
//!
//! If no word matches and the home is open at step 2, the key has no entry: a thread publishes the
//! key in a younger table only after this home is closed. If the home is closed, the thread glances
//! at the next table.
//!
//! Where keys share a hash, or a lease is `FORWARD`, the thread looks through all places
//! ([`Seek`]). It loads a slot's lease first, then header and word again, and then compares the
//! key. Before the second look the slot may be unpublished, and its claimer may take key and value
//! out again. So the index asks in two steps: `accept` looks at the lease, `confirm` compares the
//! key.

use super::{Found, Leased, Pair, Share, Store, HELD};
use crate::core::engine::{Engine, Keys, Pin};
use crate::core::index::{Glance, Index, Probe, ANYWHERE};
use crate::core::lease::{Lease, State};
use crate::core::prefetch_at;
use crate::core::slot::Slot;
use crate::sync::step;
use std::borrow::Borrow;

/// The key that a caller looks for, or a borrowed form of it, and its hash.
pub(in crate::keyed) struct Wanted<'q, Q: ?Sized> {
    hash: u32,
    /// The index that has the keys of this hash.
    index: &'q Index,
    key: &'q Q,
}

impl<Q: ?Sized> Clone for Wanted<'_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Wanted<'_, Q> {}

impl<'q, Q: Eq + ?Sized> Wanted<'q, Q> {
    /// `hash` is the engine's hash of `key`.
    #[inline(always)]
    pub(in crate::keyed) fn new(keys: &'q Keys, hash: u32, key: &'q Q) -> Self {
        Wanted { hash, index: keys.index_of(hash), key }
    }

    /// Starts fetching where the key most likely is named.
    #[inline(always)]
    pub(in crate::keyed) fn fetch(self) {
        self.index.fetch_oldest(self.hash);
    }

    /// Whether an entry's key is the wanted one. This runs the user's `Eq`.
    #[inline(always)]
    fn is<K: Borrow<Q>>(self, other: &K) -> bool {
        other.borrow() == self.key
    }
}

/// Where a cold function has found an entry, and its lease then. This fits two registers. So the
/// caller's own [`Found`] does not have to be in memory, from which it would wait for it.
#[derive(Clone, Copy)]
pub(in crate::keyed) enum Spotted {
    Nowhere,
    At(u32, Lease),
}

/// A look-up through all index buckets that may hold a key; see [`Probe`].
pub(super) struct Seek<'g, 'q, K: 'static, V: 'static, Q: ?Sized> {
    store: &'g Store<K, V>,
    pin: &'g Pin,
    wanted: Wanted<'q, Q>,
    pub(super) seen: Seen<'g, K, V>,
}

/// What a [`Seek`] has seen in the slot that it accepted last.
pub(super) enum Seen<'g, K: 'static, V: 'static> {
    Nothing,
    Entry(Found<'g, K, V>),
    /// The entry has a new value, in this slot. The index word is to be swung there.
    Forwarded(u32),
}

impl<K: Borrow<Q> + 'static, V: 'static, Q: Eq + ?Sized> Probe for Seek<'_, '_, K, V, Q> {
    #[inline(always)]
    fn accept(&mut self, id: u32) -> bool {
        self.seen = self.store.look(self.pin, id, self.wanted.hash, ANYWHERE);
        !matches!(self.seen, Seen::Nothing)
    }

    #[inline(always)]
    fn confirm(&mut self) -> bool {
        match &self.seen {
            Seen::Entry(found) => self.wanted.is(&found.pair().0),
            Seen::Forwarded(_) => true,
            Seen::Nothing => false,
        }
    }
}

/// Where slot `id` leads to, and the lease that says that it goes no further.
pub(super) fn tail<K: 'static, V: 'static>(
    engine: &Engine<Pair<K, V>, Share>,
    mut id: u32,
) -> (u32, Option<Lease>) {
    loop {
        match engine.slots.slot(id).map(Slot::lease) {
            Some(lease) if lease.is(State::Forward) => id = lease.link(),
            lease => return (id, lease),
        }
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// What slot `id` holds, which the index led to.
    #[inline(always)]
    fn look<'g>(&'g self, pin: &'g Pin, id: u32, hash: u32, position: usize) -> Seen<'g, K, V> {
        let Some(slot) = self.engine.slots.slot(id) else {
            return Seen::Nothing;
        };
        let lease = slot.lease();
        if lease.is_in(HELD) {
            return Seen::Entry(Found::under(pin, Leased { id, slot, lease, hash }, position));
        }
        if lease.is(State::Forward) {
            // This goes by the lease that ended the way there: loaded again, it could be a
            // forwarded one. A copy that a migrating thread withdraws leads to an entry that has
            // ended.
            if let (tail, Some(lease)) = tail(&self.engine, id) {
                if lease.is_in(HELD) {
                    return Seen::Forwarded(tail);
                }
            }
        }
        Seen::Nothing
    }

    fn is_held(&self, id: u32) -> bool {
        let slot = self.engine.slots.slot(id);
        slot.is_some_and(|slot| slot.lease().is_in(HELD))
    }

    /// The entry of a key.
    #[inline(always)]
    pub(in crate::keyed) fn find<'g, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'_, Q>,
    ) -> Option<Found<'g, K, V>>
    where
        K: Borrow<Q>,
    {
        self.find_and(pin, wanted, |_| {})
    }

    /// The entry of a key. This calls `ahead` with the slot that most likely has it, before this
    /// thread waits for that slot's memory.
    #[inline(always)]
    pub(in crate::keyed) fn find_and<'g, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'_, Q>,
        ahead: impl FnOnce(u32),
    ) -> Option<Found<'g, K, V>>
    where
        K: Borrow<Q>,
    {
        match self.glance(pin, wanted, ahead) {
            Glance::There(found) => Some(found),
            Glance::Absent => None,
            Glance::Unclear => self.spotted(pin, wanted, self.find_anywhere(pin, wanted)),
        }
    }

    /// What a cold look-up has found under this pin.
    #[inline(always)]
    pub(in crate::keyed) fn spotted<'g, Q: ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'_, Q>,
        spotted: Spotted,
    ) -> Option<Found<'g, K, V>> {
        let Spotted::At(id, lease) = spotted else {
            return None;
        };
        let slot = self.engine.slots.slot(id)?;
        let leased = Leased { id, slot, lease, hash: wanted.hash };
        Some(Found::under(pin, leased, ANYWHERE))
    }

    /// Starts fetching what look-ups of these hashes will touch: first their index buckets, then
    /// the slots that these lead to.
    #[inline]
    pub(in crate::keyed) fn fetch(&self, hashes: impl Iterator<Item = u32> + Clone) {
        for hash in hashes.clone() {
            self.engine.keys.index_of(hash).prefetch(hash);
        }
        let pin = self.engine.pin();
        for hash in hashes {
            if let Glance::There(seen) = self.engine.keys.index_of(hash).glance_pinned(&pin, hash) {
                self.engine.slots.prefetch_note(seen.slot);
                if let Some(slot) = self.engine.slots.slot(seen.slot) {
                    prefetch_at(slot.address());
                }
            }
        }
    }

    /// What the likeliest place of a key shows: its entry, or that it has none. Unclear where keys
    /// share a hash, a value is just being replaced, or the index grows.
    #[inline(always)]
    pub(in crate::keyed) fn glance<'g, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'_, Q>,
        ahead: impl FnOnce(u32),
    ) -> Glance<Found<'g, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = wanted.hash;
        let seen = match wanted.index.glance_pinned(pin, hash) {
            Glance::There(seen) => seen,
            Glance::Absent => return Glance::Absent,
            Glance::Unclear => return Glance::Unclear,
        };
        ahead(seen.slot);
        match self.look(pin, seen.slot, hash, seen.position) {
            Seen::Entry(found) if wanted.is(&found.pair().0) => Glance::There(found),
            _ => Glance::Unclear,
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn find_anywhere<'g, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'_, Q>,
    ) -> Spotted
    where
        K: Borrow<Q>,
    {
        loop {
            let mut seek = self.seek(pin, wanted);
            if wanted.index.find(wanted.hash, &mut seek).is_none() {
                return Spotted::Nowhere;
            }
            // The slot that the look-up returned is the one that it has seen last.
            match seek.seen {
                Seen::Entry(found) => return Spotted::At(found.id, found.lease),
                Seen::Forwarded(tail) => self.swing(pin, wanted.hash, None, tail),
                Seen::Nothing => {}
            }
        }
    }

    pub(super) fn seek<'g, 'q, Q: ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'q, Q>,
    ) -> Seek<'g, 'q, K, V, Q> {
        Seek { store: self, pin, wanted, seen: Seen::Nothing }
    }

    /// Makes the index name slot `target`, to which another slot has been forwarded. `seen` is that
    /// slot, and where in its home its word was seen, for the thread that has just forwarded it.
    #[inline(always)]
    pub(super) fn swing(&self, pin: &Pin, hash: u32, seen: Option<(u32, usize)>, target: u32) {
        let is_live = move || self.is_held(target);
        let tail = move |id| {
            let (tail, _) = tail(&self.engine, id);
            step("led");
            tail
        };
        self.engine.keys.index_of(hash).swing(pin, hash, seen, target, tail, is_live);
    }
}
