//! The command line.

use crate::checks::Check;
use crate::error::Error;
use crate::subject::Kind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Runs the expiry engine on real input and under load, and proves that nothing was lost.
#[derive(Debug, Parser)]
#[command(name = "stress", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// Which scenario to run.
    #[command(subcommand)]
    pub scenario: Option<Scenario>,
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
}

const EXAMPLES: &str = "\
Without a scenario each of them runs for a moment.

Examples:
  stress wordcount                         every word of the crates in Cargo's home, without faults
  stress wordcount --drop 0.001 --fail 0.002 --duplicate 0.002 --late 0.0005 --timeout 2s
  stress ack --order shuffled --ids chosen --batch 16 --in-flight 1000000
  stress ack --rate 200000 --in-flight 10000 --json ack.json
  stress cache --threads 4 --seconds 60 --seed 2
  stress histories --threads 4 --keys 1 --seconds 60
  stress growth --entries 10000000 --on map
  stress faults --only threads_die --only memory_refused --size 1000000
  stress hostile --only aimed_roots
  stress nats --kill --pause --poison 1    with --features nats
  stress soak --for 8h

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
    /// A map before a backend that fails: loads, reloads, evictions and removals, all checked
    #[command(after_help = CACHE)]
    Cache(Cache),
    /// Records what real threads do to few keys of all stores, and checks that it is linearizable
    #[command(after_help = HISTORIES)]
    Histories(Histories),
    /// From the default size to many entries, from all threads, and back
    #[command(after_help = GROWTH)]
    Growth(Growth),
    /// Faults injected into every store of the engine, each with its check
    #[command(after_help = FAULTS)]
    Faults(Faults),
    /// Keys, ids, floods and deadlines chosen for the worst, beside friendly ones
    #[command(after_help = HOSTILE)]
    Hostile(Hostile),
    /// A pipeline over three processes and three NATS brokers, some of which are killed and stopped
    #[command(after_help = NATS)]
    Nats(Nats),
    /// All of them over and over, for hours
    #[command(after_help = SOAK)]
    Soak(Soak),
}

const WORDCOUNT: &str = "\
A file is text if it is UTF-8 without a zero byte; other files are skipped and counted. Links are not followed. \
A word is a run of ASCII letters, digits, underscores and bytes above 127; runs above 256 bytes are cut.

Each line is a root, each word in it a child. A line that fails or times out is sent again as a new \
attempt. Rates are per word (and per line, for the tuple of the line itself) and halve with each \
attempt, so that long lines get through in the end. At the end every count must equal that of a \
separate, direct count of the same files, plus what unsuccessful attempts and duplicates had counted.";

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

const ACK: &str = "\
Every rate is a share of roots. A root that is left unacked has at least one edge outstanding. Half of the \
duplicates repeat the last ack, which must change nothing, and half repeat another, which leaves the \
root to its timeout. Late operations (acks, fails, resets) come after a root has ended and must be \
refused; for chosen ids they are held like early ones, and must expire.

With --rate roots come at random by a schedule (Poisson's), and issue_since_due is how long after they were due they were in; \
the schedule does not wait for places, so what cannot be kept up with shows there.";

/// In what order roots are acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// First in, first out.
    Fifo,
    /// At random.
    Shuffled,
}

/// Whether the tracker or the caller makes the ids of roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// The tracker.
    Issued,
    /// The caller, at random.
    Chosen,
}

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
    /// Begin this many roots a second, all threads together, by a schedule, instead of as many as
    /// there are places for; their time counts from when they were due
    #[arg(long, value_parser = per_second, value_name = "ROOTS")]
    pub rate: Option<f64>,
    /// In what order roots are acked
    #[arg(long, value_enum, default_value_t = Order::Fifo)]
    pub order: Order,
    /// Whether the tracker or the caller makes the ids
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

const HISTORIES: &str = "\
A run is a row of rounds, on each of the stores in turn; every other time around with a bounded capacity. In a round all \
threads call at full speed, on few keys, and move a manual clock on; a driver does so too, and polls. Each key's history must be \
linearizable: one order, in keeping with when each call began and ended, in which every answer is that of a sequential model. The \
model knows deadlines: what is due may end in a poll, must be gone when a poll has gone by, and nothing ends early. The checker \
leaves nothing out: a history that it refuses has no explanation, and one that it takes has one.

In the report operations are calls and reports of ends, polls left out; configurations_most is how many ways of explaining what had \
gone by there were at most at one time. A history that has no explanation is printed from the last time that no call was under way.";

/// What the calls are made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// An `ExpiringMap`.
    Map,
    /// An `ExpiryQueue`.
    Queue,
    /// An `AckTracker`, with roots that callers choose.
    Acks,
    /// An `AckTracker`, with roots that it issues.
    Roots,
    /// A `SessionTracker`.
    Sessions,
    /// A `PendingTable`.
    Table,
}

