//! Freeing: slots that have ended, at once or when no thread can be looking at them
//! ([`super::reclaim`]).
//!
//! Only a driver of its own store drops a payload: the reaper, a thread in `poll` or in a shutdown,
//! the caller of `flush`, or a call that has to drive the store itself (the store is full, or the
//! clock has jumped by years). So a slow `Drop` delays this store's driver only. Where payloads
//! need no drop, a thread that has ended many entries does the driver's part itself: so a store
//! that nothing drives reuses its slots too.
//!
//! **What waits is bounded.** If drops take so long that more than [`BACKLOG`] payloads wait, or
//! more than a quarter of a bounded capacity, each thread that ends entries drops some, twice as
//! many as it ends: slow drops slow down the threads that cause them.

use super::reclaim::{Done, Mine};
use super::wakeup::AT_ONCE;
use super::{Engine, Frontend, Share, Stripe};
use crate::core::index::Removed;
use crate::core::lease::{Lease, State};
use crate::core::occupancy::Ended;
#[cfg(feature = "async")]
use crate::core::occupancy::Vacant;
use crate::core::params::{BLOCK, CHUNK};
use crate::core::slot::{Payload, Slot};
use crate::sync::park::nap;
use crate::time::NEVER;
use std::time::{Duration, Instant};

/// How long ended slots are gathered, in nanoseconds, if a tick is shorter. A grace period costs a
/// fence in every running thread: one period does for the slots of several ticks.
const GATHER: u64 = 16_000_000;

/// Number of slots after which a thread asks the driver to come at once, or does its part.
const MANY: u64 = 1024;

/// Number of slots after which a thread asks whether too much waits.
const SOME: u64 = 64;

/// Number of payloads that may wait before the threads that end entries drop some.
const BACKLOG: u64 = 4096;

/// A store of bounded capacity may have this much waiting, or a quarter of the bound if more.
const FEW: u64 = 16;

/// Number of payloads that such a thread drops at a time: twice what it ends meanwhile.
const SHARE: usize = 128;

/// Slots that the caller has ended and taken out of the index, each linked to the one added before.
pub(crate) struct Chain<'a, P: Payload> {
    first: u32,
    last: (u32, Slot<'a, P>),
    slots: u64,
    weight: u64,
}

impl<'a, P: Payload> Chain<'a, P> {
    #[inline(always)]
    pub(crate) fn of(id: u32, slot: Slot<'a, P>, weight: u64) -> Self {
        Chain { first: id, last: (id, slot), slots: 1, weight }
    }

