//! Idle roots: a root times out where no ack has come for the tracker's idle timeout.
//!
//! The lease has the root's own deadline, as without an idle timeout. The word beside it, the
//! slot's *term*, has the tick at which the root has been idle for too long. The thread that begins
//! the root sets it before the lease is live. Acks and resets only raise it: a slow one of the
//! slot's former root cannot make it earlier.
//!
//! A root's first notice is for the earlier of the two ticks. The driver ends the root at the
//! earlier one, or looks again then. An ack that comes while the driver ends the root counts as
//! made just before that end, as any other.

use super::tree::Tree;
use super::{Mine, Times, Trees};
use crate::core::lease::State;
use crate::core::occupancy::Occupant;
use crate::sync::{overwrite, Ordering};

impl<T: 'static> Trees<T> {
    /// The tick at which a root that begins now, or is used now, has been idle for too long.
    #[cold]
    #[inline(never)]
    pub(super) fn idle_by(&self, mine: &Mine, idle: u64) -> u64 {
        self.engine.deadlines.due(&mine.deadlines, idle)
    }

    /// A root with these times begins in this slot. Called before its lease is live, which
    /// publishes this. Returns the tick by which the driver looks at the root.
    #[inline(always)]
    pub(super) fn begin_idle(&self, id: u32, times: Times) -> u64 {
        if self.settings.idle_timeout.is_some() {
            self.set_idle(id, times.idle);
        }
        times.deadline.min(times.idle)
    }

    #[cold]
    #[inline(never)]
    fn set_idle(&self, id: u32, until: u64) {
        if let Some(spot) = self.engine.slots.spot(id) {
            overwrite(spot.term, until, Ordering::Relaxed);
        }
    }

    /// An ack, or a reset, of the root in this slot.
    #[inline(always)]
    pub(super) fn note_use(&self, id: u32) {
        if let Some(idle) = self.settings.idle_timeout {
            self.note_use_of(id, idle);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_use_of(&self, id: u32, idle: u64) {
        let until = self.engine.with_stripe(|mine, _| self.idle_by(mine, idle));
        self.raise_idle(id, until);
    }

    /// A root's init takes over the early entry in this slot.
    pub(super) fn adopt_idle(&self, id: u32, times: Times) {
        if self.settings.idle_timeout.is_some() {
            self.raise_idle(id, times.idle);
        }
    }

    fn raise_idle(&self, id: u32, until: u64) {
        if let Some(spot) = self.engine.slots.spot(id) {
            // (`a_late_use_beside_the_next_root_of_a_slot` fails by a swap.)
            spot.term.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// When the driver is to end a root whose lease ends at `deadline`.
    #[inline(always)]
    pub(in crate::ack) fn idle_or(&self, live: &Occupant<'_, Tree<T>>, deadline: u64) -> u64 {
        let begun = || matches!(live.lease.state(), State::Live | State::LiveIssued);
        if self.settings.idle_timeout.is_none() || !begun() {
            return deadline;
        }
        let spot = self.engine.slots.spot(live.id);
        spot.map_or(deadline, |spot| deadline.min(spot.term.load(Ordering::Relaxed)))
    }
}
