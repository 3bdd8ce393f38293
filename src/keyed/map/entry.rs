//! One key's place in a map, to be looked at first.

use super::put::Settled;
use super::{ExpiringMap, Ref};
use crate::core::engine::Pin;
use crate::keyed::living::{Notice, Put};
use crate::keyed::removed::Ended;
use crate::keyed::store::Found;
use crate::keyed::{InsertError, Lifetime, StoreError};
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
///     map.insert("key", 2)?;             // somebody was faster
///     assert_eq!(*entry.get(), 1);       // what was looked at
///     assert!(entry.remove().is_none()); // and that is not there any more
/// }
/// assert_eq!(map.get_cloned("key"), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OccupiedEntry<'a, K: 'static, V: 'static, S> {
    map: &'a ExpiringMap<K, V, S>,
    key: K,
    found: Found<'a, K, V>,
    entry: Ref<'a, K, V>,
}

/// A place for a key that had no entry, and still has none unless another thread has inserted one.
///
/// ```
/// use expiry::{expiring_map::Entry, StoreError};
///
/// # let map = expiry::ExpiringMap::builder().build()?;
/// if let Entry::Vacant(entry) = map.entry("key") {
///     map.insert("key", 2)?; // somebody was faster
///     assert_eq!(entry.insert(1).unwrap_err().error, StoreError::Changed);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VacantEntry<'a, K: 'static, V: 'static, S> {
    map: &'a ExpiringMap<K, V, S>,
    key: K,
}

