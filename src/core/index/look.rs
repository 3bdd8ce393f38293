//! Look-ups: in one table, and in the index.

use super::directory::Directory;
use super::table::{slot_of, wanted, Home, Sighting, Table, CLOSED, VERSIONS};
use super::Index;
use crate::core::pins::Pin;
use crate::core::prefetch_at;
use crate::sync::Ordering;

/// What one look at a home shows of a hash.
pub(crate) enum Glance<C, A = ()> {
    /// Most likely this one.
    There(C),
    /// No key has this hash.
    Absent(A),
    Unclear,
}

/// What a look-up asks about a slot whose word has the hash. A closure of the slot's id is one.
pub(crate) trait Probe {
    /// Whether this may be the slot, as it looks just now. It may have another occupant by now.
    fn accept(&mut self, slot: u32) -> bool;

    /// Whether the accepted slot is the one: its word was published throughout the look at it.
    #[inline(always)]
    fn confirm(&mut self) -> bool {
        true
    }
}

impl<F: FnMut(u32) -> bool> Probe for F {
    #[inline(always)]
    fn accept(&mut self, slot: u32) -> bool {
        self(slot)
    }
}

/// A word that may be the wanted one.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    seen: Sighting<'a>,
    header: u64,
}

impl Word<'_> {
    /// Whether the word has been published ever since it was read, in this life of the table. So it
    /// has the hash: a swing changes the slot only.
    #[inline(always)]
    fn was_published(&self) -> bool {
        let now = self.seen.home.header.load(Ordering::Acquire);
        (now ^ self.header) & (VERSIONS | 1 << self.seen.position) == 0
    }
}

impl Table {
    /// The slot of the first word with this hash whose bit the header has and that `probe` takes.
    ///
    /// `header` is the header as read, and afterwards the one that the answer holds for. A match
    /// counts only if the header, read again, still has its bit and has had no publication since.
    /// Otherwise a word that another thread has merely *reserved* could pass for the published one
    /// before it.
    #[inline(always)]
    pub(super) fn look(
        &self,
        home: &Home,
        header: &mut u64,
        hash: u32,
        probe: &mut impl Probe,
    ) -> Option<u32> {
        let wanted = wanted(hash);
        let mut matching = self.matching(home, *header, hash);
        while matching != 0 {
            let position = matching.trailing_zeros() as usize;
            matching &= matching - 1;
            // Acquire: the word was written before its bit, which the header has.
            let word = self.word_at(home, hash, position).load(Ordering::Acquire);
            let accepted = wanted(word) && probe.accept(slot_of(word));
            // After the look into the slot: so the word was there throughout, and the slot had its
            // occupant, not a later one that is not published yet (W6, W14). A swing changes only
            // the word. If there are swings the caller is pinned: the slot that the word named
            // before keeps its occupant.
            let now = home.header.load(Ordering::Acquire);
            let believed = VERSIONS | 1 << position;
            if now & believed != *header & VERSIONS | 1 << position {
                *header = now;
                matching = self.matching(home, now, hash);
                continue;
            }
            if accepted && probe.confirm() {
                return Some(slot_of(word));
            }
        }
        None
    }

    /// The first word with this hash whose bit the header of its home has, or the header, if there
    /// is none and the home is open.
    #[inline(always)]
    pub(super) fn glance<'a>(&'a self, home: &'a Home, hash: u32) -> Glance<Word<'a>, u64> {
        // Acquire, all of it, as in `matching`.
        let header = home.header.load(Ordering::Acquire);
        let mut matching = home.matching(hash) & header;
        if matching == 0 {
            // Called whatever the header says, or the compiler would test that first: a fifth of
            // the homes have words there, and no processor predicts which.
            matching = self.matching_beyond(header, hash);
        }
        if matching == 0 {
            // After the words: one that has been migrated meanwhile is in a younger table
            // (model `w12_a_pinned_glance_beside_a_migrate`). Acquire: the caller's second look at
            // the directory comes after this.
            // survives: in no model does the table begin another life between the looks.
            return match home.header.load(Ordering::Acquire) & CLOSED {
                0 => Glance::Absent(header),
                _ => Glance::Unclear,
            };
        }
        let position = matching.trailing_zeros() as usize;
        // Acquire: a thread that finds a mere reservation finds the header changed (model
        // `w14_a_candidate_that_was_only_reserved`).
        let place = self.word_at(home, hash, position);
        let word = place.load(Ordering::Acquire);
        Glance::There(Word { seen: Sighting { home, place, position, word }, header })
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u32, probe: &mut impl Probe) -> Option<u32> {
        let home = self.home_of(hash);
        let mut header = home.header.load(Ordering::Acquire);
        self.look(home, &mut header, hash, probe)
    }
}

