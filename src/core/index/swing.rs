//! Changes of published words: by a replacing thread to the new slot, and copies to younger tables.
//!
//! `docs/design.md`, "Growth beside replacement", says why neither undoes the other's work.

use super::line::bits;
use super::table::{slot_of, wanted, word, Table};
use crate::sync::Ordering;

impl Table {
    /// Makes the word whose slot leads to `target` name `target`, in a closed home too. Returns
    /// whether there is such a word. The caller is pinned.
    ///
    /// It needs no second look at the header. No unpublished word leads to `target`: a thread that
    /// has forwarded a slot to its own has withdrawn its reservation before, and while a copy is
    /// not published yet, the swing ends at the old word. If a word's bit is gone, the migrating
    /// thread takes from it what the swing has put there.
    pub(super) fn swing(&self, hash: u32, target: u32, tail: impl Fn(u32) -> u32) -> bool {
        let home = self.home_of(hash);
        let (wanted, swung) = (wanted(hash), word(hash, target));
        // survives: a swing that misses a word on its way to a younger table goes round again while
        // its target lives.
        let header = home.header.load(Ordering::Acquire);
        bits(self.matching(home, header, hash)).any(|position| {
            let place = self.word_at(home, hash, position);
            // Acquire, also where the swap fails: it pairs with the swap that has set the word. The
            // slot's lease is its present occupant's (model `a_late_swing_beside_a_reused_slot`).
            let mut now = place.load(Ordering::Acquire);
            while wanted(now) && tail(slot_of(now)) == target {
                if now == swung {
                    return true;
                }
                match place.compare_exchange(now, swung, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return true,
                    Err(changed) => now = changed,
                }
            }
            false
        })
    }

    /// Takes away the word at `position` of the closed home of `hash`, copied before, and returns
    /// its last value; `None` if it was gone. Only the migrating thread calls this.
    pub(super) fn take_copied(&self, hash: u32, position: usize) -> Option<u64> {
        let home = self.home_of(hash);
        loop {
            // survives: a late header makes the swap in `disown` fail. A bit that reads as gone is
            // gone for good, and nothing is read by it.
            let header = home.header.load(Ordering::Acquire);
            if header & 1 << position == 0 {
                return None;
            }
            if home.disown(header, position) {
                // A swing may have come since the word was copied.
                return Some(self.word_at(home, hash, position).swap(0, Ordering::AcqRel));
            }
        }
    }

    /// Makes the copy at `position` name its slot's tail. Only the migrating thread calls this.
    pub(super) fn mend_copy(&self, position: usize, hash: u32, tail: impl Fn(u32) -> u32) {
        let home = self.home_of(hash);
        let place = self.word_at(home, hash, position);
        let wanted = wanted(hash);
        // Acquire, also where the swap fails: as in `swing` (model
        // `a_copy_is_mended_beside_a_reused_slot`).
        let mut now = place.load(Ordering::Acquire);
        // If the entry has been removed in the meantime, so has the word.
        //
        // One attempt is not enough. The bit of the old word is gone before the word is. In between
        // a late helper of a replacement finds the copy, and leads it to slot `t`. Another thread
        // replaces `t` by the old word, swings that, and retires `t`. If the helper's swap comes
        // just before this thread's, the copy names `t`, and no other thread will swing it.
        while wanted(now) && tail(slot_of(now)) != slot_of(now) {
            let swung = word(hash, tail(slot_of(now)));
            // Release: a look-up that finds the slot here finds it filled (model
            // `a_look_up_of_a_mended_copy`).
            match place.compare_exchange(now, swung, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => now = swung,
                Err(changed) => now = changed,
            }
        }
    }

    /// Takes away the copy at `position`, whatever it names. Only the migrating thread calls this.
    pub(super) fn withdraw(&self, position: usize, hash: u32) {
        let home = self.home_of(hash);
        // survives: the migrating thread set the bit, and no other thread takes it. The swap in
        // `disown` confirms the rest of the header. This holds for the load in the loop, too.
        let mut header = home.header.load(Ordering::Acquire);
        while header & 1 << position != 0 && !home.disown(header, position) {
            header = home.header.load(Ordering::Acquire);
        }
        // survives: stronger than needed: the entry has ended, so a lookup has nothing to look for
        // elsewhere. Words of another home have another hash, and the next migrating thread comes
        // after this one.
        self.word_at(home, hash, position).store(0, Ordering::Release);
    }
}
