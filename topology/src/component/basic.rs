//! Bolts that are a function: each message is acked or failed by what the function returns.

use super::Bolt;
use crate::collect::BoltCollector;
use crate::error::EmitError;
use crate::tuple::Tuple;
use std::fmt;

/// A bolt that is a function of messages. What the function emits is derived from its input. The
/// input is acked when the function returns, or failed if it returns an error. The error is
/// [reported](BoltCollector::report), and is part of the failure that the spout gets, at each
/// attempt. [`Derive::reject`] is for input that no attempt can get through.
pub fn basic<M, D: Done, F: FnMut(&M, &mut Derive<'_, '_, M>) -> D>(f: F) -> Basic<F> {
    Basic(f)
}

/// See [`basic`].
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Bolt, TopologyBuilder, VecSpout};
///
/// /// A step that other topologies use too.
/// fn halve() -> impl Bolt<u64> {
///     basic(|n: &u64, out| match n % 2 {
///         0 => Ok(out.emit(n / 2)),
///         _ => Err("it is odd"),
///     })
/// }
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", |_| VecSpout::new(0..5));
/// topology.bolt("halve", |_| halve()).shuffle("numbers");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].failed), (3, 2));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct Basic<F>(F);

impl<F> fmt::Debug for Basic<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Basic")
    }
}

/// What a [`basic`] bolt may return: nothing, or an error.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, TopologyBuilder, VecSpout};
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", |_| VecSpout::new(0..5));
/// topology.bolt("any", |_| basic(|_: &u64, _| ())).shuffle("numbers");
/// topology
///     .bolt("small", |_| basic(|n: &u64, _| if *n < 4 { Ok(()) } else { Err(format!("{n} is too large")) }))
///     .shuffle("numbers");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[1].acked, topology.metrics()[2].failed, topology.metrics()[2].errors), (5, 1, 1));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
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
/// use expiry_topology::{basic, Derive, TopologyBuilder, VecSpout};
///
/// fn divisors(n: &u64, out: &mut Derive<'_, '_, u64>) {
///     (1..=*n).filter(|d| n % d == 0).for_each(|d| out.emit(d));
/// }
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", |_| VecSpout::new(12..13));
/// topology.bolt("divisors", |_| basic(divisors)).shuffle("numbers");
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("divisors");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[2].executed, topology.metrics()[0].acked), (6, 1)); // when all six are acked
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct Derive<'a, 'b, M> {
    tuple: &'a Tuple<M>,
    rejected: Option<String>,
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

    /// Rejects the input when the function returns, whatever it returns: see
    /// [`BoltCollector::reject`]. The reason is [reported](BoltCollector::report). The last call
    /// counts.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Replay, TopologyBuilder, VecSpout};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| VecSpout::new(0..5)).replay(Replay::default());
    /// topology
    ///     .bolt("reciprocal", |_| basic(|n: &u64, out| match 1_000_u64.checked_div(*n) {
    ///         Some(reciprocal) => out.emit(reciprocal),
    ///         None => out.reject("it has no reciprocal"),
    ///     }))
    ///     .shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].dead_letters), (4, 1));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn reject(&mut self, why: impl fmt::Display) {
        self.rejected = Some(why.to_string());
    }
}

impl<M, D, F> Bolt<M> for Basic<F>
where
    M: Clone,
    D: Done,
    F: FnMut(&M, &mut Derive<'_, '_, M>) -> D + Send,
{
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_, M>) {
        let mut derive = Derive { tuple: &tuple, rejected: None, out };
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
