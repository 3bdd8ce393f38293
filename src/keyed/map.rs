//! A concurrent map whose entries expire.

use super::node::{Ended, Node};
use super::store::{Cause, Entered, Listener, Store};
use super::InsertError;
#[cfg(doc)]
use super::StoreError;
use crate::core::lease::State;
use crate::error::BuildError;
use crate::setup::{Reaper, Setup};
use crate::sync::grace::Pin;
use crate::time::{Clock, Timeout};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Settings of an [`ExpiringMap`].
///
/// | setting | default |
/// |---|---|
/// | [`time_to_live`](Self::time_to_live) | for ever |
/// | [`interval`](Self::interval) | a 300th of the time to live, between 1 ms and 1 s; 100 ms without one |
/// | [`shards`](Self::shards) | the number of cores, as a power of two, at most 16 |
/// | [`capacity`](Self::capacity) | unbounded |
/// | [`clock`](Self::clock) | [`CoarseClock`](crate::CoarseClock) |
/// | [`hasher`](Self::hasher) | foldhash, seeded at random |
/// | [`reaper_budget`](Self::reaper_budget) | 4096 |
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct ExpiringMapBuilder<K, V, S = foldhash::fast::RandomState> {
    setup: Setup,
    time_to_live: Option<Duration>,
    listener: Option<Listener<K, V>>,
    hasher: S,
}

impl<K, V, S> fmt::Debug for ExpiringMapBuilder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMapBuilder")
            .field("time_to_live", &self.time_to_live)
            .field("interval", &self.setup.interval)
            .finish_non_exhaustive()
    }
}

impl<K, V> Default for ExpiringMapBuilder<K, V> {
    fn default() -> Self {
        ExpiringMapBuilder {
            setup: Setup::default(),
            time_to_live: None,
            listener: None,
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl<K, V, S> ExpiringMapBuilder<K, V, S> {
    /// How long an entry lives after it was inserted, replaced or touched, unless it says otherwise itself.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// The granularity of time: deadlines are rounded up to it. At least 10 microseconds.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.setup.interval = Some(interval);
        self
    }

    /// Into how many shards entries are spread: a power of two up to 256.
    pub fn shards(mut self, shards: usize) -> Self {
        self.setup.shards = Some(shards);
        self
    }

    /// The most entries there may be at once; beyond it new keys are refused with [`StoreError::Full`]. Exact.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.setup.capacity = Some(capacity);
        self
    }

    /// The clock to go by. One that does not run with real time is for [`build_manual`](Self::build_manual).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.setup.clock = Some(Arc::new(clock));
        self
    }

    /// How much the reaper does before it looks round again: expired entries, buckets, cascades.
    pub fn reaper_budget(mut self, budget: usize) -> Self {
        self.setup.budget = budget;
        self
    }

    /// Makes the index's hashing reproducible. Not for production.
    pub fn seed(mut self, seed: u64) -> Self {
        self.setup.seed = Some(seed);
        self
    }

    /// Who is told of every end of a value, and why: by the thread that ended it, when it has.
    pub fn on_end(mut self, listener: impl Fn(&K, &V, Cause) + Send + Sync + 'static) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Another hasher. Where keys come from strangers it must be seeded at random.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> ExpiringMapBuilder<K, V, T> {
        ExpiringMapBuilder {
            setup: self.setup,
            time_to_live: self.time_to_live,
            listener: self.listener,
            hasher,
        }
    }
}

impl<K, V, S> ExpiringMapBuilder<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds the map and starts its reaper thread.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says which setting is out of range, or what the system refused.
    pub fn build(self) -> Result<ExpiringMap<K, V, S>, BuildError> {
        let budget = self.setup.budget;
        let mut map = self.build_manual()?;
        map.reaper = Some(map.store.start(budget)?);
        Ok(map)
    }

    /// Builds the map without a thread: nothing is told as expired but in [`ExpiringMap::poll`], though what is over is
    /// not found any more.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_manual(self) -> Result<ExpiringMap<K, V, S>, BuildError> {
        let store = Store::build(&self.setup, self.hasher, self.time_to_live, self.listener)?;
        Ok(ExpiringMap {
            store: Arc::new(store),
            reaper: None,
        })
    }
}

/// A concurrent map whose entries expire.
pub struct ExpiringMap<K: 'static, V: 'static, S = foldhash::fast::RandomState> {
    store: Arc<Store<K, V, S>>,
    reaper: Option<Reaper>,
}

