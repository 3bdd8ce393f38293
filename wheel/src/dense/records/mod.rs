//! Records in lists of blocks, which are read and written in rows.
//!
//! A list is a chain of blocks of 256 bytes, each of which has up to fifteen records, first in,
//! first out. So to file a record is to write behind the one before it, and to go through a list is
//! to read memory in order. Blocks come from one pool and go back to it; none is ever empty in a
//! list.
//!
//! The lists come 64 to a *row*: row 0 has those outside the levels, row 1 is the finest level, the
//! last row has one list only, the overflow. A list's number, its *head*, is `row << 6 | bucket`,
//! and that is also the address of its bit.

mod broom;
#[cfg(any(test, fuzzing))]
mod check;

use super::nodes::{Nodes, Payload};
use crate::geometry::{MAX_LEVELS, ROW_BITS};
use crate::memory::{self, prefetch};

/// Level rows, the row outside the levels, and the overflow.
const MAX_ROWS: usize = MAX_LEVELS + 2;

/// The first head of the levels.
pub(super) const FIRST: u32 = 1 << ROW_BITS;

/// Records in a block: four cache lines, with the header.
const BLOCK: usize = 15;

const NONE: u32 = u32::MAX;

/// How far ahead in its block a record's node is fetched.
const AHEAD: usize = 6;

#[inline]
pub(super) fn row(head: u32) -> usize {
    (head >> ROW_BITS) as usize
}

/// Says that `id` was scheduled for `due`; dead if its node has another generation now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    pub(super) due: u64,
    pub(super) id: u32,
    pub(super) generation: u32,
}

/// Four cache lines: the header and three records in the first, four in each other one.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Block {
    /// The next block of the list, or of the pool.
    next: u32,
    /// The records are `start..end`, which is not empty in a list.
    start: u16,
    end: u16,
    records: [Record; BLOCK],
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    /// Lower bound of the dues in a level's bucket, if it is not empty.
    bound: u64,
}

/// Where the broom stands.
#[derive(Clone, Copy, Debug)]
struct Broom {
    head: u32,
    /// The block that was swept last in this list; it may have room for records of the next.
    behind: u32,
}

/// All lists of a wheel and, per row, which of them are not empty.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    blocks: Vec<Block>,
    /// None before the first id has a node: see [`make`](Lists::make).
    lists: Vec<List>,
    /// How many lists there are to be.
    heads: usize,
    occupied: [u64; MAX_ROWS],
    /// The first block of the pool.
    pool: u32,
    /// Records in all lists, dead or alive.
    records: usize,
    broom: Broom,
}

impl Lists {
    /// Empty lists for `rows` rows, the last with a single list; no memory yet.
    pub(super) fn new(rows: usize) -> Lists {
        debug_assert!((3..=MAX_ROWS).contains(&rows));
        Lists {
            blocks: Vec::new(),
            lists: Vec::new(),
            heads: ((rows - 1) << ROW_BITS) + 1,
            occupied: [0; MAX_ROWS],
            pool: NONE,
            records: 0,
            broom: Broom::START,
        }
    }

    /// Gives the lists their memory, if they have none.
    #[cold]
    pub(super) fn make(&mut self) {
        if self.lists.is_empty() {
            self.lists = vec![List::EMPTY; self.heads];
        }
    }

    /// Whether the lists have their memory. If not, no method that takes a head may be called.
    #[inline]
    pub(super) fn are_made(&self) -> bool {
        !self.lists.is_empty()
    }

    #[inline]
    pub(super) fn records(&self) -> usize {
        self.records
    }

    #[inline]
    pub(super) fn is_empty(&self, head: u32) -> bool {
        self.lists[head as usize].first == NONE
    }

    #[inline]
    pub(super) fn bound(&self, head: u32) -> u64 {
        self.lists[head as usize].bound
    }

    #[inline]
    pub(super) fn set_bound(&mut self, head: u32, bound: u64) {
        self.lists[head as usize].bound = bound;
    }

    #[inline]
    pub(super) fn any_in_row(&self, row: usize) -> bool {
        self.occupied[row] != 0
    }

    /// The first head that has a record, in rows from `row` on.
    #[inline]
    pub(super) fn first_head(&self, row: usize) -> Option<u32> {
        for row in row..MAX_ROWS {
            let bits = self.occupied[row];
            if bits != 0 {
                return Some((row as u32) << ROW_BITS | bits.trailing_zeros());
            }
        }
        None
    }

