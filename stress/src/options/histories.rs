//! Options of `histories`.

use super::seconds;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// The long help's end.
pub const HELP: &str = "\
A run is a row of rounds, on a map, a queue of integers, one of strings, a tracker with roots that callers choose, one with roots \
that it issues, and a session tracker, in turn; every other time around with a bounded capacity. In a round all threads call at full speed, on few keys, \
and move a manual clock on; a driver does so too, and polls. Noted are each call, its answer, and when it began and ended; what a poll, or a \
handler, told is a call of who told it. Then each key's history must be linearizable: there must be one order, in keeping \
with when each call began and ended, in which every answer is that of a sequential model of the face. The model knows deadlines: what \
is due may end in a poll, must be gone when a poll has gone by, and nothing ends early. A renewal takes nothing back that an earlier \
one was told: only one that asked for less sets a nearer deadline, counted from a reading that is no older. An insertion that has \
ended something first, and told a listener, counts from then. The checker leaves nothing out: a \
history that it refuses has no explanation, and one that it takes has one.

In the report operations are calls and tellings, polls left out; histories are keys of rounds, and each root that was issued; \
configurations_most is how many ways of explaining what had gone by there were at most at one time. The time is that under load; \
checked_per_s is by the time of checking.

A history that has no explanation is printed from the last time that no call was under way.";

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
}

/// Options of `histories`.
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
    /// Keys, or places at which issued roots, or sessions, are met
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub keys: u32,
    /// Operations of each thread in a round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub operations: u32,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
