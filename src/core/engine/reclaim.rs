//! Memory of entries that have ended: freed soon, also when nothing else happens.
//!
//! Nodes of keyed entries wait for a grace period (`sync::grace`), which ends only where somebody pins, and a thread hands
//! what it has retired over only now and then. So who has retired something in a round hands it over, and a *sentinel* behind
//! it; then the grace period is turned until the sentinel has been called, at the next ticks if need be, and if
//! somebody stays pinned at longer and longer intervals. Then all that was retired before it has been freed, or is being freed.
//! With no sentinel waiting there is nothing to come back for.
//!
//! What other threads retire by removing and replacing stays in their hands: they hand it over when they pin again.

use super::Engine;
use crate::sync::{AtomicU64, Ordering};
use crate::time::NEVER;
use std::sync::atomic::AtomicU64 as Statistic;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

/// How often a round turns a grace period: an epoch is left behind after two turns, and each frees 512 nodes.
#[cfg(not(expiry_loom))]
const TURNS: usize = 16;
#[cfg(expiry_loom)]
const TURNS: usize = 1;

pub(super) struct Reclaim {
    /// Sentinels that have not been called yet.
    waiting: Arc<Statistic>,
    /// The tick at which to look again. Lowered after a sentinel was added; raised before the sentinels are counted.
    again: AtomicU64,
    /// For how many ticks the last look was put off.
    patience: Statistic,
}

impl Reclaim {
    pub(super) fn new() -> Self {
        Reclaim {
            waiting: Arc::new(Statistic::new(0)),
            again: AtomicU64::new(NEVER),
            patience: Statistic::new(0),
        }
    }

    /// By which tick somebody should turn the grace period.
    pub(super) fn wanted(&self) -> u64 {
        self.again.load(Ordering::Acquire)
    }
}

impl<C> Engine<C> {
    /// Turns the grace period over, if that is due at `tick`, or if this thread has `retired` something. Keys and values
    /// are dropped here, by nobody who is at a shard.
    pub(crate) fn reclaim(&self, retired: bool, tick: u64) {
        let reclaim = &self.reclaim;
        if !retired && reclaim.wanted() > tick {
            return;
        }
        let grace = self.indexes[0].grace();
        if retired {
            reclaim.waiting.fetch_add(1, Relaxed);
            reclaim.patience.store(0, Relaxed);
            let waiting = reclaim.waiting.clone();
            grace.after(move || {
                waiting.fetch_sub(1, Release);
            });
        }
        for _ in 0..TURNS {
            if reclaim.waiting.load(Acquire) == 0 {
                break;
            }
            grace.turn();
        }
        reclaim.again.swap(NEVER, Ordering::AcqRel);
        if reclaim.waiting.load(Acquire) != 0 {
            let patience = self.more_patience(reclaim.patience.load(Relaxed));
            reclaim.patience.store(patience, Relaxed);
            reclaim.again.fetch_min(tick + patience, Ordering::AcqRel);
        }
    }
}
