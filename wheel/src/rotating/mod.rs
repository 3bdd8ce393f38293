//! A map in generations: what is not put or touched again dies after so many rotations.
//!
//! Each generation is a hash map of its own, the youngest first. Renewing an entry moves it to the
//! youngest one. A rotation empties the oldest map into the list of the dead and puts it in front,
//! so that its memory is used again. Nothing else looks at an entry.
//!
//! # Why the dead are a list of the map
//! An entry leaves the list in one step, when it is handed over. So a callback that panics, and an
//! iterator that is dropped half-way or leaked, leave the same thing behind: the rest, still dead,
//! still owned by the map, and first in line the next time.
//!
//! # Sources
//! Apache Storm's `RotatingMap`: a hash map for each generation, the default of three, and `put` as
//! renewal.

mod iter;

pub use iter::{Dead, IntoIter, Iter};
use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::{fmt, mem};

const DEFAULT_GENERATIONS: usize = 3;

/// See [`RotatingMap::MAX_GENERATIONS`].
const MAX_GENERATIONS: usize = 1024;

/// A map whose entries die after `n` rotations without a [`put`](Self::put) or a
/// [`touch`](Self::touch).
///
/// For one owner, which says when time passes: [`rotate`](Self::rotate) hands over the entries that
/// have died, by value. The map needs no clock, no thread and no deadline per entry; in return the
/// time is coarse.
///
/// # How long an entry lives
///
/// An entry survives `n - 1` rotations and dies with the `n`th, counted from when it was last
/// renewed. So if the map is rotated once every `p`, an entry lives for **more than `(n - 1) * p`
/// and at most `n * p`**. For a timeout of at least `t`, rotate every `t / (n - 1)`: the default of
/// three generations is late by up to half of `t`, eleven by a tenth.
///
/// # Costs
///
/// A call with a key searches up to `n` hash maps, the youngest first; `put` and `touch` of an
/// entry that was not renewed since the last rotation move it. `rotate` costs O(1) for each entry
/// that has died. Memory is that of the hash maps; it is used again, and given back by
/// [`shrink_to_fit`](Self::shrink_to_fit).
///
/// # Panics in callers' code
///
/// What had died and was not handed over because a callback panicked comes first in the next
/// rotation; or earlier, from [`pop_dead`](Self::pop_dead). A panic of `Hash` or `Eq` may drop
/// entries, as in `HashMap`, and leaves a map that can be used.
///
/// # Example
///
/// ```
/// use expiry_wheel::RotatingMap;
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
    /// The youngest in front. A key is in one of them at most.
    generations: VecDeque<HashMap<K, V, S>>,
    /// What has died and was not handed over, the longest dead first.
    dead: VecDeque<(K, V)>,
    rotations: u64,
}

impl<K, V> RotatingMap<K, V> {
    /// An empty map of three generations.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// An empty map of so many generations. More of them are more precise, and dearer to search:
    /// see [the type](Self).
    ///
    /// # Errors
    ///
    /// [`GenerationsError::TooFew`] below 2, [`GenerationsError::TooMany`] above
    /// [`MAX_GENERATIONS`](Self::MAX_GENERATIONS).
    pub fn with_generations(generations: usize) -> Result<Self, GenerationsError> {
        Self::with_generations_and_hasher(generations, RandomState::new())
    }
}

impl<K, V, S: Clone> RotatingMap<K, V, S> {
    /// An empty map of three generations that hashes in another way.
    #[must_use]
    pub fn with_hasher(hasher: S) -> Self {
        Self::of(DEFAULT_GENERATIONS, &hasher)
    }

    /// An empty map of so many generations that hashes in another way.
    ///
    /// # Errors
    ///
    /// As [`with_generations`](RotatingMap::with_generations).
    pub fn with_generations_and_hasher(
        generations: usize,
        hasher: S,
    ) -> Result<Self, GenerationsError> {
        match generations {
            0..=1 => Err(GenerationsError::TooFew { generations }),
            2..=MAX_GENERATIONS => Ok(Self::of(generations, &hasher)),
            _ => Err(GenerationsError::TooMany { generations }),
        }
    }

    fn of(generations: usize, hasher: &S) -> Self {
        let map = || HashMap::with_hasher(hasher.clone());
        RotatingMap {
            generations: std::iter::repeat_with(map).take(generations).collect(),
            dead: VecDeque::new(),
            rotations: 0,
        }
    }
}

impl<K, V, S> RotatingMap<K, V, S> {
    /// Most generations there can be: a timeout to within 0.1 %.
    pub const MAX_GENERATIONS: usize = MAX_GENERATIONS;

    /// How many generations there are, `n`.
    #[must_use]
    pub fn generations(&self) -> usize {
        self.generations.len()
    }

    /// How often the map has been rotated.
    #[must_use]
    pub fn rotations(&self) -> u64 {
        self.rotations
    }

    /// How it hashes.
    #[must_use]
    pub fn hasher(&self) -> &S {
        self.generations[0].hasher()
    }

    /// How many entries are live. O(generations).
    #[must_use]
    pub fn len(&self) -> usize {
        self.generations.iter().map(HashMap::len).sum()
    }

