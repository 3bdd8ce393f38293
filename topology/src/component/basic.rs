//! Bolts that are a function: each message is acked or failed by what the function returns.

use super::Bolt;
use crate::collect::BoltCollector;
use crate::tuple::{Anchors, Tuple};
use std::fmt;
use std::marker::PhantomData;

/// A bolt that is a function of messages. What the function emits is derived from its input. The
/// input is acked when the function returns, or failed if it returns an error. The error is
/// [reported](BoltCollector::report), and is part of the failure that the spout gets, at each
/// attempt. [`Derive::reject`] is for input that no attempt can get through. For a function that
/// emits nothing there is [`sink`], for one that awaits [`concurrent`](crate::concurrent).
pub fn basic<In, Out, D, F>(f: F) -> Basic<F, Out>
where
    D: Done,
    F: FnMut(&In, &mut Derive<'_, '_, Out>) -> D,
{
    Basic(f, PhantomData)
}

/// As [`basic`], of a function that emits nothing.
pub fn sink<In, D, F>(f: F) -> Basic<F, ()>
where
    D: Done,
    F: FnMut(&In, &mut Derive<'_, '_, ()>) -> D,
{
    Basic(f, PhantomData)
}

/// See [`basic`].
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Bolt, ManualClock, TopologyBuilder, VecSpout};
///
/// /// A step that other topologies use too.
/// fn halve() -> impl Bolt<u64, u64> {
///     basic(|n: &u64, out| match n % 2 {
///         0 => Ok(out.emit(n / 2)),
///         _ => Err("it is odd"),
///     })
/// }
///
/// let topology = TopologyBuilder::new();
/// let numbers = topology.spout("numbers", |_| VecSpout::new(0..5));
/// topology.bolt("halve", |_| halve()).shuffle(&numbers);
/// let mut topology = topology.simulate(&ManualClock::new())?;
/// assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].failed), (3, 2));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct Basic<F, Out>(F, PhantomData<fn(Out)>);

impl<F, Out> fmt::Debug for Basic<F, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Basic")
    }
}

/// What a [`basic`] bolt may return: nothing, or an error.
pub trait Done {
    /// Returns why the input is to be failed. `None` if it is to be acked.
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
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, sink, Derive, ManualClock, TopologyBuilder, VecSpout};
///
/// fn divisors(n: &u64, out: &mut Derive<'_, '_, u64>) {
///     (1..=*n).filter(|d| n % d == 0).for_each(|d| out.emit(d));
/// }
///
/// let topology = TopologyBuilder::new();
/// let numbers = topology.spout("numbers", |_| VecSpout::new(12..13));
/// let divisors = topology.bolt("divisors", |_| basic(divisors)).shuffle(&numbers);
/// topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&divisors);
/// let mut topology = topology.simulate(&ManualClock::new())?;
/// assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[2].executed, topology.metrics()[0].acked), (6, 1)); // when all six are acked
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct Derive<'a, 'b, M> {
    /// Of the input.
    anchors: &'a Anchors,
    rejected: Option<String>,
    out: &'a mut BoltCollector<'b, M>,
}

impl<M> fmt::Debug for Derive<'_, '_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derive")
    }
}

impl<M: Clone + 'static> Derive<'_, '_, M> {
    /// Emits a message.
    pub fn emit(&mut self, message: M) {
        self.out.emit(self.anchors, message);
    }

    /// Rejects the input when the function returns, whatever it returns: see
    /// [`BoltCollector::reject`]. The reason is [reported](BoltCollector::report). The last call
    /// counts.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, ManualClock, Replay, TopologyBuilder, VecSpout};
    /// # let topology = TopologyBuilder::new();
    /// let numbers = topology.spout("numbers", |_| VecSpout::new(0..5)).replay(Replay::default());
    /// topology
    ///     .bolt("reciprocal", |_| basic(|n: &u64, out| match 1_000_u64.checked_div(*n) {
    ///         Some(reciprocal) => out.emit(reciprocal),
    ///         None => out.reject("it has no reciprocal"),
    ///     }))
    ///     .shuffle(&numbers);
    /// # let mut topology = topology.simulate(&ManualClock::new())?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].dead_letters), (4, 1));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn reject(&mut self, why: impl fmt::Display) {
        self.rejected = Some(why.to_string());
    }
}

impl<In, Out, D, F> Bolt<In, Out> for Basic<F, Out>
where
    In: 'static,
    Out: Clone + 'static,
    D: Done,
    F: FnMut(&In, &mut Derive<'_, '_, Out>) -> D + Send,
{
    fn execute(&mut self, tuple: Tuple<In>, out: &mut BoltCollector<'_, Out>) {
        let mut derive = Derive { anchors: &tuple.anchors, rejected: None, out };
        let done = (self.0)(&tuple.message, &mut derive);
        let rejected = derive.rejected;
        match (rejected, done.failure()) {
            (Some(why), _) => {
                out.report(&why);
                out.reject(tuple, why);
            }
            (None, Some(error)) => {
                out.report(&error);
                out.fail_with(tuple, error);
            }
            (None, None) => out.ack(tuple),
        }
    }
}
