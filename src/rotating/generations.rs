//! Entries by generation: which list an entry is in, and which entries are live or dead.
//!
//! The head of [the module](super) says how generations and `born` work together (R-list, R-count).
//! An entry is named by its place in the array of nodes. A place keeps its entry until the entry
//! leaves, or [`compact`](Generations::compact) moves it.

use super::index::NONE;
use super::iter::Iter;
use super::nodes::{List, Nodes};
use std::mem;

/// All entries of a map, live and dead.
#[derive(Clone)]
pub(super) struct Generations<K, V> {
    nodes: Nodes<K, V>,
    /// A list for each generation. The entries born at `b` are in the list `b` modulo their number.
    lists: Box<[List]>,
    /// The entries that have died and are still to be handed over, the longest dead first.
    dead: List,
    rotations: u64,
    /// `rotations` modulo the number of lists.
    youngest: usize,
    /// Number of live entries.
    len: usize,
}

impl<K, V> Generations<K, V> {
    /// No entries, in so many generations.
    pub(super) fn new(generations: usize) -> Self {
        Generations {
            nodes: Nodes::new(),
            lists: vec![List::EMPTY; generations].into_boxed_slice(),
            dead: List::EMPTY,
            rotations: 0,
            youngest: 0,
            len: 0,
        }
    }

    /// Number of generations.
    pub(super) fn number(&self) -> usize {
        self.lists.len()
    }

    pub(super) fn rotations(&self) -> u64 {
        self.rotations
    }

    /// Number of live entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of live entries that have seen so many rotations.
    pub(super) fn len_at(&self, age: usize) -> usize {
        self.list(age).len
    }

    /// Number of entries that have died and have not been handed over.
    pub(super) fn dead_len(&self) -> usize {
        self.dead.len
    }

    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    pub(super) fn reserve(&mut self, additional: usize) {
        self.nodes.reserve(additional);
    }

    /// The hash that the entry was added with.
    #[inline]
    pub(super) fn hash(&self, at: u32) -> u32 {
        self.nodes.hash(at)
    }

    #[inline]
    pub(super) fn entry(&self, at: u32) -> Option<&(K, V)> {
        self.nodes.entry(at)
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, at: u32) -> Option<&mut (K, V)> {
        self.nodes.entry_mut(at)
    }

    #[inline]
    pub(super) fn is_live(&self, at: u32) -> bool {
        live(self.rotations, self.nodes.born(at), self.lists.len())
    }

    /// How many rotations there have been since a live entry was renewed.
    #[inline]
    pub(super) fn age(&self, at: u32) -> usize {
        // Fits: it is less than the number of generations.
        (self.rotations - self.nodes.born(at)) as usize
    }

    /// Adds an entry to the youngest generation. The caller has reserved its place.
    #[inline]
    pub(super) fn add(&mut self, hash: u32, entry: (K, V)) -> u32 {
        let at = self.nodes.place(hash, entry);
        self.nodes.push(&mut self.lists[self.youngest], at, self.rotations);
        self.len += 1;
        at
    }

    /// Moves a live entry to the youngest generation.
    #[inline]
    pub(super) fn renew(&mut self, at: u32) {
        if self.nodes.born(at) == self.rotations {
            return;
        }
        let list = self.list_of(at);
        self.nodes.unlink(&mut self.lists[list], at);
        let youngest = &mut self.lists[self.youngest];
        self.nodes.push(youngest, at, self.rotations);
    }

