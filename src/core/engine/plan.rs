//! Plans: what the driver notes of blocks whose entries are due at different times.
//!
//! When the driver has scanned a block in which several deadlines are left, it notes the tick of
//! each slot. When the block is due again, and its [dirty bit](crate::core::header::Look) is clear,
//! the driver looks only at the slots whose tick has come: at one or two cache lines instead of
//! eight. A note is a lower bound: the driver goes by the lease, and notes what it finds. Only the
//! driver of the shard touches its plans.

use crate::core::params::{BLOCK, CHUNK_BLOCKS};
use crate::core::prefetch_at;
use crate::time::NEVER;

/// The driver follows a plan for less than this many ticks. It notes a deadline that is further off
/// as this far off, and looks at the slot then.
const FAR: u64 = 1 << 30;

/// In place of a note: no deadline.
const NONE: i32 = i32::MAX;

/// In the place of the first note: the block has no plan.
const NO_PLAN: i32 = i32::MIN;

/// When the driver looks at the slots of one block, in ticks after a beginning: one cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Notes([i32; BLOCK]);

/// The notes of a chunk's blocks, and the tick after which they count.
struct Part {
    began: u64,
    blocks: Box<[Notes]>,
}

/// The plans of one shard's blocks, by their number. A chunk's memory comes with its first plan.
#[derive(Default)]
pub(super) struct Plans(Vec<Option<Part>>);

/// The plan of one block.
pub(super) struct Plan<'a> {
    began: u64,
    after: &'a mut [i32; BLOCK],
}

impl Plans {
    #[inline]
    fn place(block: u32) -> (usize, usize) {
        let block = block as usize;
        (block / CHUNK_BLOCKS, block % CHUNK_BLOCKS)
    }

    /// A block's plan, if it can be followed at `now`.
    #[inline]
    pub(super) fn get(&mut self, block: u32, now: u64) -> Option<Plan<'_>> {
        let (chunk, at) = Self::place(block);
        let Part { began, blocks } = self.0.get_mut(chunk)?.as_mut()?;
        let Notes(after) = blocks.get_mut(at)?;
        let is_near = now - *began < FAR;
        (is_near && after[0] != NO_PLAN).then_some(Plan { began: *began, after })
    }

    /// Starts fetching a block's plan. False if its chunk has none.
    #[inline]
    pub(super) fn prefetch(&self, block: u32) -> bool {
        let (chunk, at) = Self::place(block);
        let Some(Some(part)) = self.0.get(chunk) else {
            return false;
        };
        prefetch_at(&part.blocks[at]);
        true
    }

    /// Makes a plan of a block out of the deadlines of its slots ([`NEVER`]: none), all of them
    /// after `now`. If they are equal it makes none: the driver then looks at all slots at once.
    /// Returns when to look at the block again; [`NEVER`] if nothing in it expires.
    pub(super) fn make(&mut self, block: u32, now: u64, deadlines: &[u64; BLOCK]) -> u64 {
        let mut due = deadlines.iter().copied().filter(|&due| due != NEVER);
        let first = due.next().unwrap_or(NEVER);
        if due.all(|due| due == first) {
            if let Some(plan) = self.get(block, now) {
                plan.after[0] = NO_PLAN;
            }
            return first;
        }
        let (chunk, at) = Self::place(block);
        if self.0.len() <= chunk {
            self.0.resize_with(chunk + 1, || None);
        }
        let made = self.0[chunk].take().filter(|part| now - part.began < FAR);
        let new =
            || Part { began: now, blocks: vec![Notes([NO_PLAN; BLOCK]); CHUNK_BLOCKS].into() };
        let part = self.0[chunk].insert(made.unwrap_or_else(new));
        let mut plan = Plan { began: part.began, after: &mut part.blocks[at].0 };
        for (slot, &deadline) in deadlines.iter().enumerate() {
            plan.note(slot, now, deadline);
        }
        plan.earliest()
    }

    /// Drops the plans of a chunk whose memory goes back.
    pub(super) fn let_go(&mut self, chunk: u32) {
        if let Some(chunk) = self.0.get_mut(chunk as usize) {
            *chunk = None;
        }
        if self.0.last().is_some_and(Option::is_none) {
            let used = self.0.iter().rposition(Option::is_some);
            self.0.truncate(used.map_or(0, |last| last + 1));
            self.0.shrink_to_fit();
        }
    }
}

impl Plan<'_> {
    /// The slots whose time has come at `now`: a bit each.
    #[inline]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // less than `FAR`
    pub(super) fn due(&self, now: u64) -> u32 {
        let now = (now - self.began) as i32;
        (0..BLOCK).fold(0, |due, slot| due | u32::from(self.after[slot] <= now) << slot)
    }

    /// Notes the next look at a slot: at `deadline`, after `now`; none if that is [`NEVER`].
    #[inline]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // less than 2 * `FAR`
    pub(super) fn note(&mut self, slot: usize, now: u64, deadline: u64) {
        self.after[slot] = match deadline {
            NEVER => NONE,
            _ => (deadline.min(now + (FAR - 1)) - self.began) as i32,
        };
    }

    /// The tick of the first note; [`NEVER`] without a note.
    #[inline]
    #[allow(clippy::cast_sign_loss)] // after the beginning
    pub(super) fn earliest(&self) -> u64 {
        match self.after.iter().copied().min() {
            None | Some(NONE) => NEVER,
            Some(after) => self.began + after as u64,
        }
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_plan.rs"]
mod tests;
