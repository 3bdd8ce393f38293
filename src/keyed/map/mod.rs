//! A concurrent map whose entries expire.

mod bound;
mod builder;
mod compute;
mod drive;
mod entry;
mod iter;
mod lent;
mod load;
mod look;
mod many;
mod put;
mod remove;
mod save;

pub use builder::ExpiringMapBuilder;
pub use compute::{Compute, Computed};
pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use iter::Iter;
pub use lent::{Current, Ref};
pub use load::{LoadError, LoadGuard, Loaded, Value};
pub use many::Guard;
pub use save::{Save, Saved};

use super::store::{Store, Wanted};
use crate::core::engine::Pin;
use crate::error::BuildError;
use crate::hash::RandomState;
use crate::kit::handle::handle;
use crate::kit::lifecycle::Owner;
use crate::sync::flights::Flights;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

/// A concurrent map whose entries expire: each after its time to live, or its time to idle, or the
/// nearer of the two.
///
/// Put values in, look them up, and learn when each has ended:
///
/// ```
/// use expiry::{RemovalCause, ExpiringMap};
/// use std::time::Duration;
///
/// let sessions = ExpiringMap::builder()
///     .time_to_live(Duration::from_secs(3600))
///     .time_to_idle(Duration::from_secs(300))
///     .removal_listener(|user: &String, token: &u64, cause: RemovalCause| println!("{user} {token}: {cause:?}"))
///     .build()?; // starts the reaper thread
/// sessions.insert("ada".to_string(), 4711)?;
/// assert_eq!(sessions.get("ada").as_deref(), Some(&4711)); // lent: no clone
/// assert!(sessions.touch("ada")); // renewed
/// let token = sessions.get_or_insert_with("bob", || 4712)?; // one of many callers makes it
/// assert_eq!(*token, 4712);
/// assert_eq!(sessions.remove("ada").as_deref(), Some(&4711));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A handle is cheap to clone, and all handles are of one map. As a cache, the map evicts:
/// [`max_capacity`](ExpiringMapBuilder::max_capacity),
/// [`max_weight`](ExpiringMapBuilder::max_weight).
///
/// # Cost
///
/// | call | cost |
/// |---|---|
/// | [`get`](Self::get), [`peek`](Self::peek), [`remaining`](Self::remaining) | writes nothing shared; with a time to idle `get` swaps one word in every interval, with `max_capacity` the first after a sweep |
/// | [`touch`](Self::touch) | swaps one word, and moves nothing |
/// | [`insert`](Self::insert), [`upsert`](Self::upsert), [`remove`](Self::remove) | lock-free; key and value are boxed above 64 bytes together |
/// | [`get_or_insert_with`](Self::get_or_insert_with) | **waits** while another caller loads the key |
/// | [`shutdown`](Self::shutdown), [`flush`](Self::flush), dropping the map | **wait** |
/// | memory of an entry | a slot of 8 bytes, key and value; 5 bytes beside it; 16 to 29 in the index; a time to idle 24 |
///
/// Under [`WhenFull::Wait`](crate::WhenFull::Wait) a call that ends an entry may wait for room in
/// the channel. All else is lock-free.
///
/// # Time
///
/// Look-ups never return an expired entry, even if the reaper has not removed it yet. An entry
/// expires when its time is up by the map's clock, rounded up to the interval: never early, and
/// late by at most one interval and the [lag](crate::Clock::lag) of a cheap clock (1 ms). Without
/// an interval it is late by at most a 256th of its lifetime, but a millisecond to a second. The
/// listener is called when a reaper thread, or a caller of [`poll`](Self::poll), ends the entry.
///
/// # One end
///
/// Every value that goes in ends once. It is replaced, removed, evicted, or expires, or it ends
/// when the map is shut down. The replacing or removing call returns it, and the map calls the
/// listener with it and the cause, exactly once, whatever calls meet.
///
/// # Pins
///
/// A [`Ref`], an [`OccupiedEntry`] and each item of an iterator *pin* the map, as every call does
/// while it runs: the map drops nothing that they may look at. Keep none for long. A key's `Eq`
/// runs pinned, and so do the closures of [`retain`](Self::retain), [`remove_if`](Self::remove_if),
/// [`upsert`](Self::upsert) and [`compute`](Self::compute), and an [`Expiry`](crate::Expiry). The
/// listener runs unpinned.
///
/// # When values are dropped
///
/// The map drops key and value when no thread can hold them: within two intervals of the end, or
/// 32 ms if that is longer. A thread that holds a reference for longer, or is in the midst of a
/// call, delays that until 0.2 s, or two intervals, after it lets go.
///
/// | thread | what it drops |
/// |---|---|
/// | the reaper; without one the caller of [`poll`](Self::poll) | all that may be dropped |
/// | the caller of [`flush`](Self::flush) or [`shutdown`](Self::shutdown), and the thread that drops the last handle to the map | the same |
/// | an insertion that finds the map full, a call after the clock has jumped by years | the same, rarely |
/// | the caller of [`Removed::try_into_value`](crate::Removed::try_into_value) | that key |
/// | a thread without a [`Ref`] that drops a [`Removed`](crate::Removed), after a shutdown of a map with a [channel](ExpiringMapBuilder::build_with_channel) | all that may be dropped |
/// | a call that has ended an entry, where too many wait | twice as many as it ends |
///
/// Too many wait where they are more than 4,096, and more than an eighth of the live ones. In a
/// bounded map they also are too many where they weigh more than a quarter of the bound, and than
/// 16; an entry weighs 1, unless the map weighs. So live and ended values take at most five
/// quarters of the bound, and a 64th for each thread, unless a thread holds a reference. A call
/// drops them at its end, but not while its thread holds a [`Ref`] or an item of an iterator, or is
/// inside a listener. So slow drops slow down the threads that cause them.
///
/// `Drop` runs unpinned, and while the map holds nothing that other threads wait for. It may call
/// the map, or panic: a panic is caught and counted (`drop_panics` in the
/// [metrics](crate::StoreMetrics)). It may take a lock, but none that a thread holds while it ends
/// entries: that thread may be the one that drops. A slow `Drop` delays this map's reaper, and so
/// the listener, and no other map.
///
/// What pins the map delays the drops of this map only. `unreclaimed` in the metrics counts the
/// entries that wait. Insertions go on meanwhile, and what they end waits too, also in a bounded
/// map.
#[doc(alias = "cache")]
pub struct ExpiringMap<K: 'static, V: 'static, S = RandomState> {
    store: Arc<Store<K, V>>,
    hasher: S,
    owner: Arc<Owner<Store<K, V>>>,
    /// The keys whose values threads and tasks are loading.
    flights: Arc<Flights<K, V>>,
}

