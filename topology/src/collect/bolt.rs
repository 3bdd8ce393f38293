//! What a bolt emits and acks with.

use crate::bolt_task::Bench;
use crate::emit::Emitter;
use crate::error::{EmitError, Refused};
use crate::outcomes::Cause;
use crate::tuple::{sealed::derive, Parents, Tuple};
use std::fmt;
use std::time::Duration;

/// What a bolt emits, acks and fails with.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Bolt, BoltCollector, TopologyBuilder, Tuple, VecSpout};
///
/// struct Halve;
///
/// impl Bolt<u64> for Halve {
///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
///         if *tuple % 2 == 0 {
///             out.emit(&tuple, *tuple / 2); // derived from it, and so a part of its tree
///             out.ack(tuple);
///         } else {
///             out.fail(tuple);
///         }
///     }
/// }
///
/// # let mut topology = TopologyBuilder::new();
/// # topology.spout("numbers", |_| VecSpout::new(0..5));
/// # topology.bolt("halve", |_| Halve).shuffle("numbers");
/// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("halve");
/// # let mut topology = topology.start_manual()?;
/// # assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].failed), (3, 2));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct BoltCollector<'a, M> {
    pub(crate) bench: &'a mut Bench<M>,
}

impl<M> fmt::Debug for BoltCollector<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoltCollector")
    }
}

