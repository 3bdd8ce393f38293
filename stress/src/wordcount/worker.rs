//! What the workers of both stages share: settling a tuple, with or without a fault.

use super::attempt::Attempt;
use super::faults::{Fault, Faults};
use super::handle::Handle;
use super::Stats;
use crate::checks::Checks;
use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use expiry::{Ack, AckError};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a worker has seen.
#[derive(Debug, Clone, Default)]
pub struct WorkerTally {
    /// Acks that completed their tree.
    pub completed: u64,
    /// Fails that took effect.
    pub failed: u64,
    /// Acks and fails that were refused because the tree had ended.
    pub refused: u64,
    /// Tuples lost.
    pub dropped: u64,
    /// Tuples failed, in effect or too late.
    pub fails: u64,
    /// Tuples acked twice.
    pub duplicated: u64,
    /// Tuples acked late.
    pub late: u64,
    /// Stalls.
    pub stalls: u64,
}

impl WorkerTally {
    /// Adds another worker's.
    pub fn add(&mut self, other: &WorkerTally) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.fails += other.fails;
        self.duplicated += other.duplicated;
        self.late += other.late;
        self.stalls += other.stalls;
    }
}

/// A tuple whose ack is to be late.
struct Late<'a> {
    due: Instant,
    attempt: Arc<Attempt<'a>>,
    handle: Handle<'a>,
}

/// A worker's tools.
pub struct Worker<'a> {
    /// What it has seen.
    pub tally: WorkerTally,
    /// What happens to whom.
    pub faults: &'a Faults,
    checks: &'a Checks,
    stats: &'a Stats,
    /// Not in order of `due`, but nearly; each is acked at its own `due` or later.
    late: VecDeque<Late<'a>>,
    /// From when on after its issue a line has surely timed out, unless the reaper is slow.
    late_after: Duration,
    stall_for: Duration,
}

/// What a worker's input had to say.
pub enum Input<T> {
    /// Work.
    Work(T),
    /// Nothing just now.
    Nothing,
    /// Nothing any more.
    Closed,
}

impl<'a> Worker<'a> {
    /// A worker that acks late tuples `late_after` their issue.
    pub fn new(
        (faults, checks, stats): (&'a Faults, &'a Checks, &'a Stats),
        late_after: Duration,
        stall_for: Duration,
    ) -> Self {
        Worker {
            tally: WorkerTally::default(),
            faults,
            checks,
            stats,
            late: VecDeque::new(),
            late_after,
            stall_for,
        }
    }

    /// The next piece of work. Waits for it if `wait`, but not past the next late ack.
    pub fn next<T>(&mut self, input: &Receiver<T>, wait: bool) -> Input<T> {
        self.ack_late();
        match input.try_recv() {
            Ok(work) => return Input::Work(work),
            Err(TryRecvError::Disconnected) => return Input::Closed,
            Err(TryRecvError::Empty) if !wait => return Input::Nothing,
            Err(TryRecvError::Empty) => {}
        }
        let received = match self.late.front() {
            None => input.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(late) => input.recv_deadline(late.due),
        };
        match received {
            Ok(work) => Input::Work(work),
            Err(RecvTimeoutError::Timeout) => Input::Nothing,
            Err(RecvTimeoutError::Disconnected) => Input::Closed,
        }
    }

    /// Sends the late acks that are due.
    fn ack_late(&mut self) {
        while let Some(late) = self.late.front() {
            if Instant::now() < late.due {
                return;
            }
            if let Some(late) = self.late.pop_front() {
                let ended = late.attempt.ended();
                let acked = late.handle.ack();
                self.checks
                    .expect("late_refused", !(ended && acked.is_ok()), || {
                        format!(
                            "line {:#x} had ended, and yet a late ack got {acked:?}",
                            late.attempt.line.id
                        )
                    });
                self.acked(acked);
            }
        }
    }

    /// Waits for the late acks that are not due yet, and sends them.
    pub fn finish(mut self) -> WorkerTally {
        while let Some(late) = self.late.front() {
            std::thread::sleep(late.due.saturating_duration_since(Instant::now()));
            self.ack_late();
        }
        self.tally
    }

    /// Processes a tuple by `process`, unless a fault prevents it, and settles it. `process` also gets the
    /// handle, to derive children from.
    #[inline]
    pub fn settle(
        &mut self,
        attempt: &Arc<Attempt<'a>>,
        word: u32,
        mut handle: Handle<'a>,
        mut process: impl FnMut(&mut Handle<'a>),
    ) {
        let fault = self.faults.draw(attempt.line.id, attempt.number, word);
        let Some(fault) = fault else {
            process(&mut handle);
            let acked = handle.ack();
            return self.acked(acked);
        };
        match fault {
            Fault::Drop => {
                self.tally.dropped += 1;
                drop(handle);
            }
            Fault::Fail => {
                self.tally.fails += 1;
                match handle.fail() {
                    Ok(()) => self.tally.failed += 1,
                    Err(error) => self.refused(error),
                }
            }
            Fault::Duplicate => {
                self.tally.duplicated += 1;
                process(&mut handle);
                if word != super::faults::LINE {
                    process(&mut handle);
                }
                handle
                    .ack_twice()
                    .into_iter()
                    .flatten()
                    .for_each(|acked| self.acked(acked));
            }
            Fault::Late => {
                self.tally.late += 1;
                process(&mut handle);
                self.late.push_back(Late {
                    due: attempt.issued + self.late_after,
                    attempt: attempt.clone(),
                    handle,
                });
            }
            Fault::Stall => {
                self.tally.stalls += 1;
                self.stats.stalls.fetch_add(1, Relaxed);
                std::thread::sleep(self.stall_for);
                process(&mut handle);
                let acked = handle.ack();
                self.acked(acked);
            }
        }
    }

    #[inline]
    fn acked(&mut self, acked: Result<Ack, AckError>) {
        match acked {
            Ok(Ack::Pending) => {}
            Ok(Ack::Completed) => self.tally.completed += 1,
            Ok(Ack::Held) => self.checks.violated("no_surprises", || {
                "an issued root's ack was held, as if it were a chosen one's".into()
            }),
            Err(error) => self.refused(error),
        }
    }

    fn refused(&mut self, error: AckError) {
        match error {
            AckError::NotLive => self.tally.refused += 1,
            other => self.checks.violated("no_surprises", || {
                format!("an ack or fail was refused: {other}")
            }),
        }
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