/// A word that may be the wanted one; see [`Index::candidate`].
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    inner: Word<'a>,
    index: &'a Index,
    directory: Directory,
}

impl Candidate<'_> {
    #[inline(always)]
    pub(crate) fn slot(&self) -> u32 {
        self.inner.seen.slot()
    }

    #[inline(always)]
    pub(crate) fn position(&self) -> usize {
        self.inner.seen.position
    }

    /// Whether the word has been published ever since it was read. The caller asks after its look
    /// into the slot. Only for a store without swings, where the word then still names that slot.
    ///
    /// The table is not pinned. If it has begun another life, whose versions begin anew, the header
    /// may read the same though another word is meant. But a thread that publishes there has seen
    /// the directory changed. So a thread that sees that publication in the header, and then reads
    /// the directory, sees the change.
    #[inline(always)]
    pub(crate) fn is_believed(&self) -> bool {
        self.inner.was_published() && self.index.directory() == self.directory
    }
}

/// An open home that had no word of a hash, under a pin: every look-up of that hash comes there.
#[derive(Clone, Copy)]
pub(crate) struct Open<'g> {
    table: &'g Table,
    home: &'g Home,
    header: u64,
    hash: u32,
}

impl Open<'_> {
    /// Publishes a slot there. False, without effect, if the home has changed since or is crowded.
    #[inline(always)]
    pub(crate) fn publish(self, slot: u32) -> bool {
        self.table.publish_under(self.home, self.header, self.hash, slot)
    }
}

/// A hash, and its home in the table that was the oldest just then: most likely its keys are there.
/// A thread makes one before it pins: after the pin it would wait for three loads in turn.
#[derive(Clone, Copy)]
pub(crate) struct Likely<'i> {
    index: &'i Index,
    table: &'i Table,
    home: &'i Home,
    pub(crate) hash: u32,
}

impl<'i> Likely<'i> {
    #[inline(always)]
    fn at(index: &'i Index, table: &'i Table, hash: u32) -> Self {
        Likely { index, table, home: table.home_of(hash), hash }
    }

    /// What a pinned thread sees there. Also unclear if this home is closed, or its table is not
    /// the oldest any more: then [`Index::glance_pinned`] goes on. A table that was retired before
    /// the pin may be given back, and then seems empty and open (model
    /// `w12_a_pinned_glance_beside_a_migrate`).
    #[inline(always)]
    pub(crate) fn glance<'g>(self, pin: &'g Pin) -> Glance<Sighting<'i>, Open<'g>>
    where
        'i: 'g,
    {
        match std::ptr::eq(self.index.oldest(pin), self.table) {
            true => self.glance_here().unwrap_or(Glance::Unclear),
            false => Glance::Unclear,
        }
    }

    /// Publishes a slot there, or in a younger table, if no word of the hash is there and the home
    /// is not crowded. Otherwise false, and nothing has changed.
    #[inline(always)]
    pub(crate) fn publish(self, pin: &Pin, slot: u32) -> bool {
        match self.glance(pin) {
            Glance::There(_) => false,
            Glance::Absent(open) => open.publish(slot),
            Glance::Unclear => self.index.insert_simply(pin, self.hash, slot),
        }
    }

    /// What this home of a listed table shows. `None` if it has no word of the hash, and is closed.
    #[inline(always)]
    fn glance_here(self) -> Option<Glance<Sighting<'i>, Open<'i>>> {
        let Likely { table, home, hash, .. } = self;
        Some(match table.glance(home, hash) {
            Glance::There(word) if word.was_published() => Glance::There(word.seen),
            Glance::There(_) => Glance::Unclear,
            Glance::Absent(header) => Glance::Absent(Open { table, home, header, hash }),
            Glance::Unclear => return None,
        })
    }
}

