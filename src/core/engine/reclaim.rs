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
//! Only a driver of its own store drops a payload: the reaper, a thread in `poll` or in a shutdown,
//! or the caller of `flush`. So does a call that has to drive the store itself (it is full; the
//! clock has jumped by years). So a slow `Drop` delays that store's driver. Where payloads need no
//! drop, a thread that has ended many entries does the driver's part itself: then a store that
//! nothing drives reuses its slots too.
//!
//! **What waits is bounded.** Where drops take so long that the driver falls behind, more than
//! [`BACKLOG`](super::freeing::BACKLOG) payloads wait. Then each thread that ends entries drops
//! some, twice as many as it ends: slow drops slow down the threads that cause them.

use super::wakeup::AT_ONCE;
use crate::core::deferred::{Chain, Deferred};
use crate::core::pins::Pins;
use crate::core::slot::{Payload, Slot};
use crate::core::slots::{Slots, Spot};
use crate::core::threads::Counter;
use crate::sync::exclusive::Exclusive;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::time::NEVER;
#[cfg(expiry_loom)]
use loom::sync::Arc;
use std::sync::atomic::AtomicU64 as Statistic;
use std::sync::atomic::Ordering::Relaxed;
#[cfg(not(expiry_loom))]
use std::sync::Arc;

/// How often a round advances the epoch: a period ends after two or three advances, if no thread is
/// pinned meanwhile.
#[cfg(not(expiry_loom))]
const TURNS: usize = 8;
#[cfg(expiry_loom)]
const TURNS: usize = PERIODS;

/// How many grace periods a batch waits for.
const PERIODS: usize = 2;

/// After how many slots a thread asks the driver to come at once, or does its part.
const MANY: u64 = 1024;

/// After how many slots a thread asks whether too much waits.
const SOME: u64 = 64;

/// A thread's part.
pub(super) struct Mine {
    list: Deferred,
    /// How many slots this thread has pushed, and how many it has freed of all that were.
    pushed: Counter,
    freed: Counter,
}

/// What a push found.
pub(super) struct Pushed {
    /// The list was empty: the driver may not know of it.
    pub(super) first: bool,
    /// The thread has pushed [`MANY`] since the last time.
    pub(super) many: bool,
    /// The thread has pushed [`SOME`] since the last time.
    pub(super) some: bool,
}

impl Mine {
    pub(super) fn new() -> Self {
        Mine { list: Deferred::new(), pushed: Counter::default(), freed: Counter::default() }
    }

    /// Hands over a slot that the caller has ended, and whose word is out of the index.
    #[inline]
    pub(super) fn push<P: Payload>(&self, id: u32, spot: &Spot<'_, P>) -> Pushed {
        self.pushed.add(1);
        let first = self.list.push(id, spot);
        let pushed = self.pushed.get();
        let (many, some) = (pushed % MANY == 0, pushed % SOME == 0);
        Pushed { first, many, some }
    }

    /// This thread has freed so many slots that were handed over by any thread.
    pub(super) fn count_freed(&self, freed: u64) {
        self.freed.add(freed);
    }

    /// How many slots have been handed over by all threads and are not free yet; about.
    pub(super) fn unreclaimed<'a, I: Iterator<Item = &'a Mine>>(parts: impl Fn() -> I) -> u64 {
        // First: a slot is freed after it was pushed.
        let freed = parts().map(|part| part.freed.get()).sum();
        let pushed: u64 = parts().map(|part| part.pushed.get()).sum();
        pushed.saturating_sub(freed)
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
pub(super) type Done = std::sync::Arc<std::sync::atomic::AtomicBool>;

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
        // Acquire: a later flush does not ask for the flags dropped here. It enters `waiting` after
        // this thread, and so sees the drops by way of this load.
        // survives: loom does not see the flag, a standard atomic.
        self.taken.retain(|done| !done.load(std::sync::atomic::Ordering::Acquire));
        self.taken.extend(due.iter().map(|batch| batch.done.clone()));
    }

    /// Takes batches back, which go first: their grace periods are over.
    fn take_back(&mut self, due: &mut Vec<Batch>) {
        let is_back =
            |done: &Done| due.iter().any(|batch| std::sync::Arc::ptr_eq(done, &batch.done));
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
        pins.pin().after(move || flag.store(true, Ordering::Release));
        Wait { over: 0, passed }
    }

