//! Options of `compare`.

use super::Order;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// The long help's end.
pub const HELP: &str = "\
Groups, and who is in them by the name that --peers knows:
  maps       ack trees (init and three acks, full expiry) in bare maps without any expiry: issued, chosen (ours); dashmap, \
papaya, scc, sharded
  expiring   maps whose entries expire: insert, get, renew, remove, a mix of them, and expiry: map (ours); moka, mini-moka, \
delay-queue, sharded; papaya, which does not expire, for get
  timers     timers that all threads schedule and cancel: roots (ours); hash-wheel, btree, heap, wheel
  timeouts   timeouts around a future that yields once, as what they add to it: tokio, tokio-sleep, pingora, pingora-tokio

Everybody does the same work in fresh structures, one after the other, and again in the next round. Nanoseconds are processor time \
of the whole process for an operation, its own threads and what it puts off included; ratios are theirs over ours of the same \
round (above 1 we are faster); throughput and efficiency, which is throughput(N) / (N * throughput(1)), are by real time. \
Bytes are resident size, in a process of its own, key and value included.

Examples:
  stress compare
  stress compare --full --report compare.html
  stress compare --group maps,timers --threads 1,2,4,8 --rounds 9
  stress compare --peers moka,mini-moka --entries 1000000 --json";

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Ack trees beside bare maps.
    Maps,
    /// Maps whose entries expire.
    Expiring,
    /// Timers that threads share.
    Timers,
    /// Timeouts of futures.
    Timeouts,
}

/// Options of `compare`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Compare {
    /// These groups only [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUP,..")]
    pub group: Vec<Group>,
    /// These peers only, beside ours; groups without any of them are left out [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    pub peers: Vec<String>,
    /// Numbers of threads [default: 1, 2, 4 and so on up to the number of cores, and that]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=255), value_name = "N,..")]
    pub threads: Vec<u32>,
    /// Rounds; each is all peers on all numbers of threads [default: 3; with --full 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Entries, trees or timers at a time [default: 100000; with --full 1000000]
    #[arg(long, visible_alias = "in-flight", value_parser = clap::value_parser!(u32).range(100..=50_000_000))]
    pub entries: Option<u32>,
    /// About how many operations of a peer are timed in a round, where not each entry has one [default: ten times the entries]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000_000))]
    pub operations: Option<u32>,
    /// In what order trees are acked
    #[arg(long, value_enum, default_value_t = Order::Shuffled)]
    pub order: Order,
    /// Longer: a million entries, five rounds
    #[arg(long)]
    pub full: bool,
}