impl<M: Clone> BoltCollector<'_, M> {
    /// The topology's time, from its clock's origin on. In simulations it is the simulated time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.bench.shared.time()
    }

    /// Emits a message on the default stream that is derived from `parents`: `&tuple`, `&[&a, &b]`,
    /// or `()` for an untracked message. Never waits. Emit before acking the parents; the compiler
    /// enforces that.
    pub fn emit(&mut self, parents: impl Parents<M>, message: M) {
        // The default stream exists, and a message that is not for one task always finds its tasks.
        let _ = self.send(Ok(0), None, &parents, message);
    }

    /// As [`emit`](Self::emit), on another stream.
    ///
    /// # Errors
    ///
    /// [`Refused::UndeclaredStream`], with the message.
    pub fn emit_on(
        &mut self,
        stream: &str,
        parents: impl Parents<M>,
        message: M,
    ) -> Result<(), EmitError<M>> {
        let stream = self.bench.emitter.stream(stream);
        self.send(stream, None, &parents, message)
    }

    /// As [`emit_on`](Self::emit_on), to this task of each bolt that listens
    /// [directly](crate::BoltSpec::direct).
    ///
    /// # Errors
    ///
    /// As [`emit_on`](Self::emit_on), and [`Refused::NoSuchTask`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Bolt, BoltCollector, Refused, TopologyBuilder, Tuple, DEFAULT, VecSpout};
    /// struct Router;
    ///
    /// impl Bolt<u64> for Router {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         let refused = out.emit_direct(DEFAULT, *tuple as usize, &tuple, *tuple).err();
    ///         assert_eq!(refused.map(|refused| refused.why), (*tuple == 3).then_some(Refused::NoSuchTask));
    ///         out.ack(tuple);
    ///     }
    /// }
    ///
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| VecSpout::new(0..4));
    /// # topology.bolt("router", |_| Router).shuffle("numbers");
    /// topology
    ///     .bolt("sink", move |context| {
    ///         let (task, sender) = (context.task() as u64, sender.clone());
    ///         basic(move |n: &u64, _| sender.send((task, *n)).expect("it is read"))
    ///     })
    ///     .parallelism(3)
    ///     .direct("router");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100) && topology.metrics()[1].panics == 0);
    /// # let mut came: Vec<_> = came.try_iter().collect();
    /// # came.sort();
    /// assert_eq!(came, [(0, 0), (1, 1), (2, 2)]);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit_direct(
        &mut self,
        stream: &str,
        task: usize,
        parents: impl Parents<M>,
        message: M,
    ) -> Result<(), EmitError<M>> {
        let stream = self.bench.emitter.stream(stream);
        self.send(stream, Some(task), &parents, message)
    }

    fn send(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        parents: &impl Parents<M>,
        message: M,
    ) -> Result<(), EmitError<M>> {
        let anchors = |random: &mut _| derive(parents, || Emitter::<M>::edge(random));
        self.bench.emitter.emit(stream, direct, message, anchors)
    }

    /// Returns the component that emitted a tuple, and the stream. For a tuple of another topology
    /// the answer is meaningless, or two empty names.
    #[must_use]
    pub fn source(&self, tuple: &Tuple<M>) -> (&str, &str) {
        let origin = &tuple.origin;
        let names = self.bench.shared.names.get(origin.component as usize);
        let found = names.and_then(|(component, streams)| {
            Some((&**component, &**streams.get(origin.stream as usize)?))
        });
        found.unwrap_or_default()
    }

    /// Acks a tuple. If its tree has ended, the call does nothing.
    pub fn ack(&mut self, tuple: Tuple<M>) {
        self.bench.ack(tuple);
    }

    /// As [`ack`](Self::ack), but the tracker gets the ack at once, not with the others of its
    /// batch. Returns `false` if one of the tuple's trees had ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple, VecSpout};
    /// struct First;
    ///
    /// impl Bolt<u64> for First {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         assert!(out.ack_now(tuple)); // its tree has not timed out, nor failed elsewhere
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| VecSpout::new(0..5));
    /// # topology.bolt("first", |_| First).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[1].panics), (5, 0));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn ack_now(&mut self, tuple: Tuple<M>) -> bool {
        self.bench.flush_acks();
        self.bench.ack(tuple);
        self.bench.flush_acks()
    }

    /// Fails all trees that a tuple is a part of. Bolts execute other tuples of these trees all the
    /// same.
    pub fn fail(&mut self, tuple: Tuple<M>) {
        self.bench.fail(tuple.roots(), None);
    }

    /// As [`fail`](Self::fail), with a reason. The spouts, their hooks and the handler of dead
    /// letters get it in [`Failure::Failed`](crate::Failure). Allocates.
    pub fn fail_with(&mut self, tuple: Tuple<M>, why: impl fmt::Display) {
        self.bench.fail(tuple.roots(), Some(Cause::Failed(why.to_string().into())));
    }

    /// As [`fail_with`](Self::fail_with), for a tuple that no attempt can get through. Whatever
    /// attempts are left, each message that the tuple was derived from is given up at once, with
    /// [`Failure::Rejected`](crate::Failure).
    ///
    /// The first end of a tree counts. If its tree has failed or timed out before, the rejection is
    /// dropped, and the message is replayed: the bolt can reject it at the next attempt.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{Bolt, BoltCollector, Replay, TopologyBuilder, Tuple, VecSpout};
    /// struct Reciprocal;
    ///
    /// impl Bolt<u64> for Reciprocal {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         match 1_000_u64.checked_div(*tuple) {
    ///             Some(_) => out.ack(tuple),
    ///             None => out.reject(tuple, "it has no reciprocal"),
    ///         }
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| VecSpout::new(0..5)).replay(Replay::default().attempts(100));
    /// topology.bolt("reciprocal", |_| Reciprocal).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// let numbers = &topology.metrics()[0];
    /// assert_eq!((numbers.acked, numbers.replayed, numbers.dead_letters), (4, 0, 1));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn reject(&mut self, tuple: Tuple<M>, why: impl fmt::Display) {
        self.bench.fail(tuple.roots(), Some(Cause::Rejected(why.to_string().into())));
    }

    /// Gives the trees that a tuple is a part of the topology's timeout again, from now on. Returns
    /// `false` if one of them has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple, VecSpout};
    /// # use std::time::Duration;
    /// /// Takes its time, and says so every five seconds.
    /// struct Slow(Vec<Tuple<u64>>);
    ///
    /// impl Bolt<u64> for Slow {
    ///     fn execute(&mut self, tuple: Tuple<u64>, _: &mut BoltCollector<'_, u64>) {
    ///         self.0.push(tuple);
    ///     }
    ///
    ///     fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
    ///         self.0.retain(|tuple| out.reset_timeout(tuple)); // what has ended needs no more work
    ///     }
    /// }
    ///
    /// # let (clock, second, mut topology) = (ManualClock::new(), Duration::from_secs(1), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// # topology.spout("numbers", |_| VecSpout::new(0..1));
    /// topology.timeout(10 * second);
    /// topology.bolt("slow", |_| Slow(Vec::new())).shuffle("numbers").tick_every(5 * second);
    /// # let mut topology = topology.start_manual()?;
    /// for _ in 0..60 {
    ///     assert!(topology.settle(100));
    ///     clock.advance(second);
    /// }
    /// assert_eq!((topology.metrics()[0].pending, topology.metrics()[0].timed_out), (1, 0)); // after a minute
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn reset_timeout(&mut self, tuple: &Tuple<M>) -> bool {
        let Some(tracker) = &self.bench.shared.tracker else {
            return true;
        };
        let renewed = tuple.roots().filter(|&root| tracker.reset_timeout(root).is_ok());
        renewed.count() == tuple.anchors.len()
    }

    /// Reports an error: it is counted, and hooks are called with it.
    pub fn report(&mut self, error: &dyn fmt::Display) {
        self.bench.emitter.report(error);
    }
}
