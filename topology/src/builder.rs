//! Declaring a topology.

use crate::component::{Bolt, Context, Hook, Spout};
use crate::error::BuildError;
use crate::graph::{FieldHash, Graph, Grouping, DEFAULT};
use crate::replay::{DeadLetter, Replay};
use crate::run::{ManualTopology, Topology};
use crate::wait::{Progressive, WaitStrategy};
use expiry::Clock;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type SpoutFactory<M> = Arc<dyn Fn(&Context) -> Box<dyn Spout<M>> + Send + Sync>;
pub(crate) type BoltFactory<M> = Arc<dyn Fn(&Context) -> Box<dyn Bolt<M>> + Send + Sync>;

/// What a bolt listens to.
pub(crate) struct Input {
    pub(crate) source: String,
    pub(crate) stream: String,
    pub(crate) grouping: Grouping,
}

/// A stream, and the fields that its messages can be grouped by.
pub(crate) struct StreamSpec<M> {
    pub(crate) name: String,
    pub(crate) fields: Vec<(String, FieldHash<M>)>,
}

pub(crate) struct SpoutKind<M> {
    pub(crate) factory: SpoutFactory<M>,
    pub(crate) max_pending: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) replay: Option<Replay>,
}

pub(crate) struct BoltKind<M> {
    pub(crate) factory: BoltFactory<M>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) tick: Option<Duration>,
}

pub(crate) enum Kind<M> {
    Spout(SpoutKind<M>),
    Bolt(BoltKind<M>),
}

/// A component, as it was declared.
pub(crate) struct Spec<M> {
    pub(crate) name: String,
    pub(crate) tasks: usize,
    pub(crate) threads: Option<usize>,
    pub(crate) streams: Vec<StreamSpec<M>>,
    pub(crate) kind: Kind<M>,
}

impl<M> Spec<M> {
    fn new(name: &str, kind: Kind<M>) -> Self {
        let stream = StreamSpec {
            name: DEFAULT.to_string(),
            fields: Vec::new(),
        };
        Spec {
            name: name.to_string(),
            tasks: 1,
            threads: None,
            streams: vec![stream],
            kind,
        }
    }

    pub(crate) fn inputs(&self) -> &[Input] {
        match &self.kind {
            Kind::Spout(_) => &[],
            Kind::Bolt(bolt) => &bolt.inputs,
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or(self.tasks)
    }

    fn replays(&self) -> bool {
        matches!(&self.kind, Kind::Spout(spout) if spout.replay.is_some())
    }

    /// What is wrong with its own settings.
    fn check(&self) -> Result<(), BuildError> {
        let (tasks, threads) = (self.tasks, self.threads());
        if tasks == 0 || threads == 0 || threads > tasks || tasks > 1 << 16 {
            let component = self.name.clone();
            return Err(BuildError::BadParallelism {
                component,
                tasks,
                threads,
            });
        }
        let wrong = match &self.kind {
            Kind::Spout(spout) if spout.max_pending == 0 => Some(("max_pending", "is zero")),
            Kind::Spout(spout) if spout.max_pending > 1 << 24 => {
                Some(("max_pending", "is above 2^24"))
            }
            Kind::Spout(spout) => {
                let replay = spout.replay.as_ref().and_then(Replay::check);
                let zero = spout
                    .timeout
                    .filter(Duration::is_zero)
                    .map(|_| ("timeout", "is zero"));
                replay.map(|why| ("replay", why)).or(zero)
            }
            Kind::Bolt(bolt) if bolt.tick == Some(Duration::ZERO) => {
                Some(("tick_every", "is zero"))
            }
            Kind::Bolt(_) => None,
        };
        let names = self.streams.iter().flat_map(|stream| {
            let fields = stream.fields.iter().map(|(name, _)| ("field", name));
            fields.chain([("stream", &stream.name)])
        });
        let unnamed = names.filter(|(_, name)| name.is_empty());
        let wrong = wrong.or_else(|| unnamed.map(|(what, _)| (what, "has no name")).next());
        match wrong {
            Some((setting, why)) => Err(BuildError::Setting {
                component: self.name.clone(),
                setting,
                why,
            }),
            None => Ok(()),
        }
    }
}

/// Which stream of which component: `"lines"` is its default stream, `("lines", "late")` another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    component: String,
    stream: String,
}

impl From<&str> for Source {
    fn from(component: &str) -> Self {
        (component, DEFAULT).into()
    }
}

impl From<(&str, &str)> for Source {
    fn from((component, stream): (&str, &str)) -> Self {
        Source {
            component: component.to_string(),
            stream: stream.to_string(),
        }
    }
}

