//! A shard's ring of chunks: where threads find room, and which memory goes back.
//!
//! ```text
//!   chunk    0 .. active        active .. resident            resident .. peak
//!            on the ring:       off the ring: not let go      let go, but for those set aside
//!            claimed from       yet, slots in use
//! ```
//!
//! A thread enters a chunk of the ring that has room ([`Ring::roomy`]), and adds one if a few looks
//! find none ([`Ring::add`]). The driver takes chunks off the ring when most slots are free, and
//! gives their memory back once they have drained ([`Ring::release`]).
//!
//! # Leaving a chunk that has left the ring
//!
//! A chunk in which a thread owns a block cannot be let go. So a thread that moves on out of a
//! chunk that is off the ring notifies the driver ([`Ring::leave`]):
//!
//! ```text
//!   thread                                  driver
//!   give the block back                    active := fewer              (read-modify-write)
//!   read active        (read-modify-write)  own all blocks of the chunk
//!   if the chunk is not below:              fails: set the chunk aside, until a thread asks
//!     ask the driver
//! ```
//!
//! Either the driver finds the block given back, or the thread finds the ring shortened.
//!
//! No thread uses a chunk that was let go: a thread that has just owned a block checks that its
//! chunk is on the ring ([`Ring::has`]). The driver shortens the ring before it takes the chunk's
//! blocks, so a thread that owns one after the driver finds the ring shortened.
//!
//! # Shutdown
//!
//! `peak` has the most chunks that there ever were, and a bit that closes it. A thread raises
//! `peak` before it can be in a new chunk: either a shutdown sees that chunk, or the adding thread
//! sees that the engine was shut (W8).

use super::Refused;
use crate::core::lease::State;
use crate::core::memory::OutOfMemory;
use crate::core::params::{CHUNK, LOOKS, SAMPLES};
use crate::core::slot::Payload;
use crate::core::slots::{Released, Run, Slots};
use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// How many chunks a shard gives back in one round: at most some 4 MiB.
const RELEASE_AT_ONCE: u32 = 32;

/// Bit of `peak`: the engine has shut down.
const SHUT: u32 = 1 << 31;

/// One shard's ring.
pub(super) struct Ring {
    shard: usize,
    /// Number of chunks in the ring.
    active: AtomicU32,
    /// The most chunks that there ever were, with [`SHUT`] on top once the engine has shut down.
    peak: AtomicU32,
    /// Where the next thread that needs a chunk begins to look.
    position: AtomicU32,
    /// A thread has seen that memory can go back.
    asked: AtomicBool,
    /// Number of chunks off the ring that still hold memory. Written by the driver; a statistic.
    lingering: std::sync::atomic::AtomicU32,
}

/// What a shard's driver knows of the chunks off the ring.
#[derive(Default)]
pub(super) struct Resident {
    /// Chunks from here up have been let go or never used, but for those set aside.
    end: u32,
    /// Chunks off the ring that could not be let go because a thread owns a block in them.
    aside: Vec<u32>,
}

/// What became of looking after a shard's memory.
#[derive(PartialEq, Eq)]
pub(super) enum Tended {
    All,
    /// There is more to do at once.
    More,
    /// An entry is in the way: the driver looks again in a while.
    Later,
}

impl Ring {
    pub(super) fn new(shard: usize) -> Self {
        Ring {
            shard,
            active: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            position: AtomicU32::new(0),
            asked: AtomicBool::new(false),
            lingering: std::sync::atomic::AtomicU32::new(0),
        }
    }

