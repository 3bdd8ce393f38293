//! ZooKeeper's expiry queue, over dashmap: two maps that are updated one after the other, and a
//! counter that says which bucket is next. The steps and their order are those of its class. If
//! another update overtakes an element's update between two steps, the element may be mapped to a
//! time whose bucket does not contain it: no poll returns it.

use super::contended::{Driven, Update};
use super::keys::Key;
use dashmap::{DashMap, DashSet};
use expiry::{Clock, ManualClock};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::Arc;

/// Elements with their expiry times, and expiry times with their elements.
pub struct ZooKeeper<K: Key> {
    elements: DashMap<K, u64>,
    buckets: DashMap<u64, Arc<DashSet<K>>>,
    next: AtomicU64,
    interval: u64,
    clock: ManualClock,
}

impl<K: Key> ZooKeeper<K> {
    /// An empty one; `interval` in nanoseconds.
    pub fn new(clock: ManualClock, interval: u64) -> Self {
        let queue = ZooKeeper {
            elements: DashMap::new(),
            buckets: DashMap::new(),
            next: AtomicU64::new(0),
            interval,
            clock,
        };
        queue.next.store(queue.round_to_next_interval(queue.clock.now()), SeqCst);
        queue
    }

    fn round_to_next_interval(&self, time: u64) -> u64 {
        (time / self.interval + 1) * self.interval
    }

    fn bucket(&self, expiry: u64) -> Option<Arc<DashSet<K>>> {
        self.buckets.get(&expiry).map(|bucket| bucket.clone())
    }

    /// The next interval's elements, if it is due.
    fn poll_interval(&self) -> Option<Arc<DashSet<K>>> {
        let next = self.next.load(SeqCst);
        if self.clock.now() < next {
            return None;
        }
        let taken = self.next.compare_exchange(next, next + self.interval, SeqCst, SeqCst);
        let bucket = taken.ok().and_then(|_| self.buckets.remove(&next));
        Some(bucket.map_or_else(Arc::default, |(_, bucket)| bucket))
    }
}

impl<K: Key> Driven<K> for ZooKeeper<K> {
    fn update(&self, key: K, intervals: u64) -> Option<Update> {
        let before = self.elements.get(&key).map(|expiry| *expiry);
        let now = self.clock.now();
        let expiry = self.round_to_next_interval(now + intervals * self.interval);
        let update = |inserted| Some(Update { inserted, tick: expiry / self.interval });
        if before == Some(expiry) {
            return update(false);
        }
        let bucket = match self.bucket(expiry) {
            Some(bucket) => bucket,
            None => self.buckets.entry(expiry).or_default().clone(),
        };
        bucket.insert(key.clone());
        let before = self.elements.insert(key.clone(), expiry);
        if let Some(before) = before.filter(|&before| before != expiry) {
            if let Some(bucket) = self.bucket(before) {
                bucket.remove(&key);
            }
        }
        update(before.is_none())
    }

    fn remove(&self, key: &K) -> bool {
        let Some((_, expiry)) = self.elements.remove(key) else {
            return false;
        };
        if let Some(bucket) = self.bucket(expiry) {
            bucket.remove(key);
        }
        true
    }

    fn poll(&self, each: &mut dyn FnMut(&K)) {
        while let Some(bucket) = self.poll_interval() {
            let expired: Vec<K> = bucket.iter().map(|key| key.clone()).collect();
            for key in expired {
                // Its users do the same: a thread that polls an element removes it.
                self.remove(&key);
                each(&key);
            }
        }
    }

    fn left(&self) -> usize {
        self.elements.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::contended::INTERVAL;
    use super::*;

    #[test]
    fn alone_it_expires_what_is_not_touched() {
        let clock = ManualClock::new();
        let queue = ZooKeeper::<u64>::new(clock.clone(), INTERVAL.as_nanos() as u64);
        let polled = || {
            let mut polled = Vec::new();
            queue.poll(&mut |key| polled.push(*key));
            polled
        };
        for (key, inserted) in [(1, true), (2, true), (3, true), (1, false)] {
            let update = queue.update(key, if inserted { 2 } else { 4 }).unwrap();
            assert_eq!(update.inserted, inserted);
        }
        assert!(queue.remove(&3) && !queue.remove(&3));
        clock.advance(INTERVAL * 2);
        assert!(polled().is_empty());
        clock.advance(INTERVAL);
        assert_eq!(polled(), [2]);
        clock.advance(INTERVAL * 2);
        assert_eq!(polled(), [1]);
        assert_eq!(queue.left(), 0);
    }
}
