//! This crate's map and queue, with default settings but for the interval. By real time the map has
//! its reaper; by simulated time the harness polls.

use super::{Key, Now, Setup, Store, Time, Value};
use expiry::{ExpiringMap, ExpiryQueue, Handle, Lifetime, Updated};
use std::marker::PhantomData;
use std::time::Duration;

pub struct Map<K: 'static, V: 'static> {
    map: ExpiringMap<K, V>,
    timeout: Duration,
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
            self.map.insert_for(key, value, time)
        };
        match inserted {
            Ok(old) => (old.map(|old| old.value().number()), ()),
            Err(refusal) => done(Err(refusal.error)),
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
            done(self.map.touch_for(key, Lifetime::After(time)))
        }
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        self.map.remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        let before = self.map.len();
        while self.map.poll(4096).more {}
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

#[inline]
fn done<T>(result: Result<T, impl std::fmt::Display>) -> T {
    result.unwrap_or_else(|error| panic!("refused: {error}"))
}

/// What the caller keeps of an entry, and how it renews it.
pub trait Name: Copy + Default + Send + Sync {
    const NAME: &'static str;
    const DOES: &'static str;

    fn of(handle: Handle) -> Self;

    fn touch<K: Key>(self, queue: &ExpiryQueue<K>, key: &K, timeout: Duration) -> bool;
}

impl Name for () {
    const NAME: &'static str = "ExpiryQueue, by key";
    const DOES: &'static str = "default settings; the harness polls";

    #[inline]
    fn of(_handle: Handle) {}

    #[inline]
    fn touch<K: Key>(self, queue: &ExpiryQueue<K>, key: &K, timeout: Duration) -> bool {
        done(queue.touch(key, timeout))
    }
}

impl Name for Option<Handle> {
    const NAME: &'static str = "ExpiryQueue, by handle";
    const DOES: &'static str = "touches by handle, and does all else by key; the harness polls";

    #[inline]
    fn of(handle: Handle) -> Self {
        Some(handle)
    }

    #[inline]
    fn touch<K: Key>(self, queue: &ExpiryQueue<K>, _key: &K, timeout: Duration) -> bool {
        self.is_some_and(|handle| done(queue.touch_by(handle, timeout)))
    }
}

pub struct Queue<K: 'static, N>(ExpiryQueue<K>, PhantomData<N>);

pub type QueueByKey<K> = Queue<K, ()>;

pub type QueueByHandle<K> = Queue<K, Option<Handle>>;

impl<K: Key, N: Name> Store<K, ()> for Queue<K, N> {
    const NAME: &'static str = N::NAME;
    const DOES: &'static str = N::DOES;
    const DRIVEN: bool = true;
    type Handle = N;

    fn new(setup: &Setup<'_>) -> Self {
        let Time::Simulated(clock) = setup.time else {
            panic!("the queues are polled by the harness");
        };
        let builder = ExpiryQueue::builder().interval(setup.interval).clock(clock.clone());
        Queue(builder.build_manual().expect("valid settings"), PhantomData)
    }

    #[inline]
    fn insert(&self, key: K, (): (), _now: Now<'_>, timeout: u64) -> (Option<u64>, N) {
        match done(self.0.update(key, Duration::from_nanos(timeout))) {
            Updated::Inserted { handle, .. } => (None, N::of(handle)),
            _ => (Some(0), N::default()),
        }
    }

    #[inline]
    fn touch(&self, key: &K, name: N, (): (), _now: Now<'_>, timeout: u64) -> bool {
        name.touch(&self.0, key, Duration::from_nanos(timeout))
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        self.0.remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        let (mut expired, mut due) = (0, Vec::new());
        loop {
            let more = self.0.poll_into(&mut due, 4096).more;
            expired += due.len();
            due.clear();
            if !more {
                return expired;
            }
        }
    }

    fn live(&self) -> usize {
        self.0.len()
    }
}
