//! What an engine and its store type hand each other, and the engine's calls to it ([`Frontend`]).

use super::{Pin, Precision, Source};
use crate::core::lease::Lease;
use crate::core::occupancy::{Ended, Occupant};
use crate::core::params::BLOCK;
use crate::core::slot::{Payload, Slot};
use crate::core::slots::Run;

/// What an engine is made with. The builders of the stores have checked it.
pub(crate) struct Config {
    pub(crate) shards: usize,
    pub(crate) precision: Precision,
    pub(crate) capacity: Option<usize>,
    pub(crate) clock: Source,
    /// Deadlines use the exact clock, whatever the coarse one's lag.
    pub(crate) exact: bool,
    pub(crate) seed: u64,
    /// A driver this many nanoseconds late takes the process as stalled; see
    /// [`pause`](super::pause).
    pub(crate) pause_grace: Option<u64>,
    /// The driver makes a fence for the threads that set leases; see [`fence`](super::fence).
    pub(crate) asymmetric: bool,
}

/// A due block, as the driver looks into it at tick `tick`, clock reading `now`.
pub(crate) struct DueBlock<'a, P: Payload> {
    pub(crate) first: u32,
    pub(crate) slots: Run<'a, P>,
    /// The block's next expiration, which the driver has taken; see
    /// [`Deadlines::of_block`](super::Deadlines::of_block).
    pub(crate) next: u64,
    pub(crate) tick: u64,
    pub(crate) now: u64,
    /// A bit for each slot that the driver has yet to see to.
    pub(crate) left: u32,
    /// When the driver looks at each slot again; `NEVER` if there is no need to.
    pub(crate) deadlines: [u64; BLOCK],
    pub(crate) ended: usize,
}

/// How much a round may do.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// Steps of work: blocks, cascades, index words, expired entries. The rest stays in its shard.
    pub(crate) budget: usize,
    /// When other stores that wait for this thread get it back. The round looks at the time after
    /// each block of a store whose handler it calls, and otherwise after every few blocks.
    pub(crate) until: Option<std::time::Instant>,
}

impl Share {
    /// A share of a thread for which no other store waits.
    pub(crate) fn of(budget: usize) -> Self {
        Share { budget: budget.max(1), until: None }
    }

    pub(super) fn is_over(self) -> bool {
        self.until.is_some_and(|until| std::time::Instant::now() >= until)
    }
}

/// What a round of the driver left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    /// The budget ran out: call again at once.
    pub(crate) more: bool,
    /// Some shards were left out: other threads drove them, or this thread is in a round already.
    pub(crate) busy: bool,
    /// The tick at which to return to the shards that were not left out, if nothing else happens.
    pub(crate) next: Option<u64>,
}

/// What the driver calls with what it finds; implemented by the store types.
pub(crate) trait Frontend<P: Payload> {
    /// What the driver holds from its look at a slot until the slot has ended.
    type Hold<'s>
    where
        Self: 's;

    /// Whether the driver may end this slot. `None` if its claimer has yet to publish it, and calls
    /// [`Engine::enforce`](super::Engine::enforce) after that.
    fn may_end(&self, live: &Occupant<'_, P>) -> Option<Self::Hold<'_>>;

    /// When this slot, whose lease ends at `deadline`, is to end: then, or earlier.
    #[inline(always)]
    fn due(&self, _live: &Occupant<'_, P>, deadline: u64) -> u64 {
        deadline
    }

    /// Whether [`expired`](Self::expired) may run the user's code. If not, one pin does for many
    /// blocks, and the driver [ends them as one](Self::end_block).
    fn runs_users_code(&self) -> bool {
        true
    }

    /// Ends the simple cases due in a block, without the user's code; the driver ends the others.
    fn end_block(&self, _pin: &Pin, _due: &mut DueBlock<'_, P>) {}

    /// Starts fetching what the driver's end of this slot will touch. `note` is the word beside it.
    fn prepare(&self, slot: Slot<'_, P>, note: &P::Note, lease: Lease);

    /// Reports this entry, which the driver has ended at clock reading `now` and which was due at
    /// `deadline`, and frees the slot. Must not panic.
    fn expired<'s>(&'s self, ended: Ended<'_, P>, hold: Self::Hold<'s>, deadline: u64, now: u64);

    /// Closes the store as [`Engine::close`](super::Engine::close) does. May be called again.
    fn close(&self);

    /// Approximate numbers of a shard's slots in use, and of keys in its index.
    fn live(&self, shard: usize) -> (u64, u64);

    /// The slot that this one leads to, where slots are forwarded.
    fn tail(&self, id: u32) -> u32 {
        id
    }

    /// How much of a bounded capacity the entry takes that is, or has ended, in a slot.
    fn weight(&self, _id: u32) -> u64 {
        1
    }

    /// Takes the payload of an ended slot that no thread looks at any more, calls `free`, and drops
    /// the payload. Must not panic.
    fn discard(&self, _slot: Slot<'_, P>, free: impl FnOnce())
    where
        Self: Sized,
    {
        free();
    }
}
