//! A thread of the load: it keeps its places full, follows each root's plan, and judges each life
//! at its end.

mod acts;

use super::law::Promise;
use super::ledger::Ledger;
use super::ops::{Ops, ToAck, ToIssue};
use super::plan::{Plan, Planner};
use super::tally::Tally;
use crate::checks::Checks;
use crate::interrupt;
use crate::latency::{Latency, Recorder};
use crate::options::{Ack as Options, Ids, Order};
use crate::pace::Pace;
use crossbeam_channel::{Receiver, Sender};
use expiry::{Ack, AckError};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::Rng;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many acks are handed to another thread together.
const HANDED: usize = 64;
/// How many places a step looks at where operations are single.
const STEP: usize = 16;
/// A thread with nothing to do sleeps after so many steps.
const REST: u32 = 64;

/// The phase of a place of this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// No root.
    #[default]
    Free,
    /// A root whose plan has not been acted out.
    Live,
    /// A root whose end is to come.
    Waiting,
}

/// What this thread knows of a root. The ledger has the rest.
#[derive(Debug, Clone, Copy, Default)]
struct Tenant {
    root: u64,
    /// The edges are made from it.
    base: u64,
    /// Clock readings from before and after the issue or the last reset.
    before: u64,
    after: u64,
    /// Clock readings from before and after the issue (and the early ack before it) only.
    prepared: u64,
    issued: u64,
    /// When it was due to begin, in an open loop.
    due: u64,
    number: u32,
    /// The last step that looked at this place.
    step: u32,
    plan: Plan,
    phase: Phase,
    fails_done: u8,
    /// Whether its first edge was acked before its init.
    was_early: bool,
}

#[derive(Clone, Copy)]
pub struct Shared<'a> {
    pub options: &'a Options,
    pub ledger: &'a Ledger,
    /// The checks that receive violations.
    pub checks: &'a Checks,
    pub promise: Promise,
    /// Threads whose places are not all free yet.
    pub busy: &'a AtomicUsize,
    /// When to stop issuing, and when to give up, in the ledger's time.
    pub until: (u64, u64),
}

pub struct Worker<'a> {
    shared: Shared<'a>,
    ops: Ops<'a>,
    planner: Planner,
    rng: SmallRng,
    /// The schedule of the roots' beginnings, and a recorder of their delays; `None` in a closed
    /// loop.
    pace: Option<(Pace, Recorder)>,
    /// The number of its first place in the ledger.
    first: usize,
    tenants: Vec<Tenant>,
    /// How many places are not free.
    occupied: usize,
    cursor: usize,
    step: u32,
    width: usize,
    outbox: Vec<ToAck>,
    /// The channels to the next thread, and from the one before. With one thread no ack is handed
    /// off.
    to: Sender<Vec<ToAck>>,
    from: Receiver<Vec<ToAck>>,
    tally: Tally,
    lateness: Latency,
    picked: Vec<usize>,
    acks: Vec<ToAck>,
    issues: Vec<ToIssue>,
}

pub struct Brought {
    pub tally: Tally,
    /// The part of it from before the time to stop.
    pub during: Tally,
    /// When that was.
    pub until: u64,
    /// How late timeouts were, after the root's timeout had passed since its issue.
    pub lateness: Latency,
}

impl<'a> Worker<'a> {
    /// A thread whose places are `places` from `first` on.
    pub fn new(
        shared: Shared<'a>,
        ops: Ops<'a>,
        (planner, rng): (Planner, SmallRng),
        pace: Option<(Pace, Recorder)>,
        (first, places): (usize, usize),
        batch: usize,
        (to, from): (Sender<Vec<ToAck>>, Receiver<Vec<ToAck>>),
    ) -> Self {
        Worker {
            shared,
            ops,
            planner,
            rng,
            pace,
            first,
            tenants: vec![Tenant::default(); places],
            occupied: 0,
            cursor: 0,
            step: 0,
            width: batch.max(STEP).min(places),
            outbox: Vec::new(),
            to,
            from,
            tally: Tally::default(),
            lateness: Latency::new(),
            picked: Vec::new(),
            acks: Vec::new(),
            issues: Vec::new(),
        }
    }

    /// Keeps up the load until it is time to stop, then waits for what is in flight.
    pub fn run(mut self) -> Brought {
        while self.shared.ledger.now() < self.shared.until.0 && !interrupt::asked() {
            self.step(true);
        }
        let during = self.tally.clone();
        let until = self.shared.ledger.now();
        while self.occupied > 0 {
            if self.shared.ledger.now() > self.shared.until.1 {
                self.give_up();
                break;
            }
            self.step(false);
        }
        self.send_outbox();
        // Others may still hand something to this thread.
        self.shared.busy.fetch_sub(1, Ordering::AcqRel);
        while self.shared.busy.load(Ordering::Acquire) > 0 || !self.from.is_empty() {
            if !self.serve() {
                std::thread::yield_now();
            }
        }
        Brought { tally: self.tally, during, until, lateness: self.lateness }
    }

