//! One key's place in a map, to be looked at first.

use super::{ExpiringMap, Ref};
use crate::core::engine::Pin;
use crate::keyed::living::{Notice, Replaces};
use crate::keyed::removed::Removed;
use crate::keyed::store::Place;
use crate::keyed::{InsertError, Lifetimes, StoreError};
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// A key's entry, or its place; see [`ExpiringMap::entry`].
///
/// ```
/// # use std::time::Duration;
/// # let map = expiry::ExpiringMap::builder().build()?;
/// let page = map.entry("/").or_insert_with(|| "made if there is none".to_string())?;
/// assert_eq!(page.len(), 21);
/// map.entry("/news").or_insert_for(Duration::from_secs(5), || "not for long".to_string())?;
/// map.entry("/empty").or_default()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Entry<'a, K: 'static, V: 'static, S> {
    /// There was one.
    Occupied(OccupiedEntry<'a, K, V, S>),
    /// There was none, or its time was up.
    Vacant(VacantEntry<'a, K, V, S>),
}

/// The entry that a key had, and still has unless another thread has changed it: the methods that
/// change it say so. It pins the map as a [`Ref`] does, so do not keep it.
///
/// ```
/// use expiry::expiring_map::Entry;
///
/// # let map = expiry::ExpiringMap::builder().build()?;
/// map.insert("key", 1)?;
/// if let Entry::Occupied(entry) = map.entry("key") {
///     map.insert("key", 2)?;             // another thread was faster
///     assert_eq!(*entry.get(), 1);       // what was looked at
///     assert!(entry.remove().is_none()); // and that is not there any more
/// }
/// assert_eq!(map.get_cloned("key"), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OccupiedEntry<'a, K: 'static, V: 'static, S> {
    pub(super) map: &'a ExpiringMap<K, V, S>,
    pub(super) key: K,
    pub(super) place: Place,
    pub(super) entry: Ref<'a, K, V>,
}

/// A place for a key that had no entry, and still has none unless another thread has inserted one.
///
/// ```
/// use expiry::{expiring_map::Entry, StoreError};
///
/// # let map = expiry::ExpiringMap::builder().build()?;
/// if let Entry::Vacant(entry) = map.entry("key") {
///     map.insert("key", 2)?; // another thread was faster
///     assert_eq!(entry.insert(1).unwrap_err().error, StoreError::Changed);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VacantEntry<'a, K: 'static, V: 'static, S> {
    pub(super) map: &'a ExpiringMap<K, V, S>,
    pub(super) key: K,
}

