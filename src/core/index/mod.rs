//! The index: from a key to its slot. Lock-free, it grows and shrinks without a pause.
//!
//! An id that the engine issues names its slot, and needs no index. For each key that callers
//! choose the index holds a 64-bit word, `hash (32 bits) | slot (32 bits)`, with a seeded hash.
//! Slots never move, so growth of the index touches 8 bytes a key and no live state.
//!
//! # Layout
//!
//! A table of class `c` has `2^(6 + c)` *homes* (index buckets). A home is one cache line: a header
//! and 7 words. Every two neighbouring homes share one *overflow bucket* of 8 words. A full home
//! spills into its group's overflow bucket, then into the next group's, then into that of a group
//! far away. So a table is well over half full before one of its homes has no word left and the
//! table must grow. It then takes 16 bytes a key, and just after growth twice that, or four times
//! in a small table. A home's header governs all words of the home, wherever they lie:
//!
//! ```text
//!  header:  63 .. 32   31      30 .. 23    22 .. 15    14 .. 7     6 .. 0
//!           version    CLOSED  overflow 3  overflow 2  overflow 1  own       <- one bit a word: published
//! ```
//!
//! # Operations and where they take effect
//!
//! * **Publish** (insert if absent): load the header, and look through the words whose bits are
//!   set. If the key is not there, reserve a word that is zero by compare-and-swap. Then
//!   compare-and-swap the *home's* header from the value read to one with the word's bit set and
//!   the version counted up. That swap is the linearization point. Two threads that insert one key
//!   meet on this header even if their words lie in different lines, so only one succeeds and the
//!   other looks again (W13). The version (32 bits) makes such a swap fail if the home has the same
//!   bits again with other contents.
//! * **Find**: load the header (Acquire), compare the hash of each word whose bit is set, and ask
//!   the caller whether the slot holds the key. A look-up finds every key that is published when it
//!   loads the header, and not removed meanwhile.
//! * **Remove**: compare-and-swap the bit away (linearization point), then zero the word. Only the
//!   thread that ended the slot removes its word, and the slot is not reused before. The swap
//!   expects the header from which the word was read, so the bit still stands for that word.
//! * A larger table cannot separate keys that share all bits of the hash, as a weak hasher makes
//!   them; they would take the room of the other keys of this home. So at most [`ALIKE`] such keys
//!   get in, a quarter of a home's words, and one more while the index grows. A publishing thread
//!   counts them under the header that its swap expects, and before that in the older tables, whose
//!   homes are closed.
//! * A table is *sparse* if it has more than 1,024 homes and less than a word for each. A home that
//!   a weak hasher has filled does not make a sparse table grow. The index refuses the key, and a
//!   migrating thread leaves the word in the old table until there is a larger one. So an index
//!   that such hashes fill takes at most 400 KB of address space, or about 200 bytes a key in its
//!   youngest table. All tables that have been in use take up to 800 bytes a key, where many wait
//!   for migration.
//!
//! # Growth (W7, W12)
//!
//! The *directory* is one word: up to eight classes in order of age, the youngest last, and a
//! version. When a table gets crowded, a thread installs a larger successor by a swap of the
//! directory. From then on:
//!
//! * A new key goes into a table only if its home is **closed** in all older ones, and they do not
//!   have the key. A read-modify-write on a home's header closes it, after which no thread can
//!   publish there: either a competing publication came first, and the header shows it, or it fails
//!   and looks again. So a simple insertion takes the first table in which the home is open. Any
//!   other one closes the older homes, and takes the youngest table.
//! * Look-ups go from old to young, and begin again if the directory has changed.
//! * The *migrating thread* (the engine's driver, or an inserting thread where the driver has
//!   fallen behind; one at a time) closes the old homes one by one. For each word it first closes
//!   the key's homes in all tables but the youngest: otherwise an insert that has passed the oldest
//!   table could publish the key in a middle one. Then it publishes a copy in the youngest table,
//!   and only then takes the old bit away. So at every moment at least one copy is where a look-up,
//!   or an insert, has yet to go. This holds also if a younger table is installed meanwhile: both
//!   go from old to young. If the old bit is gone already, the slot has ended meanwhile, and the
//!   migrating thread withdraws the copy.
//! * A thread that removes a word from a closed home may be racing with such a copy. It therefore
//!   hands the slot to the deferred-free list, which no thread gathers while another one copies.
//!   So **no slot is reused while any word for it exists**; every argument here leans on this.
//! * A *swing* makes a word name another slot, which holds the same key (`keyed`). It is a
//!   compare-and-swap of the word where it lies, in closed homes too. It starts at the oldest
//!   table, and asks after each table whether its target is still live. The migrating thread takes
//!   an old word away by a swap, and sees there whether a swing came after it had copied the word;
//!   then it swings the copy. `docs/design.md`, "Growth beside replacement", has the argument.
//! * The migrating thread takes a table whose homes are all closed and empty off the directory. The
//!   homes stay closed, so that a publisher that still has the old directory fails there. When
//!   every publisher that was pinned at that time has gone (`core::pins`), the driver gives the
//!   table's pages back, and its class may be used again. Removals are pinned too: one that has
//!   taken a bit away has yet to zero the word, and one that has read a header has yet to swap it.
//!   Look-ups of trees need no pin, as index memory is never unmapped while the engine lives. In a
//!   retired table, or one put to use again, they may find a wrong answer. Then they see that the
//!   directory has changed, and begin again.
//!
//! Idea of the home-wide version: DLHT (arXiv 2406.09986). The fixed overflow buckets, the
//! directory word and migration by one thread are this crate's.

