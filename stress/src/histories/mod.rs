//! Scenario `histories`: what real threads do to few keys at full speed, and whether it is linearizable.
//!
//! `record` runs a round and notes calls, `check` is the checker, `map`, `queue`, `acks`, `roots` and `sessions` are the faces with their
//! sequential models, `due` is what these know of deadlines, `show` prints what has no explanation. Memory is proportional to
//! the operations of a round.

mod acks;
mod check;
mod due;
mod map;
mod queue;
mod record;
mod roots;
mod sessions;
mod show;

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::live::{Gauge, Live};
use crate::options::{Histories, On};
use crate::report::Report;
use check::{Call, Model, Size};
use expiry::BuildError;
use record::{history, record, Recorded, Setting, Subject, Time};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const NAMES: [Check; 10] = [
    map::Load::CHECK,
    queue::Load::<u64>::CHECK,
    acks::Load::CHECK,
    roots::Load::CHECK,
    sessions::Load::CHECK,
    "nothing_left",
    "metrics_add_up",
    "capacity_whole",
    "clock_in_order",
    "no_surprises",
];

/// The entries there may be at once where the capacity is bounded: more than there ever are under a few keys.
const CAPACITY: usize = 1024;

/// Rounds of all kinds: each is a face and whether its capacity is bounded.
const KINDS: usize = 12;

/// Runs the scenario.
///
/// # Errors
///
/// If an object cannot be built.
pub fn run(options: &Histories) -> Result<Report, Error> {
    let mut run = Run { options, checks: Checks::new(&NAMES), tally: Tally::default() };
    let in_order = Time::new().is_in_order();
    run.checks.expect("clock_in_order", in_order, || {
        "a thread's reading was before one that it had heard of".into()
    });
    let length = Duration::from_secs_f64(options.seconds);
    let began = Instant::now();
    let mut live = Live::new("histories", Some(length.as_millis() as u64));
    let mut number = 0;
    // Each kind once, however short the time.
    while (number < KINDS as u64 || began.elapsed() < length) && !interrupt::asked() {
        if run.round(number)? {
            let tally = &run.tally;
            live.show(began.elapsed().as_millis() as u64, || Gauge {
                done: tally.operations,
                violations: run.checks.violations(),
                text: format!(
                    "{} rounds, {} histories checked, {} without an explanation",
                    tally.rounds,
                    tally.histories,
                    run.checks.violations(),
                ),
                ..Gauge::default()
            });
        }
        number += 1;
    }
    let series = live.finish();
    let mut report = run.report();
    report.series = series;
    Ok(report)
}

struct Run<'a> {
    options: &'a Histories,
    checks: Checks,
    tally: Tally,
}

/// What has been counted, and measured.
#[derive(Default)]
struct Tally {
    rounds: u64,
    histories: u64,
    operations: u64,
    polls: u64,
    widest: usize,
    load: Duration,
    checking: Duration,
}

