//! Collectors: what spouts and bolts emit, ack and fail with.

use crate::bolt_task::Bench;
use crate::emit::Emitter;
use crate::error::{EmitError, Refused};
use crate::spout_task::Desk;
use crate::tuple::{sealed::derive, Parents, Tuple};
use std::fmt;
use std::time::Duration;

/// What a spout emits with, while it is asked for messages.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
///
/// struct Lines(Vec<&'static str>);
///
/// impl Spout<&'static str> for Lines {
///     fn next(&mut self, out: &mut SpoutCollector<'_, &'static str>) -> Next {
///         while out.room() > 0 {
///             let Some(line) = self.0.pop() else { return Next::Done };
///             let id = self.0.len() as u64; // by which `ack` and `fail` name it
///             out.emit(line, id).expect("there is room");
///         }
///         Next::Ready
///     }
/// }
///
/// # let mut topology = TopologyBuilder::new();
/// topology.spout("lines", |_| Lines(vec!["to be", "or not", "to be"])).max_pending(2);
/// # topology.bolt("sink", |_| basic(|_: &&str, _| ())).shuffle("lines");
/// # let mut topology = topology.start_manual()?;
/// # assert!(topology.settle(100));
/// assert_eq!(topology.metrics()[0].acked, 3);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct SpoutCollector<'a, M> {
    pub(crate) desk: &'a mut Desk<M>,
}

impl<M> fmt::Debug for SpoutCollector<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpoutCollector")
    }
}

