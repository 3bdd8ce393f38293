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

/// What a bolt does with a tuple.
pub trait Process: Send {
    fn process(&mut self, tuple: &Tuple<Piece>, out: &mut BoltCollector<'_, Piece>);

    /// Hands in what it has.
    fn finish(&mut self, _run: &Run) {}
}

/// Takes lines apart.
#[derive(Default)]
pub struct Split(Vec<Range<usize>>);

impl Process for Split {
    fn process(&mut self, line: &Tuple<Piece>, out: &mut BoltCollector<'_, Piece>) {
        self.0.extend(words(line.text()));
        // Before any of them is emitted: it may be counted at once.
        line.attempt.has_words(self.0.len());
        for (number, place) in (0..).zip(self.0.drain(..)) {
            out.emit(line, line.word(number, place));
        }
    }
}

/// Counts words.
#[derive(Default)]
pub struct Count(Counts);

impl Process for Count {
    #[inline]
    fn process(&mut self, word: &Tuple<Piece>, _out: &mut BoltCollector<'_, Piece>) {
        words::add(&mut self.0, word.text(), 1);
        word.attempt.count(word.number);
    }

    fn finish(&mut self, run: &Run) {
        let mut all = held(&run.counted);
        for (word, n) in std::mem::take(&mut self.0) {
            words::add(&mut all, &word, n);
        }
    }
}

/// A bolt: processes tuples and acks them, unless a fault prevents it.
pub struct Worker<P> {
    process: P,
    run: Arc<Run>,
    /// Tuples to be acked late, with when. Not quite in order; each is acked at its own time or after.
    late: VecDeque<(Instant, Tuple<Piece>)>,
}

impl<P: Process> Worker<P> {
    pub fn new(process: P, run: &Arc<Run>) -> Self {
        Worker { process, run: run.clone(), late: VecDeque::new() }
    }

    #[cold]
    fn fault(&mut self, fault: Fault, tuple: Tuple<Piece>, out: &mut BoltCollector<'_, Piece>) {
        let run = &self.run;
        run.stats.faults[fault as usize].fetch_add(1, Relaxed);
        match fault {
            Fault::Drop => return,
            Fault::Fail => return out.fail(tuple),
            Fault::Duplicate => self.process.process(&tuple, out),
            Fault::Late => {
                self.process.process(&tuple, out);
                run.stats.held.fetch_add(1, Relaxed);
                let due = tuple.attempt.issued + run.late_after;
                return self.late.push_back((due, tuple));
            }
            Fault::Stall => std::thread::sleep(run.stall_for),
        }
        self.process.process(&tuple, out);
        out.ack(tuple);
    }
}

impl<P: Process> Bolt<Piece> for Worker<P> {
    fn execute(&mut self, tuple: Tuple<Piece>, out: &mut BoltCollector<'_, Piece>) {
        let Attempt { line, number, .. } = &*tuple.attempt;
        if let Some(fault) = self.run.faults.draw(line.id, *number, tuple.number) {
            return self.fault(fault, tuple, out);
        }
        self.process.process(&tuple, out);
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
        self.process.finish(&self.run);
    }
}