    /// The first head that has a record, from head `from` on.
    pub(super) fn first_head_from(&self, from: u32) -> Option<u32> {
        let bits = self.occupied.get(row(from))? & (u64::MAX << bucket(from));
        if bits != 0 {
            return Some(from >> ROW_BITS << ROW_BITS | bits.trailing_zeros());
        }
        self.first_head(row(from) + 1)
    }

    pub(super) fn iter(&self, head: u32) -> impl Iterator<Item = &Record> {
        let block = |at: u32| self.blocks.get(at as usize);
        let first = self.lists.get(head as usize);
        let first = first.and_then(|list| block(list.first));
        std::iter::successors(first, move |last| block(last.next)).flat_map(Block::records)
    }

    /// Appends a record and returns whether the list was empty.
    #[inline]
    pub(super) fn push(&mut self, head: u32, record: Record) -> bool {
        self.records += 1;
        let last = self.lists[head as usize].last;
        if let Some(block) = self.blocks.get_mut(last as usize) {
            if block.push(record) {
                return false;
            }
        }
        // Field by field: a whole record would go through memory.
        self.push_block(head, record.due, record.id, record.generation)
    }

    /// Appends a record in a block of its own.
    #[inline(never)]
    fn push_block(&mut self, head: u32, due: u64, id: u32, generation: u32) -> bool {
        let at = self.take_block();
        let block = &mut self.blocks[at as usize];
        block.records[0] = Record { due, id, generation };
        block.end = 1;
        let list = &mut self.lists[head as usize];
        let last = std::mem::replace(&mut list.last, at);
        match self.blocks.get_mut(last as usize) {
            Some(last) => {
                last.next = at;
                false
            }
            None => {
                list.first = at;
                self.occupied[row(head)] |= bit(head);
                true
            }
        }
    }

    /// A block without records that is in no list.
    #[inline]
    fn take_block(&mut self) -> u32 {
        let at = self.pool;
        match self.blocks.get_mut(at as usize) {
            Some(block) => {
                self.pool = block.next;
                (block.next, block.start, block.end) = (NONE, 0, 0);
                // The next one to be taken is as cold as this one was.
                self.fetch(self.pool);
                at
            }
            None => {
                // Fits: there are at most three records or so for each id, and fifteen in a block.
                let at = self.blocks.len() as u32;
                if self.blocks.len() == self.blocks.capacity() {
                    memory::reserve(&mut self.blocks, at as usize + 1);
                }
                self.blocks.push(Block::EMPTY);
                at
            }
        }
    }

    /// Gives a block that is in no list to the pool.
    #[inline]
    fn give_block(&mut self, at: u32) {
        self.blocks[at as usize].next = self.pool;
        self.pool = at;
    }

    #[inline]
    pub(super) fn first(&self, head: u32) -> Option<Record> {
        let block = self.blocks.get(self.lists[head as usize].first as usize)?;
        Some(block.records[usize::from(block.start)])
    }

    #[inline]
    pub(super) fn first_block(&self, head: u32) -> Option<Block> {
        let at = self.lists[head as usize].first;
        self.blocks.get(at as usize).cloned()
    }

    /// The records of a list that has one block.
    #[inline]
    pub(super) fn only_block(&self, head: u32) -> Option<&[Record]> {
        let List { first, last, .. } = self.lists[head as usize];
        let block = self.blocks.get(first as usize)?;
        (first == last).then(|| block.records())
    }

    /// The id of one of the next records of a list, if it is in the block of the first.
    #[inline]
    pub(super) fn ahead(&self, head: u32) -> Option<u32> {
        let block = self.blocks.get(self.lists[head as usize].first as usize)?;
        let at = usize::from(block.start) + AHEAD;
        (at < usize::from(block.end)).then(|| block.records[at].id)
    }

    #[inline]
    pub(super) fn pop(&mut self, head: u32) -> Option<Record> {
        let first = self.first(head);
        self.drop_first(head, 1);
        first
    }

    /// Forgets the first records of a list, so many of those in its first block.
    #[inline]
    pub(super) fn drop_first(&mut self, head: u32, records: usize) {
        let at = self.lists[head as usize].first;
        if let Some(block) = self.blocks.get_mut(at as usize) {
            debug_assert!(records <= block.records().len());
            self.records -= records;
            // Fits: a block has fifteen.
            block.start += records as u16;
            if block.start == block.end {
                self.shift(head);
            }
        }
    }

