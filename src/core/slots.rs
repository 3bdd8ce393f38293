//! The slot store: fixed-size slots that never move, in segments that are mapped on demand.
//!
//! # Shape
//!
//! A slot is 32 bytes, half a cache line. 16 slots are a bucket, which is what a wheel schedules; 256
//! buckets are a chunk, which is what a thread walks through in search of free slots and what
//! memory is given back in; segments of 1, 1, 2, 4, ... times the shards' chunks are what is mapped.
//! A slot's 32-bit id is its place, so looking it up is arithmetic and one load of the segment's address.
//! Slots, bucket headers and birth stamps are all valid when zeroed, so mapping a segment is
//! one system call, whatever its size, and touches none of its pages: growth pauses nobody.
//!
//! # Memory safety of slot reuse
//!
//! Segments are unmapped only when the engine is dropped. So a reference to a slot is always valid, and
//! what is to be shown is not that memory exists but that nobody acts on a tenant that is not theirs:
//!
//! * A thread **owns** a bucket before it claims slots in it: one swap of the header's flag for 16 claims. While it
//!   does, free slots in it stay free but for its own claims, which therefore are plain stores. Ending
//!   (`X -> DEAD`) is a compare-and-swap on the lease: one winner.
//! * Between claim and publication, and between end and `FREE`, the claimer and the winner alone write the slot.
//! * `word` is only ever changed by compare-and-swap, from a value that was read *before* the key and
//!   the lease were checked. The word is whitened with key and incarnation, so the swap fails on every
//!   later tenant (W6, W14).
//! * `owner` is read only by the one who won the end (but see `keyed`, where it is an offer).
//!
//! # Giving memory back
//!
//! The driver owns every bucket of a chunk (any failure gives up, and gives them back), finds every slot free, raises
//! the chunk's base incarnation above all that its slots have had, and lets the pages go. They read as zeroes from
//! then on, which is `FREE`; the headers stay. Then it gives the buckets back, and whoever owns one next continues
//! after the base.

use super::lease::{next_incarnation, Lease, State, INCARNATION_BITS};
use super::params::{BUCKET, CHUNK, CHUNK_BUCKETS, SEGMENTS};
use super::prefetch_at;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// One live thing: an ack tree, a lease, a timer, a map entry.
#[repr(C, align(32))]
pub(crate) struct Slot {
    /// Decides every beginning, end and touch. See [`super::lease`].
    pub(crate) lease: AtomicU64,
    /// The issued id, or the key that the caller chose. Written only by the claimer. While dead, the link of the limbo list.
    pub(crate) key: AtomicU64,
    /// The face's word: for an ack tree the whitened XOR.
    pub(crate) word: AtomicU64,
    /// The owner's token. Read only by who ended the slot.
    pub(crate) owner: AtomicU64,
}

impl Slot {
    #[inline]
    pub(crate) fn lease(&self) -> Lease {
        // Acquire pairs with the Release of whoever published this lease: key, word and owner are there.
        Lease(self.lease.load(Ordering::Acquire))
    }

    /// Word and lease of the tenant with this key, if it is in one of `states`, a set made by [`set`](super::lease::set).
    ///
    /// Read in the order word, key, lease: of a later tenant than the word's a swap on the word fails, and who swaps the lease
    /// makes sure that there is none.
    #[inline(always)]
    pub(crate) fn read(&self, key: u64, states: u16) -> Option<(u64, Lease)> {
        let word = self.word.load(Ordering::Acquire);
        let same = self.key.load(Ordering::Acquire) == key;
        let lease = self.lease();
        (same && lease.is_in(states)).then_some((word, lease))
    }

    /// Moves the lease on if it is still `from`.
    #[inline]
    pub(crate) fn swap_lease(&self, from: Lease, to: Lease) -> Result<(), Lease> {
        self.lease
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Lease)
    }

    /// Sets the word of a slot that the caller has claimed.
    ///
    /// A swap that was prepared against an earlier tenant may succeed until then, and is overwritten. Under
    /// loom this is a swap too: it does not know that a store comes after a swap which read what the store's
    /// thread has seen.
    #[inline]
    pub(crate) fn set_word(&self, word: u64) {
        #[cfg(not(expiry_loom))]
        self.word.store(word, Ordering::Release);
        #[cfg(expiry_loom)]
        self.word.swap(word, Ordering::Release);
    }

    /// Publishes a lease on a slot that the caller owns alone.
    #[inline]
    pub(crate) fn set_lease(&self, lease: Lease) {
        self.lease.store(lease.0, Ordering::Release);
    }
}

