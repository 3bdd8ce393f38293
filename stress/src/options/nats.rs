//! Options of `nats`.

use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// The long help's end.
pub const HELP: &str = "\
Three local brokers and three worker processes. Each line of the files under PATH becomes a message of the stream `lines`; a worker \
reads it, counts its words in a topology, and publishes the counts to the stream `counts`, under the line's number. At the end each \
line must be there, the sum of the counts must equal a direct count, and each line that kills its worker must be one dead letter.

It needs nats-server: one that EXPIRY_NATS_SERVER names, one in PATH, or one that pip fetches, pinned by hash.";

/// Options of `nats`.
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
    /// A worker: its name and the brokers
    #[arg(long, hide = true, num_args = 2)]
    #[serde(skip)]
    pub worker: Option<Vec<String>>,
}
