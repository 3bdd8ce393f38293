//! Claiming: which slot next.
//!
//! A thread walks through a chunk of slots in order, owns one bucket of 16 after the other (one swap each; see
//! [`super::super::slots`]) and claims the free slots in it by plain stores; then it goes to the next chunk of a ring
//! that has room, another shard's each time, and adds a chunk where a few looks find none. In-flight windows
//! thus become sequential memory, and a slot rests for as long as possible between two occupants. The driver takes chunks
//! off the ring when most of the slots are free, and gives their memory back when they have drained.
//!
//! A thread that claims no more keeps the bucket that it owns last: at most 15 slots that nobody else can have, and a
//! chunk whose memory stays. When it moves on out of a chunk that has left the ring it tells the driver.

use super::{Claim, Engine, Refused, Stripe, SEVERAL, SHUT};
use crate::core::lease::State;
use crate::core::memory::OutOfMemory;
use crate::core::params::{BUCKET, CHUNK, LONG_WALK, LOOKS, SAMPLES};
use crate::core::slot::Payload;
use crate::core::slots::{Run, Slots, Spot};
use crate::sync::Ordering;

/// After how many chunks in which a claim found nothing it takes a new one.
const FRUITLESS: u32 = 4;

/// No slot: ids are smaller.
const NOTHING: u64 = u64::MAX;

/// Whether so few of the slots that a thread has walked past were free that another chunk may be better.
fn is_crowded<C>(stripe: &Stripe<C>) -> bool {
    let (seen, found) = (stripe.seen.get(), stripe.found.get());
    seen >= LONG_WALK && found * 5 < seen
}

/// Takes the first of the `free` slots, of which there are some, in the bucket that this thread owns. Its id.
#[inline(always)]
fn take<C>(stripe: &Stripe<C>, free: u64) -> u64 {
    stripe.free.set(free & (free - 1));
    stripe.hand.get() + u64::from(free.trailing_zeros())
}

impl<P: Payload, C> Engine<P, C> {
    /// Claims a free slot. Lock-free; amortised over a bucket, one swap. If there is none, `refused` says why.
    ///
    /// (Not a `Result`: its layout makes the compiler take the claim to bytes and put it together again.)
    #[inline(always)]
    pub(crate) fn claim(
        &self,
        stripe: &Stripe<C>,
        index: usize,
        refused: &mut Refused,
    ) -> Option<(Claim<'_, P>, Spot<'_, P>)> {
        self.claim_with(stripe, index, true, refused)
    }

    /// As [`claim`](Self::claim), of a slot that takes another one's place, and its room where that is bounded.
    #[inline(always)]
    pub(crate) fn claim_instead(
        &self,
        stripe: &Stripe<C>,
        index: usize,
        refused: &mut Refused,
    ) -> Option<(Claim<'_, P>, Spot<'_, P>)> {
        self.claim_with(stripe, index, false, refused)
    }

    /// Claims a slot that `needs_room` of its own, or has another one's.
    #[inline(always)]
    fn claim_with(
        &self,
        stripe: &Stripe<C>,
        index: usize,
        needs_room: bool,
        refused: &mut Refused,
    ) -> Option<(Claim<'_, P>, Spot<'_, P>)> {
        let free = stripe.free.get();
        let id = if free == 0 || stripe.lapsed.get() != 0 || self.asks.load(Ordering::Relaxed) {
            self.claim_further(stripe, index, needs_room, refused)
        } else {
            // Mostly there is one left in the bucket that this thread owns; then this is all.
            take(stripe, free)
        };
        if id == NOTHING {
            return None;
        }
        #[allow(clippy::cast_possible_truncation)] // not `NOTHING`: a slot's
        let id = id as u32;
        let spot = self.slots.spot(id)?;
        #[allow(clippy::cast_possible_truncation)] // bases have 32 bits
        let incarnation = Slots::<P>::tenancy(spot.slot, stripe.base.get() as u32);
        let slot = spot.slot;
        let claim = Claim {
            id,
            incarnation,
            slot,
        };
        Some((claim, spot))
    }

