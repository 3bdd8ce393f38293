//! Options of `faults`.

use clap::Args;
use serde::Serialize;
use std::time::Duration;

/// The long help's end.
pub const HELP: &str = "\
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
shutdown ends untold, as the docs of the queue say, are looked at before.

Examples:
  stress faults
  stress faults --only threads_die --only memory_refused --size 1000000
  stress faults --stall 10s --seed 7 --json";

/// Options of `faults`.
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
