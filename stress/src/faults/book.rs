//! The book: of each entry, whether it was accepted, before when it must not expire, and how often it was told to have ended.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// How an entry ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its time was up, at this reading of the clock or later.
    Expired(u64),
    /// Acked, failed or removed.
    Ended,
    /// With its engine.
    Closed,
}

#[derive(Debug, Default)]
struct Line {
    accepted: AtomicBool,
    told: AtomicU32,
    not_before: AtomicU64,
}

/// Of a run of a fault, every entry that anybody wanted to begin.
#[derive(Debug)]
pub struct Book {
    lines: Box<[Line]>,
    used: AtomicUsize,
    accepted: AtomicUsize,
    told: AtomicUsize,
    early: AtomicUsize,
    expired: AtomicUsize,
    closed: AtomicUsize,
}

impl Book {
    /// With room for this many.
    pub fn new(lines: usize) -> Self {
        Book {
            lines: (0..lines).map(|_| Line::default()).collect(),
            used: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            early: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
        }
    }

    /// How many it has room for.
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The number of a new entry, which must not expire before this clock reading. `None` if the book is full.
    pub fn begin(&self, not_before: u64) -> Option<u64> {
        let number = self.used.fetch_add(1, Relaxed);
        let line = self.lines.get(number)?;
        line.not_before.store(not_before, Release);
        Some(number as u64)
    }

    /// It was accepted: it has one end. (That may have been told already.)
    pub fn accepted(&self, number: u64) {
        self.lines[number as usize].accepted.store(true, Release);
        self.accepted.fetch_add(1, Relaxed);
    }

    /// It was renewed, and must not expire before this clock reading.
    pub fn renewed(&self, number: u64, not_before: u64) {
        self.lines[number as usize].not_before.fetch_max(not_before, AcqRel);
    }

    /// It was told to have ended.
    pub fn ended(&self, number: u64, end: End) {
        let Some(line) = self.lines.get(number as usize) else {
            self.early.fetch_add(1, Relaxed);
            return;
        };
        match end {
            End::Expired(now) => {
                if now < line.not_before.load(Acquire) {
                    self.early.fetch_add(1, Relaxed);
                }
                self.expired.fetch_add(1, Relaxed);
            }
            End::Closed => {
                self.closed.fetch_add(1, Relaxed);
            }
            End::Ended => {}
        }
        line.told.fetch_add(1, AcqRel);
        self.told.fetch_add(1, AcqRel);
    }

    /// How many were accepted; how many ends were told; how many of them expiries, and closings.
    pub fn sums(&self) -> Sums {
        Sums {
            accepted: self.accepted.load(Acquire),
            told: self.told.load(Acquire),
            expired: self.expired.load(Acquire),
            closed: self.closed.load(Acquire),
        }
    }

    /// How many entries were not accepted.
    pub fn refused(&self) -> usize {
        self.used.load(Acquire).min(self.lines.len()) - self.accepted.load(Acquire)
    }

    /// How many entries were told more than once.
    pub fn told_again(&self) -> usize {
        let again = |line: &&Line| line.told.load(Acquire) > 1;
        self.lines.iter().filter(again).count()
    }

    /// What is wrong with it now that all should have ended.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let used = self.used.load(Acquire).min(self.lines.len());
        for (number, line) in self.lines[..used].iter().enumerate() {
            let should = u32::from(line.accepted.load(Acquire));
            let told = line.told.load(Acquire);
            if told != should {
                wrong.push(format!(
                    "entry {number} was told to have ended {told} times, should be {should}"
                ));
            }
        }
        let early = self.early.load(Acquire);
        if early > 0 {
            wrong.push(format!("{early} entries expired before their time, or were nobody's"));
        }
        wrong
    }
}

/// Of a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// Entries that were accepted.
    pub accepted: usize,
    /// Ends that were told.
    pub told: usize,
    /// Of these, expiries.
    pub expired: usize,
    /// And those with their engine.
    pub closed: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_end_each_and_none_early() {
        let book = Book::new(3);
        assert_eq!(book.begin(10), Some(0));
        book.accepted(0);
        assert_eq!(book.wrong().len(), 1, "lost");
        book.ended(0, End::Expired(10));
        assert!(book.wrong().is_empty());
        book.ended(0, End::Ended);
        assert_eq!(book.wrong().len(), 1, "twice");
        assert_eq!(book.begin(0), Some(1));
        book.ended(1, End::Closed);
        assert_eq!(book.wrong().len(), 2, "refused, and ended");
        assert_eq!(book.begin(10), Some(2));
        book.accepted(2);
        book.renewed(2, 20);
        book.ended(2, End::Expired(19));
        assert_eq!(book.wrong().len(), 3, "early");
        assert_eq!(book.begin(0), None);
    }
}
