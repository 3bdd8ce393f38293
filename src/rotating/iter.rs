//! Iterators over the living and the dead.

use super::index::NONE;
use super::nodes::{List, Nodes};
use super::{live, RotatingMap};
use std::fmt;
use std::iter::FusedIterator;

/// The live entries of a [`RotatingMap`], the oldest generation first.
///
/// # Examples
///
/// ```
/// use expiry::{rotating_map::Iter, RotatingMap};
///
/// fn keys(pending: Iter<'_, &'static str, u64>) -> Vec<&'static str> {
///     pending.map(|(key, _)| *key).collect()
/// }
///
/// let mut pending = RotatingMap::new();
/// pending.put("old", 1);
/// pending.rotate();
/// pending.put("young", 2);
/// assert_eq!((pending.iter().len(), keys(pending.iter())), (2, vec!["old", "young"]));
/// ```
pub struct Iter<'a, K, V> {
    nodes: &'a Nodes<K, V>,
    /// The generations still to come: the older half of the circle, and the younger.
    lists: std::iter::Chain<std::slice::Iter<'a, List>, std::slice::Iter<'a, List>>,
    at: u32,
    left: usize,
}

impl<'a, K, V> Iter<'a, K, V> {
    pub(super) fn of(nodes: &'a Nodes<K, V>, lists: &'a [List], youngest: usize) -> Self {
        // The oldest list follows the youngest.
        let (younger, older) = lists.split_at(youngest + 1);
        Iter {
            nodes,
            lists: older.iter().chain(younger),
            at: NONE,
            left: lists.iter().map(|list| list.len).sum(),
        }
    }

    pub(super) fn of_one(nodes: &'a Nodes<K, V>, list: List) -> Self {
        Iter {
            nodes,
            lists: [].iter().chain(&[]),
            at: list.first,
            left: list.len,
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at == NONE {
            self.at = self.lists.next()?.first;
        }
        let at = self.at;
        self.at = self.nodes.next(at);
        self.left -= 1;
        self.nodes.entry(at).map(|(key, value)| (key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Iter {
            nodes: self.nodes,
            lists: self.lists.clone(),
            at: self.at,
            left: self.left,
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<'a, K, V, S> IntoIterator for &'a RotatingMap<K, V, S> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The live entries of a [`RotatingMap`] by value, in no particular order.
///
/// # Examples
///
/// ```
/// use expiry::RotatingMap;
///
/// let mut pending = RotatingMap::with_generations(2)?;
/// pending.put("dead", 0);
/// pending.rotate();
/// pending.extend([("a", 1), ("b", 2)]);
/// pending.rotate().keep(); // "dead" is in the map still, but not live
/// let mut entries: Vec<_> = pending.into_iter().collect();
/// entries.sort();
/// assert_eq!(entries, [("a", 1), ("b", 2)]);
/// # Ok::<(), expiry::GenerationsError>(())
/// ```
pub struct IntoIter<K, V> {
    entries: std::vec::IntoIter<(K, V)>,
}

/// The live entries; what had died and was not handed over is dropped.
impl<K, V, S> IntoIterator for RotatingMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> Self::IntoIter {
        let mut entries = Vec::with_capacity(self.len);
        for (born, entry) in self.nodes.into_entries() {
            if live(self.rotations, born, self.lists.len()) {
                entries.push(entry);
            }
        }
        IntoIter {
            entries: entries.into_iter(),
        }
    }
}

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<K, V> ExactSizeIterator for IntoIter<K, V> {}

impl<K, V> FusedIterator for IntoIter<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for IntoIter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.as_slice()).finish()
    }
}

/// What has died, by value, the longest dead first. From [`RotatingMap::rotate`].
///
/// What is not taken is dropped with it, unless a panic drops it: then, and after [`keep`](Self::keep), it stays in the
/// map, dead, for the next rotation or [`RotatingMap::pop_dead`].
///
/// ```
/// # let mut map = expiry::RotatingMap::with_generations(2)?;
/// map.extend([("a", 1), ("b", 2)]);
/// map.rotate();
/// let first = map.rotate().next();
/// assert_eq!(first, Some(("a", 1))); // the other one was dropped with the iterator
/// assert_eq!(map.dead_len(), 0);
/// # Ok::<(), expiry::GenerationsError>(())
/// ```
pub struct Dead<'a, K, V, S> {
    map: &'a mut RotatingMap<K, V, S>,
}

impl<'a, K, V, S> Dead<'a, K, V, S> {
    pub(super) fn of(map: &'a mut RotatingMap<K, V, S>) -> Self {
        Dead { map }
    }

    /// Leaves what was not taken in the map, dead.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::with_generations(2)?;
    /// map.extend([("a", 1), ("b", 2), ("c", 3)]);
    /// map.rotate();
    /// let mut dead = map.rotate();
    /// assert_eq!(dead.next(), Some(("a", 1)));
    /// dead.keep(); // enough for now
    /// assert_eq!((map.len(), map.dead_len()), (0, 2));
    /// assert_eq!(map.pop_dead(), Some(("b", 2)));
    /// # Ok::<(), expiry::GenerationsError>(())
    /// ```
    pub fn keep(self) {
        // It owns nothing: all it does when dropped is drop the rest.
        std::mem::forget(self);
    }
}

impl<K, V, S> Iterator for Dead<'_, K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<Self::Item> {
        self.map.pop_dead()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.map.dead.len, Some(self.map.dead.len))
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
        f.debug_struct("Dead")
            .field("len", &self.map.dead.len)
            .finish_non_exhaustive()
    }
}
