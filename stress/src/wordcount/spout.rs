//! The spout reads lines, and keeps each pending attempt until it receives the outcome.

use super::attempt::{Attempt, Line, Piece};
use super::{held, Run};
use crate::checks::Checks;
use crate::counts::counts;
use crate::latency::Latency;
use expiry_topology::{Failure, Next, Spout, SpoutCollector};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many lines are emitted together.
const TOGETHER: usize = 64;

counts! {
    /// What a spout has counted, under the names that the report has for it.
    Counted {
        lines,
        bytes,
        /// Attempts begun.
        roots,
        acked,
        /// Attempts.
        failed,
        /// Attempts.
        timed_out,
    }
}

/// What a spout has seen, or all of them.
#[derive(Debug, Default)]
pub struct SpoutTally {
    pub counts: Counted,
    /// How long the attempts took that succeeded: one for each line.
    pub latency: Latency,
    /// Time from when a timeout was due until it was seen.
    pub lateness: Latency,
}

impl SpoutTally {
    /// Adds another one's.
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.latency.add(&other.latency);
        self.lateness.add(&other.lateness);
    }
}

/// A file that is being read, and the place and the number of its next line.
struct Reading {
    file: usize,
    text: String,
    at: usize,
    line: u64,
}

/// A spout.
pub struct Reader {
    run: Arc<Run>,
    /// A clock reading from after the tracker was built, to whose clock that is zero.
    opened: Instant,
    /// Attempts by the ids of their lines, which are not used again.
    pending: HashMap<u64, Arc<Attempt>, foldhash::fast::RandomState>,
    next_id: u64,
    /// Text that is pending.
    bytes: usize,
    /// The file that is being read.
    reading: Option<Reading>,
    tally: SpoutTally,
}

impl Reader {
    pub fn new(run: &Arc<Run>) -> Self {
        Reader {
            run: run.clone(),
            opened: Instant::now(),
            pending: HashMap::default(),
            next_id: 0,
            bytes: 0,
            reading: None,
            tally: SpoutTally::default(),
        }
    }

    /// The next line of the input, with its end.
    fn read(&mut self) -> Option<Line> {
        loop {
            if self.reading.is_none() {
                let (file, text) = self.run.files.next_text()?;
                self.reading = Some(Reading { file, text, at: 0, line: 0 });
            }
            let reading = self.reading.as_mut()?;
            let Some(line) = reading.text[reading.at..].split_inclusive('\n').next() else {
                self.reading = None;
                continue;
            };
            let id = (reading.file as u64) << 32 | reading.line & 0xffff_ffff;
            (reading.at, reading.line) = (reading.at + line.len(), reading.line + 1);
            self.run.stats.bytes.fetch_add(line.len() as u64, Relaxed);
            self.tally.counts.bytes += line.len() as u64;
            self.tally.counts.lines += 1;
            return Some(Line { id, text: line.as_bytes().into() });
        }
    }

    /// Begins an attempt at a line.
    fn begin(&mut self, id: u64, line: Line, number: u32) -> Piece {
        let attempt = Arc::new(Attempt::new(line, number, self.run.books.clone()));
        self.pending.insert(id, attempt.clone());
        self.tally.counts.roots += 1;
        Piece::line(attempt)
    }

    /// Emits a line. False if that was refused, which it should not be.
    fn emit(&mut self, line: Line, out: &mut SpoutCollector<'_, Piece>) -> bool {
        let id = self.next_id;
        self.next_id += 1;
        self.bytes += line.text.len();
        let piece = self.begin(id, line, 0);
        if out.emit(piece, id).is_ok() {
            return true;
        }
        self.run.checks.violated("no_surprises", || "a line was refused".into());
        self.tally.counts.roots -= 1;
        self.end(id, false);
        false
    }

    /// An attempt has ended, for all that the topology knows: which one.
    fn take(&mut self, id: u64) -> Option<Arc<Attempt>> {
        let attempt = self.pending.remove(&id);
        self.run.checks.expect("one_outcome_each", attempt.is_some(), || {
            format!("an outcome too many, or of nobody's: {id:#x}")
        });
        attempt
    }

    /// An attempt has ended, and there is no other one.
    fn end(&mut self, id: u64, acked: bool) -> Option<Arc<Attempt>> {
        let attempt = self.take(id)?;
        attempt.end(acked);
        self.bytes -= attempt.line.text.len();
        Some(attempt)
    }
}

impl Spout<Piece> for Reader {
    fn next(&mut self, out: &mut SpoutCollector<'_, Piece>) -> Next {
        for _ in 0..TOGETHER {
            let (room, pending, most) = (out.room(), self.pending.len(), self.run.max_pending);
            self.run.checks.expect("max_pending_exact", room + pending == most, || {
                format!("the topology has room for {room} lines beside {pending} of {most}")
            });
            if room == 0 {
                return Next::Ready;
            }
            if self.bytes >= self.run.max_bytes {
                return Next::Idle;
            }
            let Some(line) = self.read() else {
                return Next::Done;
            };
            if !self.emit(line, out) {
                return Next::Idle;
            }
        }
        Next::Ready
    }

    fn ack(&mut self, id: u64) {
        if let Some(attempt) = self.end(id, true) {
            self.tally.counts.acked += 1;
            self.tally.latency.record(attempt.issued.elapsed());
        }
    }

    fn replay(&mut self, &id: &u64, failure: &Failure, message: &mut Piece) {
        let Some(attempt) = self.take(id) else {
            return;
        };
        let run = &self.run;
        match *failure {
            Failure::Failed { .. } => self.tally.counts.failed += 1,
            Failure::TimedOut { due, seen } => {
                self.tally.counts.timed_out += 1;
                let took = attempt.issued.elapsed();
                let began = attempt.issued - self.opened;
                not_early(&run.checks, (due, seen), (began, took), run.timeout);
                let late = seen.saturating_sub(due);
                self.tally.lateness.record(late);
            }
            _ => run.checks.violated("no_surprises", || format!("a root ended so: {failure}")),
        }
        attempt.end(false);
        *message = self.begin(id, attempt.line.clone(), attempt.number + 1);
    }

    fn fail(&mut self, id: u64, failure: &Failure) {
        let checks = &self.run.checks;
        checks.violated("no_surprises", || format!("a line was given up: {id:#x}, {failure:?}"));
    }

    fn close(&mut self) {
        held(&self.run.spouts).add(&std::mem::take(&mut self.tally));
    }
}

/// A timeout must not come before it is due, nor before the timeout has passed since before the
/// issue. This checks two clocks: the tracker's, to which the attempt `began` so long after its
/// beginning or more, and another one.
fn not_early(
    checks: &Checks,
    (due, seen): (Duration, Duration),
    (began, took): (Duration, Duration),
    timeout: Duration,
) {
    checks.expect("none_early", seen >= due, || format!("due {due:?}, seen {seen:?}"));
    checks.expect("none_early", seen >= began + timeout, || {
        format!("a line emitted at {began:?} or later timed out at {seen:?}, before its timeout of {timeout:?}")
    });
    checks.expect("none_early", took >= timeout, || {
        format!("a line timed out after {took:?}, before its timeout of {timeout:?}")
    });
}