/// What the reaper knows of a bucket without looking into it. All zero: nothing in it expires.
#[repr(C, align(16))]
pub(crate) struct Header {
    /// When something in the bucket next expires; see [`NextExpiration`].
    pub(crate) next: NextExpiration,
    /// The bucket after this one in its shard's inbox, plus one.
    pub(crate) link: AtomicU32,
    /// Whether the bucket is in the inbox (or on its way).
    pub(crate) queued: AtomicBool,
    /// Whether somebody owns the free slots in the bucket; see the module's head.
    owned: AtomicBool,
    /// Whether who is at the shard may end what is in the bucket; see `engine::own`.
    pub(crate) scanned: AtomicBool,
}

impl Header {
    /// Lets others own the bucket. The owner's.
    ///
    /// Under loom by a swap: it does not know that a store comes after a swap which read what the store's thread has seen.
    fn give_back(&self) {
        #[cfg(not(expiry_loom))]
        self.owned.store(false, Ordering::Release);
        #[cfg(expiry_loom)]
        self.owned.swap(false, Ordering::Release);
    }
}

/// A bucket's next expiration: a lower bound of the deadlines in it; and whether there is *news*: something may have been
/// put in, or touched, since the driver looked.
///
/// Held as *urgency*, the distance of the tick from the last one there is, so that zeroed memory reads "never", and
/// earlier means greater; the news is the lowest bit. Every change is a read-modify-write of this one word, by inserter
/// and reaper alike: either the inserter's comes first in its modification order, and the reaper, whose swap reads it,
/// sees the inserter's slot, and the news of it; or the reaper's swap comes first, and the inserter sees that it lowered
/// "never" and tells the reaper (W5, W11). Closing works the same way: after [`close`](Self::close) an inserter finds the
/// bucket closed, before it the closer finds the slot (W8).
pub(crate) struct NextExpiration(AtomicU64);

/// What [`NextExpiration::lower`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lowered {
    /// Something at least as early was known.
    No,
    /// The bucket's next expiration is now this one, and the reaper is to be told.
    Yes,
    /// The engine has shut down.
    Closed,
}

/// What the driver finds when it looks at a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Nothing in the bucket is due before this.
    pub(crate) next: u64,
    /// Something may have been put in, or touched, since the last look.
    pub(crate) news: bool,
}

const CLOSED: u64 = u64::MAX;
const NEWS: u64 = 1;

/// The last tick there is: never.
const LAST: u64 = u64::MAX >> 1;

impl NextExpiration {
    /// Nothing expires.
    pub(crate) fn never() -> Self {
        NextExpiration(AtomicU64::new(0))
    }

    /// Tick 0 would read as closed; it is as good as 1, which is due no later than the first advance.
    #[inline]
    fn urgency(tick: u64) -> u64 {
        (LAST - tick.clamp(1, LAST)) << 1
    }

    /// The tick of a word; `None` if that is never.
    #[inline]
    fn tick(word: u64) -> Option<u64> {
        match word & !NEWS {
            0 => None,
            urgency => Some(LAST - (urgency >> 1)),
        }
    }

