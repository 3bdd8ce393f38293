//! Entries that hold a waker: registration, end by the owner or the driver, and changes.
//!
//! A waiter is a slot in state LIVE_ISSUED, below LIVE, with the two words of a [`Waker`] in it
//! ([`Held`]). Its *owner* is the one future that has registered it. The owner keeps the slot's
//! number and the lease, bit for bit.
//!
//! ```text
//!  FREE -> LIVE_ISSUED(i, d)    registration: the waker, then the lease, then the next expiration
//!  LIVE -> DEAD -> FREE         the driver, or a shutdown: takes the waker, frees the slot, wakes
//!  LIVE -> DEAD -> FREE         the owner: takes the waker, frees the slot, drops the waker
//!  LIVE(i, d) -> LIVE(i, d')    the owner: a reset
//!  LIVE -> DEAD -> LIVE         the owner: takes the old waker, registers another one in place
//! ```
//!
//! The thread that ends the lease owns the slot and the waker in it. Only the claimer, or the owner
//! that has ended the lease, writes the waker.
//!
//! # A lease names one occupancy
//!
//! The owner compares the whole lease. After an entry has fired at tick `d`, the later occupants of
//! its slot have later deadlines. If the owner itself ended the entry, it does not ask again, and
//! after a shutdown there are no occupants. So a future that is polled long after it fired does not
//! take another future's entry for its own. Deadlines repeat after 2^40 ticks; then generation and
//! tick must both agree.
//!
//! # Registering again in place
//!
//! Between DEAD and LIVE a scan, or a shutdown, passes the slot by. So the owner then registers
//! the deadline as that of a new entry (`engine::fence`), and ends its entry if the block is closed
//! (W5, W8).
//!
//! User code (a waker's clone, wake and drop) runs only when the slot is in its final state, or
//! belongs to the calling thread alone.

use super::error::TimerError;
use super::waker::Words;
use crate::core::engine::{Config, Engine, Frontend, Refused, Stripe};
use crate::core::lease::{Lease, State};
use crate::core::occupancy::{Ended, Occupant, Vacant};
use crate::core::shards::Shards;
use crate::core::slot::{fields, Slot};
use crate::core::threads::Counter;
use crate::error::BuildError;
use crate::kit::panics::Panics;
use crate::sync::{AtomicU64, Ordering};
use std::task::Waker;

/// Deadline for a claim: the real one is not known yet.
const ANY: u64 = 0;

/// One shard's part of a thread's counters.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counts {
    pub(super) registered: Counter,
    pub(super) fired: Counter,
    pub(super) cancelled: Counter,
    pub(super) closed: Counter,
}

type Mine = Stripe<Shards<Counts>>;

/// A registered entry, as its owner knows it: where it is, and its lease, bit for bit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub(super) id: u32,
    pub(super) lease: Lease,
}

pub(super) struct Waiters {
    pub(super) engine: Engine<Held, Shards<Counts>>,
    pub(super) panics: Panics,
}

/// The payload of a waiter's slot: the two words of a waker.
pub(super) struct Held {
    first: AtomicU64,
    second: AtomicU64,
}

fields!(Held, () {
    first: AtomicU64::new(0),
    second: AtomicU64::new(0),
});

/// Puts a waker into a slot that the caller owns alone.
///
/// Release: a thread that finds one of the words finds that the slot has changed.
#[inline(always)]
fn put(slot: Slot<'_, Held>, waker: Words) {
    let held = slot.fields();
    held.second.store(waker.1, Ordering::Release);
    held.first.store(waker.0, Ordering::Release);
}

/// Takes the waker out of a slot that the caller has ended.
///
/// # Safety
///
/// The caller alone ends the slot, or has ended it, and does this once.
#[inline(always)]
unsafe fn take(slot: Slot<'_, Held>) -> Waker {
    // The caller has acquired the lease, which was released after the words.
    let held = slot.fields();
    let word = held.first.load(Ordering::Relaxed);
    let owner = held.second.load(Ordering::Relaxed);
    // SAFETY: an entry's words are a waker's, put there each time that its lease becomes live.
    unsafe { Words(word, owner).into_waker() }
}

/// A claimed slot, given back if the waker's clone panics.
struct Claimed<'a>(&'a Waiters, Option<Vacant<'a, Held>>);

impl Drop for Claimed<'_> {
    #[cold]
    fn drop(&mut self) {
        let Claimed(waiters, vacant) = self;
        let Some(vacant) = vacant.take() else {
            return;
        };
        waiters.engine.with_stripe(|mine, _| {
            if waiters.engine.give_back(mine, vacant) {
                waiters.engine.tend_if_wanted(*waiters);
            }
        });
    }
}

impl Waiters {
    pub(super) fn new(config: Config) -> Result<Self, BuildError> {
        Ok(Waiters { engine: Engine::new(config, Shards::defaults)?, panics: Panics::default() })
    }

