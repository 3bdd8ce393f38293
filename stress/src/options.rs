//! The command line.

mod faults;
mod growth;
mod histories;
mod hostile;
mod mass_expiry;
mod nats;
mod sessions;
mod soak;
mod ttl;

pub use faults::Faults;
pub use growth::{Grown, Growth};
pub use histories::{Histories, On};
pub use hostile::Hostile;
pub use mass_expiry::MassExpiry;
pub use nats::Nats;
pub use sessions::{Peer, Sessions};
pub use soak::Soak;
pub use ttl::Ttl;

use crate::checks::Check;
use crate::error::Error;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Runs the expiry engine on real input and under load, and proves that nothing was lost.
#[derive(Debug, Parser)]
#[command(name = "stress", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// Which scenario to run.
    #[command(subcommand)]
    pub scenario: Option<Scenario>,
    /// Keep each of the scenario's own threads on one processor
    #[arg(long, global = true)]
    pub pin: bool,
    /// How long nothing may move in a run before it has failed, as stuck
    #[arg(long, global = true, default_value = "10m", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub stuck_after: Duration,
    /// What becomes of the report.
    #[command(flatten)]
    pub output: Output,
}

/// What becomes of the report, beside the text on standard output.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Report")]
pub struct Output {
    /// One JSON object, to FILE, or to standard output instead of the text
    #[arg(long, global = true, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A page with charts: one HTML file with everything in it
    #[arg(long, global = true, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs all scenarios, for those who name none.
pub const TOUR: [&str; 8] = ["stress", "soak", "--minutes", "1", "--cycles", "1", "--each", "1s"];

const EXAMPLES: &str = "\
Without a scenario each of them runs for a moment.

Examples:
  stress wordcount                         every word of the crates in Cargo's home, without faults
  stress wordcount --drop 0.001 --fail 0.002 --duplicate 0.002 --late 0.0005 --timeout 2s
  stress wordcount /usr/share/doc --json   one JSON object on standard output
  stress ack --order shuffled --ids chosen --batch 16 --in-flight 1000000
  stress ack --rate 200000 --in-flight 10000 --pin --report ack.html
  stress ack --fail-rate 0.1 --timeout-rate 0.001 --late-rate 0.1 --timeout 500ms
  stress sessions --tracker
  stress sessions --contended --keys 100000000
  stress sessions --contended --peer zookeeper
  stress ttl --mix FILE.csv --row 9 --seconds 30
  stress histories --threads 4 --keys 1 --seconds 60
  stress growth --entries 10000000 --on map
  stress growth --bounded
  stress mass-expiry --entries 10000000 --pollers 2 --budget 1000
  stress faults --only threads_die
  stress hostile
  stress nats --kill --pause --poison 1    with --features nats
  stress soak --hours 8 --log soak.jsonl --report soak.html

Exit status: 0 if every check holds, 1 if one does not, 2 if the scenario could not be run.
Progress goes to standard error.";

/// The scenarios.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Counts the words of every text file under PATH in a tracked pipeline, with faults if wanted
    #[command(after_help = WORDCOUNT)]
    Wordcount(Wordcount),
    /// The tracker alone under load from all threads
    #[command(after_help = ACK)]
    Ack(Ack),
    /// An expiry queue, or a session tracker, under load from all threads, each history judged
    #[command(after_help = sessions::HELP)]
    Sessions(Sessions),
    /// An expiring map under a cache's load, each value's story told
    #[command(after_help = ttl::HELP)]
    Ttl(Ttl),
    /// Records what real threads do to few keys of all faces, and checks that it is linearizable
    #[command(after_help = histories::HELP)]
    Histories(Histories),
    /// From the default size to many entries, from all threads, and back
    #[command(after_help = growth::HELP)]
    Growth(Growth),
    /// Many entries expire at once, while threads go on
    #[command(after_help = mass_expiry::HELP)]
    MassExpiry(MassExpiry),
    /// Faults injected into every face of the engine, each with its check
    #[command(after_help = faults::HELP)]
    Faults(Faults),
    /// Keys, ids, floods and deadlines chosen for the worst, beside friendly ones
    #[command(after_help = hostile::HELP)]
    Hostile(Hostile),
    /// A pipeline over three processes and three NATS brokers, some of which are killed and stopped
    #[command(after_help = nats::HELP)]
    Nats(Nats),
    /// All of them over and over, for hours
    #[command(after_help = soak::HELP)]
    Soak(Soak),
}