/// What spouts and bolts have in common.
macro_rules! common_settings {
    () => {
        /// How many tasks do its work, each with an instance of its own: 1 unless said otherwise.
        pub fn parallelism(&mut self, tasks: usize) -> &mut Self {
            self.spec.tasks = tasks;
            self
        }

        /// On how many threads its tasks run: one for each unless said otherwise.
        pub fn threads(&mut self, threads: usize) -> &mut Self {
            self.spec.threads = Some(threads);
            self
        }

        /// Declares another stream. Fields that are declared from here on are its.
        pub fn stream(&mut self, name: &str) -> &mut Self {
            self.spec.streams.push(StreamSpec {
                name: name.to_string(),
                fields: Vec::new(),
            });
            self
        }

        /// Declares a field of the stream declared last (the default one, to begin with), by which listeners may group. It is borrowed from
        /// the message, so what is computed has to be put there by who emits it; of an enum, a variant that has none may give a
        /// constant: `|record| match record { Record::Word(word) => word.as_str(), _ => "" }`.
        pub fn field<T, F>(&mut self, name: &str, field: F) -> &mut Self
        where
            T: Hash + ?Sized,
            F: Fn(&M) -> &T + Send + Sync + 'static,
        {
            self.declare(
                name,
                Arc::new(move |message, mut hasher| field(message).hash(&mut hasher)),
            )
        }

        /// As [`field`](Self::field), of what is made from the message: `|order| order.customer / 100`.
        pub fn computed_field<T, F>(&mut self, name: &str, field: F) -> &mut Self
        where
            T: Hash,
            F: Fn(&M) -> T + Send + Sync + 'static,
        {
            self.declare(
                name,
                Arc::new(move |message, mut hasher| field(message).hash(&mut hasher)),
            )
        }

        fn declare(&mut self, name: &str, hash: FieldHash<M>) -> &mut Self {
            if let Some(stream) = self.spec.streams.last_mut() {
                stream.fields.push((name.to_string(), hash));
            }
            self
        }
    };
}

/// A spout's settings.
pub struct SpoutSpec<'a, M> {
    spec: &'a mut Spec<M>,
}

impl<M: 'static> SpoutSpec<'_, M> {
    common_settings!();

    fn set(&mut self, set: impl FnOnce(&mut SpoutKind<M>)) -> &mut Self {
        if let Kind::Spout(spout) = &mut self.spec.kind {
            set(spout);
        }
        self
    }

    /// The most messages that each of its tasks may have pending: in flight, held by bolts, or waiting to be emitted again. Exact. 4096
    /// unless said otherwise; each takes a hundred bytes and its message, from the start. If a bolt acks with its ticks only, no more
    /// than that goes through between two.
    pub fn max_pending(&mut self, most: usize) -> &mut Self {
        self.set(|spout| spout.max_pending = most)
    }

    /// How long a message may take, instead of the topology's timeout.
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.set(|spout| spout.timeout = Some(timeout))
    }

    /// Messages that fail or time out are emitted again. Without, the spout is told at once.
    pub fn replay(&mut self, replay: Replay) -> &mut Self {
        self.set(|spout| spout.replay = Some(replay))
    }
}

/// A bolt's settings. Groupings add up: one that listens twice to a stream gets each of its messages twice.
pub struct BoltSpec<'a, M> {
    spec: &'a mut Spec<M>,
}

impl<M: 'static> BoltSpec<'_, M> {
    common_settings!();

    fn set(&mut self, set: impl FnOnce(&mut BoltKind<M>)) -> &mut Self {
        if let Kind::Bolt(bolt) = &mut self.spec.kind {
            set(bolt);
        }
        self
    }

    fn listen(&mut self, source: Source, grouping: Grouping) -> &mut Self {
        let input = Input {
            source: source.component,
            stream: source.stream,
            grouping,
        };
        self.set(|bolt| bolt.inputs.push(input))
    }

    /// Each message goes to one of its tasks, in turn.
    pub fn shuffle(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Shuffle)
    }

    /// Each goes to the task that has the emitting one's number (modulo their count): pairs of tasks stay together, on neighbouring
    /// caches. All tasks are in one process.
    pub fn local_or_shuffle(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::LocalOrShuffle)
    }

    /// Messages with the same values in these fields go to the same task.
    pub fn fields<'f>(
        &mut self,
        source: impl Into<Source>,
        fields: impl IntoIterator<Item = &'f str>,
    ) -> &mut Self {
        let fields = fields.into_iter().map(str::to_string).collect();
        self.listen(source.into(), Grouping::Fields(fields))
    }

    /// Each goes to all of its tasks.
    pub fn all(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::All)
    }

    /// All go to its first task.
    pub fn global(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Global)
    }

    /// Who emits says to which task: messages emitted otherwise on this stream do not come here.
    pub fn direct(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Direct)
    }

    /// Has [`tick`](Bolt::tick) called in each of its tasks, about so often. If it acks in there the
    /// [timeout](TopologyBuilder::timeout) has to be longer, or all that it holds times out.
    pub fn tick_every(&mut self, time: Duration) -> &mut Self {
        self.set(|bolt| bolt.tick = Some(time))
    }
}

impl<M> fmt::Debug for SpoutSpec<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpoutSpec").field(&self.spec.name).finish()
    }
}

impl<M> fmt::Debug for BoltSpec<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoltSpec").field(&self.spec.name).finish()
    }
}

pub(crate) type OnDeadLetter<M> = Box<dyn Fn(DeadLetter<M>) + Send + Sync>;

