//! Bolts that are a function: each message is acked or failed by what the function returns.

use super::Bolt;
use crate::collect::BoltCollector;
use crate::error::Failed;
use crate::task::debug;
use crate::tuple::{Anchors, Tuple};
use std::fmt;
use std::marker::PhantomData;

/// A bolt that is a function of messages. What the function emits is derived from its input. The
/// input is acked when the function returns, or failed if it returns an error. The error is
/// [reported](BoltCollector::report), and is part of the failure that the spout gets, at each
/// attempt. [`Derive::reject`] is for input that no attempt can get through. For a function that
/// emits nothing there is [`sink`], for one that awaits [`concurrent`](crate::concurrent).
///
/// Write the closure where `basic` or `sink` is called. The compiler infers its lifetimes there; a
/// closure in a variable is "not general enough".
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
pub struct Basic<F, Out>(F, PhantomData<fn(Out)>);

debug!([F, Out] Basic<F, Out>, |_it| "Basic");

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
pub struct Derive<'a, 'b, M> {
    /// The trees that the input is a part of.
    anchors: &'a Anchors,
    rejected: Option<Failed>,
    out: &'a mut BoltCollector<'b, M>,
}

debug!([M] Derive<'_, '_, M>, |_it| "Derive");

impl<M: Clone + 'static> Derive<'_, '_, M> {
    /// Emits a message.
    pub fn emit(&mut self, message: M) {
        self.out.emit(self.anchors, message);
    }

    /// Rejects the input when the function returns, whatever it returns: see
    /// [`BoltCollector::reject`]. The reason is [reported](BoltCollector::report). The last call
    /// counts.
    pub fn reject(&mut self, why: impl fmt::Display) {
        self.rejected = Some(Failed::reject(why));
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
        let (rejected, failure) = (derive.rejected, done.failure().map(Failed::new));
        out.end(tuple, rejected.or(failure).map_or(Ok(()), Err));
    }
}