impl<M: Clone> SpoutCollector<'_, M> {
    /// The topology's time, from its clock's origin on. In simulations it is the simulated one.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{basic, ManualClock, Next, Spout, SpoutCollector, TopologyBuilder};
    /// use std::time::Duration;
    ///
    /// /// Emits the second in which it is asked.
    /// struct Seconds;
    ///
    /// impl Spout<u64> for Seconds {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         let second = out.now().as_secs();
    ///         out.emit(second, 0).map_or(Next::Idle, |()| Next::Done)
    ///     }
    /// }
    ///
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// # topology.spout("seconds", |_| Seconds);
    /// # topology.bolt("sink", move |_| {
    /// #     let sender = sender.clone();
    /// #     basic(move |n: &u64, _| sender.send(*n).expect("it is read"))
    /// # }).shuffle("seconds");
    /// # let mut topology = topology.start_manual()?;
    /// clock.advance(Duration::from_secs(90));
    /// assert!(topology.settle(100));
    /// assert!(came.try_iter().eq([90]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn now(&self) -> Duration {
        self.desk.shared.time()
    }

    /// How many more messages may be emitted before as many are pending as may be.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    ///
    /// struct Many;
    ///
    /// impl Spout<u64> for Many {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         assert_eq!(out.room(), 3);
    ///         while out.room() > 0 {
    ///             out.emit(7, out.room() as u64).expect("there is room");
    ///         }
    ///         assert!(out.emit(7, 0).is_err());
    ///         Next::Done
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("many", |_| Many).max_pending(3);
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("many");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].panics), (3, 0));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn room(&self) -> usize {
        self.desk.room()
    }

    /// Emits a message on the default stream, and tracks all that is derived from it. The spout is told of `id`, once, what has become
    /// of it, when `next` has returned. If nobody listens to the stream it is acked. Never waits.
    ///
    /// # Errors
    ///
    /// [`Refused::MaxPending`] if there is no [room](Self::room), with the message.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// struct One(Sender<u64>);
    ///
    /// impl Spout<&'static str> for One {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, &'static str>) -> Next {
    ///         out.emit("a message", 7).map_or(Next::Idle, |()| Next::Done)
    ///     }
    ///
    ///     fn ack(&mut self, id: u64) {
    ///         self.0.send(id).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, acked) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("one", move |_| One(sender.clone()));
    /// # topology.bolt("sink", |_| basic(|_: &&str, _| ())).shuffle("one");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert!(acked.try_iter().eq([7]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit(&mut self, message: M, id: u64) -> Result<(), EmitError<M>> {
        self.desk.emit(Ok(0), None, message, id)
    }

    /// As [`emit`](Self::emit), on another stream.
    ///
    /// # Errors
    ///
    /// As [`emit`](Self::emit), and [`Refused::UndeclaredStream`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Refused, Spout, SpoutCollector, TopologyBuilder};
    /// struct Two;
    ///
    /// impl Spout<u64> for Two {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         out.emit_on("late", 1, 1).expect("it is declared");
    ///         assert_eq!(out.emit_on("lost", 2, 2).unwrap_err().why, Refused::UndeclaredStream);
    ///         Next::Done
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("two", |_| Two).stream("late");
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle(("two", "late"));
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[1].executed, topology.metrics()[0].panics), (1, 0));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit_on(&mut self, stream: &str, message: M, id: u64) -> Result<(), EmitError<M>> {
        let stream = self.desk.emitter.stream(stream);
        self.desk.emit(stream, None, message, id)
    }

    /// As [`emit_on`](Self::emit_on), to this task of whoever listens [directly](crate::BoltSpec::direct).
    ///
    /// # Errors
    ///
    /// As [`emit_on`](Self::emit_on), and [`Refused::NoSuchTask`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Refused, Spout, SpoutCollector, TopologyBuilder, DEFAULT};
    /// struct Router;
    ///
    /// impl Spout<u64> for Router {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         out.emit_direct(DEFAULT, 2, 7, 0).expect("there is a task 2");
    ///         assert_eq!(out.emit_direct(DEFAULT, 3, 7, 0).unwrap_err().why, Refused::NoSuchTask);
    ///         Next::Done
    ///     }
    /// }
    ///
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("router", |_| Router);
    /// topology
    ///     .bolt("sink", move |context| {
    ///         let (task, sender) = (context.task(), sender.clone());
    ///         basic(move |n: &u64, _| sender.send((task, *n)).expect("it is read"))
    ///     })
    ///     .parallelism(3)
    ///     .direct("router");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100) && topology.metrics()[0].panics == 0);
    /// assert!(came.try_iter().eq([(2, 7)]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit_direct(
        &mut self,
        stream: &str,
        task: usize,
        message: M,
        id: u64,
    ) -> Result<(), EmitError<M>> {
        let stream = self.desk.emitter.stream(stream);
        self.desk.emit(stream, Some(task), message, id)
    }

    /// Emits a message on the default stream that nobody tracks, and that is not pending.
    ///
    /// # Errors
    ///
    /// None today.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// struct Samples;
    ///
    /// impl Spout<u64> for Samples {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         out.emit_untracked(7).map_or(Next::Idle, |()| Next::Done)
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("samples", |_| Samples);
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("samples");
    /// # let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// let samples = &topology.metrics()[0];
    /// assert_eq!((samples.emitted, samples.pending, samples.acked), (1, 0, 0));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit_untracked(&mut self, message: M) -> Result<(), EmitError<M>> {
        self.desk.emit_untracked(Ok(0), None, message)
    }

    /// As [`emit_untracked`](Self::emit_untracked), on another stream.
    ///
    /// # Errors
    ///
    /// [`Refused::UndeclaredStream`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Refused, Spout, SpoutCollector, TopologyBuilder};
    /// struct Samples;
    ///
    /// impl Spout<u64> for Samples {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         out.emit_untracked_on("samples", 7).expect("it is declared");
    ///         assert_eq!(out.emit_untracked_on("lost", 8).unwrap_err().why, Refused::UndeclaredStream);
    ///         Next::Done
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("source", |_| Samples).stream("samples");
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle(("source", "samples"));
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100) && topology.metrics()[0].panics == 0);
    /// assert_eq!((topology.metrics()[1].executed, topology.metrics()[0].acked), (1, 0));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit_untracked_on(&mut self, stream: &str, message: M) -> Result<(), EmitError<M>> {
        let stream = self.desk.emitter.stream(stream);
        self.desk.emit_untracked(stream, None, message)
    }

    /// Notes an error: it is counted, and hooks are told.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// struct Source;
    ///
    /// impl Spout<u64> for Source {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         match "seven".parse() {
    ///             Ok(n) => out.emit(n, 0).map_or(Next::Idle, |()| Next::Ready),
    ///             Err(error) => {
    ///                 out.report(&error); // and goes on
    ///                 Next::Done
    ///             }
    ///         }
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("source", |_| Source);
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("source");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].errors, topology.metrics()[0].panics), (1, 0));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn report(&mut self, error: &dyn fmt::Display) {
        self.desk.emitter.report(error);
    }
}