/// Declares a topology: spouts, bolts, who listens to whom. See the crate's head for an example.
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
        f.debug_struct("TopologyBuilder")
            .field("components", &names)
            .finish_non_exhaustive()
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
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a spout; `make` makes an instance for each task, and another one after a panic.
    pub fn spout<S: Spout<M> + 'static>(
        &mut self,
        name: &str,
        make: impl Fn(&Context) -> S + Send + Sync + 'static,
    ) -> SpoutSpec<'_, M> {
        let kind = Kind::Spout(SpoutKind {
            factory: Arc::new(move |context| Box::new(make(context))),
            max_pending: 4096,
            timeout: None,
            replay: None,
        });
        SpoutSpec {
            spec: self.add(Spec::new(name, kind)),
        }
    }

    /// Adds a bolt; `make` makes an instance for each task, and another one after a panic.
    pub fn bolt<B: Bolt<M> + 'static>(
        &mut self,
        name: &str,
        make: impl Fn(&Context) -> B + Send + Sync + 'static,
    ) -> BoltSpec<'_, M> {
        let kind = Kind::Bolt(BoltKind {
            factory: Arc::new(move |context| Box::new(make(context))),
            inputs: Vec::new(),
            tick: None,
        });
        BoltSpec {
            spec: self.add(Spec::new(name, kind)),
        }
    }

    fn add(&mut self, spec: Spec<M>) -> &mut Spec<M> {
        self.specs.push(spec);
        let last = self.specs.len() - 1;
        &mut self.specs[last]
    }

    /// How long all that is derived from a message may take, from each attempt on, the time in which bolts hold it included.
    /// `Duration::MAX` for as long as it likes.
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// The granularity of timeouts. If it is not given, a 300th of the timeout, between 1 ms and 1 s.
    pub fn interval(&mut self, interval: Duration) -> &mut Self {
        self.interval = Some(interval);
        self
    }

    /// Whether trees are tracked. If not, a message is acked as soon as it is emitted, and nothing times out: at most once.
    pub fn acking(&mut self, acking: bool) -> &mut Self {
        self.acking = acking;
        self
    }

    /// How many batches the queue of a task of a bolt holds.
    pub fn queue(&mut self, batches: usize) -> &mut Self {
        self.queue = batches;
        self
    }

    /// How many messages travel together at most.
    pub fn batch(&mut self, messages: usize) -> &mut Self {
        self.batch = messages;
        self
    }

    /// How long a message waits for others at most, where there is more to do. (A task that has nothing to do sends what it has.)
    pub fn flush_every(&mut self, time: Duration) -> &mut Self {
        self.flush_every = time;
        self
    }

    /// How threads wait that have nothing to do.
    pub fn wait(&mut self, strategy: impl WaitStrategy) -> &mut Self {
        self.wait = Arc::new(strategy);
        self
    }

    /// The clock that timeouts, pauses and ticks go by: it must not panic. With one that does not run with real time threads look at
    /// it once a millisecond; better is [`start_manual`](Self::start_manual).
    pub fn clock(&mut self, clock: impl Clock) -> &mut Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Nothing is emitted until [`Topology::activate`].
    pub fn start_inactive(&mut self) -> &mut Self {
        self.inactive = true;
        self
    }

    /// Adds one who is told what happens.
    pub fn hook(&mut self, hook: impl Hook<M> + 'static) -> &mut Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Who gets the messages that are given up, on the spout's thread, before the spout is told. With such a handler, or with
    /// [`replay`](SpoutSpec::replay), a copy of each message is kept while it is pending. If it panics, that is counted, the
    /// letter is gone, and the spout is told all the same.
    pub fn on_dead_letter(
        &mut self,
        handler: impl Fn(DeadLetter<M>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_dead_letter = Some(Box::new(handler));
        self
    }

    /// Makes groupings, edges and jitter reproducible, as far as threads let them be.
    pub fn seed(&mut self, seed: u64) -> &mut Self {
        self.seed = Some(seed);
        self
    }

    /// Starts it, each task on its thread.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says what is wrong, and with which component.
    pub fn start(self) -> Result<Topology, BuildError> {
        Topology::start(self)
    }

    /// Makes it without threads: its tasks run in [`ManualTopology::step`], in turn. With a
    /// [`ManualClock`](expiry::ManualClock), a simulation that is the same every time, for one [`seed`](Self::seed). This is how
    /// a bolt of one's own is tested, between a spout that emits what it is to be given and a bolt that keeps what it emits: see
    /// [`ManualTopology`].
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_manual(self) -> Result<ManualTopology<M>, BuildError> {
        ManualTopology::start(self)
    }

    /// Checks all of it.
    pub(crate) fn check(&self) -> Result<Graph<M>, BuildError> {
        self.specs.iter().try_for_each(Spec::check)?;
        if let Some(spec) = self
            .specs
            .iter()
            .find(|spec| spec.replays() && !self.acking)
        {
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
            return Err(BuildError::Setting {
                component: String::new(),
                setting,
                why,
            });
        }
        Graph::new(&self.specs)
    }
}
