//! Bolts: what executes messages.

use super::Context;
use crate::collect::BoltCollector;
use crate::tuple::Tuple;

/// A step of the work. One thread calls all functions of an instance, one after another. An
/// instance that panics is replaced, without a [`cleanup`](Self::cleanup); the tuples that it held
/// time out.
///
/// ```
/// use expiry_topology::{Bolt, BoltCollector, Tuple};
/// # use std::time::Duration;
///
/// /// Emits the sum of what has come since the last tick, and acks it then.
/// struct Sums(Vec<Tuple<u64>>);
///
/// impl Bolt<u64, u64> for Sums {
///     fn execute(&mut self, tuple: Tuple<u64>, _: &mut BoltCollector<'_, u64>) {
///         self.0.push(tuple);
///     }
///
///     fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
///         let sum = self.0.iter().map(|tuple| tuple.message()).sum();
///         out.emit(&self.0, sum); // derived from all of them
///         self.0.drain(..).for_each(|tuple| out.ack(tuple));
///     }
/// }
///
/// # let topology = expiry_topology::TopologyBuilder::new();
/// # let numbers = topology.spout("numbers", |_| expiry_topology::VecSpout::new(0..5));
/// topology
///     .bolt("sums", |_| Sums(Vec::new()))
///     .shuffle(&numbers)
///     .tick_every(Duration::from_secs(1));
/// ```
///
/// It takes messages of type `In` and emits messages of type `Out`; a bolt that emits none has
/// `Out = ()`.
#[allow(unused_variables)]
pub trait Bolt<In, Out = ()>: Send {
    /// The first call of an instance, also after a restart. A topology that
    /// [starts inactive](crate::TopologyBuilder::start_inactive) prepares its bolts at the first
    /// activation.
    fn prepare(&mut self, context: &Context) {}

    /// A tuple has come. The bolt acks or fails it now, or later in another of its calls. A panic
    /// fails the tuple, and another instance of the bolt is made. The tree of the tuple may have
    /// ended, by a failure elsewhere or by a timeout: acking the tuple does nothing then.
    fn execute(&mut self, tuple: Tuple<In>, out: &mut BoltCollector<'_, Out>);

    /// Whether the bolt takes another tuple. Its task asks before each one. Tuples wait in the
    /// queue while it returns `false`, which holds back the components before it. The task asks
    /// again after each other call of the bolt; so a bolt that is not ready uses its
    /// [`Waker`](crate::Waker) when it is.
    fn is_ready(&self) -> bool {
        true
    }

    /// The time that [`tick_every`](crate::BoltStage::tick_every) set has passed. Ticks come also
    /// while the topology is inactive, once the bolt is prepared. None comes while its output
    /// waits for room, unless the bolt is on a cycle. While the topology is
    /// [drained](crate::Topology::drain), a tick comes early: once when the bolt has executed what
    /// there is, is not [ready](Self::is_ready), or was [woken](Self::woken).
    fn tick(&mut self, out: &mut BoltCollector<'_, Out>) {}

    /// The bolt's [`Waker`](crate::Waker) was used since the last call. A bolt that holds tuples
    /// until another thread has an answer acks or fails them here. The call comes also while the
    /// topology is inactive or [drained](crate::Topology::drain), which waits for the trees of held
    /// tuples. It waits while the bolt's output waits for room, unless the bolt is on a cycle.
    /// Several wake-ups may make one call.
    fn woken(&mut self, out: &mut BoltCollector<'_, Out>) {}

    /// The last call, also if the topology is killed or dropped. The bolt can neither emit nor ack
    /// any more. When a topology has been [drained](crate::Topology::drain), no bolt holds a
    /// pending tuple.
    fn cleanup(&mut self) {}
}
