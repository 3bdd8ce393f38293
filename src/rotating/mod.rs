//! A map in generations: what is not put or touched again dies after so many rotations.
//!
//! # How it works
//! One index finds a key's entry; the entries lie in one array and are linked into a list per generation. A generation is
//! not looked for: an entry keeps the number of rotations that there had been when it was last renewed, `born`, and
//! its list is `born` modulo `n`. Rotating counts one up and appends the list that has come round, a whole generation,
//! to the list of the dead: four writes. Who is dead is told by `born` alone, so nobody has to be marked.
//!
//! # Invariants
//! The validator in the tests checks each after every step.
//! - **R-list.** A live entry (`rotations - born < n`) is in the list `born % n`; any other is in the list of the dead.
//! - **R-index.** A live entry has one cell. A dead one has one or none: none once its key has been put anew.
//! - **R-key.** No key has two cells.
//! - **R-count.** `len` counts live entries; places that are in no list are linked as vacant.
//!
//! # Why the dead are a list of the map
//! An entry leaves the map in one step, when it is handed over: taken out of the index, the list and the array, and only
//! then given away. Between two such steps the map is whole, so a callback that panics, an iterator that is dropped half-way
//! or leaked, and a value whose drop panics all leave the same thing behind: the rest, still dead, still owned by
//! the map, and first in line the next time.
//!
//! # Sources
//! Apache Storm's `RotatingMap`: generations, the default of three, and `put` as renewal. There each generation is
//! a hash map of its own, so that a look-up probes up to `n` of them, a removal too, and a put all.

mod index;
mod iter;
mod nodes;

#[cfg(test)]
mod tests;

pub use iter::{Dead, IntoIter, Iter};

use index::Index;
use nodes::{List, Nodes};
use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem;

/// Why a [`RotatingMap`] could not be made.
///
/// # Examples
///
/// ```
/// use expiry::{GenerationsError, RotatingMap};
///
/// let refused = RotatingMap::<u64, u64>::with_generations(1).unwrap_err();
/// assert_eq!(refused, GenerationsError::TooFew { generations: 1 });
/// assert_eq!(refused.to_string(), "1 generations are too few; use at least 2");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenerationsError {
    /// Fewer than two generations: an entry could die the moment it was put.
    TooFew {
        /// What was asked for.
        generations: usize,
    },
    /// More than [`RotatingMap::MAX_GENERATIONS`].
    TooMany {
        /// What was asked for.
        generations: usize,
    },
}

impl fmt::Display for GenerationsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GenerationsError::TooFew { generations } => {
                write!(f, "{generations} generations are too few; use at least 2")
            }
            GenerationsError::TooMany { generations } => write!(
                f,
                "{generations} generations are too many; use at most {MAX_GENERATIONS}, and rotate less often"
            ),
        }
    }
}

impl std::error::Error for GenerationsError {}

const MAX_GENERATIONS: usize = 1 << 16;

const DEFAULT_GENERATIONS: usize = 3;