    /// Takes a live entry out.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Option<(K, V)> {
        let list = self.list_of(at);
        self.nodes.unlink(&mut self.lists[list], at);
        self.len -= 1;
        self.nodes.vacate(at)
    }

    /// Counts one rotation, and appends the generation that comes of age to the dead.
    pub(super) fn turn(&mut self) {
        self.rotations += 1;
        self.youngest = (self.youngest + 1) % self.lists.len();
        let list = &mut self.lists[self.youngest];
        self.len -= list.len;
        self.nodes.splice(list, &mut self.dead);
    }

    /// The entry that has been dead for longest.
    pub(super) fn first_dead(&self) -> Option<u32> {
        let at = self.dead.first;
        (at != NONE).then_some(at)
    }

    /// Takes a dead entry out.
    pub(super) fn remove_dead(&mut self, at: u32) -> Option<(K, V)> {
        self.nodes.unlink(&mut self.dead, at);
        self.nodes.vacate(at)
    }

    /// Moves all entries to an array of their number, and calls `moved` with the hash and the new
    /// place of each live one.
    pub(super) fn compact(&mut self, mut moved: impl FnMut(u32, u32)) {
        let mut old = mem::replace(&mut self.nodes, Nodes::new());
        self.nodes.reserve(old.len());
        self.dead = old.drain_into(&mut self.nodes, self.dead, |_, _| {});
        for list in self.lists.iter_mut() {
            *list = old.drain_into(&mut self.nodes, *list, &mut moved);
        }
    }

    /// Drops all entries, and keeps the memory. A drop may panic; the lists are empty then, too.
    pub(super) fn clear(&mut self) {
        self.lists.fill(List::EMPTY);
        self.dead = List::EMPTY;
        self.len = 0;
        self.nodes.clear();
    }

    /// The live entries, the oldest generation first.
    pub(super) fn iter(&self) -> Iter<'_, K, V> {
        Iter::of(&self.nodes, &self.lists, self.youngest)
    }

    /// The live entries that have seen so many rotations.
    pub(super) fn iter_at(&self, age: usize) -> Iter<'_, K, V> {
        Iter::of_one(&self.nodes, self.list(age))
    }

    /// The live entries in no particular order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (K, V)> {
        let (rotations, generations) = (self.rotations, self.lists.len());
        self.nodes
            .iter_mut()
            .filter(move |&(born, _)| live(rotations, born, generations))
            .map(|(_, entry)| entry)
    }

    /// The live entries by value, in no particular order. The dead are dropped.
    pub(super) fn into_live(self) -> Vec<(K, V)> {
        let mut entries = Vec::with_capacity(self.len);
        for (born, entry) in self.nodes.into_entries() {
            if live(self.rotations, born, self.lists.len()) {
                entries.push(entry);
            }
        }
        entries
    }

    /// A generation's list; an empty one for an age that no live entry has.
    fn list(&self, age: usize) -> List {
        let generations = self.lists.len();
        if age >= generations {
            return List::EMPTY;
        }
        self.lists[(self.youngest + generations - age) % generations]
    }

    /// The number of the list a live entry is in: `born` modulo `n`, without a division.
    #[inline]
    fn list_of(&self, at: u32) -> usize {
        // Below n: the entry is live.
        let age = self.age(at);
        match self.youngest.checked_sub(age) {
            Some(list) => list,
            None => self.youngest + self.lists.len() - age,
        }
    }
}

/// Whether an entry that was born then has seen fewer than so many rotations.
#[inline]
fn live(rotations: u64, born: u64, generations: usize) -> bool {
    rotations - born < generations as u64
}

#[cfg(test)]
impl<K, V> Generations<K, V> {
    /// Checks R-list and R-count. Returns the places of the live entries, and of the dead ones.
    pub(super) fn validate(&self) -> (Vec<u32>, Vec<u32>) {
        let generations = self.lists.len() as u64;
        assert_eq!(self.youngest as u64, self.rotations % generations);
        let mut live = Vec::new();
        for (number, list) in self.lists.iter().enumerate() {
            for at in self.nodes.places(list) {
                assert!(self.is_live(at), "R-list");
                assert_eq!(self.nodes.born(at) % generations, number as u64, "R-list");
                live.push(at);
            }
        }
        let dead = self.nodes.places(&self.dead);
        assert!(dead.iter().all(|at| !self.is_live(*at)), "R-list");
        assert_eq!(self.len, live.len(), "R-count");
        assert_eq!(self.nodes.len(), live.len() + dead.len(), "R-count");
        let places = live.len() + dead.len() + self.nodes.vacancies();
        assert_eq!(self.nodes.places_in_all(), places, "R-count");
        (live, dead)
    }
}
