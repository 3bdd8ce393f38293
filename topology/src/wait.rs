//! What a thread does while its tasks have nothing to do.

use std::time::Duration;

/// How a thread waits whose tasks have nothing to do.
///
/// # Examples
///
/// ```
/// # use expiry_topology::{sink, TopologyBuilder, VecSpout};
/// use expiry_topology::WaitStrategy;
/// use std::time::Duration;
///
/// # let topology = TopologyBuilder::new();
/// topology.wait(WaitStrategy::Progressive { spins: 1000, yields: 0 });
/// # let numbers = topology.spout("numbers", |_| VecSpout::new(0..100));
/// # topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&numbers);
/// let topology = topology.start()?;
/// topology.wait(Duration::from_secs(60))?;
/// assert_eq!(topology.metrics()[0].acked, 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Spins, then yields, then parks. The default: 32 rounds of each.
    Progressive {
        /// Number of rounds in which the thread spins.
        spins: u32,
        /// Number of rounds after them in which the thread yields.
        yields: u32,
    },
    /// Parks at once. An idle thread takes no cycles, and each message on an idle path costs its
    /// sender a system call.
    Park,
    /// Sleeps for so long in each round, but not beyond a pause or a tick that is due. (The pause
    /// of a spout that is [`Idle`](crate::Next::Idle) is a millisecond.) A spout's message that
    /// times out, activation, deactivation and the topology's end wake the thread. Other messages,
    /// acks, wakers and room in a queue do not: a message costs its sender no system call, and
    /// waits for half of that time on average on an idle path. While the topology is
    /// [drained](crate::Topology::drain), the thread [parks](Self::Park). A time of zero keeps it
    /// busy.
    Sleep(Duration),
}

impl Default for WaitStrategy {
    fn default() -> Self {
        WaitStrategy::Progressive { spins: 32, yields: 32 }
    }
}
