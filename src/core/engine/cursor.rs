//! The cursor: where a thread looks for free slots.
//!
//! A thread walks through a chunk of slots in order. It owns one block of 16 after the other (one
//! swap each; see [`core::slots`](crate::core::slots)) and claims the free slots in it by plain
//! stores. So entries that begin together lie side by side, and a slot rests as long as possible
//! between two occupants. At the chunk's end, or where few slots were free, the thread goes on in
//! another chunk ([`super::ring`]).
//!
//! # Blocks by interval
//!
//! The driver looks at a block once for each deadline in it. So a thread whose entries have
//! different timeouts keeps several blocks, in *cells* that it chooses by the deadline: the 16
//! entries of a block then fall due together. A thread has one cell until it has opened [`ALONE`]
//! blocks, and for as long as its timeouts are alike. Then it has [`CELLS`]: they take no more
//! memory than it has used by then. If there are more deadlines than cells, a cell takes a range of
//! 2^`shift` ticks, which follows the range of the deadlines that come.
//!
//! # What a thread keeps
//!
//! A thread that claims no more keeps its blocks: in each cell up to 15 slots that no other thread
//! can have. They keep the memory of at most two chunks, the one that the thread walks through and
//! the one before: when it enters another chunk, it gives back the blocks elsewhere.

use crate::core::memory::boxed;
use crate::core::params::{ALONE, BLOCK, CELLS, CHUNK, LONG_WALK};
use crate::core::slot::Payload;
use crate::core::slots::Slots;
use crate::core::threads::Counter;
use std::sync::OnceLock;

/// Number of opened blocks after which a thread checks the range of its cells.
const WINDOW: u64 = 64;

/// The widest range of a cell, as a power of two of ticks: any two deadlines share it.
const WIDEST: u64 = 40;

/// A block that a thread owns, and claims slots in.
#[derive(Default)]
pub(super) struct Cell {
    /// The block's first slot, plus one; 0 if the thread owns none here.
    place: Counter,
    /// The slots of the block that are left to claim: a bit each.
    free: Counter,
    /// The generation after which the block's zeroed slots continue.
    base: Counter,
    /// The range of deadlines that the block was opened for.
    range: Counter,
}

/// A slot that a cell has given out.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) id: u32,
    /// The generation after which the slot continues, if it is zeroed.
    pub(super) base: u32,
}

impl Cell {
    #[inline(always)]
    pub(super) fn free(&self) -> u64 {
        self.free.get()
    }

    /// Takes the first of the `free` slots, of which there are some.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // a slot's number, and bases have 32 bits
    pub(super) fn take(&self, free: u64) -> Taken {
        self.free.set(free & (free - 1));
        Taken {
            id: (self.place.get() - 1 + u64::from(free.trailing_zeros())) as u32,
            base: self.base.get() as u32,
        }
    }

    /// The first slot of the block, if the thread owns one here.
    #[allow(clippy::cast_possible_truncation)] // a slot's number
    fn first(&self) -> Option<u32> {
        Some(self.place.get().checked_sub(1)? as u32)
    }

    /// Gives the block back, if the thread owns one here. Returns its first slot.
    fn give_back<P: Payload>(&self, slots: &Slots<P>) -> Option<u32> {
        let first = self.first()?;
        slots.leave(first);
        self.place.set(0);
        self.free.set(0);
        Some(first)
    }
}

/// The ranges of deadlines that have come in the current window.
#[derive(Default)]
struct Ranges {
    /// Number of blocks opened in this window.
    opened: Counter,
    /// How many of these went into a cell whose last block was for another range.
    met: Counter,
    least: Counter,
    greatest: Counter,
}

/// A thread's cells, and its place in a chunk. Written by one thread at a time.
#[derive(Default)]
pub(super) struct Cursor {
    /// The only cell, until there are more.
    one: Cell,
    more: OnceLock<Box<[Cell; CELLS]>>,
    /// A cell's range is 2^`shift` ticks.
    shift: Counter,
    ranges: Ranges,
    /// Number of blocks that the thread has opened while it had one cell.
    alone: Counter,
    /// The first slot of the block that the thread looks at next.
    next: Counter,
    /// The end of the chunk; 0 before the first chunk.
    end: Counter,
    /// How many slots of this chunk the thread has passed, and how many of them were free.
    seen: Counter,
    found: Counter,
    /// Number of chunks that the thread has entered: another shard's each time.
    turn: Counter,
}

impl Cursor {
    /// The cell for an entry that falls due so many ticks ahead.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // modulo the number of cells
    pub(super) fn cell(&self, ahead: u64) -> &Cell {
        match self.more.get() {
            None => &self.one,
            Some(more) => &more[(ahead >> self.shift.get()) as usize % CELLS],
        }
    }

