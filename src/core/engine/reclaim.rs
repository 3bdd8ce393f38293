//! What waits: the slots of entries that have ended, until no thread can be looking at them.
//!
//! ```text
//!   the thread that ended a slot            the driver, away from every shard and unpinned
//!   slot := DEAD or FORWARD                 take the lists of all stripes    (a swap each)
//!   its word out of the index               begin a wait behind them, advance the epoch
//!   push it on its stripe's list  (CAS)     once it is over: take each payload, slot := FREE,
//!   if that was empty: ask the driver         drop the payload, with panics caught
//!     to come within a tick
//! ```
//!
//! [`core::pins`](crate::core::pins) says who may look, and [`super::freeing`] who frees.

use super::wakeup::AT_ONCE;
use crate::core::deferred::{Chain, Deferred};
use crate::core::pins::{Pins, Wait};
use crate::core::slot::{Payload, Slot};
use crate::core::slots::Slots;
use crate::core::threads::Counter;
use crate::sync::exclusive::Exclusive;
use crate::sync::{AtomicU64, Ordering};
use crate::time::NEVER;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// One thread's part, in its stripe.
pub(super) struct Mine {
    list: Deferred,
    /// Number of slots that this thread has pushed, and of all pushed ones that it has freed.
    pub(super) pushed: Counter,
    pub(super) freed: Counter,
    /// Weight of the slots pushed here less those freed here, if the capacity is bounded.
    pub(super) dead: Counter,
    /// Weight that this thread has pushed since it last asked whether too much waits.
    unasked: Counter,
}

impl Mine {
    pub(super) fn new() -> Self {
        Mine {
            list: Deferred::new(),
            pushed: Counter::default(),
            freed: Counter::default(),
            dead: Counter::default(),
            unasked: Counter::default(),
        }
    }

    /// Counts the weight of a slot that this thread has pushed. Returns whether it is time to ask
    /// if too much waits: after each `most` that it has pushed.
    pub(super) fn weigh(&self, weight: u64, most: u64) -> bool {
        self.dead.add(weight);
        self.unasked.add(weight);
        let asks = self.unasked.get() > most;
        if asks {
            self.unasked.set(0);
        }
        asks
    }

    /// Hands over `n` slots that the caller has ended and taken out of the index: slot `first`, and
    /// its links down to `last`. Returns whether the list was empty: the driver may not know of it.
    #[inline(always)]
    pub(super) fn push<P: Payload>(
        &self,
        slots: &Slots<P>,
        first: u32,
        last: (u32, Slot<'_, P>),
        n: u64,
    ) -> bool {
        self.pushed.add(n);
        self.list.push(slots, first, last)
    }
}

/// Slots that wait until no thread can be looking at them.
struct Batch {
    chains: Vec<Chain>,
    wait: Wait,
    done: Done,
}

/// Set when all slots of a batch are free. A standard atomic under loom too: no model asks for it.
pub(super) type Done = Arc<AtomicBool>;

/// The batches of an engine.
#[derive(Default)]
struct Waiting {
    batches: Vec<Batch>,
    /// The flags of all batches that are not free yet, with those that threads are freeing.
    unfinished: Vec<Done>,
    /// How many ticks the last look at a grace period was put off.
    backoff: u64,
}

impl Waiting {
    /// Takes what has been pushed into a batch that waits from now on. `None` while another thread
    /// copies index words.
    fn gather<'a>(&mut self, pins: &Pins, parts: impl Iterator<Item = &'a Mine>) -> Option<()> {
        let take = || parts.filter_map(|part| part.list.take()).collect::<Vec<Chain>>();
        let chains = pins.gather(take)?;
        if chains.is_empty() {
            return Some(());
        }
        let done = Done::default();
        // Acquire: a later flush does not ask for the flags dropped here. It enters `waiting` after
        // this thread, and so sees the drops by way of this load.
        // survives: loom does not see the flag, a standard atomic.
        self.unfinished.retain(|done| !done.load(std::sync::atomic::Ordering::Acquire));
        self.unfinished.push(done.clone());
        // After the lists were taken: these slots have left the index before.
        self.batches.push(Batch { chains, wait: Wait::begin(&pins.pin()), done });
        Some(())
    }

