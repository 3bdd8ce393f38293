//! Claiming: which slot next.
//!
//! A thread walks through a chunk of slots in order and takes the free ones; then it goes to the next chunk of a ring
//! that has room, another shard's each time, and adds a chunk where a few looks find none. In-flight windows
//! thus become sequential memory, and a slot rests for as long as possible between two tenants. The driver takes chunks
//! off the ring when most of the slots are free, and gives their memory back when they have drained.

use super::{Claim, Engine, Refused, Stripe, SHUT};
use crate::core::lease::{Lease, State};
use crate::core::params::{CHUNK, LONG_WALK, LOOKS, SAMPLES};
use crate::core::slots::OutOfMemory;
use crate::sync::Ordering;

/// How many slots ahead of the hand memory is fetched.
const AHEAD: u32 = 12;

/// After how many chunks in which a claim found nothing it takes a new one.
const FRUITLESS: u32 = 4;

impl<C> Engine<C> {
    /// Claims a free slot. Lock-free; amortised over a chunk, one compare-and-swap.
    #[inline(always)] // a `Claim` that is returned through memory costs more than claiming it
    pub(crate) fn claim(&self, stripe: &Stripe<C>, index: usize) -> Result<Claim<'_>, Refused> {
        if self.refusing.load(Ordering::Relaxed) {
            return Err(Refused::Closed);
        }
        if self.credits.is_some() {
            self.take_credit()?;
        }
        let mut fruitless = 0;
        loop {
            if let Some(claim) = self.claim_here(stripe) {
                return Ok(claim);
            }
            if let Err(refused) = self.next_chunk(stripe, index, fruitless >= FRUITLESS) {
                self.return_credit();
                return Err(refused);
            }
            fruitless += 1;
        }
    }

    /// Takes one of the free slots that a bounded capacity leaves.
    pub(super) fn take_credit(&self) -> Result<(), Refused> {
        let Some(credits) = &self.credits else {
            return Ok(());
        };
        // Not `fetch_sub`: it would dip below zero and make others see a full engine that is not.
        let mut left = credits.load(Ordering::Relaxed);
        loop {
            if left == 0 {
                return Err(Refused::Full);
            }
            match credits.compare_exchange_weak(
                left,
                left - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => left = now,
            }
        }
    }

    #[inline]
    pub(super) fn return_credit(&self) {
        if let Some(credits) = &self.credits {
            credits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Claims the next free slot of the chunk that this thread is walking through.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // the hand is a slot id or one past it
    pub(super) fn claim_here(&self, stripe: &Stripe<C>) -> Option<Claim<'_>> {
        let (first, end) = (stripe.hand.get(), stripe.end.get());
        // No further than this in one go: `next_chunk` decides whether the chunk is worth it.
        let until = end.min(first + LONG_WALK + 1);
        let mut id = first;
        while id < until {
            let slot = self.slots.slot(id as u32)?;
            let claimed = self.slots.claim(id as u32, slot);
            id += 1;
            if let Some(incarnation) = claimed {
                if stripe.lapsed.get() != 0 && self.is_stale((id - 1) as u32, stripe.lapsed.get()) {
                    slot.set_lease(Lease::free(incarnation));
                    continue;
                }
                // What this thread claims a few claims later; by then it is here, and writable.
                if let Some(ahead) = self.slots.slot(id as u32 + AHEAD) {
                    crate::core::prefetch(ahead);
                }
                stripe.hand.set(id);
                stripe.found.add(1);
                stripe.seen.add(id - first);
                return Some(Claim {
                    id: (id - 1) as u32,
                    incarnation,
                    slot,
                });
            }
        }
        stripe.hand.set(id);
        stripe.seen.add(id - first);
        None
    }

    /// Whether the bucket of slot `id` has waited for the driver for so long, at `tick`, that a deadline from now could
    /// not be told from one before it.
    #[cold]
    fn is_stale(&self, id: u32, tick: u64) -> bool {
        self.slots
            .header(id)
            .and_then(|header| header.next.get())
            .is_some_and(|next| tick.saturating_sub(next) >= super::MAX_LAPSE)
    }

    /// Points the hand at a chunk to walk through: the rest of this one, another one with room, or a new one.
    #[cold]
    pub(super) fn next_chunk(
        &self,
        stripe: &Stripe<C>,
        index: usize,
        fresh: bool,
    ) -> Result<(), Refused> {
        let (seen, found) = (stripe.seen.get(), stripe.found.get());
        let crowded = seen >= LONG_WALK && found * 5 < seen;
        if !crowded && !fresh && stripe.hand.get() < stripe.end.get() {
            return Ok(());
        }
        let turn = stripe.turn.get();
        stripe.turn.add(1);
        #[allow(clippy::cast_possible_truncation)]
        let at = (index as u64).wrapping_add(turn) as usize & (self.shards.len() - 1);
        // What samples as roomy may be taken by others, or have waited for the driver too long. A new one ends that.
        let found = if fresh {
            None
        } else {
            self.roomy_chunk(at, turn)
        };
        let (local, start) = match found {
            Some(place) => place,
            None => (self.add_chunk(at)?, 0),
        };
        let first = (local as usize * self.shards.len() + at) * CHUNK;
        stripe.hand.set((first + start) as u64);
        stripe.end.set((first + CHUNK) as u64);
        stripe.seen.set(0);
        stripe.found.set(0);
        Ok(())
    }

    /// A chunk of the shard's ring with room in it, if a few looks find one.
    ///
    /// First from the ring's position on, which is where a first-in-first-out window has freed chunks, then here
    /// and there, so that a run of long-lived entries does not hide free chunks behind it. The position moves past
    /// chunks without room only when one with room lies behind them: if the window's tail has not left
    /// the chunk at the position yet, that chunk is what comes next.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn roomy_chunk(&self, at: usize, turn: u64) -> Option<(u32, usize)> {
        let shard = &self.shards[at];
        let roomy = |local: u32| {
            let step = (CHUNK / SAMPLES).max(1);
            let slots = self
                .slots
                .chunk(local as usize * self.shards.len() + at)
                .unwrap_or_default();
            let sampled = slots.iter().step_by(step);
            let (mut seen, mut free, mut start) = (0, 0, None);
            for slot in sampled {
                if slot.lease().state() == State::Free {
                    free += 1;
                    // Where to begin: what lies before it may be taken for as long as it likes.
                    start = start.or(Some(seen * step));
                }
                seen += 1;
            }
            start.filter(|_| free * 4 >= seen)
        };
        for look in 0..2 * LOOKS {
            let position = shard.ring.load(Ordering::Relaxed);
            let active = shard.active.load(Ordering::Acquire);
            if active == 0 {
                return None;
            }
            let local = if look < LOOKS {
                position.wrapping_add(look) % active
            } else {
                // Any of them; which does not matter, so a multiplicative hash will do.
                (turn
                    .wrapping_add(u64::from(look))
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                    >> 33) as u32
                    % active
            };
            if look >= active && look < LOOKS {
                continue;
            }
            if let Some(start) = roomy(local) {
                // Whoever fails takes it all the same: two threads can share a chunk.
                let _ = shard.ring.compare_exchange(
                    position,
                    (local + 1) % active,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                return Some((local, start));
            }
        }
        None
    }

    /// Adds a chunk to a shard's ring and returns it.
    pub(super) fn add_chunk(&self, at: usize) -> Result<u32, Refused> {
        let shard = &self.shards[at];
        loop {
            let active = shard.active.load(Ordering::Acquire);
            self.slots
                .ensure(active as usize * self.shards.len() + at)
                .map_err(|OutOfMemory| Refused::OutOfMemory)?;
            // Before anybody can be in it: who shuts down either sees it, or we see that it was shut (W8).
            if shard.peak.fetch_max(active + 1, Ordering::AcqRel) & SHUT != 0 {
                return Err(Refused::Closed);
            }
            if shard
                .active
                .compare_exchange(active, active + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Ok(active);
            }
        }
    }
}
