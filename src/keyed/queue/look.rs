//! Looking at keys, which changes nothing.

use super::{ExpiryQueue, Handle};
use crate::keyed::StoreMetrics;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// When the key expires, and a handle of it; `None` if it is not there. Changes nothing.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(Duration, Handle)>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let wanted = self.wanted(key);
        let pin = store.engine.pin();
        let found = store.find(&pin, wanted)?;
        Some((self.expiry(found.lease), Handle(found.place())))
    }

    /// Whether the key is there, even if its time is up.
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// How long until the key expires unless renewed: zero if its time is up; `None` if not there.
    #[doc(alias = "ttl")]
    pub fn remaining<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let (store, wanted) = (self.store(), self.wanted(key));
        let pin = store.engine.pin();
        let found = store.find(&pin, wanted)?;
        let deadlines = &store.engine.deadlines;
        Some(deadlines.left(found.lease, deadlines.now()))
    }

    /// When the key expires, unless it is renewed, by the system's monotonic clock. With the
    /// default clock the answer stays the same until a renewal.
    pub fn expires_at<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
    {
        let (store, wanted) = (self.store(), self.wanted(key));
        let pin = store.engine.pin();
        let found = store.find(&pin, wanted)?;
        store.engine.deadlines.instant(found.lease)
    }

    /// The `n` keys that expire next, soonest first, and how long each has left. Walks all keys, as
    /// [`dump`](Self::dump) does.
    #[must_use]
    pub fn soonest(&self, n: usize) -> Vec<(K, Duration)>
    where
        K: Clone,
    {
        self.store().first(n, false, |deadline| deadline)
    }

    /// The `n` keys that expire last, the latest first; otherwise as [`soonest`](Self::soonest).
    #[must_use]
    pub fn latest(&self, n: usize) -> Vec<(K, Duration)>
    where
        K: Clone,
    {
        self.store().first(n, false, |deadline| !deadline)
    }

    /// Drops, on this thread, the keys that had ended before this call. As
    /// [`ExpiringMap::flush`](crate::ExpiringMap::flush).
    pub fn flush(&self, limit: Duration) -> bool {
        self.store().flush(limit)
    }

    /// Which keys expire when: expiry time to keys. A key that is there all the while is met
    /// exactly once, any other at most once; no snapshot. O(capacity).
    #[must_use]
    pub fn dump(&self) -> BTreeMap<Duration, Vec<K>>
    where
        K: Clone,
    {
        let mut dump = BTreeMap::<_, Vec<K>>::new();
        self.store().each(|_pin, found| {
            let (key, ()) = found.pair();
            dump.entry(self.expiry(found.lease)).or_default().push(key.clone());
        });
        dump
    }

    /// What it has been doing. O(threads x shards).
    #[must_use]
    pub fn metrics(&self) -> StoreMetrics {
        self.shared.metrics()
    }

    /// Number of keys now, with those that are due and not ended yet. O(threads x shards).
    #[must_use]
    pub fn len(&self) -> usize {
        self.store().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
