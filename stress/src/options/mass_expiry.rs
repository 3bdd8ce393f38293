//! Options of `mass-expiry`.

use super::{rate, seconds};
use clap::Args;
use serde::Serialize;
use std::time::Duration;

/// The long help's end.
pub const HELP: &str = "\
Threads fill an ExpiryQueue with entries that are all due an hour later, in as many intervals as asked for, renew some of them, and go on \
inserting, renewing and removing keys of their own, each operation timed. Then the clock leaps over that hour, and all of \
it expires: by the reaper, or by pollers with a budget; the threads go on, and renew and remove what is about to expire. What they did \
before is compared with what they do during. In the report foreground operations are those of their own keys.

With a reaper, the first expiry's handler does not return until each thread has done a thousand operations more: \
who waited for the one that drives would wait for ever.

A poll gives at most as many entries as its budget, and 15 to finish a bucket that it has begun.

Examples:
  stress mass-expiry
  stress mass-expiry --entries 10000000 --pollers 2 --budget 1000";

/// Options of `mass-expiry`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct MassExpiry {
    /// How many entries expire
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=1 << 30))]
    pub entries: u32,
    /// In how many intervals
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub intervals: u32,
    /// Threads that go on meanwhile [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub threads: Option<u32>,
    /// Threads that poll; 0 for the queue's own reaper and a handler
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    pub pollers: u32,
    /// What a poll, or a round of the reaper, may do
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub budget: u32,
    /// Share of the entries that are renewed or removed before
    #[arg(long, default_value_t = 0.1, value_parser = rate, value_name = "RATE")]
    pub renew: f64,
    /// How long the threads' operations are timed before, in seconds
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// The granularity of time
    #[arg(long, default_value = "1ms", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub interval: Duration,
    /// How much later than promised an expiry may be told, and how long the foreground may stand still, because the machine is busy
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub allowance: Duration,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
