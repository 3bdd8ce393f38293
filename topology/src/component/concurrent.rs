//! Bolts that await: each message is acked or failed by what a future returns.

use super::{Bolt, Context, Waker};
use crate::collect::BoltCollector;
use crate::error::Failed;
use crate::task::{caught, debug, unwound, Panicked};
use crate::tuple::Tuple;
use crossbeam_queue::SegQueue;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::sync::{Arc, Weak};
use std::task::{self, Poll};

/// A bolt that is an async function of messages. At most `limit` futures are in flight in each
/// task; a limit of 0 counts as 1. Further tuples wait in the task's queue, which holds back the
/// components before it. `spawn` hands each future to a runtime of the caller's.
///
/// The bolt emits what a future returns, derived from its input, and acks the input. It does so in
/// the order of the inputs. A result that waits for earlier ones counts towards the limit;
/// [`unordered`](Concurrent::unordered) spares the waiting. A function that emits nothing returns
/// `Ok(None::<()>)`. An error fails the input and is [reported](BoltCollector::report).
/// [`Failed::reject`] is for input that no attempt can get through. A panic of the function, its
/// future, `spawn` or the emission fails the input at once, and the instance goes on. So does a
/// runtime that drops the future unfinished.
///
/// The topology cancels no future. A future whose tree has timed out still counts towards the
/// limit, so it needs a time limit of its own, below the
/// [timeout](crate::TopologyBuilder::timeout). [`drain`](crate::Topology::drain) waits for the
/// futures of tracked tuples. What ends after a kill, or after its instance, is dropped.
///
/// A [simulation](crate::TopologyBuilder::simulate) does not wait for a runtime's threads: its
/// clock would pass to the timeout. `spawn` runs the future at once there, for example by
/// `block_on`.
///
/// A bolt on a cycle may await too: it is [woken](Bolt::woken) however full its output is, and each
/// future that ends makes room for a tuple.
///
/// # Examples
///
/// ```
/// # use expiry_topology::{concurrent, Collect, Failed, TopologyBuilder, VecSpout};
/// async fn length_of(word: String) -> Result<usize, std::io::Error> {
///     tokio::task::yield_now().await; // a server's answer
///     Ok(word.len())
/// }
///
/// let runtime = tokio::runtime::Runtime::new()?;
/// let handle = runtime.handle().clone();
/// let (lengths, topology) = (Collect::new(), TopologyBuilder::new());
/// let words = topology.spout("words", |_| VecSpout::new(["to", "", "be"].map(String::from)));
/// let ask = topology
///     .bolt("ask", move |context| {
///         let handle = handle.clone();
///         concurrent(context, 16, move |future| handle.spawn(future), |word: String| async move {
///             if word.is_empty() {
///                 return Err(Failed::reject("there is no word"));
///             }
///             Ok([length_of(word).await?]) // an error fails the word: it is replayed
///         })
///     })
///     .shuffle(&words);
/// topology.bolt("lengths", lengths.instances()).shuffle(&ask);
/// let topology = topology.start()?;
/// topology.wait(std::time::Duration::from_secs(60))?;
/// assert_eq!((lengths.all(), topology.metrics()[0].dead_letters), (vec![2, 2], 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn concurrent<In, Out, I, Fut, F, R, S>(
    context: &Context,
    limit: usize,
    mut spawn: S,
    mut f: F,
) -> Concurrent<In, Out>
where
    Out: Send + 'static,
    I: IntoIterator<Item = Out> + 'static,
    Fut: Future<Output = Result<I, Failed>> + Send + 'static,
    F: FnMut(In) -> Fut + Send + 'static,
    S: FnMut(Pin<Box<dyn Future<Output = ()> + Send>>) -> R + Send + 'static,
{
    let start = move |message, mut flight: Flight<Out>| match caught(|| f(message)) {
        Ok(future) => caught(|| drop(spawn(Box::pin(fly(future, flight))))),
        Err(panicked) => {
            flight.done = Some(Err(Failed::new(panicked)));
            Ok(())
        }
    };
    Concurrent {
        start: Box::new(start),
        limit: limit.max(1),
        is_ordered: true,
        in_flight: 0,
        begun: 0,
        next: 0,
        early: BTreeMap::new(),
        ended: Arc::default(),
        waker: context.waker(),
    }
}

