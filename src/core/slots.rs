//! The slot store: slots that never move, in segments that are mapped on demand.
//!
//! # Shape
//!
//! 16 slots are a block, which is what a wheel schedules. 256 blocks are a chunk: a thread walks
//! through a chunk in search of free slots, and the driver gives memory back by chunks. The store
//! maps segments of 1, 1, 2, 4, ... chunks for each shard. A slot's 32-bit id is its place, so
//! looking it up is arithmetic and one load of the segment's address. Slots, block headers, notes
//! and terms are all valid when zeroed. So mapping a segment is a few system calls, whatever its
//! size, and touches none of its pages: growth pauses no thread.
//!
//! # Memory safety of slot reuse
//!
//! Segments are unmapped only when the engine is dropped. So a reference to a slot is always valid.
//! What remains to be shown is that no thread acts on an occupant that is not its own:
//!
//! * A thread **owns** a block before it claims slots in it: one swap of the header's flag for 16
//!   claims. While it owns the block, no other thread claims slots there, so its own claims are
//!   plain stores. Ending (`X -> DEAD`) is a compare-and-swap on the lease: one winner.
//! * From claim to publication the claimer alone writes the slot, from end to `FREE` the winner.
//! * The store type says what else threads may do to an occupant (`ack::trees`, `keyed`).
//!
//! # Giving memory back
//!
//! First the driver takes every block of the chunk; if another thread owns one, it gives the rest
//! back and stops. Then it finds every slot free, raises the chunk's base generation above all that
//! the slots have had, and lets the pages go. From then on they read as zeroes, which is `FREE`;
//! the headers stay. At last it gives the blocks back. The next thread that owns one counts
//! generations from the base.

use super::header::Header;
use super::lease::{next_generation, State, GENERATION_BITS};
use super::memory::{boxed, OutOfMemory, Zeroed};
use super::params::{BLOCK, CHUNK, CHUNK_BLOCKS, SEGMENTS};
use super::prefetch_at;
pub(crate) use super::run::Run;
use super::slot::{copies, units, Note as _, Payload, Slot, Unit};
use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// A run of chunks, mapped together.
pub(crate) struct Segment<P: Payload> {
    slots: Zeroed<Unit<P>>,
    headers: Zeroed<Header>,
    notes: Zeroed<P::Note>,
    terms: Zeroed<P::Term>,
    /// Per chunk: the greatest generation that its slots had before its memory was last given back.
    bases: Box<[AtomicU32]>,
}

impl<P: Payload> Segment<P> {
    /// The first segment takes small pages until there is a second one: a store with a few entries
    /// would otherwise take 2 MiB with the first of them.
    fn map(chunks: usize, first: bool) -> Result<Self, OutOfMemory> {
        let mut bases = Vec::new();
        // With its exact capacity the vector becomes a box without a new allocation.
        bases.try_reserve_exact(chunks).map_err(|_| OutOfMemory)?;
        bases.extend((0..chunks).map(|_| AtomicU32::new(0)));
        let slots = Zeroed::map(chunks * CHUNK * units::<P>())?;
        slots.use_huge_pages(!first);
        Ok(Segment {
            slots,
            headers: Zeroed::map(chunks * CHUNK_BLOCKS)?,
            notes: Zeroed::map(chunks * CHUNK)?,
            terms: Zeroed::map(chunks * CHUNK)?,
            bases: bases.into(),
        })
    }
}

/// The free slots of a block that the caller owns.
#[derive(Clone, Copy, Default)]
pub(crate) struct Free {
    /// A bit for each slot that is free.
    pub(crate) slots: u32,
    /// The generation after which zeroed slots continue.
    pub(crate) base: u32,
}

/// What became of [`Slots::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    Yes,
    /// A slot is in use.
    InUse,
    /// No used slot has been seen, but a thread owns one of the blocks, for as long as it likes.
    Owned,
}

