//! What can be wrong with a topology, and what a collector refuses.

use std::fmt;

/// Why a topology cannot be built. Names the component.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, BuildError, TopologyBuilder, VecSpout};
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", |_| VecSpout::new(0..3));
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).fields("numbers", ["parity"]);
/// let wrong = topology.start_manual().unwrap_err();
/// assert!(matches!(&wrong, BuildError::UnknownField { component, field, .. } if component == "sink" && field == "parity"));
/// let text = r#""sink" groups by "parity", which the stream "default" of "numbers" does not declare"#;
/// assert_eq!(wrong.to_string(), text);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A component has no name.
    EmptyName,
    /// Two components have this name.
    DuplicateName(String),
    /// Two of a component's streams have this name.
    DuplicateStream {
        /// The component.
        component: String,
        /// The stream.
        stream: String,
    },
    /// Two fields of a stream have this name.
    DuplicateField {
        /// The component.
        component: String,
        /// The field.
        field: String,
    },
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
    /// A bolt listens to no component.
    NoInput(String),
    /// A bolt listens to a component that does not exist.
    UnknownComponent {
        /// The component that listens.
        component: String,
        /// The component that it listens to.
        source: String,
    },
    /// A bolt listens to a stream that its source does not declare.
    UnknownStream {
        /// The component that listens.
        component: String,
        /// The component that it listens to.
        source: String,
        /// The stream.
        stream: String,
    },
    /// A bolt groups by a field that the stream does not declare.
    UnknownField {
        /// The component that listens.
        component: String,
        /// The component that it listens to.
        source: String,
        /// Which of its streams.
        stream: String,
        /// The field.
        field: String,
    },
    /// A bolt groups by no fields at all.
    NoFields(String),
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

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::EmptyName => f.write_str("a component has no name"),
            BuildError::DuplicateName(name) => write!(f, "two components are called {name:?}"),
            BuildError::DuplicateStream { component, stream } => {
                write!(f, "{component:?} declares the stream {stream:?} twice")
            }
            BuildError::DuplicateField { component, field } => {
                write!(f, "{component:?} declares the field {field:?} twice on one stream")
            }
            BuildError::BadParallelism { component, tasks, threads } => write!(
                f,
                "{component:?} has {tasks} tasks on {threads} threads; it takes at least one of each, at most 65,536 tasks, and no more threads than tasks"
            ),
            BuildError::NoSpout => f.write_str("there is no spout: nothing would ever happen"),
            BuildError::NoInput(component) => {
                write!(f, "{component:?} listens to nobody; give it a grouping")
            }
            BuildError::UnknownComponent { component, source } => {
                write!(f, "{component:?} listens to {source:?}, which does not exist")
            }
            BuildError::UnknownStream { component, source, stream } => write!(
                f,
                "{component:?} listens to the stream {stream:?} of {source:?}, which does not declare it"
            ),
            BuildError::UnknownField { component, source, stream, field } => write!(
                f,
                "{component:?} groups by {field:?}, which the stream {stream:?} of {source:?} does not declare"
            ),
            BuildError::NoFields(component) => {
                write!(f, "{component:?} groups by no fields; name some, or use global")
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

/// Why a message was not emitted.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Next, Refused, Spout, SpoutCollector, TopologyBuilder, DEFAULT};
///
/// struct Three;
///
/// impl Spout<u64> for Three {
///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
///         assert_eq!(out.emit_on("lost", 1, 1).unwrap_err().why, Refused::UndeclaredStream);
///         assert_eq!(out.emit_direct(DEFAULT, 0, 1, 1).unwrap_err().why, Refused::NoSuchTask);
///         out.emit(1, 1).expect("there is room for one");
///         assert_eq!(out.emit(2, 2).unwrap_err().why, Refused::MaxPending);
///         Next::Done
///     }
/// }
///
/// # let mut topology = TopologyBuilder::new();
/// topology.spout("three", |_| Three).max_pending(1);
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("three");
/// # let mut topology = topology.start_manual()?;
/// # assert!(topology.settle(100) && topology.metrics()[0].panics == 0);
/// assert_eq!(topology.metrics()[0].emitted, 1);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// As many messages are pending as may be. Emit it when `next` is called again.
    MaxPending,
    /// The component does not declare this stream.
    UndeclaredStream,
    /// No component that listens to this stream by direct grouping has a task of this number.
    NoSuchTask,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::MaxPending => f.write_str("as many messages are pending as may be"),
            Refused::UndeclaredStream => f.write_str("the component does not declare this stream"),
            Refused::NoSuchTask => {
                f.write_str("nobody who listens directly has a task of this number")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// A message that was not emitted, and why.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, EmitError, Next, Refused, Spout, SpoutCollector, TopologyBuilder};
///
/// /// Emits lines; one that was refused is kept for the next time.
/// struct Lines(Vec<String>);
///
/// impl Spout<String> for Lines {
///     fn next(&mut self, out: &mut SpoutCollector<'_, String>) -> Next {
///         while let Some(line) = self.0.pop() {
///             if let Err(EmitError { message, why, .. }) = out.emit(line, 0) {
///                 assert_eq!(why, Refused::MaxPending);
///                 self.0.push(message);
///                 return Next::Ready;
///             }
///         }
///         Next::Done
///     }
/// }
///
/// # let mut topology = TopologyBuilder::new();
/// topology.spout("lines", |_| Lines(vec!["to be".into(), "or not".into(), "to be".into()])).max_pending(2);
/// # topology.bolt("sink", |_| basic(|_: &String, _| ())).shuffle("lines");
/// # let mut topology = topology.start_manual()?;
/// # assert!(topology.settle(100) && topology.metrics()[0].panics == 0);
/// assert_eq!(topology.metrics()[0].acked, 3);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct EmitError<M, Id = ()> {
    /// The message.
    pub message: M,
    /// The id that the spout gave it; `()` for a bolt's message or an untracked one.
    pub id: Id,
    /// Why it was not emitted.
    pub why: Refused,
}

impl<M> EmitError<M> {
    pub(crate) fn untracked(message: M, why: Refused) -> Self {
        let id = ();
        EmitError { message, id, why }
    }
}

impl<M, Id> fmt::Debug for EmitError<M, Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmitError").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<M, Id> fmt::Display for EmitError<M, Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<M, Id> std::error::Error for EmitError<M, Id> {}