impl Index {
    /// The likely home of a key of this hash, of which this starts the fetch.
    #[inline(always)]
    pub(crate) fn likely(&self, hash: u32) -> Likely<'_> {
        // survives: the address is made of fields that are no atomics, which loom does not see.
        // SAFETY: as in `oldest`: tables are freed only with `self`.
        let likely = Likely::at(self, unsafe { &*self.oldest.load(Ordering::Acquire) }, hash);
        prefetch_at(likely.home);
        likely
    }

    /// What a pinned thread sees at the first home of this hash that is open, or has a word of it.
    /// The bullets of [`oldest`](Self::oldest) hold for that home.
    #[inline]
    pub(crate) fn glance_pinned<'i: 'g, 'g>(
        &'i self,
        _pin: &'g Pin,
        hash: u32,
    ) -> Glance<Sighting<'i>, Open<'g>> {
        let glance = |class| Likely::at(self, self.table(class), hash).glance_here();
        self.directory().classes().find_map(glance).unwrap_or(Glance::Unclear)
    }

    /// The published word of this hash that names `slot`, unless that takes more than a glance.
    #[inline(always)]
    pub(crate) fn sight(&self, pin: &Pin, hash: u32, slot: u32) -> Option<Sighting<'_>> {
        let seen = match self.likely(hash).glance(pin) {
            Glance::There(seen) => Some(seen),
            Glance::Absent(_) => None,
            Glance::Unclear => self.sight_younger(pin, hash),
        };
        seen.filter(|seen| seen.slot() == slot)
    }

    #[cold]
    #[inline(never)]
    fn sight_younger(&self, pin: &Pin, hash: u32) -> Option<Sighting<'_>> {
        match self.glance_pinned(pin, hash) {
            Glance::There(seen) => Some(seen),
            _ => None,
        }
    }

    /// The likeliest place of this hash's key: its own, unless keys share it or the index grows.
    #[inline(always)]
    pub(crate) fn glance(&self, hash: u32) -> Glance<Candidate<'_>> {
        let directory = self.directory();
        let Some(class) = directory.single() else {
            return Glance::Unclear;
        };
        let table = self.table(class);
        match table.glance(table.home_of(hash), hash) {
            Glance::There(inner) => Glance::There(Candidate { inner, index: self, directory }),
            // As in `find`, which has found nothing either (W12).
            Glance::Absent(_) if self.directory() == directory => Glance::Absent(()),
            _ => Glance::Unclear,
        }
    }

    /// The candidate of [`glance`](Self::glance), if there is one.
    #[inline(always)]
    pub(crate) fn candidate(&self, hash: u32) -> Option<Candidate<'_>> {
        match self.glance(hash) {
            Glance::There(candidate) => Some(candidate),
            _ => None,
        }
    }

    /// The first slot under `hash` that `probe` takes. Lock-free; wait-free while nothing grows.
    pub(crate) fn find(&self, hash: u32, probe: &mut impl Probe) -> Option<u32> {
        loop {
            let directory = self.directory();
            let mut classes = directory.classes();
            let found = classes.find_map(|class| self.table(class).find(hash, probe));
            // If nothing was found, a key may have been migrated from a table not yet looked at
            // into one not listed then (W12). If something was, its table may have begun another
            // life between the two looks at the header, whose versions begin anew (W6, W14).
            if self.directory() == directory {
                return found;
            }
        }
    }
}
