//! ZooKeeper's `ExpiryQueue`, as it is, over `dashmap`: a map from elements to expiry times, and
//! one from expiry times to sets of elements.
//!
//! The steps and their order are those of its class, and so are its races. If another update
//! overtakes an element's update between two steps, the element may be mapped to a time whose set
//! does not contain it: no poll returns it.

use dashmap::{DashMap, DashSet};
use foldhash::fast::RandomState;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct ZooKeeper<K> {
    elements: DashMap<K, u64, RandomState>,
    buckets: DashMap<u64, DashSet<K, RandomState>, RandomState>,
    next_expiration: AtomicU64,
    interval: u64,
}

impl<K: Hash + Eq + Clone> ZooKeeper<K> {
    /// An empty one; times are in nanoseconds.
    pub fn at(now: u64, interval: u64) -> Self {
        let queue = ZooKeeper {
            elements: DashMap::default(),
            buckets: DashMap::default(),
            next_expiration: AtomicU64::new(0),
            interval,
        };
        queue.next_expiration.store(queue.round_to_next_interval(now), Ordering::Release);
        queue
    }

    #[inline]
    fn round_to_next_interval(&self, time: u64) -> u64 {
        (time / self.interval + 1) * self.interval
    }

    /// Returns when the element was to expire before, and when it is now.
    #[inline]
    pub fn update(&self, element: &K, now: u64, timeout: u64) -> (Option<u64>, u64) {
        let old = self.elements.get(element).map(|time| *time);
        let new = self.round_to_next_interval(now + timeout);
        if old == Some(new) {
            return (old, new);
        }
        // This borrows the bucket, where Java has a reference that the collector keeps. It is
        // cheaper here than counting one.
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
        (old, new)
    }

    /// Whether the element was there.
    #[inline]
    pub fn remove(&self, element: &K) -> bool {
        let Some((_, expiry)) = self.elements.remove(element) else {
            return false;
        };
        if let Some(bucket) = self.buckets.get(&expiry) {
            bucket.remove(element);
        }
        true
    }

    /// Removes every element that is due, and calls `each` with it. ZooKeeper's own poll leaves the
    /// elements mapped: its consumer removes them, as `SessionTrackerImpl` does.
    pub fn poll(&self, now: u64, mut each: impl FnMut(&K)) {
        while let Some(bucket) = self.poll_interval(now) {
            for element in bucket {
                self.remove(&element);
                each(&element);
            }
        }
    }

    /// The next interval's elements, if it is due.
    fn poll_interval(&self, now: u64) -> Option<DashSet<K, RandomState>> {
        let next = self.next_expiration.load(Ordering::Acquire);
        if now < next {
            return None;
        }
        let (after, order) = (next + self.interval, (Ordering::AcqRel, Ordering::Relaxed));
        let taken = self.next_expiration.compare_exchange(next, after, order.0, order.1);
        let bucket = taken.ok().and_then(|_| self.buckets.remove(&next));
        Some(bucket.map(|(_, bucket)| bucket).unwrap_or_default())
    }

    pub fn live(&self) -> usize {
        self.elements.len()
    }
}
