//! Prints the published figures of `expiry`, as ratios of interleaved rounds.

use clap::{Parser, ValueEnum};
use expiry_benches::figures::{
    child, expiry, growth, idle, keyed, lifecycle, memory, timeouts, topology, touch, wheel,
    Options,
};
use expiry_benches::report::Report;
use expiry_benches::window::Order;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
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
    /// All of the next five.
    Keyed,
    KeyedMaps,
    KeyedQueues,
    KeyedExpiry,
    KeyedMemory,
    /// 40 values of 8 MiB, removed or replaced in an idle process.
    KeyedDrops,
    Topology,
    All,
}

impl Figure {
    /// Parts of others, which `all` has already.
    fn is_part(self) -> bool {
        matches!(
            self,
            Figure::KeyedMaps
                | Figure::KeyedQueues
                | Figure::KeyedExpiry
                | Figure::KeyedMemory
                | Figure::KeyedDrops
        )
    }
}

/// Prints the published figures of `expiry`, as ratios of interleaved rounds.
#[derive(Debug, Parser)]
#[command(name = "figures")]
struct Command {
    #[arg(value_enum, default_value = "all")]
    figures: Vec<Figure>,
    /// Interleaved rounds of each table; a third of it at 10 M.
    #[arg(long, value_name = "N", default_value = "3", value_parser = count)]
    rounds: usize,
    /// These loads in place of each figure's own.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = count)]
    in_flight: Option<Vec<usize>>,
    /// Of the lifecycle, the keyed stores, the topology and the timeouts.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = count, default_value = "1,2")]
    threads: Vec<usize>,
    /// Of the lifecycle; both if not said.
    #[arg(long)]
    order: Option<Ordered>,
    /// Of the lifecycle, the wheel and the keyed stores, only those whose name contains this; for profiling.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Kinds of keys of the keyed stores.
    #[arg(long, value_name = "KIND,KIND", value_delimiter = ',', value_parser = ["u64", "String"], default_value = "u64")]
    keys: Vec<String>,
    /// Runs the stores of an older build of this program, in turn with this one's; prints ratios.
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Lifecycle and keyed stores at 10 M as well.
    #[arg(long)]
    full: bool,
    /// How long the reaper is watched; more than the timeout of 30.
    #[arg(long, value_name = "N", default_value = "40", value_parser = count)]
    seconds: usize,
    /// With memory: 100 M live entries instead; needs 6 GB.
    #[arg(long)]
    hundred_million: bool,
    /// Print one object.
    #[arg(long)]
    json: bool,
    /// Exit with 1 if a figure is short of what was asked.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ordered {
    Fifo,
    Random,
}

/// A number above zero, such as 1_000_000.
fn count(text: &str) -> Result<usize, String> {
    let number: usize = text.replace('_', "").parse().map_err(|error| format!("{error}"))?;
    (number > 0).then_some(number).ok_or_else(|| "it has to be above zero".into())
}

impl Command {
    fn wants(&self, figure: Figure) -> bool {
        let all = !figure.is_part() && self.figures.contains(&Figure::All);
        all || self.figures.contains(&figure)
    }

    fn options(&self) -> Options {
        Options {
            rounds: self.rounds,
            in_flight: self.in_flight.clone(),
            threads: self.threads.clone(),
            orders: match self.order {
                None => vec![Order::Fifo, Order::Random],
                Some(Ordered::Fifo) => vec![Order::Fifo],
                Some(Ordered::Random) => vec![Order::Random],
            },
            only: self.only.clone(),
            keys: self.keys.clone(),
            against: self.against.clone(),
            full: self.full,
            watch: Duration::from_secs(self.seconds as u64),
            json: self.json,
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "child") {
        let served = child::serve(&args[1..]);
        return if served { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let command = Command::parse();
    let options = &command.options();
    let began = Instant::now();
    let mut report = Report::new(options.json);
    type Run = fn(&Options, &mut Report);
    let memory: Run = if command.hundred_million { memory::hundred_million } else { memory::run };
    let figures: [(Figure, Run); 16] = [
        // First: once a clock of tokio's has been paused in this process, as those of `DelayQueue` are, its timers are slower.
        (Figure::Timeouts, timeouts::run),
        (Figure::Sleeps, timeouts::sleeps),
        (Figure::Lifecycle, lifecycle::run),
        (Figure::Expiry, expiry::run),
        (Figure::Touch, touch::run),
        (Figure::Memory, memory),
        (Figure::Growth, growth::run),
        (Figure::Idle, idle::run),
        (Figure::Wheel, wheel::run),
        (Figure::Keyed, keyed::run),
        (Figure::KeyedMaps, keyed::maps),
        (Figure::KeyedQueues, keyed::queues),
        (Figure::KeyedExpiry, keyed::expiry),
        (Figure::KeyedMemory, keyed::memory),
        (Figure::KeyedDrops, keyed::drops),
        (Figure::Topology, topology::run),
    ];
    for (figure, run) in figures {
        if command.wants(figure) {
            run(options, &mut report);
        }
    }
    let reached = report.finish(began.elapsed().as_secs_f64());
    ExitCode::from(u8::from(command.strict && !reached))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &str) -> Result<Command, clap::Error> {
        Command::try_parse_from(["figures"].into_iter().chain(args.split_whitespace()))
    }

    /// The commands that the documents name, and each figure by itself.
    #[test]
    fn what_is_named_can_be_asked_for() {
        for figure in Figure::value_variants() {
            let name = figure.to_possible_value().unwrap();
            let command = parsed(name.get_name()).unwrap();
            assert!(command.wants(*figure), "{figure:?}");
        }
        let command =
            parsed("timeouts sleeps --rounds 1 --in-flight 1_000_000,10 --order fifo").unwrap();
        assert!(command.wants(Figure::Sleeps) && !command.wants(Figure::Touch));
        let options = command.options();
        assert_eq!(options.in_flight, Some(vec![1_000_000, 10]));
        assert_eq!((options.threads, options.orders.len()), (vec![1, 2], 1));
    }

    #[test]
    fn all_is_the_default_and_has_each_part_once() {
        let command = parsed("").unwrap();
        assert!(command.wants(Figure::Keyed) && !command.wants(Figure::KeyedMaps));
    }

    #[test]
    fn what_is_refused_is_named() {
        for wrong in ["timeout", "--rounds 0", "--in-flight 1,x", "--keys i64"] {
            let said = parsed(wrong).unwrap_err().to_string();
            let value = wrong.rsplit([' ', ',']).next().unwrap();
            assert!(said.contains(value), "{said}");
        }
    }
}
