//! Memory release: ended slots become free once no thread can be looking at them.
//!
//! ```text
//!   the thread that ended a slot            the driver, away from every shard and unpinned
//!   slot := DEAD or FORWARD                 take the lists of all stripes    (a swap each)
//!   its word out of the index               defer a flag behind them, advance the epoch
//!   push it on its stripe's list  (CAS)     once the flag is set: take each payload, slot := FREE,
//!   if that was empty: ask the driver         drop the payload, with panics caught
//!     to come within a tick
//! ```
//!
//! A batch waits for two grace periods, one after the other. While a table of an index is migrated,
//! a retired slot may still be named by the copy that the migrating thread has in hand
//! (`core::index`). That thread has been pinned since before the slot was retired, so the first
//! period ends after it has mended the copy. A reader that found the slot by the copy pinned before
//! that, so the second period ends after the reader has unpinned.
//!
//! A payload is dropped by a driver of its own store only: the reaper, a thread in `poll` or in a
//! shutdown, a call that has to drive the store itself (it is full; the clock has jumped by years),
//! or the caller of `flush`. So a slow `Drop` delays that store's driver, and a `Drop` may take a
//! lock that callers hold. Where payloads need no drop, a thread that has ended many entries does
//! the driver's part itself: then a store that nothing drives reuses its slots too.

use super::{Claim, Engine, Face, Stripe};
use crate::core::deferred::{Chain, Deferred};
use crate::core::lease::{Lease, State};
use crate::core::pins::Pins;
use crate::core::slot::Payload;
use crate::core::threads::Counter;
use crate::sync::exclusive::Exclusive;
use crate::sync::park::doze;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::time::NEVER;
#[cfg(expiry_loom)]
use loom::sync::Arc;
use std::sync::atomic::AtomicU64 as Statistic;
use std::sync::atomic::Ordering::Relaxed;
#[cfg(not(expiry_loom))]
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a round advances the epoch: a period ends after two or three advances, if no thread is pinned meanwhile.
#[cfg(not(expiry_loom))]
const TURNS: usize = 8;
#[cfg(expiry_loom)]
const TURNS: usize = PERIODS;

/// For how many grace periods a batch waits.
const PERIODS: usize = 2;

/// After how many slots a thread asks the driver to come at once, or does its part.
const MANY: u64 = 1024;

/// A thread's part.
pub(super) struct Mine {
    list: Deferred,
    /// How many slots this thread has pushed, and how many it has freed of all that were.
    pushed: Counter,
    freed: Counter,
}

impl Mine {
    pub(super) fn new() -> Self {
        Mine {
            list: Deferred::new(),
            pushed: Counter::default(),
            freed: Counter::default(),
        }
    }
}

/// Slots that wait until no thread can be looking at them.
struct Batch {
    chains: Vec<Chain>,
    waits: Wait,
    done: Done,
}

/// Set when all slots of a batch are free. It is the standard library's under loom too: no model
/// asks for it.
type Done = std::sync::Arc<std::sync::atomic::AtomicBool>;

/// The batches of an engine.
#[derive(Default)]
struct Waiting {
    batches: Vec<Batch>,
    /// The flags of batches that threads have taken out of `batches`, and are freeing.
    taken: Vec<Done>,
}

impl Waiting {
    /// Notes that the caller frees these batches.
    fn give_out(&mut self, due: &[Batch]) {
        self.taken
            .retain(|done| !done.load(std::sync::atomic::Ordering::Acquire));
        self.taken
            .extend(due.iter().map(|batch| batch.done.clone()));
    }

    /// Takes batches back, which go first: their grace periods are over.
    fn take_back(&mut self, due: &mut Vec<Batch>) {
        let is_back = |done: &Done| {
            due.iter()
                .any(|batch| std::sync::Arc::ptr_eq(done, &batch.done))
        };
        self.taken.retain(|done| !is_back(done));
        self.batches.splice(..0, due.drain(..).rev());
    }

    /// All that there is.
    fn all(&self) -> Vec<Done> {
        let waiting = self.batches.iter().map(|batch| &batch.done);
        waiting.chain(&self.taken).cloned().collect()
    }
}

/// A wait for [`PERIODS`] grace periods, one after the other.
pub(crate) struct Wait {
    /// How many are over.
    over: usize,
    /// Set when the one that is under way is over.
    passed: Arc<AtomicBool>,
}

impl Wait {
    pub(crate) fn begin(pins: &Pins) -> Self {
        let passed = Arc::new(AtomicBool::new(false));
        let flag = passed.clone();
        pins.pin()
            .after(move || flag.store(true, Ordering::Release));
        Wait { over: 0, passed }
    }

