//! What can be wrong with a topology, what a collector refuses, and why a future fails its input.

use crate::task::debug;
use std::fmt;

/// Why a topology cannot be built. Names the component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A component has no name.
    #[error("a component has no name")]
    EmptyName,
    /// Two components have this name.
    #[error("two components are called {0:?}")]
    DuplicateName(String),
    /// A component has no tasks, no threads, more threads than tasks, or more than 65,536 tasks.
    #[error("{component:?} has {tasks} tasks on {threads} threads; it takes at least one of each, at most 65,536 tasks, and no more threads than tasks")]
    BadParallelism {
        /// Which component.
        component: String,
        /// How many tasks.
        tasks: usize,
        /// The number of threads.
        threads: usize,
    },
    /// There is no spout: nothing would ever happen.
    #[error("there is no spout: nothing would ever happen")]
    NoSpout,
    /// A bolt listens to nothing.
    #[error("{0:?} listens to nothing; give it a grouping")]
    NoInput(String),
    /// A bolt listens to a component of another topology.
    #[error("{0:?} listens to a component of another topology")]
    OtherTopology(String),
    /// No spout leads to these bolts: they only listen to each other.
    #[error("no spout leads to {0:?}: they only listen to each other")]
    Unreachable(Vec<String>),
    /// A setting is out of range.
    #[error("{setting}{} {why}", of(.component))]
    Setting {
        /// The component, or empty for a setting of the topology.
        component: String,
        /// Which one.
        setting: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The tracker refused its settings.
    #[error("{0}")]
    Tracker(#[from] expiry::BuildError),
    /// The system gave no thread.
    #[error("the system gave no thread: {0}")]
    NoThread(String),
    /// A component's first instance cannot be made: see
    /// [`try_spout`](crate::TopologyBuilder::try_spout).
    #[error("no instance of {component:?} can be made for task {task}: {why}")]
    NoInstance {
        /// Which component.
        component: String,
        /// The number of the task that the instance was for.
        task: usize,
        /// The error, or the panic.
        why: String,
    },
}

impl BuildError {
    pub(crate) fn setting(component: &str, setting: &'static str, why: &'static str) -> Self {
        BuildError::Setting { component: component.to_string(), setting, why }
    }
}

/// Names the component of a setting, if it has one.
fn of(component: &str) -> String {
    if component.is_empty() {
        return String::new();
    }
    format!(" of {component:?}")
}

/// A message that was not emitted, for want of room: emit it when `next` is called again.
#[derive(thiserror::Error)]
#[error("as many messages are pending as may be")]
pub struct EmitError<M, Id = u64> {
    /// The message.
    pub message: M,
    /// The id that the spout gave it.
    pub id: Id,
}

debug!([M, Id] EmitError<M, Id>, |_it| "EmitError");

/// Why a future of a [`concurrent`](crate::concurrent) bolt fails its input. `?` makes one of any
/// error.
// It is no `Error` itself: it would have two conversions from itself.
#[derive(Debug)]
pub struct Failed {
    pub(crate) why: String,
    pub(crate) is_final: bool,
}

impl Failed {
    /// The input fails, and is replayed if attempts are left.
    pub fn new(why: impl fmt::Display) -> Self {
        Failed { why: why.to_string(), is_final: false }
    }

    /// The input is [rejected](crate::BoltCollector::reject): no attempt can get it through.
    pub fn reject(why: impl fmt::Display) -> Self {
        Failed { why: why.to_string(), is_final: true }
    }
}

impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed::new(error)
    }
}
