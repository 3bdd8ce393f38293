//! The index: from a chosen id to the slot that holds it. Lock-free, grows and shrinks without a pause.
//!
//! Ids that the engine issues need none of this: they name their slot. Ids that callers choose are found
//! by a seeded hash. The index holds 64-bit words, `hash (32 bits) | slot (32 bits)`; slots themselves never
//! move, so growing the index touches 8 bytes per id and no live state.
//!
//! # Layout
//!
//! A table has `2^class` *homes*. A home is one cache line: a header and 7 words. Every four
//! neighbouring homes share one *overflow line* of 8 words; a home that is full spills into its group's overflow
//! line, then into the next group's. All words that belong to a home, wherever they lie, are governed by the
//! home's header:
//!
//! ```text
//!  header:  63 .. 24   23      22 .. 15    14 .. 7     6 .. 0
//!           version    CLOSED  overflow 2  overflow 1  own       <- one bit a word: published
//! ```
//!
//! # Operations and where they take effect
//!
//! * **Publish** (insert if absent): read the header, look through the words that it believes in; if the key
//!   is not there, reserve a word that is zero by compare-and-swap, then compare-and-swap the *home's* header from the
//!   value read to one with the word's bit set and the version counted up. That swap is the linearization
//!   point. Two threads that insert one key meet on this header even if their words lie in different
//!   lines, so only one succeeds and the other looks again (W13). The version (40 bits) makes the header of a
//!   home with the same bits but other contents a different one.
//! * **Find**: load the header (Acquire), compare the hash of each word whose bit is set, ask the caller
//!   whether the slot really holds the key. A key that is published when the header is loaded, and is not
//!   removed meanwhile, is found.
//! * **Remove**: compare-and-swap the bit away (linearization point), then zero the word. Only who ended the slot
//!   removes its word, and the slot is not reused before. The swap expects the header from which the word was
//!   read, so it cannot take away a bit that stands for something else by now.
//!
//! # Growth (W7, W12)
//!
//! The *directory* is one word: up to eight classes in order of age, the youngest last, and a version. A
//! table that gets crowded has a successor of twice its size installed by a swap of the directory. From then on:
//!
//! * New keys go to the youngest table only. Before a key's absence from an older table is believed, the
//!   key's home there is **closed** by a read-modify-write on its header, after which nobody can publish there: either a
//!   competing publication came first, and the header shows it, or it fails and looks again.
//! * Look-ups go from old to young, and if nothing was found and the directory has changed, again.
//! * The *carrier* (the engine's driver; one at a time) closes the old homes one by one, and for each word:
//!   closes the key's homes in all tables but the youngest (or an insert that has passed the oldest table
//!   could publish the key in a middle one), publishes a copy in the youngest table, makes sure by a read-modify-write on the directory that it
//!   still is the youngest, and only then takes the old bit away. So at every moment at least one copy
//!   is where a look-up has yet to go. If the old bit is gone already, its slot has ended meanwhile and
//!   the carrier withdraws the copy.
//! * Who removes a word from a home that is closed may be racing with such a copy. Its slot therefore is not
//!   freed at once but put on the *limbo* list, which the carrier empties when it is not in the middle
//!   of a copy. So **no slot is reused while any word for it exists**; every argument above leans on this.
//! * A table whose homes are all closed and empty is taken off the directory. Its homes stay closed, so
//!   that a publisher who still has the old directory fails there, until every publisher that was pinned at
//!   that time has gone (see `sync::grace`); then its pages are given back, and its class may be used again.
//!   Index memory is never unmapped while the engine lives, so look-ups and removals need no pin: in
//!   a retired table they find nothing, and a look-up sees that the directory has changed.
//!
//! Idea of the home-wide version: DLHT (arXiv 2406.09986). The fixed overflow lines, the directory word, the
//! carrier and the limbo list are this crate's.

use super::params::{CLASSES, GROUP, HOME, MIN_CLASS, OVER};
use super::slots::memory::{ZeroValid, Zeroed};
use super::slots::OutOfMemory;
use crate::sync::grace::{Grace, Pin};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
#[cfg(expiry_loom)]
use loom::sync::Arc;
#[cfg(not(expiry_loom))]
use std::sync::Arc;