    /// A chunk with room, if a few looks find one, and the slot in it to begin at.
    ///
    /// The first looks go from the ring's position on, where a first-in-first-out window has freed
    /// chunks. The others are spread, so a run of long-lived entries does not hide free chunks
    /// behind it. The position stays at a chunk without room until a look finds one with room
    /// behind it: the window's tail may have yet to leave that chunk.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn roomy<P: Payload>(&self, slots: &Slots<P>, turn: u64) -> Option<(u32, usize)> {
        let roomy = |local: u32| {
            let step = (CHUNK / SAMPLES).max(1);
            let slots = slots.chunk(slots.chunk_of(self.shard, local));
            let slots = slots.unwrap_or_else(Run::empty);
            let sampled = (0..CHUNK).step_by(step).filter_map(|at| slots.get(at));
            let (mut seen, mut free, mut start) = (0, 0, None);
            for slot in sampled {
                if slot.lease().is(State::Free) {
                    free += 1;
                    // Slots before this may be in use for any length of time.
                    start = start.or(Some(seen * step));
                }
                seen += 1;
            }
            start.filter(|_| free * 4 >= seen)
        };
        for look in 0..2 * LOOKS {
            let position = self.position.load(Ordering::Relaxed);
            // survives: the segment is loaded with Acquire, and a chunk whose segment is not seen
            // yet has no room. A shutdown learns of the chunk by `peak`. (Either this Acquire or
            // the segment's may go, not both.)
            let active = self.active.load(Ordering::Acquire);
            if active == 0 {
                return None;
            }
            let local = if look < LOOKS {
                position.wrapping_add(look) % active
            } else {
                // Any of them; which does not matter, so a multiplicative hash will do.
                (turn.wrapping_add(u64::from(look)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33)
                    as u32
                    % active
            };
            if look >= active && look < LOOKS {
                continue;
            }
            if let Some(start) = roomy(local) {
                // A thread that fails takes the chunk all the same: two threads can share one.
                let _ = self.position.compare_exchange(
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

    /// Adds a chunk to the ring and returns it.
    pub(super) fn add<P: Payload>(&self, slots: &Slots<P>) -> Result<u32, Refused> {
        loop {
            // survives: the swap below confirms how many chunks are active.
            let active = self.active.load(Ordering::Acquire);
            slots
                .ensure(slots.chunk_of(self.shard, active))
                .map_err(|OutOfMemory| Refused::OutOfMemory)?;
            // Before a thread can be in it: a shutdown sees the chunk, or this the shutdown (W8).
            if self.peak.fetch_max(active + 1, Ordering::AcqRel) & SHUT != 0 {
                return Err(Refused::Closed);
            }
            // survives: without its comparison two threads share a chunk, or the driver gives one
            // back later. Its ordering is not needed: the segment, owners' swaps and `peak` have
            // their own. Any read-modify-write passes on the Release of `leave`.
            if self
                .active
                .compare_exchange(active, active + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Ok(active);
            }
        }
    }

    /// Whether this chunk, in which the thread has just owned a block, is on the ring.
    #[inline]
    pub(super) fn has(&self, local: u32) -> bool {
        // Relaxed: the swap that owns the block has acquired what the driver did before it gave
        // the block back. Model `a_chunk_taken_as_it_leaves_the_ring_goes_back` fails without this
        // look.
        local < self.active.load(Ordering::Relaxed)
    }

    /// Called when this thread has left a chunk, and owns no block in it. Returns whether the chunk
    /// is off the ring: then the driver is to look after memory.
    pub(super) fn leave(&self, local: u32) -> bool {
        // A read-modify-write: either the driver, whose swap shortens the ring after it, finds the
        // block left; or this finds the ring shortened.
        // survives: in loom the driver's swap reads the newest value, the block given back. On
        // hardware it may miss that, and no thread notifies the driver again.
        local >= self.active.fetch_add(0, Ordering::AcqRel)
    }

    /// Asks the driver to look after memory. The caller wakes the reaper afterwards.
    pub(super) fn ask(&self) {
        // Release: the driver that finds the flag finds the block left, or the end counted.
        // survives: the driver owns blocks by swaps, in which loom reads the newest value, and the
        // counters are standard atomics.
        self.asked.swap(true, Ordering::AcqRel);
    }

    pub(super) fn is_asked(&self) -> bool {
        // survives: `take_asked` swaps after it. In `wanted` the reader has changed the
        // announcement, AcqRel, after the asking thread did.
        self.asked.load(Ordering::Acquire)
    }

    /// Whether a thread has asked since the last time. Only the driver calls this.
    pub(super) fn take_asked(&self) -> bool {
        // survives: as `ask`, whose other side the swap is.
        self.is_asked() && self.asked.swap(false, Ordering::AcqRel)
    }

    /// Number of chunks to keep for so many slots in use: twice what they need, and one.
    #[allow(clippy::cast_possible_truncation)] // fewer than chunks
    fn wanted(live: u64) -> u32 {
        (live * 2 / CHUNK as u64) as u32 + 1
    }

    /// Number of chunks to keep if most of `active` ones are free. Calls `live`, which sums what
    /// all threads have counted, only if chunks could go.
    fn shrunk(active: u32, live: impl FnOnce() -> u64) -> Option<u32> {
        (active >= 4).then(|| Self::wanted(live())).filter(|&wanted| wanted < active / 2)
    }

    /// Whether a shard with so many slots in use can give memory back; approximate.
    pub(super) fn can_shrink(&self, live: impl FnOnce() -> u64) -> bool {
        Self::shrunk(self.active.load(Ordering::Relaxed), live).is_some()
    }

    /// Takes chunks off a ring that is mostly free, and calls `let_go` with chunks off the ring.
    /// Only the driver calls this. Also returns how many are left if all others have gone.
    pub(super) fn release(
        &self,
        resident: &mut Resident,
        live: impl FnOnce() -> u64,
        mut let_go: impl FnMut(u32) -> Released,
    ) -> (Tended, Option<u32>) {
        // survives: the swap that shortens the ring confirms the count, and the driver owns each
        // block of a chunk before that goes. This holds for the second load, too.
        let active = self.active.load(Ordering::Acquire);
        resident.end = resident.end.max(active);
        if let Some(wanted) = Self::shrunk(active, live) {
            // Fails if a thread adds a chunk just now: then it is not mostly free after all.
            // survives: as `leave`, its other side. The driver owns blocks after it, by swaps.
            let _ =
                self.active.compare_exchange(active, wanted, Ordering::AcqRel, Ordering::Relaxed);
        }
        let active = self.active.load(Ordering::Acquire);
        // Meanwhile it may have grown.
        resident.end = resident.end.max(active);
        let mut released = 0;
        let mut in_use = false;
        // Chunks that were set aside. What is on the ring again is left alone.
        let mut aside = std::mem::take(&mut resident.aside);
        aside.retain(|&local| {
            let seen = (local >= active).then(|| let_go(local));
            // The thread has moved on, but left a live entry: no thread will report its end.
            in_use |= seen == Some(Released::InUse);
            seen.is_some_and(|seen| seen != Released::Yes)
        });
        while resident.end > active && released < RELEASE_AT_ONCE {
            let local = resident.end - 1;
            if aside.contains(&local) {
                resident.end = local;
                continue;
            }
            match let_go(local) {
                Released::Yes => released += 1,
                // May stay for any length of time: its owner notifies the driver on leaving.
                Released::Owned => aside.push(local),
                Released::InUse => break,
            }
            resident.end = local;
        }
        resident.aside = aside;
        #[allow(clippy::cast_possible_truncation)] // fewer than chunks
        let lingering = resident.end - active + resident.aside.len() as u32;
        self.lingering.store(lingering, std::sync::atomic::Ordering::Relaxed);
        let tended = if released == RELEASE_AT_ONCE {
            Tended::More
        } else if resident.end > active || in_use {
            Tended::Later
        } else {
            Tended::All
        };
        let all_gone = released > 0 && resident.end == active;
        (tended, all_gone.then_some(active))
    }

    pub(super) fn peak(&self) -> u32 {
        // survives: the segment is loaded with Acquire, and a walk leaves out a chunk whose segment
        // it does not see. A thread that knows of an entry has read its chunk's `peak`.
        self.peak.load(Ordering::Acquire) & !SHUT
    }

    /// Closes the ring to new chunks. Returns the peak; `None` if it was closed before.
    pub(super) fn shut(&self) -> Option<u32> {
        let peak = self.peak.fetch_or(SHUT, Ordering::AcqRel);
        (peak & SHUT == 0).then_some(peak)
    }

    /// Approximate number of chunks that hold memory.
    pub(super) fn held(&self) -> u64 {
        let lingering = self.lingering.load(std::sync::atomic::Ordering::Relaxed);
        u64::from(self.active.load(Ordering::Relaxed)) + u64::from(lingering)
    }

    /// For models: the ring's number of chunks, and those used since their memory went back.
    #[cfg(expiry_loom)]
    pub(super) fn chunks<P: Payload>(&self, slots: &Slots<P>) -> (u32, Vec<u32>) {
        let used = |&local: &u32| {
            let slots = slots.chunk(slots.chunk_of(self.shard, local));
            let mut slots = slots.into_iter().flat_map(Run::iter);
            slots.any(|slot| slot.lease().0 != 0)
        };
        // survives: stronger than needed: models look when all threads have ended.
        let active = self.active.load(Ordering::Acquire);
        (active, (0..self.peak()).filter(used).collect())
    }
}
