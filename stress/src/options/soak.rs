//! Options of `soak`.

use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The long help's end.
pub const HELP: &str = "\
A soak is a row of cycles, a cycle one run of each scenario, one after another in this process, each time with other seeds, \
numbers of threads, sizes, clocks and orders. After each cycle, with everything dropped, resident memory is noted: \
from the second cycle on its maximum in the later half must not be above that in the earlier half by more than a \
tenth and 16 MiB (from the sixth cycle of a process on; before that nothing is judged). A run that fails, panics or gets stuck \
fails the soak, which goes on.

With --log each finished run is a line of JSON in FILE. A soak that was killed goes on where that ends, for \
the time that is left; what failed there has failed. Ctrl-C ends a soak with its report; the run under way does not count.

Examples:
  stress soak --hours 8 --log soak.jsonl
  stress soak --minutes 5 --each 10s --only ack --only ttl
  stress soak --hours 1 --also \"ack --order shuffled --in-flight 1000000 --seconds 30\"";

/// Options of `soak`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Soak {
    /// How many hours
    #[arg(long, value_parser = super::seconds, conflicts_with = "minutes", required_unless_present = "minutes")]
    pub hours: Option<f64>,
    /// How many minutes
    #[arg(long, value_parser = super::seconds)]
    pub minutes: Option<f64>,
    /// How long each run takes, about
    #[arg(long, default_value = "20s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub each: Duration,
    /// How much longer than twenty times that a run may take before it is stuck
    #[arg(long, default_value = "15m", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub patience: Duration,
    /// Runs of this scenario only; may be repeated
    #[arg(long, value_name = "SCENARIO")]
    pub only: Vec<String>,
    /// One more run in each cycle: the arguments of a scenario; may be repeated
    #[arg(long, value_name = "ARGUMENTS")]
    pub also: Vec<String>,
    /// Where finished runs are noted, and read again
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// End after so many cycles
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub cycles: Option<u64>,
    /// Seed of all seeds
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Soak {
    /// How long it is to take.
    pub fn length(&self) -> Duration {
        let minutes = self.minutes.or(self.hours.map(|hours| hours * 60.0));
        Duration::from_secs_f64(minutes.unwrap_or(0.0) * 60.0)
    }
}