const WORDS: usize = HOME + 2 * OVER;
const CLOSED: u64 = 1 << 23;
const VERSION: u64 = 1 << 24;
const VERSIONS: u64 = !(VERSION - 1);
const BITS: u64 = (1 << WORDS) - 1;

/// A home: header and own words.
#[repr(C, align(64))]
struct Home {
    header: AtomicU64,
    words: [AtomicU64; HOME],
}

/// A line of words for homes that are full.
#[repr(C, align(64))]
struct Overflow {
    words: [AtomicU64; OVER],
}

// SAFETY: atomics only, valid as zeroes.
unsafe impl ZeroValid for Home {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        Home {
            header: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
    fn zero(&self) {
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
        Overflow {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
    fn zero(&self) {
        for word in &self.words {
            word.store(0, Ordering::Release);
        }
    }
}

/// A word: 32 bits of the key's hash and the slot. Never zero: the hash part has its top bit set.
#[inline]
fn word(hash: u32, slot: u32) -> u64 {
    u64::from(hash | 1 << 31) << 32 | u64::from(slot)
}

#[inline]
#[allow(clippy::cast_possible_truncation)]
fn slot_of(word: u64) -> u32 {
    word as u32
}

#[inline]
#[allow(clippy::cast_possible_truncation)]
fn hash_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// One table. Homes are addressed by the low bits of the hash.
struct Table {
    homes: Zeroed<Home>,
    overflow: Zeroed<Overflow>,
    mask: usize,
}

/// What became of an attempt to publish in one table.
enum Publish {
    Done,
    /// The key is there already.
    Found,
    /// The home is closed: there is a younger table.
    Closed,
    /// Neither the home nor its overflow lines have room.
    Crowded,
}

impl Table {
    fn map(class: u32) -> Result<Self, OutOfMemory> {
        let homes = 1usize << class;
        Ok(Table {
            homes: Zeroed::map(homes)?,
            overflow: Zeroed::map(homes.div_ceil(GROUP))?,
            mask: homes - 1,
        })
    }

    #[inline]
    fn home(&self, hash: u32) -> (usize, &Home) {
        let at = hash as usize & self.mask;
        (at, &self.homes.as_slice()[at])
    }

    /// The word at `position` of the home: its own, or one of its two overflow lines'.
    #[inline]
    fn word_at<'a>(&'a self, at: usize, home: &'a Home, position: usize) -> &'a AtomicU64 {
        if position < HOME {
            return &home.words[position];
        }
        let lines = self.overflow.as_slice();
        let beyond = position - HOME;
        let line = (at / GROUP + beyond / OVER) % lines.len();
        &lines[line].words[beyond % OVER]
    }

    /// With a single overflow line, a home's second one would be its first: it has one only.
    fn words(&self) -> usize {
        if self.overflow.as_slice().len() > 1 {
            WORDS
        } else {
            HOME + OVER
        }
    }

    /// The slot of the first word that the header believes in, has this hash, and that `accept` takes.
    ///
    /// `header` is the header as read, and afterwards the one that the answer holds for: a word that
    /// matches is believed only if the header, read again, still believes in it and has had no publication
    /// since. Without that, a word that another thread has merely *reserved* could be taken for the
    /// published one that was there before.
    #[inline(always)]
    fn look(
        &self,
        at: usize,
        home: &Home,
        header: &mut u64,
        hash: u32,
        accept: &mut impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let part = u64::from(hash | 1 << 31);
        let mut matching = self.matching(at, home, *header, |word| word >> 32 == part);
        while matching != 0 {
            let position = matching.trailing_zeros() as usize;
            matching &= matching - 1;
            // Acquire: the word was written before its bit was published; the header's load saw the bit.
            let word = self.word_at(at, home, position).load(Ordering::Acquire);
            let accepted = word >> 32 == part && accept(slot_of(word));
            // After the look into the slot, not before: then the word was there all the while, and what was
            // seen in the slot is this word's tenant, not a later one that is not published yet (W6, W14).
            let now = home.header.load(Ordering::Acquire);
            let believed = VERSIONS | 1 << position;
            if now & believed != *header & VERSIONS | 1 << position {
                *header = now;
                matching = self.matching(at, home, now, |word| word >> 32 == part);
                continue;
            }
            if accepted {
                return Some(slot_of(word));
            }
        }
        None
    }

    /// The positions that `header` believes in and whose words are `wanted`. No branch that depends on them
    /// while all lie in the home line: which word it is, is what cannot be predicted.
    #[inline]
    fn matching(&self, at: usize, home: &Home, header: u64, wanted: impl Fn(u64) -> bool) -> u64 {
        // Acquire, also for words that do not match: a word that is gone may have been carried away, and then a
        // younger table, looked at next, must show it (W12).
        let mut matching = 0;
        for (position, word) in home.words.iter().enumerate() {
            matching |= u64::from(wanted(word.load(Ordering::Acquire))) << position;
        }
        let mut beyond = (header & BITS) >> HOME << HOME;
        while beyond != 0 {
            let position = beyond.trailing_zeros() as usize;
            beyond &= beyond - 1;
            let word = self.word_at(at, home, position).load(Ordering::Acquire);
            matching |= u64::from(wanted(word)) << position;
        }
        matching & header
    }

    #[inline(always)]
    fn find(&self, hash: u32, accept: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let (at, home) = self.home(hash);
        let mut header = home.header.load(Ordering::Acquire);
        self.look(at, home, &mut header, hash, accept)
    }

    /// Closes the key's home, then looks for it there: nobody publishes it there any more.
    fn find_closing(&self, hash: u32, accept: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let (at, home) = self.home(hash);
        let mut header = home.header.load(Ordering::Acquire);
        if header & CLOSED == 0 {
            header = home.header.fetch_or(CLOSED, Ordering::AcqRel) | CLOSED;
        }
        self.look(at, home, &mut header, hash, accept)
    }

    /// Nobody publishes in the home of `hash` any more.
    fn close(&self, hash: u32) {
        let (_, home) = self.home(hash);
        if home.header.load(Ordering::Relaxed) & CLOSED == 0 {
            home.header.fetch_or(CLOSED, Ordering::AcqRel);
        }
    }

    /// Reserves a word that is not in use, for `value`.
    #[inline]
    fn reserve(&self, at: usize, home: &Home, header: u64, value: u64) -> Option<usize> {
        let mut free = !header & ((1 << self.words()) - 1);
        while free != 0 {
            let position = free.trailing_zeros() as usize;
            free &= free - 1;
            let word = self.word_at(at, home, position);
            if word.load(Ordering::Relaxed) == 0
                && word
                    .compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return Some(position);
            }
        }
        None
    }

    /// Publishes `value` unless the home is closed or `accept` finds the key there.
    #[inline]
    fn publish(
        &self,
        value: u64,
        position_out: &mut usize,
        accept: &mut impl FnMut(u32) -> bool,
    ) -> Publish {
        let hash = hash_of(value);
        let (at, home) = self.home(hash);
        let mut reserved = None;
        let outcome = loop {
            let mut header = home.header.load(Ordering::Acquire);
            if self.look(at, home, &mut header, hash, accept).is_some() {
                break Publish::Found;
            }
            if header & CLOSED != 0 {
                break Publish::Closed;
            }
            let position = match reserved {
                Some(position) => position,
                None => match self.reserve(at, home, header, value) {
                    Some(position) => *reserved.insert(position),
                    None => break Publish::Crowded,
                },
            };
            // AcqRel: Release publishes the word and the slot behind it; the version makes any other
            // publication for this home, wherever its word lies, fail this swap.
            let next = (header | 1 << position).wrapping_add(VERSION);
            if home
                .header
                .compare_exchange(header, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                *position_out = position;
                return Publish::Done;
            }
        };
        if let Some(position) = reserved {
            // Reserved by us, never published: ours to give back.
            self.word_at(at, home, position).store(0, Ordering::Release);
        }
        outcome
    }

    /// Takes one published `value` away. `Some(closed)` if this call did, with whether the home was closed.
    fn remove(&self, value: u64) -> Option<bool> {
        let (at, home) = self.home(hash_of(value));
        loop {
            let header = home.header.load(Ordering::Acquire);
            let matching = self.matching(at, home, header, |word| word == value);
            if matching == 0 {
                return None;
            }
            let position = matching.trailing_zeros() as usize;
            let word = self.word_at(at, home, position);
            // The header that the word was believed under is expected: the bit is still this word's.
            if home
                .header
                .compare_exchange(
                    header,
                    header & !(1 << position),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
            {
                word.store(0, Ordering::Release);
                return Some(header & CLOSED != 0);
            }
        }
    }

    /// Whether most of the words within this key's reach are taken: worth asking how full the table is.
    #[inline]
    fn crowded_at(&self, position: usize) -> bool {
        position >= HOME + OVER / 2
    }
}

/// The directory: classes by age, the youngest last, five bits each from the low end; then their
/// number (4 bits); then a version that every change counts up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Directory(u64);

const LISTED: usize = 8;

impl Directory {
    fn len(self) -> usize {
        (self.0 >> 40 & 15) as usize
    }

    /// The class at place `at`, 0 being the oldest.
    #[inline]
    fn class(self, at: usize) -> usize {
        (self.0 >> (5 * at) & 31) as usize
    }

    fn youngest(self) -> usize {
        self.class(self.len() - 1)
    }

    fn classes(self) -> impl Iterator<Item = usize> {
        (0..self.len()).map(move |at| self.class(at))
    }

    fn build(classes: &[usize], version: u64) -> Self {
        let mut word = (classes.len() as u64) << 40 | version << 44;
        for (at, &class) in classes.iter().enumerate() {
            word |= (class as u64) << (5 * at);
        }
        Directory(word)
    }

    fn with(self, class: usize) -> Self {
        let classes: Vec<usize> = self.classes().chain([class]).collect();
        Self::build(&classes, (self.0 >> 44).wrapping_add(1) & 0xF_FFFF)
    }

    fn without(self, class: usize) -> Self {
        let classes: Vec<usize> = self.classes().filter(|&listed| listed != class).collect();
        Self::build(&classes, (self.0 >> 44).wrapping_add(1) & 0xF_FFFF)
    }
}

/// Life of a table of a class. Only [`Place::state`] says whether the class may be put to use.
const UNUSED: u32 = 0;
const IN_USE: u32 = 1;
const RETIRED: u32 = 2;

struct Place {
    /// From `Arc::into_raw`.
    table: AtomicPtr<Table>,
    /// Shared with the deferred call that ends the grace period.
    state: Arc<AtomicU32>,
}

/// What became of [`Index::insert`].
pub(crate) enum Insert {
    Done,
    /// `accept` took a slot that was there.
    Found,
    /// No memory for a larger table, or no larger class.
    Full,
}

/// What [`Index::remove`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// The slot may be reused at once.
    Clean,
    /// A copy may be on its way: the slot goes to limbo.
    Copied,
}

/// The index of one shard.
pub(crate) struct Index {
    directory: AtomicU64,
    places: Box<[Place]>,
    grace: Grace,
    /// First slot of the limbo list plus one, linked through the slots' owners.
    pub(crate) limbo: AtomicU64,
    /// The home that the carrier looks at next, in the oldest table.
    carried: AtomicU64,
    /// With how many tables the carrier found neither room nor memory; 0 if it did not.
    stuck: AtomicU32,
}

impl Index {
    pub(crate) fn new() -> Result<Self, OutOfMemory> {
        let places: Box<[Place]> = (0..CLASSES)
            .map(|_| Place {
                table: AtomicPtr::new(std::ptr::null_mut()),
                state: Arc::new(AtomicU32::new(UNUSED)),
            })
            .collect();
        let index = Index {
            directory: AtomicU64::new(Directory::build(&[0], 0).0),
            places,
            grace: Grace::new(),
            limbo: AtomicU64::new(0),
            carried: AtomicU64::new(0),
            stuck: AtomicU32::new(0),
        };
        if !index.acquire(0)? {
            unreachable!("class 0 of a new index is unused");
        }
        Ok(index)
    }

