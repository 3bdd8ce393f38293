//! Scenario `histories`: records what real threads do to few keys at full speed, and checks whether
//! that is linearizable.
//!
//! `record` runs a round and notes calls, and [`model::linear`] is the checker. `map`, `queue`,
//! `acks`, `sessions` and `table` are the store types with their sequential models, which know
//! [`model::due`] of deadlines. `show` prints what has no explanation. Memory is proportional to
//! the operations of a round.

mod acks;
mod map;
mod queue;
mod record;
mod sessions;
mod show;
mod table;

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::live::{Gauge, Live};
use crate::options::{Histories, On};
use crate::report::Report;
use model::linear::check;
use record::{record, Of, Recorded, Subject, Time};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const NAMES: [Check; 11] = [
    map::Load::CHECK,
    queue::Load::<u64>::CHECK,
    acks::Chosen::CHECK,
    acks::Issued::CHECK,
    sessions::Load::CHECK,
    table::Load::CHECK,
    "nothing_left",
    "metrics_add_up",
    "capacity_whole",
    "clock_in_order",
    "no_surprises",
];

/// The most entries at once where the capacity is bounded: more than a few keys ever have.
const CAPACITY: usize = 1024;

/// More entries than ever fit.
const MANY: u64 = 1 << 20;

/// Store types.
const TYPES: u64 = 7;

/// Rounds of all kinds: each is a store type and whether its capacity is bounded.
const KINDS: u64 = 2 * TYPES;

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
    while (number < KINDS || began.elapsed() < length) && !interrupt::asked() {
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
    Ok(run.report())
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
}

impl Run<'_> {
    /// Runs a round of the kind that this number stands for. Returns `false` if the user did not
    /// ask for that kind.
    fn round(&mut self, number: u64) -> Result<bool, Error> {
        let asked = |on| self.options.on.is_none_or(|only| only == on);
        match number % TYPES {
            0 if asked(On::Map) => self.load::<map::Load>(number)?,
            1 if asked(On::Queue) => self.load::<queue::Load<u64>>(number)?,
            2 if asked(On::Queue) => self.load::<queue::Load<String>>(number)?,
            3 if asked(On::Acks) => self.load::<acks::Chosen>(number)?,
            4 if asked(On::Roots) => self.load::<acks::Issued>(number)?,
            5 if asked(On::Sessions) => self.load::<sessions::Load>(number)?,
            6 if asked(On::Table) => self.load::<table::Load>(number)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Records a round on an object, and checks it.
    fn load<S: Subject>(&mut self, number: u64) -> Result<(), Error> {
        let (options, checks, time) = (self.options, &self.checks, &Time::new());
        let capacity = (number / TYPES % 2 == 1).then(|| match number % TYPES {
            // While there is no poll, all objects of their own may be there at once.
            4..=6 => usize::from(options.threads) * options.operations as usize,
            _ => CAPACITY,
        });
        let subject = S::new(time, capacity, options)?;
        let seed = options.seed.wrapping_mul(1 << 32).wrapping_add(number);
        let recorded = record(&subject, options, time, seed, checks);
        checks.equal("nothing_left", "entries after all time has passed", subject.left(), 0);
        let what = "ends counted, of those that were told";
        checks.equal("metrics_add_up", what, subject.ended(), time.told());
        if let Some(capacity) = capacity {
            let fit = (0..MANY).take_while(|&number| subject.put(number)).count();
            let what = "entries that fit after all have ended";
            checks.equal("capacity_whole", what, fit as u64, capacity as u64);
        }
        let (histories, widest) = explain(&recorded, checks, number);
        let tally = &mut self.tally;
        tally.load += recorded.took;
        tally.rounds += 1;
        tally.histories += histories as u64;
        tally.operations += recorded.calls.len() as u64;
        tally.polls += recorded.polls.len() as u64;
        tally.widest = tally.widest.max(widest);
        Ok(())
    }

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
        report
    }
}

/// Checks the history of each key. Returns how many there were, and the most configurations of one.
fn explain<S: Subject>(recorded: &Recorded<S>, checks: &Checks, round: u64) -> (usize, usize) {
    let same_key = |one: &(u32, _), other: &(u32, _)| one.0 == other.0;
    let histories: Vec<_> = recorded.calls.chunk_by(same_key).collect();
    let (next, widest) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(of_key) = histories.get(next.fetch_add(1, Relaxed)) {
            match check::<Of<S>>(S::INITIAL, &recorded.history(of_key)) {
                Ok(most) => {
                    widest.fetch_max(most, Relaxed);
                }
                Err(bad) => checks.violated(S::CHECK, || {
                    format!("key {} in round {round}, {}", of_key[0].0, show::show(&bad))
                }),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    // A panic in one is a bug in this program: the scope passes it on.
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    (histories.len(), widest.into_inner())
}

#[cfg(test)]
mod model_tests;
