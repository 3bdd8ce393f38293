//! The harness alone: a store that does nothing, so that its figures are the harness's own cost.

use super::{Key, Now, Setup, Store, Value};
use std::hint::black_box;

/// Keeps nothing, and reads no clock. The compiler must still produce every argument.
pub struct Nothing;

impl<K: Key, V: Value> Store<K, V> for Nothing {
    const NAME: &'static str = "harness alone";
    const DOES: &'static str = "looks at its arguments; subtracted from all others";
    const WORKS: bool = false;
    type Handle = ();

    fn new(_setup: &Setup<'_>) -> Self {
        Nothing
    }

    #[inline]
    fn insert(&self, key: K, value: V, _now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        black_box((key, value));
        (Some(black_box(timeout)), ())
    }

    #[inline]
    fn get(&self, key: &K, _now: Now<'_>) -> Option<u64> {
        black_box(key);
        Some(black_box(0))
    }

    #[inline]
    fn touch(&self, key: &K, (): (), _value: V, _now: Now<'_>, timeout: u64) -> bool {
        black_box((key, timeout));
        black_box(true)
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        black_box(key);
        black_box(true)
    }

    fn advance(&self, _now: u64) -> usize {
        0
    }

    fn live(&self) -> usize {
        0
    }
}