    #[inline]
    fn directory(&self) -> Directory {
        Directory(self.directory.load(Ordering::Acquire))
    }

    #[inline]
    fn table(&self, class: usize) -> &Table {
        // SAFETY: a class is listed in the directory only after its table was published (`acquire`,
        // Release in the directory's swap), and tables are freed only with `self`.
        unsafe { &*self.places[class].table.load(Ordering::Acquire) }
    }

    /// Starts fetching the home of `hash` into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        let table = self.table(self.directory().youngest());
        let (_, home) = table.home(hash);
        super::prefetch(home);
    }

    /// Calls `f` with the slots that the youngest table has under `hash`, believed or not: for prefetching.
    #[inline]
    pub(crate) fn peek(&self, hash: u32, mut f: impl FnMut(u32)) {
        let (_, home) = self.table(self.directory().youngest()).home(hash);
        for word in &home.words {
            let word = word.load(Ordering::Relaxed);
            if hash_of(word) == hash | 1 << 31 {
                f(slot_of(word));
            }
        }
    }

    /// The first slot under `hash` that `accept` takes. Lock-free; wait-free while nothing grows.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut accept: impl FnMut(u32) -> bool) -> Option<u32> {
        let directory = self.directory();
        if directory.len() == 1 {
            let found = self.table(directory.class(0)).find(hash, &mut accept);
            if found.is_some() || self.directory() == directory {
                return found;
            }
        }
        self.find_in_all(hash, &mut accept)
    }