const WORDCOUNT: &str = "\
A file is text unless its first 8 KiB hold a zero byte or are not UTF-8; other files, and what is no \
regular file, are skipped and counted. Links are not followed. A word is a run of ASCII letters, digits, \
underscores and bytes above 127; runs above 256 bytes are cut, and so are lines above 64 KiB.

Each line is a root, each word in it a child. A line that fails or times out is sent again as a new \
attempt. Rates are per word (and per line, for the tuple of the line itself) and halve with each \
attempt, so that long lines get through in the end. At the end every count must equal that of a \
separate, direct count of the same files, plus what unsuccessful attempts and duplicates had counted.";

const ACK: &str = "\
Every rate is a share of roots. A root that is left unacked has at least one edge outstanding. Half of the \
duplicates repeat the last ack, which must change nothing, and half repeat another, which leaves the \
root to its timeout. Late operations (acks, fails, resets) come after a root has ended and must be \
refused; for chosen ids they are held like early ones, and must expire.

With --rate roots come at random by a schedule (Poisson's), and issue_since_due is how long after they were due they were in; \
the schedule does not wait for places, so what cannot be kept up with shows there.";

/// Options of `wordcount`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Wordcount {
    /// A file, or a folder to read recursively [default: the sources of the crates in Cargo's home]
    pub path: Option<PathBuf>,
    /// Share of tuples that are lost on their way
    #[arg(long, default_value_t = 0.0, value_parser = rate, value_name = "RATE")]
    pub drop: f64,
    /// Share of tuples that fail
    #[arg(long, default_value_t = 0.0, value_parser = rate, value_name = "RATE")]
    pub fail: f64,
    /// Share of tuples that are processed twice, and acked once
    #[arg(long, default_value_t = 0.0, value_parser = rate, value_name = "RATE")]
    pub duplicate: f64,
    /// Share of tuples that are processed but acked only after the line's timeout has passed
    #[arg(long, default_value_t = 0.0, value_parser = rate, value_name = "RATE")]
    pub late: f64,
    /// Share of tuples at which the worker stalls
    #[arg(long, default_value_t = 0.0, value_parser = rate, value_name = "RATE")]
    pub stall: f64,
    /// How long a stalled worker stalls [default: one and a quarter timeouts]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub stall_for: Option<Duration>,
    /// Seed of the faults; the same seed hits the same words of the same attempts
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The most lines in flight
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub max_pending: u32,
    /// How long a line may take
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub timeout: Duration,
    /// The granularity of timeouts [default: the tracker's own]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub interval: Option<Duration>,
    /// Threads of the split stage, and as many of the count stage [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Threads that read files
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub spouts: u32,
}

/// In what order roots are acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// First in, first out.
    Fifo,
    /// At random.
    Shuffled,
}

/// How a clock is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Readings {
    /// At most a millisecond old, where that is cheaper.
    Cheap,
    /// Exactly, each time.
    Exact,
}

/// Who makes the ids of roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// The tracker.
    Issued,
    /// The caller, at random.
    Chosen,
}

