//! The settings of a spout.

use super::common::common_settings;
use super::spec::{Kind, Spec, SpoutKind, StreamSpec};
use crate::graph::FieldHash;
use crate::replay::Replay;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// A spout's settings.
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
/// use expiry_topology::{basic, Replay, TopologyBuilder};
/// use std::time::Duration;
///
/// let mut topology = TopologyBuilder::new();
/// let mut numbers = topology.spout("numbers", |context| Numbers(0..10 * (1 + context.task() as u64)));
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
