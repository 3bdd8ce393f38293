//! Options of `growth`.

use super::rate;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// The long help's end.
pub const HELP: &str = "\
From the default size to --entries, from all threads: an ack tracker with issued roots, one with chosen roots, and an expiring map of \
integers, one after another. Each insert is timed. Readers look meanwhile for what was in before they \
began to look, and must find it. Then each entry is looked up by its key, all of them end, each once, and memory is given back.

Bytes an entry are those by which the process grew in it, less 8 MiB for the harness and the chunks that threads sit in. What the \
defaults allow is what docs/performance.md has measured for many entries, and a third to a half more: an index may just have doubled.

With --bounded the capacity is --entries, and threads insert twice as many: exactly so many get in, each of the others is refused as \
full, and never while there is room; what is removed makes exactly as much room again. Bytes and readers are no part of that.

Examples:
  stress growth
  stress growth --entries 10000000 --on map --readers 2 --report growth.html
  stress growth --bounded --entries 100000";

/// What grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grown {
    /// An ack tracker that issues the roots.
    Issued,
    /// An ack tracker with chosen roots.
    Chosen,
    /// An expiring map.
    Map,
}

/// Options of `growth`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Growth {
    /// What grows; may be repeated [default: all of them]
    #[arg(long, value_enum)]
    pub on: Vec<Grown>,
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
    /// Most bytes that an issued root may take
    #[arg(long, default_value_t = 48, value_name = "BYTES")]
    pub bytes_issued: u32,
    /// Most bytes that a chosen root may take
    #[arg(long, default_value_t = 88, value_name = "BYTES")]
    pub bytes_chosen: u32,
    /// Most bytes that an entry of the map may take, its key and value included
    #[arg(long, default_value_t = 120, value_name = "BYTES")]
    pub bytes_map: u32,
    /// Share of the memory that must be given back once all has ended
    #[arg(long, default_value_t = 0.85, value_parser = rate, value_name = "SHARE")]
    pub given_back: f64,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
