//! A concurrent map whose entries expire.

mod builder;
mod entry;
mod iter;

pub use builder::ExpiringMapBuilder;
pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use iter::Iter;

use super::living::{Notice, Put};
use super::removed::Ended;
use super::store::{Cause, Found, Store, Wanted};
use super::{InsertError, Lifetime, StoreError, StoreMetrics};
use crate::core::engine::Pin;
use crate::hash::RandomState;
use crate::setup::Reaper;
use crate::time::{Timeout, NEVER};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A concurrent map whose entries expire: each after its time to live, its time to idle, or whichever comes first.
///
/// ```
/// use expiry::{Cause, ExpiringMap};
/// use std::time::Duration;
///
/// let sessions = ExpiringMap::builder()
///     .time_to_live(Duration::from_secs(3600))
///     .time_to_idle(Duration::from_secs(300))
///     .on_end(|user: &String, token: &u64, cause: Cause| println!("{user} {token}: {cause:?}"))
///     .build()?;
/// sessions.insert("ada".to_string(), 4711)?;
/// assert_eq!(sessions.get("ada").as_deref(), Some(&4711));
/// assert_eq!(sessions.remove("ada").as_deref(), Some(&4711));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Time
///
/// Look-ups never return an expired entry, even if the reaper has not removed it yet. An entry
/// expires when its time is up by the map's clock, rounded up to the interval: never early, and
/// late by at most one interval and the [lag](crate::Clock::lag) of a cheap clock (1 ms). The
/// listener is called when a reaper thread, or a caller of [`poll`](Self::poll), ends the entry.
///
/// # One story
///
/// Every value that goes in ends once. It is replaced, removed, or expires, or it ends when the map
/// is shut down. The replacing or removing call returns it, and the listener is called with it and
/// the cause, exactly once, whatever calls meet.
///
/// # Progress and cost
///
/// All operations but [`shutdown`](Self::shutdown), [`flush`](Self::flush) and dropping the map are
/// lock-free. Look-ups write nothing shared (with a time to idle, one swap in every interval). Key
/// and value lie in the entry's slot, beside its lease; above 64 bytes together they are boxed. A
/// slot takes 8 bytes and key and value; 5 bytes lie beside it, and 16 to 29 in the index.
///
/// # When values are dropped
///
/// A reader may hold a reference to a value that has ended. So the map drops key and value later,
/// when no thread can hold them: usually within an interval.
///
/// * The map's reaper drops them; without a reaper, the thread in [`poll`](Self::poll). A thread
///   that drives the map for another reason drops them too: the caller of
///   [`shutdown`](Self::shutdown), and, rarely, an insertion that finds the map full, or a call
///   after the clock has jumped by years.
/// * Beside these, only the caller of [`flush`](Self::flush) drops them, the caller of
///   [`Ended::into_value`], and the thread that drops the last handle to the map.
/// * `Drop` runs unpinned, and while the map holds nothing that other threads wait for. It may call
///   the map, take a lock, or panic. A panic is caught and counted (`drop_panics` in the
///   [metrics](StoreMetrics)).
/// * A slow `Drop` delays this map's reaper, and so the listener. It delays no other map.
/// * A [`Ref`] or [`OccupiedEntry`] that a thread keeps delays the drops of this map only, for as
///   long as it lives. So do the items of an iterator. `unreclaimed` in the metrics counts the
///   entries that wait. [`flush`](Self::flush) waits for them.
///
/// A `Ref`, an `OccupiedEntry` and each item of an iterator *pin* the map, as every call does while
/// it runs. A key's `Eq` runs pinned, and so do the closures of [`retain`](Self::retain),
/// [`remove_if`](Self::remove_if) and [`upsert`](Self::upsert). The listener runs unpinned, but for
/// [`OccupiedEntry::insert`] and `upsert`, which return a `Ref`, and for an insertion that a shutdown
/// overtakes.
pub struct ExpiringMap<K: 'static, V: 'static, S = RandomState> {
    store: Arc<Store<K, V>>,
    hasher: S,
    reaper: Option<Reaper>,
}

