//! Options of `sessions`.

use super::{rate, seconds};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::time::Duration;

/// The long help's end.
pub const HELP: &str = "\
A run is a row of rounds. In each, all threads update, touch (by key and by handle) and remove the same keys, \
which expire meanwhile; then all stop, time passes, nothing may be left, and each key's history is judged: there \
must be one order of its operations and expiries, in keeping with when each began and ended, in which every result \
is right, every stay of the key ends once, and none expires before its last deadline, nor before one that it was told earlier unless \
a later renewal asked for less. In the report inserted and renewed \
are updates, gone are touches and removes that found nothing, histories the keys that were judged; the time is that under \
load, without the judging.

With --tracker, the same of the sessions of a tracker: created, touched by id, by handle and in batches, closed, moved, upgraded, \
removed, or returned by its shutdown, while their touches are collected for a leader. Keys are sessions then.

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
    /// Threads that update, touch and remove [default: the number of cores; 2 with --contended]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=48))]
    pub threads: Option<u32>,
    /// Threads that poll for what has expired; 0 for the queue's own reaper and a handler [default: 0; 1 if time is
    /// simulated; with --contended, none and 1 in turn]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=16))]
    pub pollers: Option<u32>,
    /// Simulated time, which passes while the threads are at it, instead of the real clock
    #[arg(long)]
    pub simulated: bool,
    /// How long to keep the load up, in seconds; with --contended no longer than this once threads have met [default: 10; as long as it takes
    /// with --contended --keys]
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Keys of a round [default: 4096]; with --contended, fresh keys that
    /// at least two threads come to [default: 2000000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub keys: Option<u64>,
    /// Keys are strings instead of integers: the form of the queue that has nodes
    #[arg(long)]
    pub strings: bool,
    /// The granularity of timeouts
    #[arg(long, default_value = "1ms", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub interval: Duration,
    /// The longest timeout, in intervals; not with --contended, where it is 4
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub longest: u32,
    /// Share of operations that remove; with --contended, of keys that a thread removes in the end [default: 0.1; with
    /// --contended, 0 and 0.25 in turn]
    #[arg(long, value_parser = rate, value_name = "RATE")]
    pub removes: Option<f64>,
    /// Sessions of a tracker instead of keys of a queue
    #[arg(long, conflicts_with_all = ["strings", "contended"])]
    pub tracker: bool,
    /// Fresh keys on which threads meet with a few updates and which nobody touches again
    #[arg(long)]
    pub contended: bool,
    /// Drive this one's algorithm too, to see the check find something; with --contended
    #[arg(long, value_enum, requires = "contended")]
    pub peer: Option<Peer>,
    /// How much later than promised an expiry may come, because the machine is busy; on the real clock
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub allowance: Duration,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