    /// Advances the epoch, and takes the batches whose grace periods are over.
    fn passed(&mut self, pins: &Pins) -> Due {
        // Later batches wait for no less than earlier ones.
        pins.turn_until(|| self.batches.last().map_or(true, |last| last.wait.is_over()));
        let due = self.batches.iter().take_while(|batch| batch.wait.is_over()).count();
        Due(self.batches.drain(..due).rev().collect())
    }
}

/// Batches whose grace periods are over, which one thread frees: the last one first.
pub(super) struct Due(Vec<Batch>);

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|batch| batch.chains.iter().all(Chain::is_empty))
    }

    /// The next slot. The caller has freed the one before.
    #[inline(always)]
    pub(super) fn pop<'a, P: Payload>(
        &mut self,
        slots: &'a Slots<P>,
    ) -> Option<(u32, Slot<'a, P>)> {
        loop {
            let batch = self.0.last_mut()?;
            while let Some(chain) = batch.chains.last_mut() {
                if let Some(next) = chain.pop(slots) {
                    return Some(next);
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

/// What all threads share: the pins, the batches, and when a driver is wanted.
pub(crate) struct Reclaim {
    pub(crate) pins: Pins,
    waiting: Exclusive<Waiting>,
    /// The tick by which a driver is wanted: lowered after a push, raised before lists are taken.
    again: AtomicU64,
}

impl Reclaim {
    pub(super) fn new() -> Self {
        Reclaim {
            pins: Pins::new(),
            waiting: Exclusive::new(Waiting::default()),
            again: AtomicU64::new(NEVER),
        }
    }

    /// The tick by which a driver should come.
    pub(super) fn wanted(&self) -> u64 {
        // survives: the reader has changed the announcement before, AcqRel (see `Engine::wanted`).
        self.again.load(Ordering::Acquire)
    }

    /// Asks for a driver by `tick`. Called after a push, and before the reaper is woken.
    pub(super) fn want(&self, tick: u64) {
        self.again.fetch_min(tick, Ordering::AcqRel);
    }

    /// The flags of all handed over until now. `None` if another thread handles the batches, or
    /// copies index words.
    pub(super) fn all<'a>(&self, parts: impl Iterator<Item = &'a Mine>) -> Option<Vec<Done>> {
        self.waiting.enter(|waiting| {
            waiting.gather(&self.pins, parts)?;
            Some(waiting.unfinished.clone())
        })?
    }

    /// Takes the lists of all threads' `parts` into a batch, advances the epoch, and takes the
    /// batches whose grace periods are over. It asks for a driver for the rest: after `next` ticks,
    /// or after `put_off` of the last back-off if a due look found nothing. `None` if another
    /// thread handles the batches: that one asks for what it has not taken. The reaper may have
    /// gone to sleep while nothing was wanted: the caller wakes it.
    pub(super) fn take_due<'a, I: Iterator<Item = &'a Mine>>(
        &self,
        tick: u64,
        next: u64,
        parts: impl Fn() -> I,
        put_off: impl Fn(u64) -> u64,
    ) -> Option<Due> {
        self.waiting.enter(|waiting| {
            // Acquire: this thread finds the list whose thread asked for it
            // (`a_flush_beside_a_removal` fails without it).
            let was_due = self.again.swap(NEVER, Ordering::AcqRel) <= tick;
            // One batch waits at a time: what comes meanwhile goes into the next one. So there are
            // few batches, however long a period takes.
            if waiting.batches.iter().all(|batch| batch.wait.is_over()) {
                waiting.gather(&self.pins, parts());
            }
            let due = waiting.passed(&self.pins);
            if !due.0.is_empty() {
                waiting.backoff = 0;
            } else if was_due {
                waiting.backoff = put_off(waiting.backoff);
            }
            if !waiting.batches.is_empty() || !parts().all(|part| part.list.is_empty()) {
                self.want(tick + waiting.backoff.max(next));
            }
            due
        })
    }

    /// Leaves what a round's budget did not cover to the next round, before all that waits. False
    /// if another thread handles the batches.
    #[cold]
    pub(super) fn put_back(&self, due: &mut Due) -> bool {
        let put = self.waiting.enter(|waiting| {
            waiting.batches.splice(..0, due.0.drain(..).rev());
        });
        if put.is_some() {
            self.want(AT_ONCE);
        }
        put.is_some()
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_reclaim.rs"]
mod tests;
