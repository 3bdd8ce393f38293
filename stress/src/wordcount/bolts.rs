//! The bolts: what they do with a tuple, with or without a fault.

use super::attempt::{Attempt, Piece};
use super::faults::Fault;
use super::words::{self, words, Counts};
use super::{held, Run};
use expiry_topology::{Bolt, BoltCollector, Tuple};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Instant;

/// What a bolt does with tuples.
pub enum Stage {
    /// Takes lines apart, by way of the places of a line's words.
    Split(Vec<Range<usize>>),
    /// Counts words.
    Count(Counts),
}

/// A bolt: processes tuples and acks them, unless a fault prevents it.
pub struct Worker {
    stage: Stage,
    run: Arc<Run>,
    /// Tuples to be acked late, with the time. They are not quite in order; each is acked at its
    /// own time or after.
    late: VecDeque<(Instant, Tuple<Piece>)>,
}

impl Worker {
    pub fn new(stage: Stage, run: &Arc<Run>) -> Self {
        Worker { stage, run: run.clone(), late: VecDeque::new() }
    }

    #[inline]
    fn process(&mut self, tuple: &Tuple<Piece>, out: &mut BoltCollector<'_, Piece>) {
        match &mut self.stage {
            Stage::Split(places) => {
                places.extend(words(tuple.text()));
                // This comes before any word is emitted: a word may be counted at once.
                tuple.attempt.has_words(places.len());
                for (number, place) in (0..).zip(places.drain(..)) {
                    out.emit(tuple, tuple.word(number, place));
                }
            }
            Stage::Count(counts) => {
                words::add(counts, tuple.text(), 1);
                tuple.attempt.count(tuple.number);
            }
        }
    }

    #[cold]
    fn fault(&mut self, fault: Fault, tuple: Tuple<Piece>, out: &mut BoltCollector<'_, Piece>) {
        self.run.stats.faults[fault as usize].fetch_add(1, Relaxed);
        match fault {
            Fault::Drop => return,
            Fault::Fail => return out.fail(tuple),
            Fault::Duplicate => self.process(&tuple, out),
            Fault::Late => {
                self.process(&tuple, out);
                self.run.stats.held.fetch_add(1, Relaxed);
                let due = tuple.attempt.issued + self.run.late_after;
                return self.late.push_back((due, tuple));
            }
        }
        self.process(&tuple, out);
        out.ack(tuple);
    }
}

impl Bolt<Piece, Piece> for Worker {
    fn execute(&mut self, tuple: Tuple<Piece>, out: &mut BoltCollector<'_, Piece>) {
        let Attempt { line, number, .. } = &*tuple.attempt;
        if let Some(fault) = self.run.faults.draw(line.id, *number, tuple.number) {
            return self.fault(fault, tuple, out);
        }
        self.process(&tuple, out);
        out.ack(tuple);
    }

    /// Sends the late acks that are due.
    fn tick(&mut self, out: &mut BoltCollector<'_, Piece>) {
        let now = Instant::now();
        while self.late.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, tuple)) = self.late.pop_front() else {
                return;
            };
            let attempt = tuple.attempt.clone();
            let ended = attempt.ended();
            let acked = out.ack_now(tuple);
            let run = &self.run;
            run.checks.expect("late_refused", !(ended && acked), || {
                let id = attempt.line.id;
                format!("line {id:#x} had ended, and yet a late ack took effect")
            });
            run.stats.held.fetch_sub(1, Relaxed);
        }
    }

    fn cleanup(&mut self) {
        if let Stage::Count(counts) = &mut self.stage {
            let mut all = held(&self.run.counted);
            for (word, n) in std::mem::take(counts) {
                words::add(&mut all, &word, n);
            }
        }
    }
}