/// A map whose entries die after `n` rotations without a [`put`](Self::put) or a [`touch`](Self::touch).
///
/// For one owner, who says when time passes: [`rotate`](Self::rotate) hands over what has died, by value. Nothing else
/// is needed, no clock, no thread, no deadline per entry; in return the time is coarse.
///
/// # How long an entry lives
///
/// An entry survives `n - 1` rotations and dies with the `n`th, counted from when it was last renewed. So if the map is
/// rotated once every `p`, an entry lives for **more than `(n - 1) * p` and at most `n * p`**. For a timeout
/// of at least `t`, rotate every `t / (n - 1)`: the default of three generations is late by up to half of `t`, eleven
/// by a tenth.
///
/// # Costs
///
/// | call | cost |
/// |---|---|
/// | `get`, `contains_key`, `age` | one search in one index, whatever `n` is |
/// | `put`, `touch`, `remove` | the same, and O(1); growing is amortised, and all at once as in `HashMap` |
/// | `rotate` | O(1), and O(1) for each entry that is handed over; the living cost nothing |
/// | iteration | O(entries + generations) |
/// | memory | besides key and value 24 bytes an entry (32 where those have no bit pattern to spare), 11 to 22 in the index; 16 a generation |
///
/// Nothing is allocated unless more entries are held than ever before (the dead that have not been handed over count), or
/// memory was given back by [`shrink_to_fit`](Self::shrink_to_fit). Nothing is given back but by that.
///
/// # Hashing
///
/// As in `HashMap`: seeded by default, so that hostile keys cost no more than others; another hasher can be
/// had, and then collisions are its affair. A key is hashed once a call; rotating and growing hash and compare nothing.
///
/// # Panics in callers' code
///
/// Whatever panics (`Hash`, `Eq`, a drop, a callback), the map stays whole, and no entry is lost or handed over
/// twice. What had died and was not handed over because of the panic comes first in the next rotation; or earlier,
/// from [`pop_dead`](Self::pop_dead).
///
/// # Example
///
/// ```
/// use expiry::RotatingMap;
///
/// let mut seen = RotatingMap::new(); // three generations
/// seen.put("a", 1);
/// seen.put("b", 2);
/// assert_eq!(seen.rotate().count(), 0);
/// assert_eq!(seen.put("a", 3), Some(1)); // renews
/// assert_eq!(seen.rotate().count(), 0);
/// assert_eq!(seen.rotate().collect::<Vec<_>>(), [("b", 2)]);
/// assert_eq!(seen.get("a"), Some(&3));
/// assert_eq!(seen.rotate_with(|key, value| println!("{key} {value} has died")), 1);
/// assert!(seen.is_empty());
/// ```
#[derive(Clone)]
pub struct RotatingMap<K, V, S = RandomState> {
    index: Index,
    nodes: Nodes<K, V>,
    /// One for each generation; that of the entries born at `b` is `b` modulo their number.
    lists: Box<[List]>,
    /// What has died and is still to be handed over, the longest dead first.
    dead: List,
    rotations: u64,
    /// `rotations` modulo the number of lists.
    youngest: usize,
    /// Live entries.
    len: usize,
    hasher: S,
}

impl<K, V> RotatingMap<K, V> {
    /// An empty map of three generations. Allocates 48 bytes.
    ///
    /// ```
    /// let mut map = expiry::RotatingMap::new();
    /// map.put("key", "value");
    /// assert_eq!(map.generations(), 3);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// An empty map of so many generations. More of them are more precise: see [the type](Self).
    ///
    /// ```
    /// use expiry::{GenerationsError, RotatingMap};
    ///
    /// let mut seen = RotatingMap::with_generations(11)?; // rotate every t / 10: late by at most a tenth
    /// seen.put("message 1", ());
    /// assert_eq!(RotatingMap::<u64, u64>::with_generations(1).err(), Some(GenerationsError::TooFew { generations: 1 }));
    /// # Ok::<(), GenerationsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`GenerationsError::TooFew`] below 2, [`GenerationsError::TooMany`] above
    /// [`MAX_GENERATIONS`](Self::MAX_GENERATIONS).
    pub fn with_generations(generations: usize) -> Result<Self, GenerationsError> {
        Self::with_generations_and_hasher(generations, RandomState::new())
    }
}

impl<K, V, S> RotatingMap<K, V, S> {
    /// Most generations there can be: a timeout to within 0.002 %.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{GenerationsError, RotatingMap};
    ///
    /// const MAX: usize = RotatingMap::<u64, u64>::MAX_GENERATIONS;
    /// let finest = RotatingMap::<u64, u64>::with_generations(MAX)?; // late by one part in 65,535
    /// assert_eq!(finest.generations(), 65_536);
    /// let finer = RotatingMap::<u64, u64>::with_generations(MAX + 1);
    /// assert_eq!(finer.err(), Some(GenerationsError::TooMany { generations: MAX + 1 }));
    /// # Ok::<(), GenerationsError>(())
    /// ```
    pub const MAX_GENERATIONS: usize = MAX_GENERATIONS;

