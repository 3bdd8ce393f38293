//! The spout: reads lines, and keeps an attempt at each that is pending, until it is told how that has ended.

use super::attempt::{Attempt, End, Line, Piece};
use super::files::{Lines, Skip, Text};
use super::{held, Run};
use crate::checks::Checks;
use crate::latency::{nanos, Latency};
use expiry_topology::{EmitError, Failure, Next, Spout, SpoutCollector};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many lines are emitted together.
const TOGETHER: usize = 64;

/// What a spout has seen, or all of them.
#[derive(Debug, Default)]
pub struct SpoutTally {
    /// Lines read.
    pub lines: u64,
    /// Of these, how many continue a line that was too long.
    pub cuts: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Attempts begun.
    pub issued: u64,
    /// Outcomes of each kind.
    pub acked: u64,
    /// Failed.
    pub failed: u64,
    /// Timed out.
    pub timed_out: u64,
    /// The most attempts that a line needed.
    pub most_attempts: u64,
    /// Of attempts that succeeded.
    pub latency: Latency,
    /// From when a timeout was due until it was seen.
    pub lateness: Latency,
}

impl SpoutTally {
    /// Adds another one's.
    fn add(&mut self, other: &Self) {
        self.lines += other.lines;
        self.cuts += other.cuts;
        self.bytes += other.bytes;
        self.issued += other.issued;
        self.acked += other.acked;
        self.failed += other.failed;
        self.timed_out += other.timed_out;
        self.most_attempts = self.most_attempts.max(other.most_attempts);
        self.latency.add(&other.latency);
        self.lateness.add(&other.lateness);
    }
}

/// A place for a pending line, and how many it has had.
#[derive(Default)]
struct Place {
    tenant: u32,
    attempt: Option<Arc<Attempt>>,
}

/// A spout.
pub struct Reader {
    run: Arc<Run>,
    /// A clock reading from after the tracker was built, to whose clock that is zero.
    opened: Instant,
    places: Vec<Place>,
    free: Vec<usize>,
    /// Text that is pending.
    bytes: usize,
    reading: Option<(usize, Lines<Text>)>,
    line: u64,
    /// The line that was read last.
    text: Vec<u8>,
    exhausted: bool,
    /// A line that was not emitted, because something is wrong.
    refused: Option<Line>,
    tally: SpoutTally,
}

impl Reader {
    /// A spout.
    pub fn new(run: &Arc<Run>) -> Self {
        Reader {
            opened: Instant::now(),
            places: (0..run.max_pending).map(|_| Place::default()).collect(),
            free: (0..run.max_pending).rev().collect(),
            run: run.clone(),
            bytes: 0,
            reading: None,
            line: 0,
            text: Vec::new(),
            exhausted: false,
            refused: None,
            tally: SpoutTally::default(),
        }
    }

    /// The next line of the input.
    fn read(&mut self) -> Option<Line> {
        while !self.exhausted {
            let Some((number, lines)) = &mut self.reading else {
                self.reading = self.run.files.next_text();
                self.exhausted = self.reading.is_none();
                self.line = 0;
                continue;
            };
            let before = lines.bytes;
            let next = lines.next_line(&mut self.text);
            let more = lines.bytes - before;
            self.run.stats.bytes.fetch_add(more, Relaxed);
            if let Ok(true) = next {
                self.tally.lines += 1;
                let id = (*number as u64) << 32 | self.line & 0xffff_ffff;
                self.line += 1;
                let text = self.text[..].into();
                return Some(Line { id, text });
            }
            let source = &self.run.files.list[*number];
            source.read.store(lines.bytes, Relaxed);
            self.tally.bytes += lines.bytes;
            self.tally.cuts += lines.cuts;
            if let Err(error) = next {
                let why = format!("{error}, after {} bytes, which count", lines.bytes);
                self.run.files.skip(&source.path, &Skip::Unreadable(why));
            }
            self.reading = None;
        }
        None
    }

    /// Begins an attempt at the line of a place.
    fn begin(&mut self, place: usize, line: Line, number: u32) -> Piece {
        let attempt = Arc::new(Attempt::new(line, number, self.run.books.clone()));
        self.places[place].attempt = Some(attempt.clone());
        self.tally.issued += 1;
        self.tally.most_attempts = self.tally.most_attempts.max(u64::from(number) + 1);
        Piece::line(attempt)
    }