/// What a bolt emits, acks and fails with.
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
/// use expiry_topology::{basic, Bolt, BoltCollector, TopologyBuilder, Tuple};
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
/// # topology.spout("numbers", |_| Numbers(0..5));
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
    /// The topology's time, from its clock's origin on. In simulations it is the simulated one.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple};
    /// use std::time::Duration;
    ///
    /// /// Acks what has come in the first minute.
    /// struct Early;
    ///
    /// impl Bolt<u64> for Early {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         match out.now() < Duration::from_secs(60) {
    ///             true => out.ack(tuple),
    ///             false => out.fail(tuple),
    ///         }
    ///     }
    /// }
    ///
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// # topology.spout("numbers", |_| Numbers(0..1));
    /// # topology.bolt("early", |_| Early).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// clock.advance(Duration::from_secs(61));
    /// assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[1].acked, topology.metrics()[1].failed), (0, 1));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn now(&self) -> Duration {
        self.bench.shared.time()
    }

    /// Emits a message on the default stream that is derived from `parents`: `&tuple`, `&[&a, &b]`, or `()` for nothing, untracked.
    /// Never waits. To be called before the parents are acked, which the compiler sees to.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// /// Emits the sums of pairs.
    /// struct Pairs(Option<Tuple<u64>>);
    ///
    /// impl Bolt<u64> for Pairs {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         match self.0.take() {
    ///             None => self.0 = Some(tuple),
    ///             Some(first) => {
    ///                 out.emit(&[&first, &tuple], *first + *tuple); // derived from both
    ///                 out.ack(first);
    ///                 out.ack(tuple);
    ///             }
    ///         }
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..4));
    /// # topology.bolt("pairs", |_| Pairs(None)).shuffle("numbers");
    /// # topology.bolt("sink", |_| expiry_topology::basic(|_: &u64, _| ())).shuffle("pairs");
    /// # let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[1].acked, topology.metrics()[0].acked), (4, 0)); // not before the sums are acked
    /// topology.hold("sink", false);
    /// assert!(topology.settle(100) && topology.metrics()[0].acked == 4);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit(&mut self, parents: impl Parents<M>, message: M) {
        // The default stream is there, and a message that goes to nobody in particular always finds them.
        let _ = self.send(Ok(0), None, &parents, message);
    }

    /// As [`emit`](Self::emit), on another stream.
    ///
    /// # Errors
    ///
    /// [`Refused::UndeclaredStream`], with the message.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// struct Sort;
    ///
    /// impl Bolt<u64> for Sort {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         let stream = if *tuple % 3 == 0 { "threes" } else { "others" };
    ///         out.emit_on(stream, &tuple, *tuple).expect("it is declared");
    ///         out.ack(tuple);
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..10));
    /// topology.bolt("sort", |_| Sort).shuffle("numbers").stream("threes").stream("others");
    /// topology.bolt("sink", |_| expiry_topology::basic(|_: &u64, _| ())).shuffle(("sort", "threes"));
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(topology.metrics()[2].executed, 4); // 0, 3, 6, 9
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit_on(
        &mut self,
        stream: &str,
        parents: impl Parents<M>,
        message: M,
    ) -> Result<(), EmitError<M>> {
        let stream = self.bench.emitter.stream(stream);
        self.send(stream, None, &parents, message)
    }

    /// As [`emit_on`](Self::emit_on), to this task of whoever listens [directly](crate::BoltSpec::direct).
    ///
    /// # Errors
    ///
    /// As [`emit_on`](Self::emit_on), and [`Refused::NoSuchTask`].
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Bolt, BoltCollector, Refused, TopologyBuilder, Tuple, DEFAULT};
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
    /// # topology.spout("numbers", |_| Numbers(0..4));
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

    /// Which component has emitted a tuple, and on which of its streams. Nonsense, or two empty names, for a tuple of another topology.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple, DEFAULT};
    /// struct Orders;
    ///
    /// impl Bolt<u64> for Orders {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         match out.source(&tuple) {
    ///             ("orders", DEFAULT) => out.ack(tuple),
    ///             ("returns", _) => out.fail(tuple),
    ///             other => unreachable!("it does not listen to {other:?}"),
    ///         }
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("orders", |_| Numbers(0..3));
    /// topology.spout("returns", |_| Numbers(0..2));
    /// topology.bolt("sink", |_| Orders).shuffle("orders").shuffle("returns");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[1].failed), (3, 2));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn source(&self, tuple: &Tuple<M>) -> (&str, &str) {
        let origin = &tuple.origin;
        let names = self.bench.shared.names.get(origin.component as usize);
        let found = names.and_then(|(component, streams)| {
            Some((&**component, &**streams.get(origin.stream as usize)?))
        });
        found.unwrap_or_default()
    }

    /// Done with a tuple. If its tree has ended it is too late, and nothing happens.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// /// Holds three, and acks them together.
    /// struct Threes(Vec<Tuple<u64>>);
    ///
    /// impl Bolt<u64> for Threes {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         self.0.push(tuple);
    ///         if self.0.len() == 3 {
    ///             self.0.drain(..).for_each(|tuple| out.ack(tuple));
    ///         }
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..5));
    /// # topology.bolt("threes", |_| Threes(Vec::new())).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[1].held), (3, 2));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn ack(&mut self, tuple: Tuple<M>) {
        self.bench.ack(tuple);
    }

    /// As [`ack`](Self::ack), but told to the tracker at once, not with the others of its batch. False if one of its trees had ended.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// struct First;
    ///
    /// impl Bolt<u64> for First {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         assert!(out.ack_now(tuple)); // its tree has not timed out, nor failed elsewhere
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..5));
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

    /// Fails all trees that a tuple is a part of. Other tuples of these trees are executed all the same.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// struct Even;
    ///
    /// impl Bolt<u64> for Even {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         if *tuple % 2 == 0 { out.ack(tuple) } else { out.fail(tuple) }
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..5));
    /// topology.bolt("even", |_| Even).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// let numbers = &topology.metrics()[0];
    /// assert_eq!((numbers.acked, numbers.failed, numbers.dead_letters), (3, 2, 2)); // there is no replay
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn fail(&mut self, tuple: Tuple<M>) {
        self.bench.fail(tuple.roots(), None);
    }

    /// As [`fail`](Self::fail), and says why: to the spouts, their hooks, and who gets dead letters, in
    /// [`Failure::Failed`](crate::Failure). An allocation.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// struct Even;
    ///
    /// impl Bolt<u64> for Even {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         let odd = format!("{} is odd", *tuple);
    ///         if *tuple % 2 == 0 { out.ack(tuple) } else { out.fail_with(tuple, odd) }
    ///     }
    /// }
    ///
    /// # let (sender, letters) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.on_dead_letter(move |letter| sender.send(letter.failure.to_string()).expect("it is read"));
    /// # topology.spout("numbers", |_| Numbers(0..2));
    /// # topology.bolt("even", |_| Even).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(letters.try_recv()?, r#"it was failed by "even": 1 is odd"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fail_with(&mut self, tuple: Tuple<M>, why: impl fmt::Display) {
        self.bench
            .fail(tuple.roots(), Some(&why.to_string().into()));
    }

    /// Gives the trees that a tuple is a part of the topology's timeout again, from now on. False if one of them has ended.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple};
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
    /// # topology.spout("numbers", |_| Numbers(0..1));
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
        let renewed = tuple
            .roots()
            .filter(|&root| tracker.reset_timeout(root).is_ok());
        renewed.count() == tuple.anchors.len()
    }

    /// Notes an error: it is counted, and hooks are told.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// struct Even;
    ///
    /// impl Bolt<u64> for Even {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         if *tuple % 2 == 1 {
    ///             out.report(&format!("{} is odd", *tuple)); // and nothing to be replayed for
    ///         }
    ///         out.ack(tuple);
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..5));
    /// # topology.bolt("even", |_| Even).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[1].errors, topology.metrics()[1].acked), (2, 5));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn report(&mut self, error: &dyn fmt::Display) {
        self.bench.emitter.report(error);
    }
}