impl Run<'_> {
    /// A round of the kind that this number stands for. False if that was not asked for.
    fn round(&mut self, number: u64) -> Result<bool, Error> {
        let time = Time::new();
        let asked = |on| self.options.on.is_none_or(|only| only == on);
        let (threads, operations) = (self.options.threads, self.options.operations);
        let share = (self.options.keys, threads, operations);
        let bounded = number / 6 % 2 == 1;
        // Where nobody polls for a while all that are issued may be there at once.
        let issued = usize::from(threads) * operations as usize;
        let capacity = if number % 6 >= 4 { issued } else { CAPACITY };
        let capacity = bounded.then_some(capacity);
        let done = match number % 6 {
            0 if asked(On::Map) => {
                self.load((&time, number, capacity), map::Load::new(&time, capacity))
            }
            1 if asked(On::Queue) => {
                self.load((&time, number, capacity), queue::Load::<u64>::new(&time, capacity))
            }
            2 if asked(On::Queue) => {
                self.load((&time, number, capacity), queue::Load::<String>::new(&time, capacity))
            }
            3 if asked(On::Acks) => {
                self.load((&time, number, capacity), acks::Load::new(&time, capacity))
            }
            4 if asked(On::Roots) => {
                self.load((&time, number, capacity), roots::Load::new(&time, capacity, share))
            }
            5 if asked(On::Sessions) => {
                let keys = self.options.keys;
                self.load((&time, number, capacity), sessions::Load::new(&time, capacity, keys))
            }
            _ => return Ok(false),
        };
        done.map(|()| true)
    }

    /// Records a round on an object, and checks it.
    fn load<S: Subject>(
        &mut self,
        (time, number, capacity): (&Time, u64, Option<usize>),
        subject: Result<S, BuildError>,
    ) -> Result<(), Error> {
        let subject = subject?;
        let setting = Setting {
            threads: self.options.threads,
            keys: self.options.keys,
            operations: self.options.operations,
        };
        let seed = self.options.seed.wrapping_mul(1 << 32).wrapping_add(number);
        let recorded = record(&subject, setting, time, seed, &self.checks);
        let what = "entries after all time has passed";
        self.checks.equal("nothing_left", what, subject.left(), 0);
        let what = "ends counted, of those that were told";
        self.checks.equal("metrics_add_up", what, subject.ended(), time.told());
        if let Some(capacity) = capacity {
            let what = "entries that fit after all have ended";
            self.checks.equal("capacity_whole", what, subject.fill(), capacity as u64);
        }
        let began = Instant::now();
        let (histories, size) = explain::<S>(&recorded, &self.checks, number);
        let tally = &mut self.tally;
        tally.checking += began.elapsed();
        tally.load += recorded.took;
        tally.rounds += 1;
        tally.histories += histories as u64;
        tally.operations += recorded.calls.len() as u64;
        tally.polls += recorded.polls.len() as u64;
        tally.widest = tally.widest.max(size.widest);
        Ok(())
    }

    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    fn report(self) -> Report {
        let tally = &self.tally;
        let mut report = Report::new(
            "histories",
            ("operations", tally.operations),
            tally.load,
            self.options.seed,
            &self.checks,
            self.options,
        );
        report.counts.extend([
            ("rounds", tally.rounds),
            ("histories", tally.histories),
            ("operations", tally.operations),
            ("polls", tally.polls),
            ("configurations_most", tally.widest as u64),
        ]);
        let checked = tally.operations as f64 / tally.checking.as_secs_f64().max(1e-9);
        report.figures.insert("checked_per_s", checked);
        report
    }
}

/// Checks the history of each key. How many there were, and what they were like.
fn explain<S: Subject>(
    recorded: &Recorded<<S::Model as Model>::Did>,
    checks: &Checks,
    round: u64,
) -> (usize, Size) {
    type Of<'a, S> = &'a [(u32, Call<<<S as Subject>::Model as Model>::Did>)];
    let histories: Vec<Of<'_, S>> =
        recorded.calls.chunk_by(|(one, _), (other, _)| one == other).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut size, mut calls) = (Size::default(), Vec::new());
        while let Some(of_key) = histories.get(next.fetch_add(1, Relaxed)) {
            history::<S>(of_key, recorded, &mut calls);
            match check::check::<S::Model>(S::INITIAL, &calls) {
                Ok(one) => {
                    size.widest = size.widest.max(one.widest);
                }
                Err(bad) => checks.violated(S::CHECK, || {
                    let text = show::show(&bad);
                    format!("key {} in round {round}, {text}", of_key[0].0)
                }),
            }
        }
        size
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let size = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Size::default();
        for thread in threads {
            // A panic in there is a bug in this program: pass it on.
            let one = thread.join().expect("a thread panicked");
            all.widest = all.widest.max(one.widest);
        }
        all
    });
    (histories.len(), size)
}

#[cfg(test)]
mod model_tests;
