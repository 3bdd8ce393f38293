//! Options of `sessions`.

use super::{rate, seconds};
use clap::{Args, ValueEnum};
use serde::Serialize;

/// The long help's end.
pub const HELP: &str = "\
All threads update, touch (by key and by handle) and remove the same few keys of an expiry queue, which expire meanwhile; with \
--tracker they create, touch (by id, by handle and in batches), close, move, upgrade and remove sessions, whose touches are collected \
for a leader. Each history must be linearizable: this is `stress histories --on queue`, or `--on sessions`, whose help says more.

With --contended, keys are fresh: threads meet on one, update it up to three times each with timeouts of 0 to 4 \
intervals (0 must be refused), and never touch it again. After each batch all time passes, and what is still there is \
stranded. Time is simulated. --peer drives an algorithm of others in the same way.";

/// Whom to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// ZooKeeper's `ExpiryQueue`, over dashmap.
    Zookeeper,
}

/// Options of `sessions`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Sessions {
    /// Threads that update, touch and remove [default: 3; 2 with --contended]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=48))]
    pub threads: Option<u32>,
    /// How long to keep the load up, in seconds; with --contended no longer than this once threads have met [default: 10; as long as it takes
    /// with --contended --keys]
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Keys, or places at which sessions are met [default: 4]; with --contended, fresh keys that
    /// at least two threads come to [default: 2000000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub keys: Option<u64>,
    /// Sessions of a tracker instead of keys of a queue
    #[arg(long, conflicts_with = "contended")]
    pub tracker: bool,
    /// Fresh keys on which threads meet with a few updates and which nobody touches again
    #[arg(long)]
    pub contended: bool,
    /// Keys are strings instead of integers: the form of the queue that has nodes; with --contended
    #[arg(long, requires = "contended")]
    pub strings: bool,
    /// Threads that poll for what has expired; with --contended [default: none and 1 in turn]
    #[arg(long, requires = "contended", value_parser = clap::value_parser!(u32).range(0..=16))]
    pub pollers: Option<u32>,
    /// Share of keys that a thread removes in the end; with --contended [default: 0 and 0.25 in turn]
    #[arg(long, requires = "contended", value_parser = rate, value_name = "RATE")]
    pub removes: Option<f64>,
    /// Drive this one's algorithm too, to see the check find something; with --contended
    #[arg(long, value_enum, requires = "contended")]
    pub peer: Option<Peer>,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