    /// Makes the next expiration at most `tick`. Always one read-modify-write, also if nothing changes:
    /// that is what orders it against [`take`](Self::take).
    #[inline]
    pub(crate) fn lower(&self, tick: u64) -> Lowered {
        let urgency = Self::urgency(tick);
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            // AcqRel: Release publishes the slot's lease to `take` and `close`; Acquire sees what they did.
            match self.0.compare_exchange_weak(
                seen,
                seen.max(urgency) | NEWS,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(CLOSED) => return Lowered::Closed,
                Ok(before) if before | NEWS < urgency => return Lowered::Yes,
                Ok(_) => return Lowered::No,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether [`lower`](Self::lower) would change nothing. For who has a fence before this, and looks at nothing else because of it.
    #[cfg(feature = "async")]
    #[inline(always)]
    pub(crate) fn covers(&self, tick: u64) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        seen & NEWS != 0 && seen != CLOSED && seen >= Self::urgency(tick)
    }

    /// The driver's: makes the next expiration at most `tick`, which is no news to it.
    pub(crate) fn put_back(&self, tick: u64) {
        let urgency = Self::urgency(tick);
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            match self.0.compare_exchange_weak(
                seen,
                seen.max(urgency | seen & NEWS),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The reaper's: takes the next expiration, leaving "never" and no news. `None` if it was never, or closed.
    pub(crate) fn take(&self) -> Option<Look> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen == CLOSED {
                return None;
            }
            let next = Self::tick(seen)?;
            match self
                .0
                .compare_exchange_weak(seen, 0, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => {
                    let news = seen & NEWS != 0;
                    return Some(Look { next, news });
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Of a shard: makes the next expiration at most `tick`, which is news.
    #[cold]
    pub(crate) fn name(&self, tick: u64) {
        // The news first: or the driver, who has not heard of it, could raise in between what is named here.
        self.0.fetch_or(NEWS, Ordering::AcqRel);
        self.0
            .fetch_max(Self::urgency(tick) | NEWS, Ordering::AcqRel);
    }

    /// Of a shard, its driver's: whether `tick` is later than the next expiration that it has heard of.
    pub(crate) fn is_after(heard: u64, tick: u64) -> bool {
        Self::urgency(tick) < heard
    }

    /// Of a shard, its driver's at the tick `now`: the next expiration is `tick`, unless one that is yet to come was named
    /// before, whose bucket may be on its way still. What it is then; `None`, and it is as it was, if there has been news
    /// since the last time. `heard` is what the driver keeps of it.
    pub(crate) fn raise(&self, heard: &mut u64, now: u64, tick: u64) -> Option<u64> {
        let named = Self::tick(*heard).filter(|&named| named > now);
        let next = named.map_or(tick, |named| named.min(tick));
        let urgency = Self::urgency(next);
        // Also if nothing changes: it fails if there was news.
        match self
            .0
            .compare_exchange(*heard, urgency, Ordering::AcqRel, Ordering::Relaxed)
        {
            Ok(_) => {
                *heard = urgency;
                Some(next)
            }
            Err(_) => {
                // From here on, what comes is news.
                *heard = self.0.fetch_and(!NEWS, Ordering::AcqRel) & !NEWS;
                None
            }
        }
    }

    /// Whether it is closed. By a read-modify-write, as an inserter's: if it is not, who closes it sees all that the caller has done before.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.0.fetch_or(0, Ordering::AcqRel) == CLOSED
    }

    /// The next expiration if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<u64> {
        Self::known(self.0.load(Ordering::Acquire))
    }

    /// As [`get`](Self::get), after a look at the stripes, by which who has told passes on what it has named. Loom does not see that edge:
    /// there this is the newest there is.
    pub(crate) fn get_told(&self) -> Option<u64> {
        if cfg!(expiry_loom) {
            Self::known(self.0.fetch_add(0, Ordering::AcqRel))
        } else {
            self.get()
        }
    }

    #[inline]
    fn known(word: u64) -> Option<u64> {
        match word {
            CLOSED => None,
            word => Self::tick(word),
        }
    }

    /// From now on every inserter finds the bucket closed.
    pub(crate) fn close(&self) {
        self.0.swap(CLOSED, Ordering::AcqRel);
    }
}

/// A run of chunks, mapped together.
pub(crate) struct Segment {
    slots: memory::Zeroed<Slot>,
    headers: memory::Zeroed<Header>,
    /// When each slot's tenancy began, in the face's units, 32 bits of it.
    births: memory::Zeroed<AtomicU32>,
    /// Per chunk: the greatest incarnation that its slots had before its memory was last given back.
    bases: Box<[AtomicU32]>,
}

/// Memory for a segment or an index table could not be had.
#[derive(Debug)]
pub(crate) struct OutOfMemory;

/// A box, or an error where `Box::new` would end the process.
pub(crate) fn boxed<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let layout = std::alloc::Layout::new::<T>();
    assert!(layout.size() != 0);
    // SAFETY: its size is not zero.
    let at = unsafe { std::alloc::alloc(layout) }.cast::<T>();
    if at.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: just allocated, with the layout that a box has.
    unsafe {
        at.write(value);
        Ok(Box::from_raw(at))
    }
}

impl Segment {
    fn map(chunks: usize) -> Result<Self, OutOfMemory> {
        let mut bases = Vec::new();
        // Exactly, so that a box of it is the same allocation.
        bases.try_reserve_exact(chunks).map_err(|_| OutOfMemory)?;
        bases.extend((0..chunks).map(|_| AtomicU32::new(0)));
        Ok(Segment {
            slots: memory::Zeroed::map(chunks * CHUNK)?,
            headers: memory::Zeroed::map(chunks * CHUNK_BUCKETS)?,
            births: memory::Zeroed::map(chunks * CHUNK)?,
            bases: bases.into(),
        })
    }
}

/// The free slots of a bucket that the caller owns.
#[derive(Clone, Copy, Default)]
pub(crate) struct Free {
    /// A bit for each slot that is free.
    pub(crate) slots: u32,
    /// What the incarnations of zeroed slots continue after.
    pub(crate) base: u32,
}

/// What became of [`Slots::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    Yes,
    /// A slot is in use.
    InUse,
    /// Nothing is in use that has been seen, but a thread owns one of the buckets, and may for as long as it likes.
    Owned,
}

/// Where slot 0, its header and its birth stamp would lie if the segment began with them: an address is this one plus
/// the id times a size. Null until the segment exists.
struct Origin {
    slots: AtomicPtr<Slot>,
    headers: AtomicPtr<Header>,
    births: AtomicPtr<AtomicU32>,
}

/// A slot and what belongs to it.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) slot: &'a Slot,
    pub(crate) header: &'a Header,
    pub(crate) birth: &'a AtomicU32,
}

