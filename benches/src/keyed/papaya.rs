//! `papaya`, for `get` alone: a map without any expiry, and one reading of the clock.

use super::{Key, Now, Store, Time, Value};
use crate::peers::Hasher;
use std::hint::black_box;
use std::time::Duration;

/// A pinned reference per operation.
pub struct Papaya<K, V>(papaya::HashMap<K, V, Hasher>);

impl<K: Key, V: Value> Store<K, V> for Papaya<K, V> {
    const NAME: &'static str = "papaya, no expiry";
    type Handle = ();

    fn new(_time: &Time, _entries: usize, _timeout: Duration) -> Self {
        Papaya(papaya::HashMap::default())
    }

    #[inline]
    fn insert(&self, key: K, value: V, _now: Now<'_>, _timeout: u64) {
        self.0.pin().insert(key, value);
    }

    #[inline]
    fn get(&self, key: &K, now: Now<'_>) -> Option<u64> {
        black_box(now.get());
        self.0.pin().get(key).map(Value::number)
    }

    /// Nothing that it has.
    fn renew(&self, _key: &mut K, (): (), _value: V, _now: Now<'_>, _timeout: u64) -> bool {
        true
    }

    #[inline]
    fn remove(&self, key: &K) -> bool {
        self.0.pin().remove(key).is_some()
    }

    fn advance(&self, _now: u64) -> usize {
        0
    }

    fn live(&self) -> usize {
        self.0.len()
    }
}
