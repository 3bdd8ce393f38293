//! Rotating: what has died leaves the map, one entry at a time.
//!
//! An entry leaves the map in one step: out of the index, the list and the array, and only then to
//! the caller. The head of [the module](super) says why the dead are a list of the map.

use super::RotatingMap;
use std::fmt;
use std::iter::FusedIterator;

impl<K, V, S> RotatingMap<K, V, S> {
    /// Counts one rotation. The entries that were not renewed for `n` rotations die. Returns them
    /// by value, in the order in which they were renewed; entries that an earlier rotation could
    /// not hand over come first. Dropping the iterator drops the entries that were not taken.
    ///
    /// A dead entry is gone, taken or not: `get` does not find it, and `put` of its key adds a new
    /// one. If a panic drops the iterator, the map keeps the rest: see [the type](Self). O(1), and
    /// O(1) for each dead entry.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// assert_eq!(map.rotate().count() + map.rotate().count(), 0);
    /// assert_eq!(map.rotate().collect::<Vec<_>>(), [(1, "one")]); // not renewed three times
    /// ```
    #[doc(alias = "expire")]
    pub fn rotate(&mut self) -> Dead<'_, K, V, S> {
        self.entries.turn();
        Dead::of(self)
    }

    /// As [`rotate`](Self::rotate), and calls `dead` with each dead entry. Returns their number.
    ///
    /// If `dead` panics, the entry that it was called with is gone. The map keeps the rest, dead.
    /// The next rotation, or [`pop_dead`](Self::pop_dead), hands it over first.
    pub fn rotate_with(&mut self, mut dead: impl FnMut(K, V)) -> usize {
        self.entries.turn();
        let mut count = 0;
        while let Some((key, value)) = self.pop_dead() {
            count += 1;
            dead(key, value);
        }
        count
    }

    /// Hands over the entry that has been dead for longest, if a rotation has left any. The caller
    /// may use the map between two calls:
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::with_generations(2)?;
    /// # map.put(1, "a");
    /// # map.rotate();
    /// map.rotate().keep();
    /// while let Some((key, value)) = map.pop_dead() {
    ///     map.put(key, value); // another life
    /// }
    /// # assert_eq!(map.len(), 1);
    /// # Ok::<(), expiry::GenerationsError>(())
    /// ```
    pub fn pop_dead(&mut self) -> Option<(K, V)> {
        let at = self.entries.first_dead()?;
        // The entry has no cell if its key was put anew.
        let hash = self.entries.hash(at);
        if let Some(cell) = self.index.find(hash, |other| other == at) {
            self.index.remove(cell);
        }
        self.entries.remove_dead(at)
    }
}

/// The entries that have died, by value, the longest dead first. From [`RotatingMap::rotate`].
///
/// Dropping the iterator drops the entries that were not taken. After [`keep`](Self::keep), or if a
/// panic drops the iterator, they stay in the map, dead, for the next rotation or
/// [`RotatingMap::pop_dead`].
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
    fn of(map: &'a mut RotatingMap<K, V, S>) -> Self {
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
        // The iterator owns nothing; its drop only drops the rest.
        std::mem::forget(self);
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
