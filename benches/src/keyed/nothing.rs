//! Nobody: what the harness costs on its own.

use super::{Key, Now, Store, Time, Value};
use std::hint::black_box;
use std::time::Duration;

/// Does nothing with what it is given but look at it, and at the clock.
pub struct Nothing;

impl<K: Key, V: Value> Store<K, V> for Nothing {
    const NAME: &'static str = "harness alone";
    const WORKS: bool = false;
    type Handle = ();

    fn new(_time: &Time, _entries: usize, _timeout: Duration) -> Self {
        Nothing
    }

    #[inline]
    fn insert(&self, key: K, value: V, now: Now<'_>, timeout: u64) {
        black_box((key, value, now.get() + timeout));
    }

    #[inline]
    fn get(&self, key: &K, now: Now<'_>) -> Option<u64> {
        black_box((key, now.get()));
        Some(0)
    }

    #[inline]
    fn renew(&self, key: &mut K, (): (), _value: V, now: Now<'_>, timeout: u64) -> bool {
        black_box((key, now.get() + timeout));
        true
    }

    #[inline]
    fn remove(&self, key: &K) -> bool {
        black_box(key);
        true
    }

    fn advance(&self, _now: u64) -> usize {
        0
    }

    fn live(&self) -> usize {
        0
    }
}
