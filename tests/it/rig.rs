//! Stores without threads, each on a clock that the test moves.
//!
//! Each function takes the settings that the test is about, and returns the store and its clock.

use crate::support::SECOND;
use expiry::{ExpiringMap, ExpiringMapBuilder, ExpiryQueue, ExpiryQueueBuilder, ManualClock};
use std::hash::{BuildHasher, Hash};

/// A map with intervals of a second.
pub fn map<K, V, S>(
    set: impl FnOnce(ExpiringMapBuilder<K, V>) -> ExpiringMapBuilder<K, V, S>,
) -> (ExpiringMap<K, V, S>, ManualClock)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let clock = ManualClock::new();
    let builder = ExpiringMap::builder().interval(SECOND).clock(clock.clone());
    (set(builder).build_manual().unwrap(), clock)
}

/// A queue with intervals of a second.
pub fn queue<K: Hash + Eq + Send + Sync + 'static>(
    set: impl FnOnce(ExpiryQueueBuilder<K>) -> ExpiryQueueBuilder<K>,
) -> (ExpiryQueue<K>, ManualClock) {
    let clock = ManualClock::new();
    let builder = ExpiryQueue::builder().interval(SECOND).clock(clock.clone());
    (set(builder).build_manual().unwrap(), clock)
}
