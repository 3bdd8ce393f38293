//! Looking at keys, which changes nothing.

use super::{ExpiryQueue, Handle};
use crate::keyed::store::Wanted;
use crate::keyed::StoreMetrics;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::Duration;

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// When the key expires, and a handle of it; `None` if it is not there. Changes nothing.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(Duration, Handle)>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let wanted = Wanted::new(self.hash(key), key);
        let found = store.find(&store.engine.pin(), wanted)?;
        Some((self.expiry(found.lease), Handle(found.place())))
    }

    /// Whether the key is there, even if its time is up.
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Which keys expire when: expiry time to keys. A key that is there all the while is met exactly
    /// once, any other at most once; no snapshot. O(capacity).
    #[must_use]
    pub fn dump(&self) -> BTreeMap<Duration, Vec<K>>
    where
        K: Clone,
    {
        let mut dump = BTreeMap::<_, Vec<K>>::new();
        self.store().each(|_pin, found| {
            // SAFETY: found after the pin.
            let (key, ()) = unsafe { found.pair() };
            dump.entry(self.expiry(found.lease)).or_default().push(key.clone());
        });
        dump
    }

    /// What it has been doing. O(threads x shards).
    #[must_use]
    pub fn metrics(&self) -> StoreMetrics {
        let mut metrics = self.store().metrics();
        (metrics.spilled, metrics.undelivered) = self.shared.target.astray();
        metrics
    }

    /// Number of keys now, with those whose time is up but which no driver has ended yet.
    /// O(threads x shards).
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