    /// An empty map of three generations that hashes in another way.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{RandomState, RotatingMap}; // a faster one than the default, which is the standard library's
    ///
    /// let mut seen = RotatingMap::with_hasher(RandomState::default());
    /// assert_eq!(seen.put("message 1", 1), None);
    /// assert_eq!((seen.get("message 1"), seen.generations()), (Some(&1), 3));
    /// ```
    #[must_use]
    pub fn with_hasher(hasher: S) -> Self {
        Self::of(DEFAULT_GENERATIONS, hasher)
    }

    /// An empty map of so many generations that hashes in another way.
    ///
    /// # Errors
    ///
    /// As [`with_generations`](RotatingMap::with_generations).
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{GenerationsError, RandomState, RotatingMap};
    ///
    /// let mut seen = RotatingMap::with_generations_and_hasher(11, RandomState::default())?;
    /// seen.put("message 1", ());
    /// assert_eq!((0..10).map(|_| seen.rotate().count()).sum::<usize>(), 0);
    /// assert_eq!(seen.rotate().next(), Some(("message 1", ()))); // the eleventh
    /// let wrong = RotatingMap::<u64, u64, _>::with_generations_and_hasher(1, RandomState::default());
    /// assert_eq!(wrong.err(), Some(GenerationsError::TooFew { generations: 1 }));
    /// # Ok::<(), GenerationsError>(())
    /// ```
    pub fn with_generations_and_hasher(
        generations: usize,
        hasher: S,
    ) -> Result<Self, GenerationsError> {
        match generations {
            0..=1 => Err(GenerationsError::TooFew { generations }),
            2..=MAX_GENERATIONS => Ok(Self::of(generations, hasher)),
            _ => Err(GenerationsError::TooMany { generations }),
        }
    }

    fn of(generations: usize, hasher: S) -> Self {
        RotatingMap {
            index: Index::default(),
            nodes: Nodes::new(),
            lists: vec![List::EMPTY; generations].into_boxed_slice(),
            dead: List::EMPTY,
            rotations: 0,
            youngest: 0,
            len: 0,
            hasher,
        }
    }

    /// How many generations there are, `n`.
    ///
    /// ```
    /// use expiry::RotatingMap;
    ///
    /// let map = RotatingMap::<u64, u64>::with_generations(5)?;
    /// assert_eq!(map.generations(), 5);
    /// # Ok::<(), expiry::GenerationsError>(())
    /// ```
    #[must_use]
    pub fn generations(&self) -> usize {
        self.lists.len()
    }

    /// How often the map has been rotated.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// map.rotate();
    /// assert_eq!(map.rotations(), 1);
    /// ```
    #[must_use]
    pub fn rotations(&self) -> u64 {
        self.rotations
    }

    /// How it hashes.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::RotatingMap;
    /// use std::hash::BuildHasher;
    ///
    /// let requests = RotatingMap::<&str, u64>::new();
    /// let replies = RotatingMap::<&str, u64, _>::with_hasher(requests.hasher().clone()); // of the same seed
    /// assert_eq!(requests.hasher().hash_one("key"), replies.hasher().hash_one("key"));
    /// ```
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// How many entries are live. O(1).
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// assert_eq!(map.len(), 1);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no entry is live. O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::with_generations(2)?;
    /// map.put(1, "one");
    /// map.rotate();
    /// assert!(!map.is_empty());
    /// map.rotate().keep(); // dead, and not handed over
    /// assert!(map.is_empty());
    /// # Ok::<(), expiry::GenerationsError>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many live entries have seen this many rotations since they were renewed: 0 for the youngest, and none from
    /// [`generations`](Self::generations) on. O(1).
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// map.rotate();
    /// map.put(2, "two");
    /// assert_eq!([0, 1, 2].map(|age| map.generation_len(age)), [1, 1, 0]);
    /// ```
    #[must_use]
    pub fn generation_len(&self, age: usize) -> usize {
        self.list(age).len
    }

