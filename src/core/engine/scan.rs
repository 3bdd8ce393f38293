//! Scans: the driver looks into the blocks that are due, and ends what is due in them.

use super::shard::DriverShard;
use super::{pause, DueBlock, Engine, Frontend, Instant, Pin, Work};
use crate::core::lease::{EARLY, EXPIRING};
use crate::core::occupancy::Occupant;
use crate::core::params::{BLOCK, BLOCK_U32};
use crate::core::prefetch_at;
use crate::core::slot::{Payload, Slot};
use crate::core::slots::Run;
use crate::sync::step;
use crate::time::NEVER;

/// How many due blocks the driver takes from a wheel before it scans the first of them.
pub(super) const DUE_BLOCKS: usize = 32;

/// A bit for each slot of a block.
const ALL_SLOTS: u32 = (1 << BLOCK) - 1;

/// The places of a block whose bits are set.
#[inline(always)]
pub(crate) fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let at = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(at)
    })
}

/// A block that the wheel has found due.
#[derive(Clone, Copy)]
pub(super) struct Due {
    /// Its number in the shard.
    local: u32,
    /// Its first slot.
    first: u32,
    /// The next expiration that the driver has taken of it; [`NEVER`] if there was none.
    next: u64,
    /// A bit for each slot whose time may have come.
    candidates: u32,
    /// The block's plan says so.
    planned: bool,
}

