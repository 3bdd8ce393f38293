//! What users write: spouts, bolts, and what they are told.

use crate::collect::{BoltCollector, SpoutCollector};
use crate::error::EmitError;
use crate::inbox::Call;
use crate::replay::Failure;
use crate::tuple::Tuple;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which task this is.
#[derive(Clone)]
pub struct Context {
    pub(crate) component: Arc<str>,
    pub(crate) task: usize,
    pub(crate) tasks: usize,
    pub(crate) call: Arc<Call>,
}

impl Context {
    /// The component's name.
    #[must_use]
    pub fn component(&self) -> &str {
        &self.component
    }

    /// The task's number in its component, from 0.
    #[must_use]
    pub fn task(&self) -> usize {
        self.task
    }

    /// How many tasks the component has.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// Wakes this task's thread: for whoever has something for a spout that has said [`Next::Idle`]. To be had where an instance
    /// is made, or in [`open`](Spout::open); it is good for all instances of the task.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(self.call.clone())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{} of {}]", self.component, self.task, self.tasks)
    }
}

/// Wakes a task's thread; see [`Context::waker`].
#[derive(Clone)]
pub struct Waker(Arc<Call>);

impl Waker {
    /// Makes it look again. To be called when there is something to see: send first, then wake. Costs a fence where it is awake.
    pub fn wake(&self) {
        self.0.call();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// What a spout says when it has been asked for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask again at once.
    Ready,
    /// There is nothing just now. It is asked again after a millisecond, or when its [`Waker`] is used.
    Idle,
    /// There is nothing until its [`Waker`] is used: it is not asked before. (Nor by an instance that follows a panic.)
    Asleep,
    /// There will be nothing more. It is not asked again, but still told what becomes of what it has emitted.
    Done,
}

/// A source of messages. All of its functions are called by its own thread, one after another, so none of them should block: while
/// one does, it is not told of acks, and nothing of it is emitted again. An instance that panics is replaced, without a
/// [`close`](Self::close); the next one is told what becomes of the messages that it has emitted, by their tokens. These need
/// not differ for the topology, but if a message cannot be told by its token the spout does not know which one has ended.
pub trait Spout<M>: Send {
    /// Before anything else, also after a restart. It can neither fail nor report: what may go wrong is for
    /// [`next`](Self::next).
    fn open(&mut self, context: &Context) {
        let _ = context;
    }

    /// Asks for messages: to be emitted now, one or a few, while there is [room](SpoutCollector::room). Not called while there is none,
    /// nor while bolts have none for what was emitted before, nor while the topology is inactive.
    fn next(&mut self, out: &mut SpoutCollector<'_, M>) -> Next;

    /// All that was derived from the message with this token has been acked. Once for each.
    fn ack(&mut self, id: u64) {
        let _ = id;
    }

    /// The message with this token is given up: its last attempt has failed or timed out. Once for each, instead of an ack. Without
    /// [`replay`](crate::SpoutSpec::replay) the first attempt is the last one, and the spout may emit it again by itself, as in
    /// Storm.
    fn fail(&mut self, id: u64, failure: &Failure) {
        let _ = (id, failure);
    }

    /// An attempt at the message with this token has failed or timed out, and there is another one, after the pause: with `message`,
    /// which may be changed for it, say to count the attempts. It is emitted by the topology: nothing is to be done here.
    fn replay(&mut self, id: u64, failure: &Failure, message: &mut M) {
        let _ = (id, failure, message);
    }

    /// The topology has become active, or is so from the beginning: `next` is called from now on.
    fn activate(&mut self) {}

    /// It has become inactive: `next` is not called, the rest goes on.
    fn deactivate(&mut self) {}

    /// The last call, also if the topology is killed or dropped: of what is pending by then it is not told.
    fn close(&mut self) {}
}

/// A step of the work. All of its functions are called by its own thread, one after another. An instance that panics is replaced,
/// without a [`cleanup`](Self::cleanup); what it held times out.
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
    /// Before anything else, also after a restart.
    fn prepare(&mut self, context: &Context) {
        let _ = context;
    }

    /// A tuple has come: to be acked or failed, now or later, in a call of this bolt. A panic fails it, and the bolt is made anew. It
    /// may come for a message whose tree has ended, by a failure elsewhere or a timeout: its ack does nothing then.
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_, M>);

    /// The time that [`tick_every`](crate::BoltSpec::tick_every) asked for has passed: also while the topology is inactive, and not
    /// while what this bolt has emitted finds no room. While the topology is [drained](crate::Topology::drain) it comes early, once for
    /// what was executed last.
    fn tick(&mut self, out: &mut BoltCollector<'_, M>) {
        let _ = out;
    }

