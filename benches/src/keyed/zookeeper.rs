//! ZooKeeper's `ExpiryQueue`, as it is, over `dashmap`: a map from elements to expiry times, and one from expiry times to
//! sets of elements; with its races, which are not what is measured.
//!
//! Its consumer takes what it was given out of the queue, as `SessionTrackerImpl` does: `poll` leaves the elements mapped.

use super::{Key, Now, Setup, Store, Value};
use crate::peers::Hasher;
use dashmap::{DashMap, DashSet};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct ZooKeeper<K, V> {
    elements: DashMap<K, u64, Hasher>,
    buckets: DashMap<u64, DashSet<K, Hasher>, Hasher>,
    next_expiration: AtomicU64,
    interval: u64,
    _values: PhantomData<V>,
}

impl<K: Key, V> ZooKeeper<K, V> {
    #[inline]
    fn round_to_next_interval(&self, time: u64) -> u64 {
        (time / self.interval + 1) * self.interval
    }

    #[inline]
    fn update(&self, element: &K, now: u64, timeout: u64) -> Option<u64> {
        let old = self.elements.get(element).map(|time| *time);
        let new = self.round_to_next_interval(now + timeout);
        if old == Some(new) {
            return None;
        }
        // Lent, where Java has a reference that the collector keeps: cheaper here than counting one.
        match self.buckets.get(&new) {
            Some(bucket) => bucket.insert(element.clone()),
            None => {
                let bucket = self.buckets.entry(new).or_default().downgrade();
                bucket.insert(element.clone())
            }
        };
        let old = self.elements.insert(element.clone(), new);
        if let Some(old) = old.filter(|&old| old != new) {
            if let Some(bucket) = self.buckets.get(&old) {
                bucket.remove(element);
            }
        }
        Some(new)
    }

    #[inline]
    fn remove(&self, element: &K) -> Option<u64> {
        let (_, expiry) = self.elements.remove(element)?;
        if let Some(bucket) = self.buckets.get(&expiry) {
            bucket.remove(element);
        }
        Some(expiry)
    }

    fn wait_time(&self, now: u64) -> u64 {
        self.next_expiration.load(Ordering::Acquire).saturating_sub(now)
    }

    fn poll(&self, now: u64) -> Option<DashSet<K, Hasher>> {
        let expiration = self.next_expiration.load(Ordering::Acquire);
        if now < expiration {
            return None;
        }
        self.next_expiration
            .compare_exchange(
                expiration,
                expiration + self.interval,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .ok()?;
        self.buckets.remove(&expiration).map(|(_, bucket)| bucket)
    }
}

impl<K: Key, V: Value> Store<K, V> for ZooKeeper<K, V> {
    const NAME: &'static str = "ZooKeeper's, over dashmap";
    const DOES: &'static str = "a map to expiry times, and sets of keys by expiry time";
    const DRIVEN: bool = true;
    type Handle = ();

    fn new(setup: &Setup<'_>) -> Self {
        let queue = ZooKeeper {
            elements: DashMap::default(),
            buckets: DashMap::default(),
            next_expiration: AtomicU64::new(0),
            interval: setup.interval.as_nanos() as u64,
            _values: PhantomData,
        };
        let first = queue.round_to_next_interval(setup.time.now().get());
        queue.next_expiration.store(first, Ordering::Release);
        queue
    }

    #[inline]
    fn insert(&self, key: K, _value: V, now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        // Every insertion of the harness into a queue is of a key that is not there.
        let unchanged = self.update(&key, now.get(), timeout).is_none();
        (unchanged.then_some(0), ())
    }

    /// True: it would have put the key in.
    #[inline]
    fn touch(&self, key: &K, (): (), _value: V, now: Now<'_>, timeout: u64) -> bool {
        self.update(key, now.get(), timeout);
        true
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        ZooKeeper::remove(self, key).is_some()
    }

    fn advance(&self, now: u64) -> usize {
        let mut expired = 0;
        while self.wait_time(now) == 0 {
            for element in self.poll(now).into_iter().flatten() {
                expired += usize::from(ZooKeeper::remove(self, &element).is_some());
            }
        }
        expired
    }

    fn live(&self) -> usize {
        self.elements.len()
    }
}