    /// Emits a line. False if that was refused, which it should not be.
    fn emit(&mut self, line: Line, out: &mut SpoutCollector<'_, Piece>) -> bool {
        let Some(place) = self.free.pop() else {
            self.refused = Some(line);
            return false;
        };
        self.bytes += line.text.len();
        let id = (place as u64) << 32 | u64::from(self.places[place].tenant);
        let piece = self.begin(place, line, 0);
        let Err(EmitError { message, why, .. }) = out.emit(piece, id) else {
            return true;
        };
        self.run.checks.violated("no_surprises", || format!("a line was refused: {why}"));
        self.tally.issued -= 1;
        let Some(attempt) = self.take(id) else {
            return false;
        };
        attempt.end(End::Unsuccessful);
        self.release(place, &attempt);
        self.refused = Some(message.attempt.line.clone());
        false
    }

    /// Which attempt has ended, for all that the topology knows.
    fn take(&mut self, id: u64) -> Option<Arc<Attempt>> {
        let place = self.places.get_mut(place(id));
        #[allow(clippy::cast_possible_truncation)] // its lower half
        let place = place.filter(|place| place.tenant == id as u32);
        let attempt = place.and_then(|place| place.attempt.take());
        self.run.checks.expect("one_outcome_each", attempt.is_some(), || {
            format!("an outcome too many, or of nobody's: {id:#x}")
        });
        attempt
    }

    /// There is no other attempt.
    fn release(&mut self, at: usize, last: &Attempt) {
        let place = &mut self.places[at];
        place.tenant = place.tenant.wrapping_add(1);
        self.free.push(at);
        self.bytes -= last.line.text.len();
    }
}

fn place(id: u64) -> usize {
    (id >> 32) as usize
}

impl Spout<Piece> for Reader {
    fn next(&mut self, out: &mut SpoutCollector<'_, Piece>) -> Next {
        for _ in 0..TOGETHER {
            let (room, free) = (out.room(), self.free.len());
            let checks = &self.run.checks;
            checks.expect("max_pending_exact", room == free, || {
                format!("the topology has room for {room} lines, where {free} may be pending")
            });
            if room == 0 {
                return Next::Ready;
            }
            if self.bytes >= self.run.max_bytes {
                return Next::Idle;
            }
            let Some(line) = self.refused.take().or_else(|| self.read()) else {
                return Next::Done;
            };
            if !self.emit(line, out) {
                return Next::Idle;
            }
        }
        Next::Ready
    }

    fn ack(&mut self, id: u64) {
        let Some(attempt) = self.take(id) else {
            return;
        };
        self.tally.acked += 1;
        self.tally.latency.record(attempt.issued.elapsed());
        attempt.end(End::Acked);
        self.release(place(id), &attempt);
    }

    fn replay(&mut self, &id: &u64, failure: &Failure, message: &mut Piece) {
        let Some(attempt) = self.take(id) else {
            return;
        };
        let run = &self.run;
        match *failure {
            Failure::Failed { .. } => self.tally.failed += 1,
            Failure::TimedOut { due, seen } => {
                self.tally.timed_out += 1;
                let took = attempt.issued.elapsed();
                let began = attempt.issued - self.opened;
                not_early(&run.checks, (due, seen), (began, took), run.timeout);
                let late = seen.saturating_sub(due);
                self.tally.lateness.record(late);
                run.stats.latest.fetch_max(nanos(late), Relaxed);
            }
            _ => run.checks.violated("no_surprises", || format!("a root ended so: {failure}")),
        }
        attempt.end(End::Unsuccessful);
        *message = self.begin(place(id), attempt.line.clone(), attempt.number + 1);
    }

    fn fail(&mut self, id: u64, failure: &Failure) {
        let checks = &self.run.checks;
        checks.violated("no_surprises", || format!("a line was given up: {id:#x}, {failure:?}"));
    }

    fn close(&mut self) {
        held(&self.run.spouts).add(&std::mem::take(&mut self.tally));
    }
}

/// A timeout must not come before it is due, nor before the timeout has passed since before the issue: by the tracker's clock, to which
/// the attempt `began` so long after its beginning or more, and by another.
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

#[cfg(test)]
#[path = "spout_tests.rs"]
mod tests;