#[derive(Debug, Clone, Args, Serialize)]
pub struct Histories {
    /// Only on one of them, instead of all in turn
    #[arg(long, value_enum)]
    pub on: Option<On>,
    /// Threads that call, beside the driver
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=48))]
    pub threads: u8,
    /// How long to go on, recording and checking, in seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Keys, or places at which issued roots, sessions, or tickets are met
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub keys: u32,
    /// Operations of each thread in a round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub operations: u32,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

const CACHE: &str = "\
Threads call an ExpiringMap in all ways that load: with a closure, a guard, and many keys at once; beside insertions, removals and \
look-ups. The backend is slow, or fails, for some time, and recovers. An operator moves the clock, polls, and lowers and \
raises the bound. The seed modulo 3 chooses the eviction policy: S3Fifo, least recently used, soonest deadline.

Each value that came in ends once. One load of a key runs at a time, but beside an insertion or a removal. No call gets a value that \
ended, or that one of these invalidated, before the call began. An error goes to the callers that waited for its load. The bound \
holds, and an insertion evicts no more than it weighs.";

#[derive(Debug, Clone, Args, Serialize)]
pub struct Cache {
    /// Threads that call [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub threads: Option<u32>,
    /// How long to keep the load up, in seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Distinct keys
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(256..=1 << 24))]
    pub keys: u32,
    /// How much later than promised an expiry may be told, and a lowered bound met
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub allowance: Duration,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

const GROWTH: &str = "\
From the default size to --entries, from all threads: an ack tracker with issued roots, one with chosen roots, and an expiring map of \
integers, one after another. Readers look meanwhile for what was in before they began to look, and must find it. Then each entry is \
looked up by its key, all of them end, each once, and memory is given back.

Bytes an entry are those by which the process grew in it, less 8 MiB for the harness and the chunks that threads sit in. What is \
allowed is what docs/performance.md has measured for many entries, and a third to a half more: an index may just have doubled.

With --bounded the capacity is --entries, and threads insert twice as many: exactly so many get in, each of the others is refused as \
full, and never while there is room; what is removed makes exactly as much room again.";

#[derive(Debug, Clone, Args, Serialize)]
pub struct Growth {
    /// What grows; may be repeated [default: all of them]
    #[arg(long, value_enum)]
    pub on: Vec<Kind>,
    /// How many entries
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=1 << 30))]
    pub entries: u32,
    /// Threads that insert [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub threads: Option<u32>,
    /// Threads that look up what is in
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub readers: u32,
    /// The capacity is the number of entries, and twice as many want to get in
    #[arg(long)]
    pub bounded: bool,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

const FAULTS: &str = "\
Faults, each injected into roots of both kinds, a map and a queue where it applies:
  reaper_blocked        a handler blocks the reaper's thread; threads, and polls beside it, go on
  clock_stands_still    the clock stands still while threads go on, with a reaper and with pollers, and moves again
  clock_jumps           the clock jumps forwards by seconds, hours and years between and under operations
  handlers_panic        every third call of the handler panics
  handlers_reenter      handlers begin, end, renew and look up entries, and poll
  handlers_shut_down    a handler shuts its own engine down, in a poll and on the reaper's thread
  threads_die           threads panic with entries begun, tuples and references held, in waves; what their thread-locals \
do at a thread's end too
  memory_refused        the system gives no pages, the allocator no boxes, in the middle of growth
  consumers_stop        whoever reads the channel stops, or goes away; each policy for a full channel

After each: every entry that was accepted has ended exactly once, none before its time, none that was refused has; nothing \
is left; memory (slots, keys and values) has been given back; and nobody is stuck (--limit). Entries that a handler's \
shutdown ends untold, as the docs of the queue say, are looked at before.";