    /// [`cell`](Self::cell) for a block about to be opened: the time to change the cells.
    pub(super) fn cell_to_fill(&self, ahead: u64) -> &Cell {
        let range = ahead >> self.shift.get();
        if self.more.get().is_none() {
            let last = self.one.range.get();
            self.one.range.set(range);
            // Timeouts that differ by a tick, or by a grain, are one timeout that was rounded.
            self.alone.add(1);
            if self.alone.get() < ALONE || last.abs_diff(range) <= 1 + (range >> 8) {
                return &self.one;
            }
            let Ok(more) = boxed(std::array::from_fn(|_| Cell::default())) else {
                return &self.one;
            };
            let _ = self.more.set(more);
            // The block has no free slot left: the thread gives it back when it fills the cell.
            self.cell(ahead).place.set(self.one.place.get());
            self.one.place.set(0);
        } else {
            self.count(range, self.cell(ahead));
        }
        let cell = self.cell(ahead);
        cell.range.set(ahead >> self.shift.get());
        cell
    }

    /// Counts a block that is opened in a cell for this range. Chooses wider ranges if too many
    /// share a cell, and narrower ones if they use few.
    fn count(&self, range: u64, cell: &Cell) {
        let ranges = &self.ranges;
        if ranges.opened.get() == 0 {
            ranges.met.set(0);
            ranges.least.set(range);
            ranges.greatest.set(range);
        }
        ranges.opened.add(1);
        ranges.met.add(u64::from(cell.range.get() != range));
        ranges.least.set(ranges.least.get().min(range));
        ranges.greatest.set(ranges.greatest.get().max(range));
        if ranges.opened.get() < WINDOW {
            return;
        }
        ranges.opened.set(0);
        let (shift, met) = (self.shift.get(), ranges.met.get());
        let span = ranges.greatest.get() - ranges.least.get();
        if met * 4 > WINDOW && span >= CELLS as u64 && shift < WIDEST {
            self.shift.add(1);
        } else if span < CELLS as u64 / 3 && shift > 0 {
            self.shift.sub(1);
        }
    }

    /// Takes a slot in the block of this cell, or in the next one of the chunk that the thread can
    /// own. `None` where another chunk may be better: at the chunk's end, where few slots are free,
    /// and where the chunk of an owned block is not `is_on_ring`. Calls `left` with a block of
    /// another chunk that it gives back.
    #[allow(clippy::cast_possible_truncation)] // a slot id or one past it; a mask has 32 bits
    pub(super) fn advance<P: Payload>(
        &self,
        slots: &Slots<P>,
        cell: &Cell,
        is_on_ring: impl Fn(u32) -> bool,
        left: impl Fn(u32),
    ) -> Option<Taken> {
        let free = cell.free();
        if free != 0 {
            return Some(cell.take(free));
        }
        if let Some(first) = cell.give_back(slots).filter(|&first| !self.is_here(first)) {
            left(first);
        }
        loop {
            let next = self.next.get();
            if next >= self.end.get() || self.is_crowded() {
                return None;
            }
            let further = next + BLOCK as u64;
            if further < self.end.get() {
                slots.prefetch(further as u32);
            }
            self.next.set(further);
            self.seen.add(BLOCK as u64);
            let Some(free) = slots.own(next as u32) else {
                continue;
            };
            if !is_on_ring(next as u32) {
                slots.leave(next as u32);
                return None;
            }
            self.found.add(u64::from(free.slots.count_ones()));
            if free.slots == 0 {
                slots.leave(next as u32);
                continue;
            }
            cell.place.set(next + 1);
            cell.free.set(u64::from(free.slots));
            cell.base.set(u64::from(free.base));
            return Some(cell.take(cell.free()));
        }
    }

    /// Whether few of the slots that the thread has passed were free: another chunk may be better.
    fn is_crowded(&self) -> bool {
        let (seen, found) = (self.seen.get(), self.found.get());
        seen >= LONG_WALK && found * 5 < seen
    }

    /// Gives back the blocks outside the chunk just walked through. Calls `left` with each.
    pub(super) fn leave_behind<P: Payload>(&self, slots: &Slots<P>, left: impl Fn(u32)) {
        for cell in self.more.get().into_iter().flat_map(|more| more.iter()) {
            if cell.first().is_some_and(|first| !self.is_here(first)) {
                cell.give_back(slots).into_iter().for_each(&left);
            }
        }
    }

    /// Whether a block lies in the thread's current chunk.
    fn is_here(&self, first: u32) -> bool {
        let chunk = |id: u32| id as usize / CHUNK;
        self.last_slot().map(chunk) == Some(chunk(first))
    }

    /// The last slot of the thread's current chunk.
    #[allow(clippy::cast_possible_truncation)] // the end is one past a slot id
    pub(super) fn last_slot(&self) -> Option<u32> {
        Some(self.end.get().checked_sub(1)? as u32)
    }

    /// The number of chunks that this thread has entered so far; counts one more.
    pub(super) fn next_turn(&self) -> u64 {
        let turn = self.turn.get();
        self.turn.add(1);
        turn
    }

    /// Enters the chunk that begins with slot `first`, at its slot `start`.
    pub(super) fn enter(&self, first: usize, start: usize) {
        self.next.set((first + start / BLOCK * BLOCK) as u64);
        self.end.set((first + CHUNK) as u64);
        self.seen.set(0);
        self.found.set(0);
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_cursor.rs"]
mod tests;
