//! Putting, renewing and removing entries by key.

use super::RotatingMap;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

impl<K: Hash + Eq, V, S: BuildHasher> RotatingMap<K, V, S> {
    /// Puts an entry into the youngest generation. If the key has a live entry, this renews the
    /// entry and returns the old value; the old key stays, as in `HashMap::insert`.
    ///
    /// # Panics
    ///
    /// If there are 2^31 entries; the map is unchanged then.
    #[doc(alias = "insert")]
    pub fn put(&mut self, key: K, value: V) -> Option<V> {
        let hash = self.hash(&key);
        let cell = self.cell(hash, &key);
        let known = cell.map(|cell| self.index.at(cell)).filter(|&at| self.entries.is_live(at));
        if let Some(at) = known {
            // First: if the drop panics, nothing has changed, and no old value is on its way out.
            drop(key);
            self.entries.renew(at);
            return self.entries.entry_mut(at).map(|entry| mem::replace(&mut entry.1, value));
        }
        // All that can fail comes before all that changes anything.
        self.entries.reserve(1);
        self.index.reserve(usize::from(cell.is_none()));
        let at = self.entries.add(hash, (key, value));
        match cell {
            // The cell is a dead entry's, which keeps its place among the dead.
            Some(cell) => self.index.set_at(cell, at),
            None => self.index.add(hash, at),
        }
        None
    }

    /// Renews an entry as it is: the entry moves to the youngest generation. Returns `false` if the
    /// key has no live entry. Moves nothing if the entry was renewed since the last rotation.
    #[doc(alias = "renew")]
    pub fn touch<Q>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.find(key) {
            Some((_, at)) => {
                self.entries.renew(at);
                true
            }
            None => false,
        }
    }

    /// An entry's value, as a mutable reference. Renews nothing.
    #[must_use]
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (_, at) = self.find(key)?;
        self.entries.entry_mut(at).map(|(_, value)| value)
    }

    /// Takes an entry out and returns its value.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (key, value) = self.remove_entry(key)?;
        // Now, not at the end of the scope: if the drop panicked there, the value would be leaked.
        drop(key);
        Some(value)
    }

    /// Takes an entry out and returns it.
    pub fn remove_entry<Q>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (cell, at) = self.find(key)?;
        self.index.remove(cell);
        self.entries.remove(at)
    }
}

/// [Puts](RotatingMap::put) each entry.
impl<K: Hash + Eq, V, S: BuildHasher> Extend<(K, V)> for RotatingMap<K, V, S> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.put(key, value);
        }
    }
}
