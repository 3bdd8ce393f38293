//! What a spout emits with.

use crate::error::EmitError;
use crate::spout_task::Desk;
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
    /// The topology's time, from its clock's origin on. In simulations it is the simulated time.
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

    /// How many more messages may be pending, and so may be emitted now.
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

    /// Emits a message on the default stream, and tracks all that is derived from it. The spout is
    /// called with the outcome once, by `id`, after `next` has returned. If no bolt listens to the
    /// stream, the message is acked. Never waits.
    ///
    /// # Errors
    ///
    /// [`Refused::MaxPending`](crate::Refused::MaxPending) if there is no [room](Self::room), with
    /// the message.
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
    /// As [`emit`](Self::emit), and
    /// [`Refused::UndeclaredStream`](crate::Refused::UndeclaredStream).
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

    /// As [`emit_on`](Self::emit_on), to this task of each bolt that listens
    /// [directly](crate::BoltSpec::direct).
    ///
    /// # Errors
    ///
    /// As [`emit_on`](Self::emit_on), and [`Refused::NoSuchTask`](crate::Refused::NoSuchTask).
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

    /// Emits an untracked message on the default stream. It is never pending.
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
    /// [`Refused::UndeclaredStream`](crate::Refused::UndeclaredStream).
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

    /// Reports an error: it is counted, and hooks are called with it.
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
