//! Declaring a topology.
//!
//! | module | what it is |
//! |---|---|
//! | [`spec`] | a component, as it was declared, and what is wrong with it |
//! | [`common`] | the settings that spouts and bolts share |
//! | [`spout`], [`bolt`] | the settings of each |
//! | [`settings`] | the settings of the topology |

mod bolt;
mod common;
mod settings;
mod spec;
mod spout;

pub use bolt::{BoltSpec, Source};
pub(crate) use spec::{BoltFactory, Input, Kind, Spec, StreamSpec};
pub use spout::SpoutSpec;

use crate::component::{Bolt, Context, Hook, Spout};
use crate::error::BuildError;
use crate::graph::Graph;
use crate::replay::DeadLetter;
use crate::run::{ManualTopology, Topology};
use crate::spout_task::{SpoutFactory, SpoutTask};
use crate::wait::{Progressive, WaitStrategy};
use expiry::Clock;
use spec::{BoltKind, SpoutKind};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What is called with a dead letter. It returns the number of the spout's stream that a message
/// goes to, and that message, if the letter stays in the graph.
pub(crate) type OnDeadLetter<M> = Arc<dyn Fn(DeadLetter<M>) -> Option<(usize, M)> + Send + Sync>;

/// Declares a topology: spouts, bolts, and the streams that bolts listen to. See the crate's head
/// for an example.
///
/// | setting | default |
/// |---|---|
/// | [`timeout`](Self::timeout) | 30 s |
/// | [`interval`](Self::interval) | as of [`AckTracker`](expiry::AckTracker) |
/// | [`acking`](Self::acking) | on |
/// | [`queue`](Self::queue) | 64 batches |
/// | [`batch`](Self::batch) | 64 messages |
/// | [`flush_every`](Self::flush_every) | 1 ms |
/// | [`wait`](Self::wait) | [`Progressive`] |
/// | [`clock`](Self::clock) | [`CoarseClock`](expiry::CoarseClock) |
/// | [`start_inactive`](Self::start_inactive) | active |
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, TopologyBuilder, VecSpout};
/// use std::time::Duration;
///
/// let mut topology = TopologyBuilder::new();
/// topology.timeout(Duration::from_secs(10)).seed(1);
/// topology.spout("numbers", |_| VecSpout::new(0..10));
/// topology.bolt("square", |_| basic(|n: &u64, out| out.emit(n * n))).parallelism(2).shuffle("numbers");
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("square");
/// let mut topology = topology.start_manual()?; // or `start`, on threads
/// assert!(topology.settle(1_000) && topology.is_finished());
/// assert_eq!(topology.metrics()[0].acked, 10);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[must_use = "a builder does nothing until the topology is started"]
pub struct TopologyBuilder<M> {
    pub(crate) specs: Vec<Spec<M>>,
    pub(crate) timeout: Duration,
    pub(crate) interval: Option<Duration>,
    pub(crate) acking: bool,
    pub(crate) queue: usize,
    pub(crate) batch: usize,
    pub(crate) flush_every: Duration,
    pub(crate) wait: Arc<dyn WaitStrategy>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) inactive: bool,
    pub(crate) hooks: Vec<Box<dyn Hook<M>>>,
    pub(crate) on_dead_letter: Option<OnDeadLetter<M>>,
    pub(crate) seed: Option<u64>,
}

impl<M> fmt::Debug for TopologyBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
        f.debug_struct("TopologyBuilder").field("components", &names).finish_non_exhaustive()
    }
}

impl<M: Clone + Send + 'static> Default for TopologyBuilder<M> {
    fn default() -> Self {
        TopologyBuilder {
            specs: Vec::new(),
            timeout: Duration::from_secs(30),
            interval: None,
            acking: true,
            queue: 64,
            batch: 64,
            flush_every: Duration::from_millis(1),
            wait: Arc::new(Progressive::default()),
            clock: None,
            inactive: false,
            hooks: Vec::new(),
            on_dead_letter: None,
            seed: None,
        }
    }
}