impl Due {
    pub(super) fn new(local: u32, block: u32) -> Self {
        Due { local, first: block * BLOCK_U32, next: NEVER, candidates: 0, planned: false }
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// Ends what is due in the blocks that the driver has found due.
    pub(super) fn scan_all(
        &self,
        driver: &mut DriverShard,
        instant: Instant<'_>,
        work: &mut Work,
        frontend: &impl Frontend<P>,
    ) {
        let mut all = std::mem::take(&mut driver.due);
        for due in &mut all {
            self.take(driver, due, instant.tick);
        }
        if all.len() > 1 {
            self.prefetch_due(&all, instant.tick, frontend);
        }
        if !all.is_empty() {
            // Once for all of them: it is expensive.
            self.fence.before_scan();
            // Pins inside it cost next to nothing.
            let pin = (!frontend.runs_users_code()).then(|| self.pin());
            for due in all.iter().filter(|due| due.next != NEVER) {
                self.scan(driver, (due, pin.as_ref()), instant, work, frontend);
            }
        }
        all.clear();
        driver.due = all;
    }

    /// Starts fetching what a scan touches first: the block's header, and its plan or slots.
    pub(super) fn prefetch_block(&self, driver: &DriverShard, local: u32, block: u32) {
        let first = block * BLOCK_U32;
        if let Some(header) = self.slots.header(first) {
            prefetch_at(header);
        }
        if !driver.plans.prefetch(local) {
            if let Some(slots) = self.slots.block(first) {
                slots.prefetch();
            }
        }
    }

    /// Starts fetching what the end of these blocks' candidates touches: slots and notes, then what
    /// the store type knows of. The fetches of several blocks overlap.
    fn prefetch_due(&self, all: &[Due], tick: u64, frontend: &impl Frontend<P>) {
        if cfg!(expiry_loom) {
            return; // It has no effect but on speed, and its looks at slots are steps of a model.
        }
        for due in all {
            for (slot, note) in self.candidates(due) {
                prefetch_at(slot.address());
                prefetch_at(note);
            }
        }
        for due in all {
            for (slot, note) in self.candidates(due) {
                let lease = slot.lease_relaxed();
                if lease.is_in(EXPIRING) && !lease.is_after(tick) {
                    frontend.prepare(slot, note, lease);
                }
            }
        }
    }

    /// The slots of a block whose time may have come, and the words beside them.
    fn candidates(&self, due: &Due) -> impl Iterator<Item = (Slot<'_, P>, &P::Note)> {
        let slots = self.slots.block(due.first).unwrap_or(Run::empty());
        let notes = self.slots.notes(due.first).unwrap_or_default();
        bits(due.candidates)
            .filter_map(move |at| slots.get(at as usize).zip(notes.get(at as usize)))
    }

    /// Takes a block's next expiration, which then reads "never": inserters report what comes.
    #[inline]
    fn take(&self, driver: &mut DriverShard, due: &mut Due, now: u64) {
        let look = self.slots.header(due.first).and_then(|header| header.next.take());
        let Some(look) = look else {
            return;
        };
        step("taken");
        // With the dirty bit set, there may be more in the block than was noted.
        let plan = driver.plans.get(due.local, now).filter(|_| !look.news);
        due.next = look.next;
        due.planned = plan.is_some();
        due.candidates = plan.map_or(ALL_SLOTS, |plan| plan.due(now));
    }

    /// Ends what is due in a block (with a `pin` as one), and schedules its next look.
    fn scan(
        &self,
        driver: &mut DriverShard,
        (&Due { local, first, next, candidates, planned }, pin): (&Due, Option<&Pin>),
        instant: Instant<'_>,
        work: &mut Work,
        frontend: &impl Frontend<P>,
    ) {
        let Some((header, slots)) = self.slots.header(first).zip(self.slots.block(first)) else {
            return;
        };
        let now = instant.tick;
        let mut due = DueBlock {
            first,
            slots,
            next,
            tick: now,
            now: instant.now,
            left: candidates,
            deadlines: [NEVER; BLOCK],
            ended: 0,
        };
        if let (Some(pin), []) = (pin, instant.pauses) {
            frontend.end_block(pin, &mut due);
            work.budget = work.budget.saturating_sub(due.ended);
            work.ended += due.ended;
        }
        for at in bits(due.left).map(|at| at as usize) {
            let Some(slot) = slots.get(at) else {
                continue;
            };
            due.deadlines[at] = self.end_if_due((first, next), at, slot, instant, work, frontend);
        }
        let earliest = match driver.plans.get(local, now).filter(|_| planned) {
            Some(mut plan) => {
                for at in bits(candidates).map(|at| at as usize) {
                    plan.note(at, now, due.deadlines[at]);
                }
                plan.earliest()
            }
            None => driver.plans.make(local, now, &due.deadlines),
        };
        if earliest != NEVER {
            // A minimum, never a store: inserters and touches may have lowered it since (W5, W11).
            header.next.put_back(earliest);
        }
        if let Some(next) = header.next.get() {
            driver.wheel.schedule(local, next);
        }
    }

    /// Ends what is due in a slot. Returns when to look at it again; [`NEVER`] if not.
    #[allow(clippy::cast_possible_truncation)] // a place in a block
    #[inline]
    fn end_if_due(
        &self,
        (first, next): (u32, u64),
        at: usize,
        slot: Slot<'_, P>,
        instant: Instant<'_>,
        work: &mut Work,
        frontend: &impl Frontend<P>,
    ) -> u64 {
        let mut live = Occupant { id: first + at as u32, slot, lease: slot.lease() };
        while live.lease.is_in(EXPIRING) {
            let deadline = frontend.due(&live, self.deadlines.of_block(live.lease, next));
            if deadline > instant.tick {
                return deadline;
            }
            let Some(hold) = frontend.may_end(&live) else {
                return instant.tick + 1;
            };
            let graced = pause::graced(instant.pauses, deadline);
            if graced != deadline {
                work.budget = work.budget.saturating_sub(1);
                // This is the swap of a touch: of the two one comes first, and neither is lost.
                let renewed = live.lease.with_deadline(graced);
                let swapped = slot.swap_lease(live.lease, renewed);
                live.lease = swapped.map_or_else(|now| now, |()| renewed);
                continue;
            }
            match live.end() {
                Ok(ended) => {
                    work.budget = work.budget.saturating_sub(1);
                    work.ended += 1;
                    // What came early, and was never begun, is no entry.
                    if !live.lease.is_in(EARLY) {
                        self.late(self.shard_of(live.id), deadline, instant.now);
                    }
                    frontend.expired(ended, hold, deadline, instant.now);
                    break;
                }
                // Touched or ended meanwhile: look again (Q6).
                Err(now) => live.lease = now,
            }
        }
        NEVER
    }
}
