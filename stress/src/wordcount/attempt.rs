//! What travels, and the attempts at lines that it belongs to, with the books in which each ends: what it counted that the line may
//! not keep.

use super::faults::LINE;
use super::words::{add, show, words, Counts};
use crate::checks::Checks;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// A line of text.
#[derive(Debug, Clone)]
pub struct Line {
    /// The number of its file, and its number in there.
    pub id: u64,
    /// What it says.
    pub text: Arc<[u8]>,
}

/// A tuple: a line, or one of its words. Those of one attempt share it, so that none of them allocates.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The attempt.
    pub attempt: Arc<Attempt>,
    /// The word's number in its line, or [`LINE`].
    pub number: u32,
    start: u32,
    end: u32,
}

impl Piece {
    /// The whole line.
    pub fn line(attempt: Arc<Attempt>) -> Self {
        let end = attempt.line.text.len();
        Piece::new(attempt, LINE, 0..end)
    }

    /// A word.
    pub fn word(&self, number: u32, place: Range<usize>) -> Self {
        Piece::new(self.attempt.clone(), number, place)
    }

    #[allow(clippy::cast_possible_truncation)] // lines are cut long before
    fn new(attempt: Arc<Attempt>, number: u32, place: Range<usize>) -> Self {
        Piece { attempt, number, start: place.start as u32, end: place.end as u32 }
    }

    /// What it says.
    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.attempt.line.text[self.start as usize..self.end as usize]
    }
}

/// How an attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    /// Not yet.
    Open = 0,
    /// Everything was acked.
    Acked = 1,
    /// It failed or timed out; there is another attempt.
    Unsuccessful = 2,
}

/// One attempt at a line: one root. When nobody refers to it any more, it is entered in the books.
#[derive(Debug)]
pub struct Attempt {
    /// The line.
    pub line: Line,
    /// Which attempt at it, from 0.
    pub number: u32,
    /// A clock reading from before its root was issued.
    pub issued: Instant,
    end: AtomicU8,
    /// How often each of its words was counted, once it is known how many it has.
    counted: OnceLock<Box<[AtomicU8]>>,
    books: Arc<Books>,
}

impl Attempt {
    /// An attempt that begins now.
    pub fn new(line: Line, number: u32, books: Arc<Books>) -> Self {
        Attempt {
            line,
            number,
            issued: Instant::now(),
            end: AtomicU8::new(End::Open as u8),
            counted: OnceLock::new(),
            books,
        }
    }

    /// It has this many words. Called before any of them is counted.
    pub fn has_words(&self, words: usize) {
        let _ = self.counted.set((0..words).map(|_| AtomicU8::new(0)).collect());
    }

