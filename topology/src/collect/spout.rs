//! What a spout emits with.

use crate::error::EmitError;
use crate::spout_task::Desk;
use crate::task::debug;
use std::fmt;
use std::time::Duration;

/// What a spout emits with, while it is asked for messages.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, ManualClock, Next, Spout, SpoutCollector, TopologyBuilder};
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
/// # let topology = TopologyBuilder::new();
/// let lines = topology.spout("lines", |_| Lines(vec!["to be", "or not", "to be"])).max_pending(2);
/// # topology.bolt("sink", |_| sink(|_: &&str, _| ())).shuffle(&lines);
/// # let mut topology = topology.simulate(&ManualClock::new())?;
/// # assert!(topology.settle(100));
/// assert_eq!(topology.metrics()[0].acked, 3);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct SpoutCollector<'a, M, Id = u64> {
    pub(crate) desk: &'a mut Desk<M, Id>,
}

debug!([M, Id] SpoutCollector<'_, M, Id>, |_it| "SpoutCollector");

impl<M: Clone + 'static, Id> SpoutCollector<'_, M, Id> {
    /// The topology's time, from its clock's origin on. In simulations it is the simulated time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.desk.task.shared.time()
    }

    /// How many more messages may be pending, and so may be emitted now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.desk.room()
    }

    /// Emits a message, and tracks all that is derived from it. The spout is called with the
    /// outcome once, by `id`, after `next` has returned. If no bolt gets the message, it is acked.
    /// Never waits. A panic of `M::clone` or of a grouping's closure is caught: it is a failed
    /// attempt of the message, which is replayed or given up.
    ///
    /// # Errors
    ///
    /// [`EmitError`] if there is no [room](Self::room), with the message and the id.
    pub fn emit(&mut self, message: M, id: Id) -> Result<(), EmitError<M, Id>> {
        self.desk.emit(message, id, None)
    }

    /// As [`emit`](Self::emit), for a message that its source may deliver to another process. What
    /// the bolts emit then has the same [lineage](crate::Tuple::lineage) there, if the seed is the
    /// same. No other message has this seed, of this spout or another one.
    ///
    /// # Errors
    ///
    /// As of [`emit`](Self::emit).
    pub fn emit_seeded(&mut self, message: M, id: Id, seed: u64) -> Result<(), EmitError<M, Id>> {
        self.desk.emit(message, id, Some(seed))
    }

    /// Emits an untracked message. It is never pending. If a grouping's closure or `M::clone`
    /// panics, the message is dropped, and the panic is counted and reported.
    pub fn emit_untracked(&mut self, message: M) {
        self.desk.emit_untracked(message);
    }

    /// The tasks that get the message that was emitted last: for each copy the number of the
    /// grouping, among all that listen to the spout, and the task's number in its bolt. Groupings
    /// are numbered from 0, in the order of declaration, without those of dead letters. Until the
    /// spout emits in a call, the last message may be one that the topology has emitted again.
    /// Empty without [`note_sent`](crate::SpoutStage::note_sent), or if a panic has ended the
    /// emission.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{sink, ManualClock, Next, Spout, SpoutCollector, TopologyBuilder};
    ///
    /// struct One;
    ///
    /// impl Spout<u64> for One {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         out.emit(7, 0).expect("there is room");
    ///         assert_eq!(out.sent_to(), [(0, 0), (0, 1), (1, 2)]);
    ///         Next::Done
    ///     }
    /// }
    ///
    /// # let topology = TopologyBuilder::new();
    /// let one = topology.spout("one", |_| One).note_sent();
    /// topology.bolt("all", |_| sink(|_: &u64, _| ())).parallelism(2).all(&one);
    /// let third = topology.bolt("third", |_| sink(|_: &u64, _| ())).parallelism(5);
    /// third.direct(&one, |n| *n as usize);
    /// # let mut topology = topology.simulate(&ManualClock::new())?;
    /// # assert!(topology.settle(100) && topology.metrics()[0].panics == 0);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn sent_to(&self) -> &[(usize, usize)] {
        self.desk.port.sent_to()
    }

    /// Reports an error: it is counted, and hooks are called with it.
    pub fn report(&mut self, error: &dyn fmt::Display) {
        self.desk.task.emitter.report(error);
    }
}
