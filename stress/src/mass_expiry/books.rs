//! Each entry's story, and who tells it.
//!
//! An entry is renewed and removed by one thread only; whoever is told that it has expired enters that here. Three bits
//! each; all changes are read-modify-writes, so that of two that contradict each other the second finds the first.

use super::FOREGROUND;
use crate::checks::Checks;
use crate::latency::{human, Latency};
use crate::leap::Leaping;
use expiry::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering::*};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const TOLD: u8 = 1;
const RENEWED: u8 = 2;
const REMOVED: u8 = 4;

/// How many operations each thread does while an expiry is held up.
const GOES_ON: u64 = 1000;

/// When entries are due, and told.
pub struct Terms {
    /// When the first interval is due in which entries expire, its length, and how many there are.
    pub due: u64,
    pub interval: u64,
    pub intervals: u64,
    /// By how much an expiry may be told later than it was due, without what filling took.
    pub late: u64,
}

/// What the threads, and the queue's handler, share.
pub struct Books {
    pub entries: Vec<AtomicU8>,
    pub time: Leaping,
    pub checks: Checks,
    pub terms: Terms,
    /// The longest that an insertion has taken, by which deadlines differ from what was asked for.
    pub slip: AtomicU64,
    /// Entries that have a story; those told.
    pub settled: AtomicU64,
    pub told: AtomicU64,
    /// The first and the last time that something was told, since the run began.
    pub stretch: (AtomicU64, AtomicU64),
    pub began: Instant,
    pub lateness: Mutex<Latency>,
    /// Operations of each thread; whether an expiry is to be held up, for how long at most.
    pub operations: Vec<AtomicU64>,
    pub holds: AtomicBool,
    pub patience: Duration,
}

impl Books {
    /// Nothing is in them yet.
    pub fn new(
        (entries, threads): (u32, usize),
        (time, terms): (Leaping, Terms),
        checks: Checks,
        patience: Duration,
    ) -> Self {
        Books {
            entries: (0..entries).map(|_| AtomicU8::new(0)).collect(),
            time,
            checks,
            terms,
            slip: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            told: AtomicU64::new(0),
            stretch: (AtomicU64::new(u64::MAX), AtomicU64::new(0)),
            began: Instant::now(),
            lateness: Mutex::default(),
            operations: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            holds: AtomicBool::new(false),
            patience,
        }
    }

    /// When an entry is due: every so many together.
    pub fn due(&self, entry: u64) -> u64 {
        self.terms.due + entry % self.terms.intervals * self.terms.interval
    }

    /// Adds to an entry's story. What it was before.
    fn enter(&self, entry: u64, bit: u8) -> u8 {
        let before = self.entries[entry as usize].fetch_or(bit, AcqRel);
        if before == 0 {
            self.settled.fetch_add(1, AcqRel);
        }
        before
    }

    /// A renewal said that it was done.
    pub fn renewed(&self, entry: u64) {
        let before = self.enter(entry, RENEWED);
        self.checks.expect("renewed_stay", before & TOLD == 0, || {
            format!("entry {entry} was renewed, and has expired")
        });
    }

    /// A removal said that it was done.
    pub fn removed(&self, entry: u64) {
        let before = self.enter(entry, REMOVED);
        self.checks.expect("one_end_each", before & (TOLD | REMOVED) == 0, || {
            format!("entry {entry} was removed, and had ended: {before:#b}")
        });
    }

    /// Whether it is there until it is removed.
    pub fn stays(&self, entry: u64) -> bool {
        self.entries[entry as usize].load(Acquire) & (TOLD | RENEWED | REMOVED) == RENEWED
    }

    /// Whether it has no story yet.
    pub fn is_open(&self, entry: u64) -> bool {
        self.entries[entry as usize].load(Acquire) == 0
    }

