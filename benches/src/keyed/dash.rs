//! `dashmap` with a deadline in each value, which every call compares with one clock reading.
//!
//! No index of deadlines is kept: an entry that has expired stays until `advance` scans the map.

use super::{Key, Now, Setup, Store, Value};
use crate::peers::Hasher;
use dashmap::DashMap;

/// A value and its deadline behind each key.
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