    /// Takes the first block of a list out, whose records are done with.
    fn shift(&mut self, head: u32) {
        let list = &mut self.lists[head as usize];
        let at = list.first;
        let next = self.blocks[at as usize].next;
        list.first = next;
        if next == NONE {
            list.last = NONE;
            self.occupied[row(head)] &= !bit(head);
        } else {
            let after = self.blocks[next as usize].next;
            self.fetch(after);
        }
        if self.broom.behind == at {
            self.broom.behind = NONE;
        }
        self.give_block(at);
    }

    /// Fetches a block ahead of time.
    #[inline]
    fn fetch(&self, at: u32) {
        if let Some(block) = self.blocks.get(at as usize) {
            for line in 0..4 {
                prefetch(&block.records[4 * line]);
            }
        }
    }

    /// Appends all of list `from` to list `to`, in order, leaving `from` empty. O(1).
    #[inline]
    pub(super) fn splice(&mut self, from: u32, to: u32) {
        let List { first, last, .. } = self.lists[from as usize];
        if first == NONE {
            return;
        }
        self.lists[from as usize] = List::EMPTY;
        self.occupied[row(from)] &= !bit(from);
        let list = &mut self.lists[to as usize];
        let before = std::mem::replace(&mut list.last, last);
        match self.blocks.get_mut(before as usize) {
            Some(before) => before.next = first,
            None => list.first = first,
        }
        self.occupied[row(to)] |= bit(to);
        if self.broom.head == from {
            self.broom = Broom { head: from + 1, behind: NONE };
        }
        let second = self.blocks[first as usize].next;
        self.fetch(second);
    }

    /// Empties all lists and keeps the memory. O(lists).
    pub(super) fn clear(&mut self) {
        while let Some(head) = self.first_head(0) {
            let List { first, last, .. } = self.lists[head as usize];
            self.lists[head as usize] = List::EMPTY;
            self.occupied[row(head)] &= !bit(head);
            self.blocks[last as usize].next = self.pool;
            self.pool = first;
        }
        self.records = 0;
        self.broom = Broom::START;
    }

    /// Allocates for so many records, wherever they go.
    pub(super) fn reserve(&mut self, records: usize) {
        let full = records / BLOCK;
        // Swept blocks are full, but for one in each list and one where the broom is.
        let blocks = records.min(full + full / 8 + 2 * self.heads);
        memory::reserve(&mut self.blocks, blocks);
    }

    /// Gives back all memory that is not needed for the records there are. O(records).
    pub(super) fn shrink(&mut self) {
        let old = std::mem::take(&mut self.blocks);
        self.pool = NONE;
        self.broom = Broom::START;
        self.blocks.reserve_exact(old.len().min(self.records / BLOCK + self.lists.len()));
        for head in 0..self.lists.len() as u32 {
            let List { first, bound, .. } =
                std::mem::replace(&mut self.lists[head as usize], List::EMPTY);
            let mut at = first;
            while let Some(block) = old.get(at as usize) {
                for record in block.records() {
                    self.records -= 1;
                    self.push(head, *record);
                }
                at = block.next;
            }
            self.set_bound(head, bound);
        }
        self.blocks.shrink_to_fit();
    }
}

impl Block {
    const EMPTY: Block = Block {
        next: NONE,
        start: 0,
        end: 0,
        records: [Record { due: 0, id: 0, generation: 0 }; BLOCK],
    };

    #[inline]
    pub(super) fn records(&self) -> &[Record] {
        &self.records[usize::from(self.start)..usize::from(self.end)]
    }

    /// Appends a record if there is room.
    #[inline]
    fn push(&mut self, record: Record) -> bool {
        let Some(place) = self.records.get_mut(usize::from(self.end)) else {
            return false;
        };
        *place = record;
        self.end += 1;
        true
    }
}

impl List {
    const EMPTY: List = List { first: NONE, last: NONE, bound: 0 };
}

impl Broom {
    const START: Broom = Broom { head: 0, behind: NONE };
}

/// A head's place in its row.
#[inline]
fn bucket(head: u32) -> u32 {
    head & ((1 << ROW_BITS) - 1)
}

/// A head's bit in its row.
#[inline]
fn bit(head: u32) -> u64 {
    1 << bucket(head)
}