    /// As [`claim`](Self::claim), from the next bucket, or where there is more to ask. The slot's id; if [`NOTHING`],
    /// `refused` says why.
    #[inline(never)]
    fn claim_further(
        &self,
        stripe: &Stripe<C>,
        index: usize,
        needs_room: bool,
        refused: &mut Refused,
    ) -> u64 {
        if self.refusing.load(Ordering::Relaxed) {
            *refused = Refused::Closed;
            return NOTHING;
        }
        if needs_room {
            if let Err(why) = self.take_credit() {
                *refused = why;
                return NOTHING;
            }
        }
        let mut fruitless = 0;
        loop {
            if let Some(id) = self.claim_in_chunk(stripe) {
                return id;
            }
            if let Err(why) = self.next_chunk(stripe, index, fruitless >= FRUITLESS) {
                if needs_room {
                    self.return_credit();
                }
                *refused = why;
                if let Refused::OutOfMemory = why {
                    self.starves();
                }
                return NOTHING;
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
        let Some(credits) = &self.credits else {
            return;
        };
        // AcqRel for who waits, who does the same after joining: see `Room`.
        credits.fetch_add(1, Ordering::AcqRel);
        #[cfg(feature = "async")]
        if self.line.is_awaited() {
            self.line.wake_one();
        }
    }

    /// For who waits until there is room.
    #[cfg(feature = "async")]
    pub(crate) fn door(&self) -> crate::room::Door<'_> {
        crate::room::Door {
            credits: self.credits.as_deref(),
            refusing: &self.refusing,
            line: &self.line,
        }
    }

    /// Claims a slot in the bucket that this thread owns or in the next one of its chunk that it can have. `None` at the
    /// chunk's end, and where so few slots are free that another chunk may be better.
    #[allow(clippy::cast_possible_truncation)] // the hand is a slot id or one past it, a mask has 32 bits
    fn claim_in_chunk(&self, stripe: &Stripe<C>) -> Option<u64> {
        loop {
            let (hand, free) = (stripe.hand.get(), stripe.free.get());
            let stale = stripe.lapsed.get() != 0 && self.is_stale(hand as u32, stripe.lapsed.get());
            if free != 0 && !stale {
                return Some(take(stripe, free));
            }
            let next = self.leave(stripe);
            if next >= stripe.end.get() || is_crowded(stripe) {
                return None;
            }
            if next + (BUCKET as u64) < stripe.end.get() {
                self.slots.prefetch(next as u32 + BUCKET as u32);
            }
            stripe.hand.set(next);
            stripe.seen.add(BUCKET as u64);
            match self.slots.own(next as u32) {
                Some(free) => {
                    stripe.owned.set(1);
                    stripe.free.set(u64::from(free.slots));
                    stripe.base.set(u64::from(free.base));
                    stripe.found.add(u64::from(free.slots.count_ones()));
                }
                None => stripe.hand.set(next + BUCKET as u64),
            }
        }
    }

    /// Gives the bucket back that this thread owns, if it does. Returns where the next one begins.
    #[allow(clippy::cast_possible_truncation)] // the hand is a slot id or one past it
    fn leave(&self, stripe: &Stripe<C>) -> u64 {
        let hand = stripe.hand.get();
        if stripe.owned.get() == 0 {
            return hand;
        }
        self.slots.leave(hand as u32);
        stripe.owned.set(0);
        stripe.free.set(0);
        stripe.hand.set(hand + BUCKET as u64);
        hand + BUCKET as u64
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

    /// Points the hand at another chunk to walk through: one with room, or a new one. The bucket owned last has been left.
    #[cold]
    pub(super) fn next_chunk(
        &self,
        stripe: &Stripe<C>,
        index: usize,
        fresh: bool,
    ) -> Result<(), Refused> {
        self.leave_chunk(stripe);
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
        stripe.hand.set((first + start / BUCKET * BUCKET) as u64);
        stripe.end.set((first + CHUNK) as u64);
        stripe.seen.set(0);
        stripe.found.set(0);
        Ok(())
    }

    /// The thread's chunk may have left the ring, and have drained but for what it owned.
    #[allow(clippy::cast_possible_truncation)] // the end is one past a slot id
    fn leave_chunk(&self, stripe: &Stripe<C>) {
        let Some(last) = stripe.end.get().checked_sub(1) else {
            return;
        };
        let local = last as usize / CHUNK / self.shards.len();
        let shard = &self.shards[self.shard_of(last as u32)];
        // A read-modify-write: either the driver, whose swap shortens the ring after it, finds the bucket left; or this
        // finds the ring shortened.
        if local >= shard.active.fetch_add(0, Ordering::AcqRel) as usize {
            // Which one, too: the driver may have let it go while this thread was about to own a bucket in it.
            let left = local as u32 + 1;
            let before = shard.left.swap(left, Ordering::AcqRel);
            if before != 0 && before != left {
                shard.left.swap(SEVERAL, Ordering::AcqRel);
            }
            self.tend_soon();
        }
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
            let slots = self.slots.chunk(local as usize * self.shards.len() + at);
            let slots = slots.unwrap_or_else(Run::empty);
            let sampled = (0..CHUNK).step_by(step).filter_map(|at| slots.get(at));
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
                #[cfg(feature = "tracing")]
                self.starves
                    .store(false, std::sync::atomic::Ordering::Relaxed);
                return Ok(active);
            }
        }
    }

    /// An entry is refused for want of memory. Said once, until there is some again.
    #[cold]
    #[allow(clippy::unused_self)] // but for the event
    pub(super) fn starves(&self) {
        #[cfg(feature = "tracing")]
        if !self
            .starves
            .swap(true, std::sync::atomic::Ordering::Relaxed)
        {
            crate::trace::event!(ERROR, "out of memory");
        }
    }
}
