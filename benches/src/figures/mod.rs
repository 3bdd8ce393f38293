//! The published figures, one module each, and the command line that asks for them.

mod child;
mod expiry;
mod growth;
mod hits;
mod idle;
mod keyed;
mod lifecycle;
mod memory;
mod pending;
mod timeouts;
mod topology;
mod wheel;

use crate::keyed::course::Kind;
use crate::report::{Report, Spread};
use crate::window::Order;
use clap::{Parser, ValueEnum};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Instant;

/// The figures, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    // First: once a clock of tokio's has been paused in this process, as those of `DelayQueue` are,
    // its timers are slower.
    Timeouts,
    /// A million at once: the second part of timeouts.
    Sleeps,
    Lifecycle,
    Expiry,
    Touch,
    Memory,
    Growth,
    Idle,
    Wheel,
    /// Tickets, and what is written by hand in their place.
    Pending,
    /// Maps that evict, and caches.
    Hits,
    /// All of the next four.
    Keyed,
    KeyedMaps,
    KeyedQueues,
    KeyedExpiry,
    KeyedMemory,
    Topology,
    All,
}

use Figure::{KeyedExpiry, KeyedMaps, KeyedMemory, KeyedQueues};

/// Parts of another figure.
const KEYED: [Figure; 4] = [KeyedMaps, KeyedQueues, KeyedExpiry, KeyedMemory];

impl Figure {
    fn run(self, options: &Options, report: &mut Report) {
        match self {
            Figure::Timeouts => timeouts::run(options, report),
            Figure::Sleeps => timeouts::sleeps(options, report),
            Figure::Lifecycle => lifecycle::run(options, report),
            Figure::Expiry => expiry::run(options, report),
            Figure::Touch => lifecycle::touch(options, report),
            Figure::Memory => memory::run(options, report),
            Figure::Growth => growth::run(options, report),
            Figure::Idle => idle::run(options, report),
            Figure::Wheel => wheel::run(options, report),
            Figure::Pending => pending::run(options, report),
            Figure::Hits => hits::run(options, report),
            Figure::Keyed => KEYED.iter().for_each(|part| part.run(options, report)),
            Figure::KeyedMaps => keyed::courses(options, report, Kind::Maps),
            Figure::KeyedQueues => keyed::courses(options, report, Kind::Queues),
            Figure::KeyedExpiry => keyed::expiry(options, report),
            Figure::KeyedMemory => keyed::memory(options, report),
            Figure::Topology => topology::run(options, report),
            // Each figure on its own is wanted, too.
            Figure::All => {}
        }
    }
}

/// Prints the published figures of `expiry`, as ratios of interleaved rounds.
#[derive(Debug, Parser)]
#[command(name = "figures")]
struct Options {
    #[arg(value_enum, default_value = "all")]
    figures: Vec<Figure>,
    /// Interleaved rounds of each table; a third of it at 10 M.
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    rounds: usize,
    /// These loads in place of each figure's own.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = positive)]
    in_flight: Option<Vec<usize>>,
    /// Threads of the lifecycle, the keyed stores, the topology and the timeouts.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = positive, default_value = "1,2")]
    threads: Vec<usize>,
    /// Orders of the lifecycle.
    #[arg(long, value_delimiter = ',', default_value = "fifo,random")]
    order: Vec<Order>,
    /// Runs only the contestants of the lifecycle, the wheel and the keyed stores whose name
    /// contains this; for profiling. The keyed stores go by the names that a child process takes,
    /// such as `map`.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Kinds of keys of the keyed stores.
    #[arg(long, value_name = "KIND,KIND", value_delimiter = ',', value_parser = ["u64", "String"], default_value = "u64")]
    keys: Vec<String>,
    /// How long the reaper is watched; more than the timeout of 30.
    #[arg(long, value_name = "N", default_value = "40", value_parser = positive)]
    seconds: usize,
}

/// A number above zero, such as 1_000_000.
fn positive(text: &str) -> Result<usize, String> {
    let number: usize = text.replace('_', "").parse().map_err(|error| format!("{error}"))?;
    (number > 0).then_some(number).ok_or_else(|| "it has to be above zero".into())
}

