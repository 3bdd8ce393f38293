//! Changes of published words: a replacing thread makes a word name the new slot, and the migrating
//! thread copies words to a younger table.
//!
//! `docs/design.md`, "Growth beside replacement", says why neither undoes the other's work.

use super::table::{hash_of, slot_of, wanted, word, Table, VERSIONS};
use crate::sync::Ordering;

/// What became of [`Table::swing`].
pub(super) enum Swung {
    /// The word names the slot.
    Yes,
    /// No word here leads to it.
    No,
    /// Another thread has changed the word just now.
    Again,
}

impl<const OWN: usize> Table<OWN> {
    /// Makes the word at `position` of its home name `target`, if it is `from`. Returns whether it
    /// was.
    ///
    /// The slot that `from` names leads to `target`. The caller has been pinned since it found that
    /// slot, so no other entry has it: what is `from` is this key's word, or a migrating thread's
    /// copy of it.
    #[inline(always)]
    pub(super) fn swing_at(&self, from: u64, target: u32, position: usize) -> bool {
        let hash = hash_of(from);
        let Some(place) = self.place_of(hash, position) else {
            return false;
        };
        // The orderings are those of `swing`.
        place
            .compare_exchange(from, word(hash, target), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Makes the published word whose slot leads to `target` name it, in a closed home too. The
    /// caller is pinned.
    pub(super) fn swing(&self, hash: u32, target: u32, tail: impl Fn(u32) -> u32) -> Swung {
        let (at, home) = self.home(hash);
        let wanted = wanted(hash);
        let mut header = home.header.load(Ordering::Acquire);
        let mut matching = self.matching(at, home, header, hash);
        while matching != 0 {
            let position = matching.trailing_zeros() as usize;
            matching &= matching - 1;
            let place = self.word_at(at, home, position);
            // Acquire pairs with the swap that has set it: the slot's lease is its present
            // occupant's (model `a_late_swing_beside_a_reused_slot`).
            let word = place.load(Ordering::Acquire);
            // Before the look into the slot, which is this word's then: the caller is pinned.
            // survives: the word was read with Acquire before it, as in `migrate_words`. A swing
            // that misses a word on its way to a younger table goes round again while its target
            // lives.
            let now = home.header.load(Ordering::Acquire);
            let believed = VERSIONS | 1 << position;
            if now & believed != header & VERSIONS | 1 << position {
                header = now;
                matching = self.matching(at, home, now, hash);
                continue;
            }
            if !wanted(word) || tail(slot_of(word)) != target {
                continue;
            }
            let swung = slot_of(word) == target
                || place
                    .compare_exchange(
                        word,
                        super::table::word(hash, target),
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok();
            return if swung { Swung::Yes } else { Swung::Again };
        }
        Swung::No
    }

    /// Takes the word at `position` of a closed home away, of which `value` has been copied
    /// elsewhere: what it was in the end. `None` if it was gone. The migrating thread's.
    pub(super) fn take_copied(&self, at: usize, position: usize) -> Option<u64> {
        let home = &self.homes.as_slice()[at];
        loop {
            // survives: a late header makes the swap in `disown` fail. A bit that reads as gone is
            // gone for good, and nothing is read by it.
            let header = home.header.load(Ordering::Acquire);
            if header & 1 << position == 0 {
                return None;
            }
            if home.disown(header, position) {
                // A swing may have come since the word was copied.
                return Some(self.word_at(at, home, position).swap(0, Ordering::AcqRel));
            }
        }
    }

    /// Makes the copy at `position` name the slot that it leads to. The migrating thread's.
    pub(super) fn mend_copy(&self, position: usize, hash: u32, tail: impl Fn(u32) -> u32) {
        let (at, home) = self.home(hash);
        let place = self.word_at(at, home, position);
        let wanted = wanted(hash);
        // Acquire, also where the swap fails: as in `swing` (model
        // `a_copy_is_mended_beside_a_reused_slot`).
        let mut now = place.load(Ordering::Acquire);
        // Where the entry has been removed in the meantime, so has the word.
        while wanted(now) && tail(slot_of(now)) != slot_of(now) {
            let swung = super::table::word(hash, tail(slot_of(now)));
            // Release: a look-up that finds the slot here finds it filled (model
            // `a_look_up_of_a_mended_copy`).
            match place.compare_exchange(now, swung, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => now = swung,
                Err(changed) => now = changed,
            }
        }
    }

    /// Takes the copy at `position` away, whatever it names: the caller is the migrating thread,
    /// which owns its bit.
    pub(super) fn withdraw(&self, position: usize, hash: u32) {
        let (at, home) = self.home(hash);
        // survives: the migrating thread set the bit, and no other thread takes it. The swap in
        // `disown` confirms the rest of the header. This holds for the load in the loop, too.
        let mut header = home.header.load(Ordering::Acquire);
        while header & 1 << position != 0 && !home.disown(header, position) {
            header = home.header.load(Ordering::Acquire);
        }
        // survives: stronger than needed: the entry has ended, so a lookup has nothing to look for
        // elsewhere. Words of another home have another hash, and the next migrating thread comes
        // after this one.
        self.word_at(at, home, position).store(0, Ordering::Release);
    }
}
