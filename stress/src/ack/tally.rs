//! Counts of what the threads of a run have done and seen.

use crate::counts::counts;

counts! {
    /// Counts of one thread, or of all.
    Tally {
        /// Roots that were issued, or whose init was accepted.
        issued,
        acks,
        fails,
        resets,
        /// Roots by their outcome.
        acked,
        failed,
        timed_out,
        /// Acks that said that they completed a tree.
        completed,
        /// Fails that said that they took effect.
        fails_done,
        /// Resets that took effect.
        resets_done,
        /// Acks that were repeated.
        repeated,
        /// Operations that came after their root's end.
        after_end,
        /// Roots part of which was acked by another thread.
        handed_off,
        /// First acks that came before the init and were held.
        early,
        /// Operations refused as late.
        refused,
        /// Late operations of chosen roots that were held like early ones.
        held_late,
        /// Early or late operations of chosen roots that were refused because too many were held.
        early_full,
    }
}

impl Tally {
    pub fn operations(&self) -> u64 {
        self.issued + self.acks + self.fails + self.resets
    }
}
