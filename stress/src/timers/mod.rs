//! Scenario `timers`: timeouts as a server of remote calls has them. Most are cancelled, some moved, the rest fires.
//!
//! On an [`ExpiryQueue`](expiry::ExpiryQueue) of all threads on the real clock, each timer's story in a ledger (see `queue`); or on a
//! [`TimerWheel`](expiry::wheel::TimerWheel) of each thread in simulated time, beside a sequential model (see `wheel`). Memory is
//! proportional to the timers in flight.

mod ledger;
mod queue;
mod wheel;

use crate::checks::Checks;
use crate::error::Error;
use crate::latency::{nanos, Percentiles, Times};
use crate::live::Series;
use crate::options::{threads, Deadlines, Timers};
use crate::page::Chart;
use crate::report::Report;
use rand::rngs::SmallRng;
use rand::Rng;
use rand_distr::{Distribution, Pareto};
use std::time::Duration;

/// A heavy tail ends at so many times the timeout.
const TAIL: u64 = 1000;
/// Exponent of the heavy tail.
const EXPONENT: f64 = 1.5;
/// Of so many operations, one is timed. A power of two.
const TIMED: u64 = 64;

/// What becomes of a timer when it is looked at next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is cancelled.
    Cancel,
    /// It is moved.
    Move,
    /// It is left alone until it fires.
    Fire,
}

/// What is drawn.
#[derive(Debug, Clone)]
struct Draw {
    deadlines: Deadlines,
    /// The mean, in nanoseconds.
    timeout: u64,
    tail: Pareto<f64>,
    cancels: f64,
    moves: f64,
}

impl Draw {
    /// # Errors
    ///
    /// If there are more cancels and moves than timers, or times that make no sense.
    fn new(options: &Timers) -> Result<Self, Error> {
        let sum = options.cancels + options.reschedules;
        if sum > 1.0 {
            return Err(Error::Shares {
                names: "--cancels and --reschedules",
                sum,
            });
        }
        let bad = |why: String| Error::Option {
            option: "--timeout",
            why,
        };
        if options.timeout < options.interval {
            return Err(bad("is shorter than the --interval".into()));
        }
        let timeout = nanos(options.timeout);
        if timeout > u64::MAX / TAIL / 4 {
            return Err(bad("is longer than a month".into()));
        }
        // The mean of a Pareto distribution is its scale times e / (e - 1).
        #[allow(clippy::cast_precision_loss)] // below 2^53
        let scale = timeout as f64 * (EXPONENT - 1.0) / EXPONENT;
        Ok(Draw {
            deadlines: options.deadlines,
            timeout,
            tail: Pareto::new(scale, EXPONENT).map_err(|why| bad(why.to_string()))?,
            cancels: options.cancels,
            moves: options.reschedules,
        })
    }

    /// How long a timer is for, in nanoseconds.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0, and bounded
    fn timeout(&self, rng: &mut SmallRng) -> u64 {
        match self.deadlines {
            Deadlines::Fixed => self.timeout,
            Deadlines::Uniform => rng.random_range(1..=2 * self.timeout),
            Deadlines::Heavy => (self.tail.sample(rng) as u64).clamp(1, TAIL * self.timeout),
        }
    }

    fn fate(&self, rng: &mut SmallRng) -> Fate {
        match rng.random::<f64>() {
            luck if luck < self.cancels => Fate::Cancel,
            luck if luck < self.cancels + self.moves => Fate::Move,
            _ => Fate::Fire,
        }
    }
}

/// What a thread has done.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    scheduled: u64,
    cancelled: u64,
    moved: u64,
    fired: u64,
    /// Cancels and moves that came too late.
    late: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.scheduled += other.scheduled;
        self.cancelled += other.cancelled;
        self.moved += other.moved;
        self.fired += other.fired;
        self.late += other.late;
    }

    fn operations(&self) -> u64 {
        self.scheduled + self.cancelled + self.moved + self.late
    }

    fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("scheduled", self.scheduled),
            ("cancelled", self.cancelled),
            ("rescheduled", self.moved),
            ("fired", self.fired),
            ("came_too_late", self.late),
        ]
    }
}

/// Times of the three operations, and, in an open loop, how long after they were due all of them were done.
struct Clocked([Times; CLOCKED.len()]);

const CLOCKED: [&str; 4] = ["schedule", "cancel", "reschedule", "done_since_due"];
const SINCE_DUE: usize = 3;

impl Clocked {
    fn new() -> Self {
        Clocked(std::array::from_fn(|_| Times::new()))
    }

    fn named(&mut self) -> impl Iterator<Item = (&'static str, Percentiles)> + '_ {
        let times = self.0.iter_mut().map(Times::percentiles);
        let named = CLOCKED.into_iter().zip(times);
        named.filter(|(name, times)| times.count > 0 || *name != CLOCKED[SINCE_DUE])
    }
}

/// What came of a run.
struct Outcome {
    tally: Tally,
    /// Of that, before it was time to stop.
    operations: u64,
    took: Duration,
    series: Series,
    checks: Checks,
    counts: Vec<(&'static str, u64)>,
    charts: Vec<Chart>,
    latency: Vec<(&'static str, Percentiles)>,
}

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense.
pub fn run(options: &Timers) -> Result<Report, Error> {
    let draw = Draw::new(options)?;
    let threads = threads(options.threads);
    let each = (options.in_flight as usize / threads).max(1);
    let outcome = if options.wheel {
        wheel::run(options, &draw, (threads, each))
    } else {
        queue::run(options, &draw, (threads, each))?
    };
    let mut report = Report::new(
        "timers",
        ("operations", outcome.operations),
        outcome.took,
        options.seed,
        &outcome.checks,
        options,
    );
    report.series = outcome.series;
    report.charts = outcome.charts;
    report.counts.extend(outcome.tally.named());
    report.counts.extend(outcome.counts);
    report.counts.extend([
        ("threads", threads as u64),
        ("in_flight", (each * threads) as u64),
    ]);
    report.latency.extend(outcome.latency);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rand::SeedableRng;

    fn draw(args: &str) -> Result<Draw, Error> {
        let words = ["stress", "timers"]
            .into_iter()
            .chain(args.split_whitespace());
        let cli = crate::options::Cli::try_parse_from(words).unwrap();
        match cli.scenario {
            Some(crate::options::Scenario::Timers(options)) => Draw::new(&options),
            _ => unreachable!(),
        }
    }

    #[test]
    fn deadlines_have_the_mean_that_was_asked_for() {
        let mut rng = SmallRng::seed_from_u64(1);
        for (args, longest) in [
            ("--deadlines fixed", 1_000_000_000),
            ("--deadlines uniform", 2_000_000_000),
            ("--deadlines heavy", 1_000_000_000_000),
        ] {
            let draw = draw(args).unwrap();
            let drawn: Vec<u64> = (0..100_000).map(|_| draw.timeout(&mut rng)).collect();
            let mean = drawn.iter().sum::<u64>() / 100_000;
            assert!(
                (800_000_000..1_200_000_000).contains(&mean),
                "{args}: {mean}"
            );
            assert!(drawn.iter().all(|&one| one <= longest), "{args}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            "--cancels 0.6 --reschedules 0.6",
            "--timeout 10us",
            "--timeout 1year",
        ] {
            assert!(draw(bad).is_err(), "{bad}");
        }
    }
}
