//! Iterators over the live entries of a [`RotatingMap`], and over those that have died.

use super::RotatingMap;
use std::collections::{hash_map, vec_deque, HashMap};
use std::iter::FusedIterator;
use std::{fmt, mem};

/// The live entries of a [`RotatingMap`], the oldest generation first.
pub struct Iter<'a, K, V, S> {
    maps: vec_deque::Iter<'a, HashMap<K, V, S>>,
    map: Option<hash_map::Iter<'a, K, V>>,
    left: usize,
}

impl<'a, K, V, S> Iter<'a, K, V, S> {
    pub(super) fn new(map: &'a RotatingMap<K, V, S>) -> Self {
        Iter { left: map.len(), maps: map.generations.iter(), map: None }
    }
}

impl<'a, K, V, S> Iterator for Iter<'a, K, V, S> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.map.as_mut().and_then(Iterator::next) {
                self.left -= 1;
                return Some(entry);
            }
            self.map = Some(self.maps.next_back()?.iter());
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V, S> ExactSizeIterator for Iter<'_, K, V, S> {}

impl<K, V, S> FusedIterator for Iter<'_, K, V, S> {}

impl<K, V, S> Clone for Iter<'_, K, V, S> {
    fn clone(&self) -> Self {
        Iter { maps: self.maps.clone(), map: self.map.clone(), left: self.left }
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<'a, K, V, S> IntoIterator for &'a RotatingMap<K, V, S> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The live entries of a [`RotatingMap`] by value, in no particular order.
pub struct IntoIter<K, V>(std::vec::IntoIter<(K, V)>);

/// Yields the live entries. Drops the entries that had died and were not handed over.
impl<K, V, S> IntoIterator for RotatingMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> Self::IntoIter {
        let live: Vec<_> = self.generations.into_iter().flatten().collect();
        IntoIter(live.into_iter())
    }
}

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K, V> ExactSizeIterator for IntoIter<K, V> {}

impl<K, V> FusedIterator for IntoIter<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for IntoIter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.as_slice()).finish()
    }
}

/// The entries that have died, by value, the longest dead first; from [`RotatingMap::rotate`].
///
/// Dropping the iterator drops the entries that were not taken. After [`keep`](Self::keep), or if a
/// panic drops the iterator, they stay in the map, dead, for the next rotation or
/// [`RotatingMap::pop_dead`].
pub struct Dead<'a, K, V, S> {
    map: &'a mut RotatingMap<K, V, S>,
}

impl<'a, K, V, S> Dead<'a, K, V, S> {
    pub(super) fn new(map: &'a mut RotatingMap<K, V, S>) -> Self {
        Dead { map }
    }

    /// Leaves what was not taken in the map, dead.
    ///
    /// ```
    /// # let mut map = expiry_wheel::RotatingMap::with_generations(2)?;
    /// map.extend([("a", 1), ("b", 2), ("c", 3)]);
    /// map.rotate();
    /// let mut dead = map.rotate();
    /// dead.next();
    /// dead.keep(); // enough for now
    /// assert_eq!((map.len(), map.dead_len()), (0, 2));
    /// # Ok::<(), expiry_wheel::GenerationsError>(())
    /// ```
    pub fn keep(self) {
        // The iterator owns nothing; its drop only drops the rest.
        mem::forget(self);
    }
}

impl<K, V, S> Iterator for Dead<'_, K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<Self::Item> {
        self.map.pop_dead()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.map.dead_len(), Some(self.map.dead_len()))
    }
}

impl<K, V, S> ExactSizeIterator for Dead<'_, K, V, S> {}

impl<K, V, S> FusedIterator for Dead<'_, K, V, S> {}

impl<K, V, S> Drop for Dead<'_, K, V, S> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            while self.next().is_some() {}
        }
    }
}

impl<K, V, S> fmt::Debug for Dead<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dead").field("len", &self.map.dead_len()).finish_non_exhaustive()
    }
}
