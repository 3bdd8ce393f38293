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
    /// Of the lifecycle, the wheel and the keyed stores, only those whose name contains this; for profiling. Nothing is compared.
    pub only: Option<String>,
    /// Of the keyed stores, with this kind of keys alone.
    pub keys: Option<String>,
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

    fn loads(&self, default: &[usize]) -> Vec<usize> {
        self.in_flight.clone().unwrap_or_else(|| default.to_vec())
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
