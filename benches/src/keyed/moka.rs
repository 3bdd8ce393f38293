//! `moka`'s concurrent cache, its capacity twice the load, so that only time evicts.
//!
//! It goes by its own clock, which the harness cannot replace (see the module's head), and does its
//! maintenance on the threads that call it. `run_pending_tasks` does the rest of that, within the
//! time that counts.

use super::{Counted, Key, Now, Setup, Store, Value};
use crate::peers::Hasher;
use moka::sync::{Cache, CacheBuilder};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

type Builder<K, T> = CacheBuilder<K, T, Cache<K, T>>;

/// What the cache keeps of a value.
pub trait Kept<V>: Clone + Send + Sync + 'static {
    fn keep(value: V, timeout: u64) -> Self;

    fn number(&self) -> u64;

    fn set<K: Key>(builder: Builder<K, Self>, timeout: Duration) -> Builder<K, Self>;
}

/// One time to live for all.
impl<V: Value> Kept<V> for V {
    #[inline]
    fn keep(value: V, _timeout: u64) -> V {
        value
    }

    #[inline]
    fn number(&self) -> u64 {
        Value::number(self)
    }

    fn set<K: Key>(builder: Builder<K, V>, timeout: Duration) -> Builder<K, V> {
        builder.time_to_live(timeout)
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

impl Kept<Counted> for Timed {
    fn keep(value: Counted, timeout: u64) -> Self {
        Timed(value, Duration::from_nanos(timeout))
    }

    fn number(&self) -> u64 {
        Value::number(&self.0)
    }

    fn set<K: Key>(builder: Builder<K, Self>, _timeout: Duration) -> Builder<K, Self> {
        builder.expire_after(Each)
    }
}

/// Inserting a key again is how it is renewed.
pub struct Moka<K, V, T = V>(Cache<K, T, Hasher>, PhantomData<V>);

/// Each entry with a time of its own: on moka's timer wheel instead of its list.
pub type MokaEach<K> = Moka<K, Counted, Timed>;

impl<K: Key, V: Value, T: Kept<V>> Store<K, V> for Moka<K, V, T> {
    const NAME: &'static str = "moka";
    const DOES: &'static str =
        "reads its own clock; puts work off to later calls; touch and replace insert again; insert returns nothing";
    const REAL: bool = true;
    const RETURNS_OLD: bool = false;
    type Handle = ();

    fn new(setup: &Setup<'_>) -> Self {
        let builder = Cache::builder().max_capacity(setup.entries as u64 * 2);
        let builder = T::set(builder, setup.timeout);
        Moka(builder.build_with_hasher(Hasher::default()), PhantomData)
    }

    #[inline]
    fn insert(&self, key: K, value: V, _now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        self.0.insert(key, T::keep(value, timeout));
        (None, ())
    }

    #[inline]
    fn get(&self, key: &K, _now: Now<'_>) -> Option<u64> {
        self.0.get(key).map(|kept| kept.number())
    }

    #[inline]
    fn touch(&self, key: &K, (): (), value: V, _now: Now<'_>, timeout: u64) -> bool {
        self.0.insert(key.clone(), T::keep(value, timeout));
        true
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        self.0.remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        let before = self.live();
        self.0.run_pending_tasks();
        before.saturating_sub(self.live())
    }

    fn tidy(&self) {
        self.0.run_pending_tasks();
        // Grace periods end as others begin.
        self.0.contains_key(&K::default());
    }

    fn live(&self) -> usize {
        usize::try_from(self.0.entry_count()).unwrap_or(usize::MAX)
    }
}