/// Where slot 0, its header, its note and its term would lie if the segment began with them: an
/// address is the origin plus the id times a size. Null until the segment exists.
struct Origin<P: Payload> {
    slots: AtomicPtr<Unit<P>>,
    headers: AtomicPtr<Header>,
    notes: AtomicPtr<P::Note>,
    terms: AtomicPtr<P::Term>,
}

/// A slot and what belongs to it.
pub(crate) struct Spot<'a, P: Payload> {
    pub(crate) slot: Slot<'a, P>,
    pub(crate) header: &'a Header,
    pub(crate) note: &'a P::Note,
    pub(crate) term: &'a P::Term,
}

copies!(Spot);

/// The slots of an engine. Ids are `chunk * CHUNK + position`; chunk `c` is of shard `c % shards`.
pub(crate) struct Slots<P: Payload> {
    /// Indexed by log2 of `chunk + shards`: one load and one sum find a slot.
    origins: [Origin<P>; ORIGINS],
    /// The slots' origin again, for each of the first chunks: a look-up needs no logarithm.
    near: [AtomicPtr<Unit<P>>; NEAR],
    /// Segment 0 holds `shards` chunks, each next one twice as many as the one before.
    segments: [AtomicPtr<Segment<P>>; SEGMENTS],
    /// A power of two.
    shards: usize,
}

/// Those below log2 of `shards` are never used: a chunk's index is at least that.
const ORIGINS: usize = SEGMENTS + 9;

/// How many chunks are near: a million slots.
const NEAR: usize = if cfg!(expiry_loom) { 1 } else { 256 };

/// Number of chunks that 32-bit ids can name, less one as a margin for the arithmetic.
const MOST_CHUNKS: u64 = (1 << 32) / CHUNK as u64 - 1;

impl<P: Payload> Slots<P> {
    pub(crate) fn new(shards: usize) -> Self {
        Slots {
            origins: std::array::from_fn(|_| Origin {
                slots: AtomicPtr::new(std::ptr::null_mut()),
                headers: AtomicPtr::new(std::ptr::null_mut()),
                notes: AtomicPtr::new(std::ptr::null_mut()),
                terms: AtomicPtr::new(std::ptr::null_mut()),
            }),
            near: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            segments: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            shards,
        }
    }

    #[inline(always)]
    fn origin(&self, id: u32) -> Option<&Origin<P>> {
        // Not zero, so `| 1` leaves the logarithm as it is, and shows the compiler that it exists.
        let shifted = (id as usize / CHUNK + self.shards) | 1;
        self.origins.get(shifted.ilog2() as usize)
    }

    /// Segment and place of a chunk. With `S` shards, segment `k` starts at chunk `(S << k) - S`.
    #[inline]
    fn place(&self, chunk: usize) -> (usize, usize) {
        let shifted = chunk + self.shards;
        let segment = shifted.ilog2() - self.shards.ilog2();
        (segment as usize, shifted - (self.shards << segment))
    }

    /// The number of the shard's chunk that has `local` of its chunks before it.
    #[inline]
    pub(crate) fn chunk_of(&self, shard: usize, local: u32) -> usize {
        local as usize * self.shards + shard
    }

    /// The number in its shard of the chunk that slot `id` lies in.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // fewer than slots
    pub(crate) fn local_chunk(&self, id: u32) -> u32 {
        (id as usize / CHUNK / self.shards) as u32
    }

    /// A block's number in its shard, dense from 0.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // no greater than the block's number
    pub(crate) fn local_block(&self, block: u32) -> u32 {
        let (chunk, at) = (block as usize / CHUNK_BLOCKS, block as usize % CHUNK_BLOCKS);
        (chunk / self.shards * CHUNK_BLOCKS + at) as u32
    }

    /// The inverse of [`local_block`](Self::local_block).
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // a block's number
    pub(crate) fn block_of(&self, shard: usize, local: u32) -> u32 {
        let (chunk, at) = (local as usize / CHUNK_BLOCKS, local as usize % CHUNK_BLOCKS);
        ((chunk * self.shards + shard) * CHUNK_BLOCKS + at) as u32
    }

