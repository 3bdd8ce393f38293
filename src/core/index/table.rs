//! One table: homes, their overflow buckets, and the operations on one home.

use super::line::{self, bits};
use super::Probe;
use crate::core::memory::{OutOfMemory, ZeroValid, Zeroed};
use crate::core::params::{GROUP, HOME, OVER};
use crate::sync::{overwrite, AtomicU64, Ordering};

/// Overflow buckets that a home may use.
const LINES: usize = 3;
pub(super) const CLOSED: u64 = 1 << 31;
pub(super) const VERSION: u64 = 1 << 32;
pub(super) const VERSIONS: u64 = !(VERSION - 1);
/// The bit of each word: whether it is published.
pub(super) const BITS: u64 = CLOSED - 1;

#[cfg(not(expiry_loom))]
const _: () = assert!(1 << (HOME + LINES * OVER) == CLOSED);

/// A home: its header and own words.
#[repr(C, align(64))]
pub(super) struct Home {
    pub(super) header: AtomicU64,
    pub(super) words: [AtomicU64; HOME],
}

impl Home {
    /// The positions of its own words that have this hash. Loads each word with Acquire.
    #[inline(always)]
    pub(super) fn matching(&self, hash: u32) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri), not(expiry_loom)))]
        // SAFETY: header and words are one aligned line. The header is its first word.
        return unsafe { line::matching((self as *const Self).cast(), hash) } >> 1;
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(expiry_loom))))]
        line::matching_in(&self.words, hash)
    }

    /// Takes away the bit at `position`, if the header still is the one under which the word was
    /// read: then the bit is still this word's.
    #[inline(always)]
    pub(super) fn disown(&self, header: u64, position: usize) -> bool {
        let next = header & !(1 << position);
        self.header.compare_exchange(header, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// An overflow bucket: a line of words for homes that are full.
#[repr(C, align(64))]
pub(super) struct Overflow {
    pub(super) words: [AtomicU64; OVER],
}

impl Overflow {
    /// The positions of its words that have this hash. Loads each word with Acquire.
    #[inline(always)]
    fn matching(&self, hash: u32) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri), not(expiry_loom)))]
        // SAFETY: the words are one aligned line.
        return unsafe { line::matching((self as *const Self).cast(), hash) };
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(expiry_loom))))]
        line::matching_in(&self.words, hash)
    }
}

// SAFETY: atomics only, valid as zeroes.
unsafe impl ZeroValid for Home {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        Home { header: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
    fn zero(&self) {
        // Release: a look-up that is not pinned and reads one of these sees the directory changed.
        // survives: as the header's second load in `Table::glance`.
        self.header.store(0, Ordering::Release);
        for word in &self.words {
            word.store(0, Ordering::Release);
        }
    }
}

// SAFETY: atomics only, valid as zeroes.
unsafe impl ZeroValid for Overflow {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        Overflow { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
    fn zero(&self) {
        for word in &self.words {
            // survives: stands in for pages that are given back. UNUSED is stored with Release
            // after it.
            word.store(0, Ordering::Release);
        }
    }
}

/// A word: 32 bits of the key's hash and the slot. Never zero: the hash part has its top bit set.
#[inline]
pub(super) fn word(hash: u32, slot: u32) -> u64 {
    u64::from(hash | 1 << 31) << 32 | u64::from(slot)
}

#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(super) fn slot_of(word: u64) -> u32 {
    word as u32
}

#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(super) fn hash_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Whether a word has this hash.
#[inline(always)]
pub(super) fn wanted(hash: u32) -> impl Fn(u64) -> bool {
    let part = u64::from(hash | 1 << 31) << 32;
    move |word| word ^ part < 1 << 32
}

/// One table. Homes are addressed by the low bits of the hash.
pub(super) struct Table {
    pub(super) homes: Zeroed<Home>,
    pub(super) overflow: Zeroed<Overflow>,
    pub(super) mask: usize,
}

/// A word that this thread has reserved. Dropping it unpublished, by a panic too, gives it back.
struct Reserved<'a> {
    word: &'a AtomicU64,
    position: usize,
}