handle!(ExpiringMap<K, V; S> { store, hasher, owner, flights } by store, room);

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + Sync + 'static> ExpiringMap<K, V> {
    /// A map whose entries live for `time_to_live`, with a reaper and without a listener.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMapBuilder::build`].
    pub fn new(time_to_live: Duration) -> Result<Self, BuildError> {
        Self::builder().time_to_live(time_to_live).build()
    }

    /// Settings with defaults.
    pub fn builder() -> ExpiringMapBuilder<K, V> {
        ExpiringMapBuilder::default()
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    #[cfg(expiry_loom)]
    pub(in crate::keyed) fn store(&self) -> &Store<K, V> {
        &self.store
    }

    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
    {
        self.store.engine.keys.hash_by(&self.hasher, key)
    }

    #[inline(always)]
    fn seek<'m, 'q, Q: Hash + Eq + ?Sized>(&'m self, key: &'q Q) -> (Wanted<'m, 'q, Q>, Pin)
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let wanted = self.wanted(hash, key);
        // After the start of the fetch: the pin fills the time.
        (wanted, self.store.engine.pin())
    }

    #[inline(always)]
    fn wanted<'m, 'q, Q: Eq + ?Sized>(&'m self, hash: u32, key: &'q Q) -> Wanted<'m, 'q, Q> {
        Wanted::new(&self.store.engine.keys, hash, key)
    }
}

impl<'a, K: Hash + Eq, V, S: BuildHasher + 'static> IntoIterator for &'a ExpiringMap<K, V, S> {
    type Item = Ref<'a, K, V>;
    type IntoIter = Iter<'a, K, V, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/keyed_map.rs"]
mod tests;