    #[inline]
    fn segment(&self, segment: usize) -> Option<&Segment<P>> {
        // survives: every caller has the chunk from the ring (`active`, Acquire), from its block
        // (the inbox), or from `peak`. Each was stored after the segment was.
        let segment = self.segments.get(segment)?.load(Ordering::Acquire);
        // SAFETY: a published segment is freed only with `self`.
        unsafe { segment.as_ref() }
    }

    /// The slot with this id; `None` if no such slot was ever made, which an issued id never is.
    #[inline(always)]
    pub(crate) fn slot(&self, id: u32) -> Option<Slot<'_, P>> {
        let origin = match self.near.get(id as usize / CHUNK) {
            Some(near) => near.load(Ordering::Acquire),
            None => self.origin(id)?.slots.load(Ordering::Acquire),
        };
        if origin.is_null() {
            return None;
        }
        // SAFETY: `ensure` sets the origin once the segment is there, with which all ids that share
        // this origin have a slot, and segments are freed only with `self`. The sum is that slot's
        // address, with its provenance.
        Some(unsafe { Slot::at(origin.wrapping_add(id as usize * units::<P>())) })
    }

    /// The slot with this id and what belongs to it.
    #[inline(always)]
    pub(crate) fn spot(&self, id: u32) -> Option<Spot<'_, P>> {
        let origin = self.origin(id)?;
        // `slots` is set last.
        // survives: a caller with an id has looked its slot up before (`slot`, which models
        // notice), or has claimed it.
        let slots = origin.slots.load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        let headers = origin.headers.load(Ordering::Relaxed);
        let notes = origin.notes.load(Ordering::Relaxed);
        let terms = origin.terms.load(Ordering::Relaxed);
        let id = id as usize;
        // SAFETY: as in `slot`; the others are set before it.
        unsafe {
            Some(Spot {
                slot: Slot::at(slots.wrapping_add(id * units::<P>())),
                header: &*headers.wrapping_add(id / BLOCK),
                note: &*notes.wrapping_add(id),
                term: &*terms.wrapping_add(id),
            })
        }
    }

    /// The origin for slot `id`, if the slot is there.
    #[inline(always)]
    fn known_origin(&self, id: u32) -> Option<&Origin<P>> {
        // survives: as in `spot`.
        self.origin(id).filter(|origin| !origin.slots.load(Ordering::Acquire).is_null())
    }

    /// The header of the block that slot `id` lies in.
    #[inline(always)]
    pub(crate) fn header(&self, id: u32) -> Option<&Header> {
        let origin = self.known_origin(id)?;
        let headers = origin.headers.load(Ordering::Relaxed);
        // SAFETY: as in `spot`.
        Some(unsafe { &*headers.wrapping_add(id as usize / BLOCK) })
    }

    /// The word beside slot `id`.
    #[inline(always)]
    pub(crate) fn note(&self, id: u32) -> Option<&P::Note> {
        let origin = self.known_origin(id)?;
        let notes = origin.notes.load(Ordering::Relaxed);
        // SAFETY: as in `spot`.
        Some(unsafe { &*notes.wrapping_add(id as usize) })
    }

    /// `length` slots from slot `first` on, all of one chunk.
    fn run(&self, first: usize, length: usize) -> Option<Run<'_, P>> {
        let (segment, chunk) = self.place(first / CHUNK);
        let at = (chunk * CHUNK + first % CHUNK) * units::<P>();
        let slots = &self.segment(segment)?.slots;
        debug_assert!(at + length * units::<P>() <= slots.as_slice().len());
        // SAFETY: the segment has these slots, and is freed only with `self`.
        Some(unsafe { Run::new(slots.as_ptr().wrapping_add(at), length) })
    }

    /// The slots of the block that begins with slot `first`.
    #[inline]
    pub(crate) fn block(&self, first: u32) -> Option<Run<'_, P>> {
        self.run(first as usize, BLOCK)
    }

    /// The words beside the slots of the block that begins with slot `first`.
    #[inline]
    pub(crate) fn notes(&self, first: u32) -> Option<&[P::Note]> {
        let (segment, chunk) = self.place(first as usize / CHUNK);
        let at = chunk * CHUNK + first as usize % CHUNK;
        self.segment(segment)?.notes.as_slice().get(at..at + BLOCK)
    }

    pub(crate) fn chunk(&self, chunk: usize) -> Option<Run<'_, P>> {
        self.run(chunk * CHUNK, CHUNK)
    }

    pub(crate) fn headers(&self, chunk: usize) -> Option<&[Header]> {
        let (segment, at) = self.place(chunk);
        self.segment(segment)?.headers.as_slice().get(at * CHUNK_BLOCKS..(at + 1) * CHUNK_BLOCKS)
    }

    /// Maps the segment of `chunk` unless it exists. O(1), whatever its size.
    pub(crate) fn ensure(&self, chunk: usize) -> Result<(), OutOfMemory> {
        if chunk as u64 >= MOST_CHUNKS {
            return Err(OutOfMemory);
        }
        let (segment, _) = self.place(chunk);
        let Some(place) = self.segments.get(segment) else {
            return Err(OutOfMemory);
        };
        let mut mapped = place.load(Ordering::Acquire);
        if mapped.is_null() {
            mapped = Box::into_raw(boxed(Segment::map(self.shards << segment, segment == 0)?)?);
            // Release publishes the segment; the loser's mapping, never touched, goes back.
            if let Err(theirs) = place.compare_exchange(
                std::ptr::null_mut(),
                mapped,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                // SAFETY: made above, not published.
                drop(unsafe { Box::from_raw(mapped) });
                mapped = theirs;
            }
            // A shard has used up its chunk of the first segment.
            if let (1, Some(first)) = (segment, self.segment(0)) {
                first.slots.use_huge_pages(true);
            }
        }
        let first = ((self.shards << segment) - self.shards) * CHUNK;
        #[allow(clippy::cast_possible_truncation)] // below MOST_CHUNKS
        let origin = self.origin(first as u32).ok_or(OutOfMemory)?;
        // survives: only null matters here: a thread that finds null stores the same once more.
        if origin.slots.load(Ordering::Acquire).is_null() {
            // SAFETY: published in `segments`, freed only with `self`.
            let mapped = unsafe { &*mapped };
            // Every thread that is here stores the same.
            let headers = mapped.headers.as_ptr().wrapping_sub(first / BLOCK);
            origin.headers.store(headers, Ordering::Relaxed);
            let notes = mapped.notes.as_ptr().wrapping_sub(first);
            origin.notes.store(notes, Ordering::Relaxed);
            let terms = mapped.terms.as_ptr().wrapping_sub(first);
            origin.terms.store(terms, Ordering::Relaxed);
            // Release: a thread that sees this one sees the others, and the zeroed memory.
            let slots = mapped.slots.as_ptr().wrapping_sub(first * units::<P>());
            // Before the origin: a thread that finds that one set stores none of these.
            let near = self.near.iter().skip(first / CHUNK).take(self.shards << segment);
            near.for_each(|near| near.store(slots, Ordering::Release));
            origin.slots.store(slots, Ordering::Release);
        }
        Ok(())
    }

    /// Owns the block that begins with slot `first`, and says which of its slots are free; `None`
    /// if another thread owns it. One read-modify-write. Until the caller calls
    /// [`leave`](Self::leave), it alone may claim slots there.
    pub(crate) fn own(&self, first: u32) -> Option<Free> {
        let header = self.header(first)?;
        // Acquire pairs with the last owner's Release: its claims, or zeroed memory and base.
        if header.owned.load(Ordering::Relaxed) || header.owned.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut slots = 0;
        for (at, slot) in self.block(first)?.iter().enumerate() {
            // Acquire: the thread that freed it is done with it.
            slots |= u32::from(slot.lease().is(State::Free)) << at;
        }
        let (segment, at) = self.place(first as usize / CHUNK);
        let base = self.segment(segment)?.bases[at].load(Ordering::Relaxed);
        Some(Free { slots, base })
    }

    /// Gives back a block that the caller owns.
    pub(crate) fn leave(&self, first: u32) {
        if let Some(header) = self.header(first) {
            header.give_back();
        }
    }

    /// Starts fetching the word beside slot `id`, for a caller that is about to end the slot.
    #[inline(always)]
    pub(crate) fn prefetch_note(&self, id: u32) {
        if let Some(note) = self.note(id) {
            prefetch_at(note);
        }
    }

    /// Starts fetching a block that may be owned next.
    pub(crate) fn prefetch(&self, first: u32) {
        let Some(spot) = self.spot(first) else {
            return;
        };
        prefetch_at(spot.header);
        prefetch_at(spot.note);
        if let Some(slots) = self.block(first) {
            slots.prefetch();
        }
    }

    /// The next occupant's generation, for a free slot in the caller's block with this base.
    #[inline(always)]
    pub(crate) fn occupancy(slot: Slot<'_, P>, base: u32) -> u32 {
        let last = slot.lease_relaxed();
        // A zeroed slot is new, or its memory has been given back.
        let last = if last.0 == 0 { base } else { last.generation() };
        next_generation(last)
    }

    /// Gives a chunk's pages back if every slot in it is free and no thread owns any of its blocks.
    /// Only the driver calls this. Before the pages go, it calls `while_owned`, when no thread can
    /// be in the chunk any more.
    pub(crate) fn release(&self, chunk: usize, while_owned: impl FnOnce()) -> Released {
        let (segment, at) = self.place(chunk);
        let (Some(segment), Some(slots)) = (self.segment(segment), self.chunk(chunk)) else {
            return Released::InUse;
        };
        let headers = &segment.headers.as_slice()[at * CHUNK_BLOCKS..(at + 1) * CHUNK_BLOCKS];
        let give_back = |headers: &[Header]| {
            for header in headers {
                header.give_back();
            }
        };
        let mut greatest = segment.bases[at].load(Ordering::Relaxed);
        for (block, header) in headers.iter().enumerate() {
            if header.owned.swap(true, Ordering::AcqRel) {
                give_back(&headers[..block]);
                return Released::Owned;
            }
            let slots = (0..BLOCK).filter_map(|at| slots.get(block * BLOCK + at));
            for seen in slots.map(Slot::lease) {
                if !seen.is(State::Free) {
                    give_back(&headers[..=block]);
                    return Released::InUse;
                }
                greatest = greatest.max(seen.generation());
            }
        }
        let starts_over = greatest >= (1 << GENERATION_BITS) - 1 - (1 << 10);
        if starts_over {
            // Near the wrap the greatest generation need not be the latest, so they start over:
            // what the wrap leaves possible comes sooner for a slot that has had few occupants.
            greatest = 0;
        }
        while_owned();
        segment.bases[at].store(greatest, Ordering::Relaxed);
        if !P::NOTES_STAY {
            segment.notes.release(at * CHUNK..(at + 1) * CHUNK);
        } else if starts_over {
            // Published by giving the blocks back.
            for note in &segment.notes.as_slice()[at * CHUNK..(at + 1) * CHUNK] {
                note.set_link(note.link().saturating_add(1));
            }
        }
        segment.terms.release(at * CHUNK..(at + 1) * CHUNK);
        let chunk = CHUNK * units::<P>();
        segment.slots.release(at * chunk..(at + 1) * chunk);
        // Release: the next owner of one of these sees the base, and the pages gone.
        give_back(headers);
        Released::Yes
    }
}

impl<P: Payload> Drop for Slots<P> {
    fn drop(&mut self) {
        for segment in &self.segments {
            // survives: stronger than needed: `&mut self`.
            let segment = segment.load(Ordering::Acquire);
            if !segment.is_null() {
                // SAFETY: `ensure` published it from a box. By `&mut self` no thread uses it any
                // more.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/core_slots.rs"]
mod tests;