mod directory;
mod growth;
mod line;
mod look;
mod swing;
mod table;
#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_index.rs"]
mod tests;
mod walk;

use self::directory::Directory;
pub(crate) use self::look::{Candidate, Glance, Likely, Open, Probe};
pub(crate) use self::table::Sighting;
use self::table::{word, Publish, Table};
use super::memory::OutOfMemory;
use super::params::{ALIKE, CLASSES};
use super::pins::{Pin, Wait};
use crate::sync::exclusive::Exclusive;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The result of [`Index::insert`].
pub(crate) enum Insert {
    Done,
    /// `probe` took a slot that was there.
    Found,
    /// No memory for a larger table, or no larger class.
    Full,
    /// There are [`ALIKE`] keys of this hash.
    Alike,
}

/// The result of [`Index::remove`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// The slot may be reused at once.
    Clean,
    /// A copy may be under way: the slot goes to the deferred-free list.
    Copied,
}

/// The index of one shard.
pub(crate) struct Index {
    directory: AtomicU64,
    /// See [`Index::oldest`].
    oldest: AtomicPtr<Table>,
    /// The table of each class, or null. The pointers come from `Box::into_raw`.
    tables: [AtomicPtr<Table>; CLASSES],
    /// Whether each class is in use: listed, being put to use, or retired.
    used: [AtomicBool; CLASSES],
    migrator: Exclusive<Migrator>,
    /// The number of retired tables, for a driver that looks in passing.
    retired: AtomicU32,
    /// At how many tables the migrating thread found neither room nor memory; 0 if it did not.
    stuck: AtomicU32,
}

/// What the migrating thread keeps.
#[derive(Default)]
struct Migrator {
    /// The home that is migrated next, in the oldest table.
    next: usize,
    /// The classes of retired tables, in which pinned threads may still be.
    retired: Vec<(usize, Wait)>,
}

impl Index {
    pub(crate) fn new() -> Result<Self, OutOfMemory> {
        let index = Index {
            directory: AtomicU64::new(Directory::of(std::iter::once(0), 0).0),
            oldest: AtomicPtr::new(std::ptr::null_mut()),
            tables: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            used: std::array::from_fn(|_| AtomicBool::new(false)),
            migrator: Exclusive::new(Migrator::default()),
            retired: AtomicU32::new(0),
            stuck: AtomicU32::new(0),
        };
        if !index.acquire(0)? {
            unreachable!("class 0 of a new index is unused");
        }
        index.set_oldest(0);
        Ok(index)
    }

