//! What tasks of both kinds have in common.

use crate::gate::Gate;
use crate::metrics::Stats;
use expiry::{AckTracker, Clock};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Of so many latencies one is taken.
pub(crate) const SAMPLED: u64 = 16;

/// What all tasks of a topology share.
pub(crate) struct Shared {
    /// None if there is no acking.
    pub(crate) tracker: Option<Arc<AckTracker>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// In nanoseconds.
    pub(crate) flush_every: u64,
    /// What components, and their streams, are called.
    pub(crate) names: Vec<(Arc<str>, Vec<Arc<str>>)>,
    pub(crate) gate: Gate,
    pub(crate) stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// What came of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// There was something to do: there may be more.
    pub(crate) worked: bool,
    /// At which clock reading there is something to do, if nothing comes before.
    pub(crate) due: Option<u64>,
}

/// A task: does a little at a time, and never waits.
pub(crate) trait Task: Send {
    fn step(&mut self) -> Step;

    /// Whether something has come since the last step. Looked at before a thread sleeps.
    fn has_input(&self) -> bool;

    /// The last call.
    fn close(&mut self);
}

/// Calls a component's own code with `desk`. `None` if it has panicked, which is counted.
pub(crate) fn guarded<D, R>(
    desk: &mut D,
    stats: fn(&D) -> &Stats,
    now: u64,
    f: impl FnOnce(&mut D) -> R,
) -> Option<R> {
    stats(desk).busy_since.set(now.max(1));
    let done = caught(|| f(desk));
    stats(desk).busy_since.set(0);
    if done.is_none() {
        stats(desk).panics.add(1);
    }
    done
}

/// Calls what may panic. `None` if it has.
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(made) => Some(made),
        Err(payload) => {
            // Its drop may panic too.
            let again = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            again.unwrap_or_else(std::mem::forget);
            None
        }
    }
}
