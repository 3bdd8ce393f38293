//! Writing: entries come, are renewed, and get new values.

use super::{Compute, Computed, Current, Entry, ExpiringMap, OccupiedEntry, Ref, VacantEntry};
use crate::core::engine::Pin;
use crate::keyed::living::Replaces;
use crate::keyed::removed::{EndedSlot, Removed};
use crate::keyed::store::{Entered, Hindered, Lent, Offer, Place, RemovalCause, Store};
use crate::keyed::{InsertError, Lifetimes, StoreError};
use crate::time::{Lifetime, LifetimeError};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// What an insertion came to. It owes the listener the calls for the entries that it has ended.
pub(super) struct Settled<'a, K: 'static, V: 'static> {
    pub(super) store: &'a Store<K, V>,
    /// The pin under which the entry was put in, or found.
    pub(super) pin: Pin,
    /// The entry that was put in, or that was there.
    pub(super) lent: Lent<K, V>,
    pub(super) place: Place,
    /// The value that it has replaced.
    pub(super) old: Option<EndedSlot<&'a Store<K, V>, K, V>>,
    /// The entry itself, if the call has ended it again.
    pub(super) closed: Option<EndedSlot<&'a Store<K, V>, K, V>>,
    /// What was not put in, because there is an entry.
    pub(super) refused: Option<(K, V)>,
}