    /// The tick at which `after` nanoseconds from now on are over.
    pub(super) fn due(&self, after: u64) -> u64 {
        self.engine.with_stripe(|mine, _| self.engine.deadlines.due(&mine.deadlines, after.max(1)))
    }

    pub(super) fn is_over(&self, due: u64) -> bool {
        due <= self.engine.deadlines.ticks().at(self.engine.deadlines.now())
    }

    /// Registers what takes `after` nanoseconds from now on, and returns the tick of its end.
    ///
    /// The order matters: a reading of the processor's counter waits for the read-modify-writes
    /// before it, and these for it. This finds the slot while those of the future, which has just
    /// been polled, are under way, and reads the clock before it clones the waker.
    #[inline(always)]
    pub(super) fn register(&self, after: u64, waker: &Waker) -> Result<(u64, Waiter), TimerError> {
        self.register_by(|mine| self.engine.deadlines.due(&mine.deadlines, after), waker)
    }

    /// Registers an entry that expires at `due`; `None` if that has come.
    pub(super) fn register_until(
        &self,
        due: u64,
        waker: &Waker,
    ) -> Option<Result<Waiter, TimerError>> {
        let tick = self.engine.deadlines.ticks().at(self.engine.deadlines.coarse_now());
        (due > tick).then(|| Ok(self.register_by(|_| due, waker)?.1))
    }

    #[inline(always)]
    fn register_by(
        &self,
        due: impl FnOnce(&Mine) -> u64,
        waker: &Waker,
    ) -> Result<(u64, Waiter), TimerError> {
        let mut refused = Refused::OutOfMemory;
        let registered = self.engine.with_stripe(|mine, index| {
            let vacant = self.engine.claim(mine, index, ANY, true, &mut refused)?;
            // No other thread gets the slot, whatever the waker's clone does.
            let claimed = Lease::free(vacant.generation()).with_state(State::Dead);
            vacant.spot().slot.set_lease(claimed);
            let mut held = Claimed(self, Some(vacant));
            let due = due(mine);
            let waker = Words::from_waker(waker.clone());
            let vacant = held.1.take()?;
            let waiter = self.fill(mine, vacant, self.expressed(due), waker, &mut refused)?;
            Some((due, waiter))
        });
        registered.ok_or_else(|| self.refuse(refused))
    }

    /// The deadline in the lease of an entry that expires at `due`. If a lease cannot express that,
    /// the entry is woken earlier, and its owner registers it again.
    #[inline(always)]
    fn expressed(&self, due: u64) -> u64 {
        due.min(self.engine.deadlines.furthest())
    }

    /// Drops a waker that no live slot holds.
    #[cold]
    #[inline(never)]
    fn give_up(waker: Words) {
        // SAFETY: made by the caller, and in no slot that is live.
        drop(unsafe { waker.into_waker() });
    }

    /// The error of a refused registration; counts it, unless the engine is closed.
    #[cold]
    fn refuse(&self, refused: Refused) -> TimerError {
        if refused != Refused::Closed {
            self.engine.count_refusal();
        }
        refused.into()
    }

    /// Puts a waker into a claimed slot and makes it live. If the engine was shut down meanwhile,
    /// returns `None` and sets `refused`.
    #[inline(always)]
    fn fill(
        &self,
        mine: &Mine,
        vacant: Vacant<'_, Held>,
        deadline: u64,
        waker: Words,
        refused: &mut Refused,
    ) -> Option<Waiter> {
        let lease = Lease::new(State::LiveIssued, vacant.generation(), deadline);
        let header = vacant.spot().header;
        put(vacant.spot().slot, waker);
        let live = vacant.publish(lease).named();
        self.count(mine, live.id).registered.add(1);
        if self.engine.enforce_in(header, live.id, deadline).is_err() {
            if let Ok(ended) = live.end() {
                // No other thread has seen this entry.
                self.finish(mine, ended, |counts| &counts.closed);
                Self::give_up(waker);
                *refused = Refused::Closed;
                return None;
            }
        }
        // If the shutdown has ended it, its waker is being woken.
        Some(Waiter { id: live.id, lease })
    }

