//! Maps with a deadline in each value, which every call compares with one clock reading, and the
//! harness alone. No index of deadlines is kept: what has expired stays until `advance` scans the map.

use super::{Key, Now, Setup, Store, Value};
use crate::peers::Hasher;
use dashmap::DashMap;
use std::hint::black_box;

pub struct Dash<K, V>(DashMap<K, (V, u64), Hasher>);

impl<K: Key, V: Value> Store<K, V> for Dash<K, V> {
    const NAME: &'static str = "dashmap with a deadline check";
    const DOES: &'static str =
        "the deadline is in the value; one clock reading a call; nothing finds what has expired";
    type Handle = ();

    fn new(_setup: &Setup<'_>) -> Self {
        Dash(DashMap::default())
    }

    #[inline]
    fn insert(&self, key: K, value: V, now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        let now = now.get();
        let old = self.0.insert(key, (value, now + timeout));
        let living = old.filter(|&(_, deadline)| deadline > now);
        (living.map(|(value, _)| value.number()), ())
    }

    #[inline]
    fn get(&self, key: &K, now: Now<'_>) -> Option<u64> {
        let now = now.get();
        let entry = self.0.get(key)?;
        (entry.1 > now).then(|| entry.0.number())
    }

    #[inline]
    fn touch(&self, key: &K, (): (), _value: V, now: Now<'_>, timeout: u64) -> bool {
        let now = now.get();
        match self.0.get_mut(key) {
            Some(mut entry) if entry.1 > now => {
                entry.1 = now + timeout;
                true
            }
            _ => false,
        }
    }

    #[inline]
    fn remove(&self, key: &K, now: Now<'_>) -> bool {
        let now = now.get();
        self.0.remove(key).is_some_and(|(_, (_, at))| at > now)
    }

    fn advance(&self, now: u64) -> usize {
        let before = self.0.len();
        self.0.retain(|_, &mut (_, deadline)| deadline > now);
        before - self.0.len()
    }

    fn live(&self) -> usize {
        self.0.len()
    }
}

/// A value and its deadline behind each key. Every call pins.
pub struct Papaya<K, V>(papaya::HashMap<K, (V, u64), Hasher>);

impl<K: Key, V: Value> Store<K, V> for Papaya<K, V> {
    const NAME: &'static str = "papaya with one clock reading";
    const DOES: &'static str =
        "the deadline is in the value; touch copies the entry; nothing finds what has expired";
    type Handle = ();

    fn new(_setup: &Setup<'_>) -> Self {
        Papaya(papaya::HashMap::default())
    }

    #[inline]
    fn insert(&self, key: K, value: V, now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        let now = now.get();
        let map = self.0.pin();
        let old = map.insert(key, (value, now + timeout));
        let living = old.filter(|&&(_, deadline)| deadline > now);
        (living.map(|(value, _)| value.number()), ())
    }

    #[inline]
    fn get(&self, key: &K, now: Now<'_>) -> Option<u64> {
        let now = now.get();
        let map = self.0.pin();
        let living = map.get(key).filter(|&&(_, deadline)| deadline > now);
        living.map(|(value, _)| value.number())
    }

    #[inline]
    fn touch(&self, key: &K, (): (), _value: V, now: Now<'_>, timeout: u64) -> bool {
        let now = now.get();
        let renew = |(value, deadline): &(V, u64)| {
            // An entry that has expired keeps its deadline.
            let deadline = if *deadline > now { now + timeout } else { *deadline };
            (value.clone(), deadline)
        };
        let map = self.0.pin();
        map.update(key.clone(), renew).is_some_and(|&(_, at)| at > now)
    }

    #[inline]
    fn remove(&self, key: &K, now: Now<'_>) -> bool {
        let now = now.get();
        self.0.pin().remove(key).is_some_and(|&(_, at)| at > now)
    }

    fn advance(&self, now: u64) -> usize {
        let before = self.0.len();
        self.0.pin().retain(|_, &(_, deadline)| deadline > now);
        before - self.0.len()
    }

    fn live(&self) -> usize {
        self.0.len()
    }
}

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