    /// For models: a wait for the last of them.
    #[cfg(expiry_loom)]
    pub(crate) fn begin_last(pins: &Pins) -> Self {
        let over = PERIODS - 1;
        let Wait { passed, .. } = Wait::begin(pins);
        Wait { over, passed }
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

/// Batches whose grace periods are over, which one thread frees: the last one first.
pub(super) struct Due(Vec<Batch>);

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `free` with the slots, as far as the budget `left` goes, and `count` with how many
    /// these were.
    pub(super) fn free<P: Payload>(
        &mut self,
        slots: &Slots<P>,
        left: &mut usize,
        mut free: impl FnMut(Slot<'_, P>),
        count: impl Fn(u64),
    ) {
        while let Some(batch) = self.0.last_mut() {
            while let Some(chain) = batch.chains.last_mut() {
                let mut freed = 0;
                while *left > 0 {
                    let Some((_, slot)) = chain.pop(slots) else {
                        break;
                    };
                    free(slot);
                    freed += 1;
                    *left -= 1;
                }
                count(freed);
                if !chain.is_empty() {
                    return;
                }
                batch.chains.pop();
            }
            // Release: a flush that sees it sees what the drops have done.
            // survives: loom does not see the flag, a standard atomic.
            batch.done.store(true, std::sync::atomic::Ordering::Release);
            self.0.pop();
        }
    }
}

/// What all threads share of it. See the module's head.
pub(crate) struct Reclaim {
    pub(super) pins: Pins,
    waiting: Exclusive<Waiting>,
    /// The wait of the last [`is_unobserved`](Self::is_unobserved), if a pinned thread did not let
    /// it end.
    asked: Exclusive<Option<Wait>>,
    /// The tick by which a driver is wanted. Lowered after a push; raised before the lists are
    /// taken.
    again: AtomicU64,
    /// How many ticks the last look at a grace period was put off.
    backoff: Statistic,
}

impl Reclaim {
    pub(super) fn new() -> Self {
        Reclaim {
            pins: Pins::new(),
            waiting: Exclusive::new(Waiting::default()),
            asked: Exclusive::new(None),
            again: AtomicU64::new(NEVER),
            backoff: Statistic::new(0),
        }
    }

    /// Whether no other thread is pinned that was when this began: none can be looking at what the
    /// caller took out of the index before. `false` also while another thread asks.
    ///
    /// A wait costs memory until it is over. So a wait that a pinned thread does not let end is
    /// kept, and the next caller asks it before it begins its own.
    pub(crate) fn is_unobserved(&self) -> bool {
        let is_over = |waits: &mut Wait| {
            (0..TURNS).any(|_| {
                let is_over = waits.is_over(&self.pins);
                if !is_over {
                    self.pins.turn();
                }
                is_over
            }) || waits.is_over(&self.pins)
        };
        let unobserved = self.asked.enter(|asked| {
            if asked.as_mut().is_some_and(|before| !is_over(before)) {
                return false;
            }
            let mut waits = Wait::begin(&self.pins);
            let unobserved = is_over(&mut waits);
            *asked = (!unobserved).then_some(waits);
            unobserved
        });
        unobserved.unwrap_or(false)
    }

    /// The tick by which a driver should come.
    pub(super) fn wanted(&self) -> u64 {
        // survives: the reader has changed the announcement before, AcqRel (see `Engine::wanted`).
        self.again.load(Ordering::Acquire)
    }

    /// A driver should come by `tick`. Call it after a push, and before the reaper is woken.
    pub(super) fn want(&self, tick: u64) {
        self.again.fetch_min(tick, Ordering::AcqRel);
    }

    /// The flags of all that was handed over until now. `None` if another thread handles the
    /// batches.
    pub(super) fn all<'a>(&self, parts: impl Iterator<Item = &'a Mine>) -> Option<Vec<Done>> {
        self.waiting.enter(|waiting| {
            self.gather(&mut waiting.batches, parts);
            waiting.all()
        })
    }

    /// Takes the lists of all threads' `parts` into a batch, advances the epoch, and takes the
    /// batches whose grace periods are over. What is left is wanted again: after `next` ticks, or
    /// as late as `put_off` says of the last time, if a look was due and found nothing. `None` if
    /// another thread handles the batches: that one asks for what it has not taken.
    ///
    /// The reaper may have gone to sleep while nothing was wanted: the caller wakes it.
    pub(super) fn take_due<'a, I: Iterator<Item = &'a Mine>>(
        &self,
        tick: u64,
        next: u64,
        parts: impl Fn() -> I,
        put_off: impl Fn(u64) -> u64,
    ) -> Option<Due> {
        self.waiting.enter(|waiting| {
            let was_due = self.again.swap(NEVER, Ordering::AcqRel) <= tick;
            // One batch in its first period at a time: what comes meanwhile goes into the next one.
            // So there are few batches, however long a period takes and however much ends in it.
            if waiting.batches.iter().all(|batch| batch.waits.over > 0) {
                self.gather(&mut waiting.batches, parts());
            }
            let due = self.passed(&mut waiting.batches);
            waiting.give_out(&due);
            if !waiting.batches.is_empty() || !parts().all(|part| part.list.is_empty()) {
                let mut backoff = self.backoff.load(Relaxed);
                if was_due && due.is_empty() {
                    backoff = put_off(backoff);
                    self.backoff.store(backoff, Relaxed);
                }
                self.want(tick + backoff.max(next));
            }
            Due(due)
        })
    }

    /// Leaves what a round's budget did not cover to the next round. False if another thread is at
    /// the batches.
    #[cold]
    pub(super) fn put_back(&self, due: &mut Due) -> bool {
        let put = self.waiting.enter(|waiting| waiting.take_back(&mut due.0));
        if put.is_some() {
            self.want(AT_ONCE);
        }
        put.is_some()
    }

    /// Takes what has been pushed into a batch that waits from now on.
    fn gather<'a>(&self, batches: &mut Vec<Batch>, parts: impl Iterator<Item = &'a Mine>) {
        let chains: Vec<Chain> = parts.filter_map(|part| part.list.take()).collect();
        if chains.is_empty() {
            return;
        }
        self.backoff.store(0, Relaxed);
        // After the lists were taken: these slots have left the index before.
        let waits = Wait::begin(&self.pins);
        batches.push(Batch { chains, waits, done: Done::default() });
    }

    /// Advances the epoch, and takes the batches whose grace periods are over.
    fn passed(&self, batches: &mut Vec<Batch>) -> Vec<Batch> {
        let mut turns = 0;
        let waiting = loop {
            // All of them are asked: a batch begins its second period when its first is over, not
            // when those before it are free. Later batches wait for no less than earlier ones.
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
        let due = waiting.unwrap_or(batches.len());
        batches.drain(..due).rev().collect()
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_reclaim.rs"]
mod tests;
