//! What a task does while it has nothing to do.

use std::fmt;
use std::time::Duration;

/// What to do in a round in which there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Look again at once.
    Spin,
    /// Let other threads go first.
    Yield,
    /// Sleep for so long, whatever comes.
    Sleep(Duration),
    /// Sleep until something comes, for so long at most. The sender pays a system call for it.
    Park(Duration),
}

/// Decides how a thread waits. Implemented by functions of the count of rounds. Where it panics the
/// thread parks.
///
/// # Examples
///
/// ```
/// # use expiry_topology::{sink, TopologyBuilder, VecSpout};
/// use expiry_topology::{Wait, WaitStrategy};
/// use std::time::Duration;
///
/// /// Spins for so many rounds.
/// struct Busy(u32);
///
/// impl WaitStrategy for Busy {
///     fn wait(&self, nth: u32) -> Wait {
///         if nth < self.0 { Wait::Spin } else { Wait::Park(Duration::MAX) }
///     }
/// }
///
/// # let topology = TopologyBuilder::new();
/// topology.wait(Busy(100));
/// # let numbers = topology.spout("numbers", |_| VecSpout::new(0..100));
/// # topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&numbers);
/// let topology = topology.start()?;
/// topology.wait(Duration::from_secs(60))?;
/// assert_eq!(topology.metrics()[0].acked, 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait WaitStrategy: Send + Sync + 'static {
    /// What to do in the `nth` round in a row in which there was nothing to do, counted from 0.
    fn wait(&self, nth: u32) -> Wait;
}

impl<F: Fn(u32) -> Wait + Send + Sync + 'static> WaitStrategy for F {
    fn wait(&self, nth: u32) -> Wait {
        self(nth)
    }
}

impl fmt::Debug for dyn WaitStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitStrategy")
    }
}

/// Sleeps for the same time in every round, Storm's way: a message waits for half of it on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sleeping(pub Duration);

impl WaitStrategy for Sleeping {
    fn wait(&self, _nth: u32) -> Wait {
        Wait::Sleep(self.0)
    }
}

/// Parks at once: no wasted cycles, and a system call for each message on an idle path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parking;

impl WaitStrategy for Parking {
    fn wait(&self, _nth: u32) -> Wait {
        Wait::Park(Duration::MAX)
    }
}

/// Spins, then yields, then parks. The default: 32 rounds of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progressive {
    /// How many rounds it spins.
    pub spins: u32,
    /// How many rounds it yields after that.
    pub yields: u32,
}

impl Default for Progressive {
    fn default() -> Self {
        Progressive { spins: 32, yields: 32 }
    }
}

impl WaitStrategy for Progressive {
    fn wait(&self, nth: u32) -> Wait {
        if nth < self.spins {
            Wait::Spin
        } else if nth - self.spins < self.yields {
            Wait::Yield
        } else {
            Wait::Park(Duration::MAX)
        }
    }
}