    /// As [`find`](Self::find), while there is more than one table.
    #[cold]
    fn find_in_all(&self, hash: u32, accept: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        loop {
            let directory = self.directory();
            for class in directory.classes() {
                if let Some(found) = self.table(class).find(hash, accept) {
                    return Some(found);
                }
            }
            // A key may have been carried from a table not yet looked at into one not listed then (W12).
            if self.directory() == directory {
                return None;
            }
        }
    }

    /// Publishes `slot` under `hash` unless `accept` takes a slot that is there already. Lock-free.
    #[inline]
    pub(crate) fn insert(
        &self,
        hash: u32,
        slot: u32,
        crowded: &mut bool,
        mut accept: impl FnMut(u32) -> bool,
    ) -> Insert {
        let value = word(hash, slot);
        let _pin: Pin = self.grace.pin();
        loop {
            let directory = self.directory();
            let youngest = directory.youngest();
            for class in directory.classes().take(directory.len() - 1) {
                if self.table(class).find_closing(hash, &mut accept).is_some() {
                    return Insert::Found;
                }
            }
            let table = self.table(youngest);
            let mut position = 0;
            match table.publish(value, &mut position, &mut accept) {
                Publish::Done => {
                    if table.crowded_at(position) {
                        *crowded = true;
                    }
                    return Insert::Done;
                }
                Publish::Found => return Insert::Found,
                // The directory that closed it is visible by now: look again.
                Publish::Closed => {}
                Publish::Crowded => {
                    *crowded = true;
                    if !self.grow(directory) {
                        return Insert::Full;
                    }
                }
            }
        }
    }