    /// How many entries have died and have not been handed over: none, unless a panic, [`Dead::keep`] or
    /// a leak came between. O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::with_generations(2)?;
    /// map.extend([(1, "one"), (2, "two")]);
    /// map.rotate();
    /// map.rotate().keep();
    /// assert_eq!((map.dead_len(), map.pop_dead(), map.dead_len()), (2, Some((1, "one")), 1));
    /// assert_eq!(map.rotate().count(), 1); // hands over the rest
    /// assert_eq!(map.dead_len(), 0);
    /// # Ok::<(), expiry::GenerationsError>(())
    /// ```
    #[must_use]
    pub fn dead_len(&self) -> usize {
        self.dead.len
    }

    /// How many entries there is room for without allocating; the dead that were not handed over count.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.reserve(100);
    /// let room = map.capacity();
    /// map.extend((0..room).map(|n| (n, "value")));
    /// assert_eq!((room >= 100, map.len(), map.capacity()), (true, room, room)); // nothing was allocated
    /// ```
    #[must_use]
    pub fn capacity(&self) -> usize {
        // The index may have cells left of the dead, of which there are no more than of these.
        self.index.capacity().min(self.nodes.capacity())
    }

    /// Makes room for this many more entries.
    ///
    /// # Panics
    ///
    /// If that would be more than 2^31 entries. [`put`](Self::put) panics likewise; the map is unchanged then.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(0, "value");
    /// map.reserve(1000);
    /// let room = map.capacity();
    /// assert!(room >= 1001);
    /// map.extend((1..=1000).map(|n| (n, "value"))); // allocates nothing
    /// assert_eq!(map.capacity(), room);
    /// ```
    pub fn reserve(&mut self, additional: usize) {
        self.nodes.reserve(additional);
        self.index.reserve(additional);
    }

    /// Gives back the memory that nothing is held in. Entries are moved: O(entries + generations). It hashes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.extend((0..1000).map(|n| (n, "a burst")));
    /// for _ in 0..3 {
    ///     map.rotate();
    /// }
    /// map.put(1000, "what is left");
    /// assert!(map.capacity() >= 1000); // kept for the next burst
    /// map.shrink_to_fit();
    /// assert!(map.capacity() < 100);
    /// assert_eq!(map.get(&1000), Some(&"what is left"));
    /// ```
    pub fn shrink_to_fit(&mut self) {
        let mut old = mem::replace(&mut self.nodes, Nodes::new());
        self.nodes.reserve(old.len());
        // What is dead is not looked for any more, so it needs no cells.
        self.index.clear();
        self.index.resize(self.len);
        self.dead = old.drain_into(&mut self.nodes, self.dead, |_, _| {});
        for list in self.lists.iter_mut() {
            let index = &mut self.index;
            *list = old.drain_into(&mut self.nodes, *list, |hash, at| index.add(hash, at));
        }
    }

