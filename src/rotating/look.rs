//! Looking entries up; none of these calls renews.

use super::iter::Iter;
use super::{index, RotatingMap};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K: Hash + Eq, V, S: BuildHasher> RotatingMap<K, V, S> {
    /// An entry's value. Renews nothing.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// An entry. Renews nothing.
    #[must_use]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (_, at) = self.find(key)?;
        self.entries.entry(at).map(|(key, value)| (key, value))
    }

    /// Whether an entry is there. Renews nothing.
    #[must_use]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.find(key).is_some()
    }

    /// How many rotations there have been since an entry was renewed. It dies when that reaches
    /// [`generations`](Self::generations).
    #[must_use]
    pub fn age<Q>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (_, at) = self.find(key)?;
        Some(self.entries.age(at))
    }

    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        index::fold(self.hasher.hash_one(key))
    }

    /// The cell of a key, whether its entry is live or dead.
    #[inline]
    pub(super) fn cell<Q>(&self, hash: u32, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.index
            .find(hash, |at| self.entries.entry(at).is_some_and(|entry| entry.0.borrow() == key))
    }

    /// The cell and the place of a live key.
    #[inline]
    pub(super) fn find<Q>(&self, key: &Q) -> Option<(usize, u32)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let cell = self.cell(self.hash(key), key)?;
        let at = self.index.at(cell);
        self.entries.is_live(at).then_some((cell, at))
    }
}

impl<K, V, S> RotatingMap<K, V, S> {
    /// All live entries, the oldest generation first. In one generation they come in the order in
    /// which they were first renewed in it.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.entries.iter()
    }

    /// All live entries with mutable values, in no particular order. Renews nothing. O(capacity).
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// The live entries that have seen `age` rotations since they were renewed, in the order of
    /// [`iter`](Self::iter).
    pub fn generation(&self, age: usize) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter_at(age)
    }
}
