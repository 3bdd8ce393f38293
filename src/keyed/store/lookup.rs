//! Look-up: from a key to the slot that its entry lies in.
//!
//! A thread finds the likeliest place, the key's home in the oldest index table, and then pins. It
//! *glances* there, if that table still is the oldest.
//!
//! 1. It loads the home's header, compares the home's words with the hash, and loads the word that
//!    matches.
//! 2. It loads the header again. If the home's version and the word's bit are as before, the index
//!    named the word's slot at that moment. The pin keeps that slot's payload in place.
//! 3. It loads the slot's lease, and compares the key. The key's `Eq` is the only code of the
//!    user's that a look-up runs.
//!
//! If no word matches and the home is open at step 2, the key has no entry: a thread publishes the
//! key in a younger table only after this home is closed. An insertion publishes its slot in that
//! home by a swap of the header that the thread has loaded first.
//!
//! Where the home is closed, keys share a hash, or a lease is `FORWARD`, the thread looks through
//! all places ([`Seek`]). It loads a slot's lease first, then header and word again, and then
//! compares the key. Before the second look the slot may be unpublished, and its claimer may take
//! key and value out again. So the index asks in two steps: `accept` looks at the lease, `confirm`
//! compares the key.

use super::{Found, Pair, Share, Store, HELD};
use crate::core::engine::{Engine, Keys, Pin};
use crate::core::index::{Glance, Likely, Open, Probe, Sighting};
use crate::core::lease::{Lease, State};
use crate::core::occupancy::Occupant;
use crate::core::prefetch_at;
use crate::core::slot::Slot;
use crate::sync::step;
use std::borrow::Borrow;

/// The key that a caller looks for, or a borrowed form of it, and where it most likely is.
pub(in crate::keyed) struct Wanted<'i, 'q, Q: ?Sized> {
    pub(in crate::keyed) likely: Likely<'i>,
    pub(in crate::keyed) key: &'q Q,
}

impl<Q: ?Sized> Clone for Wanted<'_, '_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Wanted<'_, '_, Q> {}

impl<'i, 'q, Q: Eq + ?Sized> Wanted<'i, 'q, Q> {
    /// `hash` is the engine's hash of `key`.
    #[inline(always)]
    pub(in crate::keyed) fn new(keys: &'i Keys, hash: u32, key: &'q Q) -> Self {
        Wanted { likely: keys.likely(hash), key }
    }

    /// `likely` has the hash of `key`.
    #[inline(always)]
    pub(in crate::keyed) fn at(likely: Likely<'i>, key: &'q Q) -> Self {
        Wanted { likely, key }
    }

    /// Whether an entry's key is the wanted one. This runs the user's `Eq`.
    #[inline(always)]
    fn is<K: Borrow<Q>>(self, other: &K) -> bool {
        other.borrow() == self.key
    }
}

/// Where a cold function has found an entry, and its lease then, in two registers. For a [`Found`],
/// which takes memory, the compiler would also store and load the caller's own.
#[derive(Clone, Copy)]
pub(in crate::keyed) enum Spotted {
    Nowhere,
    At(u32, Lease),
}

/// The entry that a look-up has found; or, if it came to one, the open home where the key would be.
pub(in crate::keyed) type Sought<'g, K, V> = Result<Found<'g, K, V>, Option<Open<'g>>>;

/// A look-up through all index buckets that may hold a key; see [`Probe`].
pub(super) struct Seek<'g, 'q, K: 'static, V: 'static, Q: ?Sized> {
    store: &'g Store<K, V>,
    pin: &'g Pin,
    wanted: Wanted<'q, 'q, Q>,
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
        self.seen = self.store.look(self.pin, id, self.wanted.likely.hash);
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
    fn look<'g>(&'g self, pin: &'g Pin, id: u32, hash: u32) -> Seen<'g, K, V> {
        let Some(slot) = self.engine.slots.slot(id) else {
            return Seen::Nothing;
        };
        let lease = slot.lease();
        if lease.is_in(HELD) {
            return Seen::Entry(Found::under(pin, Occupant { id, slot, lease }, hash, None));
        }
        if lease.is(State::Forward) {
            // `tail` returns the lease at which it stopped: loaded again, it could be a forwarded
            // one. A copy that a migrating thread withdraws leads to an entry that has ended.
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

    #[inline(always)]
    pub(in crate::keyed) fn find<'g, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'g, '_, Q>,
    ) -> Option<Found<'g, K, V>>
    where
        K: Borrow<Q>,
    {
        self.sought(pin, wanted, |_| {}).ok()
    }

    /// The entry of a key, or where an insertion may put one.
    #[inline(always)]
    pub(in crate::keyed) fn find_or_open<'g, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'g, '_, Q>,
    ) -> Sought<'g, K, V>
    where
        K: Borrow<Q>,
    {
        // A replacement writes beside the old slot: that memory comes with the slot's.
        self.sought(pin, wanted, |id| self.engine.slots.prefetch_note(id))
    }