    /// Takes the word of an ended slot away. Exactly one thread calls this for each published slot.
    pub(crate) fn remove(&self, hash: u32, slot: u32) -> Removed {
        let value = word(hash, slot);
        loop {
            for class in self.directory().classes() {
                match self.table(class).remove(value) {
                    Some(false) => return Removed::Clean,
                    Some(true) => return Removed::Copied,
                    None => {}
                }
            }
            // Carried on between the looks: it is in a younger table now. Each such miss is a step of
            // the carrier, and there are at most as many as tables.
        }
    }

    /// Puts the table of `class` to use if it is free. `Ok(false)` if it is not.
    fn acquire(&self, class: usize) -> Result<bool, OutOfMemory> {
        let place = &self.places[class];
        // Acquire pairs with the end of the grace period: the zeroed table is seen zeroed.
        if place
            .state
            .compare_exchange(UNUSED, IN_USE, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return Ok(false);
        }
        if place.table.load(Ordering::Acquire).is_null() {
            #[allow(clippy::cast_possible_truncation)] // fewer than 32 classes
            let table = match Table::map(MIN_CLASS + class as u32) {
                Ok(table) => table,
                Err(error) => {
                    place.state.store(UNUSED, Ordering::Release);
                    return Err(error);
                }
            };
            place
                .table
                .store(Arc::into_raw(Arc::new(table)).cast_mut(), Ordering::Release);
        }
        Ok(true)
    }

