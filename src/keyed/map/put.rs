//! Writing: entries come, are renewed, and get new values.

use super::compute::Altered;
use super::{Compute, Entry, ExpiringMap, OccupiedEntry, Ref, VacantEntry};
use crate::core::engine::Pin;
use crate::keyed::living::{Notice, Put};
use crate::keyed::removed::Removed;
use crate::keyed::store::{Entered, RemovalCause, Store};
use crate::keyed::{InsertError, Lifetimes, StoreError};
use crate::time::Lifetime;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// What an insertion came to. It owes the listener the calls for the entries that it has ended.
pub(super) struct Settled<'a, K: 'static, V: 'static> {
    pub(super) store: &'a Store<K, V>,
    /// The pin under which the entry was put in, or found.
    pub(super) pin: Pin,
    /// The entry that was put in, or that was there.
    pub(super) entry: Entered<'a, K, V>,
    /// What was not put in, because there is an entry.
    pub(super) refused: Option<(K, V)>,
}

impl<'a, K: 'static, V: 'static> Settled<'a, K, V> {
    #[inline(always)]
    pub(super) fn new(store: &'a Store<K, V>, pin: Pin, entry: Entered<'a, K, V>) -> Self {
        let refused = None;
        Settled { store, pin, entry, refused }
    }

    /// Calls the listener, unpinned. Returns the entry, of a call that replaces none.
    #[inline]
    pub(super) fn into_ref(self) -> Ref<'a, K, V> {
        // Before the reference is on its way out: a `Drop` that panics would leave it pinned.
        drop(self.refused);
        let Entered { new, closed, .. } = self.entry;
        let pin = self.store.notify(self.pin, closed);
        // SAFETY: found, or put in, after the pin; or this call owned it until after the pin.
        unsafe { Ref::new(self.store, &new, pin) }
    }

    /// Calls the listener, unpinned. Returns what was replaced.
    #[inline(always)]
    pub(super) fn into_replaced(self) -> Option<Removed<'a, K, V>> {
        drop(self.pin);
        let replaced = self.entry.old.map(|ended| {
            let cause = RemovalCause::Replaced;
            Notice { ended, cause }.told()
        });
        if let Some(closed) = self.entry.closed {
            self.store.tell(&closed, RemovalCause::Closed);
        }
        replaced
    }
}

impl<K, V, S> ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Renews a key's entry, with one compare-and-swap. The entry lives for the map's time to live
    /// from now, and has been used. Returns `false` if there is none, or if its time was up. If
    /// this returns `true`, the entry does not expire by its old deadline any more.
    #[inline]
    pub fn touch<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        // The default has been checked when the map was built.
        self.touch_with_lifetime(key, Lifetime::Default).unwrap_or(false)
    }

    /// As [`touch`](Self::touch), with a time to live of its own. Its time to idle stays what it
    /// is, and begins anew.
    ///
    /// # Errors
    ///
    /// [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`].
    #[doc(alias("expire", "persist"))]
    #[inline(always)]
    pub fn touch_with_lifetime<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        time: impl Into<Lifetime>,
    ) -> Result<bool, StoreError>
    where
        K: Borrow<Q>,
    {
        let time = time.into();
        Ok(self.store.engine.catching_up(&*self.store, || {
            let (wanted, pin) = self.seek(key);
            self.store.touch_living(&pin, wanted, time)
        })?)
    }

    /// Inserts a value, or replaces the one that the key has. Returns the one replaced.
    ///
    /// # Errors
    ///
    /// [`InsertError`] gives key and value back: the map is full, closed, or out of memory.
    #[doc(alias = "put")]
    pub fn insert(&self, key: K, value: V) -> Result<Option<Removed<'_, K, V>>, InsertError<K, V>> {
        self.insert_with_lifetime(key, value, Lifetimes::new())
    }

    /// As [`insert`](Self::insert), with a lifetime of its own.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), and [`StoreError::ZeroTimeout`],
    /// [`StoreError::TimeoutTooLong`].
    pub fn insert_with_lifetime(
        &self,
        key: K,
        value: V,
        lifetime: impl Into<Lifetimes>,
    ) -> Result<Option<Removed<'_, K, V>>, InsertError<K, V>> {
        let settled = self.put(key, value, lifetime.into(), true)?;
        Ok(settled.into_replaced())
    }

    /// Puts an entry in, or in the place of the one that lives there, if it `replaces`. Where an
    /// entry whose time is up was in the way, this calls the listener for it, unpinned. For other
    /// entries that the call ends, the returned value does.
    #[inline(always)]
    pub(super) fn put(
        &self,
        key: K,
        value: V,
        lifetime: Lifetimes,
        replaces: bool,
    ) -> Result<Settled<'_, K, V>, InsertError<K, V>> {
        self.put_hashed(self.hash(&key), key, value, lifetime, replaces)
    }

    /// As [`put`](Self::put), of a key with this hash.
    #[inline(always)]
    pub(super) fn put_hashed(
        &self,
        hash: u32,
        key: K,
        value: V,
        lifetime: Lifetimes,
        replaces: bool,
    ) -> Result<Settled<'_, K, V>, InsertError<K, V>> {
        let store = &*self.store;
        let mut offer = store.offer(hash, key, Some(value));
        if let Err(error) = offer.weigh() {
            return Err(InsertError::of(offer.into_pair(), error));
        }
        loop {
            let pin = store.engine.pin();
            match store.put(&pin, &mut offer, lifetime, replaces) {
                Put::Done(entry) => return Ok(Settled::new(store, pin, entry)),
                Put::Kept(found) if self.is_used(&found) => {
                    let entry = Entered { new: found, old: None, closed: None };
                    let refused = Some(offer.into_pair());
                    return Ok(Settled { store, pin, entry, refused });
                }
                Put::Kept(_) => {}
                Put::MadeWay(notice) => {
                    drop(pin);
                    notice.tell();
                }
                Put::Hindered(hindered) => {
                    drop(pin);
                    if let Err(error) = offer.again(hindered, store) {
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
                Some(found) if !self.is_used(&found) => {}
                // SAFETY: found after the pin.
                Some(found) => break unsafe { OccupiedEntry::new(self, key, found, pin) }.into(),
                None => break VacantEntry::new(self, key).into(),
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
        self.upsert_with_lifetime(key, Lifetimes::new(), update)
    }

    /// As [`upsert`](Self::upsert), with a lifetime of its own, which begins now.
    ///
    /// # Errors
    ///
    /// As [`insert_with_lifetime`](Self::insert_with_lifetime).
    pub fn upsert_with_lifetime<R>(
        &self,
        key: K,
        lifetime: impl Into<Lifetimes>,
        mut update: impl FnMut(Option<&V>) -> (V, R),
    ) -> Result<R, InsertError<K, V>> {
        let lifetime = lifetime.into();
        let mut offer = self.store.offer(self.hash(&key), key, None);
        let altered = self.alter(&mut offer, &mut |old| {
            let (value, result) = update(old);
            (Compute::PutWithLifetime(value, lifetime), result)
        });
        match altered {
            Ok((Altered::Put(settled), result)) => {
                drop(settled.into_replaced());
                Ok(result)
            }
            Ok(_) => unreachable!("an update puts a value"),
            Err(error) => Err(InsertError::of(offer.into_pair(), error)),
        }
    }
}
