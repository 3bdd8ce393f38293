//! The book of a fault's run: its ledger, the times before which entries must not expire, and sums.

use crate::checks::{Check, Checks};
use crate::ledger::{Ledger, Names};
use crate::subject::Kind;
use expiry::RemovalCause;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::Arc;

/// Every entry that a fault's run wanted to begin.
#[derive(Debug)]
pub struct Book {
    pub ledger: Ledger,
    not_before: Box<[AtomicU64]>,
    used: AtomicUsize,
    accepted: AtomicUsize,
    told: AtomicUsize,
    expired: AtomicUsize,
    closed: AtomicUsize,
}

impl Book {
    /// A book with room for this many entries of a kind. Any error in an entry violates this check.
    pub fn new(entries: usize, kind: Kind, check: Check, checks: &Arc<Checks>) -> Self {
        let names = Names {
            entry: match kind {
                Kind::Issued => "issued root",
                Kind::Chosen => "chosen root",
                Kind::Map => "entry of the map",
                Kind::Queue => "key of the queue",
            },
            early: check,
            late: check,
            again: check,
            ends: check,
            returns: None,
            unknown: check,
        };
        Book {
            // All memory is taken now: later there may be none.
            ledger: Ledger::new(entries, names, checks.clone()).with_all_pages(),
            not_before: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
        }
    }

    /// The number of a new entry, which must not expire before this clock reading. `None` if the
    /// book is full.
    pub fn begin(&self, not_before: u64) -> Option<u64> {
        let number = self.used.fetch_add(1, Relaxed);
        self.not_before.get(number)?.store(not_before, Release);
        Some(number as u64)
    }

    /// The engine accepted the entry: it has one end, which may have been delivered already.
    pub fn accepted(&self, number: u64) {
        self.ledger.accepted(number);
        self.accepted.fetch_add(1, Relaxed);
    }

    /// The entry was renewed, and must not expire before this clock reading.
    pub fn renewed(&self, number: u64, not_before: u64) {
        self.not_before[number as usize].fetch_max(not_before, AcqRel);
    }

    /// The entry's end was delivered at this clock reading.
    pub fn ended(&self, number: u64, cause: RemovalCause, now: u64) {
        let due = self.not_before.get(number as usize).map_or(0, |due| due.load(Acquire));
        self.ledger.told(number, cause, now, due..=u64::MAX);
        match cause {
            RemovalCause::Expired => self.expired.fetch_add(1, Relaxed),
            RemovalCause::Closed => self.closed.fetch_add(1, Relaxed),
            _ => 0,
        };
        self.told.fetch_add(1, AcqRel);
    }

    pub fn sums(&self) -> Sums {
        let accepted = self.accepted.load(Acquire);
        Sums {
            accepted,
            refused: self.used.load(Acquire).min(self.ledger.room()) - accepted,
            told: self.told.load(Acquire),
            expired: self.expired.load(Acquire),
            closed: self.closed.load(Acquire),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// Entries that were accepted, and those that were not, or not yet.
    pub accepted: usize,
    pub refused: usize,
    /// Number of ends delivered.
    pub told: usize,
    /// Number of these that expired.
    pub expired: usize,
    /// Number of these that were closed with their engine.
    pub closed: usize,
}