    /// Whether no entry is live. O(generations).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.generations.iter().all(HashMap::is_empty)
    }

    /// How many live entries have seen this many rotations since they were renewed: 0 for the
    /// youngest, and none from [`generations`](Self::generations) on.
    #[must_use]
    pub fn generation_len(&self, age: usize) -> usize {
        self.generations.get(age).map_or(0, HashMap::len)
    }

    /// How many entries have died and have not been handed over: none, unless a panic,
    /// [`Dead::keep`] or a leak came between.
    #[must_use]
    pub fn dead_len(&self) -> usize {
        self.dead.len()
    }

    /// All live entries, the oldest generation first, each generation in no particular order.
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter::new(self)
    }

    /// All live entries with mutable values, in the order of [`iter`](Self::iter). Renews nothing.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.generations.iter_mut().rev().flatten()
    }

    /// Drops all entries, also the dead not handed over, and keeps the memory. It is no rotation.
    pub fn clear(&mut self) {
        self.generations.iter_mut().for_each(HashMap::clear);
        self.dead.clear();
    }

    /// Counts one rotation. The entries that were not renewed for `n` rotations die. Returns them
    /// by value; entries that an earlier rotation could not hand over come first. Dropping the
    /// iterator drops the entries that were not taken.
    ///
    /// A dead entry is gone, taken or not: `get` does not find it, and `put` of its key adds a new
    /// one. If a panic drops the iterator, the map keeps the rest: see [the type](Self).
    #[doc(alias = "expire")]
    pub fn rotate(&mut self) -> Dead<'_, K, V, S> {
        self.turn();
        Dead::new(self)
    }

    /// As [`rotate`](Self::rotate), and calls `dead` with each dead entry. Returns their number.
    ///
    /// If `dead` panics, the entry that it was called with is gone. The map keeps the rest, dead.
    /// The next rotation, or [`pop_dead`](Self::pop_dead), hands it over first.
    pub fn rotate_with(&mut self, mut dead: impl FnMut(K, V)) -> usize {
        self.turn();
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
    /// # let mut map = expiry_wheel::RotatingMap::with_generations(2)?;
    /// # map.put(1, "a");
    /// # map.rotate();
    /// map.rotate().keep();
    /// while let Some((key, value)) = map.pop_dead() {
    ///     map.put(key, value); // another life
    /// }
    /// # assert_eq!(map.len(), 1);
    /// # Ok::<(), expiry_wheel::GenerationsError>(())
    /// ```
    pub fn pop_dead(&mut self) -> Option<(K, V)> {
        self.dead.pop_front()
    }

    fn turn(&mut self) {
        self.rotations += 1;
        // There are two or more. The oldest, emptied, is the youngest.
        self.generations.rotate_right(1);
        self.dead.extend(self.generations[0].drain());
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> RotatingMap<K, V, S> {
    /// Puts an entry into the youngest generation. If the key has a live entry, this renews the
    /// entry and returns the old value; the old key stays, as in `HashMap::insert`.
    #[doc(alias = "insert")]
    pub fn put(&mut self, key: K, value: V) -> Option<V> {
        if self.touch(&key) {
            let now = self.generations[0].get_mut(&key)?;
            Some(mem::replace(now, value))
        } else {
            self.generations[0].insert(key, value)
        }
    }

    /// Renews an entry as it is: the entry moves to the youngest generation. Returns `false` if the
    /// key has no live entry. Moves nothing if the entry was renewed since the last rotation.
    #[doc(alias = "renew")]
    pub fn touch<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        match self.age(key) {
            Some(0) => true,
            Some(age) => {
                let (key, value) = self.generations[age].remove_entry(key).expect("it is there");
                self.generations[0].insert(key, value);
                true
            }
            None => false,
        }
    }

    /// An entry's value. Renews nothing.
    #[must_use]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.generations.iter().find_map(|map| map.get(key))
    }

    /// An entry. Renews nothing.
    #[must_use]
    pub fn get_key_value<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.generations.iter().find_map(|map| map.get_key_value(key))
    }

    /// An entry's value, as a mutable reference. Renews nothing.
    #[must_use]
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.generations.iter_mut().find_map(|map| map.get_mut(key))
    }

    /// Whether an entry is there. Renews nothing.
    #[must_use]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.age(key).is_some()
    }

    /// How many rotations there have been since an entry was renewed. It dies when that reaches
    /// [`generations`](Self::generations).
    #[must_use]
    pub fn age<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        self.generations.iter().position(|map| map.contains_key(key))
    }

    /// Takes an entry out and returns its value.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.generations.iter_mut().find_map(|map| map.remove(key))
    }

    /// Takes an entry out and returns it.
    pub fn remove_entry<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        self.generations.iter_mut().find_map(|map| map.remove_entry(key))
    }

    /// Gives back the memory that nothing is held in.
    pub fn shrink_to_fit(&mut self) {
        self.generations.iter_mut().for_each(HashMap::shrink_to_fit);
        self.dead.shrink_to_fit();
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

impl<K, V, S: Default + Clone> Default for RotatingMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for RotatingMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// Why a [`RotatingMap`] could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenerationsError {
    /// Fewer than two generations: an entry could die the moment it was put.
    TooFew {
        /// The number that was asked for.
        generations: usize,
    },
    /// More than [`RotatingMap::MAX_GENERATIONS`].
    TooMany {
        /// The number that was asked for.
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