impl Reserved<'_> {
    /// Publishes the word, if the header of its home still is `header`. Returns its position.
    ///
    /// AcqRel: Release publishes the word and the slot behind it; the version makes any other
    /// publication for this home, wherever its word lies, fail this swap.
    #[inline(always)]
    fn publish(self, home: &Home, header: u64) -> Result<usize, Self> {
        let next = (header | 1 << self.position).wrapping_add(VERSION);
        match home.header.compare_exchange(header, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Ok(std::mem::ManuallyDrop::new(self).position),
            Err(_) => Err(self),
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        // Release: a thread that reads the 0 also sees that the word before it has left
        // (`w12_migrate_over_beside_a_reservation_at_home` fails without it).
        self.word.store(0, Ordering::Release);
    }
}

/// A published word, as a thread has seen it that has been pinned since. Until that thread unpins,
/// the table does not begin another life. So what lies at this place is that word, what a swing has
/// made of it, or 0, or a word that another thread has put there after it.
#[derive(Clone, Copy)]
pub(crate) struct Sighting<'a> {
    pub(super) home: &'a Home,
    pub(super) place: &'a AtomicU64,
    /// Which of the home's words it is.
    pub(super) position: usize,
    pub(super) word: u64,
}

impl Sighting<'_> {
    /// The slot that the word named.
    #[inline(always)]
    pub(crate) fn slot(&self) -> u32 {
        slot_of(self.word)
    }

    /// As [`Table::remove`], if the word is there yet.
    #[inline(always)]
    pub(super) fn remove(self) -> Option<bool> {
        let Sighting { home, place, position, word } = self;
        // The orderings, and the order, are those of `Table::remove`.
        // survives: only the migrating thread may take the caller's word away, and it closes the
        // home first, so the swap of the header fails. This holds for both loads.
        let header = home.header.load(Ordering::Acquire);
        if place.load(Ordering::Acquire) != word || header & 1 << position == 0 {
            return None;
        }
        home.disown(header, position).then(|| {
            // survives: stronger than needed: no key is migrated by this way, so a lookup that
            // finds the word gone has nothing to look for elsewhere. `Table::remove` needs it.
            place.store(0, Ordering::Release);
            header & CLOSED != 0
        })
    }

    /// Makes the word name `target`, to which its slot leads, if it has not changed. Returns
    /// whether it had not. What has not changed is this key's word, or a migrating thread's copy of
    /// it.
    #[inline(always)]
    pub(super) fn swing(self, target: u32) -> bool {
        // The orderings are those of `Table::swing`.
        let swung = word(hash_of(self.word), target);
        let place = self.place;
        place.compare_exchange(self.word, swung, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The result of an attempt to publish in one table.
pub(super) enum Publish {
    /// Published at this position.
    Done(usize),
    /// The key is there already.
    Found,
    /// There are as many words of this hash as there may be.
    Alike,
    /// The home is closed: there is a younger table.
    Closed,
    /// Neither the home nor its overflow buckets have room.
    Crowded,
}

impl Table {
    /// A word at this position or beyond says that the table may be full.
    const CROWDED: usize = HOME + OVER / 2;

    pub(super) fn map(class: u32) -> Result<Self, OutOfMemory> {
        let homes = 1usize << class;
        Ok(Table {
            homes: Zeroed::map_filled(homes)?,
            overflow: Zeroed::map_filled(homes.div_ceil(GROUP))?,
            mask: homes - 1,
        })
    }

    #[inline(always)]
    pub(super) fn home_of(&self, hash: u32) -> &Home {
        let first: *const Home = self.homes.as_ptr();
        // SAFETY: the table has `mask + 1` homes, all of them valid (see `Zeroed::as_slice`), as
        // long as it lives.
        unsafe { &*first.wrapping_add(hash as usize & self.mask) }
    }

    /// The word at `position` of the home of `hash`: its own, or one in its overflow buckets.
    #[inline(always)]
    pub(super) fn word_at<'a>(
        &'a self,
        home: &'a Home,
        hash: u32,
        position: usize,
    ) -> &'a AtomicU64 {
        match home.words.get(position) {
            Some(word) => word,
            None => self.word_beyond(hash, position),
        }
    }

    #[inline(never)]
    fn word_beyond(&self, hash: u32, position: usize) -> &AtomicU64 {
        &self.line(hash, (position - HOME) / OVER).words[(position - HOME) % OVER]
    }

    /// One of the overflow buckets of the home of `hash`.
    #[inline]
    fn line(&self, hash: u32, nth: usize) -> &Overflow {
        let lines = self.overflow.as_slice();
        let own = (hash as usize & self.mask) / GROUP;
        let line = match nth {
            0 => own,
            1 => own + 1,
            // Far away, so that a crowded neighbourhood does not fill it too.
            _ => own + lines.len() / 2,
        };
        // Their number is a power of two.
        &lines[line & (lines.len() - 1)]
    }

    /// The number of words that a home has: in a small table some of its overflow buckets coincide.
    pub(super) fn words(&self) -> usize {
        let lines = match self.overflow.as_slice().len() {
            1 => 1,
            2 | 3 => 2,
            _ => LINES,
        };
        HOME + lines * OVER
    }

    /// The positions whose bits `header` has and whose words have this hash.
    #[inline]
    pub(super) fn matching(&self, home: &Home, header: u64, hash: u32) -> u64 {
        // Acquire, also for words that do not match: a word that is gone may have been migrated,
        // and then a younger table, looked at next, must show it (W12).
        home.matching(hash) & header | self.matching_beyond(header, hash)
    }

    /// [`matching`](Self::matching) in overflow buckets only.
    #[inline(never)]
    pub(super) fn matching_beyond(&self, header: u64, hash: u32) -> u64 {
        if header & BITS >> HOME << HOME == 0 {
            return 0;
        }
        let mut matching = 0;
        for nth in 0..LINES {
            let shift = HOME + nth * OVER;
            if header & BITS & ((1 << OVER) - 1) << shift != 0 {
                matching |= self.line(hash, nth).matching(hash) << shift;
            }
        }
        matching & header
    }

    /// The number of published words of this hash.
    pub(super) fn alike(&self, hash: u32) -> usize {
        let home = self.home_of(hash);
        // survives: before a bit goes, the header that `publish` swaps has the copy or the closing
        // mark: that swap fails, and `publish` counts again. A bit seen late is counted twice, and
        // then `insert` counts again.
        let header = home.header.load(Ordering::Acquire);
        self.matching(home, header, hash).count_ones() as usize
    }

    /// Whether a large table has less than a word for each home, by a sample of the homes that a
    /// weak hasher's regular hashes do not follow.
    #[cold]
    pub(super) fn is_sparse(&self) -> bool {
        const SAMPLE: usize = 256;
        let homes = self.homes.as_slice();
        let words = |nth: usize| {
            let home = &homes[nth.wrapping_mul(0x9E37_79B1) & self.mask];
            // survives: an estimate.
            (home.header.load(Ordering::Relaxed) & BITS).count_ones() as usize
        };
        homes.len() > 4 * SAMPLE && (0..SAMPLE).map(words).sum::<usize>() < SAMPLE
    }

    /// Closes the key's home, and then looks for the key there.
    pub(super) fn find_closing(&self, hash: u32, probe: &mut impl Probe) -> Option<u32> {
        let home = self.home_of(hash);
        let mut header = home.header.load(Ordering::Acquire);
        if header & CLOSED == 0 {
            header = home.header.fetch_or(CLOSED, Ordering::AcqRel) | CLOSED;
        }
        self.look(home, &mut header, hash, probe)
    }

    /// Gives the table's pages back: every home is open and empty again. No thread may be in it.
    pub(super) fn release(&self) {
        self.homes.release(0..self.homes.as_slice().len());
        self.overflow.release(0..self.overflow.as_slice().len());
    }

    /// Closes the home of `hash`: no thread publishes in it any more.
    pub(super) fn close(&self, hash: u32) {
        let home = self.home_of(hash);
        if home.header.load(Ordering::Relaxed) & CLOSED == 0 {
            // survives: stronger than needed: the header's own history orders it. A publishing
            // thread swaps the header before this, or fails, and sees the younger table later.
            home.header.fetch_or(CLOSED, Ordering::AcqRel);
        }
    }

    /// Reserves one of the `free` positions. Acquire pairs with the removal that left it free.
    // survives: a place is given back after a swap of the header that failed. There loom reads the
    // newest header; hardware may not.
    #[inline(always)]
    fn reserve<'a>(
        &'a self,
        home: &'a Home,
        free: u64,
        hash: u32,
        slot: u32,
    ) -> Option<Reserved<'a>> {
        let value = word(hash, slot);
        bits(free).find_map(|position| {
            let word = self.word_at(home, hash, position);
            let is_mine = word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            is_mine.then(|| Reserved { word, position })
        })
    }

    /// Publishes `slot` in a home that was open by this `header`, and had no word of this hash.
    /// False, without effect, if the header has changed since, or the home is crowded.
    #[inline(always)]
    pub(super) fn publish_under(&self, home: &Home, header: u64, hash: u32, slot: u32) -> bool {
        // Not at positions where `publish` has to ask whether the table is full.
        let free = !header & ((1 << Self::CROWDED) - 1);
        let reserved = self.reserve(home, free, hash, slot);
        reserved.is_some_and(|reserved| reserved.publish(home, header).is_ok())
    }

    /// Publishes `slot` unless the home is closed, has the key, or has `room` words of this hash.
    #[inline]
    pub(super) fn publish(
        &self,
        hash: u32,
        slot: u32,
        room: usize,
        probe: &mut impl Probe,
    ) -> Publish {
        let home = self.home_of(hash);
        let mut reserved: Option<Reserved<'_>> = None;
        loop {
            let mut header = home.header.load(Ordering::Acquire);
            if self.look(home, &mut header, hash, probe).is_some() {
                return Publish::Found;
            }
            if header & CLOSED != 0 {
                return Publish::Closed;
            }
            let alike = self.matching(home, header, hash).count_ones();
            if alike as usize >= room {
                return Publish::Alike;
            }
            let free = !header & ((1 << self.words()) - 1);
            let reserve = || self.reserve(home, free, hash, slot);
            let Some(mine) = reserved.take().or_else(reserve) else {
                return Publish::Crowded;
            };
            match mine.publish(home, header) {
                Ok(position) => return Publish::Done(position),
                Err(mine) => reserved = Some(mine),
            }
        }
    }

    /// A word that may be at `position` of its home.
    #[inline(always)]
    pub(super) fn sighting(&self, word: u64, position: usize) -> Sighting<'_> {
        let home = self.home_of(hash_of(word));
        Sighting { home, place: self.word_at(home, hash_of(word), position), position, word }
    }

    /// Takes away one published word of this hash, whose slot `is_it`. Returns whether the home was
    /// closed; `None` if there is no such word.
    pub(super) fn remove(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<bool> {
        let home = self.home_of(hash);
        let wanted = wanted(hash);
        loop {
            let header = home.header.load(Ordering::Acquire);
            let position = bits(self.matching(home, header, hash)).find(|&position| {
                // Acquire, as in `swing`: the slot's lease is its present occupant's.
                // survives: it takes a swing between this load and that of `matching`.
                let word = self.word_at(home, hash, position).load(Ordering::Acquire);
                wanted(word) && is_it(slot_of(word))
            })?;
            if home.disown(header, position) {
                // Overwrites: the migrating thread may be mending this word, a copy.
                // Release: a thread that reserves the place acquires the removal. So a migrating
                // thread that reads its word finds the bit gone (`migrate_words`).
                // survives: the reserving thread swaps the header, and loom reads the newest value
                // in a swap.
                overwrite(self.word_at(home, hash, position), 0, Ordering::Release);
                return Some(header & CLOSED != 0);
            }
        }
    }

    /// Whether most of the words within this key's reach are taken, so that the table may be full.
    #[inline]
    pub(super) fn crowded_at(&self, position: usize) -> bool {
        position >= Self::CROWDED
    }
}
