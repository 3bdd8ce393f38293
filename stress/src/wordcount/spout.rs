//! A spout: reads lines, issues a root for each, keeps what is in flight, and sends again what failed or
//! timed out.

use super::attempt::{Attempt, Books, End, Line};
use super::faults::Faults;
use super::files::{Files, Lines, Skip, Text};
use super::handle::Handle;
use super::stages::Job;
use super::Stats;
use crate::checks::Checks;
use crate::latency::Latency;
use crossbeam_channel::{Receiver, Sender};
use expiry::{AckTracker, Handler, Outcome, Reason, Root, RootId};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many lines travel together.
const TOGETHER: usize = 64;
/// How much text may be in flight, all spouts together, however long the lines are.
pub const PENDING_BYTES: usize = 64 << 20;
/// How long a spout with nothing to do sleeps at most.
const NAP: Duration = Duration::from_millis(100);

/// An outcome on its way to the spout that issued the root.
#[derive(Debug)]
pub struct Ended {
    outcome: Outcome,
    /// A clock reading from after the end, for timeouts.
    at: Option<Instant>,
}

/// The token of a root: which spout, which of its places, which tenant of the place.
pub fn owner(spout: usize, place: usize, tenant: u32) -> u64 {
    (spout as u64) << 56 | (place as u64) << 32 | u64::from(tenant)
}

/// Tells spouts what has become of their roots.
pub struct Desk {
    /// One channel for each spout, with room for as many outcomes as it may have in flight.
    pub spouts: Vec<Sender<Ended>>,
    /// Who is told that something is wrong.
    pub checks: Arc<Checks>,
}

impl Handler for Desk {
    fn outcome(&self, outcome: &Outcome) {
        let at = outcome.is_timed_out().then(Instant::now);
        let spout = (outcome.owner >> 56) as usize;
        // Never waits: the spout may be waiting for this very thread to take its next line.
        let ended = Ended {
            outcome: *outcome,
            at,
        };
        let sent = self.spouts.get(spout).map(|spout| spout.try_send(ended));
        self.checks
            .expect("one_outcome_each", matches!(sent, Some(Ok(()))), || {
                format!("more outcomes than roots in flight, or of nobody's: {outcome:?}")
            });
    }
}

/// What a spout has seen.
#[derive(Debug, Default)]
pub struct SpoutTally {
    /// Lines read.
    pub lines: u64,
    /// Of these, how many continue a line that was too long.
    pub cuts: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Roots issued.
    pub issued: u64,
    /// Outcomes of each kind.
    pub acked: u64,
    /// Failed.
    pub failed: u64,
    /// Timed out.
    pub timed_out: u64,
    /// The most attempts that a line needed.
    pub most_attempts: u64,
    /// From issue to success.
    pub latency: Latency,
    /// From when a timeout was due until it was seen.
    pub lateness: Latency,
}

struct Pending<'a> {
    attempt: Arc<Attempt<'a>>,
    root: Root,
}

/// A place for a root in flight, and how many it has had.
#[derive(Default)]
struct Place<'a> {
    tenant: u32,
    pending: Option<Pending<'a>>,
}

/// What all spouts share.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    /// The tracker.
    pub tracker: &'a AckTracker,
    /// Its timeout.
    pub timeout: Duration,
    /// How long to wait for the next outcome before giving up: longer than any root can take.
    pub patience: Duration,
    /// The input.
    pub files: &'a Files,
    /// Where attempts end.
    pub books: &'a Books,
    /// What happens to whom.
    pub faults: &'a Faults,
    /// Who is told that something is wrong.
    pub checks: &'a Checks,
    /// For the progress line.
    pub stats: &'a Stats,
}

/// A spout.
pub struct Spout<'a> {
    number: usize,
    shared: Shared<'a>,
    outcomes: Receiver<Ended>,
    out: Sender<Vec<Job<'a>>>,
    places: Vec<Place<'a>>,
    free: Vec<usize>,
    bytes: usize,
    most_bytes: usize,
    again: VecDeque<(Arc<Line>, u32)>,
    reading: Option<(usize, Lines<Text>)>,
    line: u64,
    exhausted: bool,
    tally: SpoutTally,
}