impl<M: Clone + Send + 'static> TopologyBuilder<M> {
    /// A declaration without components.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a spout; `make` makes an instance for each task, and another one after a panic.
    /// `Id` is the type of the spout's message ids.
    pub fn spout<Id: fmt::Debug + Send + 'static, S: Spout<M, Id> + 'static>(
        &mut self,
        name: &str,
        make: impl Fn(&Context) -> S + Send + Sync + 'static,
    ) -> SpoutSpec<'_, M> {
        let spout = self.try_spout(name, move |context| Ok::<S, Infallible>(make(context)));
        spout.spec.tries = false;
        spout
    }

    /// As [`spout`](Self::spout), where an instance may be impossible to make.
    /// [`start`](Self::start) makes the first instance of each task, on the calling thread, before
    /// it starts any thread; it returns the first error as [`BuildError::NoInstance`]. A topology
    /// that starts inactive makes these spouts too, and opens them with the first activation. An
    /// instance that follows a panic is made on the task's thread. There an error is reported, and
    /// the task tries again after a pause.
    pub fn try_spout<
        Id: fmt::Debug + Send + 'static,
        S: Spout<M, Id> + 'static,
        E: fmt::Display,
    >(
        &mut self,
        name: &str,
        make: impl Fn(&Context) -> Result<S, E> + Send + Sync + 'static,
    ) -> SpoutSpec<'_, M> {
        let factory: SpoutFactory<M, Id> = Arc::new(move |context| {
            make(context).map(|spout| Box::new(spout) as _).map_err(|error| error.to_string())
        });
        let kind = Kind::Spout(SpoutKind {
            make_task: Box::new(move |parts| Box::new(SpoutTask::new(parts, factory.clone()))),
            max_pending: 4096,
            timeout: None,
            replay: None,
            on_dead_letter: None,
        });
        SpoutSpec { spec: self.add(Spec { tries: true, ..Spec::new(name, kind) }) }
    }

    /// Adds a bolt; `make` makes an instance for each task, and another one after a panic.
    pub fn bolt<B: Bolt<M> + 'static>(
        &mut self,
        name: &str,
        make: impl Fn(&Context) -> B + Send + Sync + 'static,
    ) -> BoltSpec<'_, M> {
        let bolt = self.try_bolt(name, move |context| Ok::<B, Infallible>(make(context)));
        bolt.spec.tries = false;
        bolt
    }

    /// As [`bolt`](Self::bolt), where an instance may be impossible to make: see
    /// [`try_spout`](Self::try_spout).
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{basic, BuildError, TopologyBuilder, VecSpout};
    /// use std::fs::File;
    /// use std::io::Write;
    ///
    /// let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| VecSpout::new(0..5));
    /// let sink = |_: &_| {
    ///     let mut file = File::create("/no/such/directory")?;
    ///     Ok::<_, std::io::Error>(basic(move |n: &u64, _| writeln!(file, "{n}")))
    /// };
    /// topology.try_bolt("sink", sink).shuffle("numbers");
    /// let wrong = topology.start().unwrap_err();
    /// assert!(matches!(&wrong, BuildError::NoInstance { component, task: 0, .. } if component == "sink"));
    /// ```
    pub fn try_bolt<B: Bolt<M> + 'static, E: fmt::Display>(
        &mut self,
        name: &str,
        make: impl Fn(&Context) -> Result<B, E> + Send + Sync + 'static,
    ) -> BoltSpec<'_, M> {
        let kind = Kind::Bolt(BoltKind {
            factory: Arc::new(move |context| {
                make(context).map(|bolt| Box::new(bolt) as _).map_err(|error| error.to_string())
            }),
            inputs: Vec::new(),
            tick: None,
        });
        BoltSpec { spec: self.add(Spec { tries: true, ..Spec::new(name, kind) }) }
    }

    fn add(&mut self, spec: Spec<M>) -> &mut Spec<M> {
        self.specs.push(spec);
        let last = self.specs.len() - 1;
        &mut self.specs[last]
    }

    /// Starts the topology, each task on its thread.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says what is wrong, and with which component.
    pub fn start(self) -> Result<Topology, BuildError> {
        Topology::start(self)
    }

    /// Makes the topology without threads: its tasks run in [`ManualTopology::step`], in turn. With
    /// a [`ManualClock`](expiry::ManualClock) this is a simulation that is the same every time, for
    /// one [`seed`](Self::seed). Test a bolt of your own so, between a
    /// [`VecSpout`](crate::VecSpout) and a [`Collect`](crate::Collect).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_manual(self) -> Result<ManualTopology<M>, BuildError> {
        ManualTopology::start(self)
    }

    /// Checks the declaration, and returns it as a graph.
    pub(crate) fn check(&self) -> Result<Graph<M>, BuildError> {
        self.specs.iter().try_for_each(Spec::check)?;
        if let Some(spec) = self.specs.iter().find(|spec| spec.replays() && !self.acking) {
            return Err(BuildError::Setting {
                component: spec.name.clone(),
                setting: "replay",
                why: "is never used without acking",
            });
        }
        if self.timeout.is_zero() {
            return Err(BuildError::Setting {
                component: String::new(),
                setting: "timeout",
                why: "is zero; for none it takes Duration::MAX",
            });
        }
        for (setting, value) in [("queue", self.queue), ("batch", self.batch)] {
            let why = match value {
                0 => "is zero",
                value if value > 1 << 20 => "is above 2^20",
                _ => continue,
            };
            return Err(BuildError::Setting { component: String::new(), setting, why });
        }
        Graph::new(&self.specs)
    }
}
