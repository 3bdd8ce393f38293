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
/// impl Bolt<u64> for Sums {
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
/// # let mut topology = expiry_topology::TopologyBuilder::new();
/// topology
///     .bolt("sums", |_| Sums(Vec::new()))
///     .shuffle("numbers")
///     .tick_every(Duration::from_secs(1));
/// ```
pub trait Bolt<M>: Send {
    /// The first call of an instance, also after a restart.
    fn prepare(&mut self, context: &Context) {
        let _ = context;
    }

    /// A tuple has come. The bolt acks or fails it now, or later in another of its calls. A panic
    /// fails the tuple, and another instance of the bolt is made. The tree of the tuple may have
    /// ended, by a failure elsewhere or by a timeout: acking the tuple does nothing then.
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_, M>);

    /// The time that [`tick_every`](crate::BoltSpec::tick_every) set has passed. Ticks come also
    /// while the topology is inactive; none comes while the bolt's output waits for room. While the
    /// topology is [drained](crate::Topology::drain), a tick comes early, once after the tuples
    /// that were executed last.
    fn tick(&mut self, out: &mut BoltCollector<'_, M>) {
        let _ = out;
    }

    /// The bolt's [`Waker`](crate::Waker) was used since the last call. A bolt that holds tuples
    /// until another thread has an answer acks or fails them here. The call comes also while the
    /// topology is inactive or [drained](crate::Topology::drain), which waits for the trees of held
    /// tuples. It waits while the bolt's output waits for room, unless the bolt is on a cycle.
    /// Several wake-ups may make one call.
    fn woken(&mut self, out: &mut BoltCollector<'_, M>) {
        let _ = out;
    }

    /// The last call, also if the topology is killed or dropped. The bolt can neither emit nor ack
    /// any more. When a topology has been [drained](crate::Topology::drain), no bolt holds a
    /// pending tuple.
    fn cleanup(&mut self) {}
}
