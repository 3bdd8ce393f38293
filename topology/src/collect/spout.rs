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
pub struct SpoutCollector<'a, M, Id = u64> {
    pub(crate) desk: &'a mut Desk<M, Id>,
}

impl<M, Id> fmt::Debug for SpoutCollector<'_, M, Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpoutCollector")
    }
}

impl<M: Clone, Id> SpoutCollector<'_, M, Id> {
    /// The topology's time, from its clock's origin on. In simulations it is the simulated time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.desk.shared.time()
    }

    /// How many more messages may be pending, and so may be emitted now.
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
    /// the message and the id.
    pub fn emit(&mut self, message: M, id: Id) -> Result<(), EmitError<M, Id>> {
        self.desk.emit(Ok(0), None, message, id)
    }

    /// As [`emit`](Self::emit), on another stream.
    ///
    /// # Errors
    ///
    /// As [`emit`](Self::emit), and
    /// [`Refused::UndeclaredStream`](crate::Refused::UndeclaredStream).
    pub fn emit_on(&mut self, stream: &str, message: M, id: Id) -> Result<(), EmitError<M, Id>> {
        let stream = self.desk.emitter.stream(stream);
        self.desk.emit(stream, None, message, id)
    }

    /// As [`emit_on`](Self::emit_on), to this task of each bolt that listens
    /// [directly](crate::BoltSpec::direct).
    ///
    /// # Errors
    ///
    /// As [`emit_on`](Self::emit_on), and [`Refused::NoSuchTask`](crate::Refused::NoSuchTask).
    pub fn emit_direct(
        &mut self,
        stream: &str,
        task: usize,
        message: M,
        id: Id,
    ) -> Result<(), EmitError<M, Id>> {
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
    pub fn emit_untracked_on(&mut self, stream: &str, message: M) -> Result<(), EmitError<M>> {
        let stream = self.desk.emitter.stream(stream);
        self.desk.emit_untracked(stream, None, message)
    }

    /// Reports an error: it is counted, and hooks are called with it.
    pub fn report(&mut self, error: &dyn fmt::Display) {
        self.desk.emitter.report(error);
    }
}
