//! Hooks: what observes a topology.

use super::Context;
use crate::replay::Failure;
use std::any::Any;
use std::fmt;
use std::time::Duration;

/// A tuple, as hooks see it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Seen<'a> {
    /// The component that emitted it.
    pub source: &'a str,
    /// The number of the emitting task in that component.
    pub source_task: usize,
    /// The time from its receipt until now.
    pub took: Duration,
}

/// Called at each event, by the thread on which it happens, for tracing and for metrics of your
/// own. Messages have the types of their components: `message.downcast_ref::<Order>()`. A panic in
/// a hook is caught, and counted as one of the component.
///
/// ```
/// use expiry_topology::{Context, Hook, TopologyBuilder};
///
/// struct Trace;
///
/// impl Hook for Trace {
///     fn error(&self, task: &Context, error: &str) {
///         eprintln!("{task:?}: {error}");
///     }
/// }
///
/// let topology = TopologyBuilder::new();
/// topology.hook(Trace);
/// ```
#[allow(unused_variables)]
pub trait Hook: Send + Sync {
    /// A component emits this message. For a spout's message, the hook is called at each attempt.
    fn emit(&self, task: &Context, message: &dyn Any) {}

    /// A bolt has executed a tuple, which it may have acked.
    fn execute(&self, task: &Context, tuple: &Seen<'_>) {}

    /// A bolt acks a tuple with this message. Of a tuple that was [split](crate::Tuple::split) it
    /// is `()`.
    fn ack(&self, task: &Context, tuple: &Seen<'_>, message: &dyn Any) {}

    /// A bolt has failed a tuple, or has panicked over it.
    fn fail(&self, task: &Context, tuple: &Seen<'_>) {}

    /// A spout's message was acked, so long after its first emission. Precedes the spout's `ack`.
    fn spout_ack(&self, task: &Context, id: &dyn fmt::Debug, took: Duration) {}

    /// An attempt at a spout's message has failed. There is another attempt if `is_last` is false.
    fn spout_fail(&self, task: &Context, id: &dyn fmt::Debug, failure: &Failure, is_last: bool) {}

    /// A component reports an error, or has panicked.
    fn error(&self, task: &Context, error: &str) {}
}
