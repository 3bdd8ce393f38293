//! Collectors: what spouts and bolts emit, ack and fail with.

use crate::bolt_task::Bench;
use crate::emit::Emitter;
use crate::error::{EmitError, Refused};
use crate::spout_task::Desk;
use crate::tuple::{sealed::derive, Parents, Tuple};
use std::fmt;
use std::time::Duration;

/// What a spout emits with, while it is asked for messages.
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
    #[must_use]
    pub fn now(&self) -> Duration {
        self.desk.shared.time()
    }

    /// How many more messages may be emitted before as many are pending as may be.
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
    pub fn emit(&mut self, message: M, id: u64) -> Result<(), EmitError<M>> {
        self.desk.emit(Ok(0), None, message, id)
    }

    /// As [`emit`](Self::emit), on another stream.
    ///
    /// # Errors
    ///
    /// As [`emit`](Self::emit), and [`Refused::UndeclaredStream`].
    pub fn emit_on(&mut self, stream: &str, message: M, id: u64) -> Result<(), EmitError<M>> {
        let stream = self.desk.emitter.stream(stream);
        self.desk.emit(stream, None, message, id)
    }

    /// As [`emit_on`](Self::emit_on), to this task of whoever listens [directly](crate::BoltSpec::direct).
    ///
    /// # Errors
    ///
    /// As [`emit_on`](Self::emit_on), and [`Refused::NoSuchTask`].
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
    pub fn emit_untracked(&mut self, message: M) -> Result<(), EmitError<M>> {
        self.desk.emit_untracked(Ok(0), None, message)
    }

    /// As [`emit_untracked`](Self::emit_untracked), on another stream.
    ///
    /// # Errors
    ///
    /// [`Refused::UndeclaredStream`].
    pub fn emit_untracked_on(&mut self, stream: &str, message: M) -> Result<(), EmitError<M>> {
        let stream = self.desk.emitter.stream(stream);
        self.desk.emit_untracked(stream, None, message)
    }

    /// Notes an error: it is counted, and hooks are told.
    pub fn report(&mut self, error: &dyn fmt::Display) {
        self.desk.emitter.report(error);
    }
}

/// What a bolt emits, acks and fails with.
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
    #[must_use]
    pub fn now(&self) -> Duration {
        self.bench.shared.time()
    }

    /// Emits a message on the default stream that is derived from `parents`: `&tuple`, `&[&a, &b]`, or `()` for nothing, untracked.
    /// Never waits. To be called before the parents are acked, which the compiler sees to.
    pub fn emit(&mut self, parents: impl Parents<M>, message: M) {
        // The default stream is there, and a message that goes to nobody in particular always finds them.
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

    /// As [`emit_on`](Self::emit_on), to this task of whoever listens [directly](crate::BoltSpec::direct).
    ///
    /// # Errors
    ///
    /// As [`emit_on`](Self::emit_on), and [`Refused::NoSuchTask`].
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
    pub fn ack(&mut self, tuple: Tuple<M>) {
        self.bench.ack(tuple);
    }

    /// As [`ack`](Self::ack), but told to the tracker at once, not with the others of its batch. False if one of its trees had ended.
    pub fn ack_now(&mut self, tuple: Tuple<M>) -> bool {
        self.bench.flush_acks();
        self.bench.ack(tuple);
        self.bench.flush_acks()
    }

    /// Fails all trees that a tuple is a part of. Other tuples of these trees are executed all the same.
    pub fn fail(&mut self, tuple: Tuple<M>) {
        self.bench.fail(tuple.roots(), None);
    }

    /// As [`fail`](Self::fail), and says why: to the spouts, their hooks, and who gets dead letters, in
    /// [`Failure::Failed`](crate::Failure). An allocation.
    pub fn fail_with(&mut self, tuple: Tuple<M>, why: impl fmt::Display) {
        self.bench
            .fail(tuple.roots(), Some(&why.to_string().into()));
    }

    /// Gives the trees that a tuple is a part of the topology's timeout again, from now on. False if one of them has ended.
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
    pub fn report(&mut self, error: &dyn fmt::Display) {
        self.bench.emitter.report(error);
    }
}
