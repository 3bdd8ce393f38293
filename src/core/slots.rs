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
//! * Claiming (`FREE -> CLAIMED`) and ending (`X -> DEAD`) are compare-and-swaps on the lease: one winner.
//! * Between claim and publication, and between end and `FREE`, the winner alone writes the slot.
//! * `word` is only ever changed by compare-and-swap, from a value that was read *before* the key and
//!   the lease were checked. The word is whitened with key and incarnation, so the swap fails on every
//!   later tenant (W6, W14).
//! * `owner` is read only by the one who won the end.
//!
//! # Giving memory back
//!
//! The driver takes every slot of a chunk out of use (`FREE -> FROZEN`, one at a time; any failure
//! gives up and thaws), so that nobody is inside, raises the chunk's base incarnation above all that
//! its slots have had, and lets the pages go. They read as zeroes from then on, which is `FREE`, and once the
//! base says that all are gone the chunk is in use again, with incarnations that continue after it.

use super::lease::{next_incarnation, Lease, State, INCARNATION_BITS};
use super::params::{BUCKET, CHUNK, CHUNK_BUCKETS, SEGMENTS};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// One live thing: an ack tree, a lease, a timer, a map entry.
#[repr(C, align(32))]
pub(crate) struct Slot {
    /// Decides every beginning, end and touch. See [`super::lease`].
    pub(crate) lease: AtomicU64,
    /// The issued id, or the key that the caller chose. Written only by the claimer.
    pub(crate) key: AtomicU64,
    /// The face's word: for an ack tree the whitened XOR.
    pub(crate) word: AtomicU64,
    /// The owner's token. Read only by who ended the slot. While dead, the link of the limbo list.
    pub(crate) owner: AtomicU64,
}