impl<'a, K, V, S> Entry<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The key.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// let entry = map.entry("one".to_string());
    /// assert_eq!(entry.key(), "one");
    /// let value = entry.key().len() as u64; // of the key that the entry has taken
    /// assert_eq!(*entry.or_insert(value)?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self) -> &K {
        match self {
            Entry::Occupied(entry) => entry.key(),
            Entry::Vacant(entry) => entry.key(),
        }
    }

    /// The value that is there, or `value`, inserted. If another thread inserts one first it is
    /// that one.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMap::insert`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// assert_eq!(*map.entry("message 1").or_insert("from here")?, "from here");
    /// assert_eq!(*map.entry("message 1").or_insert("from there")?, "from here"); // the first
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn or_insert(self, value: V) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        self.or_insert_with(|| value)
    }

    /// The value that is there, or what `value` makes, inserted. If another thread inserts one
    /// first it is that one, and what was made is dropped: nothing is locked, so of several threads
    /// that find nothing each makes one.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMap::insert`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// let mut made = 0;
    /// for _ in 0..3 {
    ///     let page = map.entry("/").or_insert_with(|| {
    ///         made += 1;
    ///         "a page".to_string()
    ///     })?;
    ///     assert_eq!(*page, "a page");
    /// }
    /// assert_eq!(made, 1); // then it was there
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn or_insert_with(
        self,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        self.or_insert_for(Lifetime::new(), value)
    }

    /// As [`or_insert_with`](Self::or_insert_with), with a lifetime of its own for what is
    /// inserted.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMap::insert_with`].
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{ExpiringMap, ManualClock};
    /// use std::time::Duration;
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let builder = ExpiringMap::builder().time_to_live(60 * second).clock(clock.clone());
    /// let map = builder.build_manual()?;
    /// assert_eq!(*map.entry("/news").or_insert_for(5 * second, || "old")?, "old");
    /// assert_eq!(*map.entry("/news").or_insert_for(5 * second, || "new")?, "old"); // until 5 s
    /// clock.advance(6 * second);
    /// assert_eq!(*map.entry("/news").or_insert_for(5 * second, || "new")?, "new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn or_insert_for(
        self,
        lifetime: impl Into<Lifetime>,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        let lifetime = lifetime.into();
        match self {
            Entry::Occupied(entry) => {
                // Before the reference is on its way out: a `Drop` that panics would leave it
                // pinned.
                drop(value);
                Ok(entry.into_ref())
            }
            Entry::Vacant(VacantEntry { map, key }) => {
                let settled = map.put(key, value(), lifetime, false)?;
                Ok(settled.into_ref())
            }
        }
    }

    /// The value that is there, or the type's default, inserted.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMap::insert`].
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::ExpiringMap;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let hits = ExpiringMap::<&str, AtomicU64>::builder().build()?;
    /// for page in ["/", "/news", "/"] {
    ///     hits.entry(page).or_default()?.fetch_add(1, Ordering::Relaxed); // in place
    /// }
    /// assert_eq!(hits.get("/").unwrap().load(Ordering::Relaxed), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn or_default(self) -> Result<Ref<'a, K, V>, InsertError<K, V>>
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<'a, K, V, S> OccupiedEntry<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// # Safety
    ///
    /// `found` was found after `pin`.
    pub(super) unsafe fn new(
        map: &'a ExpiringMap<K, V, S>,
        key: K,
        found: Found<'a, K, V>,
        pin: Pin,
    ) -> Self {
        OccupiedEntry {
            map,
            key,
            found,
            // SAFETY: the caller's.
            entry: unsafe { Ref::new(&found, pin) },
        }
    }

    /// The key that was asked for.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// map.insert("one".to_string(), 1)?;
    /// match map.entry("one".to_string()) {
    ///     Entry::Occupied(entry) => assert_eq!(entry.key(), "one"),
    ///     Entry::Vacant(_) => unreachable!("it is there"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The value.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// map.insert("tries", 3)?;
    /// match map.entry("tries") {
    ///     Entry::Occupied(entry) if *entry.get() >= 3 => drop(entry.remove()),
    ///     _ => unreachable!("it is there, and 3"),
    /// }
    /// assert!(!map.contains_key("tries"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self) -> &V {
        self.entry.value()
    }

    /// The value, lent for longer.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// map.insert("key", 1)?;
    /// let value = match map.entry("key") {
    ///     Entry::Occupied(entry) => entry.into_ref(), // outlives the entry
    ///     Entry::Vacant(entry) => entry.insert(0)?,
    /// };
    /// assert_eq!(*value, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_ref(self) -> Ref<'a, K, V> {
        // Before the reference is on its way out: a `Drop` that panics would leave it pinned.
        drop(self.key);
        self.entry
    }

    /// Replaces this very value, with the map's lifetime. Returns a reference to the new one, after
    /// the listener was called for the old one, as [`ExpiringMap::upsert`] does: unpinned, and
    /// whatever becomes of the new value meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError::Changed`] if it has ended or been replaced; and as [`ExpiringMap::insert`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// use expiry::{expiring_map::Entry, StoreError};
    ///
    /// map.insert("key", 1)?;
    /// let both = (map.entry("key"), map.entry("key"));
    /// let (Entry::Occupied(first), Entry::Occupied(second)) = both else {
    ///     unreachable!("it is there")
    /// };
    /// assert_eq!(*first.insert(2)?, 2);
    /// let refused = second.insert(3).unwrap_err(); // it has looked at 1, which has been replaced
    /// assert_eq!((refused.error, refused.value), (StoreError::Changed, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(self, value: V) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        self.insert_with(value, Lifetime::new())
    }

    /// As [`insert`](Self::insert), with a lifetime of its own.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), and [`StoreError::ZeroTimeout`],
    /// [`StoreError::TimeoutTooLong`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (clock, second) = (expiry::ManualClock::new(), Duration::from_secs(1));
    /// # let builder = expiry::ExpiringMap::builder().time_to_live(60 * second).clock(clock.clone());
    /// # let map = builder.build_manual()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// map.insert("key", "to live 60 s")?;
    /// if let Entry::Occupied(entry) = map.entry("key") {
    ///     entry.insert_with("to live 5 s", 5 * second)?;
    /// }
    /// assert_eq!(map.get_cloned("key"), Some("to live 5 s"));
    /// clock.advance(6 * second);
    /// assert!(!map.contains_key("key"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_with(
        self,
        value: V,
        lifetime: impl Into<Lifetime>,
    ) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        let store = &*self.map.store;
        let (lifetime, place) = (lifetime.into(), self.found.place());
        let (mut pin, mut found) = (self.entry.into_pin(), self.found);
        let (mut fresh, mut attempts) = (Some((self.key, value)), 0);
        loop {
            match store.put_for(&pin, &found, &mut fresh, lifetime) {
                Ok(Some(Put::Done {
                    new,
                    replaced,
                    closed,
                })) => {
                    let settled = Settled {
                        store,
                        entry: new,
                        pin,
                        replaced,
                        closed,
                        refused: None,
                    };
                    return Ok(settled.into_ref());
                }
                Ok(_) => return Err(InsertError::of(fresh, StoreError::Changed)),
                Err(error) => {
                    // This pin holds back what would make room.
                    drop(pin);
                    if !store.makes_room(error, &mut attempts, store) {
                        return Err(InsertError::of(fresh, error));
                    }
                }
            }
            let again = fresh.as_ref().and_then(|(key, _)| {
                let (wanted, pin) = self.map.seek(key);
                let found = store.living(&pin, wanted)?;
                (found.place() == place).then_some((found, pin))
            });
            let Some((same, anew)) = again else {
                return Err(InsertError::of(fresh, StoreError::Changed));
            };
            (found, pin) = (same, anew);
        }
    }

    /// Ends this very entry. `None` if it has ended, or been replaced, before.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// map.insert("key", 1)?;
    /// if let Entry::Occupied(entry) = map.entry("key") {
    ///     assert_eq!(entry.remove().as_deref(), Some(&1)); // or `None`, if somebody was faster
    /// }
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(self) -> Option<Ended<'a, K, V>> {
        let pin = self.entry.into_pin();
        let notice = self.map.store.remove_this(&pin, &self.found);
        drop(pin);
        let ended = notice.map(Notice::told);
        // After the listener, and before the handle is on its way out: its `Drop` may panic.
        drop(self.key);
        ended
    }
}