    #[inline]
    fn directory(&self) -> Directory {
        Directory(self.directory.load(Ordering::Acquire))
    }

    #[inline]
    fn table(&self, class: usize) -> &Table {
        // survives: the class comes from the directory, which was loaded with Acquire.
        // SAFETY: a class is listed in the directory only after its table was published (`acquire`,
        // Release in the directory's swap), and tables are freed only with `self`.
        unsafe { &*self.tables[class].load(Ordering::Acquire) }
    }

    /// The oldest listed table, or one that was until just now. What a pinned thread sees there
    /// holds for the index:
    ///
    /// * The table does not begin another life: it would have to wait for this thread. If it is off
    ///   the directory already, its homes are closed and empty.
    /// * A word in it is the one that every look-up would find first.
    /// * If a home has no word of a hash, and is open after that look, no table has: a thread that
    ///   publishes the key in a younger table has closed this home before.
    /// * A thread that publishes in an open home meets, on its header, the one that closes it to
    ///   publish elsewhere.
    /// * A word taken away while its home is open has no copy: migration closes a home before it
    ///   copies.
    ///
    /// Model `w12_a_pinned_glance_beside_a_migrate` fails if `retire` sets it any later.
    #[inline(always)]
    fn oldest(&self, _pin: &Pin) -> &Table {
        // Acquire: the table's buckets are there (`w07_at_home_with_a_migrator` fails without it).
        // SAFETY: set by `new`, and tables are freed only with `self`.
        unsafe { &*self.oldest.load(Ordering::Acquire) }
    }

    /// Called by one thread at a time: by `new`, and then by the migrating thread.
    fn set_oldest(&self, class: usize) {
        let table: *const Table = self.table(class);
        self.oldest.store(table.cast_mut(), Ordering::Release);
    }

    /// The simple [`insert`](Self::insert): nothing in the first open home has this hash, and it is
    /// not crowded. Otherwise false, and nothing has changed.
    #[inline(never)]
    pub(crate) fn insert_simply(&self, pin: &Pin, hash: u32, slot: u32) -> bool {
        match self.glance_pinned(pin, hash) {
            Glance::Absent(open) => open.publish(slot),
            _ => false,
        }
    }

    /// Publishes `slot` under `hash` unless `probe` takes a slot that is there already. Lock-free.
    pub(crate) fn insert(
        &self,
        _pin: &Pin,
        hash: u32,
        slot: u32,
        crowded: &mut bool,
        probe: &mut impl Probe,
    ) -> Insert {
        loop {
            let directory = self.directory();
            let youngest = directory.youngest();
            let older = || directory.classes().take(directory.len() - 1).map(|at| self.table(at));
            let alike = || older().map(|table| table.alike(hash)).sum::<usize>();
            if older().any(|table| table.find_closing(hash, probe).is_some()) {
                return Insert::Found;
            }
            let counted = alike();
            // The migrating thread has at most one word that is in two tables.
            let room = (ALIKE + usize::from(directory.len() > 1)).saturating_sub(counted);
            let table = self.table(youngest);
            match table.publish(hash, slot, room, probe) {
                Publish::Done(position) => {
                    if table.crowded_at(position) {
                        *crowded = true;
                    }
                    return Insert::Done;
                }
                Publish::Found => return Insert::Found,
                // Words that have been migrated meanwhile were counted twice: look again (model
                // `the_last_place_of_a_hash_beside_a_migrate`).
                Publish::Alike if alike() != counted => {}
                Publish::Alike => return Insert::Alike,
                // The directory that closed it is visible by now: look again.
                Publish::Closed => {}
                Publish::Crowded => {
                    *crowded = true;
                    if !self.grow(directory) {
                        return if table.is_sparse() { Insert::Alike } else { Insert::Full };
                    }
                }
            }
        }
    }

