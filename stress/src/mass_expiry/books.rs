//! What the foreground, the pollers and the queue's handler share: the ledger, when entries are
//! due, and which threads go on.
//!
//! An entry is renewed and removed by one thread only.

use super::FOREGROUND;
use crate::checks::Checks;
use crate::ledger::{self, Ledger, Story};
use expiry::{Clock, RemovalCause};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many operations each thread does while an expiry is held up.
const GOES_ON: u64 = 1000;

/// How the ledger reports.
const LEDGER: ledger::Names = ledger::Names {
    entry: "entry",
    early: "none_early",
    late: "none_late",
    again: "one_end_each",
    ends: "all_expire",
    // A queue does not report removals to its handler: their callers enter them.
    returns: None,
    unknown: "one_end_each",
};

/// When entries are due, and how late they may be reported.
pub struct Terms {
    /// When the first of the intervals in which entries expire is due, the length of an interval,
    /// and how many there are.
    pub due: u64,
    pub interval: u64,
    pub intervals: u64,
    /// The most that an expiry may be reported after it was due, without the time that filling
    /// took.
    pub late: u64,
}

/// What the threads, and the queue's handler, share.
pub struct Books {
    pub ledger: Ledger,
    pub time: Arc<dyn Clock>,
    pub checks: Arc<Checks>,
    pub terms: Terms,
    /// The longest time that an insertion has taken: deadlines differ from the request by as much.
    pub slip: AtomicU64,
    /// Entries that were renewed or have ended; those reported as expired.
    pub settled: AtomicU64,
    pub told: AtomicU64,
    /// Operations of each thread; whether an expiry is to be held up, for how long at most.
    pub operations: Vec<AtomicU64>,
    pub holds: AtomicBool,
    patience: Duration,
}

impl Books {
    pub fn new(
        (entries, threads): (u32, usize),
        (time, terms): (Arc<dyn Clock>, Terms),
        patience: Duration,
    ) -> Self {
        let checks = Arc::new(Checks::new(&super::NAMES));
        let ledger = Ledger::new(1, entries as usize, LEDGER, checks.clone());
        Books {
            ledger: ledger.with_all_pages(),
            time,
            checks,
            terms,
            slip: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            told: AtomicU64::new(0),
            operations: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            holds: AtomicBool::new(false),
            patience,
        }
    }

    /// When an entry is due: each group of entries together.
    pub fn due(&self, entry: u64) -> u64 {
        self.terms.due + entry % self.terms.intervals * self.terms.interval
    }

    /// Counts an entry as settled, if it was open before.
    fn settle(&self, before: Story) {
        if before.is_open() {
            self.settled.fetch_add(1, AcqRel);
        }
    }

    /// A renewal returned that it was done.
    pub fn renewed(&self, entry: u64) {
        let before = self.ledger.renewed(entry);
        self.settle(before);
        self.checks.expect("renewed_stay", !before.has_expired(), || {
            format!("entry {entry} was renewed, and has expired")
        });
    }

    /// The end of an entry was delivered now.
    fn ended(&self, entry: u64, cause: RemovalCause) -> Story {
        let (now, due) = (self.time.now(), self.due(entry));
        let late = self.terms.late.saturating_add(self.slip.load(Relaxed));
        let before = self.ledger.told(entry, cause, now, due..=due.saturating_add(late));
        self.settle(before);
        before
    }

    /// A removal returned that it was done.
    pub fn removed(&self, entry: u64) {
        self.ended(entry, RemovalCause::Removed);
    }

    /// A key was reported as expired.
    pub fn expired(&self, key: u64) {
        if key >= FOREGROUND {
            self.checks
                .violated("foreground_right", || format!("key {key:#x} of a thread has expired"));
            return;
        }
        let before = self.ended(key, RemovalCause::Expired);
        self.checks.expect("renewed_stay", !before.stays(), || {
            format!("entry {key} has expired, and was renewed")
        });
        self.told.fetch_add(1, Relaxed);
    }

    /// The first call holds its caller up until each thread has done some more operations. A thread
    /// that waited for the caller would never get there.
    pub fn hold(&self) {
        if !self.holds.swap(false, AcqRel) {
            return;
        }
        let counts = || self.operations.iter().map(|count| count.load(Acquire));
        let before: Vec<u64> = counts().collect();
        let did = || counts().zip(&before).map(|(now, before)| now - before);
        let began = Instant::now();
        while !did().all(|did| did >= GOES_ON) {
            if began.elapsed() > self.patience {
                self.checks.violated("nobody_stopped", || {
                    let did: Vec<u64> = did().collect();
                    format!("while an expiry was held up, threads did {did:?} operations")
                });
                return;
            }
            std::thread::yield_now();
        }
    }
}