impl<'a, K: Hash + Eq, V, S: BuildHasher + 'static> Entry<'a, K, V, S> {
    /// The key.
    pub fn key(&self) -> &K {
        match self {
            Entry::Occupied(entry) => entry.key(),
            Entry::Vacant(entry) => entry.key(),
        }
    }

    /// The value that is there, or `value`, inserted; otherwise as
    /// [`or_insert_with`](Self::or_insert_with).
    pub fn or_insert(self, value: V) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        self.or_insert_with(|| value)
    }

    /// The value that is there, or what `value` makes, inserted. Nothing is locked, so of several
    /// threads that find nothing each makes a value. The first that inserts its own wins: the
    /// others drop theirs, and return that one.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMap::insert`].
    pub fn or_insert_with(
        self,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        self.or_insert_for(Lifetimes::new(), value)
    }

    /// The value; if the key has none, inserts what the closure makes, with a lifetime of its own;
    /// otherwise as [`or_insert_with`](Self::or_insert_with). A lifetime that is zero or too long
    /// is refused with [`StoreError::Lifetime`].
    pub fn or_insert_for(
        self,
        lifetime: impl Into<Lifetimes>,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        let lifetime = lifetime.into();
        match self {
            Entry::Occupied(entry) => {
                // Before the reference goes out: a `Drop` that panics would leave it pinned.
                drop(value);
                Ok(entry.into_ref())
            }
            Entry::Vacant(VacantEntry { map, key }) => {
                let settled = map.put(key, value(), lifetime, Replaces::Nothing)?;
                Ok(settled.into_ref())
            }
        }
    }

    /// The value that is there, or the type's default, inserted; otherwise as
    /// [`or_insert_with`](Self::or_insert_with).
    pub fn or_default(self) -> Result<Ref<'a, K, V>, InsertError<K, V>>
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<'a, K: Hash + Eq, V, S: BuildHasher + 'static> OccupiedEntry<'a, K, V, S> {
    /// The key that was asked for.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The value.
    pub fn get(&self) -> &V {
        self.entry.value()
    }

    /// The value, lent for longer.
    pub fn into_ref(self) -> Ref<'a, K, V> {
        // Before the reference is on its way out: a `Drop` that panics would leave it pinned.
        drop(self.key);
        self.entry
    }

    /// Replaces this very value, with the map's lifetime. Returns the one replaced, after the
    /// listener was called for it, unpinned.
    ///
    /// # Errors
    ///
    /// [`StoreError::Changed`] if it has ended or been replaced; and as [`ExpiringMap::insert`].
    pub fn insert(self, value: V) -> Result<Removed<'a, K, V>, InsertError<K, V>> {
        self.insert_for(value, Lifetimes::new())
    }

    /// Replaces the value by one that has a lifetime of its own; otherwise as
    /// [`insert`](Self::insert). A lifetime that is zero or too long is refused with
    /// [`StoreError::Lifetime`].
    pub fn insert_for(
        self,
        value: V,
        lifetime: impl Into<Lifetimes>,
    ) -> Result<Removed<'a, K, V>, InsertError<K, V>> {
        let OccupiedEntry { map, key, place, entry } = self;
        // The pin would hold back what may have to make room.
        drop(entry);
        let replaces = Replaces::Only(place);
        let settled = map.put_hashed(place.hash, key, value, lifetime.into(), replaces)?;
        Ok(settled.into_replaced().expect("the value that it has replaced"))
    }

    /// Ends this very entry. `None` if it has ended, or been replaced, before.
    pub fn remove(self) -> Option<Removed<'a, K, V>> {
        let OccupiedEntry { map, key, place, entry } = self;
        let pin = map.changing(&key, entry);
        let found = map.store.at(&pin, place);
        let notice = found.and_then(|found| map.store.remove_this(&pin, &found));
        drop(pin);
        let ended = notice.map(Notice::told);
        // After the listener, and before the handle is on its way out: its `Drop` may panic.
        drop(key);
        ended
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// Invalidates a load of the key that is under way, unpinned. Returns a pin.
    fn changing(&self, key: &K, entry: Ref<'_, K, V>) -> Pin {
        if !self.flights.are_there() {
            return entry.into_pin();
        }
        drop(entry);
        self.invalidate_load(key);
        self.store.engine.pin()
    }
}

impl<'a, K: Hash + Eq, V, S: BuildHasher + 'static> VacantEntry<'a, K, V, S> {
    /// The key that was asked for.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The key back.
    pub fn into_key(self) -> K {
        self.key
    }

    /// Inserts a value, with the map's lifetime.
    ///
    /// # Errors
    ///
    /// [`StoreError::Changed`] if another call has inserted one before; and as
    /// [`ExpiringMap::insert`].
    pub fn insert(self, value: V) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        self.insert_for(value, Lifetimes::new())
    }

    /// Inserts a value that has a lifetime of its own; otherwise as [`insert`](Self::insert). A
    /// lifetime that is zero or too long is refused with [`StoreError::Lifetime`].
    pub fn insert_for(
        self,
        value: V,
        lifetime: impl Into<Lifetimes>,
    ) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        let settled = self.map.put(self.key, value, lifetime.into(), Replaces::Nothing)?;
        match settled.refused {
            None => Ok(settled.into_ref()),
            Some(pair) => Err(InsertError::of(pair, StoreError::Changed)),
        }
    }
}

impl<'a, K, V, S> From<OccupiedEntry<'a, K, V, S>> for Entry<'a, K, V, S> {
    fn from(entry: OccupiedEntry<'a, K, V, S>) -> Self {
        Entry::Occupied(entry)
    }
}

impl<'a, K, V, S> From<VacantEntry<'a, K, V, S>> for Entry<'a, K, V, S> {
    fn from(entry: VacantEntry<'a, K, V, S>) -> Self {
        Entry::Vacant(entry)
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for OccupiedEntry<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OccupiedEntry")
            .field("key", &self.key)
            .field("value", self.entry.value())
            .finish()
    }
}

impl<K: fmt::Debug, V, S> fmt::Debug for VacantEntry<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VacantEntry").field(&self.key).finish()
    }
}