    /// Takes away the word of an ended slot. Exactly one thread calls this for each published slot.
    ///
    /// `seen` is the word, if the caller has seen it under this pin. `leads` says whether another
    /// slot leads to this one: the word may still name that slot, if a migrating thread has copied
    /// it. The pin keeps the table from beginning another life between the look at a header and the
    /// last store to a word.
    #[inline(always)]
    pub(crate) fn remove(
        &self,
        _pin: &Pin,
        hash: u32,
        slot: u32,
        seen: Option<Sighting<'_>>,
        leads: impl Fn(u32) -> bool,
    ) -> Removed {
        match seen.and_then(Sighting::remove) {
            Some(false) => return Removed::Clean,
            Some(true) => return Removed::Copied,
            None => {}
        }
        self.remove_anywhere(hash, move |candidate| candidate == slot || leads(candidate))
    }

    /// As [`remove`](Self::remove), of a slot to which no other leads. Before it pinned, the caller
    /// may have seen the word at this `position` of its home: most likely it is there yet.
    #[inline(always)]
    pub(crate) fn remove_at(
        &self,
        pin: &Pin,
        hash: u32,
        slot: u32,
        position: Option<usize>,
    ) -> Removed {
        let value = word(hash, slot);
        let seen = position.map(|position| self.oldest(pin).sighting(value, position));
        self.remove(pin, hash, slot, seen, |_| false)
    }

    /// [`remove`](Self::remove), wherever the word is.
    #[inline(never)]
    fn remove_anywhere(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Removed {
        loop {
            let directory = self.directory();
            for class in directory.classes() {
                match self.table(class).remove(hash, &is_it) {
                    None => {}
                    // With an old directory this may have been the copy: its table was then
                    // retired, put to use again as the youngest, and looked into before the one
                    // that is migrated.
                    Some(false) if self.directory() == directory => return Removed::Clean,
                    Some(_) => return Removed::Copied,
                }
            }
            // Migrated between the looks: it is in a younger table now. Each such miss is a step of
            // the migrating thread, and there are at most as many as tables.
        }
    }

    /// Makes the word whose slot leads to `target` name `target` itself, unless `target` is no
    /// longer live: then it has been found under its own word. `tail` is where a slot's forwards
    /// lead to. `seen` is the word of the slot that the caller has just forwarded, if it has seen
    /// that word under this pin. Lock-free.
    #[inline(always)]
    pub(crate) fn swing(
        &self,
        _pin: &Pin,
        hash: u32,
        seen: Option<Sighting<'_>>,
        target: u32,
        tail: impl Fn(u32) -> u32,
        is_live: impl Fn() -> bool,
    ) {
        if !seen.is_some_and(|seen| seen.swing(target)) {
            self.swing_anywhere(hash, target, tail, is_live);
        }
    }

    /// [`swing`](Self::swing), wherever the word is.
    ///
    /// It goes from old tables to young ones, as far as the first that has such a word: a younger
    /// one may have a migrating thread's copy. A slot that is live after a table was searched in
    /// vain has its word in a younger one.
    #[cold]
    fn swing_anywhere(
        &self,
        hash: u32,
        target: u32,
        tail: impl Fn(u32) -> u32,
        is_live: impl Fn() -> bool,
    ) {
        loop {
            for class in self.directory().classes() {
                if self.table(class).swing(hash, target, &tail) || !is_live() {
                    return;
                }
            }
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        for table in &self.tables {
            // survives: stronger than needed: `&mut self`.
            let table = table.load(Ordering::Acquire);
            if !table.is_null() {
                // SAFETY: `acquire` made it from a box. By `&mut self` no thread uses it any more.
                drop(unsafe { Box::from_raw(table) });
            }
        }
    }
}
