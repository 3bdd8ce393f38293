//! The published figures, one module each.

pub mod child;
pub mod expiry;
pub mod growth;
pub mod idle;
pub mod keyed;
pub mod lifecycle;
pub mod memory;
pub mod timeouts;
pub mod topology;
pub mod touch;
pub mod wheel;

use crate::window::Order;
use std::path::PathBuf;
use std::time::Duration;

/// What the command line asks for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Interleaved rounds of everything; a third of them, at least one, where a round is of 10 M or more.
    pub rounds: usize,
    /// How many trees in flight; each figure has its own default.
    pub in_flight: Option<Vec<usize>>,
    /// How many threads the lifecycle and the keyed stores run on.
    pub threads: Vec<usize>,
    /// Orders in which the lifecycle's trees complete.
    pub orders: Vec<Order>,
    /// Of the lifecycle, the wheel and the keyed stores, only those whose name contains this; for
    /// profiling. The keyed stores go by the names that `child` takes, such as `map`.
    pub only: Option<String>,
    /// The kinds of keys of the keyed stores.
    pub keys: Vec<String>,
    /// An older build of this program, whose stores run in turn with this one's.
    pub against: Option<PathBuf>,
    /// Whether sizes go up to 10 M.
    pub full: bool,
    /// How long the reaper is watched.
    pub watch: Duration,
    /// Print one object at the end.
    pub json: bool,
}

impl Options {
    fn rounds_at(&self, in_flight: usize) -> usize {
        if in_flight >= 10_000_000 {
            self.rounds.div_ceil(3)
        } else {
            self.rounds
        }
    }

    /// The sizes that the command line names, or else `default`, and 10 M if it asks for it.
    fn loads(&self, default: &[usize]) -> Vec<usize> {
        let full = [10_000_000].into_iter().filter(|_| self.full);
        let default = default.iter().copied().chain(full);
        self.in_flight.clone().unwrap_or_else(|| default.collect())
    }

    /// The sizes of figures that hold from the cache to main memory.
    fn sizes(&self) -> Vec<usize> {
        self.loads(&[1_000, 10_000, 100_000, 1_000_000])
    }

    /// Whether text is printed as it comes.
    fn is_text(&self) -> bool {
        !self.json
    }

    /// Progress, where it disturbs nobody who reads the output.
    fn say(&self, what: &str) {
        if !self.json {
            eprintln!("   .. {what}");
        }
    }
}

/// 100 K, 1 M, 10 M.
#[must_use]
pub fn count(n: usize) -> String {
    match n {
        n if n >= 1_000_000 && n % 1_000_000 == 0 => format!("{} M", n / 1_000_000),
        n if n >= 1000 && n % 1000 == 0 => format!("{} K", n / 1000),
        n => n.to_string(),
    }
}