impl Spot<'_> {
    /// Fills a claimed slot. It is the caller's alone until somebody finds the lease, which publishes the rest.
    #[inline(always)]
    pub(crate) fn occupy(&self, key: u64, owner: u64, word: u64, lease: Lease) {
        self.slot.key.store(key, Ordering::Relaxed);
        self.slot.owner.store(owner, Ordering::Relaxed);
        self.slot.set_word(word);
        self.slot.set_lease(lease);
    }
}

/// The slots of an engine. Ids are `chunk * CHUNK + position`; chunk `c` belongs to shard `c % shards`.
pub(crate) struct Slots {
    /// By log2 of `chunk + shards`, of which segment 0 has the lowest: one load, one sum finds a slot.
    origins: [Origin; ORIGINS],
    /// Segment 0 holds `shards` chunks, each next one twice as many as the one before.
    segments: [AtomicPtr<Segment>; SEGMENTS],
    /// A power of two.
    shards: usize,
}

/// The first so many are never used: there are `shards` chunks in the first segment.
const ORIGINS: usize = SEGMENTS + 9;

/// The number of slots that 32-bit ids can name, less a margin for the arithmetic.
const MOST_CHUNKS: u64 = (1 << 32) / CHUNK as u64 - 1;

impl Slots {
    /// `shards` is a power of two.
    pub(crate) fn new(shards: usize) -> Self {
        Slots {
            origins: std::array::from_fn(|_| Origin {
                slots: AtomicPtr::new(std::ptr::null_mut()),
                headers: AtomicPtr::new(std::ptr::null_mut()),
                births: AtomicPtr::new(std::ptr::null_mut()),
            }),
            segments: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            shards,
        }
    }

    /// The origin for slot `id`.
    #[inline(always)]
    fn origin(&self, id: u32) -> Option<&Origin> {
        // Shards are a power of two: with the lowest bit set the logarithm is the same, and known to exist.
        let shifted = (id as usize / CHUNK + self.shards) | 1;
        self.origins.get(shifted.ilog2() as usize)
    }

    /// Segment and chunk in it. Segment `k` starts at chunk `(S << k) - S`, with `S` shards.
    #[inline]
    fn place(&self, chunk: usize) -> (usize, usize) {
        let shifted = chunk + self.shards;
        let segment = shifted.ilog2() - self.shards.ilog2();
        (segment as usize, shifted - (self.shards << segment))
    }

    #[inline]
    fn segment(&self, segment: usize) -> Option<&Segment> {
        let segment = self.segments.get(segment)?.load(Ordering::Acquire);
        // SAFETY: a published segment is freed only with `self`.
        unsafe { segment.as_ref() }
    }

