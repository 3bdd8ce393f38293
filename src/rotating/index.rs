//! Where a key's entry is: open addressing, linear probing, in one array of 8-byte cells.
//!
//! A cell keeps 32 bits of its key's hash beside the entry's place. So a probe that meets another
//! key looks at no entry, and growing or closing a gap calls no `Hash` and no `Eq`. Removal moves
//! the cells behind the gap back instead of leaving a tombstone: a map that only ever replaces
//! never rehashes.

/// In `at`: no entry.
pub(super) const NONE: u32 = u32::MAX;

/// Fewest cells there are, once there are any.
const LEAST: usize = 8;

/// 2^64 over the golden ratio: spreads hashes of which only some bits differ.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug)]
struct Cell {
    hash: u32,
    at: u32,
}

const EMPTY: Cell = Cell { hash: 0, at: NONE };

/// The 32 bits of a hash that an index works with. The high ones, which are a cell's home, depend
/// on all.
#[inline]
pub(super) fn fold(hash: u64) -> u32 {
    ((hash ^ (hash >> 32)).wrapping_mul(SPREAD) >> 32) as u32
}

/// From hashes to places. A power of two of cells, or none; at least a quarter of them empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    cells: Vec<Cell>,
    used: usize,
    /// 32 less the binary logarithm of the number of cells.
    shift: u32,
}

impl Index {
    /// How many entries there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.cells.len() / 4 * 3
    }

    /// How many cells are taken.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    #[inline]
    fn mask(&self) -> usize {
        self.cells.len() - 1
    }

    /// The cell where the search for a hash begins.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    /// The cell with this hash of whose place `is` says yes.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let mut cell = self.home(hash);
        // Ends: a quarter of the cells is empty.
        loop {
            let Cell { hash: other, at } = self.cells[cell];
            if at == NONE {
                return None;
            }
            if other == hash && is(at) {
                return Some(cell);
            }
            cell = (cell + 1) & self.mask();
        }
    }

    /// The place a cell names.
    #[inline]
    pub(super) fn at(&self, cell: usize) -> u32 {
        self.cells[cell].at
    }

    /// Lets a cell name another place.
    #[inline]
    pub(super) fn set_at(&mut self, cell: usize, at: u32) {
        self.cells[cell].at = at;
    }

    /// Adds a place. There must be [room](Self::reserve).
    #[inline]
    pub(super) fn add(&mut self, hash: u32, at: u32) {
        let mut cell = self.home(hash);
        while self.cells[cell].at != NONE {
            cell = (cell + 1) & self.mask();
        }
        self.cells[cell] = Cell { hash, at };
        self.used += 1;
    }

    /// Empties a cell and closes the gap.
    #[inline]
    pub(super) fn remove(&mut self, cell: usize) {
        let mask = self.mask();
        let mut gap = cell;
        let mut next = cell;
        loop {
            next = (next + 1) & mask;
            let Cell { hash, at } = self.cells[next];
            if at == NONE {
                break;
            }
            // It may move back to the gap unless its home lies behind that.
            let from_home = next.wrapping_sub(self.home(hash)) & mask;
            let from_gap = next.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.cells[gap] = self.cells[next];
                gap = next;
            }
        }
        self.cells[gap] = EMPTY;
        self.used -= 1;
    }

    /// Makes room for this many more.
    #[inline]
    pub(super) fn reserve(&mut self, additional: usize) {
        if self.capacity() - self.used < additional {
            self.resize(self.used.saturating_add(additional));
        }
    }

    /// Takes the fewest cells that have room for this many, and those that are used.
    #[cold]
    pub(super) fn resize(&mut self, entries: usize) {
        let entries = entries.max(self.used);
        let cells = if entries == 0 {
            0
        } else {
            let cells = entries.checked_mul(4).map(|cells| cells.div_ceil(3));
            cells.and_then(usize::checked_next_power_of_two).expect("capacity overflow").max(LEAST)
        };
        if cells == self.cells.len() {
            return;
        }
        let old = std::mem::replace(&mut self.cells, vec![EMPTY; cells]);
        self.shift = 32 - cells.max(2).trailing_zeros();
        self.used = 0;
        for cell in old.iter().filter(|cell| cell.at != NONE) {
            self.add(cell.hash, cell.at);
        }
    }

    /// Empties all cells and keeps them.
    pub(super) fn clear(&mut self) {
        self.cells.fill(EMPTY);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of pairs, with hashes that collide and wrap round the end.
        #[test]
        fn finds_what_was_added_and_nothing_else(
            steps in prop::collection::vec((any::<bool>(), 0_usize..6, 0_u32..12), 1..200),
        ) {
            let hashes = [0, 1, 1 << 29, u32::MAX, u32::MAX - 1, 7 << 29];
            let (mut index, mut model) = (Index::default(), Vec::new());
            for (add, hash, at) in steps {
                let hash = hashes[hash];
                let known = model.iter().position(|&pair| pair == (hash, at));
                let cell = index.find(hash, |other| other == at);
                prop_assert_eq!(known.is_some(), cell.is_some());
                match (add, known, cell) {
                    (true, None, None) => {
                        index.reserve(1);
                        index.add(hash, at);
                        model.push((hash, at));
                    }
                    (false, Some(known), Some(cell)) => {
                        prop_assert_eq!(index.at(cell), at);
                        index.remove(cell);
                        model.swap_remove(known);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.used(), model.len());
                prop_assert!(index.used() <= index.capacity());
                for &(hash, at) in &model {
                    prop_assert!(index.find(hash, |other| other == at).is_some());
                }
            }
        }
    }

    #[test]
    fn a_map_that_only_replaces_keeps_its_cells() {
        let mut index = Index::default();
        index.reserve(3);
        let room = index.capacity();
        for n in 0..10_000_u32 {
            index.reserve(1);
            index.add(fold(u64::from(n)), n);
            if n >= 3 {
                let cell = index.find(fold(u64::from(n - 3)), |at| at == n - 3);
                index.remove(cell.unwrap());
            }
        }
        assert_eq!(index.capacity(), room);
    }

    /// Keys whose hashes differ in a few bits only, wherever those are, do not share a home.
    #[test]
    fn hashes_that_differ_in_any_bits_are_spread() {
        for shift in 0..55 {
            let mut homes: Vec<u32> = (0..256_u64).map(|n| fold(n << shift) >> 22).collect();
            homes.sort_unstable();
            homes.dedup();
            assert!(homes.len() > 128, "{} homes at shift {shift}", homes.len());
        }
    }
}