/// See [`concurrent`].
pub struct Concurrent<In, Out = ()> {
    /// Calls the function, and spawns its future. Returns the panic of the spawning.
    start: Box<dyn FnMut(In, Flight<Out>) -> Result<(), Panicked> + Send>,
    limit: usize,
    is_ordered: bool,
    /// Number of tuples that have begun and not ended.
    in_flight: usize,
    /// The number of the tuple that begins next, of the one that ends next, and what ended early.
    begun: u64,
    next: u64,
    early: BTreeMap<u64, Ended<Out>>,
    /// The instance alone keeps the queue: a future that ends after the instance finds none.
    ended: Arc<Queue<Out>>,
    waker: Waker,
}

impl<In, Out> Concurrent<In, Out> {
    /// Each result is emitted, and its input acked, as soon as it comes.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.is_ordered = false;
        self
    }
}

debug!([In, Out] Concurrent<In, Out>, |_it| "Concurrent");

impl<In, Out: Clone + Send + 'static> Bolt<In, Out> for Concurrent<In, Out> {
    fn execute(&mut self, tuple: Tuple<In>, out: &mut BoltCollector<'_, Out>) {
        let (message, tuple) = tuple.split();
        let (queue, waker) = (Arc::downgrade(&self.ended), self.waker.clone());
        let flight = Flight { number: self.begun, tuple: Some(tuple), done: None, queue, waker };
        self.begun += 1;
        self.in_flight += 1;
        if let Err(panicked) = (self.start)(message, flight) {
            out.report(&panicked);
        }
    }

    fn is_ready(&self) -> bool {
        self.in_flight < self.limit
    }

    fn woken(&mut self, out: &mut BoltCollector<'_, Out>) {
        while let Some((number, ended)) = self.ended.pop() {
            if !self.is_ordered {
                self.next = number;
            }
            self.early.insert(number, ended);
            while let Some((tuple, done)) = self.early.remove(&self.next) {
                self.next += 1;
                self.in_flight -= 1;
                let emit = |all: SmallVec<_>| all.into_iter().for_each(|it| out.emit(&tuple, it));
                let done = done.map(emit);
                out.end(tuple, done);
            }
        }
    }
}

type Done<Out> = Result<SmallVec<[Out; 1]>, Failed>;
type Ended<Out> = (Tuple<()>, Done<Out>);
type Queue<Out> = SegQueue<(u64, Ended<Out>)>;

/// A tuple whose future runs. The future owns it: when it is dropped, its tuple ends.
struct Flight<Out> {
    number: u64,
    /// `Some` until it is dropped.
    tuple: Option<Tuple<()>>,
    /// `None` until the future has ended.
    done: Option<Done<Out>>,
    queue: Weak<Queue<Out>>,
    waker: Waker,
}

impl<Out> Drop for Flight<Out> {
    fn drop(&mut self) {
        let (Some(tuple), Some(queue)) = (self.tuple.take(), self.queue.upgrade()) else {
            return;
        };
        let unfinished = || Err(Failed::new("its future was dropped unfinished"));
        queue.push((self.number, (tuple, self.done.take().unwrap_or_else(unfinished))));
        // After the push: the task takes the call, then the bolt looks (`no_call_is_missed`).
        self.waker.wake();
    }
}

/// Awaits a future. It is dropped before its result is sent.
async fn fly<Out, I: IntoIterator<Item = Out>>(
    future: impl Future<Output = Result<I, Failed>>,
    mut flight: Flight<Out>,
) {
    let mut future = pin!(future);
    let poll = |context: &mut task::Context<'_>| {
        let poll = || future.as_mut().poll(context).map_ok(|all| all.into_iter().collect());
        unwound(poll).unwrap_or_else(|panicked| Poll::Ready(Err(Failed::new(panicked))))
    };
    flight.done = Some(poll_fn(poll).await);
}
