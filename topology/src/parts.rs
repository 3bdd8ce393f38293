//! Parts for tests: a spout of given messages, and a bolt that keeps what comes.

use crate::collect::{BoltCollector, SpoutCollector};
use crate::component::{Bolt, Context, Next, Spout};
use crate::replay::{Failure, Replay};
use crate::task::lock;
use crate::tuple::Tuple;
use std::iter::Enumerate;
use std::sync::{Arc, Mutex};

/// A spout of given messages, for tests. The id of a message is its number, from 0. The spout is
/// done when all messages are emitted, and notes which of them are acked and which are given up: at
/// their first failure, unless [`replay`](crate::SpoutStage::replay) is set.
///
/// Clones share the messages and the notes. So the tasks that [`instances`](Self::instances) makes
/// divide the messages among them, and an instance that follows a panic goes on where the other one
/// ended. `|_| VecSpout::new(0..10)` gives each task all of them.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, ManualClock, TopologyBuilder, VecSpout};
///
/// let (given, topology) = (VecSpout::new([3, 4, 5]), TopologyBuilder::new());
/// let numbers = topology.spout("numbers", given.instances());
/// topology
///     .bolt("even", |_| sink(|n: &u64, _| if n % 2 == 0 { Ok(()) } else { Err("it is odd") }))
///     .shuffle(&numbers);
/// assert!(topology.simulate(&ManualClock::new())?.settle(100));
/// assert_eq!(given.acked(), [1]);
/// let (id, why) = &given.failed()[1];
/// assert_eq!((*id, why.to_string().as_str()), (2, r#"it was failed by "even": it is odd"#));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Debug, Clone)]
pub struct VecSpout<M>(Arc<Mutex<Given<M>>>);

#[derive(Debug)]
struct Given<M> {
    left: Enumerate<std::vec::IntoIter<M>>,
    acked: Vec<u64>,
    failed: Vec<(u64, Failure)>,
}

impl<M: Clone + Send + 'static> VecSpout<M> {
    /// A spout of these messages.
    pub fn new(messages: impl IntoIterator<Item = M>) -> Self {
        let messages: Vec<M> = messages.into_iter().collect();
        let left = messages.into_iter().enumerate();
        VecSpout(Arc::new(Mutex::new(Given { left, acked: Vec::new(), failed: Vec::new() })))
    }

    /// Returns what makes clones of this spout, for
    /// [`TopologyBuilder::spout`](crate::TopologyBuilder::spout).
    pub fn instances(&self) -> impl Fn(&Context) -> Self + Send + Sync + 'static {
        let spout = self.clone();
        move |_| spout.clone()
    }

    /// The ids of the acked messages, in the order of their acks.
    #[must_use]
    pub fn acked(&self) -> Vec<u64> {
        lock(&self.0).acked.clone()
    }

    /// The ids of the messages that were given up, each with its failure, in that order.
    #[must_use]
    pub fn failed(&self) -> Vec<(u64, Failure)> {
        lock(&self.0).failed.clone()
    }
}

impl<M: Clone + Send + 'static> Spout<M> for VecSpout<M> {
    fn replay_by_default() -> Replay {
        Replay::once()
    }

    fn next(&mut self, out: &mut SpoutCollector<'_, M>) -> Next {
        let next = lock(&self.0).left.next();
        // A spout is asked only while there is room.
        next.map_or(Next::Done, |(id, message)| {
            out.emit(message, id as u64).map_or(Next::Idle, |()| Next::Ready)
        })
    }

    fn ack(&mut self, id: u64) {
        lock(&self.0).acked.push(id);
    }

    fn fail(&mut self, id: u64, failure: &Failure) {
        lock(&self.0).failed.push((id, failure.clone()));
    }
}

/// A bolt that keeps the messages that come, and acks them, for tests. Clones share what they keep.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Collect, ManualClock, TopologyBuilder, VecSpout};
///
/// let (squares, topology) = (Collect::new(), TopologyBuilder::new());
/// let numbers = topology.spout("numbers", |_| VecSpout::new([3, 4]));
/// let square = topology.bolt("square", |_| basic(|n: &u64, out| out.emit(n * n))).shuffle(&numbers);
/// topology.bolt("squares", squares.instances()).shuffle(&square);
/// assert!(topology.simulate(&ManualClock::new())?.settle(100));
/// assert_eq!(squares.all(), [9, 16]);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Collect<M>(Arc<Mutex<Vec<M>>>);

impl<M> Default for Collect<M> {
    fn default() -> Self {
        Collect(Arc::default())
    }
}

impl<M: Clone + Send + 'static> Collect<M> {
    /// A bolt that has kept nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what makes clones of this bolt, for
    /// [`TopologyBuilder::bolt`](crate::TopologyBuilder::bolt).
    pub fn instances(&self) -> impl Fn(&Context) -> Self + Send + Sync + 'static {
        let bolt = self.clone();
        move |_| bolt.clone()
    }

    /// Copies of the messages that have come, in that order.
    #[must_use]
    pub fn all(&self) -> Vec<M> {
        lock(&self.0).clone()
    }

    /// Takes out the messages that have come since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<M> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl<M: Clone + Send + 'static> Bolt<M> for Collect<M> {
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_>) {
        let message = tuple.message().clone();
        lock(&self.0).push(message);
        out.ack(tuple);
    }
}

#[cfg(test)]
#[path = "../tests/unit/parts.rs"]
mod tests;
