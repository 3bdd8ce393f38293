//! This crate's map and queue: default settings but for the interval. By real time the map has its reaper; by simulated time
//! the harness polls.

use super::{Key, Now, Setup, Store, Time, Value};
use expiry::{ExpiringMap, ExpiryQueue, Handle, StoreError, Timeout, Updated};
use std::time::Duration;

/// The map.
pub struct Map<K: 'static, V: 'static> {
    map: ExpiringMap<K, V>,
    timeout: Duration,
}

#[cold]
fn refused(error: StoreError) -> ! {
    panic!("refused: {error}")
}

impl<K: Key, V: Value> Store<K, V> for Map<K, V> {
    const NAME: &'static str = "ExpiringMap";
    const DOES: &'static str = "default settings, its own reaper; every touch moves the deadline";
    type Handle = ();

    fn new(setup: &Setup<'_>) -> Self {
        let builder = ExpiringMap::builder().time_to_live(setup.timeout).interval(setup.interval);
        let map = match setup.time {
            Time::Real(_) => builder.build(),
            Time::Simulated(clock) => builder.clock(clock.clone()).build_manual(),
        };
        Map { map: map.expect("valid settings"), timeout: setup.timeout }
    }

    #[inline]
    fn insert(&self, key: K, value: V, _now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        let time = Duration::from_nanos(timeout);
        let inserted = if time == self.timeout {
            self.map.insert(key, value)
        } else {
            self.map.insert_with(key, value, time)
        };
        match inserted {
            Ok(old) => (old.map(|old| old.value().number()), ()),
            Err(refusal) => refused(refusal.error),
        }
    }

    #[inline]
    fn get(&self, key: &K, _now: Now<'_>) -> Option<u64> {
        self.map.get(key).map(|value| value.number())
    }

    #[inline]
    fn touch(&self, key: &K, (): (), _value: V, _now: Now<'_>, timeout: u64) -> bool {
        let time = Duration::from_nanos(timeout);
        if time == self.timeout {
            self.map.touch(key)
        } else {
            done(self.map.touch_with(key, Timeout::After(time)))
        }
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        self.map.remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        let before = self.map.len();
        while self.map.poll(4096) {}
        before - self.map.len()
    }

    fn tidy(&self) {
        // Grace periods end as others begin.
        self.map.get(&K::default());
    }

    fn live(&self) -> usize {
        self.map.len()
    }
}

fn queue<K: Key>(setup: &Setup<'_>) -> ExpiryQueue<K> {
    let Time::Simulated(clock) = setup.time else {
        panic!("the queues are polled by the harness");
    };
    ExpiryQueue::builder()
        .interval(setup.interval)
        .clock(clock.clone())
        .build()
        .expect("valid settings")
}

#[inline]
fn done<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| refused(error))
}

fn poll<K: Key>(queue: &ExpiryQueue<K>) -> usize {
    let (mut expired, mut due) = (0, Vec::new());
    loop {
        let more = queue.poll_into(&mut due, 4096);
        expired += due.len();
        due.clear();
        if !more {
            return expired;
        }
    }
}

/// The queue, renewed by key.
pub struct QueueByKey<K: 'static>(ExpiryQueue<K>);

impl<K: Key> Store<K, ()> for QueueByKey<K> {
    const NAME: &'static str = "ExpiryQueue, by key";
    const DOES: &'static str = "default settings; the harness polls";
    const DRIVEN: bool = true;
    type Handle = ();

    fn new(setup: &Setup<'_>) -> Self {
        QueueByKey(queue(setup))
    }

    #[inline]
    fn insert(&self, key: K, (): (), _now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        match done(self.0.update(key, Duration::from_nanos(timeout))) {
            Updated::Inserted { .. } => (None, ()),
            _ => (Some(0), ()),
        }
    }

    /// It has no values.
    fn get(&self, _key: &K, _now: Now<'_>) -> Option<u64> {
        None
    }

    #[inline]
    fn touch(&self, key: &K, (): (), (): (), _now: Now<'_>, timeout: u64) -> bool {
        done(self.0.touch(key, Duration::from_nanos(timeout)))
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        self.0.remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        poll(&self.0)
    }

    fn live(&self) -> usize {
        self.0.len()
    }
}

/// The queue, renewed by handle, which the caller keeps.
pub struct QueueByHandle<K: 'static>(ExpiryQueue<K>);

impl<K: Key> Store<K, ()> for QueueByHandle<K> {
    const NAME: &'static str = "ExpiryQueue, by handle";
    const DOES: &'static str = "touches by handle, and does all else by key; the harness polls";
    const DRIVEN: bool = true;
    type Handle = Option<Handle>;

    fn new(setup: &Setup<'_>) -> Self {
        QueueByHandle(queue(setup))
    }

    #[inline]
    fn insert(&self, key: K, (): (), _now: Now<'_>, timeout: u64) -> (Option<u64>, Option<Handle>) {
        match done(self.0.update(key, Duration::from_nanos(timeout))) {
            Updated::Inserted { handle, .. } => (None, Some(handle)),
            _ => (Some(0), None),
        }
    }

    /// It has no values.
    fn get(&self, _key: &K, _now: Now<'_>) -> Option<u64> {
        None
    }

    #[inline]
    fn touch(&self, _key: &K, handle: Option<Handle>, (): (), _now: Now<'_>, timeout: u64) -> bool {
        handle.is_some_and(|handle| done(self.0.touch_by(handle, Duration::from_nanos(timeout))))
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        self.0.remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        poll(&self.0)
    }

    fn live(&self) -> usize {
        self.0.len()
    }
}