impl Options {
    fn wants(&self, figure: Figure) -> bool {
        let all = !KEYED.contains(&figure) && self.figures.contains(&Figure::All);
        all || self.figures.contains(&figure)
    }

    fn rounds_at(&self, in_flight: usize) -> usize {
        self.rounds.div_ceil(if in_flight >= 10_000_000 { 3 } else { 1 })
    }

    /// The sizes that the command line names, or else `default`.
    fn loads(&self, default: &[usize]) -> Vec<usize> {
        self.in_flight.clone().unwrap_or_else(|| default.to_vec())
    }

    /// The sizes of figures that hold from the cache to main memory.
    fn sizes(&self) -> Vec<usize> {
        self.loads(&[1_000, 10_000, 100_000, 1_000_000])
    }

    /// Whether the command line asks for what has this name.
    fn asks_for(&self, name: &str) -> bool {
        self.only.iter().all(|only| name.contains(only))
    }

    /// Prints progress.
    fn say(&self, what: &str) {
        eprintln!("   .. {what}");
    }

    /// Runs every subject in every round, in turn: A B C A B C. What came of it, by subject.
    fn in_turn<S, R>(
        &self,
        rounds: usize,
        subjects: &[S],
        name: impl Fn(&S) -> String,
        run: impl Fn(&S) -> R,
    ) -> Vec<Vec<R>> {
        let mut all: Vec<Vec<R>> = subjects.iter().map(|_| Vec::new()).collect();
        for round in 1..=rounds {
            for (subject, done) in subjects.iter().zip(&mut all) {
                self.say(&format!("round {round} of {rounds}: {}", name(subject)));
                done.push(run(subject));
            }
        }
        all
    }

    /// The same, each in a process of its own, so that allocators, and what they hold on to, do not
    /// mix.
    fn ask_in_turn(
        &self,
        rounds: usize,
        task: &str,
        peers: &[&str],
        entries: usize,
    ) -> Vec<Vec<Value>> {
        let name = |peer: &&str| format!("{peer}, {entries}");
        let ask = |peer: &&str| child::ask(task, peer, entries);
        self.in_turn(rounds, peers, name, ask)
    }
}

/// A number of each answer.
fn numbers(answers: &[Value], field: &str) -> Spread {
    Spread::of(answers.iter().map(|answer| child::number(answer, field)))
}

/// The name that a child process has reported.
fn name(answers: &[Value]) -> &str {
    answers[0]["name"].as_str().unwrap_or_default()
}

/// 100 K, 1 M, 10 M.
fn count(n: usize) -> String {
    match n {
        n if n >= 1_000_000 && n % 1_000_000 == 0 => format!("{} M", n / 1_000_000),
        n if n >= 1000 && n % 1000 == 0 => format!("{} K", n / 1000),
        n => n.to_string(),
    }
}

/// Runs the figures that the command line asks for, or what a parent process asks of this one.
pub fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "child") {
        return ExitCode::from(if child::serve(&args[1..]) { 0 } else { 2 });
    }
    let options = Options::parse();
    let began = Instant::now();
    let mut report = Report::default();
    for figure in Figure::value_variants().iter().filter(|figure| options.wants(**figure)) {
        figure.run(&options, &mut report);
    }
    report.finish(began.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(["figures"].into_iter().chain(args.split_whitespace()))
    }

    /// The commands that the documents name, and each figure by itself.
    #[test]
    fn what_is_named_can_be_asked_for() {
        for figure in Figure::value_variants() {
            let name = figure.to_possible_value().unwrap();
            assert!(parsed(name.get_name()).unwrap().wants(*figure), "{figure:?}");
        }
        let options =
            parsed("timeouts sleeps --rounds 1 --in-flight 1_000_000,10 --order fifo").unwrap();
        assert!(options.wants(Figure::Sleeps) && !options.wants(Figure::Touch));
        assert_eq!(options.in_flight, Some(vec![1_000_000, 10]));
        assert_eq!((options.threads, options.order.len()), (vec![1, 2], 1));
        let all = parsed("").unwrap();
        assert!(all.wants(Figure::Keyed) && !all.wants(Figure::KeyedMaps));
    }
}