/// An entry's key and value, lent for as long as this lives. It pins the map: while it lives, no
/// key or value that ends in this map is dropped. So do not keep it. The entry may end in the
/// meantime; what is lent stays what it was.
///
/// It is not `Send`, and so not for holding across an `await`: clone what is needed there
/// ([`get_cloned`](ExpiringMap::get_cloned), of an `Arc` if it is large).
///
/// ```
/// # let map = expiry::ExpiringMap::builder().build()?;
/// map.insert(7, "seven".to_string())?;
/// let entry = map.get(&7).unwrap();
/// map.remove(&7);
/// assert_eq!((*entry.key(), entry.value().as_str(), entry.len()), (7, "seven", 5)); // what is lent stays
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ref<'a, K: 'static, V: 'static> {
    pair: &'a (K, V),
    pub(super) pin: Pin,
}

impl<K, V> Ref<'_, K, V> {
    /// # Safety
    ///
    /// It was found after the pin.
    #[inline(always)]
    unsafe fn new(found: &Found<'_, K, V>, pin: Pin) -> Self {
        // SAFETY: the caller's; the pin goes with it.
        let pair = unsafe { found.pair() };
        Ref { pair, pin }
    }

    /// Its key.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// let keys: Vec<String> = map.iter().map(|entry| entry.key().clone()).collect();
    /// assert_eq!(keys, ["one"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &K {
        &self.pair.0
    }

    /// Its value.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// let before = map.get("one").unwrap();
    /// map.insert("one".to_string(), 2)?;
    /// assert_eq!((*before.value(), map.get_cloned("one")), (1, Some(2))); // what is lent stays what it was
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn value(&self) -> &V {
        &self.pair.1
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.pair.1
    }
}

impl<K, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pair.1.fmt(f)
    }
}

/// What an insertion came to. The pin is the one that `entry` was found, or put in, under.
struct Settled<'a, K: 'static, V: 'static> {
    entry: Found<'a, K, V>,
    pin: Pin,
    replaced: Option<Notice<'a, K, V>>,
    /// What was not put in, because there is something.
    refused: Option<(K, V)>,
}

impl<'a, K: 'static, V: 'static> Settled<'a, K, V> {
    fn into_ref(self) -> Ref<'a, K, V> {
        // Before the reference is on its way out, or a panic of its `Drop` would leave that pinned for ever.
        drop(self.refused);
        // SAFETY: found, or put in, after the pin.
        unsafe { Ref::new(&self.entry, self.pin) }
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + Sync + 'static> ExpiringMap<K, V> {
    /// Settings with defaults.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::ExpiringMap;
    /// use std::time::Duration;
    ///
    /// let map = ExpiringMap::builder().build()?; // entries live for ever, unless they say otherwise
    /// map.insert("for ever", 1)?;
    /// map.insert_with("a minute", 2, Duration::from_secs(60))?;
    /// assert_eq!(map.remaining("for ever"), Some(Duration::MAX));
    /// assert!(map.remaining("a minute") < Some(Duration::from_secs(61)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> ExpiringMapBuilder<K, V> {
        ExpiringMapBuilder::default()
    }
}

