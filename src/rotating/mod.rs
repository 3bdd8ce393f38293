//! A map in generations: what is not put or touched again dies after so many rotations.
//!
//! # How it works
//! One index finds a key's entry. The entries lie in one array and are linked into a list per
//! generation. No search finds a generation: an entry keeps the number of rotations that there
//! had been when it was last renewed, `born`, and its list is `born` modulo `n`. A rotation counts
//! one up and appends the list that has come round, a whole generation, to the list of the dead:
//! four writes. `born` alone says whether an entry is dead, so no entry has to be marked.
//!
//! | module | mechanism |
//! |---|---|
//! | [`index`] | from a key's hash to an entry's place |
//! | [`nodes`] | the array of entries, and their lists |
//! | [`generations`] | which list an entry is in; live and dead |
//! | [`change`], [`look`], [`rotate`] | the calls on both |
//!
//! # Invariants
//! The validator in the tests checks each after every step.
//! - **R-list.** A live entry (`rotations - born < n`) is in the list `born % n`; any other is in
//!   the list of the dead.
//! - **R-index.** A live entry has one cell. A dead one has one or none: none once its key has been
//!   put anew.
//! - **R-key.** No key has two cells.
//! - **R-count.** `len` counts live entries; places that are in no list are linked as vacant.
//!
//! # Why the dead are a list of the map
//! An entry leaves the map in one step, when it is handed over: the map takes it out of the index,
//! the list and the array, and only then gives it away. Between two such steps the map is whole. So
//! a callback that panics, an iterator that is dropped half-way or leaked, and a value whose drop
//! panics all leave the same thing behind: the rest, still dead, still owned by the map, and first
//! in line the next time.
//!
//! # Sources
//! Apache Storm's `RotatingMap`: generations, the default of three, and `put` as renewal. There
//! each generation is a hash map of its own, so that a look-up probes up to `n` of them, a removal
//! too, and a put all.

mod change;
mod error;
mod generations;
mod index;
mod iter;
mod look;
mod nodes;
mod rotate;

#[cfg(test)]
mod tests;

pub use error::GenerationsError;
pub use iter::{IntoIter, Iter};
pub use rotate::Dead;

use error::MAX_GENERATIONS;
use generations::Generations;
use index::Index;
use std::collections::hash_map::RandomState;
use std::fmt;

const DEFAULT_GENERATIONS: usize = 3;

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
/// | call | cost |
/// |---|---|
/// | `get`, `contains_key`, `age` | one search in one index, whatever `n` is |
/// | `put`, `touch`, `remove` | the same, and O(1); growing is amortised, and all at once as in `HashMap` |
/// | `rotate` | O(1), and O(1) for each entry that is handed over; the living cost nothing |
/// | iteration | O(entries + generations) |
/// | memory | besides key and value 24 bytes an entry (32 where those have no bit pattern to spare), 11 to 22 in the index; 16 a generation |
///
/// The map allocates when it holds more entries than ever before (the dead that have not been
/// handed over count), or after [`shrink_to_fit`](Self::shrink_to_fit). No other call gives memory
/// back.
///
/// # Hashing
///
/// As in `HashMap`: seeded by default, so that hostile keys cost no more than others. With another
/// hasher, collisions are that hasher's affair. A call hashes its key once; rotating and growing
/// hash and compare nothing.
///
/// # Panics in callers' code
///
/// Whatever panics (`Hash`, `Eq`, a drop, a callback), the map stays whole, and no entry is lost or
/// handed over twice. What had died and was not handed over because of the panic comes first in the
/// next rotation; or earlier, from [`pop_dead`](Self::pop_dead).
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
    /// From a key to its entry's place.
    index: Index,
    entries: Generations<K, V>,
    hasher: S,
}

impl<K, V> RotatingMap<K, V> {
    /// An empty map of three generations. Allocates 48 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// An empty map of so many generations. More of them are more precise: see [the type](Self).
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
    pub const MAX_GENERATIONS: usize = MAX_GENERATIONS;

    /// An empty map of three generations that hashes in another way.
    #[must_use]
    pub fn with_hasher(hasher: S) -> Self {
        Self::of(DEFAULT_GENERATIONS, hasher)
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
            2..=MAX_GENERATIONS => Ok(Self::of(generations, hasher)),
            _ => Err(GenerationsError::TooMany { generations }),
        }
    }

    fn of(generations: usize, hasher: S) -> Self {
        RotatingMap { index: Index::default(), entries: Generations::new(generations), hasher }
    }

    /// How many generations there are, `n`.
    #[must_use]
    pub fn generations(&self) -> usize {
        self.entries.number()
    }

    /// How often the map has been rotated.
    #[must_use]
    pub fn rotations(&self) -> u64 {
        self.entries.rotations()
    }

    /// How it hashes.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// How many entries are live. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is live. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many live entries have seen this many rotations since they were renewed: 0 for the
    /// youngest, and none from [`generations`](Self::generations) on. O(1).
    #[must_use]
    pub fn generation_len(&self, age: usize) -> usize {
        self.entries.len_at(age)
    }

    /// How many entries have died and have not been handed over: none, unless a panic,
    /// [`Dead::keep`] or a leak came between. O(1).
    #[must_use]
    pub fn dead_len(&self) -> usize {
        self.entries.dead_len()
    }

    /// How many entries there is room for without allocating; the dead that were not handed over
    /// count.
    #[must_use]
    pub fn capacity(&self) -> usize {
        // Cells of dead entries count in the index. There are no more of them than dead entries.
        self.index.capacity().min(self.entries.capacity())
    }

    /// Makes room for this many more entries.
    ///
    /// # Panics
    ///
    /// If that would be more than 2^31 entries. [`put`](Self::put) panics likewise; the map is
    /// unchanged then.
    pub fn reserve(&mut self, additional: usize) {
        self.entries.reserve(additional);
        self.index.reserve(additional);
    }

    /// Gives back the memory that nothing is held in. Entries are moved: O(entries + generations).
    /// It hashes nothing.
    pub fn shrink_to_fit(&mut self) {
        // No call looks for dead entries, so they get no cells.
        self.index.clear();
        self.index.resize(self.entries.len());
        let index = &mut self.index;
        self.entries.compact(|hash, at| index.add(hash, at));
    }

    /// Drops all entries, also those that have died and were not handed over, and keeps the memory.
    /// It is no rotation.
    pub fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
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