impl<'a> Spout<'a> {
    /// A spout that keeps at most `most` lines and `most_bytes` of text in flight.
    pub fn new(
        number: usize,
        shared: Shared<'a>,
        (outcomes, out): (Receiver<Ended>, Sender<Vec<Job<'a>>>),
        (most, most_bytes): (usize, usize),
    ) -> Self {
        Spout {
            number,
            shared,
            outcomes,
            out,
            places: (0..most).map(|_| Place::default()).collect(),
            free: (0..most).rev().collect(),
            bytes: 0,
            most_bytes,
            again: VecDeque::new(),
            reading: None,
            line: 0,
            exhausted: false,
            tally: SpoutTally::default(),
        }
    }

    /// Runs until every line has been acked.
    pub fn run(mut self) -> SpoutTally {
        let mut last = Instant::now();
        loop {
            while let Ok(ended) = self.outcomes.try_recv() {
                last = Instant::now();
                self.ended(&ended, last);
            }
            let jobs = self.fill();
            if !jobs.is_empty() {
                if self.out.send(jobs).is_err() {
                    self.shared
                        .checks
                        .violated("no_surprises", || "the split stage is gone".into());
                    return self.tally;
                }
                // Waiting for room in the pipeline is no waiting for outcomes.
                last = Instant::now();
            } else if self.free.len() == self.places.len()
                && self.exhausted
                && self.again.is_empty()
            {
                return self.tally;
            } else if let Ok(ended) = self.outcomes.recv_timeout(NAP) {
                last = Instant::now();
                self.ended(&ended, last);
            } else if last.elapsed() > self.shared.patience {
                // The books will name each line.
                let left = self.places.len() - self.free.len();
                self.shared.checks.violated("every_root_ended", || {
                    format!("{left} roots have no outcome long after their timeout")
                });
                return self.tally;
            }
        }
    }

    /// Issues roots for lines to be sent again and for new ones, as far as there is room.
    fn fill(&mut self) -> Vec<Job<'a>> {
        let mut jobs = Vec::new();
        while jobs.len() < TOGETHER && self.bytes < self.most_bytes && !self.free.is_empty() {
            let next = self
                .again
                .pop_front()
                .or_else(|| self.read().map(|line| (line, 0)));
            let Some((line, number)) = next else {
                break;
            };
            match self.issue(line, number) {
                Some(job) => jobs.push(job),
                None => break,
            }
        }
        jobs
    }

