//! Declaring a topology.
//!
//! A component's messages have a type of their own. Only the component's [`Output`] and the lanes
//! that are made from it know that type, and the queues of a bolt the type of its input. A [`Spec`]
//! knows neither: it makes tasks by a function that does.
//!
//! | module | what it is |
//! |---|---|
//! | [`spec`] | a component, as it was declared, and what is wrong with it |
//! | [`stage`] | what spouts and bolts share |
//! | [`spout`], [`bolt`] | each of them |
//! | [`stream`] | what bolts listen to |
//! | [`settings`] | the settings of the topology |

mod bolt;
mod settings;
mod spec;
mod spout;
mod stage;
mod stream;

pub use bolt::BoltStage;
pub(crate) use settings::Settings;
pub(crate) use spec::{BoltParts, Doors, Kind, Queued, Spec, SpoutParts, TaskParts};
pub use spout::SpoutStage;
pub use stream::{Source, Stream};

use crate::bolt_task::BoltTask;
use crate::component::{Bolt, Context, Spout};
use crate::emit::Output;
use crate::error::BuildError;
use crate::graph::Graph;
use crate::inbox::Inbox;
use crate::instance::Factory;
use crate::lanes::Batch;
use crate::run::{Simulation, Topology};
use crate::spout_task::SpoutTask;
use crate::task::debug;
use bolt::Inboxes;
use expiry::{Lifetime, ManualClock};
use spec::{BoltKind, SpoutKind};
use stage::Stage;
use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// Declares a topology: spouts, bolts, and the streams that bolts listen to. See the crate's head
/// for an example.
///
/// | setting | default |
/// |---|---|
/// | [`timeout`](Self::timeout) | 30 s |
/// | [`interval`](Self::interval) | as of [`AckTracker`](expiry::AckTracker) |
/// | [`acking`](Self::acking) | on |
/// | [`shards`](Self::shards), [`capacity`](Self::capacity) | as of [`AckTracker`](expiry::AckTracker); no limit |
/// | [`queue`](Self::queue) | 64 batches |
/// | [`batch`](Self::batch) | 64 messages |
/// | [`flush_every`](Self::flush_every) | 1 ms |
/// | [`sample_every`](Self::sample_every) | 16 |
/// | [`wait`](Self::wait) | [`Progressive`](crate::WaitStrategy::Progressive) |
/// | [`clock`](Self::clock) | [`CoarseClock`](expiry::CoarseClock) |
/// | [`start_inactive`](Self::start_inactive) | active |
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, sink, TopologyBuilder, VecSpout};
/// use std::time::Duration;
///
/// let topology = TopologyBuilder::new();
/// topology.timeout(Duration::from_secs(10)).seed(1);
/// let numbers = topology.spout("numbers", |_| VecSpout::new(0..10));
/// let square = topology.bolt("square", |_| basic(|n: &u64, out| out.emit(n * n))).parallelism(2).shuffle(&numbers);
/// topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&square);
/// let topology = topology.start()?; // or `simulate`, without threads
/// topology.wait(Duration::from_secs(60))?;
/// assert_eq!(topology.metrics()[0].acked, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until the topology is started"]
#[derive(Default)]
pub struct TopologyBuilder {
    specs: RefCell<Vec<Spec>>,
    settings: RefCell<Settings>,
}

debug!([] TopologyBuilder, |it| "TopologyBuilder {{ components: {:?}, .. }}",
    it.specs.borrow().iter().map(|spec| spec.name.clone()).collect::<Vec<_>>());

impl TopologyBuilder {
    /// A declaration without components.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a spout; `make` makes an instance for each task, and another one after a panic.
    /// `Id` is the type of the spout's message ids.
    pub fn spout<M, Id, S>(
        &self,
        name: &str,
        make: impl Fn(&Context) -> S + Send + Sync + 'static,
    ) -> SpoutStage<'_, M>
    where
        M: Clone + Send + 'static,
        Id: fmt::Debug + Send + 'static,
        S: Spout<M, Id> + 'static,
    {
        let stage = self.try_spout(name, move |context| Ok::<S, Infallible>(make(context)));
        stage.stage.set(|spec| spec.tries = false);
        stage
    }

    /// As [`spout`](Self::spout), where an instance may be impossible to make.
    /// [`start`](Self::start) makes the first instance of each task, on the calling thread, before
    /// it starts any thread; it returns the first error as [`BuildError::NoInstance`]. A topology
    /// that starts inactive makes these instances too, and opens or prepares them with the first
    /// activation. An instance that follows a panic is made on the task's thread. There an error is
    /// reported, and the task tries again after a pause.
    pub fn try_spout<M, Id, S, E>(
        &self,
        name: &str,
        make: impl Fn(&Context) -> Result<S, E> + Send + Sync + 'static,
    ) -> SpoutStage<'_, M>
    where
        M: Clone + Send + 'static,
        Id: fmt::Debug + Send + 'static,
        S: Spout<M, Id> + 'static,
        E: fmt::Display,
    {
        let factory: Factory<dyn Spout<M, Id>> = Arc::new(move |context| {
            make(context).map(|spout| Box::new(spout) as _).map_err(|error| error.to_string())
        });
        let (output, letters) = (Arc::<Output<M>>::default(), Arc::<Output<_>>::default());
        let outputs = (output.clone(), letters.clone());
        let kind = Kind::Spout(SpoutKind {
            make: Box::new(move |parts| {
                let sender = &parts.task.sender;
                let ports = (outputs.0.port(sender), outputs.1.port(sender));
                Box::new(SpoutTask::new(parts, factory.clone(), ports))
            }),
            max_pending: 4096,
            timeout: Lifetime::Default,
            replay: None,
            own_replay: S::replay_by_default(),
        });
        SpoutStage { stage: self.add(Spec::new(name, kind)), output, letters }
    }