    /// Whether all are over. Begins the next one where one is.
    pub(crate) fn is_over(&mut self, pins: &Pins) -> bool {
        while self.over < PERIODS && self.passed.load(Ordering::Acquire) {
            self.over += 1;
            if self.over == PERIODS {
                break;
            }
            let over = self.over;
            *self = Wait::begin(pins);
            self.over = over;
        }
        self.over == PERIODS
    }
}

/// What is shared of it.
pub(super) struct Reclaim {
    waiting: Exclusive<Waiting>,
    /// The tick by which a driver is wanted. Lowered after a push; raised before the lists are taken.
    again: AtomicU64,
    /// For how many ticks the last look at a grace period was put off.
    patience: Statistic,
}

impl Reclaim {
    pub(super) fn new() -> Self {
        Reclaim {
            waiting: Exclusive::new(Waiting::default()),
            again: AtomicU64::new(NEVER),
            patience: Statistic::new(0),
        }
    }

    /// By which tick a driver should come.
    pub(super) fn wanted(&self) -> u64 {
        self.again.load(Ordering::Acquire)
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// Hands over a slot that the caller has ended, and whose word is out of the index. It becomes free when no thread that is
    /// pinned now is any more.
    ///
    /// True if this thread has handed over so many that it should [do the driver's part](Self::reclaim_now) itself, which it is not
    /// asked to where payloads have to be dropped (`drops`).
    #[inline]
    pub(crate) fn free_later(&self, stripe: &Stripe<C>, id: u32, drops: bool) -> bool {
        let Some(spot) = self.slots.spot(id) else {
            return false;
        };
        let mine = &stripe.reclaim;
        mine.pushed.add(1);
        let first = mine.list.push(id, &spot);
        let many = mine.pushed.get() % MANY == 0;
        if many && !drops {
            return true;
        }
        if first || many {
            self.ask_to_reclaim(many);
        }
        false
    }

    /// Hands over a claimed slot with its payload that was never published.
    #[cold]
    pub(crate) fn abandon(&self, stripe: &Stripe<C>, claim: &Claim<'_, P>) {
        claim
            .slot
            .set_lease(claim.slot.lease_relaxed().with_state(State::Dead));
        self.free_later(stripe, claim.id, true);
        self.freed(stripe);
    }

    #[cold]
    fn ask_to_reclaim(&self, at_once: bool) {
        let tick = if at_once {
            1
        } else {
            self.ticks.at(self.now_for_deadline().0) + 1
        };
        // After the push, and before the look at the announcement.
        self.reclaim.again.fetch_min(tick, Ordering::AcqRel);
        self.wake_by(tick);
    }

    /// How many slots were handed over, and how many of them are free again: about.
    fn handed_over(&self) -> (u64, u64) {
        let parts = || self.stripes.iter().map(|stripe| &stripe.reclaim);
        let freed = parts().map(|part| part.freed.get()).sum();
        (parts().map(|part| part.pushed.get()).sum(), freed)
    }

    /// How many slots have ended and are not free yet.
    pub(crate) fn unreclaimed(&self) -> u64 {
        let (pushed, freed) = self.handed_over();
        pushed.saturating_sub(freed)
    }

    /// Does the driver's part, at once. Unpinned, away from every shard.
    #[cold]
    pub(crate) fn reclaim_now(&self, face: &impl Face<P>) {
        let tick = self.ticks.at(self.now_for_deadline().0);
        self.reclaim(tick, true, usize::MAX, face);
    }

    /// Does the driver's part until all that was handed over before is free, for at most so long.
    /// Returns whether it is. What is handed over later does not count.
    pub(crate) fn flush(&self, limit: Duration, face: &impl Face<P>) -> bool {
        let begun = Instant::now();
        let mut before = None;
        let mut pause = Duration::from_micros(10);
        loop {
            before = before.or_else(|| {
                self.reclaim.waiting.enter(|waiting| {
                    self.gather(&mut waiting.batches);
                    waiting.all()
                })
            });
            self.reclaim_now(face);
            let is_done = |done: &Done| done.load(std::sync::atomic::Ordering::Acquire);
            if before.as_ref().is_some_and(|all| all.iter().all(is_done)) {
                return true;
            }
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return false;
            }
            // Another thread is pinned, or is dropping what has waited.
            doze(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    /// Advances the epoch as far as threads that are pinned allow, for memory that was [left to it](crate::core::pins::Pin::after).
    pub(crate) fn settle(&self) {
        (0..TURNS).for_each(|_| self.pins.turn());
    }

    /// Whether no other thread is pinned that was when this began: none can be looking at what the caller took out of the index before.
    pub(crate) fn is_unobserved(&self) -> bool {
        let mut waits = Wait::begin(&self.pins);
        for _ in 0..TURNS {
            if waits.is_over(&self.pins) {
                return true;
            }
            self.pins.turn();
        }
        waits.is_over(&self.pins)
    }

    /// Frees what has waited for long enough, if that is wanted at `tick`, or if this thread `has_ended` entries just now: at most so
    /// many slots. Whether there is more to do at once. Unpinned, away from every shard.
    pub(super) fn reclaim(
        &self,
        tick: u64,
        has_ended: bool,
        budget: usize,
        face: &impl Face<P>,
    ) -> bool {
        if !has_ended && self.reclaim.wanted() > tick {
            return false;
        }
        let due = self.reclaim.waiting.enter(|waiting| {
            self.reclaim.again.swap(NEVER, Ordering::AcqRel);
            // One batch in its first period at a time: what comes meanwhile goes into the next one. So there are few batches,
            // however long a period takes and however much ends in it.
            let gathers = waiting.batches.iter().all(|batch| batch.waits.over > 0);
            if gathers {
                self.gather(&mut waiting.batches);
            }
            let due = self.passed(&mut waiting.batches, tick);
            waiting.give_out(&due);
            if !gathers
                && !self
                    .stripes
                    .iter()
                    .all(|stripe| stripe.reclaim.list.is_empty())
            {
                // What is left in the lists waits for the next batch.
                self.reclaim.again.fetch_min(tick + 1, Ordering::AcqRel);
            }
            due
        });
        let Some(mut due) = due else {
            // Another thread is at it; what it has not taken it is asked for by the thread that pushed it.
            return false;
        };
        let mut left = budget.max(1);
        let _driving = self.driving();
        let more = loop {
            self.free_batches(&mut due, &mut left, face);
            if due.is_empty() {
                break false;
            }
            if self.put_back(&mut due) {
                break true;
            }
            // Another thread is at the batches: this one goes on instead of waiting.
            left = usize::MAX;
        };
        if self.wants_tending(face) {
            self.tend_soon();
        }
        more
    }

    /// Frees the slots of batches, the last batch first, as far as the budget goes.
    fn free_batches(&self, due: &mut Vec<Batch>, left: &mut usize, face: &impl Face<P>) {
        while let Some(batch) = due.last_mut() {
            while let Some(chain) = batch.chains.last_mut() {
                self.free_chain(chain, left, face);
                if !chain.is_empty() {
                    return;
                }
                batch.chains.pop();
            }
            // Release: a flush that sees it sees what the drops have done.
            batch.done.store(true, std::sync::atomic::Ordering::Release);
            due.pop();
        }
    }

    /// Takes what has been pushed into a batch that waits from now on.
    fn gather(&self, batches: &mut Vec<Batch>) {
        let lists = self.stripes.iter().map(|stripe| &stripe.reclaim.list);
        let chains: Vec<Chain> = lists.filter_map(Deferred::take).collect();
        if chains.is_empty() {
            return;
        }
        self.reclaim.patience.store(0, Relaxed);
        // After the lists were taken: these slots have left the index before.
        let waits = Wait::begin(&self.pins);
        batches.push(Batch {
            chains,
            waits,
            done: Done::default(),
        });
    }

    /// Advances the epoch, and takes the batches whose grace period is over. Asks for another look at the others.
    fn passed(&self, batches: &mut Vec<Batch>, tick: u64) -> Vec<Batch> {
        let mut turns = 0;
        let waiting = loop {
            // All of them are asked: a batch begins its second period when its first is over, not when those before it are free.
            // Later batches wait for no less than earlier ones.
            let mut waiting = None;
            for (at, batch) in batches.iter_mut().enumerate() {
                if !batch.waits.is_over(&self.pins) {
                    waiting = waiting.or(Some(at));
                }
            }
            if waiting.is_none() || turns == TURNS {
                break waiting;
            }
            self.pins.turn();
            turns += 1;
        };
        if waiting.is_some() {
            let patience = self.more_patience(self.reclaim.patience.load(Relaxed));
            self.reclaim.patience.store(patience, Relaxed);
            self.reclaim
                .again
                .fetch_min(tick + patience, Ordering::AcqRel);
        }
        let due = waiting.unwrap_or(batches.len());
        batches.drain(..due).rev().collect()
    }

    fn free_chain(&self, chain: &mut Chain, left: &mut usize, face: &impl Face<P>) {
        let mut freed = 0;
        while *left > 0 {
            let Some((_, slot)) = chain.pop(&self.slots) else {
                break;
            };
            let generation = slot.lease().incarnation();
            face.discard(slot, || slot.set_lease(Lease::free(generation)));
            freed += 1;
            *left -= 1;
        }
        self.with_stripe(|mine, _| mine.reclaim.freed.add(freed));
    }

    /// Leaves what a round's budget did not cover to the next round. False if another thread is at the batches.
    #[cold]
    fn put_back(&self, due: &mut Vec<Batch>) -> bool {
        let put = self.reclaim.waiting.enter(|waiting| waiting.take_back(due));
        if put.is_some() {
            self.reclaim.again.fetch_min(1, Ordering::AcqRel);
        }
        put.is_some()
    }
}
