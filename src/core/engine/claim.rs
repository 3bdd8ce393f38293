//! Claiming: a free slot for a new entry.
//!
//! Mostly a slot is left in the block that the thread owns ([`super::cursor`]), and that is all.
//! Otherwise the claim is admitted ([`super::admission`]), and the cursor advances: through its
//! chunk, and then into a chunk of another shard's ring ([`super::ring`]). When it leaves a chunk
//! that is off the ring, the thread notifies the driver.

use super::cursor::Taken;
use super::ring::Ring;
use super::{Engine, Refused, Stripe};
use crate::core::occupancy::Vacant;
use crate::core::params::CHUNK;
use crate::core::slot::Payload;
use crate::core::slots::Slots;

/// After so many chunks without a slot for it a claim takes a new chunk.
const FRUITLESS: u32 = 4;

impl<P: Payload, C> Engine<P, C> {
    /// Claims a free slot for an entry with this deadline, which this thread has just computed.
    /// Lock-free; amortised over a block, one swap. If there is none, `refused` says why. The claim
    /// `needs_room` unless the caller has the entry's permits: from a [`Room`](super::Room), or of
    /// the entry whose place it takes.
    ///
    /// (Not a `Result`: the compiler would take its layout apart and put it together again.)
    #[inline(always)]
    pub(crate) fn claim(
        &self,
        stripe: &Stripe<C>,
        index: usize,
        deadline: u64,
        needs_room: bool,
        refused: &mut Refused,
    ) -> Option<Vacant<'_, P>> {
        let ahead = stripe.deadlines.ahead(deadline);
        let cell = stripe.cursor.cell(ahead);
        let free = cell.free();
        let taken = if free == 0 || self.admission.asks() {
            self.claim_further((stripe, index), ahead, needs_room, refused)?
        } else {
            cell.take(free)
        };
        let spot = self.slots.spot(taken.id)?;
        Some(Vacant::claimed(taken.id, Slots::<P>::occupancy(spot.slot, taken.base), spot))
    }

    /// [`claim`](Self::claim) from the next block, or if the claim has to be admitted.
    #[inline(never)]
    fn claim_further(
        &self,
        (stripe, index): (&Stripe<C>, usize),
        ahead: u64,
        needs_room: bool,
        refused: &mut Refused,
    ) -> Option<Taken> {
        if let Err(why) = self.admission.admit(needs_room) {
            *refused = why;
            return None;
        }
        let mut cell = stripe.cursor.cell(ahead);
        if cell.free() == 0 {
            cell = stripe.cursor.cell_to_fill(ahead);
        }
        let mut fruitless = 0;
        loop {
            let is_on_ring = |block| self.ring_of(block).has(self.slots.local_chunk(block));
            let left = |block| self.leave_chunk(block);
            let taken = stripe.cursor.advance(&self.slots, cell, is_on_ring, left);
            if let Some(taken) = taken {
                return Some(taken);
            }
            if let Err(why) = self.next_chunk(stripe, index, fruitless >= FRUITLESS) {
                if needs_room {
                    self.admission.give_back(1);
                    self.admission.wake_owed();
                }
                *refused = why;
                if let Refused::OutOfMemory = why {
                    self.admission.starves();
                }
                return None;
            }
            fruitless += 1;
        }
    }

    /// Moves the cursor into another chunk: one with room, or a `fresh` one. The thread keeps its
    /// blocks in the chunk that it leaves, and gives back all others.
    #[cold]
    fn next_chunk(&self, stripe: &Stripe<C>, index: usize, fresh: bool) -> Result<(), Refused> {
        let cursor = &stripe.cursor;
        cursor.leave_behind(&self.slots, |block| self.leave_chunk(block));
        if let Some(last) = cursor.last_slot() {
            self.leave_chunk(last);
        }
        let turn = stripe.cursor.next_turn();
        #[allow(clippy::cast_possible_truncation)]
        let at = self.shards.shard((index as u64).wrapping_add(turn) as usize);
        let ring = &self.shards[at].ring;
        // Other threads may take a chunk that samples as roomy. A fresh one ends that.
        let found = if fresh { None } else { ring.roomy(&self.slots, turn) };
        let (local, start) = match found {
            Some(place) => place,
            None => {
                let local = ring.add(&self.slots)?;
                self.admission.has_memory();
                (local, 0)
            }
        };
        let first = self.slots.chunk_of(at, local) * CHUNK;
        stripe.cursor.enter(first, start);
        Ok(())
    }

    /// Called when the thread owns a block less in the chunk of slot `id`. That chunk may be off
    /// the ring, and empty by now.
    fn leave_chunk(&self, id: u32) {
        if self.ring_of(id).leave(self.slots.local_chunk(id)) {
            self.tend_soon();
        }
    }

    fn ring_of(&self, id: u32) -> &Ring {
        &self.shards[self.shard_of(id)].ring
    }
}
