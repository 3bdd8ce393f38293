//! What travels: lines and words, each with the attempt that it belongs to. A finished attempt
//! enters in the books what it has counted and its line may not keep.

use super::faults::LINE;
use super::held;
use super::words::{add, show, words, Counts};
use crate::checks::Checks;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// A line of text.
#[derive(Debug, Clone)]
pub struct Line {
    /// The number of its file, and its number in there.
    pub id: u64,
    pub text: Arc<[u8]>,
}

/// A tuple: a line, or one of its words. The tuples of one attempt share it, so that none of them
/// allocates.
#[derive(Debug, Clone)]
pub struct Piece {
    pub attempt: Arc<Attempt>,
    /// The word's number in its line, or [`LINE`].
    pub number: u32,
    place: Range<u32>,
}

impl Piece {
    /// The whole line.
    pub fn line(attempt: Arc<Attempt>) -> Self {
        let end = attempt.line.text.len();
        Piece::new(attempt, LINE, 0..end)
    }

    pub fn word(&self, number: u32, place: Range<usize>) -> Self {
        Piece::new(self.attempt.clone(), number, place)
    }

    #[allow(clippy::cast_possible_truncation)] // lines are cut long before
    fn new(attempt: Arc<Attempt>, number: u32, place: Range<usize>) -> Self {
        Piece { attempt, number, place: place.start as u32..place.end as u32 }
    }

    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.attempt.line.text[self.place.start as usize..self.place.end as usize]
    }
}

/// One attempt at a line: one root. The last reference to it enters it in the books.
#[derive(Debug)]
pub struct Attempt {
    pub line: Line,
    /// Which attempt at it, from 0.
    pub number: u32,
    /// A clock reading from before its root was issued.
    pub issued: Instant,
    /// Its outcome once that was delivered: whether everything was acked. If not, there is another
    /// attempt.
    acked: OnceLock<bool>,
    /// How often each of its words was counted, once it is known how many it has.
    counted: OnceLock<Box<[AtomicU8]>>,
    books: Arc<Books>,
}

impl Attempt {
    /// An attempt that begins now.
    pub fn new(line: Line, number: u32, books: Arc<Books>) -> Self {
        let (acked, counted) = (OnceLock::new(), OnceLock::new());
        Attempt { line, number, issued: Instant::now(), acked, counted, books }
    }

    /// It has this many words. Called before any of them is counted.
    pub fn has_words(&self, words: usize) {
        let _ = self.counted.set((0..words).map(|_| AtomicU8::new(0)).collect());
    }

    /// Notes that a word was counted. Each word is counted by one thread only.
    #[inline]
    pub fn count(&self, word: u32) {
        if let Some(count) = self.counted.get().and_then(|counted| counted.get(word as usize)) {
            // There is one writer, and the one reader has the last reference: an ordinary addition
            // suffices.
            count.store(count.load(Relaxed).saturating_add(1), Relaxed);
        }
    }

    /// Notes its outcome, after the spout has received it.
    pub fn end(&self, acked: bool) {
        let _ = self.acked.set(acked);
    }

    /// Whether the spout has received its outcome.
    pub fn ended(&self) -> bool {
        self.acked.get().is_some()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(&acked) = self.acked.get() else {
            return self.books.checks.violated("every_root_ended", || {
                format!("attempt {} at line {:#x} had no outcome", self.number, self.line.id)
            });
        };
        let counted = self.counted.take().unwrap_or_default();
        let never_split = || counted.is_empty() && words(&self.line.text).next().is_some();
        let should = u8::from(acked);
        if counted.iter().any(|count| count.load(Relaxed) != should) || acked && never_split() {
            self.books.enter(&self.line, acked, &counted);
        }
    }
}

/// What has been counted beyond once per word of each line, and why.
#[derive(Debug)]
pub struct Books {
    pub surplus: Mutex<Counts>,
    /// Words counted by attempts that did not succeed.
    pub unsuccessful: AtomicU64,
    /// Words counted again because they were delivered again.
    pub duplicated: AtomicU64,
    checks: Arc<Checks>,
}

impl Books {
    pub fn new(checks: Arc<Checks>) -> Self {
        let (unsuccessful, duplicated) = (AtomicU64::new(0), AtomicU64::new(0));
        Books { surplus: Mutex::default(), unsuccessful, duplicated, checks }
    }

    /// An attempt did not count each word once if it succeeded, or counted some if it did not.
    #[cold]
    fn enter(&self, line: &Line, acked: bool, counts: &[AtomicU8]) {
        let counts = counts.iter().map(|count| count.load(Relaxed)).chain(std::iter::repeat(0));
        for (place, count) in words(&line.text).zip(counts) {
            let word = &line.text[place];
            let Some(again) = count.checked_sub(1) else {
                self.checks.expect("acked_means_counted", !acked, || {
                    format!("line {:#x} was acked, but {} was not counted", line.id, show(word))
                });
                continue;
            };
            let (again, first) = (u64::from(again), u64::from(!acked));
            self.duplicated.fetch_add(again, Relaxed);
            self.unsuccessful.fetch_add(first, Relaxed);
            if again + first > 0 {
                add(&mut held(&self.surplus), word, again + first);
            }
        }
    }
}
