//! The cursor: where a thread looks for free slots.
//!
//! A thread walks through a chunk of slots in order. It owns one bucket of 16 after the other (one
//! swap each; see [`core::slots`](crate::core::slots)) and claims the free slots in it by plain
//! stores. In-flight windows thus become sequential memory, and a slot rests for as long as
//! possible between two occupants. At the chunk's end, or where few slots were free, the thread
//! goes on in another chunk ([`super::ring`]).
//!
//! A thread that claims no more keeps the bucket that it owns last: at most 15 slots that no other
//! thread can have, and a chunk whose memory stays.

use crate::core::params::{BUCKET, CHUNK, LONG_WALK};
use crate::core::slot::Payload;
use crate::core::slots::Slots;
use crate::core::threads::Counter;

/// See the module's head. Written by one thread at a time.
#[derive(Default)]
pub(super) struct Cursor {
    /// The first slot of the bucket that the thread owns, or looks at next.
    bucket: Counter,
    /// The end of the chunk; 0 before the first one.
    end: Counter,
    /// Whether the thread owns the bucket.
    owned: Counter,
    /// Which slots of the owned bucket are left to claim: a bit each.
    free: Counter,
    /// What the generations of the owned bucket's zeroed slots come after.
    base: Counter,
    /// How many slots of this chunk the thread has walked past, and how many of them were free.
    seen: Counter,
    found: Counter,
    /// How many chunks the thread has entered: another shard's each time.
    turn: Counter,
}

impl Cursor {
    /// The free slots of the bucket that this thread owns: a bit each; 0 if there are none.
    #[inline(always)]
    pub(super) fn free(&self) -> u64 {
        self.free.get()
    }

    /// Takes the first of the `free` slots, of which there are some. Its id.
    #[inline(always)]
    pub(super) fn take(&self, free: u64) -> u64 {
        self.free.set(free & (free - 1));
        self.bucket.get() + u64::from(free.trailing_zeros())
    }

    /// What the generation of a zeroed slot comes after that was just taken.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // bases have 32 bits
    pub(super) fn base(&self) -> u32 {
        self.base.get() as u32
    }

    /// Takes a slot in the bucket that this thread owns, unless that `is_stale`, or in the next one
    /// of its chunk that it can own. `None` at the chunk's end, and where so few slots are free
    /// that another chunk may be better.
    #[allow(clippy::cast_possible_truncation)] // a slot id or one past it; a mask has 32 bits
    pub(super) fn advance<P: Payload>(
        &self,
        slots: &Slots<P>,
        is_stale: impl Fn(u32) -> bool,
    ) -> Option<u64> {
        loop {
            let (bucket, free) = (self.bucket.get(), self.free.get());
            let stale = is_stale(bucket as u32);
            if free != 0 && !stale {
                return Some(self.take(free));
            }
            let next = self.leave_bucket(slots);
            if next >= self.end.get() || self.is_crowded() {
                return None;
            }
            if next + (BUCKET as u64) < self.end.get() {
                slots.prefetch(next as u32 + BUCKET as u32);
            }
            self.bucket.set(next);
            self.seen.add(BUCKET as u64);
            match slots.own(next as u32) {
                Some(free) => {
                    self.owned.set(1);
                    self.free.set(u64::from(free.slots));
                    self.base.set(u64::from(free.base));
                    self.found.add(u64::from(free.slots.count_ones()));
                }
                None => self.bucket.set(next + BUCKET as u64),
            }
        }
    }

    /// Gives the bucket back that this thread owns, if it does. Returns where the next one begins.
    #[allow(clippy::cast_possible_truncation)] // `bucket` is a slot id or one past it
    fn leave_bucket<P: Payload>(&self, slots: &Slots<P>) -> u64 {
        let bucket = self.bucket.get();
        if self.owned.get() == 0 {
            return bucket;
        }
        slots.leave(bucket as u32);
        self.owned.set(0);
        self.free.set(0);
        self.bucket.set(bucket + BUCKET as u64);
        bucket + BUCKET as u64
    }

    /// Whether so few of the slots that the thread has walked past were free that another chunk may
    /// be better.
    fn is_crowded(&self) -> bool {
        let (seen, found) = (self.seen.get(), self.found.get());
        seen >= LONG_WALK && found * 5 < seen
    }

    /// The last slot of the chunk that this thread walks through, or has walked through. It owns no
    /// bucket in it after [`advance`](Self::advance) has returned `None`.
    #[allow(clippy::cast_possible_truncation)] // the end is one past a slot id
    pub(super) fn last_slot(&self) -> Option<u32> {
        Some(self.end.get().checked_sub(1)? as u32)
    }

    /// Counts the chunks that this thread has entered: how many there were before.
    pub(super) fn next_turn(&self) -> u64 {
        let turn = self.turn.get();
        self.turn.add(1);
        turn
    }

    /// Enters the chunk that begins with slot `first`, at its slot `start`.
    pub(super) fn enter(&self, first: usize, start: usize) {
        self.bucket.set((first + start / BUCKET * BUCKET) as u64);
        self.end.set((first + CHUNK) as u64);
        self.seen.set(0);
        self.found.set(0);
    }
}
