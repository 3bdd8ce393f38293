//! Options of `timers`.

use super::{per_second, rate, seconds, Order};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::time::Duration;

/// The long help's end.
pub const HELP: &str = "\
Timeouts as a server of remote calls has them. Each thread keeps its timers in flight: it cancels most of them, moves some, and leaves \
the rest to fire. They are keys of an ExpiryQueue, moved by handle; its reaper hands over what fires, or --pollers do. A \
cancel or move that is refused must have come too late.

With --wheel each thread has a TimerWheel of its own, in simulated time, an interval being a tick, beside an exact sequential model: \
each result, each timer that fires, the length and the time to wake up at must be the model's.

Deadlines: all of them --timeout; or uniform up to twice that; or heavy-tailed (Pareto, exponent 1.5, with that mean, at most a \
thousand times as long). At the end timers that have long to wait are cancelled, the others fire.

Examples:
  stress timers
  stress timers --pollers 2 --deadlines uniform --timeout 200ms --in-flight 1000000
  stress timers --wheel --cancels 0.5 --reschedules 0.4";

/// How deadlines are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Deadlines {
    /// All the same.
    Fixed,
    /// Uniform up to twice the timeout.
    Uniform,
    /// A Pareto distribution: mostly short, a few very long.
    Heavy,
}

/// Options of `timers`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Timers {
    /// Threads [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub threads: Option<u32>,
    /// How long to keep the load up, in seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Timers in flight, all threads together
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    pub in_flight: u32,
    /// This many operations a second, all threads together, by a schedule, instead of as many as can be done; their time is taken from
    /// when they were due
    #[arg(long, value_parser = per_second, value_name = "OPERATIONS", conflicts_with = "wheel")]
    pub rate: Option<f64>,
    /// A timer wheel for each thread instead of a queue for all
    #[arg(long)]
    pub wheel: bool,
    /// Threads that poll for what fires; 0 for the queue's own reaper and a handler
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16), conflicts_with = "wheel")]
    pub pollers: u32,
    /// Share of timers that are cancelled, each time that one is looked at
    #[arg(long, default_value_t = 0.9, value_parser = rate, value_name = "RATE")]
    pub cancels: f64,
    /// Share of timers that are moved to another deadline
    #[arg(long, default_value_t = 0.05, value_parser = rate, value_name = "RATE")]
    pub reschedules: f64,
    /// In what order timers are looked at
    #[arg(long, value_enum, default_value_t = Order::Shuffled)]
    pub order: Order,
    /// How deadlines are spread
    #[arg(long, value_enum, default_value_t = Deadlines::Heavy)]
    pub deadlines: Deadlines,
    /// The mean time to a deadline
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub timeout: Duration,
    /// The granularity of time
    #[arg(long, default_value = "1ms", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub interval: Duration,
    /// How much later than promised a timer may fire, because the machine is busy; on the real clock
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub allowance: Duration,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
