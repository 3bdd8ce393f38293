//! `moka`'s concurrent cache, its capacity twice the load, so that only time evicts.
//!
//! It goes by its own clock, which cannot be had from outside (see the module's head), and does its maintenance on the threads
//! that call it. What is left of that, `run_pending_tasks` does, within the time that counts.

use super::{Counted, Key, Now, Setup, Store, Value};
use crate::peers::Hasher;
use std::time::{Duration, Instant};

fn run<K: Key, V: Clone + Send + Sync + 'static>(cache: &moka::sync::Cache<K, V, Hasher>) -> usize {
    let before = cache.entry_count();
    cache.run_pending_tasks();
    usize::try_from(before.saturating_sub(cache.entry_count())).unwrap_or(0)
}

fn count<K: Key, V: Clone + Send + Sync + 'static>(
    cache: &moka::sync::Cache<K, V, Hasher>,
) -> usize {
    usize::try_from(cache.entry_count()).unwrap_or(usize::MAX)
}

/// One time to live for all. Inserting a key again is how it is renewed.
pub struct Moka<K, V>(moka::sync::Cache<K, V, Hasher>);

impl<K: Key, V: Value> Store<K, V> for Moka<K, V> {
    const NAME: &'static str = "moka";
    const DOES: &'static str =
        "reads its own clock; puts work off to later calls; touch and replace insert again; insert returns nothing";
    const REAL: bool = true;
    const RETURNS_OLD: bool = false;
    type Handle = ();

    fn new(setup: &Setup<'_>) -> Self {
        Moka(
            moka::sync::Cache::builder()
                .max_capacity(setup.entries as u64 * 2)
                .time_to_live(setup.timeout)
                .build_with_hasher(Hasher::default()),
        )
    }

    #[inline]
    fn insert(&self, key: K, value: V, _now: Now<'_>, _timeout: u64) -> (Option<u64>, ()) {
        self.0.insert(key, value);
        (None, ())
    }

    #[inline]
    fn get(&self, key: &K, _now: Now<'_>) -> Option<u64> {
        self.0.get(key).map(|value| value.number())
    }

    #[inline]
    fn touch(&self, key: &K, (): (), value: V, _now: Now<'_>, _timeout: u64) -> bool {
        self.0.insert(key.clone(), value);
        true
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        self.0.remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        run(&self.0)
    }

    fn tidy(&self) {
        self.0.run_pending_tasks();
        // Grace periods end as others begin.
        self.0.contains_key(&K::default());
    }

    fn live(&self) -> usize {
        count(&self.0)
    }
}

/// A value that says how long it is to live, which is where `moka` lets entries say so.
#[derive(Debug, Clone)]
pub struct Timed(Counted, Duration);

struct Each;

impl<K> moka::Expiry<K, Timed> for Each {
    fn expire_after_create(&self, _key: &K, value: &Timed, _at: Instant) -> Option<Duration> {
        Some(value.1)
    }
}

/// Each entry with a time of its own: on moka's timer wheel instead of its list.
pub struct MokaEach<K>(moka::sync::Cache<K, Timed, Hasher>);

impl<K: Key> Store<K, Counted> for MokaEach<K> {
    const NAME: &'static str = "moka";
    const DOES: &'static str =
        "reads its own clock; puts work off to later calls; touch and replace insert again; insert returns nothing";
    const REAL: bool = true;
    const RETURNS_OLD: bool = false;
    type Handle = ();

    fn new(setup: &Setup<'_>) -> Self {
        MokaEach(
            moka::sync::Cache::builder()
                .max_capacity(setup.entries as u64 * 2)
                .expire_after(Each)
                .build_with_hasher(Hasher::default()),
        )
    }

    fn insert(&self, key: K, value: Counted, _now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        self.0.insert(key, Timed(value, Duration::from_nanos(timeout)));
        (None, ())
    }

    fn get(&self, key: &K, _now: Now<'_>) -> Option<u64> {
        self.0.get(key).map(|timed| timed.0.number())
    }

    fn touch(&self, key: &K, (): (), value: Counted, now: Now<'_>, timeout: u64) -> bool {
        self.insert(key.clone(), value, now, timeout);
        true
    }

    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        self.0.remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        run(&self.0)
    }

    fn tidy(&self) {
        self.0.run_pending_tasks();
        self.0.contains_key(&K::default());
    }

    fn live(&self) -> usize {
        count(&self.0)
    }
}