    /// The last call, also if the topology is killed or dropped. Nothing can be emitted or acked any more; when a topology has
    /// been [drained](crate::Topology::drain) no bolt holds anything that is pending.
    fn cleanup(&mut self) {}
}

/// A bolt that is a function of messages: what it emits is derived from its input, which is acked when it returns, or failed if it
/// returns an error. The error is [reported](BoltCollector::report), and the spout is told of it, at each attempt.
///
/// ```
/// # use expiry_topology::{basic, BoltCollector, Tuple};
/// let parse = || basic(|text: &String, out| text.parse::<u32>().map(|n| out.emit(n.to_string())));
/// let print = || basic(|text: &String, _| println!("{text}"));
/// # let mut topology = expiry_topology::TopologyBuilder::new();
/// # topology.bolt("parse", move |_| parse());
/// # topology.bolt("print", move |_| print());
/// ```
pub fn basic<M, D: Done, F: FnMut(&M, &mut Derive<'_, '_, M>) -> D>(f: F) -> Basic<F> {
    Basic(f)
}

/// See [`basic`].
pub struct Basic<F>(F);

impl<F> fmt::Debug for Basic<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Basic")
    }
}

/// What a [`basic`] bolt may return: nothing, or an error.
pub trait Done {
    /// Why the input is to be failed, if it is.
    fn failure(self) -> Option<String>;
}

impl Done for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Display> Done for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// Emits what a [`basic`] bolt derives from its input.
pub struct Derive<'a, 'b, M> {
    tuple: &'a Tuple<M>,
    out: &'a mut BoltCollector<'b, M>,
}

impl<M> fmt::Debug for Derive<'_, '_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derive")
    }
}

impl<M: Clone> Derive<'_, '_, M> {
    /// Emits a message on the default stream.
    pub fn emit(&mut self, message: M) {
        self.out.emit(self.tuple, message);
    }

    /// Emits a message on another stream.
    ///
    /// # Errors
    ///
    /// [`Refused::UndeclaredStream`](crate::Refused::UndeclaredStream), with the message.
    pub fn emit_on(&mut self, stream: &str, message: M) -> Result<(), EmitError<M>> {
        self.out.emit_on(stream, self.tuple, message)
    }
}

impl<M, D, F> Bolt<M> for Basic<F>
where
    M: Clone,
    D: Done,
    F: FnMut(&M, &mut Derive<'_, '_, M>) -> D + Send,
{
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_, M>) {
        let done = (self.0)(&tuple.message, &mut Derive { tuple: &tuple, out });
        match done.failure() {
            None => out.ack(tuple),
            Some(error) => {
                out.report(&error);
                out.fail_with(tuple, &error);
            }
        }
    }
}

/// Told of what happens, by the thread to which it happens: for tracing and one's own metrics. A panic in here is
/// caught, and counted as one of the component.
///
/// ```
/// use expiry_topology::{Context, Hook, TopologyBuilder};
///
/// struct Trace;
///
/// impl<M> Hook<M> for Trace {
///     fn error(&self, task: &Context, error: &str) {
///         eprintln!("{task:?}: {error}");
///     }
/// }
///
/// let mut topology = TopologyBuilder::<u64>::new();
/// topology.hook(Trace);
/// ```
pub trait Hook<M>: Send + Sync {
    /// A message was emitted on this stream; by a spout, at each attempt.
    fn emit(&self, task: &Context, stream: &str, message: &M) {
        let _ = (task, stream, message);
    }

    /// A bolt has executed a tuple, in so much time.
    fn execute(&self, task: &Context, took: Duration) {
        let _ = (task, took);
    }

    /// A bolt has acked a tuple.
    fn ack(&self, task: &Context) {
        let _ = task;
    }

    /// A bolt has failed a tuple.
    fn fail(&self, task: &Context) {
        let _ = task;
    }

    /// A spout is told that a message was acked, so long after its first emission.
    fn spout_ack(&self, task: &Context, id: u64, took: Duration) {
        let _ = (task, id, took);
    }

    /// A spout's attempt has not succeeded; there is another one if it `is_last` is false.
    fn spout_fail(&self, task: &Context, id: u64, failure: &Failure, is_last: bool) {
        let _ = (task, id, failure, is_last);
    }

    /// A component reports an error, or has panicked.
    fn error(&self, task: &Context, error: &str) {
        let _ = (task, error);
    }
}
