//! What a bolt emits and acks with.

use crate::bolt_task::Bench;
use crate::error::Failed;
use crate::replay::Failure;
use crate::task::debug;
use crate::tuple::{Parents, Tuple};
use std::fmt;
use std::time::Duration;

/// What a bolt emits, acks and fails with. `M` is the type of its messages.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple, VecSpout};
///
/// struct Halve;
///
/// impl Bolt<u64, u64> for Halve {
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
/// # let topology = TopologyBuilder::new();
/// # let numbers = topology.spout("numbers", |_| VecSpout::new(0..5));
/// # let halve = topology.bolt("halve", |_| Halve).shuffle(&numbers);
/// # topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&halve);
/// # let mut topology = topology.simulate(&ManualClock::new())?;
/// # assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].failed), (3, 2));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct BoltCollector<'a, M = ()> {
    pub(crate) bench: &'a mut Bench<M>,
}

debug!([M] BoltCollector<'_, M>, |_it| "BoltCollector");

impl<M: Clone + 'static> BoltCollector<'_, M> {
    /// The topology's time, from its clock's origin on. In simulations it is the simulated time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.bench.task.shared.time()
    }

    /// Emits a message that is derived from `parents`: `&tuple`, `&[&a, &b]`, or `()` for an
    /// untracked message. Never waits. Emit before acking the parents; the compiler enforces that.
    /// If a grouping's closure or `M::clone` panics, no task gets the message, and the parents'
    /// trees fail, as by [`fail_with`](Self::fail_with). A later ack of a parent is then late.
    pub fn emit(&mut self, parents: impl Parents, message: M) {
        self.bench.emit(&parents, message);
    }

    /// The tasks that get the message that was emitted last, as of
    /// [`SpoutCollector::sent_to`](crate::SpoutCollector::sent_to).
    #[must_use]
    pub fn sent_to(&self) -> &[(usize, usize)] {
        self.bench.port.sent_to()
    }

    /// The component that emitted a tuple. Meaningless for a tuple of another bolt.
    #[must_use]
    pub fn source<T>(&self, tuple: &Tuple<T>) -> &str {
        self.bench.source(tuple.origin)
    }

    /// Acks a tuple. If its tree has ended, the call does nothing.
    pub fn ack<T: 'static>(&mut self, tuple: Tuple<T>) {
        self.bench.ack(tuple);
    }

    /// As [`ack`](Self::ack), but the tracker gets the ack at once, not with the others of its
    /// batch. Returns `false` if one of the tuple's trees had ended.
    pub fn ack_now<T: 'static>(&mut self, tuple: Tuple<T>) -> bool {
        self.bench.flush_acks();
        self.bench.ack(tuple);
        self.bench.flush_acks()
    }

    /// Fails all trees that a tuple is a part of. Bolts still execute other tuples of these trees.
    pub fn fail<T>(&mut self, tuple: Tuple<T>) {
        let failure = self.bench.failure(None);
        self.bench.fail(&tuple, &failure);
    }

    /// As [`fail`](Self::fail), with a reason. The spouts, their hooks and the dead letters get it
    /// in [`Failure::Failed`](crate::Failure). Allocates.
    pub fn fail_with<T>(&mut self, tuple: Tuple<T>, why: impl fmt::Display) {
        let failure = self.bench.failure(Some(&why));
        self.bench.fail(&tuple, &failure);
    }

    /// As [`fail_with`](Self::fail_with), for a tuple that no attempt can get through. Whatever
    /// attempts are left, each message that the tuple was derived from is given up at once, with
    /// [`Failure::Rejected`](crate::Failure).
    ///
    /// The first end of a tree counts. If its tree has failed or timed out before, the rejection is
    /// dropped, and the message is replayed: the bolt can reject it at the next attempt.
    pub fn reject<T>(&mut self, tuple: Tuple<T>, why: impl fmt::Display) {
        let (by, why) = (self.bench.name(), why.to_string().into());
        self.bench.fail(&tuple, &Failure::Rejected { by, why });
    }

    /// Acks a tuple, or reports why not and fails or rejects it.
    pub(crate) fn end<T: 'static>(&mut self, tuple: Tuple<T>, done: Result<(), Failed>) {
        let Err(Failed { why, is_final }) = done else {
            return self.ack(tuple);
        };
        self.report(&why);
        if is_final {
            self.reject(tuple, why);
        } else {
            self.fail_with(tuple, why);
        }
    }

    /// Gives the trees that a tuple is a part of the topology's timeout again, from now on. Returns
    /// `false` if one of them has ended.
    pub fn reset_timeout<T>(&mut self, tuple: &Tuple<T>) -> bool {
        let Some(tracker) = &self.bench.task.shared.tracker else {
            return true;
        };
        let renewed = tuple.roots().filter(|&root| tracker.reset_timeout(root).is_ok());
        renewed.count() == tuple.anchors.len()
    }

    /// Reports an error: it is counted, and hooks are called with it.
    pub fn report(&mut self, error: &dyn fmt::Display) {
        self.bench.task.emitter.report(error);
    }
}