#[derive(Debug, Clone, Args, Serialize)]
pub struct Faults {
    /// Inject this fault only; may be repeated
    #[arg(long, value_name = "FAULT")]
    pub only: Vec<String>,
    /// How many entries a fault meets, about
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub size: u32,
    /// Threads beside the one that injects
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub threads: u32,
    /// How long the reaper is kept blocked, and a clock standing
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub stall: Duration,
    /// How long a fault may take before it counts as stuck
    #[arg(long, default_value = "120s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub limit: Duration,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

const HOSTILE: &str = "\
Attacks, each beside its friendly case in the same run, in turns, medians of three:
  weak_hasher          keys of a map whose low or high hash bits are all the same under a user's weak hasher; random keys
  integer_keys         integer keys that are multiples of 2^40; random ones
  aimed_keys           strings that collide under an attacker's own hasher; random ones
  aimed_roots          chosen roots that collide in an index with the attacker's secret; random ones. As a control the \
same is aimed at a tracker with that secret (which the docs warn of), and must hit
  unknown_issued       calls on roots that were never issued; acks of roots that are live
  unknown_chosen       acks of roots that nobody inits, held until they are too many; acks of roots that are live
  never_acked          inits that nobody acks, up to the capacity; inits that are acked
  one_tick             all deadlines in one tick; deadlines that are spread out
  cascading            all deadlines where each cascades through a level of the wheel; deadlines a second away
  guessed_roots        calls on ids that differ from a live root's in generation and random bits; acks of the root

What holds or not: nothing unknown is ever accepted, what is accepted ends once, refusals are the right ones, and the \
memory of a flood is flat and given back. A poll ends at most as many roots as its budget, and 15 to finish a block that \
it has begun. Hostile keys and roots may cost at most 1.5 times as much as random ones, by the thread's own time: that \
is judged from 100000 keys on.";

#[derive(Debug, Clone, Args, Serialize)]
pub struct Hostile {
    /// This attack only; may be repeated
    #[arg(long, value_name = "ATTACK")]
    pub only: Vec<String>,
    /// How many keys, or roots; a flood has four times as many
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1_000..=50_000_000))]
    pub size: u32,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

const NATS: &str = "\
Three local brokers and three worker processes. Each line of the files under PATH becomes a message of the stream `lines`; a worker \
reads it, counts its words in a topology, and publishes the counts to the stream `counts`, under the line's number. At the end each \
line must be there, the sum of the counts must equal a direct count, and each line that kills its worker must be one dead letter.

With --for, the workers hold leases, sessions and idempotency keys instead, while workers and brokers are killed, stopped and \
continued at random. Each process writes down what it sees. At the end the records of all processes are judged together: one valid \
holder of a key at a time, rising tokens, no end of a session that was touched in time, each end told, one first claimer in a claim's \
time, one answer to a key. Records that break a rule are kept.

It needs nats-server: one that EXPIRY_NATS_SERVER names, one in PATH, or one that pip fetches, pinned by hash (EXPIRY_NATS_VERSION \
names its version; with commas, those of the three brokers).";

#[derive(Debug, Clone, Args, Serialize)]
pub struct Nats {
    /// A file, or a folder to read recursively [default: this workspace's `src`]
    pub path: Option<PathBuf>,
    /// How many lines; the files are read again and again
    #[arg(long, default_value_t = 80_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub lines: u64,
    /// Kills a worker and a broker half-way, and starts both again
    #[arg(long)]
    pub kill: bool,
    /// Stops a worker for longer than the brokers wait for its acks
    #[arg(long)]
    pub pause: bool,
    /// Lines among the others that kill the worker which counts them
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub poison: u64,
    /// Instead: workers hold leases, sessions and keys for so long, under faults
    #[arg(long = "for", value_parser = humantime::parse_duration, value_name = "TIME", conflicts_with_all = ["path", "lines", "kill", "pause", "poison"])]
    pub time: Option<Duration>,
    /// Seed of the faults, with --for
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A worker: its name, the brokers, and a folder for the log of what it holds
    #[arg(long, hide = true, num_args = 2..=3)]
    #[serde(skip)]
    pub worker: Option<Vec<String>>,
}

const SOAK: &str = "\
A soak is a row of cycles, a cycle a run of each scenario of about a second, one after another in this process, each time \
with another seed. The first run that fails ends it. After each cycle, with everything dropped, resident memory is noted: \
from the second cycle on its maximum in the later half must not be above that in the earlier half by more than a \
tenth and 16 MiB. That is judged from six cycles on.";

#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Soak {
    /// Begins no cycle after this time
    #[arg(long = "for", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub time: Option<Duration>,
    /// How many cycles at most [default: 1, with --for any number]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub cycles: Option<u64>,
    /// Runs of this scenario only; may be repeated
    #[arg(long, value_name = "SCENARIO")]
    pub only: Vec<String>,
    /// Seed of all seeds
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn number(text: &str, within: RangeInclusive<f64>, why: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| within.contains(number));
    number.ok_or_else(|| why.into())
}

/// A share of something.
fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1.0, "a rate is a number from 0 to 1")
}

/// How often in a second.
fn per_second(text: &str) -> Result<f64, String> {
    let why = "a rate is a number of operations a second, from 0.001 to 1000000000";
    number(text, 1e-3..=1e9, why)
}

fn seconds(text: &str) -> Result<f64, String> {
    let why = "a time is a number of seconds, above 0 and up to 1000000";
    number(text, f64::MIN_POSITIVE..=1e6, why)
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
    }
}