impl Slot {
    #[inline]
    pub(crate) fn lease(&self) -> Lease {
        // Acquire pairs with the Release of whoever published this lease: key, word and owner are there.
        Lease(self.lease.load(Ordering::Acquire))
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
    /// Non-zero while the bucket is in the inbox (or on its way).
    pub(crate) queued: AtomicU32,
}

/// A bucket's next expiration: a lower bound of the deadlines in it.
///
/// Held as *urgency*, the complement of the tick, so that zeroed memory reads "never", and earlier
/// means greater. Every change is a read-modify-write of this one word, by inserter and reaper alike:
/// either the inserter's comes first in its modification order, and the reaper, whose swap reads it, sees the
/// inserter's slot; or the reaper's swap comes first, and the inserter sees that it lowered "never" and tells the
/// reaper (W5, W11). Closing works the same way: after [`close`](Self::close) an inserter finds the
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

const CLOSED: u64 = u64::MAX;

impl NextExpiration {
    /// Tick 0 would read as closed; it is as good as 1, which is due no later than the first advance.
    #[inline]
    fn urgency(tick: u64) -> u64 {
        !tick.max(1)
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
                seen.max(urgency),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(CLOSED) => return Lowered::Closed,
                Ok(before) if before < urgency => return Lowered::Yes,
                Ok(_) => return Lowered::No,
                Err(now) => seen = now,
            }
        }
    }

    /// The reaper's: takes the next expiration, leaving "never". `None` if it was never, or closed.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen == CLOSED {
                return None;
            }
            match self
                .0
                .compare_exchange_weak(seen, 0, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(0) => return None,
                Ok(urgency) => return Some(!urgency),
                Err(now) => seen = now,
            }
        }
    }

    /// The next expiration if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<u64> {
        match self.0.load(Ordering::Acquire) {
            0 | CLOSED => None,
            urgency => Some(!urgency),
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

impl Segment {
    fn map(chunks: usize) -> Result<Self, OutOfMemory> {
        Ok(Segment {
            slots: memory::Zeroed::map(chunks * CHUNK)?,
            headers: memory::Zeroed::map(chunks * CHUNK_BUCKETS)?,
            births: memory::Zeroed::map(chunks * CHUNK)?,
            bases: (0..chunks).map(|_| AtomicU32::new(0)).collect(),
        })
    }
}

/// In a chunk's base while its pages are on their way out. What reads as zero already may not do so yet for another
/// processor, or field by field where pages are zeroed in place: nobody may move in before all of it is gone.
const LEAVING: u32 = 1 << 31;

/// The slots of an engine. Ids are `chunk * CHUNK + position`; chunk `c` belongs to shard `c % shards`.
pub(crate) struct Slots {
    /// Segment 0 and 1 hold `1 << shift` chunks... each next one twice as many as the one before.
    segments: [AtomicPtr<Segment>; SEGMENTS],
    /// log2 of the chunks in segment 0: the number of shards.
    shift: u32,
}

/// The number of slots that 32-bit ids can name, less a margin for the arithmetic.
const MOST_CHUNKS: u64 = (1 << 32) / CHUNK as u64 - 1;

impl Slots {
    /// `shards` is a power of two.
    pub(crate) fn new(shards: usize) -> Self {
        Slots {
            segments: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            shift: shards.ilog2(),
        }
    }

    /// Segment and chunk in it. Segment `k` starts at chunk `(S << k) - S`, with `S` shards.
    #[inline]
    fn place(&self, chunk: usize) -> (usize, usize) {
        let shifted = chunk + (1 << self.shift);
        let segment = shifted.ilog2() - self.shift;
        (
            segment as usize,
            shifted - (1usize << (self.shift + segment)),
        )
    }

    #[inline]
    fn segment(&self, segment: usize) -> Option<&Segment> {
        let segment = self.segments.get(segment)?.load(Ordering::Acquire);
        // SAFETY: a published segment is freed only with `self`.
        unsafe { segment.as_ref() }
    }

    /// The slot with this id; `None` if no such slot was ever made, which an issued id never is.
    #[inline]
    pub(crate) fn slot(&self, id: u32) -> Option<&Slot> {
        let id = id as usize;
        let (segment, chunk) = self.place(id / CHUNK);
        self.segment(segment)?.slots.get(chunk * CHUNK + id % CHUNK)
    }

    /// The header of the bucket that slot `id` lies in.
    #[inline]
    pub(crate) fn header(&self, id: u32) -> Option<&Header> {
        let id = id as usize;
        let (segment, chunk) = self.place(id / CHUNK);
        self.segment(segment)?
            .headers
            .get(chunk * CHUNK_BUCKETS + id % CHUNK / BUCKET)
    }

    /// The birth stamp of slot `id`.
    #[inline]
    pub(crate) fn birth(&self, id: u32) -> Option<&AtomicU32> {
        let id = id as usize;
        let (segment, chunk) = self.place(id / CHUNK);
        self.segment(segment)?
            .births
            .get(chunk * CHUNK + id % CHUNK)
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
        if !place.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let fresh = Box::into_raw(Box::new(Segment::map((1 << self.shift) << segment)?));
        // Release publishes the segment's fields; the loser's mapping was never touched and goes back.
        if place
            .compare_exchange(
                std::ptr::null_mut(),
                fresh,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_err()
        {
            // SAFETY: made above, not published.
            drop(unsafe { Box::from_raw(fresh) });
        }
        Ok(())
    }

    /// Claims slot `id` if it is free. The claimer owns it alone from here on.
    ///
    /// Returns the new incarnation.
    #[inline(always)]
    pub(crate) fn claim(&self, id: u32, slot: &Slot) -> Option<u32> {
        let seen = Lease(slot.lease.load(Ordering::Relaxed));
        if seen.state() != State::Free {
            return None;
        }
        let incarnation = next_incarnation(seen.incarnation());
        let claimed = Lease::new(State::Claimed, incarnation, 0);
        slot.swap_lease(seen, claimed).ok()?;
        if seen.0 == 0 {
            // A fresh page. The base was raised before the page was let go, and is read after the
            // claim, so it is not below any incarnation that this slot has had.
            return self.after_base(id, slot);
        }
        Some(incarnation)
    }

    #[cold]
    fn after_base(&self, id: u32, slot: &Slot) -> Option<u32> {
        let (segment, at) = self.place(id as usize / CHUNK);
        let base = self.segment(segment)?.bases[at].load(Ordering::Acquire);
        if base & LEAVING != 0 {
            // Too early: back to what it was.
            slot.set_lease(Lease(0));
            return None;
        }
        Some(next_incarnation(base))
    }

    /// Gives a chunk's pages back if every slot in it is free. Only the driver calls this, one at a time.
    ///
    /// Calls `while_frozen` when nobody can be in the chunk any more, and returns true, if it does.
    pub(crate) fn release(&self, chunk: usize, while_frozen: impl FnOnce()) -> bool {
        let (segment, at) = self.place(chunk);
        let Some(segment) = self.segment(segment) else {
            return false;
        };
        let slots = &segment.slots.as_slice()[at * CHUNK..(at + 1) * CHUNK];
        let mut greatest = segment.bases[at].load(Ordering::Relaxed);
        for (frozen, slot) in slots.iter().enumerate() {
            let seen = slot.lease();
            let free = seen.state() == State::Free
                && slot
                    .swap_lease(seen, seen.with_state(State::Frozen))
                    .is_ok();
            if !free {
                for slot in &slots[..frozen] {
                    // Frozen slots are the driver's alone.
                    slot.set_lease(slot.lease().with_state(State::Free));
                }
                return false;
            }
            greatest = greatest.max(seen.incarnation());
        }
        if greatest >= (1 << INCARNATION_BITS) - 1 - (1 << 10) {
            // Near the wrap the greatest says nothing about the latest. Start over; what that leaves
            // possible is what the wrap leaves possible anyway.
            greatest = 0;
        }
        while_frozen();
        // Release: seen by whoever claims one of the zeroed slots and so has seen the pages gone.
        segment.bases[at].store(greatest | LEAVING, Ordering::Release);
        segment.births.release(at * CHUNK..(at + 1) * CHUNK);
        segment.slots.release(at * CHUNK..(at + 1) * CHUNK);
        // All processors see them gone: the slots may be claimed.
        segment.bases[at].store(greatest, Ordering::Release);
        true
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

            #[inline]
            pub(crate) fn as_slice(&self) -> &[T] {
                // SAFETY: the mapping holds `length` values of `T`, page-aligned; all zeroes is a valid `T`
                // (`ZeroValid`), which is atomics only, so shared access is all that there ever is.
                unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<T>(), self.length) }
            }

            #[inline]
            pub(crate) fn get(&self, at: usize) -> Option<&T> {
                self.as_slice().get(at)
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

            pub(crate) fn as_slice(&self) -> &[T] {
                &self.values
            }

            pub(crate) fn get(&self, at: usize) -> Option<&T> {
                self.values.get(at)
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

// SAFETY: three integers behind atomics.
unsafe impl ZeroValid for Header {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        Header {
            next: NextExpiration(AtomicU64::new(0)),
            link: AtomicU32::new(0),
            queued: AtomicU32::new(0),
        }
    }
    fn zero(&self) {
        self.next.0.store(0, Ordering::Release);
        self.link.store(0, Ordering::Release);
        self.queued.store(0, Ordering::Release);
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
        let mut latest = 0;
        for _ in 0..9 {
            let slot = slots.slot(id).unwrap();
            latest = slots.claim(id, slot).unwrap();
            slot.set_lease(Lease::free(latest));
        }
        assert_eq!(latest, 9);
        assert!(slots.release(0, || ()));
        let slot = slots.slot(id).unwrap();
        assert_eq!(slot.lease().0, 0, "the page was let go");
        assert_eq!(slots.claim(id, slot), Some(10));
        assert!(!slots.release(0, || ()), "a slot is in use");
        // What the failed release froze is free again.
        assert!(slots.claim(1, slots.slot(1).unwrap()).is_some());
    }

    #[test]
    fn the_next_expiration_only_ever_comes_nearer_until_it_is_taken() {
        let next = NextExpiration(AtomicU64::new(0));
        assert_eq!(next.get(), None);
        assert_eq!(next.lower(10), Lowered::Yes);
        assert_eq!(next.lower(11), Lowered::No);
        assert_eq!(next.lower(9), Lowered::Yes);
        assert_eq!(next.get(), Some(9));
        assert_eq!(next.take(), Some(9));
        assert_eq!(next.take(), None);
        assert_eq!(next.lower(0), Lowered::Yes);
        assert_eq!(next.take(), Some(1));
        next.close();
        assert_eq!(next.lower(1), Lowered::Closed);
        assert_eq!(next.take(), None);
    }
}