    /// Installs a successor if `seen` still is the directory. True if there is a younger table now.
    #[cold]
    fn grow(&self, seen: Directory) -> bool {
        // While the carrier is behind, take larger steps: then the list can never be full before the
        // largest class is reached (1+1+2+2+4+4+8 doublings on top of the first).
        let step = 1 << (seen.len().saturating_sub(1) / 2);
        let mut class = (seen.youngest() + step).min(CLASSES - 1);
        if seen.len() == LISTED || class == seen.youngest() {
            return self.directory() != seen;
        }
        loop {
            if self.directory() != seen {
                return true;
            }
            match self.acquire(class) {
                Ok(true) => break,
                // Retired a moment ago, or another thread is installing it.
                Ok(false) if class + 1 < CLASSES => class += 1,
                Ok(false) | Err(OutOfMemory) => return self.directory() != seen,
            }
        }
        if self
            .directory
            .compare_exchange(
                seen.0,
                seen.with(class).0,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_err()
        {
            // Somebody else's came first. Ours was never listed, so nobody has been in it.
            self.places[class].state.store(UNUSED, Ordering::Release);
        }
        true
    }

    /// Whether a table twice as large is due for `live` keys; installs it.
    #[cold]
    pub(crate) fn grow_if_full(&self, live: u64) -> bool {
        let directory = self.directory();
        let words = self.capacity_of(directory.youngest());
        // Above 3/4 of all words, overflow lines included, insertions start to fail here and there.
        live * 4 >= words * 3 && self.grow(directory)
    }

    fn capacity_of(&self, class: usize) -> u64 {
        let table = self.table(class);
        let homes = table.homes.as_slice().len() * HOME;
        (homes + table.overflow.as_slice().len() * OVER) as u64
    }

    /// Installs a smaller table if `live` keys would leave this one mostly empty.
    pub(crate) fn shrink_if_empty(&self, live: u64) -> bool {
        let directory = self.directory();
        let youngest = directory.youngest();
        if directory.len() > 1 || youngest == 0 || live * 16 > self.capacity_of(youngest) {
            return false;
        }
        let mut class = youngest - 1;
        while class > 0 && live * 4 < self.capacity_of_class(class - 1) {
            class -= 1;
        }
        match self.acquire(class) {
            Ok(true) => {
                if self
                    .directory
                    .compare_exchange(
                        directory.0,
                        directory.with(class).0,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    )
                    .is_err()
                {
                    self.places[class].state.store(UNUSED, Ordering::Release);
                    return false;
                }
                true
            }
            _ => false,
        }
    }

    #[allow(clippy::cast_possible_truncation)] // fewer than 32 classes
    fn capacity_of_class(&self, class: usize) -> u64 {
        let homes = 1u64 << (MIN_CLASS + class as u32);
        homes * HOME as u64 + homes.div_ceil(GROUP as u64) * OVER as u64
    }

    /// Whether there is anything for the carrier to do. Not while it waits for memory: a growth that succeeds
    /// sets it going again.
    pub(crate) fn wants_carrying(&self) -> bool {
        let listed = self.directory().len();
        (listed > 1 && self.stuck.load(Ordering::Relaxed) as usize != listed)
            || self.limbo.load(Ordering::Relaxed) != 0
    }

    /// The carrier: moves words from the oldest table to the youngest, up to `budget` of them or of empty
    /// homes. One thread at a time (the driver), with the limbo list emptied before. True if more is to do.
    pub(crate) fn carry(&self, budget: &mut usize) -> bool {
        loop {
            let directory = self.directory();
            if directory.len() < 2 {
                return false;
            }
            let class = directory.class(0);
            let table = self.table(class);
            let mut at = usize::try_from(self.carried.load(Ordering::Relaxed)).unwrap_or(0);
            while at < table.homes.as_slice().len() {
                if *budget == 0 {
                    self.carried.store(at as u64, Ordering::Relaxed);
                    return true;
                }
                *budget -= 1;
                let home = &table.homes.as_slice()[at];
                let header = home.header.fetch_or(CLOSED, Ordering::AcqRel);
                let mut bits = header & BITS;
                while bits != 0 {
                    let position = bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let word = table.word_at(at, home, position).load(Ordering::Acquire);
                    // Bits of a closed home only ever go: set after the word was read, it was the word's all
                    // the time, and not one of somebody's who has reserved the place since.
                    if home.header.load(Ordering::Acquire) & 1 << position == 0 {
                        continue;
                    }
                    *budget = budget.saturating_sub(1);
                    if !self.carry_one(table, word) {
                        // Crowded, and no larger table to be had: leave it where it is, and try later.
                        self.carried.store(at as u64, Ordering::Relaxed);
                        #[allow(clippy::cast_possible_truncation)] // at most LISTED
                        self.stuck.store(directory.len() as u32, Ordering::Relaxed);
                        return false;
                    }
                }
                // Words may be left whose removal is under way; they are theirs to take.
                if home.header.load(Ordering::Acquire) & BITS == 0 {
                    at += 1;
                }
            }
            self.retire(class);
        }
    }

    /// Moves one word out of an old table. False if the youngest has no room and cannot grow.
    fn carry_one(&self, old: &Table, value: u64) -> bool {
        loop {
            let directory = self.directory();
            for class in directory.classes().take(directory.len() - 1) {
                self.table(class).close(hash_of(value));
            }
            let young = self.table(directory.youngest());
            let mut position = 0;
            match young.publish(value, &mut position, &mut |_| false) {
                Publish::Done => {}
                Publish::Found | Publish::Closed => continue,
                Publish::Crowded => {
                    if self.grow(directory) {
                        continue;
                    }
                    return false;
                }
            }
            // Still the youngest? A read-modify-write: either this comes first, and who installs a younger
            // one, and who then reads it, sees the copy; or it fails, and the copy is taken back.
            let still = self
                .directory
                .compare_exchange(
                    directory.0,
                    directory.0,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok();
            if !still {
                self.withdraw(young, value);
                continue;
            }
            if old.remove(value).is_none() {
                // The slot has ended, and who ended it has taken the old word: the copy must go too. The slot
                // is in limbo, so nothing else is published under this word.
                self.withdraw(young, value);
            }
            return true;
        }
    }

    fn withdraw(&self, table: &Table, value: u64) {
        table.remove(value);
    }

    /// Takes the oldest table off the directory, gives its pages back, and its class after a grace period.
    fn retire(&self, class: usize) {
        let mut directory = self.directory();
        loop {
            match self.directory.compare_exchange(
                directory.0,
                directory.without(class).0,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => directory = Directory(now),
            }
        }
        self.carried.store(0, Ordering::Relaxed);
        self.stuck.store(0, Ordering::Relaxed);
        let place = &self.places[class];
        place.state.store(RETIRED, Ordering::Release);
        let state = place.state.clone();
        let table = self.shared(class);
        self.grace.after(move || {
            table.homes.release(0..table.homes.as_slice().len());
            table.overflow.release(0..table.overflow.as_slice().len());
            // Release pairs with the swap in `acquire`.
            state.store(UNUSED, Ordering::Release);
        });
    }

    /// Lets grace periods end. True if one is still running.
    pub(crate) fn turn(&self) -> bool {
        let retired = || {
            self.places
                .iter()
                .any(|place| place.state.load(Ordering::Acquire) == RETIRED)
        };
        if retired() {
            self.grace.turn();
        }
        retired()
    }

    /// A share of a table, for what outlives the call.
    fn shared(&self, class: usize) -> Arc<Table> {
        let table = self.places[class].table.load(Ordering::Acquire);
        // SAFETY: published by `acquire` from `Arc::into_raw`, whose share `self` holds until it is dropped.
        let ours = std::mem::ManuallyDrop::new(unsafe { Arc::from_raw(table) });
        Arc::clone(&ours)
    }

    /// How many tables are listed, and the words of the youngest: for the curious.
    #[cfg(any(test, expiry_loom))]
    pub(crate) fn shape(&self) -> (usize, u64) {
        let directory = self.directory();
        (directory.len(), self.capacity_of(directory.youngest()))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        for place in self.places.iter() {
            let table = place.table.load(Ordering::Acquire);
            if !table.is_null() {
                // SAFETY: made by `acquire` from an `Arc`; this gives the index's share back.
                drop(unsafe { Arc::from_raw(table) });
            }
        }
    }
}
