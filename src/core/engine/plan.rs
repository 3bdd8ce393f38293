//! What the driver remembers of buckets whose entries are due at different times.
//!
//! The driver notes, for a bucket that it has looked through and in which several deadlines are
//! left, which slot is due when, in order. When the bucket's time comes, and
//! [nothing has been put in since](crate::core::slots::Look), only the slots whose time has come
//! are looked at, one cache line instead of eight. A note is a lower bound: a slot that was touched
//! or freed meanwhile is found so when its time comes. So only the driver, which owns the plan,
//! maintains it. A plan is plain memory, made on first use, 4 bytes a slot.

use crate::core::params::{BUCKET, CHUNK_BUCKETS};
use crate::core::prefetch;
use crate::time::NEVER;

/// A slot's place in its bucket and, above it, the low bits of the tick it is due at.
#[derive(Clone, Copy, Default)]
struct Note(u32);

const SLOT_BITS: u32 = 4;
const TICK_BITS: u32 = 32 - SLOT_BITS;

/// Ticks of notes can be compared where they are less than this away. A deadline further off is
/// noted as this far off, and looked at then.
const FAR: u64 = 1 << (TICK_BITS - 1);

impl Note {
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // modulo 2^28, by design
    fn new(slot: usize, now: u64, deadline: u64) -> Self {
        let tick = deadline.min(now.saturating_add(FAR - 1));
        Note((tick as u32) << SLOT_BITS | slot as u32)
    }

    /// How many ticks it lies after `now`; 0 if it does not.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // modulo 2^28, by design
    fn ahead(self, now: u64) -> u64 {
        let ahead = (self.0 >> SLOT_BITS).wrapping_sub(now as u32) << SLOT_BITS >> SLOT_BITS;
        match u64::from(ahead) {
            ahead if ahead > FAR => 0,
            ahead => ahead,
        }
    }

    #[inline]
    fn is_due(self, now: u64) -> bool {
        self.ahead(now) == 0
    }

    #[inline]
    fn slot(self) -> usize {
        (self.0 & ((1 << SLOT_BITS) - 1)) as usize
    }
}

struct ChunkPlan {
    /// A bucket's notes, the latest first.
    notes: Box<[[Note; BUCKET]]>,
    /// How many there are. None: the bucket has no plan.
    count: Box<[u8]>,
}

/// The plans of one shard's buckets, by their number in the shard.
#[derive(Default)]
pub(super) struct Plans(Vec<Option<ChunkPlan>>);

/// One bucket's plan, to be worked off.
pub(super) struct Plan<'a> {
    notes: &'a mut [Note; BUCKET],
    count: &'a mut u8,
}

impl Plans {
    #[inline]
    fn place(bucket: u32) -> (usize, usize) {
        let bucket = bucket as usize;
        (bucket / CHUNK_BUCKETS, bucket % CHUNK_BUCKETS)
    }

    /// The plan of a bucket, if there is one.
    #[inline]
    pub(super) fn get(&mut self, bucket: u32) -> Option<Plan<'_>> {
        let (chunk, at) = Self::place(bucket);
        let chunk = self.0.get_mut(chunk)?.as_mut()?;
        let count = chunk.count.get_mut(at).filter(|count| **count != 0)?;
        Some(Plan { notes: &mut chunk.notes[at], count })
    }

    /// Starts fetching a bucket's plan. False if its chunk has none.
    #[inline]
    pub(super) fn prefetch(&self, bucket: u32) -> bool {
        let (chunk, at) = Self::place(bucket);
        match self.0.get(chunk) {
            Some(Some(chunk)) => {
                prefetch(&chunk.notes[at]);
                prefetch(&chunk.count[at]);
                true
            }
            _ => false,
        }
    }

    /// Makes a plan of a bucket out of the deadlines of its slots ([`NEVER`]: none), all of them
    /// after `now`. Not worth it if they are all the same: then so is the time to look at each.
    ///
    /// Returns when to look at the bucket again, [`NEVER`] if nothing in it is due. This goes by
    /// the bucket's plan, if it has one, which notes far deadlines as nearer ones.
    pub(super) fn make(&mut self, bucket: u32, now: u64, deadlines: &[u64; BUCKET]) -> u64 {
        let mut due = deadlines.iter().copied().filter(|&due| due != NEVER);
        let first = due.next().unwrap_or(NEVER);
        if due.all(|due| due == first) {
            self.forget(bucket);
            return first;
        }
        let (chunk, at) = Self::place(bucket);
        if self.0.len() <= chunk {
            self.0.resize_with(chunk + 1, || None);
        }
        let chunk = self.0[chunk].get_or_insert_with(|| ChunkPlan {
            notes: vec![[Note::default(); BUCKET]; CHUNK_BUCKETS].into(),
            count: vec![0; CHUNK_BUCKETS].into(),
        });
        let mut plan = Plan { notes: &mut chunk.notes[at], count: &mut chunk.count[at] };
        *plan.count = 0;
        for (slot, &deadline) in deadlines.iter().enumerate() {
            plan.note(slot, now, deadline);
        }
        plan.earliest(now)
    }

    /// Drops a bucket's plan.
    #[inline]
    pub(super) fn forget(&mut self, bucket: u32) {
        if let Some(plan) = self.get(bucket) {
            *plan.count = 0;
        }
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
    /// Whether notes can be compared at `now`, if the plan was made, or last worked off, at `then`
    /// or later.
    #[inline]
    pub(super) fn holds(then: u64, now: u64) -> bool {
        now.wrapping_sub(then) < FAR / 2
    }

    /// The slots whose time has come, the first first.
    #[inline]
    pub(super) fn due(&self, now: u64) -> impl Iterator<Item = usize> + '_ {
        let noted = &self.notes[..usize::from(*self.count)];
        let due = noted.iter().rev().take_while(move |note| note.is_due(now));
        due.map(|note| note.slot())
    }

    /// Takes the note of a slot whose time has come.
    #[inline]
    pub(super) fn pop(&mut self, now: u64) -> Option<usize> {
        let last = usize::from(*self.count).checked_sub(1)?;
        let note = self.notes.get(last).filter(|note| note.is_due(now))?;
        *self.count -= 1;
        Some(note.slot())
    }

    /// Notes that a slot, of which there is no note, is to be looked at after `now`. Not if that is
    /// [`NEVER`].
    #[inline]
    pub(super) fn note(&mut self, slot: usize, now: u64, deadline: u64) {
        if deadline == NEVER {
            return;
        }
        let note = Note::new(slot, now, deadline);
        let mut at = usize::from(*self.count);
        *self.count += 1;
        while at > 0 && self.notes[at - 1].ahead(now) < note.ahead(now) {
            self.notes[at] = self.notes[at - 1];
            at -= 1;
        }
        self.notes[at] = note;
    }

    /// When the first note is due, none of which is at `now`; [`NEVER`] if there is none.
    #[inline]
    pub(super) fn earliest(&self, now: u64) -> u64 {
        let last = usize::from(*self.count).checked_sub(1);
        last.and_then(|last| self.notes.get(last))
            .map_or(NEVER, |note| now.saturating_add(note.ahead(now)))
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_plan.rs"]
mod tests;