    /// Drops all entries, also those that have died and were not handed over, and keeps the memory. It is no rotation.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.index.clear();
        self.lists.fill(List::EMPTY);
        self.dead = List::EMPTY;
        self.len = 0;
        self.nodes.clear();
    }

    /// Time passes: everybody is one rotation older, and the entries that nobody has renewed for `n` rotations
    /// die. Returns them by value, in the order in which they were renewed; what is not taken of them is dropped with the
    /// iterator. What an earlier rotation could not hand over comes first.
    ///
    /// None of them is in the map any more, taken or not: `get` does not find them, `put` does not meet them. If
    /// the iterator is dropped by a panic, the rest is kept: see [the type](Self). O(1), and O(1) for each.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// assert_eq!(map.rotate().count() + map.rotate().count(), 0);
    /// assert_eq!(map.rotate().collect::<Vec<_>>(), [(1, "one")]); // three times nobody has renewed it
    /// ```
    #[doc(alias = "expire")]
    pub fn rotate(&mut self) -> Dead<'_, K, V, S> {
        self.turn();
        Dead::of(self)
    }

    /// As [`rotate`](Self::rotate), and calls `dead` with each. Returns with how many.
    ///
    /// If it panics, the entry it was called with is its own affair; the rest is kept in the map, dead, and handed
    /// over first by the next rotation, or by [`pop_dead`](Self::pop_dead).
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::with_generations(2)?;
    /// map.put("a", 1);
    /// assert_eq!(map.rotate_with(|_, _| unreachable!("it survives one rotation")), 0);
    /// assert_eq!(map.rotate_with(|key, value| assert_eq!((key, value), ("a", 1))), 1);
    /// # Ok::<(), expiry::GenerationsError>(())
    /// ```
    pub fn rotate_with(&mut self, mut dead: impl FnMut(K, V)) -> usize {
        self.turn();
        let mut count = 0;
        while let Some((key, value)) = self.pop_dead() {
            count += 1;
            dead(key, value);
        }
        count
    }

    /// Hands over the entry that has been dead for longest, if a rotation has left any. For whoever wants to use the map
    /// between one and the next:
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
        let at = self.dead.first;
        if at == index::NONE {
            return None;
        }
        // It has no cell if its key was put anew.
        if let Some(cell) = self.index.find(self.nodes.hash(at), |other| other == at) {
            self.index.remove(cell);
        }
        self.nodes.unlink(&mut self.dead, at);
        self.nodes.vacate(at)
    }

    /// All live entries, the oldest generation first, and in each in the order in which they were renewed in it first.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// assert_eq!(map.iter().collect::<Vec<_>>(), [(&1, &"one")]);
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::of(&self.nodes, &self.lists, self.youngest)
    }

    /// All live entries with values to change, in no particular order. Renews nothing. O(capacity).
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, 10);
    /// for (key, value) in map.iter_mut() {
    ///     *value += key;
    /// }
    /// assert_eq!(map.get(&1), Some(&11));
    /// ```
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let (rotations, generations) = (self.rotations, self.lists.len());
        self.nodes
            .iter_mut()
            .filter(move |&(born, _)| live(rotations, born, generations))
            .map(|(_, (key, value))| (&*key, value))
    }

    /// The live entries that have seen this many rotations since they were renewed, as [`iter`](Self::iter) has them.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put("old", 1);
    /// map.rotate();
    /// map.put("new", 2);
    /// assert!(map.generation(0).eq([(&"new", &2)]) && map.generation(1).eq([(&"old", &1)]));
    /// assert!(map.iter().map(|(key, _)| *key).eq(["old", "new"]));
    /// ```
    pub fn generation(&self, age: usize) -> impl Iterator<Item = (&K, &V)> {
        Iter::of_one(&self.nodes, self.list(age))
    }

    /// A generation's list. An empty one for an age that nobody reaches.
    fn list(&self, age: usize) -> List {
        let generations = self.lists.len();
        if age >= generations {
            return List::EMPTY;
        }
        self.lists[(self.youngest + generations - age) % generations]
    }

    /// The rotation itself: whoever comes of age is appended to the dead.
    fn turn(&mut self) {
        self.rotations += 1;
        self.youngest = (self.youngest + 1) % self.lists.len();
        let list = &mut self.lists[self.youngest];
        self.len -= list.len;
        self.nodes.splice(list, &mut self.dead);
    }

    #[inline]
    fn is_live(&self, at: u32) -> bool {
        live(self.rotations, self.nodes.born(at), self.lists.len())
    }

    /// The number of the list a live entry is in: `born` modulo `n`, without a division.
    #[inline]
    fn list_of(&self, at: u32) -> usize {
        // Below n: it is live.
        let age = (self.rotations - self.nodes.born(at)) as usize;
        match self.youngest.checked_sub(age) {
            Some(list) => list,
            None => self.youngest + self.lists.len() - age,
        }
    }

    /// Moves a live entry to the youngest generation.
    #[inline]
    fn renew(&mut self, at: u32) {
        if self.nodes.born(at) == self.rotations {
            return;
        }
        let list = self.list_of(at);
        self.nodes.unlink(&mut self.lists[list], at);
        let youngest = &mut self.lists[self.youngest];
        self.nodes.push(youngest, at, self.rotations);
    }
}

