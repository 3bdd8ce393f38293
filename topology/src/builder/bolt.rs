//! The settings of a bolt: what it listens to, and how messages are divided among its tasks.

use super::common::common_settings;
use super::spec::{BoltKind, Input, Kind, Spec, StreamSpec};
use crate::graph::{FieldHash, Grouping, DEFAULT};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Names a stream of a component: `"lines"` is the default stream of `lines`, `("lines", "late")`
/// another one.
///
/// # Examples
///
/// ```
/// use expiry_topology::{Source, DEFAULT};
///
/// assert_eq!(Source::from("lines"), Source::from(("lines", DEFAULT)));
/// assert_ne!(Source::from("lines"), Source::from(("lines", "late")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    component: String,
    stream: String,
}

impl From<&str> for Source {
    fn from(component: &str) -> Self {
        (component, DEFAULT).into()
    }
}

impl From<(&str, &str)> for Source {
    fn from((component, stream): (&str, &str)) -> Self {
        Source { component: component.to_string(), stream: stream.to_string() }
    }
}

/// A bolt's settings. Groupings add up: a bolt that listens twice to a stream gets each of its
/// messages twice.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, TopologyBuilder, VecSpout};
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("odd", |_| VecSpout::new(0..3));
/// topology.spout("even", |_| VecSpout::new(0..4));
/// let mut sink = topology.bolt("sink", |_| basic(|_: &u64, _| ()));
/// sink.shuffle("odd").shuffle("even").all("even").parallelism(2); // one of two, and both of them
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(1_000));
/// assert_eq!(topology.metrics()[2].executed, 3 + 4 + 2 * 4);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct BoltSpec<'a, M> {
    pub(super) spec: &'a mut Spec<M>,
}

impl<M: 'static> BoltSpec<'_, M> {
    common_settings!();

    /// Each message of the stream goes to one of the bolt's tasks, in turn.
    pub fn shuffle(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Shuffle)
    }

    /// Each message goes to the task that has the emitting task's number (modulo the number of the
    /// bolt's tasks). Pairs of tasks so stay together, on neighbouring caches. All tasks are in one
    /// process.
    pub fn local_or_shuffle(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::LocalOrShuffle)
    }

    /// Messages with the same values in these fields go to the same task.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, TopologyBuilder, VecSpout};
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| VecSpout::new(0..100)).computed_field("parity", |n: &u64| n % 2);
    /// topology
    ///     .bolt("sink", move |context| {
    ///         let (task, sender) = (context.task(), sender.clone());
    ///         basic(move |n: &u64, _| sender.send((n % 2, task)).expect("it is read"))
    ///     })
    ///     .parallelism(4)
    ///     .fields("numbers", ["parity"]);
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(1_000));
    /// let mut places: Vec<(u64, usize)> = came.try_iter().collect();
    /// places.sort();
    /// places.dedup();
    /// assert_eq!(places.len(), 2); // each parity has one task
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn fields<'f>(
        &mut self,
        source: impl Into<Source>,
        fields: impl IntoIterator<Item = &'f str>,
    ) -> &mut Self {
        let fields = fields.into_iter().map(str::to_string).collect();
        self.listen(source.into(), Grouping::Fields(fields))
    }

    /// Each message goes to all of the bolt's tasks.
    pub fn all(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::All)
    }

    /// All messages go to the bolt's first task.
    pub fn global(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Global)
    }

    /// The emitting component chooses the task, with `emit_direct`. Messages that are emitted
    /// otherwise on this stream do not come to this bolt.
    pub fn direct(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Direct)
    }

    /// Has [`tick`](crate::Bolt::tick) called in each of the bolt's tasks, about so often. If the
    /// bolt acks in there, the [timeout](crate::TopologyBuilder::timeout) has to be longer, or all
    /// tuples that it holds time out.
    pub fn tick_every(&mut self, time: Duration) -> &mut Self {
        self.set(|bolt| bolt.tick = Some(time))
    }

    fn set(&mut self, set: impl FnOnce(&mut BoltKind<M>)) -> &mut Self {
        if let Kind::Bolt(bolt) = &mut self.spec.kind {
            set(bolt);
        }
        self
    }

    fn listen(&mut self, source: Source, grouping: Grouping) -> &mut Self {
        let input = Input { source: source.component, stream: source.stream, grouping };
        self.set(|bolt| bolt.inputs.push(input))
    }
}

impl<M> fmt::Debug for BoltSpec<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoltSpec").field(&self.spec.name).finish()
    }
}