/// Options of `ack`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Ack {
    /// Threads [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub threads: Option<u32>,
    /// How long to keep the load up, in seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Roots in flight, all threads together
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub in_flight: u32,
    /// Edges per root, each acked once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub edges: u32,
    /// Begin this many roots a second, all threads together, by a schedule, instead of as many as there are places for; their time
    /// is taken from when they were due
    #[arg(long, value_parser = per_second, value_name = "ROOTS")]
    pub rate: Option<f64>,
    /// Take no readings and no times while it runs, and show nothing: what those cost is the difference
    #[arg(long)]
    pub bare: bool,
    /// The tracker's clock
    #[arg(long, value_enum, default_value_t = Readings::Cheap)]
    pub clock: Readings,
    /// In what order roots are acked
    #[arg(long, value_enum, default_value_t = Order::Fifo)]
    pub order: Order,
    /// Who makes the ids
    #[arg(long, value_enum, default_value_t = Ids::Issued)]
    pub ids: Ids,
    /// Use the batch forms, with this many items; 1 for single operations
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,
    /// Share of roots that fail
    #[arg(long, default_value_t = 0.02, value_parser = rate, value_name = "RATE")]
    pub fail_rate: f64,
    /// Share of roots that are left to their timeout
    #[arg(long, default_value_t = 0.001, value_parser = rate, value_name = "RATE")]
    pub timeout_rate: f64,
    /// Share of those whose timeout is reset once, shortly before it would pass
    #[arg(long, default_value_t = 0.5, value_parser = rate, value_name = "RATE")]
    pub reset_rate: f64,
    /// Share of roots one of whose acks is repeated
    #[arg(long, default_value_t = 0.001, value_parser = rate, value_name = "RATE")]
    pub duplicate_rate: f64,
    /// Share of roots for which something comes after they have ended
    #[arg(long, default_value_t = 0.01, value_parser = rate, value_name = "RATE")]
    pub late_rate: f64,
    /// Share of roots most of whose edges are acked by another thread
    #[arg(long, default_value_t = 0.02, value_parser = rate, value_name = "RATE")]
    pub handoff_rate: f64,
    /// Share of roots whose first ack comes before the init; chosen ids only
    #[arg(long, default_value_t = 0.0, value_parser = rate, value_name = "RATE")]
    pub early_rate: f64,
    /// How long a root may take
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub timeout: Duration,
    /// The granularity of timeouts [default: the tracker's own]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub interval: Option<Duration>,
    /// How much later than promised a timeout may come, because the machine is busy
    #[arg(long, default_value = "500ms", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub allowance: Duration,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// A share of something: 0 to 1.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1.0).contains(&rate) => Ok(rate),
        _ => Err("a rate is a number from 0 to 1".into()),
    }
}

/// How often in a second.
fn per_second(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1e-3..=1e9).contains(&rate) => Ok(rate),
        _ => Err("a rate is a number of operations a second, from 0.001 to 1000000000".into()),
    }
}

/// A number of seconds above zero.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err("a time is a number of seconds, above 0 and up to 1000000".into()),
    }
}

/// What something is divided by.
fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1e-9..=1e15).contains(&factor) => Ok(factor),
        _ => Err("a factor is a number above 0".into()),
    }
}

/// Those of `all` that `--only` names, or all of them if it names none. They are a `what`, each.
pub fn only<T: Copy>(
    all: &[T],
    name: fn(&T) -> Check,
    only: &[String],
    what: &str,
) -> Result<Vec<T>, Error> {
    let is_known = |asked: &&String| all.iter().any(|one| name(one) == **asked);
    if let Some(unknown) = only.iter().find(|asked| !is_known(asked)) {
        let known: Vec<_> = all.iter().map(name).collect();
        return Err(Error::Option {
            option: "--only",
            why: format!("{unknown} is no {what}; they are {}", known.join(", ")),
        });
    }
    let is_asked = |one: &&T| only.is_empty() || only.iter().any(|asked| asked == name(one));
    Ok(all.iter().filter(is_asked).copied().collect())
}

/// The number given, or the number of cores.
pub fn threads(given: Option<u32>) -> usize {
    match given {
        Some(threads) => threads as usize,
        None => std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get),
    }
}

/// The scenario that these words name, for tests.
#[cfg(test)]
pub fn parsed(args: &str) -> Scenario {
    let words = ["stress"].into_iter().chain(args.split_whitespace());
    Cli::parse_from(words).scenario.expect("a scenario")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(matches!(Cli::parse_from(TOUR).scenario, Some(Scenario::Soak(_))));
    }

    #[test]
    fn rates_and_seconds_are_checked() {
        assert_eq!(rate("0.25"), Ok(0.25));
        for bad in ["-0.1", "1.5", "NaN", "x", ""] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!((seconds("2.5"), factor("1e7")), (Ok(2.5), Ok(1e7)));
        assert_eq!(per_second("2e5"), Ok(2e5));
        assert!(per_second("0").is_err() && per_second("NaN").is_err());
        assert!(factor("0").is_err() && factor("-1").is_err() && factor("NaN").is_err());
        for bad in ["0", "-1", "inf", "NaN", "1e9"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
