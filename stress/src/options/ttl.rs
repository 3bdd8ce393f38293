//! Options of `ttl`.

use super::{factor, per_second, seconds};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The long help's end.
pub const HELP: &str = "\
A row says what a cache's load is made of. Its operations are these on the map:
  get, gets          get; one that finds nothing inserts, as who uses a cache does (but with --no-fill)
  set                insert
  add                insert by the entry, if it is vacant
  replace            insert by the entry, if it is occupied
  cas                insert by the entry, if the key of this thread's last gets still has the value that it found
  append, prepend    insert by the entry what is there, longer by an eighth, for the rest of its time to live
  incr, decr         insert by the entry what is there anew, for the rest of its time to live
  delete             remove
Shares of operations and of times to live are made to add up to 1; an exponent that is NA counts as 0. Times to live \
are divided by the squeeze, so that they pass within the run. In the report fills are misses that inserted, stored the \
requests that did, not_stored those that did not find the key as they wanted it, \
changed the entries that had changed since they were looked at, and were looked at again.

Threads run it on the real clock, as fast as they can: each value must end exactly once, never early, and not be \
found any more by a get that began after its end was told.

The built-in rows are statistics of Twitter's caches (stress/data/README.md).";

/// Options of `ttl`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Ttl {
    /// A table of rows [default: the built-in one]
    #[arg(long, value_name = "FILE.csv")]
    pub mix: Option<PathBuf>,
    /// Which row, by its cluster [default: 23 of the built-in table; otherwise the first]
    #[arg(long, value_name = "CLUSTER")]
    pub row: Option<String>,
    /// How long to keep the load up, in seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Threads [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub threads: Option<u32>,
    /// This many requests a second, all threads together, by a schedule, instead of as many as can be done; their time is taken from
    /// when they were due
    #[arg(long, value_parser = per_second, value_name = "REQUESTS")]
    pub rate: Option<f64>,
    /// Distinct keys [default: by the row's frequency, and no more than --memory allows]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub keys: Option<u32>,
    /// The most that keys and values may take together, in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20), value_name = "MIB")]
    pub memory: u32,
    /// Keys are integers instead of strings of the row's length
    #[arg(long)]
    pub integers: bool,
    /// A get that finds nothing leaves it at that
    #[arg(long)]
    pub no_fill: bool,
    /// What times to live are divided by [default: such that their mean is an eighth of the run]
    #[arg(long, value_parser = factor, value_name = "FACTOR")]
    pub squeeze: Option<f64>,
    /// The granularity of times to live [default: a sixteenth of the shortest, within 1 ms and 1 s]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub interval: Option<Duration>,
    /// How much later than promised an end may be told, because the machine is busy
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub allowance: Duration,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
