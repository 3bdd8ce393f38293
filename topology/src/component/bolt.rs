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
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, Context, TopologyBuilder, Tuple};
    /// # use std::sync::mpsc::{channel, Sender};
    /// struct Write(Option<String>, Sender<String>);
    ///
    /// impl Bolt<u64> for Write {
    ///     fn prepare(&mut self, context: &Context) {
    ///         self.0 = Some(format!("part-{}", context.task())); // the file of this task
    ///     }
    ///
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         self.1.send(self.0.clone().expect("it is prepared")).expect("it is read");
    ///         out.ack(tuple);
    ///     }
    /// }
    ///
    /// # let (sender, written) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..2));
    /// # topology.bolt("write", move |_| Write(None, sender.clone())).parallelism(2).all("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// # let mut written: Vec<String> = written.try_iter().collect();
    /// # written.sort();
    /// assert_eq!(written, ["part-0", "part-0", "part-1", "part-1"]);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn prepare(&mut self, context: &Context) {
        let _ = context;
    }

    /// A tuple has come. The bolt acks or fails it now, or later in another of its calls. A panic
    /// fails the tuple, and another instance of the bolt is made. The tree of the tuple may have
    /// ended, by a failure elsewhere or by a timeout: acking the tuple does nothing then.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// struct Even;
    ///
    /// impl Bolt<u64> for Even {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         match *tuple {
    ///             n if n % 2 == 0 => out.ack(tuple),
    ///             7 => panic!("that fails it too"),
    ///             _ => out.fail(tuple),
    ///         }
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..10));
    /// # topology.bolt("even", |_| Even).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// let [numbers, even] = &topology.metrics()[..] else { unreachable!("there are two") };
    /// assert_eq!((numbers.acked, numbers.failed, even.panics), (5, 5, 1));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_, M>);

    /// The time that [`tick_every`](crate::BoltSpec::tick_every) set has passed. Ticks come also
    /// while the topology is inactive; none comes while the bolt's output waits for room. While the
    /// topology is [drained](crate::Topology::drain), a tick comes early, once after the tuples
    /// that were executed last.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple};
    /// # use std::time::Duration;
    /// # #[derive(Default)]
    /// # struct Rate(u64);
    /// impl Bolt<u64> for Rate {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         self.0 += 1;
    ///         out.ack(tuple);
    ///     }
    ///
    ///     fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
    ///         out.emit((), std::mem::take(&mut self.0)); // how many in a second
    ///     }
    /// }
    ///
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// # topology.spout("numbers", |_| Numbers(0..10));
    /// topology.bolt("rate", |_| Rate::default()).shuffle("numbers").tick_every(Duration::from_secs(1));
    /// # topology.bolt("sink", move |_| {
    /// #     let sender = sender.clone();
    /// #     expiry_topology::basic(move |n: &u64, _| sender.send(*n).expect("it is read"))
    /// # }).shuffle("rate");
    /// # let mut topology = topology.start_manual()?;
    /// for _ in 0..3 {
    ///     assert!(topology.settle(100));
    ///     clock.advance(Duration::from_secs(1));
    /// }
    /// assert!(came.try_iter().eq([10, 0]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn tick(&mut self, out: &mut BoltCollector<'_, M>) {
        let _ = out;
    }

    /// The last call, also if the topology is killed or dropped. The bolt can neither emit nor ack
    /// any more. When a topology has been [drained](crate::Topology::drain), no bolt holds a
    /// pending tuple.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// # use std::sync::mpsc::{channel, Sender};
    /// # struct Sum(u64, Sender<u64>);
    /// impl Bolt<u64> for Sum {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         self.0 += *tuple;
    ///         out.ack(tuple);
    ///     }
    ///
    ///     fn cleanup(&mut self) {
    ///         self.1.send(self.0).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, sums) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..5));
    /// # topology.bolt("sum", move |_| Sum(0, sender.clone())).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100) && sums.try_recv().is_err());
    /// drop(topology);
    /// assert_eq!(sums.try_recv()?, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn cleanup(&mut self) {}
}