    /// Adds a slot, and what its entry weighs.
    #[inline(always)]
    pub(crate) fn add(&mut self, id: u32, slot: Slot<'a, P>, weight: u64) {
        slot.set_link(slot.lease_relaxed().with_link(State::Dead, self.first));
        self.first = id;
        self.slots += 1;
        self.weight += weight;
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// Frees a slot that no other thread looks at. Returns as [`freed`](Self::freed) does.
    #[inline]
    pub(crate) fn free(&self, stripe: &Stripe<C>, ended: Ended<'_, P>) -> bool {
        ended.free();
        self.freed(stripe)
    }

    /// Frees a slot that was claimed in vain. Returns as [`freed`](Self::freed) does.
    #[cfg(feature = "async")]
    #[cold]
    pub(crate) fn give_back(&self, stripe: &Stripe<C>, vacant: Vacant<'_, P>) -> bool {
        vacant.free();
        self.freed(stripe)
    }

    /// Counts a freed slot, unpinned. Returns whether it is time to ask if memory can go back.
    #[inline]
    pub(crate) fn freed(&self, stripe: &Stripe<C>) -> bool {
        self.admission.give_back(1);
        if !stripe.is_driving() {
            self.admission.wake_owed();
        }
        self.ended(stripe, 1)
    }

    /// Counts `n` ended entries, without their permits. Returns as [`freed`](Self::freed) does.
    #[inline]
    pub(crate) fn ended(&self, stripe: &Stripe<C>, n: u64) -> bool {
        stripe.ended.add(n);
        stripe.ended.get() % (CHUNK as u64) < n
    }

    /// Frees a slot that the caller has ended and taken out of the index: at once if no thread can
    /// be looking at it, else [later](Self::free_later).
    #[inline(always)]
    pub(crate) fn free_or_rest(
        &self,
        stripe: &Stripe<C>,
        ended: Ended<'_, P>,
        removed: Removed,
    ) -> bool {
        if let Removed::Clean = removed {
            return self.free(stripe, ended);
        }
        self.free_later(stripe, Chain::of(ended.id(), ended.slot(), 1), true);
        self.freed(stripe)
    }

    /// Hands over slots that the caller has ended and taken out of the index. They become free once
    /// all threads that are pinned now have unpinned.
    ///
    /// Returns for how many slots this thread should [do the driver's part](Self::reclaim_now). If
    /// payloads have to be dropped (`drops`), it should only if there is a
    /// [backlog](Self::has_backlog).
    #[inline(always)]
    pub(crate) fn free_later(&self, stripe: &Stripe<C>, chain: Chain<'_, P>, drops: bool) -> usize {
        let Chain { first, last, slots, weight } = chain;
        let mine = &stripe.reclaim;
        let first = mine.push(&self.slots, first, last, slots);
        let pushed = mine.pushed.get();
        let many = pushed % MANY < slots;
        if many && !drops {
            return usize::MAX;
        }
        if first || many {
            self.ask_to_reclaim(many);
        }
        let is_much = match self.admission.limit() {
            Some(limit) => mine.weigh(weight, limit / 64),
            None => false,
        };
        if is_much || pushed % SOME < slots && drops {
            SHARE
        } else {
            0
        }
    }

    /// Whether so much waits that threads that end entries should drop some: more than [`BACKLOG`]
    /// and an eighth of the live entries, or more than a quarter of the bound.
    #[cold]
    pub(crate) fn has_backlog(&self, frontend: &impl Frontend<P>) -> bool {
        let waiting = self.unreclaimed();
        if waiting > BACKLOG && waiting > self.len(frontend) as u64 / 8 {
            return true;
        }
        // The counters are read one after another, so the sum is approximate: below zero is zero.
        let sum = |sum: u64, part: &Mine| sum.wrapping_add(part.dead.get());
        #[allow(clippy::cast_possible_wrap)]
        let dead = (self.parts().fold(0, sum) as i64).max(0).unsigned_abs();
        self.admission.limit().is_some_and(|limit| dead > (limit / 4).max(FEW))
    }

    /// Hands over a slot with its payload, which the index never named, without its permits.
    #[cold]
    pub(crate) fn abandon(&self, stripe: &Stripe<C>, ended: Ended<'_, P>, weight: u64) {
        ended.slot().set_lease(ended.lease().ended());
        self.free_later(stripe, Chain::of(ended.id(), ended.slot(), weight), true);
        self.ended(stripe, 1);
    }

    #[cold]
    fn ask_to_reclaim(&self, at_once: bool) {
        let soon = |now| self.deadlines.ticks().at(now) + self.gathers_for();
        let tick = if at_once { AT_ONCE } else { soon(self.deadlines.now_for_look()) };
        // After the push, and before the look at the announcement.
        self.reclaim.want(tick);
        self.wakeup.wake_by(tick);
    }

    /// How many ticks ended slots are gathered for; at least one.
    pub(super) fn gathers_for(&self) -> u64 {
        self.deadlines.ticks().within(GATHER)
    }

    /// Wakes a reaper that went to sleep while this thread had withdrawn what was wanted.
    fn wake_for_the_rest(&self) {
        let wanted = self.reclaim.wanted();
        if wanted != NEVER {
            self.wakeup.wake_by(wanted);
        }
    }

    /// All threads' parts of what waits to be freed.
    fn parts(&self) -> impl Iterator<Item = &Mine> {
        self.stripes.iter().map(|stripe| &stripe.reclaim)
    }

    /// Approximate number of slots that have ended and are not free yet.
    pub(crate) fn unreclaimed(&self) -> u64 {
        // `freed` is read first: a slot is freed after it was pushed.
        let freed = self.parts().map(|part| part.freed.get()).sum();
        let pushed: u64 = self.parts().map(|part| part.pushed.get()).sum();
        pushed.saturating_sub(freed)
    }

    /// Does the driver's part now, for at most `budget` slots. Unpinned, away from every shard.
    #[cold]
    pub(crate) fn reclaim_now(&self, budget: usize, frontend: &impl Frontend<P>) {
        let tick = self.deadlines.ticks().at(self.deadlines.now_for_look());
        self.reclaim(tick, true, Share::of(budget), frontend);
    }

    /// Does the driver's part until all handed over before is free: true, or false after `limit`.
    pub(crate) fn flush(&self, limit: Duration, frontend: &impl Frontend<P>) -> bool {
        let begun = Instant::now();
        let mut before = None;
        let mut pause = Duration::from_micros(10);
        loop {
            before = before.or_else(|| self.reclaim.all(self.parts()));
            self.reclaim_now(usize::MAX, frontend);
            // Acquire pairs with `Due::pop`: the caller of `flush` sees what the drops have done.
            // survives: loom does not see the flag, a standard atomic.
            let is_done = |done: &Done| done.load(std::sync::atomic::Ordering::Acquire);
            if before.as_ref().is_some_and(|all| all.iter().all(is_done)) {
                return true;
            }
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return false;
            }
            // Another thread is pinned, or is dropping what has waited.
            nap(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    /// Frees what has waited long enough, if that is wanted at `tick`, or `at_once`, within the
    /// share's budget. Returns whether there is more to do. Unpinned, away from every shard.
    pub(super) fn reclaim(
        &self,
        tick: u64,
        at_once: bool,
        share: Share,
        frontend: &impl Frontend<P>,
    ) -> bool {
        if !at_once && self.reclaim.wanted() > tick {
            return false;
        }
        let put_off = |backoff| self.more_backoff(backoff);
        let next = self.gathers_for();
        let Some(mut due) = self.reclaim.take_due(tick, next, || self.parts(), put_off) else {
            return false;
        };
        self.wake_for_the_rest();
        let mut left = share.budget;
        let mut more = false;
        let driving = self.driving();
        let mine = &self.stripes.get(&driving.index).reclaim;
        while let Some((id, slot)) = due.pop(&self.slots) {
            if self.admission.limit().is_some() {
                mine.dead.sub(frontend.weight(id));
            }
            let generation = slot.lease().generation();
            frontend.discard(slot, || slot.set_lease(Lease::free(generation)));
            mine.freed.add(1);
            left -= 1;
            if left % BLOCK == 0 && share.is_over() {
                left = 0;
            }
            if left == 0 && !due.is_empty() {
                if self.reclaim.put_back(&mut due) {
                    self.wake_for_the_rest();
                    more = true;
                    break;
                }
                // Another thread handles the batches: this one continues instead of waiting for it.
                left = SHARE;
            }
        }
        self.tend_if_wanted(frontend);
        more
    }
}