    /// Notes that a word was counted. Each word is counted by one thread only.
    #[inline]
    pub fn count(&self, word: u32) {
        if let Some(count) = self.counted.get().and_then(|counted| counted.get(word as usize)) {
            // One writer, and whoever reads it has the last reference: an ordinary addition.
            count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Notes its outcome, after it was told.
    pub fn end(&self, end: End) {
        self.end.store(end as u8, Ordering::Release);
    }

    /// Whether its outcome has been told.
    pub fn ended(&self) -> bool {
        self.end.load(Ordering::Acquire) != End::Open as u8
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let counted = self.counted.take().unwrap_or_default();
        let counts = counted.iter().map(|count| count.load(Ordering::Relaxed));
        match *self.end.get_mut() {
            end if end == End::Acked as u8 => {
                if counts.clone().any(|count| count != 1)
                    || counted.is_empty() && words(&self.line.text).next().is_some()
                {
                    self.books.acked(&self.line, &counts.collect::<Vec<_>>());
                }
            }
            end if end == End::Unsuccessful as u8 => {
                if counts.clone().any(|count| count != 0) {
                    self.books.unsuccessful(&self.line, &counts.collect::<Vec<_>>());
                }
            }
            _ => self.books.checks.violated("every_root_ended", || {
                format!("attempt {} at line {:#x} had no outcome", self.number, self.line.id)
            }),
        }
    }
}

/// What has been counted beyond once per word of each line, and why.
#[derive(Debug)]
pub struct Books {
    surplus: Mutex<Counts>,
    /// Words counted by attempts that did not succeed.
    pub unsuccessful: AtomicU64,
    /// Words counted again because they were delivered again.
    pub duplicated: AtomicU64,
    checks: Arc<Checks>,
}

impl Books {
    /// Empty books.
    pub fn new(checks: Arc<Checks>) -> Self {
        Books {
            surplus: Mutex::default(),
            unsuccessful: AtomicU64::new(0),
            duplicated: AtomicU64::new(0),
            checks,
        }
    }

    /// An attempt that succeeded did not count each word once.
    #[cold]
    fn acked(&self, line: &Line, counts: &[u8]) {
        let mut counts = counts.iter();
        for place in words(&line.text) {
            match counts.next() {
                None | Some(0) => self.checks.violated("acked_means_counted", || {
                    format!(
                        "line {:#x} was acked, but {} was not counted",
                        line.id,
                        show(&line.text[place])
                    )
                }),
                Some(1) => {}
                Some(&count) => {
                    let again = u64::from(count) - 1;
                    self.duplicated.fetch_add(again, Ordering::Relaxed);
                    self.add(&line.text[place], again);
                }
            }
        }
    }

    /// An attempt that did not succeed had counted something.
    #[cold]
    fn unsuccessful(&self, line: &Line, counts: &[u8]) {
        for (place, &count) in words(&line.text).zip(counts) {
            if count > 0 {
                self.unsuccessful.fetch_add(1, Ordering::Relaxed);
                self.duplicated.fetch_add(u64::from(count) - 1, Ordering::Relaxed);
                self.add(&line.text[place], u64::from(count));
            }
        }
    }

    fn add(&self, word: &[u8], more: u64) {
        match self.surplus.lock() {
            Ok(mut surplus) => add(&mut surplus, word, more),
            Err(poisoned) => add(&mut poisoned.into_inner(), word, more),
        }
    }

    /// The surplus of each word, which is no longer in the books then.
    pub fn take_surplus(&self) -> Counts {
        match self.surplus.lock() {
            Ok(mut surplus) => std::mem::take(&mut surplus),
            Err(poisoned) => std::mem::take(&mut poisoned.into_inner()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["every_root_ended", "acked_means_counted"];

    fn books() -> (Arc<Books>, Arc<Checks>) {
        let checks = Arc::new(Checks::new(&NAMES));
        (Arc::new(Books::new(checks.clone())), checks)
    }

    fn attempt(books: &Arc<Books>, end: End, counts: &[u8]) -> Attempt {
        let text = b"a b a".to_vec().into();
        let attempt = Attempt::new(Line { id: 7, text }, 0, books.clone());
        attempt.has_words(3);
        for (word, &count) in counts.iter().enumerate() {
            (0..count).for_each(|_| attempt.count(word as u32));
        }
        attempt.end(end);
        attempt
    }

    #[test]
    fn a_success_leaves_nothing_and_a_duplicate_is_entered() {
        let (books, checks) = books();
        drop(attempt(&books, End::Acked, &[1, 1, 1]));
        assert!(books.surplus.lock().unwrap().is_empty());
        drop(attempt(&books, End::Acked, &[1, 3, 1]));
        assert_eq!(books.duplicated.load(Ordering::Relaxed), 2);
        assert_eq!(books.take_surplus()[&b"b"[..]], 2);
        assert_eq!(checks.violations(), 0);
    }

    #[test]
    fn what_an_unsuccessful_attempt_counted_is_entered() {
        let (books, checks) = books();
        drop(attempt(&books, End::Unsuccessful, &[1, 0, 2]));
        assert_eq!(books.unsuccessful.load(Ordering::Relaxed), 2);
        assert_eq!(books.duplicated.load(Ordering::Relaxed), 1);
        let surplus = books.take_surplus();
        assert_eq!((surplus.len(), surplus[&b"a"[..]]), (1, 3));
        assert_eq!(checks.violations(), 0);
    }

    #[test]
    fn an_ack_without_a_count_is_a_violation() {
        let (books, checks) = books();
        drop(attempt(&books, End::Acked, &[1, 0, 1]));
        assert!(!checks.holds("acked_means_counted"));
        let (books, checks) = self::books();
        let text = b"never split".to_vec().into();
        let attempt = Attempt::new(Line { id: 7, text }, 0, books);
        attempt.end(End::Acked);
        drop(attempt);
        assert!(!checks.holds("acked_means_counted"));
    }

    #[test]
    fn an_attempt_without_an_outcome_is_a_violation() {
        let (books, checks) = books();
        drop(attempt(&books, End::Open, &[1, 1, 1]));
        assert!(!checks.holds("every_root_ended"));
    }
}