impl<'a, K: 'static, V: 'static> Settled<'a, K, V> {
    /// Calls the listener, unpinned. Returns the entry, of a call that replaces none.
    #[inline]
    pub(super) fn into_ref(self) -> Ref<'a, K, V> {
        // Before the reference is on its way out: a `Drop` that panics would leave it pinned.
        drop(self.refused);
        let (store, mut pin) = (self.store, self.pin);
        if let Some(closed) = self.closed {
            drop(pin);
            let closed = store.told(closed, RemovalCause::Closed);
            // This call has the slot until `closed` is dropped, under the new pin.
            pin = store.engine.pin();
            drop(closed);
        }
        // SAFETY: found, or put in, under the pin; or this call owned it until after the pin.
        unsafe { Ref::new(store, self.lent, pin) }
    }

    /// Calls the listener, unpinned. Returns what was replaced.
    #[inline(always)]
    pub(super) fn into_replaced(self) -> Option<Removed<'a, K, V>> {
        drop(self.pin);
        self.store.engine.admission.wake_owed();
        let replaced = self.old.map(|ended| self.store.told(ended, RemovalCause::Replaced));
        if let Some(closed) = self.closed {
            self.store.tell(closed, RemovalCause::Closed);
        }
        replaced
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// Renews a key's entry, with one compare-and-swap. The entry lives for the map's time to live
    /// from now, and has been used. Returns `false` if there is none, or if its time was up,
    /// whether or not the reaper has ended it yet. (A queue renews an overdue key until then.) If
    /// this returns `true`, the entry does not expire by its old deadline any more.
    #[inline]
    pub fn touch<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        // The default has been checked when the map was built.
        self.touch_for(key, Lifetime::Default).unwrap_or(false)
    }

    /// Renews an entry for a time to live of its own; otherwise as [`touch`](Self::touch). Its time
    /// to idle stays what it is, and begins anew.
    ///
    /// # Errors
    ///
    /// [`LifetimeError`]; also where there is no entry.
    #[doc(alias("expire", "persist"))]
    #[inline(always)]
    pub fn touch_for<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        time: impl Into<Lifetime>,
    ) -> Result<bool, LifetimeError>
    where
        K: Borrow<Q>,
    {
        let time = time.into();
        self.store.engine.catching_up(&*self.store, || {
            let (wanted, pin) = self.seek(key);
            self.store.touch_living(&pin, wanted, time)
        })
    }

    /// Inserts a value, or replaces the one that the key has. Returns the one replaced. A load of
    /// the key that is under way is [invalidated](Self::get_or_insert_with), also if this fails.
    ///
    /// Lock-free while no load is under way; else it takes a lock for some instructions. This is so
    /// for all calls that insert.
    ///
    /// # Errors
    ///
    /// [`InsertError`] gives key and value back: the map is full, closed, or out of memory.
    #[doc(alias = "put")]
    pub fn insert(&self, key: K, value: V) -> Result<Option<Removed<'_, K, V>>, InsertError<K, V>> {
        self.insert_for(key, value, Lifetimes::new())
    }

    /// Inserts a value that has a lifetime of its own; otherwise as [`insert`](Self::insert). A
    /// lifetime that is zero or too long is refused with [`StoreError::Lifetime`].
    pub fn insert_for(
        &self,
        key: K,
        value: V,
        lifetime: impl Into<Lifetimes>,
    ) -> Result<Option<Removed<'_, K, V>>, InsertError<K, V>> {
        if self.store.expiry.is_some() {
            return self.insert_asking((key, value), lifetime.into());
        }
        self.invalidate_load(&key);
        let offer = self.store.offer(self.hash(&key), key, Some(value));
        Ok(self.put_by(offer, (lifetime.into(), false), Replaces::Any)?.into_replaced())
    }

    /// [`insert_for`](Self::insert_for), in a map with a policy. Out of line, so that the common
    /// way keeps its result in registers.
    #[cold]
    #[inline(never)]
    fn insert_asking(
        &self,
        (key, value): (K, V),
        lifetime: Lifetimes,
    ) -> Result<Option<Removed<'_, K, V>>, InsertError<K, V>> {
        Ok(self.put(key, value, lifetime, Replaces::Any)?.into_replaced())
    }

    /// Puts an entry in, or in the place of the one that lives there, if it `replaces` that. Where
    /// an entry whose time is up was in the way, this calls the listener for it, unpinned. For
    /// other entries that the call ends, the returned value does.
    #[inline(always)]
    pub(super) fn put(
        &self,
        key: K,
        value: V,
        lifetime: Lifetimes,
        replaces: Replaces,
    ) -> Result<Settled<'_, K, V>, InsertError<K, V>> {
        self.put_hashed(self.hash(&key), key, value, lifetime, replaces)
    }

    /// [`put`](Self::put), of a key with this hash.
    #[inline(always)]
    pub(super) fn put_hashed(
        &self,
        hash: u32,
        key: K,
        value: V,
        lifetime: Lifetimes,
        replaces: Replaces,
    ) -> Result<Settled<'_, K, V>, InsertError<K, V>> {
        self.invalidate_load(&key);
        let offer = self.store.offer(hash, key, Some(value));
        self.put_by(offer, (lifetime, self.store.expiry.is_some()), replaces)
    }

    /// The loop of an insertion, which may ask a policy for the lifetime. Pinned, it runs the
    /// user's code: the key's `Eq`, the policy, and the clock.
    #[inline(always)]
    pub(super) fn put_by<'s>(
        &'s self,
        mut offer: Offer<'s, K, V>,
        (lifetime, asks): (Lifetimes, bool),
        replaces: Replaces,
    ) -> Result<Settled<'s, K, V>, InsertError<K, V>> {
        let (store, changed) = (&*self.store, Hindered::Refused(StoreError::Changed));
        if let Err(error) = offer.weigh() {
            return Err(InsertError::of(offer.into_pair(), error));
        }
        loop {
            let (likely, pin) = (offer.likely(), store.engine.pin());
            let mine = store.engine.mine(&pin);
            let found = store.find_or_open(&pin, offer.wanted(likely));
            // The one clock reading, after the look at the lease.
            let times = match (asks, &found) {
                (_, Err(_)) if matches!(replaces, Replaces::Only(_)) => Err(changed),
                (true, found) => {
                    let found = found.as_ref().ok();
                    let times = store.term_asking(mine, &offer, found, (lifetime, replaces));
                    times.map_err(Hindered::from)
                }
                (false, _) => store.term(mine, lifetime).map_err(Hindered::from),
            };
            let attempt = match (times, found) {
                (Err(hindered), _) => Err(hindered),
                (Ok((term, _)), Err(open)) => {
                    let withheld = matches!(replaces, Replaces::Load(_));
                    offer.enter((&pin, mine), open, term, withheld)
                }
                (Ok((_, now)), Ok(found)) if !store.is_living_at(&found, now) => {
                    // By a copy: found itself stays in registers.
                    let notice = store.make_way(&pin, &{ found });
                    drop(pin);
                    if let Some(notice) = notice {
                        notice.tell();
                    }
                    continue;
                }
                (Ok((term, _)), Ok(found)) if replaces.takes(&found) => {
                    offer.replace((&pin, mine), &found, term)
                }
                (Ok(_), Ok(_)) if matches!(replaces, Replaces::Only(_)) => Err(changed),
                (Ok(_), Ok(_)) if offer.has_room() => {
                    drop(pin);
                    offer.give_up_room();
                    continue;
                }
                (Ok(_), Ok(found)) if !self.read_found(&found) => continue,
                (Ok(_), Ok(found)) => {
                    let (lent, place) = (found.lend(), found.place());
                    let refused = Some(offer.into_pair());
                    return Ok(Settled {
                        store,
                        pin,
                        lent,
                        place,
                        old: None,
                        closed: None,
                        refused,
                    });
                }
            };
            match attempt {
                Ok(Entered { new, old, closed }) => {
                    let (lent, place) = (new.lend(), new.place());
                    return Ok(Settled { store, pin, lent, place, old, closed, refused: None });
                }
                Err(hindered) => {
                    drop(pin);
                    if let Err(error) = offer.resolve(hindered, store) {
                        return Err(InsertError::of(offer.into_pair(), error));
                    }
                }
            }
        }
    }

    /// The entry of a key, to be looked at and then replaced, removed, or inserted. This is a use
    /// of the entry, if there is one.
    ///
    /// It locks nothing: what is done with it says if the entry has changed in the meantime.
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        let (wanted, pin) = self.seek::<K>(&key);
        loop {
            match self.store.living(&pin, wanted) {
                Some(found) if !self.read_found(&found) => {}
                Some(found) => {
                    let (lent, place) = (found.lend(), found.place());
                    // SAFETY: found under the pin.
                    let entry = unsafe { Ref::new(&self.store, lent, pin) };
                    break OccupiedEntry { map: self, key, place, entry }.into();
                }
                None => break VacantEntry { map: self, key }.into(),
            }
        }
    }

    /// Inserts the value that `update` makes of none, or replaces the one that the key has by what
    /// `update` makes of that; as one step. Returns what `update` returns beside the value. Other
    /// threads may change the entry meanwhile: `update` is called again then, and the result of the
    /// last call counts. The new value has the map's lifetime, which begins now.
    ///
    /// The listener is called for the replaced value before this returns, while this thread is
    /// unpinned.
    ///
    /// ```
    /// # let hits = expiry::ExpiringMap::builder().build()?;
    /// let mut count = |visitor| {
    ///     hits.upsert(visitor, |count| {
    ///         let count = count.map_or(1, |count| count + 1);
    ///         (count, count) // the value, and what is returned
    ///     })
    /// };
    /// assert_eq!((count("ada")?, count("bob")?, count("ada")?), (1, 1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    #[doc(alias("merge", "and_upsert_with"))]
    pub fn upsert<R>(
        &self,
        key: K,
        update: impl FnMut(Option<&V>) -> (V, R),
    ) -> Result<R, InsertError<K, V>> {
        self.upsert_for(key, Lifetimes::new(), update)
    }

    /// Updates the value, or inserts one, with a lifetime of its own, which begins now; otherwise
    /// as [`upsert`](Self::upsert).
    ///
    /// # Errors
    ///
    /// As [`insert_for`](Self::insert_for).
    pub fn upsert_for<R>(
        &self,
        key: K,
        lifetime: impl Into<Lifetimes>,
        mut update: impl FnMut(Option<&V>) -> (V, R),
    ) -> Result<R, InsertError<K, V>> {
        let lifetime = lifetime.into();
        let mut offer = self.store.offer(self.hash(&key), key, None);
        let mut decide = |old: Option<Current<'_, K, V>>| {
            let (value, result) = update(old.as_ref().map(Current::value));
            (Compute::PutFor(value, lifetime), result)
        };
        let altered = self.alter(&mut offer, &mut decide, |settled| Computed::Put {
            is: None,
            was: settled.into_replaced(),
        });
        altered.map(|(_, result)| result).map_err(|error| InsertError::of(offer.into_pair(), error))
    }
}
