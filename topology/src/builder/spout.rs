//! Spouts, while they are declared.

use super::spec::{Kind, SpoutKind};
use super::stage::{stage, Stage};
use super::Stream;
use crate::emit::Output;
use crate::replay::{DeadLetter, Replay};
use expiry::Lifetime;
use std::sync::Arc;
use std::time::Duration;

/// A spout of a topology that is being declared: for its settings, and for bolts that listen to it.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, ManualClock, Replay, TopologyBuilder, VecSpout};
/// use std::time::Duration;
///
/// let topology = TopologyBuilder::new();
/// let numbers = topology
///     .spout("numbers", |context| VecSpout::new(0..10 * (1 + context.task() as u64)))
///     .parallelism(2)
///     .max_pending(100)
///     .timeout(Duration::from_secs(5))
///     .replay(Replay::default());
/// topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&numbers);
/// let mut topology = topology.simulate(&ManualClock::new())?;
/// assert!(topology.settle(1_000));
/// assert_eq!((topology.metrics()[0].tasks, topology.metrics()[0].acked), (2, 30));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct SpoutStage<'t, M> {
    pub(super) stage: Stage<'t>,
    pub(super) output: Arc<Output<M>>,
    pub(super) letters: Arc<Output<DeadLetter<M>>>,
}

stage!(SpoutStage [] M: output letters);

impl<'t, M: Clone + Send + 'static> SpoutStage<'t, M> {
    /// The most messages that each of the spout's tasks may have pending: in flight, held by bolts,
    /// or waiting to be emitted again. The bound is exact. The default is 4096. Each takes a
    /// hundred bytes and its message, from the start. If a bolt acks in its ticks only, no more
    /// than that goes through between two ticks.
    pub fn max_pending(self, most: usize) -> Self {
        self.set(|spout| spout.max_pending = most)
    }

    /// How long a message may take, instead of the topology's timeout. `Duration::MAX`: no limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        let is_never = timeout == Duration::MAX;
        let timeout = if is_never { Lifetime::Never } else { Lifetime::After(timeout) };
        self.set(|spout| spout.timeout = timeout)
    }

    /// How messages that fail or time out are emitted again, instead of as the [spout's type
    /// says](crate::Spout::replay_by_default). With [`Replay::once`] the spout's `fail` is called
    /// at the first failure.
    pub fn replay(self, replay: Replay) -> Self {
        self.set(|spout| spout.replay = Some(replay))
    }

    /// The messages that are given up, for bolts. Without a listener only the spout's `fail` is
    /// called.
    ///
    /// A letter gets a tree of its own and takes its message's place among the pending ones. The
    /// spout's `fail` is called when that tree is acked: the letter is where it belongs by then. A
    /// letter that fails or times out is [replayed](Self::replay) as a message would be. If all its
    /// attempts fail, or a bolt rejects it, that is reported as an error, and `fail` is called. A
    /// copy of each pending message is kept.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, sink, DeadLetter, ManualClock, TopologyBuilder, VecSpout};
    /// # let topology = TopologyBuilder::new();
    /// let numbers = topology.spout("numbers", |_| VecSpout::new(0..5));
    /// topology
    ///     .bolt("even", |_| sink(|n: &u64, out| if n % 2 == 1 { out.reject("it is odd") }))
    ///     .shuffle(&numbers);
    /// topology
    ///     .bolt("odd", |_| sink(|letter: &DeadLetter<u64>, _| assert!(letter.message % 2 == 1)))
    ///     .shuffle(numbers.dead_letters());
    /// # let mut topology = topology.simulate(&ManualClock::new())?;
    /// # assert!(topology.settle(100) && topology.is_finished());
    /// let metrics = topology.metrics();
    /// assert_eq!((metrics[0].acked, metrics[0].dead_letters, metrics[2].acked), (3, 2, 2));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn dead_letters(&self) -> Stream<'t, DeadLetter<M>> {
        Stream::new(self.stage, &self.letters)
    }

    fn set(self, set: impl FnOnce(&mut SpoutKind)) -> Self {
        self.stage.set(|spec| {
            if let Kind::Spout(spout) = &mut spec.kind {
                set(spout);
            }
        });
        self
    }
}
