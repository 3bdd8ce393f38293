//! Many keys in a row: a guard for look-ups, and calls that fetch memory for several keys at once.

use super::ExpiringMap;
use crate::core::engine::Pin;
use crate::core::index::Glance;
use crate::keyed::living::Replaces;
use crate::keyed::store::{Found, Wanted, LIVING};
use crate::keyed::{InsertError, Lifetimes};
use crate::time::Lifetime;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// How many keys' memory is fetched at once.
const GROUP: usize = 16;

/// Looks many keys up for the price of one pin and one reading of the clock: see
/// [`ExpiringMap::guard`].
///
/// It finds the entries whose time was not up when it was made, unless they have ended since. It
/// pins the map as a [`Ref`](crate::Ref) does: while it lives, no key or value that ends in this
/// map is dropped. So do not keep it. It is not `Send`.
///
/// ```
/// let map = expiry::ExpiringMap::builder().build()?;
/// map.insert("one", 1)?;
/// map.insert("two", 2)?;
/// let guard = map.guard();
/// assert_eq!((guard.get("one"), guard.get("four")), (Some(&1), None));
/// assert_eq!(guard.get_many(["two", "three"]), [Some(&2), None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Guard<'a, K: 'static, V: 'static, S> {
    map: &'a ExpiringMap<K, V, S>,
    pin: Pin,
    /// The clock's reading when it was made.
    now: u64,
}

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// A guard for many look-ups in a row: each costs about half of a [`get`](Self::get).
    #[must_use]
    pub fn guard(&self) -> Guard<'_, K, V, S> {
        let engine = &self.store.engine;
        let pin = engine.pin();
        let now = engine.deadlines.now_for_look();
        let map = self;
        Guard { map, pin, now }
    }

    /// [Touches](Self::touch) many keys, and returns what became of each, in order. Memory is
    /// fetched for 16 keys at a time, so in a map of a million entries this takes about half as
    /// long as one call for each.
    pub fn touch_many<'q, Q: Hash + Eq + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Vec<bool>
    where
        K: Borrow<Q>,
    {
        let (mut keys, mut group, mut done) = (keys.into_iter(), Vec::new(), Vec::new());
        while self.store.fetch(&mut keys, GROUP, |key| self.hash(*key), &mut group) {
            // The pins taken inside this one cost next to nothing.
            let mut pin = self.store.engine.pin();
            for (hash, key) in group.drain(..) {
                let wanted = self.wanted(hash, key);
                done.push(match self.store.touch_living(&pin, wanted, Lifetime::Default) {
                    Ok(touched) => touched,
                    // The driver is behind, and may call the listener: unpinned. The default itself
                    // has been checked when the map was built.
                    Err(_) => {
                        drop(pin);
                        let touched = self.touch(key);
                        pin = self.store.engine.pin();
                        touched
                    }
                });
            }
        }
        done
    }

    /// [Inserts](Self::insert) many entries, and returns those that were refused, in order. Values
    /// that are replaced go to the listener. Memory is fetched for 16 keys at a time.
    pub fn insert_many(&self, entries: impl IntoIterator<Item = (K, V)>) -> Vec<InsertError<K, V>> {
        let (mut entries, mut group, mut refused) = (entries.into_iter(), Vec::new(), Vec::new());
        while self.store.fetch(&mut entries, GROUP, |(key, _)| self.hash(key), &mut group) {
            for (hash, (key, value)) in group.drain(..) {
                match self.put_hashed(hash, key, value, Lifetimes::new(), Replaces::Any) {
                    Ok(settled) => drop(settled.into_replaced()),
                    Err(error) => refused.push(error),
                }
            }
        }
        refused
    }

    /// [Removes](Self::remove) many keys, and returns how many entries that has ended. They go to
    /// the listener. Memory is fetched for 16 keys at a time.
    pub fn remove_many<'q, Q: Hash + Eq + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> usize
    where
        K: Borrow<Q>,
    {
        let (mut keys, mut group, mut removed) = (keys.into_iter(), Vec::new(), 0);
        while self.store.fetch(&mut keys, GROUP, |key| self.hash(*key), &mut group) {
            for (hash, key) in group.drain(..) {
                self.invalidate_load(key);
                removed += usize::from(self.remove_hashed(self.wanted(hash, key)).is_some());
            }
        }
        removed
    }
}

impl<'a, K: Hash + Eq, V, S: BuildHasher + 'static> Guard<'a, K, V, S> {
    /// The value of a key. This is a use of the entry, as [`ExpiringMap::get`] is, unless its time
    /// is up since the guard was made.
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.value(self.map.wanted(self.map.hash(key), key), true)
    }

    /// Lends the value of a key, as [`get`](Self::get) does, but is no use of the entry: its time
    /// to idle does not begin anew.
    #[inline]
    pub fn peek<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.value(self.map.wanted(self.map.hash(key), key), false)
    }

    /// The values of many keys, in order: as [`get`](Self::get). Memory is fetched for 16 keys at a
    /// time, so in a map of a million entries this takes about half as long as one call for each.
    ///
    /// The iterator and the keys' `Hash` run while this guard pins the map.
    pub fn get_many<'q, Q: Hash + Eq + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Vec<Option<&V>>
    where
        K: Borrow<Q>,
    {
        let (mut keys, mut group, mut values) = (keys.into_iter(), Vec::new(), Vec::new());
        while self.map.store.fetch(&mut keys, GROUP, |key| self.map.hash(*key), &mut group) {
            let value = |(hash, key)| self.value(self.map.wanted(hash, key), true);
            values.extend(group.drain(..).map(value));
        }
        values
    }

    #[inline(always)]
    fn value<'g, Q: Eq + ?Sized>(&'g self, wanted: Wanted<'g, '_, Q>, uses: bool) -> Option<&'g V>
    where
        K: Borrow<Q>,
    {
        loop {
            let found = self.living(wanted);
            if uses {
                let store = &self.map.store;
                match found {
                    None => store.note_lookup(&self.pin, |lookups| &lookups.misses),
                    // Its time is up since this guard has read the clock: no use renews it.
                    Some(found) if self.map.renews(&found) && !store.is_living(&found) => {
                        store.note_lookup(&self.pin, |lookups| &lookups.hits);
                    }
                    Some(found)
                        if self.map.use_found(&found) && store.note_hit(&self.pin, &found) => {}
                    Some(_) => continue, // It has ended meanwhile.
                }
            }
            return found.map(|found| &found.pair().1);
        }
    }

    #[inline(always)]
    fn living<'g, Q: Eq + ?Sized>(&'g self, wanted: Wanted<'g, '_, Q>) -> Option<Found<'g, K, V>>
    where
        K: Borrow<Q>,
    {
        let store = &self.map.store;
        match store.glance(&self.pin, wanted, LIVING, |_| {}) {
            Glance::There(found) if store.is_living_at(&found, self.now) => Some(found),
            Glance::Absent(_) => None,
            _ => store.living(&self.pin, wanted),
        }
    }
}

impl<K, V, S> fmt::Debug for Guard<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