impl<K, V, S> ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
    {
        self.store.engine.hash(self.hasher.hash_one(key))
    }

    #[inline(always)]
    fn seek<'q, Q: Hash + ?Sized, F>(&self, key: &Q, is_key: &'q F) -> (Wanted<'q, F>, Pin)
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        (Wanted { hash, is_key }, self.store.engine.pin())
    }

    /// The entry of a key, unless its time is up; this is a use of it. Wait-free, but where another
    /// thread replaces the value just then, or the index grows; one clock reading. With a time to idle
    /// also a swap, once in every interval.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// let one = map.get("one").unwrap(); // is read in place, and kept for as long as `one` is
    /// assert_eq!((one.key().as_str(), *one.value()), ("one", 1));
    /// assert!(map.get("two").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let is_key = same_as(key);
        let (wanted, pin) = self.seek(key, &is_key);
        loop {
            let found = self.store.living(&pin, wanted)?;
            if self.is_used(&found) {
                // SAFETY: found after the pin.
                return Some(unsafe { Ref::new(&found, pin) });
            }
        }
    }

    /// Notes that an entry has been used, if that matters. False if it has ended meanwhile.
    #[inline(always)]
    fn is_used(&self, found: &Found<'_, K, V>) -> bool {
        let policy = self.store.policy(found);
        policy.map_or(true, |policy| self.store.used(found, policy))
    }

    /// As [`get`](Self::get), without using it.
    ///
    /// ```
    /// use expiry::{ExpiringMap, ManualClock};
    /// use std::time::Duration;
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let map = ExpiringMap::builder().time_to_idle(10 * second).clock(clock.clone()).build_manual()?;
    /// map.insert(1, "one")?;
    /// clock.advance(8 * second);
    /// assert!(map.peek(&1).is_some());
    /// clock.advance(8 * second); // that was no use of it
    /// assert!(map.peek(&1).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn peek<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let is_key = same_as(key);
        let (wanted, pin) = self.seek(key, &is_key);
        let found = self.store.living(&pin, wanted)?;
        // SAFETY: found after the pin.
        Some(unsafe { Ref::new(&found, pin) })
    }

    /// A clone of a key's value. As [`get`](Self::get).
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// assert_eq!(map.get_cloned("one"), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn get_cloned<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.get(key).map(|entry| entry.value().clone())
    }

    /// Whether the key has an entry whose time is not up. Does not use it.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// assert!(map.contains_key("one"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.peek(key).is_some()
    }

    /// How long until a key's entry expires, if nobody uses it; [`Duration::MAX`] if it never does. Does not use it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// map.insert_with("key", 1, Duration::from_secs(60))?;
    /// assert!(map.remaining("key") > Some(Duration::from_secs(50)));
    /// assert_eq!(map.remaining("other"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remaining<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let is_key = same_as(key);
        let (wanted, pin) = self.seek(key, &is_key);
        let found = self.store.living(&pin, wanted)?;
        let engine = &self.store.engine;
        let deadline = found.lease.deadline_near(engine.about_now());
        Some(if deadline == NEVER {
            Duration::MAX
        } else {
            engine.ticks.until(engine.now_for_deadline().0, deadline)
        })
    }

    /// Renews a key's entry: it lives for the map's time to live from now, and has been used. False if there is none, or its
    /// time was up; if true, it does not expire by its old deadline any more. One compare-and-swap.
    ///
    /// ```
    /// use expiry::{ExpiringMap, ManualClock};
    /// use std::time::Duration;
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let map = ExpiringMap::builder().time_to_live(10 * second).clock(clock.clone()).build_manual()?;
    /// map.insert(1, "one")?;
    /// clock.advance(8 * second);
    /// assert!(map.touch(&1));
    /// clock.advance(8 * second);
    /// assert!(map.contains_key(&1)); // its time has begun anew
    /// assert!(!map.touch(&2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn touch<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        // The default has been checked when the map was built.
        self.touch_with(key, Timeout::Default).unwrap_or(false)
    }

    /// As [`touch`](Self::touch), with a time to live of its own. Its time to idle stays what it is, and begins anew.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let map = expiry::ExpiringMap::builder().time_to_live(Duration::from_secs(60)).build()?;
    /// map.insert("key", 1)?;
    /// assert!(map.touch("key")); // 60 s from now
    /// assert!(map.touch_with("key", Duration::from_secs(5))?);
    /// assert!(!map.touch("other"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`].
    #[inline]
    pub fn touch_with<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        time: impl Into<Timeout>,
    ) -> Result<bool, StoreError>
    where
        K: Borrow<Q>,
    {
        let is_key = same_as(key);
        let (wanted, pin) = self.seek(key, &is_key);
        self.store.touch_living(&pin, wanted, time.into())
    }

    /// Inserts a value, or replaces the one that the key has. Returns the one replaced.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// assert!(map.insert("one".to_string(), 1)?.is_none());
    /// let before = map.insert("one".to_string(), 2)?.unwrap();
    /// assert_eq!(*before.value(), 1); // the one whose place it took
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InsertError`] gives key and value back: the map is full, closed, or out of memory.
    pub fn insert(&self, key: K, value: V) -> Result<Option<Ended<'_, K, V>>, InsertError<K, V>> {
        self.insert_with(key, value, Lifetime::new())
    }

    /// As [`insert`](Self::insert), with a lifetime of its own.
    ///
    /// ```
    /// # use expiry::{Lifetime, Timeout};
    /// # use std::time::Duration;
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// map.insert_with("five seconds", 1, Duration::from_secs(5))?;
    /// map.insert_with("for ever", 2, Timeout::Never)?;
    /// map.insert_with("while it is used", 3, Lifetime::new().idle(Duration::from_secs(5)))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), and [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`].
    pub fn insert_with(
        &self,
        key: K,
        value: V,
        lifetime: impl Into<Lifetime>,
    ) -> Result<Option<Ended<'_, K, V>>, InsertError<K, V>> {
        let settled = self.put(key, value, lifetime.into(), true)?;
        let replaced = settled.replaced;
        drop(settled.pin);
        Ok(replaced.map(Notice::told))
    }

    /// Puts an entry in, or in the place of what lives there, if it `replaces`. What was in the way is told of while this thread is
    /// unpinned; of what was replaced the caller tells.
    #[inline]
    fn put(
        &self,
        key: K,
        value: V,
        lifetime: Lifetime,
        replaces: bool,
    ) -> Result<Settled<'_, K, V>, InsertError<K, V>> {
        let store = &*self.store;
        if let Err(error) = store.check(lifetime) {
            return Err(InsertError { key, value, error });
        }
        let hash = self.hash(&key);
        let mut fresh = Some((key, value));
        let mut attempts = 0;
        loop {
            let pin = store.engine.pin();
            match store.put(&pin, hash, &mut fresh, lifetime, replaces) {
                Ok(Put::Done {
                    new,
                    replaced,
                    closed,
                }) => {
                    if closed.is_some() {
                        store.tell_closed(&pin, closed);
                    }
                    return Ok(Settled {
                        entry: new,
                        pin,
                        replaced,
                        refused: None,
                    });
                }
                Ok(Put::Kept(found)) => {
                    if self.is_used(&found) {
                        return Ok(Settled {
                            entry: found,
                            pin,
                            replaced: None,
                            refused: fresh,
                        });
                    }
                }
                Ok(Put::MadeWay(notice)) => {
                    drop(pin);
                    notice.tell();
                }
                Err(error) => {
                    drop(pin);
                    if !store.makes_room(error, &mut attempts, store) {
                        return Err(InsertError::of(fresh, error));
                    }
                }
            }
        }
    }

    /// The entry of a key, to be looked at and then replaced, removed, or inserted. It has been used if there is one.
    ///
    /// It locks nothing: what is done with it says if the entry has changed in the meantime.
    ///
    /// ```
    /// use expiry::expiring_map::Entry;
    ///
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// assert_eq!(*map.entry("key").or_insert(1)?, 1);
    /// match map.entry("key") {
    ///     Entry::Occupied(entry) => {
    ///         let more = entry.get() + 1;
    ///         assert_eq!(*entry.insert(more)?, 2); // or says that it was overtaken
    ///     }
    ///     Entry::Vacant(_) => unreachable!("it is there"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        let is_key = |other: &K| *other == key;
        let (wanted, pin) = self.seek(&key, &is_key);
        loop {
            match self.store.living(&pin, wanted) {
                Some(found) if !self.is_used(&found) => {}
                // SAFETY: found after the pin.
                Some(found) => break unsafe { OccupiedEntry::new(self, key, found, pin) }.into(),
                None => break VacantEntry::new(self, key).into(),
            }
        }
    }

    /// Inserts the value that `value` makes of none, or replaces the one that the key has by what it makes of that; as one
    /// step. It may be called several times, if others change the entry meanwhile. Returns what is there then, whose lifetime is
    /// the map's and begins now, whatever the old value had left.
    ///
    /// ```
    /// # let hits = expiry::ExpiringMap::builder().build()?;
    /// for visitor in ["ada", "bob", "ada"] {
    ///     hits.upsert(visitor, |count| count.map_or(1, |count| count + 1))?;
    /// }
    /// assert_eq!(hits.get_cloned("ada"), Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn upsert(
        &self,
        key: K,
        value: impl FnMut(Option<&V>) -> V,
    ) -> Result<Ref<'_, K, V>, InsertError<K, V>> {
        self.upsert_for(key, Lifetime::new(), value)
    }

    /// As [`upsert`](Self::upsert), with a lifetime of its own, which begins now.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// for _ in 0..3 {
    ///     map.upsert_for("hits", Duration::from_secs(60), |hits| hits.map_or(1, |hits| hits + 1))?;
    /// }
    /// assert_eq!(map.get_cloned("hits"), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert_with`](Self::insert_with).
    pub fn upsert_for(
        &self,
        key: K,
        lifetime: impl Into<Lifetime>,
        mut value: impl FnMut(Option<&V>) -> V,
    ) -> Result<Ref<'_, K, V>, InsertError<K, V>> {
        let (mut key, lifetime) = (key, lifetime.into());
        loop {
            let changed = match self.entry(key) {
                Entry::Occupied(entry) => {
                    let new = value(Some(entry.get()));
                    entry.insert_with(new, lifetime)
                }
                Entry::Vacant(entry) => entry.insert_with(value(None), lifetime),
            };
            match changed {
                Err(refused) if refused.error == StoreError::Changed => key = refused.key,
                other => return other,
            }
        }
    }

    /// Ends the entry of a key. Returns it, unless its time was up. [`Ended::into_value`] gives the
    /// value itself.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// assert_eq!(map.remove("one").map(|ended| *ended.value()), Some(1));
    /// assert!(map.remove("one").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ended<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let is_key = same_as(key);
        loop {
            let (wanted, pin) = self.seek(key, &is_key);
            let notice = self.store.remove_living(&pin, wanted)?;
            drop(pin);
            if notice.cause == Cause::Removed {
                return Some(notice.told());
            }
            notice.tell();
        }
    }

    /// As [`remove`](Self::remove), if `condition` holds for it; of that very value. It may be called several times, if others
    /// replace it meanwhile.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// map.insert("key", 1)?;
    /// assert!(map.remove_if("key", |_, value| *value > 1).is_none());
    /// assert_eq!(map.remove_if("key", |_, value| *value == 1).as_deref(), Some(&1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_if<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> Option<Ended<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let is_key = same_as(key);
        let (wanted, pin) = self.seek(key, &is_key);
        let notice = loop {
            let found = self.store.living(&pin, wanted)?;
            // SAFETY: found after the pin.
            let (key, value) = unsafe { found.pair() };
            if !condition(key, value) {
                return None;
            }
            if let Some(notice) = self.store.remove_this(&pin, &found) {
                break notice;
            }
        };
        drop(pin);
        Some(notice.told())
    }

    /// Removes the entries for which `keep` is false, and only the very value that `keep` was asked
    /// about. It meets entries as [`iter`](Self::iter) does: one whose value is replaced meanwhile may
    /// be met twice or not at all.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// for n in 0..10 {
    ///     map.insert(n, n * n)?;
    /// }
    /// map.retain(|n, _| n % 2 == 0);
    /// let mut left: Vec<_> = map.iter().map(|entry| *entry.key()).collect();
    /// left.sort();
    /// assert_eq!(left, [0, 2, 4, 6, 8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut iter = self.iter();
        while let Some((found, entry)) = iter.advance() {
            if keep(entry.key(), entry.value()) {
                continue;
            }
            let notice = self.store.remove_this(&entry.pin, &found);
            drop(entry);
            if let Some(notice) = notice {
                notice.tell();
            }
        }
    }

    /// Removes all entries that are there all the while. One whose value is replaced meanwhile may
    /// stay.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// map.clear();
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    /// All entries, in no order. An entry that is there all the while is met exactly once. One whose
    /// value is replaced meanwhile may be met twice, with the old value and the new one, or not at all.
    /// Others may be met or not. This is no use of them. About 0.1 us each.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// for entry in map.iter() {
    ///     println!("{}: {}", entry.key(), entry.value());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter::new(self)
    }

    /// Ends what is due, with at most about `budget` steps of work, and calls the listener. Then drops
    /// values that have ended and that no thread can hold any more. True if there is more to do. Any
    /// number of threads may poll concurrently: a shard that another one drives is left to it. Does
    /// nothing in a listener that a poll has called.
    ///
    /// ```
    /// use expiry::{Cause, ExpiringMap, ManualClock};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let map = ExpiringMap::builder()
    ///     .time_to_live(Duration::from_secs(10))
    ///     .clock(clock.clone())
    ///     .on_end(|key: &u64, _: &u64, cause| assert_eq!((*key, cause), (1, Cause::Expired)))
    ///     .build_manual()?;
    /// map.insert(1, 1)?;
    /// clock.advance(Duration::from_secs(11));
    /// while map.poll(1000) {} // in a loop of yours; the listener is called in here
    /// assert_eq!(map.metrics().total.expired, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll(&self, budget: usize) -> bool {
        let store = &*self.store;
        let more = store.engine.poll_shared(budget, store, || false);
        if self.reaper.is_none() && store.engine.is_refusing() {
            // A listener of this round may have asked for it.
            store.shut(None);
        }
        more
    }

    /// Entries now, those included whose time is up but which nobody has come to yet. O(threads x shards).
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// assert_eq!(map.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (clock, second) = (expiry::ManualClock::new(), Duration::from_secs(1));
    /// # let map = expiry::ExpiringMap::builder().time_to_live(10 * second).clock(clock.clone()).build_manual()?;
    /// assert!(map.is_empty());
    /// map.insert("one", 1)?;
    /// clock.advance(11 * second);
    /// assert!(!map.contains_key("one") && !map.is_empty()); // over, but nobody has come to it
    /// while map.poll(1000) {}
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it has been doing. O(threads x shards).
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// map.remove("one");
    /// let total = map.metrics().total;
    /// assert_eq!((total.inserted, total.removed, total.live), (1, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> StoreMetrics {
        self.store.metrics()
    }

    /// Drops, on this thread, the keys and values of all entries that had ended before this call. Waits
    /// until it may, for at most `limit`. Returns whether all have been dropped.
    ///
    /// It may not as long as a thread holds a [`Ref`], an [`OccupiedEntry`] or an item of an iterator
    /// (this thread, too), or is in the middle of a call. An entry that a caller holds as [`Ended`] is
    /// not waited for: it ends up here when that is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let map = expiry::ExpiringMap::builder().build()?;
    /// let value = Arc::new(1);
    /// map.insert("key", value.clone())?;
    /// map.remove("key");
    /// assert!(map.flush(Duration::from_secs(10)));
    /// assert_eq!(Arc::strong_count(&value), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush(&self, limit: Duration) -> bool {
        self.store.flush(limit)
    }

    /// Waits for room, where the [capacity](ExpiringMapBuilder::capacity) is bounded: see [`Room`](crate::Room), which has an
    /// example. What is due makes room when somebody polls, or the reaper comes to it.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{ExpiringMap, StoreError};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let map = ExpiringMap::builder().capacity(1).build()?;
    /// map.insert(1, "one")?;
    /// let room = map.room();
    /// map.remove(&1); // by another task, usually
    /// room.await?;
    /// assert!(map.insert(2, "two")?.is_none());
    /// assert_eq!(map.insert(3, "three").unwrap_err().error, StoreError::Full); // wait again
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn room(&self) -> crate::Room<'_> {
        crate::Room::new(self.store.engine.door())
    }

    /// Ends all entries, tells the listener ([`Cause::Closed`](crate::Cause::Closed)), and stops the reaper. From here on insertions are
    /// refused with [`StoreError::Closed`], and nothing is found. Dropping the map does the same.
    ///
    /// Waits for a round of the reaper that is under way, unless a listener in such a round calls it: then the reaper, or whoever
    /// polls, does the rest when that round is over.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// use expiry::StoreError;
    ///
    /// map.insert("one".to_string(), 1)?; // ends now, and is told as `Closed` to a listener
    /// map.shutdown();
    /// assert!(map.is_empty());
    /// assert_eq!(map.insert("two".to_string(), 2).unwrap_err().error, StoreError::Closed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) {
        self.store.shut(self.reaper.as_ref());
    }

    /// As [`shutdown`](Self::shutdown), without blocking the thread: insertions are refused when this returns, the reaper ends the entries and
    /// tells the listener, and the future ends when that is done. The shutdown goes on if it is dropped. A map without a reaper has been shut down
    /// when this returns.
    ///
    /// ```
    /// use expiry::{Cause, ExpiringMap, StoreError};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let map = ExpiringMap::builder()
    ///     .on_end(|_: &u64, _: &&str, cause| assert_eq!(cause, Cause::Closed))
    ///     .build()?;
    /// map.insert(1, "one")?;
    /// let closed = map.shutdown_async();
    /// assert_eq!(map.insert(2, "two").unwrap_err().error, StoreError::Closed); // from here on
    /// closed.await;
    /// assert_eq!((map.len(), map.metrics().total.closed), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn shutdown_async(&self) -> impl std::future::Future<Output = ()> + Send + '_ {
        let close = || self.store.close();
        crate::setup::shut_soon(&self.store.engine, self.reaper.as_ref(), close)
    }
}

/// Whether a key is this one.
#[inline(always)]
fn same_as<Q: Eq + ?Sized, K: Borrow<Q>>(key: &Q) -> impl Fn(&K) -> bool + '_ {
    move |other| other.borrow() == key
}

impl<'a, K, V, S> IntoIterator for &'a ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = Ref<'a, K, V>;
    type IntoIter = Iter<'a, K, V, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: 'static, V: 'static, S> fmt::Debug for ExpiringMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMap")
            .field("len", &self.store.len())
            .field("interval", &self.store.engine.ticks.interval())
            .field("reaper", &self.reaper.is_some())
            .finish_non_exhaustive()
    }
}

impl<K: 'static, V: 'static, S> Drop for ExpiringMap<K, V, S> {
    fn drop(&mut self) {
        self.store.shut(self.reaper.as_ref());
    }
}
