//! The settings of a spout.

use super::common::common_settings;
use super::spec::{Kind, Spec, SpoutKind, StreamSpec};
use crate::graph::FieldHash;
use crate::replay::{DeadLetter, Replay};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// A spout's settings.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Replay, TopologyBuilder, VecSpout};
/// use std::time::Duration;
///
/// let mut topology = TopologyBuilder::new();
/// let mut numbers = topology.spout("numbers", |context| VecSpout::new(0..10 * (1 + context.task() as u64)));
/// numbers.parallelism(2).max_pending(100).timeout(Duration::from_secs(5)).replay(Replay::default());
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(1_000));
/// assert_eq!((topology.metrics()[0].tasks, topology.metrics()[0].acked), (2, 30));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct SpoutSpec<'a, M> {
    pub(super) spec: &'a mut Spec<M>,
}

impl<M: 'static> SpoutSpec<'_, M> {
    common_settings!();

    /// The most messages that each of the spout's tasks may have pending: in flight, held by bolts,
    /// or waiting to be emitted again. The bound is exact. The default is 4096. Each takes a
    /// hundred bytes and its message, from the start. If a bolt acks in its ticks only, no more
    /// than that goes through between two ticks.
    pub fn max_pending(&mut self, most: usize) -> &mut Self {
        self.set(|spout| spout.max_pending = most)
    }

    /// How long a message may take, instead of the topology's timeout.
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.set(|spout| spout.timeout = Some(timeout))
    }

    /// Messages that fail or time out are emitted again. Without this setting the spout's `fail` is
    /// called at the first failure.
    pub fn replay(&mut self, replay: Replay) -> &mut Self {
        self.set(|spout| spout.replay = Some(replay))
    }

    /// Declares a stream of the spout for its messages that are given up; bolts listen to it as to
    /// any other. `message` makes what is emitted there: `|letter| letter.message`. A topology's
    /// [handler](crate::TopologyBuilder::on_dead_letter) is not called for this spout.
    ///
    /// The letter gets a tree of its own and takes its message's place among the pending ones. The
    /// spout's `fail` is called when that tree is acked: the letter is where it belongs by then. A
    /// letter that fails or times out is [replayed](Self::replay) as a message would be. If all its
    /// attempts fail, or a bolt rejects it, that is reported as an error, and `fail` is called. A
    /// copy of each pending message is kept.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, TopologyBuilder, VecSpout};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| VecSpout::new(0..5)).dead_letters("odd", |letter| letter.message);
    /// topology
    ///     .bolt("even", |_| basic(|n: &u64, out| if n % 2 == 1 { out.reject("it is odd") }))
    ///     .shuffle("numbers");
    /// topology.bolt("odd", |_| basic(|n: &u64, _| assert!(n % 2 == 1))).shuffle(("numbers", "odd"));
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100) && topology.is_finished());
    /// let metrics = topology.metrics();
    /// assert_eq!((metrics[0].acked, metrics[0].dead_letters, metrics[2].acked), (3, 2, 2));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn dead_letters(
        &mut self,
        stream: &str,
        message: impl Fn(DeadLetter<M>) -> M + Send + Sync + 'static,
    ) -> &mut Self {
        let number = self.spec.streams.len();
        let emitted = move |letter| Some((number, message(letter)));
        self.set(|spout| spout.on_dead_letter = Some(Arc::new(emitted)));
        self.stream(stream)
    }

    fn set(&mut self, set: impl FnOnce(&mut SpoutKind<M>)) -> &mut Self {
        if let Kind::Spout(spout) = &mut self.spec.kind {
            set(spout);
        }
        self
    }
}

impl<M> fmt::Debug for SpoutSpec<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpoutSpec").field(&self.spec.name).finish()
    }
}