    /// A key was told to have expired.
    pub fn expired(&self, key: u64) {
        let now = self.time.now();
        let at = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if key >= FOREGROUND {
            self.checks
                .violated("foreground_right", || format!("key {key:#x} of a thread has expired"));
            return;
        }
        if key >= self.entries.len() as u64 {
            self.checks.violated("one_end_each", || {
                format!("key {key:#x} has expired, and nobody has inserted it")
            });
            return;
        }
        let before = self.enter(key, TOLD);
        self.checks.expect("renewed_stay", before != RENEWED, || {
            format!("entry {key} has expired, and was renewed")
        });
        self.checks.expect("one_end_each", before & (TOLD | REMOVED) == 0, || {
            format!("entry {key} has expired, and had ended: {before:#b}")
        });
        self.timely(key, now);
        self.told.fetch_add(1, Relaxed);
        self.stretch.0.fetch_min(at, Relaxed);
        self.stretch.1.fetch_max(at, Relaxed);
    }

    fn timely(&self, entry: u64, now: u64) {
        let (due, slip) = (self.due(entry), self.slip.load(Relaxed));
        self.checks.expect("none_early", now >= due, || {
            format!("entry {entry} expired {} early", human(due - now))
        });
        let late = now.saturating_sub(due);
        self.checks.expect("none_late", late <= self.terms.late.saturating_add(slip), || {
            format!("entry {entry} expired {} late", human(late))
        });
        if let Ok(mut lateness) = self.lateness.lock() {
            lateness.record_nanos(late);
        }
    }

    /// The first time, holds the caller up until each thread has done some operations more: that one at least would not come to
    /// an end who waited for the caller.
    pub fn hold(&self) {
        if !self.holds.swap(false, AcqRel) {
            return;
        }
        let counts = || self.operations.iter().map(|count| count.load(Acquire));
        let before: Vec<u64> = counts().collect();
        let goes_on = || counts().zip(&before).all(|(now, before)| now - before >= GOES_ON);
        let began = Instant::now();
        while !goes_on() {
            if began.elapsed() > self.patience {
                let did: Vec<u64> =
                    counts().zip(&before).map(|(now, before)| now - before).collect();
                self.checks.violated("nobody_stopped", || {
                    format!("while an expiry was held up, threads did {did:?} operations")
                });
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NAMES;
    use super::*;
    use crate::checks::Check;

    /// What fails of two entries that are due at 1000 and 1010.
    fn failing(act: impl FnOnce(&Books)) -> Vec<Check> {
        let terms = Terms { due: 1000, interval: 10, intervals: 2, late: 10 };
        let time = (Leaping::new(true), terms);
        let books = Books::new((2, 1), time, Checks::new(&NAMES), Duration::ZERO);
        books.holds.store(true, Relaxed);
        act(&books);
        books.checks.failing()
    }

    fn at(books: &Books, now: u64) {
        books.time.leap(Duration::from_nanos(now - books.time.now()));
    }

    #[test]
    fn stories_that_are_right() {
        let failing = failing(|books| {
            assert!(books.is_open(0) && !books.stays(0));
            books.renewed(0);
            assert!(books.stays(0));
            at(books, 1011);
            books.expired(1);
            books.removed(0);
            assert!(!books.stays(0) && !books.is_open(1));
            assert_eq!(books.settled.load(Relaxed), 2);
        });
        assert_eq!(failing, [""; 0]);
    }

    #[test]
    fn stories_that_are_not() {
        let story = |then: u64, acts: &[fn(&Books)]| {
            failing(|books| {
                at(books, then);
                acts.iter().for_each(|act| act(books));
            })
        };
        let expired: fn(&Books) = |books| books.expired(0);
        let renewed: fn(&Books) = |books| books.renewed(0);
        let removed: fn(&Books) = |books| books.removed(0);
        assert_eq!(story(1000, &[expired, expired]), ["one_end_each"]);
        assert_eq!(story(1000, &[removed, expired]), ["one_end_each"]);
        assert_eq!(story(1000, &[expired, removed]), ["one_end_each"]);
        assert_eq!(story(1000, &[expired, renewed]), ["renewed_stay"]);
        assert_eq!(story(1000, &[renewed, expired]), ["renewed_stay"]);
        assert_eq!(story(999, &[expired]), ["none_early"]);
        assert_eq!(story(1011, &[expired]), ["none_late"]);
        assert_eq!(story(1000, &[|books| books.expired(FOREGROUND + 1)]), ["foreground_right"]);
        assert_eq!(story(1000, &[|books| books.expired(7)]), ["one_end_each"]);
        assert_eq!(story(1000, &[Books::hold]), ["nobody_stopped"]);
    }
}