    /// The slot with this id; `None` if no such slot was ever made, which an issued id never is.
    #[inline(always)]
    pub(crate) fn slot(&self, id: u32) -> Option<&Slot> {
        let origin = self.origin(id)?.slots.load(Ordering::Acquire);
        if origin.is_null() {
            return None;
        }
        // SAFETY: `ensure` sets the origin once the segment is there, with which all ids that share this origin have a
        // slot, and segments are freed only with `self`. The sum is that slot's address, with its provenance.
        Some(unsafe { &*origin.wrapping_add(id as usize) })
    }

    /// The slot with this id and what belongs to it.
    #[inline(always)]
    pub(crate) fn spot(&self, id: u32) -> Option<Spot<'_>> {
        let origin = self.origin(id)?;
        // The one that is set last.
        let slots = origin.slots.load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        let headers = origin.headers.load(Ordering::Relaxed);
        let births = origin.births.load(Ordering::Relaxed);
        let id = id as usize;
        // SAFETY: as in `slot`; the others are set before it.
        unsafe {
            Some(Spot {
                slot: &*slots.wrapping_add(id),
                header: &*headers.wrapping_add(id / BUCKET),
                birth: &*births.wrapping_add(id),
            })
        }
    }

    /// The header of the bucket that slot `id` lies in.
    #[inline(always)]
    pub(crate) fn header(&self, id: u32) -> Option<&Header> {
        Some(self.spot(id)?.header)
    }

    /// The birth stamp of slot `id`.
    #[inline(always)]
    pub(crate) fn birth(&self, id: u32) -> Option<&AtomicU32> {
        Some(self.spot(id)?.birth)
    }

    /// The slots of the bucket that begins with slot `first`.
    #[inline]
    pub(crate) fn bucket(&self, first: u32) -> Option<&[Slot]> {
        let first = first as usize;
        let (segment, chunk) = self.place(first / CHUNK);
        let at = chunk * CHUNK + first % CHUNK;
        self.segment(segment)?.slots.as_slice().get(at..at + BUCKET)
    }

    /// The slots of a chunk.
    pub(crate) fn chunk(&self, chunk: usize) -> Option<&[Slot]> {
        let (segment, at) = self.place(chunk);
        self.segment(segment)?
            .slots
            .as_slice()
            .get(at * CHUNK..(at + 1) * CHUNK)
    }

    /// The bucket headers of a chunk.
    pub(crate) fn headers(&self, chunk: usize) -> Option<&[Header]> {
        let (segment, at) = self.place(chunk);
        self.segment(segment)?
            .headers
            .as_slice()
            .get(at * CHUNK_BUCKETS..(at + 1) * CHUNK_BUCKETS)
    }

    /// Makes the segment of `chunk` exist. One mapping if it does not: O(1), whatever its size.
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
            mapped = Box::into_raw(boxed(Segment::map(self.shards << segment)?)?);
            // Release publishes the segment's fields; the loser's mapping was never touched and goes back.
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
        }
        let first = ((self.shards << segment) - self.shards) * CHUNK;
        #[allow(clippy::cast_possible_truncation)] // below MOST_CHUNKS
        let origin = self.origin(first as u32).ok_or(OutOfMemory)?;
        if origin.slots.load(Ordering::Acquire).is_null() {
            // SAFETY: published in `segments`, freed only with `self`.
            let mapped = unsafe { &*mapped };
            // Whoever else is here stores the same.
            let headers = mapped.headers.as_ptr().wrapping_sub(first / BUCKET);
            origin.headers.store(headers, Ordering::Relaxed);
            let births = mapped.births.as_ptr().wrapping_sub(first);
            origin.births.store(births, Ordering::Relaxed);
            // Release: who sees this one sees the others, and the zeroed memory.
            let slots = mapped.slots.as_ptr().wrapping_sub(first);
            origin.slots.store(slots, Ordering::Release);
        }
        Ok(())
    }

    /// Owns the bucket that begins with slot `first`, and says which of its slots are free; `None` if somebody else
    /// owns it. One read-modify-write. The caller alone may claim slots in it until it calls [`leave`](Self::leave).
    pub(crate) fn own(&self, first: u32) -> Option<Free> {
        let header = self.header(first)?;
        // Acquire pairs with the Release of whoever owned it last: its claims, or the driver's zeroed memory and base.
        if header.owned.load(Ordering::Relaxed) || header.owned.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut slots = 0;
        for (at, slot) in self.bucket(first)?.iter().enumerate() {
            // Acquire: whoever freed it is done with it.
            slots |= u32::from(slot.lease().state() == State::Free) << at;
        }
        let (segment, at) = self.place(first as usize / CHUNK);
        let base = self.segment(segment)?.bases[at].load(Ordering::Relaxed);
        Some(Free { slots, base })
    }

    /// Gives a bucket back that the caller owns.
    pub(crate) fn leave(&self, first: u32) {
        if let Some(header) = self.header(first) {
            header.give_back();
        }
    }

    /// Starts fetching a bucket that may be owned next. Writable by the time the hand gets there.
    pub(crate) fn prefetch(&self, first: u32) {
        let Some(spot) = self.spot(first) else {
            return;
        };
        prefetch_at(spot.header);
        prefetch_at(spot.birth);
        for at in (0..BUCKET).step_by(2) {
            prefetch_at((spot.slot as *const Slot).wrapping_add(at));
        }
    }

    /// The incarnation of the next tenant of a free slot, in a bucket with this base that the caller owns.
    #[inline(always)]
    pub(crate) fn tenancy(slot: &Slot, base: u32) -> u32 {
        let last = Lease(slot.lease.load(Ordering::Relaxed));
        // A zeroed slot's memory has been given back, or is new.
        let last = if last.0 == 0 {
            base
        } else {
            last.incarnation()
        };
        next_incarnation(last)
    }

    /// Gives a chunk's pages back if every slot in it is free and nobody owns any. Only the driver calls this.
    ///
    /// Calls `while_owned` when nobody can be in the chunk any more, if it does.
    pub(crate) fn release(&self, chunk: usize, while_owned: impl FnOnce()) -> Released {
        let (segment, at) = self.place(chunk);
        let Some(segment) = self.segment(segment) else {
            return Released::InUse;
        };
        let slots = &segment.slots.as_slice()[at * CHUNK..(at + 1) * CHUNK];
        let headers = &segment.headers.as_slice()[at * CHUNK_BUCKETS..(at + 1) * CHUNK_BUCKETS];
        let give_back = |headers: &[Header]| {
            for header in headers {
                header.give_back();
            }
        };
        let mut greatest = segment.bases[at].load(Ordering::Relaxed);
        for (bucket, (slots, header)) in slots.chunks_exact(BUCKET).zip(headers).enumerate() {
            if header.owned.swap(true, Ordering::AcqRel) {
                give_back(&headers[..bucket]);
                return Released::Owned;
            }
            for slot in slots {
                let seen = slot.lease();
                if seen.state() != State::Free {
                    give_back(&headers[..=bucket]);
                    return Released::InUse;
                }
                greatest = greatest.max(seen.incarnation());
            }
        }
        if greatest >= (1 << INCARNATION_BITS) - 1 - (1 << 10) {
            // Near the wrap the greatest says nothing about the latest. Start over; what that leaves
            // possible is what the wrap leaves possible anyway, but sooner for a slot that has had few tenancies.
            greatest = 0;
        }
        while_owned();
        segment.bases[at].store(greatest, Ordering::Relaxed);
        segment.births.release(at * CHUNK..(at + 1) * CHUNK);
        segment.slots.release(at * CHUNK..(at + 1) * CHUNK);
        // Release: who owns one of these next sees the base, and the pages gone.
        give_back(headers);
        Released::Yes
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for segment in &self.segments {
            let segment = segment.load(Ordering::Acquire);
            if !segment.is_null() {
                // SAFETY: published by `ensure` from a box; `&mut self`: nobody uses it any more.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}

pub(crate) mod memory {
    //! Zeroed memory that costs nothing until it is touched, and whose pages can be given back.

    use super::OutOfMemory;
    use std::ops::Range;

    #[cfg(not(expiry_loom))]
    mod imp {
        use super::{OutOfMemory, Range, ZeroValid};
        use memmap2::MmapMut;
        use std::marker::PhantomData;

        /// An array of `T`, all zeroes at first.
        pub(crate) struct Zeroed<T> {
            map: MmapMut,
            length: usize,
            of: PhantomData<T>,
        }

        // SAFETY: it is an array of `T`, no more.
        unsafe impl<T: Sync> Sync for Zeroed<T> {}
        // SAFETY: as above.
        unsafe impl<T: Send> Send for Zeroed<T> {}

        /// Mappings from this size on ask for huge pages where the system leaves that to programs.
        #[cfg(target_os = "linux")]
        const HUGE: usize = 2 << 20;

        impl<T: ZeroValid> Zeroed<T> {
            pub(crate) fn map(length: usize) -> Result<Self, OutOfMemory> {
                let bytes = length
                    .checked_mul(std::mem::size_of::<T>())
                    .ok_or(OutOfMemory)?;
                let map = MmapMut::map_anon(bytes.max(1)).map_err(|_| OutOfMemory)?;
                debug_assert_eq!(map.as_ptr() as usize % std::mem::align_of::<T>(), 0);
                #[cfg(target_os = "linux")]
                if bytes >= HUGE {
                    // A hint: fewer TLB misses. Refusal changes nothing but speed.
                    let _ = map.advise(memmap2::Advice::HugePage);
                }
                Ok(Zeroed {
                    map,
                    length,
                    of: PhantomData,
                })
            }

            /// Where the array begins. What lies there is atomics, so sharing it is all that is ever done.
            pub(crate) fn as_ptr(&self) -> *mut T {
                self.map.as_ptr().cast_mut().cast::<T>()
            }

            #[inline]
            pub(crate) fn as_slice(&self) -> &[T] {
                // SAFETY: the mapping holds `length` values of `T`, page-aligned; all zeroes is a valid `T`
                // (`ZeroValid`), which is atomics only, so shared access is all that there ever is.
                unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<T>(), self.length) }
            }

            /// Lets the whole pages in `range` go; they read as zeroes afterwards.
            ///
            /// Where the platform has no such call the memory stays, zeroed in place.
            pub(crate) fn release(&self, range: Range<usize>) {
                let size = std::mem::size_of::<T>();
                let (from, to) = (range.start * size, range.end.min(self.length) * size);
                #[cfg(target_os = "linux")]
                {
                    // SAFETY: private anonymous memory of atomics: the pages read as zeroes afterwards, which is
                    // a valid value; callers have made sure that zeroing is what they want.
                    let done = unsafe {
                        self.map.unchecked_advise_range(
                            memmap2::UncheckedAdvice::DontNeed,
                            from,
                            to - from,
                        )
                    };
                    if done.is_ok() {
                        return;
                    }
                }
                for at in (from / size)..(to / size) {
                    self.as_slice()[at].zero();
                }
            }
        }
    }

    #[cfg(expiry_loom)]
    mod imp {
        use super::{OutOfMemory, Range, ZeroValid};

        /// An array of `T`, all zeroes at first.
        pub(crate) struct Zeroed<T> {
            values: Box<[T]>,
        }

        impl<T: ZeroValid> Zeroed<T> {
            pub(crate) fn map(length: usize) -> Result<Self, OutOfMemory> {
                Ok(Zeroed {
                    values: (0..length).map(|_| T::zeroed()).collect(),
                })
            }

            pub(crate) fn as_ptr(&self) -> *mut T {
                self.values.as_ptr().cast_mut()
            }

            pub(crate) fn as_slice(&self) -> &[T] {
                &self.values
            }

            pub(crate) fn release(&self, range: Range<usize>) {
                for value in &self.values[range] {
                    value.zero();
                }
            }
        }
    }

    pub(crate) use imp::Zeroed;

    /// Values made of atomics for which all zero bits are valid.
    ///
    /// # Safety
    ///
    /// All zero bits must be a valid value, and every part of it must be an atomic.
    pub(crate) unsafe trait ZeroValid {
        /// A zero value, where memory is made of values.
        #[cfg(expiry_loom)]
        fn zeroed() -> Self;
        /// Writes zero over the value, part by part.
        fn zero(&self);
    }
}

use memory::ZeroValid;

macro_rules! zero_valid {
    ($type:ty { $($field:tt : $make:expr),* }) => {
        // SAFETY: listed field by field below: atomics, and structs of atomics; integers are valid as zeroes.
        unsafe impl ZeroValid for $type {
            #[cfg(expiry_loom)]
            fn zeroed() -> Self {
                Self { $($field: $make),* }
            }
            fn zero(&self) {
                $(let _ = stringify!($make); self.$field.store(0, Ordering::Release);)*
            }
        }
    };
}

zero_valid!(Slot {
    lease: AtomicU64::new(0),
    key: AtomicU64::new(0),
    word: AtomicU64::new(0),
    owner: AtomicU64::new(0)
});

// SAFETY: integers and flags behind atomics; zero is false.
unsafe impl ZeroValid for Header {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        Header {
            next: NextExpiration::never(),
            link: AtomicU32::new(0),
            queued: AtomicBool::new(false),
            owned: AtomicBool::new(false),
            scanned: AtomicBool::new(false),
        }
    }
    fn zero(&self) {
        self.next.0.store(0, Ordering::Release);
        self.link.store(0, Ordering::Release);
        self.queued.store(false, Ordering::Release);
        self.owned.store(false, Ordering::Release);
    }
}