    /// Adds a bolt; `make` makes an instance for each task, and another one after a panic.
    pub fn bolt<In, Out, B>(
        &self,
        name: &str,
        make: impl Fn(&Context) -> B + Send + Sync + 'static,
    ) -> BoltStage<'_, In, Out>
    where
        In: Send + 'static,
        Out: Clone + Send + 'static,
        B: Bolt<In, Out> + 'static,
    {
        let stage = self.try_bolt(name, move |context| Ok::<B, Infallible>(make(context)));
        stage.stage.set(|spec| spec.tries = false);
        stage
    }

    /// As [`bolt`](Self::bolt), where an instance may be impossible to make: see
    /// [`try_spout`](Self::try_spout).
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{sink, BuildError, TopologyBuilder, VecSpout};
    /// use std::fs::File;
    /// use std::io::Write;
    ///
    /// let topology = TopologyBuilder::new();
    /// let numbers = topology.spout("numbers", |_| VecSpout::new(0..5));
    /// let write = |_: &_| {
    ///     let mut file = File::create("/no/such/directory")?;
    ///     Ok::<_, std::io::Error>(sink(move |n: &u64, _| writeln!(file, "{n}")))
    /// };
    /// topology.try_bolt("sink", write).shuffle(&numbers);
    /// let wrong = topology.start().unwrap_err();
    /// assert!(matches!(&wrong, BuildError::NoInstance { component, task: 0, .. } if component == "sink"));
    /// ```
    pub fn try_bolt<In, Out, B, E>(
        &self,
        name: &str,
        make: impl Fn(&Context) -> Result<B, E> + Send + Sync + 'static,
    ) -> BoltStage<'_, In, Out>
    where
        In: Send + 'static,
        Out: Clone + Send + 'static,
        B: Bolt<In, Out> + 'static,
        E: fmt::Display,
    {
        let factory: Factory<dyn Bolt<In, Out>> = Arc::new(move |context| {
            make(context).map(|bolt| Box::new(bolt) as _).map_err(|error| error.to_string())
        });
        let (inboxes, output) = (Arc::<Inboxes<In>>::default(), Arc::<Output<Out>>::default());
        let (opened, queues, out) = (inboxes.clone(), inboxes.clone(), output.clone());
        let kind = Kind::Bolt(BoltKind {
            open: Box::new(move |doors| {
                let Doors { bells, senders, length } = doors;
                let inbox = |bell| Arc::new(Inbox::<Batch<In>>::new(length, bell, senders.clone()));
                let made = opened.get_or_init(|| bells.into_iter().map(inbox).collect());
                let queued = |inbox: &Arc<Inbox<_>>| -> Queued {
                    let inbox = inbox.clone();
                    Box::new(move || inbox.len())
                };
                made.iter().map(queued).collect()
            }),
            make: Box::new(move |parts| {
                let inboxes = queues.get().expect("queues are made before tasks");
                let sender = &parts.task.sender;
                let (inbox, port) = (inboxes[sender.task].clone(), out.port(sender));
                Box::new(BoltTask::new(parts, inbox, factory.clone(), port))
            }),
        });
        BoltStage { stage: self.add(Spec::new(name, kind)), inboxes, output }
    }

    fn add(&self, spec: Spec) -> Stage<'_> {
        let mut specs = self.specs.borrow_mut();
        specs.push(spec);
        Stage { builder: self, at: specs.len() - 1 }
    }

    fn name_of(&self, component: usize) -> Arc<str> {
        self.specs.borrow()[component].name.clone()
    }

    /// Starts the topology, each task on its thread.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says what is wrong, and with which component.
    pub fn start(self) -> Result<Topology, BuildError> {
        Topology::start(self)
    }

    /// Makes the topology without threads, on this clock: its tasks run in [`Simulation::step`], in
    /// turn. That is the same every time, for one [`seed`](Self::seed).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn simulate(self, clock: &ManualClock) -> Result<Simulation, BuildError> {
        self.clock(clock.clone());
        Simulation::start(self, clock.clone())
    }

    /// Checks the declaration, and takes it apart.
    pub(crate) fn check(self) -> Result<(Settings, Vec<Spec>, Graph), BuildError> {
        let (settings, specs) = (self.settings.into_inner(), self.specs.into_inner());
        settings.check()?;
        let graph = Graph::new(&specs)?;
        if let Some(spec) = specs.iter().find(|spec| spec.replays() && !settings.acking) {
            return Err(BuildError::setting(&spec.name, "replay", "is never used without acking"));
        }
        Ok((settings, specs, graph))
    }
}