/// Whether who was born then has seen fewer than so many rotations.
#[inline]
fn live(rotations: u64, born: u64, generations: usize) -> bool {
    rotations - born < generations as u64
}

impl<K: Hash + Eq, V, S: BuildHasher> RotatingMap<K, V, S> {
    /// Puts an entry into the youngest generation. If the key is there already, this renews it, and returns the old value;
    /// the old key stays, as in `HashMap::insert`.
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
            .filter(|&at| self.is_live(at));
        if let Some(at) = known {
            // First: if that panics, nothing has changed, and no old value is on its way out.
            drop(key);
            self.renew(at);
            return self
                .nodes
                .entry_mut(at)
                .map(|entry| mem::replace(&mut entry.1, value));
        }
        // All that can fail comes before all that changes anything.
        self.nodes.reserve(1);
        self.index.reserve(usize::from(cell.is_none()));
        let at = self.nodes.place(hash, (key, value));
        match cell {
            // Left of a dead entry, which keeps its place among the dead.
            Some(cell) => self.index.set_at(cell, at),
            None => self.index.add(hash, at),
        }
        self.nodes
            .push(&mut self.lists[self.youngest], at, self.rotations);
        self.len += 1;
        None
    }

    /// Renews an entry as it is: it moves to the youngest generation. False if it is not there. Moves nothing if it has
    /// been renewed since the last rotation.
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
                self.renew(at);
                true
            }
            None => false,
        }
    }

    /// An entry's value. Renews nothing.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// map.rotate();
    /// assert_eq!(map.get(&1), Some(&"one"));
    /// assert_eq!(map.age(&1), Some(1)); // a look renews nothing
    /// ```
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// An entry. Renews nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put("Ada".to_string(), 1);
    /// map.rotate();
    /// let (name, _) = map.get_key_value("Ada").unwrap(); // the map's own key
    /// assert_eq!((name, map.age("Ada")), (&"Ada".to_string(), Some(1)));
    /// ```
    #[must_use]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (_, at) = self.find(key)?;
        self.nodes.entry(at).map(|(key, value)| (key, value))
    }

    /// An entry's value, to change. Renews nothing.
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
        self.nodes.entry_mut(at).map(|(_, value)| value)
    }

    /// Whether an entry is there. Renews nothing.
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// assert!(map.contains_key(&1));
    /// ```
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
    ///
    /// ```
    /// # let mut map = expiry::RotatingMap::new();
    /// map.put(1, "one");
    /// map.rotate();
    /// assert_eq!((map.age(&1), map.age(&2)), (Some(1), None));
    /// ```
    #[must_use]
    pub fn age<Q>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (_, at) = self.find(key)?;
        Some((self.rotations - self.nodes.born(at)) as usize)
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
        // Now, not on the way out: a value that is being returned is leaked if that panics.
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
        let list = self.list_of(at);
        self.nodes.unlink(&mut self.lists[list], at);
        self.len -= 1;
        self.nodes.vacate(at)
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        index::fold(self.hasher.hash_one(key))
    }

    /// The cell of a key, be its entry live or dead.
    #[inline]
    fn cell<Q>(&self, hash: u32, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.index.find(hash, |at| {
            self.nodes
                .entry(at)
                .is_some_and(|entry| entry.0.borrow() == key)
        })
    }

    /// The cell and the place of a live key.
    #[inline]
    fn find<Q>(&self, key: &Q) -> Option<(usize, u32)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let cell = self.cell(self.hash(key), key)?;
        let at = self.index.at(cell);
        self.is_live(at).then_some((cell, at))
    }
}

impl<K, V, S: Default> Default for RotatingMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for RotatingMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// Puts each.
impl<K: Hash + Eq, V, S: BuildHasher> Extend<(K, V)> for RotatingMap<K, V, S> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.put(key, value);
        }
    }
}