    #[inline(always)]
    fn sought<'g, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'g, '_, Q>,
        ahead: impl FnOnce(u32),
    ) -> Sought<'g, K, V>
    where
        K: Borrow<Q>,
    {
        let Wanted { likely: Likely { hash, .. }, key } = wanted;
        match self.glance(pin, wanted, HELD, ahead) {
            Glance::There(found) => Ok(found),
            Glance::Absent(open) => Err(Some(open)),
            Glance::Unclear => self.spotted(pin, hash, self.find_anywhere(hash, key)).ok_or(None),
        }
    }

    /// What a cold look-up has found under this pin, or one within it.
    #[inline(always)]
    pub(in crate::keyed) fn spotted<'g>(
        &'g self,
        pin: &'g Pin,
        hash: u32,
        spotted: Spotted,
    ) -> Option<Found<'g, K, V>> {
        let Spotted::At(id, lease) = spotted else {
            return None;
        };
        let slot = self.engine.slots.slot(id)?;
        Some(Found::under(pin, Occupant { id, slot, lease }, hash, None))
    }

    /// Takes the next items into `group`, `most` at once, with the hashes of their keys. Starts
    /// fetching what look-ups of them will touch: first their index buckets, then the slots that
    /// these lead to. Returns whether there are any items. This runs the iterator and the hasher.
    #[inline]
    pub(in crate::keyed) fn fetch<T>(
        &self,
        items: &mut impl Iterator<Item = T>,
        most: usize,
        hash: impl Fn(&T) -> u32,
        group: &mut Vec<(u32, T)>,
    ) -> bool {
        group.extend(items.take(most).map(|item| (hash(&item), item)));
        for &(hash, _) in &*group {
            self.engine.keys.likely(hash);
        }
        let pin = self.engine.pin();
        for &(hash, _) in &*group {
            if let Glance::There(seen) = self.engine.keys.index_of(hash).glance_pinned(&pin, hash) {
                self.engine.slots.prefetch_note(seen.slot());
                if let Some(slot) = self.engine.slots.slot(seen.slot()) {
                    prefetch_at(slot.address());
                }
            }
        }
        !group.is_empty()
    }

    /// What the likeliest place of a key shows: its entry in one of these `states`, or that it has
    /// none. Unclear where keys share a hash, a value is just being replaced, or the index grows.
    #[inline(always)]
    pub(in crate::keyed) fn glance<'g, 'i, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'i, '_, Q>,
        states: u16,
        ahead: impl FnOnce(u32),
    ) -> Glance<Found<'g, K, V>, Open<'g>>
    where
        K: Borrow<Q>,
        'i: 'g,
    {
        let word = match wanted.likely.glance(pin) {
            Glance::There(word) => word,
            Glance::Absent(open) => return Glance::Absent(open),
            Glance::Unclear => return Glance::Unclear,
        };
        let (id, hash) = (word.slot(), wanted.likely.hash);
        ahead(id);
        let Some(slot) = self.engine.slots.slot(id) else {
            return Glance::Unclear;
        };
        let seen = Occupant { id, slot, lease: slot.lease() };
        let found = Found::under(pin, seen, hash, Some(word));
        match found.lease.is_in(states) && wanted.is(&found.pair().0) {
            true => Glance::There(found),
            false => Glance::Unclear,
        }
    }

    /// [`find`](Self::find), in all tables, also of a value that is just being replaced. The caller
    /// is pinned. It passes no pin, which so stays in registers.
    #[cold]
    #[inline(never)]
    pub(in crate::keyed) fn find_anywhere<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> Spotted
    where
        K: Borrow<Q>,
    {
        let (pin, index) = (self.engine.pin(), self.engine.keys.index_of(hash));
        // Where the oldest table is migrated, a younger one mostly has an open home.
        if let Glance::Absent(_) = index.glance_pinned(&pin, hash) {
            return Spotted::Nowhere;
        }
        let wanted = Wanted::new(&self.engine.keys, hash, key);
        loop {
            let mut seek = self.seek(&pin, wanted);
            if index.find(hash, &mut seek).is_none() {
                return Spotted::Nowhere;
            }
            // The slot that the look-up returned is the one that it has seen last.
            match seek.seen {
                Seen::Entry(found) => return Spotted::At(found.id, found.lease),
                Seen::Forwarded(tail) => self.swing(&pin, hash, None, tail),
                Seen::Nothing => {}
            }
        }
    }

    pub(super) fn seek<'g, 'q, Q: ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'q, 'q, Q>,
    ) -> Seek<'g, 'q, K, V, Q> {
        Seek { store: self, pin, wanted, seen: Seen::Nothing }
    }

    /// Makes the index name slot `target`. `seen` is the word of the slot that was forwarded there,
    /// for the thread that has just forwarded it.
    #[inline(always)]
    pub(super) fn swing(&self, pin: &Pin, hash: u32, seen: Option<Sighting<'_>>, target: u32) {
        let is_live = move || self.is_held(target);
        let tail = move |id| {
            let (tail, _) = tail(&self.engine, id);
            step("led");
            tail
        };
        self.engine.keys.index_of(hash).swing(pin, hash, seen, target, tail, is_live);
    }
}