/// An entry's key and value, lent for as long as this lives: it holds off the reclamation of memory meanwhile, so do not keep it.
pub struct Ref<'a, K: 'static, V: 'static> {
    node: &'a Node<K, V>,
    _pin: Option<Pin>,
}

impl<K, V> Ref<'_, K, V> {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &K {
        self.node.key()
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &V {
        self.node.value()
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.node.value()
    }
}

impl<K, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.value().fmt(f)
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + Sync + 'static> ExpiringMap<K, V> {
    /// Settings with defaults.
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
    /// The entry of a key, unless its time is up. Lock-free; one clock reading.
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let store = &*self.store;
        let same = |other: &K| other.borrow() == key;
        let wanted = store.wanted(store.hasher.hash_one(key), &same);
        let pin = store.pin(wanted.at.0);
        loop {
            let found = store.find(wanted)?;
            if found.lease.state() == State::Replacing {
                store.settle(found.slot, found.id, found.lease);
                continue;
            }
            if store.is_over(found.lease, store.engine.now_for_deadline().0) {
                return None;
            }
            // SAFETY: published when it was found, after the pin, which the answer keeps.
            let node = unsafe { Node::at(found.word) };
            return Some(Ref { node, _pin: pin });
        }
    }

    /// Inserts a value, or replaces the one that the key has. Returns the one replaced.
    ///
    /// # Errors
    ///
    /// [`InsertError`] gives key and value back: the map is full, closed, or out of memory.
    pub fn insert(&self, key: K, value: V) -> Result<Option<Ended<K, V>>, InsertError<K, V>> {
        self.insert_with(key, value, Timeout::Default)
    }

    /// As [`insert`](Self::insert), with a time to live of its own.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), and [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`].
    pub fn insert_with(
        &self,
        key: K,
        value: V,
        time: Timeout,
    ) -> Result<Option<Ended<K, V>>, InsertError<K, V>> {
        let store = &*self.store;
        let deadline = match store.deadline(time) {
            Ok(deadline) => deadline,
            Err(error) => return Err(InsertError { key, value, error }),
        };
        let bits = store.hasher.hash_one(&key);
        let at = store.engine.hash(bits);
        let pin = store.engine.index(at.0).pin();
        let fresh = Node::fresh(key, value, &pin);
        let same = |other: &K| fresh.key() == other;
        let wanted = Store::<K, V, S>::wanted_at(at, bits, &same);
        loop {
            let found = match store.find(wanted) {
                Some(found) => found,
                None => match store.enter(wanted, fresh.word(), deadline) {
                    Ok(Entered::Done(_)) => {
                        fresh.settle_in();
                        return Ok(None);
                    }
                    Ok(Entered::Found(found)) => found,
                    Err(error) => {
                        let (key, value) = fresh.give_back();
                        return Err(InsertError { key, value, error });
                    }
                },
            };
            if found.lease.state() == State::Replacing {
                store.settle(found.slot, found.id, found.lease);
            } else if store.is_over(found.lease, store.engine.now_for_deadline().0) {
                store.expire(&found);
            } else if let Some(old) = store.replace(&found, fresh.word(), deadline) {
                fresh.settle_in();
                store.tell(&old, Cause::Replaced);
                return Ok(Some(old));
            }
        }
    }

    /// Ends the entry of a key. Returns it, unless its time was up.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ended<K, V>>
    where
        K: Borrow<Q>,
    {
        let store = &*self.store;
        let same = |other: &K| other.borrow() == key;
        let bits = store.hasher.hash_one(key);
        let now = store.engine.now_for_deadline().0;
        store.remove(bits, same, Some(now)).map(|(ended, _)| ended)
    }

    /// Ends what is due, with at most about `budget` steps of work, and tells the listener.
    pub fn poll(&self, budget: usize) -> bool {
        let engine = &self.store.engine;
        let round = engine.poll_beside(engine.clock.now(), budget.max(1), &*self.store);
        round.more || round.busy
    }

    /// Entries now, those included whose time is up but which nobody has come to yet. O(threads x shards).
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: 'static, V: 'static, S> Drop for ExpiringMap<K, V, S> {
    fn drop(&mut self) {
        self.store.shut(self.reaper.as_ref());
    }
}
