//! Counts of what the threads of a run have done and seen.

use crate::counts::counts;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

/// Live figures. The counters are relaxed; no check uses them.
#[derive(Debug, Default)]
pub struct Stats {
    pub issued: AtomicU64,
    pub operations: AtomicU64,
    pub failed: AtomicU64,
    pub timed_out: AtomicU64,
    /// The latest that a timeout came, in nanoseconds after it was promised to be due.
    pub latest: AtomicU64,
}

impl Stats {
    /// Adds the difference between `before` and `now`.
    pub fn advance(&self, before: &Tally, now: &Tally) {
        self.issued.fetch_add(now.issued - before.issued, Relaxed);
        self.operations.fetch_add(now.operations() - before.operations(), Relaxed);
        self.failed.fetch_add(now.failed - before.failed, Relaxed);
        self.timed_out.fetch_add(now.timed_out - before.timed_out, Relaxed);
    }
}
