//! Walking over all slots, a block at a time, while others come and go.

use super::{Engine, Frontend, BLOCK_U32};
use crate::core::lease::State;
use crate::core::occupancy::Occupant;
use crate::core::params::CHUNK_BLOCKS;
use crate::core::slot::{Payload, Slot};
use crate::core::slots::Run;

/// How far a walk has come.
#[derive(Default)]
struct Walk {
    shard: usize,
    /// In this shard.
    block: u32,
}

impl<P: Payload, C> Engine<P, C> {
    /// The next block of a walk: the id of its first slot, and its slots. No slot moves: an
    /// occupancy that lasts from the walk's beginning to its end is met exactly once. (A keyed
    /// entry that is replaced goes on in another slot: `core::index::walk` is for those.)
    fn next_block(&self, walk: &mut Walk) -> Option<(u32, Run<'_, P>)> {
        loop {
            if walk.shard == self.shards() {
                return None;
            }
            if walk.block >= self.blocks(walk.shard) {
                *walk = Walk { shard: walk.shard + 1, block: 0 };
                continue;
            }
            let block = self.block_at(walk.shard, walk.block);
            walk.block += 1;
            if block.is_some() {
                return block;
            }
        }
    }

    /// How many blocks of a shard there have been at most.
    pub(crate) fn blocks(&self, shard: usize) -> u32 {
        let chunks = self.shards.get(shard).map_or(0, |shard| shard.ring.peak());
        chunks * CHUNK_BLOCKS as u32
    }

    /// A shard's block: the id of its first slot, and its slots.
    pub(crate) fn block_at(&self, shard: usize, block: u32) -> Option<(u32, Run<'_, P>)> {
        let first = self.slots.block_of(shard, block) * BLOCK_U32;
        Some((first, self.slots.block(first)?))
    }

    /// Whether nothing is in use, for a caller that waits for that. [`len`](Self::len) adds up what
    /// threads have counted, one after the other. It may count an end whose beginning it was too
    /// early for, and so say 0 while an entry has been there all the time. So where it says 0, this
    /// looks at all slots.
    pub(crate) fn is_vacant(&self, frontend: &impl Frontend<P>) -> bool {
        let used = |slot: Slot<'_, P>| {
            let state = slot.lease().state();
            state.expires() || matches!(state, State::Initing | State::InitingFailed)
        };
        let mut walk = Walk::default();
        let mut blocks = std::iter::from_fn(|| self.next_block(&mut walk));
        self.len(frontend) == 0 && !blocks.any(|(_, slots)| slots.iter().any(used))
    }

    /// Calls `f` with every slot that may be in use, as it is just then. It is for operators, and
    /// O(capacity).
    pub(crate) fn for_each(&self, mut f: impl FnMut(Occupant<'_, P>)) {
        let mut walk = Walk::default();
        while let Some((first, slots)) = self.next_block(&mut walk) {
            for (id, slot) in (first..).zip(slots.iter()) {
                f(Occupant { id, slot, lease: slot.lease() });
            }
        }
    }
}
