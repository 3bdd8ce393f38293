//! Putting, renewing and removing entries by key.

use super::RotatingMap;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

impl<K: Hash + Eq, V, S: BuildHasher> RotatingMap<K, V, S> {
    /// Puts an entry into the youngest generation. If the key has a live entry, this renews the
    /// entry and returns the old value; the old key stays, as in `HashMap::insert`.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// assert_eq!(map.put(1, "one"), None);
    /// map.rotate();
    /// assert_eq!(map.put(1, "eins"), Some("one")); // and it is young again
    /// assert_eq!(map.age(&1), Some(0));
    /// ```
    ///
    /// # Panics
    ///
    /// If there are 2^31 entries; the map is unchanged then.
    #[doc(alias = "insert")]
    pub fn put(&mut self, key: K, value: V) -> Option<V> {
        let hash = self.hash(&key);
        let cell = self.cell(hash, &key);
        let known = cell
            .map(|cell| self.index.at(cell))
            .filter(|&at| self.entries.is_live(at));
        if let Some(at) = known {
            // First: if the drop panics, nothing has changed, and no old value is on its way out.
            drop(key);
            self.entries.renew(at);
            return self
                .entries
                .entry_mut(at)
                .map(|entry| mem::replace(&mut entry.1, value));
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
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put("a", 1);
    /// map.rotate();
    /// assert_eq!(map.age("a"), Some(1));
    /// assert!(map.touch("a") && !map.touch("b"));
    /// assert_eq!(map.age("a"), Some(0));
    /// ```
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
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, 10);
    /// *map.get_mut(&1).unwrap() += 1;
    /// assert_eq!(map.get(&1), Some(&11));
    /// ```
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
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// assert_eq!((map.remove(&1), map.remove(&1)), (Some("one"), None));
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put("Ada".to_string(), 1);
    /// assert_eq!(map.remove_entry("Ada"), Some(("Ada".to_string(), 1)));
    /// assert_eq!((map.remove_entry("Ada"), map.len()), (None, 0));
    /// ```
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
