//! The loader's part of a load: it reserves room, inserts the value, or fails.

use super::{Held, LoadError, Value};
use crate::core::engine::Room;
use crate::keyed::living::Replaces;
use crate::keyed::store::{Found, Place, RemovalCause, Store};
use crate::keyed::{InsertError, Lifetimes, StoreError};
use crate::sync::flights::{Loading, Outcome};
use crate::ExpiringMap;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// Says that the caller loads a key's value. Other callers that want the key wait until it is
/// [inserted](Self::insert), or this is dropped; then one of them loads it.
///
/// ```
/// use expiry::expiring_map::Loaded;
///
/// let map = expiry::ExpiringMap::builder().build()?;
/// match map.get_or_guard(&"key")? {
///     Loaded::Found(value) => assert_eq!(*value, 1),
///     Loaded::Absent(guard) => drop(guard.insert(1)?), // after as long as it takes
/// }
/// assert_eq!(map.get("key").as_deref(), Some(&1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "if it is dropped, another caller loads"]
pub struct LoadGuard<'a, K: 'static, V: 'static, S> {
    map: &'a ExpiringMap<K, V, S>,
    count: Count<'a, K, V>,
    /// Where the entry lies that is loaded anew.
    stale: Option<Place>,
    /// What [`reserve`](Self::reserve) keeps.
    room: Room<'a>,
    pub(super) loading: Loading<'a, K, V>,
}

/// Counts a load when it is over.
struct Count<'a, K: 'static, V: 'static> {
    store: &'a Store<K, V>,
    has_value: bool,
}

impl<K: 'static, V: 'static> Drop for Count<'_, K, V> {
    fn drop(&mut self) {
        self.store.note_lookup(&self.store.engine.pin(), |lookups| match self.has_value {
            true => &lookups.loads,
            false => &lookups.failed_loads,
        });
    }
}

impl<'a, K: Hash + Eq + Clone, V: Clone, S: BuildHasher + 'static> LoadGuard<'a, K, V, S> {
    /// The guard of a load that may replace the `stale` entry.
    pub(super) fn new(
        map: &'a ExpiringMap<K, V, S>,
        stale: Option<Place>,
        loading: Loading<'a, K, V>,
    ) -> Self {
        let count = Count { store: &map.store, has_value: false };
        LoadGuard { map, count, stale, room: map.store.engine.admission.room(), loading }
    }

    /// The key.
    pub fn key(&self) -> &K {
        self.loading.key()
    }

    /// Makes room in the map for a value of this weight before the value is in memory: ends what is
    /// due, and evicts. What is reserved counts as in use until the value is inserted, or this is
    /// dropped; no other insertion takes it. A second call makes it more, not less. Any value
    /// weighs 1 where the map has no weigher. A map without a bound has room for all.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooHeavy`], [`StoreError::Full`] where nothing can be evicted, and
    /// [`StoreError::Closed`].
    pub fn reserve(&mut self, weight: u32) -> Result<(), StoreError> {
        let store = &*self.map.store;
        store.reserve(&mut self.room, u64::from(weight).max(1), store)
    }

    /// Inserts the value, with the map's lifetime, and gives it to the waiting callers too. This
    /// clones it once.
    ///
    /// The map does not keep it if a call that came after the load began has given the key another
    /// value, or has [removed](ExpiringMap::remove) the key, or [cleared](ExpiringMap::clear) the
    /// map or shut it down. If that call comes in the midst of this one, the listener may hear of
    /// the value as [`Removed`](crate::RemovalCause::Removed), which no look-up has found.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMap::insert`].
    pub fn insert(self, value: V) -> Result<Value<'a, K, V>, InsertError<K, V>> {
        self.insert_for(value, Lifetimes::new())
    }

    /// Inserts a loaded value that has a lifetime of its own; otherwise as
    /// [`insert`](Self::insert). A lifetime that is zero or too long is refused with
    /// [`StoreError::Lifetime`].
    pub fn insert_for(
        self,
        value: V,
        lifetime: impl Into<Lifetimes>,
    ) -> Result<Value<'a, K, V>, InsertError<K, V>> {
        let LoadGuard { map, mut count, stale, room, loading } = self;
        let mut held = |flight| {
            count.has_value = true;
            Ok(Value(Held::Loaded(flight)))
        };
        if loading.is_invalidated() {
            return held(loading.end(Outcome::Loaded(value)));
        }
        let shared = Outcome::Loaded(value.clone());
        let (key, asks) = (loading.key().clone(), map.store.expiry.is_some());
        let offer = map.store.offer(map.hash(&key), key, Some(value)).with_room(room);
        let settled = match map.put_by(offer, (lifetime.into(), asks), Replaces::Load(stale)) {
            Ok(settled) => settled,
            // A shutdown is a removal like any other.
            Err(InsertError { error: StoreError::Closed, .. }) => return held(loading.end(shared)),
            Err(refused) => {
                drop(loading.end(shared));
                return Err(refused);
            }
        };
        // Since the question above a removal may have come, and found nothing; or another
        // insertion, whose entry has ended. Then this call takes its own entry back.
        let (store, cause) = (&*map.store, RemovalCause::Removed);
        let own = store.at(&settled.pin, settled.place).filter(|_| settled.refused.is_none());
        // Even if its time is up by now.
        let lost = own.and_then(|own| match loading.keeps(|| store.show(&own)) {
            true => None,
            false => store.end_anyway(&settled.pin, own, cause),
        });
        drop(settled.into_replaced());
        if let Some(lost) = lost {
            store.tell(lost, cause);
        }
        held(loading.end(shared))
    }

    /// Ends the load without a value. Waiting callers get the error, and so does this one, unless
    /// a reload has left the key with a value.
    pub(super) fn fail<Q, E>(self, key: &Q, error: E) -> Result<Value<'a, K, V>, LoadError<K, V, E>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        E: Send + Sync + 'static,
    {
        let LoadGuard { map, count, stale, room, loading } = self;
        let error = Arc::new(error);
        // Before the error is on its way out: the `Drop` of a key may panic.
        drop((loading.end(Outcome::Failed(error.clone())), count, room));
        let is_stale = |found: &Found<'_, K, V>| map.store.stale(found).is_some();
        match stale.and_then(|_| map.peek_and(key, is_stale)) {
            Some((entry, true)) => Ok(Value(Held::Kept(entry, error))),
            // Another call has given the key a new value.
            Some((entry, false)) => {
                drop(error); // before the reference is on its way out
                Ok(Value(Held::Lent(entry)))
            }
            None => Err(LoadError::Failed(error)),
        }
    }
}

impl<K: fmt::Debug, V, S> fmt::Debug for LoadGuard<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadGuard").field(self.loading.key()).finish()
    }
}