    fn issue(&mut self, line: Arc<Line>, number: u32) -> Option<Job<'a>> {
        let Shared {
            tracker,
            faults,
            checks,
            stats,
            books,
            ..
        } = self.shared;
        let place = self.free.pop()?;
        // A line of n bytes has at most half as many words, rounded up.
        let most_words = line.text.len().div_ceil(2) as u32;
        let raw = faults.duplicates(line.id, number, most_words);
        let owner = owner(self.number, place, self.places[place].tenant);
        let attempt = Arc::new(Attempt::new(line.clone(), number, books));
        match Handle::root(tracker, owner, raw) {
            Ok((handle, root)) => {
                self.tally.issued += 1;
                self.tally.most_attempts = self.tally.most_attempts.max(u64::from(number) + 1);
                self.bytes += line.text.len();
                stats.in_flight.fetch_add(1, Relaxed);
                stats.replays.fetch_add(u64::from(number > 0), Relaxed);
                self.places[place].pending = Some(Pending {
                    attempt: attempt.clone(),
                    root,
                });
                Some(Job { attempt, handle })
            }
            Err(error) => {
                checks.violated("no_surprises", || format!("a root was refused: {error}"));
                attempt.end(End::Unsuccessful);
                self.free.push(place);
                self.again.push_back((line, number));
                None
            }
        }
    }

    /// The next line of the input.
    fn read(&mut self) -> Option<Arc<Line>> {
        while !self.exhausted {
            let Some((number, lines)) = &mut self.reading else {
                self.reading = self.shared.files.next_text();
                self.exhausted = self.reading.is_none();
                self.line = 0;
                continue;
            };
            let before = lines.bytes;
            let next = lines.next_line();
            self.shared
                .stats
                .bytes
                .fetch_add(lines.bytes - before, Relaxed);
            if let Ok(Some(text)) = next {
                self.shared.stats.lines.fetch_add(1, Relaxed);
                self.tally.lines += 1;
                let id = (*number as u64) << 32 | self.line & 0xffff_ffff;
                self.line += 1;
                return Some(Arc::new(Line {
                    id,
                    text: text.into(),
                }));
            }
            let source = &self.shared.files.list[*number];
            source.read.store(lines.bytes, Relaxed);
            self.tally.bytes += lines.bytes;
            self.tally.cuts += lines.cuts;
            if let Err(error) = next {
                let why = format!("{error}, after {} bytes, which count", lines.bytes);
                self.shared.files.skip(&source.path, &Skip::Unreadable(why));
            }
            self.reading = None;
        }
        None
    }

    /// One of this spout's roots has ended, for all that the handler knows.
    fn ended(&mut self, ended: &Ended, now: Instant) {
        let Ended { outcome, at } = ended;
        let checks = self.shared.checks;
        let place = (outcome.owner >> 32 & 0xff_ffff) as usize;
        let tenant = outcome.owner as u32;
        let pending = match self.places.get_mut(place) {
            Some(place) if place.tenant == tenant => place.pending.take(),
            _ => None,
        };
        let Some(Pending { attempt, root }) = pending else {
            return checks.violated("one_outcome_each", || {
                format!("an outcome too many: {outcome:?}")
            });
        };
        checks.expect(
            "one_outcome_each",
            outcome.root == RootId::Issued(root),
            || format!("the outcome of another root came for {root:?}: {outcome:?}"),
        );
        self.places[place].tenant = tenant.wrapping_add(1);
        self.free.push(place);
        self.bytes -= attempt.line.text.len();
        let stats = self.shared.stats;
        stats.in_flight.fetch_sub(1, Relaxed);
        match outcome.reason {
            Reason::Acked => {
                self.tally.acked += 1;
                stats.acked.fetch_add(1, Relaxed);
                self.tally.latency.record(now - attempt.issued);
                return attempt.end(End::Acked);
            }
            Reason::Failed { .. } => {
                self.tally.failed += 1;
                stats.failed.fetch_add(1, Relaxed);
            }
            Reason::TimedOut { due, seen } => {
                self.tally.timed_out += 1;
                let took = at.unwrap_or(now) - attempt.issued;
                not_early(checks, (due, seen), took, self.shared.timeout);
                let late = seen.saturating_sub(due);
                self.tally.lateness.record(late);
                stats.timed_out.fetch_add(1, Relaxed);
                stats
                    .latest
                    .fetch_max(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Relaxed);
            }
            other => checks.violated("no_surprises", || format!("a root ended as {other:?}")),
        }
        attempt.end(End::Unsuccessful);
        self.again
            .push_back((attempt.line.clone(), attempt.number + 1));
    }
}

/// A timeout must not come before it is due, nor before the timeout has passed since before the issue.
fn not_early(
    checks: &Checks,
    (due, seen): (Duration, Duration),
    took: Duration,
    timeout: Duration,
) {
    checks.expect("none_early", seen >= due, || {
        format!("due {due:?}, seen {seen:?}")
    });
    checks.expect("none_early", took >= timeout, || {
        format!("a line timed out after {took:?}, before its timeout of {timeout:?}")
    });
}

#[cfg(test)]
#[path = "spout_tests.rs"]
mod tests;
