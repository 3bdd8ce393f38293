//! Walking over all slots, a block at a time, while others come and go.

use super::{Engine, Frontend};
use crate::core::lease::{set, State, EXPIRING};
use crate::core::occupancy::Occupant;
use crate::core::params::{BLOCK_U32, CHUNK_BLOCKS};
use crate::core::slot::{Payload, Slot};
use crate::core::slots::Run;

impl<P: Payload, C> Engine<P, C> {
    /// Each block: the id of its first slot, and its slots. An occupancy that lasts throughout is
    /// met exactly once. (A replaced keyed entry changes its slot: see `core::index::walk`.)
    fn each_block(&self) -> impl Iterator<Item = (u32, Run<'_, P>)> {
        (0..self.shards()).flat_map(move |shard| {
            (0..self.blocks(shard)).filter_map(move |block| self.block_at(shard, block))
        })
    }

    /// One past the greatest number of a chunk that there ever was. A thread takes its chunks from
    /// one shard after the other, so mostly it fills them in the order of their numbers.
    pub(crate) fn chunks_ever(&self) -> usize {
        let most = self.shards.iter().map(|shard| shard.ring.peak()).max();
        most.unwrap_or(0) as usize * self.shards.len()
    }

    /// The number of the nearest chunk that there ever was: from this number `up`, or below it.
    pub(crate) fn chunk_from(&self, from: usize, up: bool) -> Option<usize> {
        let shards = self.shards.len();
        let is_there =
            |&chunk: &usize| chunk / shards < self.shards[chunk % shards].ring.peak() as usize;
        match up {
            true => (from..self.chunks_ever()).find(is_there),
            false => (0..from).rfind(is_there),
        }
    }

    /// The most blocks that a shard ever had.
    pub(crate) fn blocks(&self, shard: usize) -> u32 {
        let chunks = self.shards.get(shard).map_or(0, |shard| shard.ring.peak());
        chunks * CHUNK_BLOCKS as u32
    }

    /// A shard's block: the id of its first slot, and its slots.
    pub(crate) fn block_at(&self, shard: usize, block: u32) -> Option<(u32, Run<'_, P>)> {
        let first = self.slots.block_of(shard, block) * BLOCK_U32;
        Some((first, self.slots.block(first)?))
    }

    /// Whether nothing is in use, for a caller that waits for that. [`len`](Self::len) reads what
    /// threads have counted, one after the other. It may count an end but miss its beginning, and
    /// so say 0 while an entry has been there all the time. So at 0, this looks at all slots.
    pub(crate) fn is_vacant(&self, frontend: &impl Frontend<P>) -> bool {
        let used = |slot: Slot<'_, P>| {
            slot.lease().is_in(EXPIRING | set(&[State::Initing, State::InitingFailed]))
        };
        self.len(frontend) == 0 && !self.each_block().any(|(_, slots)| slots.iter().any(used))
    }

    /// Calls `f` with every slot that may be in use, as it is then. O(capacity).
    pub(crate) fn for_each<'s>(&'s self, mut f: impl FnMut(Occupant<'s, P>)) {
        for (first, slots) in self.each_block() {
            for (id, slot) in (first..).zip(slots.iter()) {
                f(Occupant { id, slot, lease: slot.lease() });
            }
        }
    }
}
