//! Claiming: a free slot for a new entry.
//!
//! Mostly a slot is left in the block that the thread owns ([`super::cursor`]), and that is all.
//! Else the claim is admitted ([`super::admission`]), and the cursor advances: through its chunk,
//! and then into a chunk of another shard's ring ([`super::ring`]). When it moves on out of a chunk
//! that has left the ring, the thread notifies the driver.

use super::cursor::Taken;
use super::ring::Ring;
use super::{Engine, Refused, Stripe};
use crate::core::occupancy::Vacant;
use crate::core::params::CHUNK;
use crate::core::slot::Payload;
use crate::core::slots::Slots;

/// After how many chunks in which a claim found nothing it takes a new one.
const FRUITLESS: u32 = 4;

impl<P: Payload, C> Engine<P, C> {
    /// Claims a free slot for an entry with this deadline, which this thread has just computed.
    /// Lock-free; amortised over a block, one swap. If there is none, `refused` says why.
    ///
    /// It `needs_room` unless the caller has the entry's permits: from a [`Room`](super::Room), or
    /// of the entry whose place it takes.
    ///
    /// (Not a `Result`: its layout makes the compiler take the claim to bytes and put it together
    /// again.)
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
            // Mostly there is one left in the block that this thread owns; then this is all.
            cell.take(free)
        };
        let spot = self.slots.spot(taken.id)?;
        Some(Vacant::claimed(taken.id, Slots::<P>::occupancy(spot.slot, taken.base), spot))
    }

    /// As [`claim`](Self::claim), from the next block, or where there is more to ask. If there is
    /// no slot, `refused` says why.
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
    /// blocks in the chunk that it has walked through, and gives back all others.
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
        // A chunk that samples as roomy may be taken by others. A fresh one ends that.
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

    /// The thread owns a block less in the chunk of slot `id`. That chunk may have left the ring,
    /// and be empty but for what the thread owned.
    fn leave_chunk(&self, id: u32) {
        if self.ring_of(id).leave(self.slots.local_chunk(id)) {
            self.tend_soon();
        }
    }

    /// The ring of the shard that slot `id` lies in.
    fn ring_of(&self, id: u32) -> &Ring {
        &self.shards[self.shard_of(id)].ring
    }
}
