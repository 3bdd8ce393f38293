//! The dead: records of schedules that have ended, and when the wheel drops them (W-dead).
//!
//! A record is dead if its generation is not its node's. Nothing looks for it when the schedule
//! ends: a pop, a cascade or the broom drops it later (`records`).

use super::{Payload, Wheel};

/// Number of dead records that the wheel keeps, whatever the number of ids.
const SLACK: usize = 64;

/// Number of blocks that filing a record sweeps at most, where there are too many records.
const STROKES: usize = 2;

/// Number of records for so many ids above which filing one drops dead ones.
#[inline]
pub(super) fn most(ids: usize) -> usize {
    3 * ids + SLACK
}

impl<P: Payload> Wheel<P> {
    /// Leaves the record of a scheduled id dead.
    #[inline]
    pub(super) fn end(&mut self, id: u32) {
        if self.nodes.end(id) {
            self.lists.sweep_all(&self.nodes);
        }
    }

    /// The generation of `id` has come round to its first one, whose records would match again.
    #[cold]
    pub(super) fn come_round(&mut self, id: u32) {
        self.nodes.set_generation(id, 0);
        self.lists.sweep_all(&self.nodes);
        self.nodes.set_generation(id, 1);
    }

    /// Drops a few dead records. They outnumber the living ones, so few blocks are enough.
    #[inline(never)]
    pub(super) fn sweep(&mut self) {
        for _ in 0..STROKES {
            self.lists.sweep(&self.nodes);
            if self.lists.records() <= self.most {
                return;
            }
        }
    }
}