// SAFETY: an integer behind an atomic.
unsafe impl ZeroValid for AtomicU32 {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        AtomicU32::new(0)
    }
    fn zero(&self) {
        self.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(expiry_loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_chunk_has_a_place_of_its_own() {
        for shards in [1, 2, 8] {
            let slots = Slots::new(shards);
            let mut places = HashSet::new();
            let mut last = (0, 0);
            for chunk in 0..2000 {
                let place = slots.place(chunk);
                assert!(places.insert(place));
                assert!(place.1 < shards << place.0);
                assert!(
                    place == (last.0, last.1 + usize::from(chunk > 0)) || place == (last.0 + 1, 0)
                );
                last = place;
            }
        }
    }

    #[test]
    fn a_released_chunk_continues_its_incarnations() {
        let slots = Slots::new(1);
        slots.ensure(0).unwrap();
        let id = 5;
        let slot = slots.slot(id).unwrap();
        let free = slots.own(0).unwrap();
        assert_eq!(free.slots, (1 << BUCKET) - 1);
        let mut latest = 0;
        for _ in 0..9 {
            latest = Slots::tenancy(slot, free.base);
            slot.set_lease(Lease::free(latest));
        }
        assert_eq!(latest, 9);
        assert!(slots.own(0).is_none(), "one owner");
        assert_eq!(slots.release(0, || ()), Released::Owned);
        slots.leave(0);
        assert_eq!(slots.release(0, || ()), Released::Yes);
        assert_eq!(slot.lease().0, 0, "the page was let go");
        let free = slots.own(0).unwrap();
        assert_eq!(Slots::tenancy(slot, free.base), 10);
        slot.set_lease(Lease::new(State::LiveIssued, 10, 0));
        slots.leave(0);
        assert_eq!(slots.release(0, || ()), Released::InUse);
        // What the failed release owned is given back.
        assert_eq!(slots.own(0).unwrap().slots, (1 << BUCKET) - 1 - (1 << id));
    }

    #[test]
    fn the_next_expiration_only_ever_comes_nearer_until_it_is_taken() {
        let next = NextExpiration::never();
        assert_eq!(next.get(), None);
        assert_eq!(next.lower(10), Lowered::Yes);
        assert_eq!(next.lower(11), Lowered::No);
        assert_eq!(next.lower(9), Lowered::Yes);
        assert_eq!(next.get(), Some(9));
        let look = |next, news| Some(Look { next, news });
        assert_eq!(next.take(), look(9, true));
        assert_eq!(next.take(), None);
        next.put_back(20);
        assert_eq!(next.take(), look(20, false));
        next.put_back(20);
        assert_eq!(next.lower(30), Lowered::No);
        next.put_back(15);
        assert_eq!(next.take(), look(15, true));
        assert_eq!(next.lower(u64::MAX), Lowered::No, "never is no deadline");
        assert_eq!(next.get(), None);
        assert_eq!(next.lower(0), Lowered::Yes);
        assert_eq!(next.take(), look(1, true));
        next.put_back(5);
        next.close();
        assert_eq!(next.lower(1), Lowered::Closed);
        assert_eq!(next.take(), None);
    }
}
