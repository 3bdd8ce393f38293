//! What can be wrong with a topology, what a collector refuses, and why a future fails its input.

use std::fmt;

/// Why a topology cannot be built. Names the component.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A component has no name.
    EmptyName,
    /// Two components have this name.
    DuplicateName(String),
    /// A component has no tasks, no threads, more threads than tasks, or more than 65,536 tasks.
    BadParallelism {
        /// Which component.
        component: String,
        /// How many tasks.
        tasks: usize,
        /// The number of threads.
        threads: usize,
    },
    /// There is no spout: nothing would ever happen.
    NoSpout,
    /// A bolt listens to nothing.
    NoInput(String),
    /// A bolt listens to a component of another topology.
    OtherTopology(String),
    /// No spout leads to these bolts: they only listen to each other.
    Unreachable(Vec<String>),
    /// A setting is out of range.
    Setting {
        /// The component, or empty for a setting of the topology.
        component: String,
        /// Which one.
        setting: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The tracker refused its settings.
    Tracker(expiry::BuildError),
    /// The system gave no thread.
    NoThread(String),
    /// A component's first instance cannot be made: see
    /// [`try_spout`](crate::TopologyBuilder::try_spout).
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

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::EmptyName => f.write_str("a component has no name"),
            BuildError::DuplicateName(name) => write!(f, "two components are called {name:?}"),
            BuildError::BadParallelism { component, tasks, threads } => write!(
                f,
                "{component:?} has {tasks} tasks on {threads} threads; it takes at least one of each, at most 65,536 tasks, and no more threads than tasks"
            ),
            BuildError::NoSpout => f.write_str("there is no spout: nothing would ever happen"),
            BuildError::NoInput(component) => {
                write!(f, "{component:?} listens to nothing; give it a grouping")
            }
            BuildError::OtherTopology(component) => {
                write!(f, "{component:?} listens to a component of another topology")
            }
            BuildError::Unreachable(components) => {
                write!(f, "no spout leads to {components:?}: they only listen to each other")
            }
            BuildError::Setting { component, setting, why } if component.is_empty() => {
                write!(f, "{setting} {why}")
            }
            BuildError::Setting { component, setting, why } => {
                write!(f, "{setting} of {component:?} {why}")
            }
            BuildError::Tracker(error) => error.fmt(f),
            BuildError::NoThread(why) => write!(f, "the system gave no thread: {why}"),
            BuildError::NoInstance { component, task, why } => {
                write!(f, "no instance of {component:?} can be made for task {task}: {why}")
            }
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Tracker(error) => Some(error),
            _ => None,
        }
    }
}

impl From<expiry::BuildError> for BuildError {
    fn from(error: expiry::BuildError) -> Self {
        BuildError::Tracker(error)
    }
}

/// A message that was not emitted: as many messages are pending as may be. Emit it when `next` is
/// called again.
pub struct EmitError<M, Id = u64> {
    /// The message.
    pub message: M,
    /// The id that the spout gave it.
    pub id: Id,
}

impl<M, Id> fmt::Debug for EmitError<M, Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmitError")
    }
}

impl<M, Id> fmt::Display for EmitError<M, Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as many messages are pending as may be")
    }
}

impl<M, Id> std::error::Error for EmitError<M, Id> {}

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
