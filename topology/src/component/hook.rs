//! Hooks: what observes a topology.

use super::Context;
use crate::replay::Failure;
use std::fmt;
use std::time::Duration;

/// Called at each event, by the thread on which it happens, for tracing and for metrics of your
/// own. A panic in a hook is caught, and counted as one of the component.
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
    /// A message was emitted on this stream. For a spout's message, the hook is called at each
    /// attempt.
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

    /// A spout's message was acked, so long after its first emission. The hook is called before the
    /// spout's `ack`.
    fn spout_ack(&self, task: &Context, id: &dyn fmt::Debug, took: Duration) {
        let _ = (task, id, took);
    }

    /// An attempt at a spout's message has failed. There is another attempt if `is_last` is false.
    fn spout_fail(&self, task: &Context, id: &dyn fmt::Debug, failure: &Failure, is_last: bool) {
        let _ = (task, id, failure, is_last);
    }

    /// A component reports an error, or has panicked.
    fn error(&self, task: &Context, error: &str) {
        let _ = (task, error);
    }
}
