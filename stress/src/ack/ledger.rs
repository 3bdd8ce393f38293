//! The ledger: a fixed number of places, one for each root in flight, in which the handler enters
//! each root's one outcome.

use super::law::End;
use crate::checks::Checks;
use crate::latency;
use expiry::{Outcome, Reason, RootId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// States of a place, in the low bits of its `state`. The occupant's number is above them.
const FREE: u64 = 0;
const LIVE: u64 = 1;
const ENDING: u64 = 2;
const ENDED: u64 = 3;
/// `ENDED + end as u64` up to here.
const BITS: u32 = 4;

/// A place for one root at a time.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Place {
    state: AtomicU64,
    /// The root that the outcome named.
    root: AtomicU64,
    /// Readings of a timeout: when the handler received it, when it was due, when the tracker saw
    /// it.
    at: AtomicU64,
    due: AtomicU64,
    seen: AtomicU64,
    /// The XOR of the acks that were accepted.
    pub accepted: AtomicU64,
    /// How many acks said that they completed the tree.
    pub completed: AtomicU32,
    /// How many acks other threads have still to do.
    pub elsewhere: AtomicU32,
}

/// An outcome as it stands in the ledger.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub end: End,
    pub root: u64,
    /// When the handler received a timeout, in nanoseconds since the ledger was opened.
    pub at: u64,
    /// When a timeout was due and when it was seen.
    pub due_and_seen: (Duration, Duration),
}

/// The token of a root: its place, and the number of its occupancy there.
pub fn owner(place: usize, tenant: u32) -> u64 {
    (place as u64) << 32 | u64::from(tenant)
}

#[derive(Debug)]
pub struct Ledger {
    places: Box<[Place]>,
    began: Instant,
    checks: Arc<Checks>,
}

impl Ledger {
    pub fn new(places: usize, checks: Arc<Checks>) -> Self {
        Ledger {
            places: (0..places).map(|_| Place::default()).collect(),
            began: Instant::now(),
            checks,
        }
    }

    /// Nanoseconds since it was opened.
    #[inline]
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[inline]
    pub fn place(&self, place: usize) -> &Place {
        &self.places[place]
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// An occupant moves in, before its root is issued. Only its thread may call this.
    #[inline]
    pub fn begin(&self, place: usize, tenant: u32) {
        let place = &self.places[place];
        place.accepted.store(0, Ordering::Relaxed);
        place.completed.store(0, Ordering::Relaxed);
        // Release: a thread that sees the occupant sees a clean place.
        place.state.store(u64::from(tenant) << BITS | LIVE, Ordering::Release);
    }

    /// The occupant's root was refused: it will have no outcome.
    pub fn cancel(&self, place: usize, tenant: u32) {
        self.places[place].state.store(u64::from(tenant) << BITS | FREE, Ordering::Release);
    }

    /// The occupant's outcome, if it has arrived.
    #[inline]
    pub fn entry(&self, place: usize) -> Option<Entry> {
        let place = &self.places[place];
        let state = place.state.load(Ordering::Acquire) & ((1 << BITS) - 1);
        let end = match state.checked_sub(ENDED)? {
            0 => End::Acked,
            1 => End::Failed,
            2 => End::TimedOut,
            _ => End::Other,
        };
        let nanos = |count: &AtomicU64| Duration::from_nanos(count.load(Ordering::Relaxed));
        Some(Entry {
            end,
            root: place.root.load(Ordering::Relaxed),
            at: place.at.load(Ordering::Relaxed),
            due_and_seen: (nanos(&place.due), nanos(&place.seen)),
        })
    }

    /// Enters an outcome.
    #[inline]
    pub fn enter(&self, outcome: &Outcome) {
        let tenant = outcome.owner & u64::from(u32::MAX);
        let Some(place) = self.places.get((outcome.owner >> 32) as usize) else {
            return self.too_many(outcome, "nobody's");
        };
        let live = tenant << BITS | LIVE;
        let ending = tenant << BITS | ENDING;
        // The thread that wins this has the place to itself until it stores the end.
        let won = place.state.compare_exchange(live, ending, Ordering::Acquire, Ordering::Relaxed);
        if won.is_err() {
            return self.too_many(outcome, "of a root that has had one");
        }
        let end = match outcome.reason {
            Reason::Acked => End::Acked,
            Reason::Failed { .. } => End::Failed,
            Reason::TimedOut { due, seen } => {
                place.due.store(latency::nanos(due), Ordering::Relaxed);
                place.seen.store(latency::nanos(seen), Ordering::Relaxed);
                place.at.store(self.now(), Ordering::Relaxed);
                End::TimedOut
            }
            _ => End::Other,
        };
        place.root.store(bits(outcome.root), Ordering::Relaxed);
        place.state.store(tenant << BITS | (ENDED + end as u64), Ordering::Release);
    }

    #[cold]
    fn too_many(&self, outcome: &Outcome, whose: &str) {
        self.checks.violated("one_outcome_each", || format!("an outcome {whose}: {outcome:?}"));
    }
}

#[inline]
pub fn bits(root: RootId) -> u64 {
    match root {
        RootId::Issued(root) => root.to_bits(),
        RootId::Chosen(id) => id,
    }
}
