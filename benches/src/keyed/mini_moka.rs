//! `mini-moka`'s concurrent cache, its capacity twice the load, so that only time evicts.
//!
//! It has one time to live for all, as [`Moka`](super::Moka) here, none for an entry, and the system's clock. What it has put off
//! its `sync` does, within the time that counts. Its `invalidate` does not tell whether there was something to be removed; that all
//! were is seen in what is left.

use super::{Key, Now, Setup, Store, Value};
use crate::peers::Hasher;
use mini_moka::sync::{Cache, ConcurrentCacheExt};

/// Inserting a key again is how it is renewed.
pub struct MiniMoka<K, V>(Cache<K, V, Hasher>);

impl<K: Key, V: Value> Store<K, V> for MiniMoka<K, V> {
    const NAME: &'static str = "mini-moka";
    const DOES: &'static str =
        "reads its own clock; puts work off to later calls; insert and remove return nothing";
    const REAL: bool = true;
    const RETURNS_OLD: bool = false;
    type Handle = ();

    fn new(setup: &Setup<'_>) -> Self {
        MiniMoka(
            Cache::builder()
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
        self.0.invalidate(key);
        true
    }

    fn advance(&self, _now: u64) -> usize {
        let before = self.0.entry_count();
        self.0.sync();
        usize::try_from(before.saturating_sub(self.0.entry_count())).unwrap_or(0)
    }

    fn live(&self) -> usize {
        usize::try_from(self.0.entry_count()).unwrap_or(usize::MAX)
    }
}