impl<'a, K, V, S> VacantEntry<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(map: &'a ExpiringMap<K, V, S>, key: K) -> Self {
        VacantEntry { map, key }
    }

    /// The key that was asked for.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// match map.entry("one".to_string()) {
    ///     Entry::Vacant(entry) => assert_eq!(entry.key(), "one"),
    ///     Entry::Occupied(_) => unreachable!("nobody has inserted it"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The key back.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// match map.entry("one".to_string()) {
    ///     Entry::Vacant(entry) => assert_eq!(entry.into_key(), "one"), // it was not for this map
    ///     Entry::Occupied(_) => unreachable!("nobody has inserted it"),
    /// }
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_key(self) -> K {
        self.key
    }

    /// Inserts a value, with the map's lifetime.
    ///
    /// # Errors
    ///
    /// [`StoreError::Changed`] if another call has inserted one before; and as
    /// [`ExpiringMap::insert`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// if let Entry::Vacant(entry) = map.entry("key") {
    ///     let value = entry.insert(1)?;
    ///     assert_eq!((*value.key(), *value.value()), ("key", 1));
    /// }
    /// assert_eq!(map.get_cloned("key"), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(self, value: V) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        self.insert_with(value, Lifetime::new())
    }

    /// As [`insert`](Self::insert), with a lifetime of its own.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), and [`StoreError::ZeroTimeout`],
    /// [`StoreError::TimeoutTooLong`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (clock, second) = (expiry::ManualClock::new(), Duration::from_secs(1));
    /// # let builder = expiry::ExpiringMap::builder().time_to_live(60 * second).clock(clock.clone());
    /// # let map = builder.build_manual()?;
    /// use expiry::expiring_map::Entry;
    ///
    /// if let Entry::Vacant(entry) = map.entry("key") {
    ///     assert_eq!(*entry.insert_with(1, 5 * second)?, 1);
    /// }
    /// clock.advance(6 * second);
    /// assert!(!map.contains_key("key")); // 5 s, not the map's 60
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_with(
        self,
        value: V,
        lifetime: impl Into<Lifetime>,
    ) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        let settled = self.map.put(self.key, value, lifetime.into(), false)?;
        match settled.refused {
            None => Ok(settled.into_ref()),
            Some((key, value)) => {
                let error = StoreError::Changed;
                Err(InsertError { key, value, error })
            }
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