    /// Looks at some places: follows plans, judges roots that have ended, fills free places.
    fn step(&mut self, issue: bool) {
        self.step = self.step.wrapping_add(1);
        // At the end, the worker has to look at every place.
        self.pick(issue && self.shared.options.order == Order::Shuffled);
        self.acks.clear();
        let picked = std::mem::take(&mut self.picked);
        for &at in &picked {
            match self.tenants[at].phase {
                Phase::Live => self.act(at),
                Phase::Waiting => self.renew(at),
                Phase::Free => {}
            }
        }
        let mut idle = self.acks.is_empty();
        if self.shared.options.order == Order::Shuffled {
            self.acks.shuffle(&mut self.rng);
        }
        self.send_acks();
        let before = self.shared.ledger.now();
        self.issues.clear();
        for &at in &picked {
            match self.tenants[at].phase {
                Phase::Live => self.fail(at),
                Phase::Waiting => {}
                Phase::Free => {
                    if issue {
                        self.begin(at, before);
                    }
                    continue;
                }
            }
            if let Some(entry) = self.ended(at) {
                self.close(at, &entry);
                idle = false;
                if issue {
                    self.begin(at, before);
                }
            }
        }
        idle &= self.issues.is_empty();
        self.picked = picked;
        self.send_issues();
        idle &= !self.serve();
        if idle {
            self.send_outbox();
        }
        if idle && self.pace.is_some() {
            // The thread must not be late for the next root that is due.
            std::thread::yield_now();
        } else if idle && self.step.is_multiple_of(REST) {
            // Everything in sight waits for its timeout.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Gives a free place to a new root, if one is due.
    fn begin(&mut self, at: usize, now: u64) {
        let due = match &mut self.pace {
            Some((pace, _)) => pace.due(now),
            None => Some(now),
        };
        if let Some(due) = due {
            self.prepare(at, now);
            self.tenants[at].due = due;
        }
    }

    /// Picks places to look at: at random, or the next ones.
    fn pick(&mut self, random: bool) {
        self.picked.clear();
        for _ in 0..self.width {
            let at = if random {
                self.rng.random_range(0..self.tenants.len())
            } else {
                self.cursor = (self.cursor + 1) % self.tenants.len();
                self.cursor
            };
            let last = &mut self.tenants[at].step;
            if std::mem::replace(last, self.step) != self.step {
                self.picked.push(at);
            }
        }
    }

    fn send_acks(&mut self) {
        let Shared { options: &Options { ids, .. }, ledger, checks, .. } = self.shared;
        let (tally, acks) = (&mut self.tally, &self.acks);
        self.ops.ack(acks, |ack, done| acked((tally, ledger, checks, ids), ack, done));
    }

    /// Hands over the acks for the next thread, or does them itself if that one has enough to do.
    fn send_outbox(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        if let Err(refused) = self.to.try_send(std::mem::take(&mut self.outbox)) {
            self.ack_for_others(&refused.into_inner());
        }
    }

    /// Does the acks that the thread before has handed over. Returns whether there were any.
    fn serve(&mut self) -> bool {
        let Ok(acks) = self.from.try_recv() else {
            return false;
        };
        self.ack_for_others(&acks);
        true
    }

    fn ack_for_others(&mut self, acks: &[ToAck]) {
        let Shared { options: &Options { ids, .. }, ledger, checks, .. } = self.shared;
        let tally = &mut self.tally;
        self.ops.ack(acks, |ack, done| {
            acked((tally, ledger, checks, ids), ack, done);
            // Release: what has been noted comes before.
            ledger.place(ack.place as usize).elsewhere.fetch_sub(1, Ordering::Release);
        });
    }

    /// Gives up the roots that have no outcome by now.
    fn give_up(&mut self) {
        for tenant in self.tenants.iter().filter(|tenant| tenant.phase != Phase::Free) {
            self.shared.checks.violated("every_root_ended", || {
                format!(
                    "{:#x} has no outcome long after its timeout: {:?}",
                    tenant.root, tenant.plan
                )
            });
        }
    }
}

/// Notes the result of an ack, in the tally and in the root's place.
#[inline]
fn acked(
    (tally, ledger, checks, ids): (&mut Tally, &Ledger, &Checks, Ids),
    ack: &ToAck,
    done: Result<Ack, AckError>,
) {
    tally.acks += 1;
    let place = ledger.place(ack.place as usize);
    match done {
        Ok(Ack::Pending) => {
            place.accepted.fetch_xor(ack.xor, Ordering::Relaxed);
        }
        Ok(Ack::Completed) => {
            tally.completed += 1;
            place.accepted.fetch_xor(ack.xor, Ordering::Relaxed);
            place.completed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Ack::Held) if ids == Ids::Chosen => tally.held_late += 1,
        Ok(Ack::Held) => {
            checks.violated("late_harmless", || "an issued root's ack was held".into())
        }
        Err(error) => refused((tally, checks), error),
    }
}

/// Notes why an operation was refused.
fn refused((tally, checks): (&mut Tally, &Checks), error: AckError) {
    match error {
        AckError::NotLive => tally.refused += 1,
        AckError::EarlyFull => tally.early_full += 1,
        other => checks.violated("no_surprises", || format!("an operation was refused: {other}")),
    }
}
