//! Iterators over the live entries.

use super::index::NONE;
use super::nodes::{List, Nodes};
use super::RotatingMap;
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
    /// The generations still to come: the older half of the circle, then the younger half.
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
        Iter { nodes, lists: [].iter().chain(&[]), at: list.first, left: list.len }
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
        Iter { nodes: self.nodes, lists: self.lists.clone(), at: self.at, left: self.left }
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

/// Yields the live entries. Drops the entries that had died and were not handed over.
impl<K, V, S> IntoIterator for RotatingMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> Self::IntoIter {
        IntoIter { entries: self.entries.into_live().into_iter() }
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