    #[inline(always)]
    fn slot(&self, waiter: Waiter) -> Slot<'_, Held> {
        let slot = self.engine.slots.slot(waiter.id);
        slot.expect("a slot that was claimed is there as long as the engine")
    }

    /// Polls, for its owner, an entry that expires at `due` and still waits: from now on it wakes
    /// `waker`. `None` if it has ended. Returns its former waker, if that was another one: the
    /// owner drops that after it has noted the entry, as the drop may panic.
    #[inline]
    pub(super) fn waits(
        &self,
        waiter: Waiter,
        due: u64,
        waker: &Waker,
    ) -> Result<Option<(Waiter, Option<Waker>)>, TimerError> {
        let slot = self.slot(waiter);
        // Before the lease: a thread that reads a later occupant's words also reads its lease.
        let held = slot.fields();
        let owner = held.second.load(Ordering::Acquire);
        let word = held.first.load(Ordering::Acquire);
        if slot.lease() != waiter.lease {
            return Ok(None);
        }
        if Words(word, owner) == Words::of(waker) {
            return Ok(Some((waiter, None)));
        }
        self.change(waiter, due, waker)
    }

    /// Makes a registered entry wake another waker: ends it, and registers it again in place.
    #[cold]
    #[inline(never)]
    fn change(
        &self,
        waiter: Waiter,
        due: u64,
        waker: &Waker,
    ) -> Result<Option<(Waiter, Option<Waker>)>, TimerError> {
        let slot = self.slot(waiter);
        let tick = self.engine.deadlines.ticks().at(self.engine.deadlines.coarse_now());
        if due <= tick {
            // No task has to be woken for it.
            self.end(waiter, |counts| &counts.fired);
            return Ok(None);
        }
        let fresh = waker.clone();
        if slot.end(waiter.lease).is_err() {
            return Ok(None);
        }
        // SAFETY: this thread has just ended it.
        let old = unsafe { take(slot) };
        put(slot, Words::from_waker(fresh));
        let deadline = self.expressed(due);
        let lease = waiter.lease.with_deadline(deadline);
        let waiter = Waiter { lease, ..waiter };
        slot.set_lease(lease);
        // A scan, or a shutdown, may have passed it by.
        let enforced = self.engine.enforce(waiter.id, deadline);
        if enforced.is_err() && self.end(waiter, |counts| &counts.closed) {
            return Err(TimerError::Closed);
        }
        Ok(Some((waiter, Some(old))))
    }

    /// Moves an entry's deadline to `due`. `None` if it has ended.
    pub(super) fn reset(&self, waiter: Waiter, due: u64) -> Option<Waiter> {
        let deadline = self.expressed(due);
        let lease = waiter.lease.with_deadline(deadline);
        self.slot(waiter).swap_lease(waiter.lease, lease).ok()?;
        // A renewed entry does not fire by the old deadline.
        self.engine.shortened(waiter.id, waiter.lease, deadline);
        Some(Waiter { lease, ..waiter })
    }

    /// Ends an entry for its owner, if it has not ended: it is free, and its waker dropped.
    #[inline]
    pub(super) fn cancel(&self, waiter: Waiter) {
        self.end(waiter, |counts| &counts.cancelled);
    }

    /// Ends an entry, and drops its waker. Returns whether this ended it.
    #[inline(never)]
    fn end(&self, waiter: Waiter, counter: impl Fn(&Counts) -> &Counter) -> bool {
        let live = Occupant { id: waiter.id, slot: self.slot(waiter), lease: waiter.lease };
        live.end().is_ok_and(|ended| {
            drop(self.free(ended, counter));
            true
        })
    }

    #[inline(always)]
    fn count<'m>(&self, mine: &'m Mine, id: u32) -> &'m Counts {
        &mine.frontend[self.engine.shard_of(id)]
    }

    /// Frees a slot that the caller has ended. Returns its waker.
    #[inline(always)]
    fn free(&self, ended: Ended<'_, Held>, counter: impl Fn(&Counts) -> &Counter) -> Waker {
        // SAFETY: the caller has ended it, and it is freed below.
        let waker = unsafe { take(ended.slot()) };
        self.engine.with_stripe(|mine, _| self.finish(mine, ended, counter));
        waker
    }

    /// Frees a slot that the caller has ended, and whose waker it has. Counts the end.
    #[inline(always)]
    fn finish(&self, mine: &Mine, ended: Ended<'_, Held>, counter: impl Fn(&Counts) -> &Counter) {
        counter(self.count(mine, ended.id())).add(1);
        if self.engine.free(mine, ended) {
            self.engine.tend_if_wanted(self);
        }
    }

    /// Frees an entry that the driver or a shutdown has ended, then wakes its task. Never panics.
    fn wake(&self, ended: Ended<'_, Held>, counter: impl Fn(&Counts) -> &Counter) {
        let waker = self.free(ended, counter);
        self.panics.guard(|| waker.wake());
    }
}

impl Frontend<Held> for Waiters {
    type Hold<'s>
        = ()
    where
        Self: 's;

    fn may_end(&self, _: &Occupant<'_, Held>) -> Option<()> {
        Some(())
    }

    fn prepare(&self, _: Slot<'_, Held>, (): &(), _: Lease) {}

    fn close(&self) {
        self.engine.close(self, |ended, ()| self.wake(ended, |counts| &counts.closed));
    }

    fn expired(&self, ended: Ended<'_, Held>, (): (), _: u64, _: u64) {
        self.wake(ended, |counts| &counts.fired);
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.engine.balance(
            shard,
            |counts| counts,
            |counts| {
                let ended = [&counts.fired, &counts.cancelled, &counts.closed];
                (Counter::balance(&[&counts.registered], &ended), 0)
            },
        )
    }
}
