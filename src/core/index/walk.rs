//! A walk over the hashes of one index, in the bit-reversed order of the hash.
//!
//! The low bits of a hash name its home in a table. In this order the hashes of one home are
//! neighbours, whatever the size of the table:
//!
//! ```text
//!  place:       0 ........................................ 2^32
//!  2 homes:     |        0          |         1          |
//!  4 homes:     |   0     |    2    |    1    |     3    |
//!  8 homes:     | 0  | 4  | 2  | 6  | 1  | 5  | 3  |  7  |
//! ```
//!
//! So all homes that may have a hash lie on the same side of the cursor as the hash itself, and
//! growth, shrinking, migration, and replacements (which keep the hash) move no key past the
//! cursor. The cursor goes from hash to hash: it passes each hash once.

use super::line::bits;
use super::table::{hash_of, slot_of, Table, BITS};
use super::{Index, Probe};
use crate::core::pins::Pin;
use crate::core::prefetch_at;
use crate::sync::{step, Ordering};
use std::ops::Range;

/// The place at which a walk of an index ends.
const END: u64 = 1 << 32;

/// Takes the slots of all words of a hash.
struct All<'m> {
    slot: u32,
    met: &'m mut Vec<u32>,
}

impl Probe for All<'_> {
    fn accept(&mut self, slot: u32) -> bool {
        self.slot = slot;
        true
    }

    fn confirm(&mut self) -> bool {
        // The look-up may meet a word again.
        if !self.met.contains(&self.slot) {
            self.met.push(self.slot);
            step("met");
        }
        false
    }
}

impl Index {
    /// Moves a walk past the next hash, or past a home that has no more, and puts the slots that
    /// the index names under that hash into `met`. Returns `false` at the end. `place` is the
    /// cursor: the first place that the walk has not passed.
    ///
    /// The walk passes a key that is published throughout exactly once. The argument is that of
    /// [`find`](Self::find), for all hashes of the home at once: the walk looks at old tables
    /// before young ones, and starts again if the directory has changed. At a word that is only
    /// reserved, it passes a hash that has no slots yet.
    #[allow(clippy::cast_possible_truncation)] // a place before the end has 32 bits
    pub(crate) fn next(
        &self,
        _pin: &Pin,
        place: &mut u64,
        met: &mut Vec<u32>,
        ahead: impl Fn(u32),
    ) -> bool {
        if *place >= END {
            return false;
        }
        let (next, end) = loop {
            let directory = self.directory();
            let masks = directory.classes().map(|class| self.table(class).mask as u64);
            let span = END / (masks.fold(0, u64::max) + 1);
            let end = (*place | (span - 1)) + 1;
            let home = (*place as u32).reverse_bits();
            let next = directory
                .classes()
                .fold(end, |next, class| self.table(class).least(home, *place..next));
            // Models `a_walk_beside_growth` and `a_walk_beside_shrinking`.
            if self.directory() == directory {
                if cfg!(not(expiry_loom)) && *place & (span - 1) == 0 {
                    let youngest = self.table(directory.youngest());
                    let further = |homes| ((*place + homes * span) as u32).reverse_bits();
                    prefetch_at(youngest.home_of(further(4)));
                    youngest.own_slots(further(2)).for_each(ahead);
                }
                break (next, end);
            }
        };
        if next < end {
            let hash = (next as u32).reverse_bits();
            self.find(hash, &mut All { slot: 0, met });
        }
        *place = end.min(next + 1);
        true
    }
}

impl Table {
    /// The slots that the own words of this hash's home name, or have named.
    fn own_slots(&self, hash: u32) -> impl Iterator<Item = u32> + '_ {
        let words = self.home_of(hash).words.iter();
        // Relaxed: the caller prefetches them, and reads nothing.
        words.map(|word| slot_of(word.load(Ordering::Relaxed)))
    }

    /// The least place, `within` these, of the words whose bits the header of this hash's home has;
    /// their end if there is none.
    fn least(&self, hash: u32, within: Range<u64>) -> u64 {
        let home = self.home_of(hash);
        // Acquire: a word whose bit is gone may have been migrated, and then a younger table must
        // show it (model `a_walk_beside_a_migration`).
        let header = home.header.load(Ordering::Acquire);
        let mut least = within.end;
        for position in bits(header & BITS) {
            // Acquire, as in `matching` (model `a_walk_beside_a_migration`).
            let word = self.word_at(home, hash, position).load(Ordering::Acquire);
            // Another home's word may lie there by now, or none.
            let place = u64::from(hash_of(word).reverse_bits());
            if (within.start..least).contains(&place) {
                least = place;
            }
        }
        least
    }
}
