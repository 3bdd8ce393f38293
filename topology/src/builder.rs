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
///
/// # Examples
///
/// ```
/// use expiry_topology::{Source, DEFAULT};
///
/// assert_eq!(Source::from("lines"), Source::from(("lines", DEFAULT)));
/// assert_ne!(Source::from("lines"), Source::from(("lines", "late")));
/// ```
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
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
        /// use expiry_topology::{basic, TopologyBuilder};
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..3)).parallelism(2);
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).parallelism(4).shuffle("numbers");
        /// let mut topology = topology.start_manual()?;
        /// assert!(topology.settle(1_000));
        /// let [numbers, sink] = &topology.metrics()[..] else { unreachable!("there are two") };
        /// assert_eq!((numbers.tasks, numbers.emitted, sink.tasks, sink.executed), (2, 6, 4, 6));
        /// # Ok::<(), expiry_topology::BuildError>(())
        /// ```
        pub fn parallelism(&mut self, tasks: usize) -> &mut Self {
            self.spec.tasks = tasks;
            self
        }

        /// On how many threads its tasks run: one for each unless said otherwise.
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
        /// # use std::time::Duration;
        /// use expiry_topology::{basic, TopologyBuilder};
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..3)).parallelism(4).threads(1);
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).parallelism(8).threads(2).shuffle("numbers");
        /// let topology = topology.start()?;
        /// topology.wait(Duration::from_secs(60))?;
        /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[1].tasks), (12, 8));
        /// assert!(format!("{topology:?}").contains("threads: 3"));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn threads(&mut self, threads: usize) -> &mut Self {
            self.spec.threads = Some(threads);
            self
        }

        /// Declares another stream. Fields that are declared from here on are its.
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
        /// use expiry_topology::{basic, TopologyBuilder};
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..10));
        /// topology
        ///     .bolt("sort", |_| basic(|n: &u64, out| out.emit_on(if n % 3 == 0 { "threes" } else { "others" }, *n)))
        ///     .shuffle("numbers")
        ///     .stream("threes")
        ///     .stream("others");
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle(("sort", "threes"));
        /// let mut topology = topology.start_manual()?;
        /// assert!(topology.settle(1_000));
        /// assert_eq!(topology.metrics()[2].executed, 4); // 0, 3, 6, 9
        /// # Ok::<(), expiry_topology::BuildError>(())
        /// ```
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
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
        /// use expiry_topology::{basic, TopologyBuilder};
        /// use std::collections::HashSet;
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..100)).parallelism(2).field("number", |n: &u64| n);
        /// let distinct = |seen: &mut HashSet<u64>, n: u64| seen.insert(n).then_some(n);
        /// topology
        ///     .bolt("distinct", move |_| {
        ///         let mut seen = HashSet::new();
        ///         basic(move |n: &u64, out| distinct(&mut seen, *n).map_or((), |n| out.emit(n)))
        ///     })
        ///     .parallelism(4)
        ///     .fields("numbers", ["number"]);
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).global("distinct");
        /// let mut topology = topology.start_manual()?;
        /// assert!(topology.settle(1_000));
        /// assert_eq!(topology.metrics()[2].executed, 100); // of 200: both of a number go to the same task
        /// # Ok::<(), expiry_topology::BuildError>(())
        /// ```
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
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
        /// use expiry_topology::{basic, TopologyBuilder};
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..100)).computed_field("hundred", |n: &u64| n / 100);
        /// topology
        ///     .bolt("first", |_| {
        ///         let mut is_first = true;
        ///         basic(move |n: &u64, out| if std::mem::take(&mut is_first) { out.emit(*n) })
        ///     })
        ///     .parallelism(4)
        ///     .fields("numbers", ["hundred"]);
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).global("first");
        /// let mut topology = topology.start_manual()?;
        /// assert!(topology.settle(1_000));
        /// assert_eq!(topology.metrics()[2].executed, 1); // all are of one hundred, and so have gone to one task
        /// # Ok::<(), expiry_topology::BuildError>(())
        /// ```
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
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
/// use expiry_topology::{basic, Replay, TopologyBuilder};
/// use std::time::Duration;
///
/// let mut topology = TopologyBuilder::new();
/// let mut numbers = topology.spout("numbers", |context| Numbers(0..10 * (1 + context.task() as u64)));
/// numbers.parallelism(2).max_pending(100).timeout(Duration::from_secs(5)).replay(Replay::default());
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(1_000));
/// assert_eq!((topology.metrics()[0].tasks, topology.metrics()[0].acked), (2, 30));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..100)).max_pending(10);
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true); // nothing is acked
    /// assert!(topology.settle(1_000));
    /// assert_eq!((topology.metrics()[0].emitted, topology.metrics()[0].pending), (10, 10));
    /// topology.hold("sink", false);
    /// assert!(topology.settle(1_000) && topology.is_finished());
    /// assert_eq!(topology.metrics()[0].acked, 100);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn max_pending(&mut self, most: usize) -> &mut Self {
        self.set(|spout| spout.max_pending = most)
    }

    /// How long a message may take, instead of the topology's timeout.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let (clock, second, mut topology) = (ManualClock::new(), Duration::from_secs(1), TopologyBuilder::new());
    /// topology.clock(clock.clone()).timeout(60 * second);
    /// topology.spout("slow", |_| Numbers(0..1));
    /// topology.spout("fast", |_| Numbers(0..1)).timeout(5 * second);
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("slow").shuffle("fast");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// clock.advance(6 * second);
    /// assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].timed_out, topology.metrics()[1].timed_out), (0, 1));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.set(|spout| spout.timeout = Some(timeout))
    }

    /// Messages that fail or time out are emitted again. Without, the spout is told at once.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// use expiry_topology::{basic, ManualClock, Replay, TopologyBuilder};
    ///
    /// let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// topology.clock(clock.clone());
    /// topology.spout("numbers", |_| Numbers(0..1)).replay(Replay::default());
    /// topology
    ///     .bolt("third time lucky", |_| {
    ///         let mut tries = 0;
    ///         basic(move |_: &u64, _| { tries += 1; if tries < 3 { Err("not yet") } else { Ok(()) } })
    ///     })
    ///     .shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.run(1_000, |next| clock.advance(next)));
    /// let numbers = &topology.metrics()[0];
    /// assert_eq!((numbers.failed, numbers.replayed, numbers.acked), (2, 2, 1));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn replay(&mut self, replay: Replay) -> &mut Self {
        self.set(|spout| spout.replay = Some(replay))
    }
}

/// A bolt's settings. Groupings add up: one that listens twice to a stream gets each of its messages twice.
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
/// use expiry_topology::{basic, TopologyBuilder};
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("odd", |_| Numbers(0..3));
/// topology.spout("even", |_| Numbers(0..4));
/// let mut sink = topology.bolt("sink", |_| basic(|_: &u64, _| ()));
/// sink.shuffle("odd").shuffle("even").all("even").parallelism(2); // one of two, and both of them
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(1_000));
/// assert_eq!(topology.metrics()[2].executed, 3 + 4 + 2 * 4);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..6));
    /// topology
    ///     .bolt("sink", move |context| {
    ///         let (task, sender) = (context.task(), sender.clone());
    ///         basic(move |_: &u64, _| sender.send(task).expect("it is read"))
    ///     })
    ///     .parallelism(3)
    ///     .shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(1_000));
    /// let mut tasks: Vec<usize> = came.try_iter().collect();
    /// tasks.sort();
    /// assert_eq!(tasks, [0, 0, 1, 1, 2, 2]);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn shuffle(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Shuffle)
    }

    /// Each goes to the task that has the emitting one's number (modulo their count): pairs of tasks stay together, on neighbouring
    /// caches. All tasks are in one process.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |context| { let n = context.task() as u64; Numbers(n..n + 1) }).parallelism(4);
    /// topology
    ///     .bolt("sink", move |context| {
    ///         let (task, sender) = (context.task() as u64, sender.clone());
    ///         basic(move |n: &u64, _| sender.send((*n, task)).expect("it is read"))
    ///     })
    ///     .parallelism(4)
    ///     .local_or_shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(1_000));
    /// let mut pairs: Vec<(u64, u64)> = came.try_iter().collect();
    /// pairs.sort();
    /// assert_eq!(pairs, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn local_or_shuffle(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::LocalOrShuffle)
    }

    /// Messages with the same values in these fields go to the same task.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..100)).computed_field("parity", |n: &u64| n % 2);
    /// topology
    ///     .bolt("sink", move |context| {
    ///         let (task, sender) = (context.task(), sender.clone());
    ///         basic(move |n: &u64, _| sender.send((n % 2, task)).expect("it is read"))
    ///     })
    ///     .parallelism(4)
    ///     .fields("numbers", ["parity"]);
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(1_000));
    /// let mut places: Vec<(u64, usize)> = came.try_iter().collect();
    /// places.sort();
    /// places.dedup();
    /// assert_eq!(places.len(), 2); // each parity has one task
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn fields<'f>(
        &mut self,
        source: impl Into<Source>,
        fields: impl IntoIterator<Item = &'f str>,
    ) -> &mut Self {
        let fields = fields.into_iter().map(str::to_string).collect();
        self.listen(source.into(), Grouping::Fields(fields))
    }

    /// Each goes to all of its tasks.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("news", |_| Numbers(0..2));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).parallelism(3).all("news");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(1_000));
    /// let [news, sink] = &topology.metrics()[..] else { unreachable!("there are two") };
    /// assert_eq!((news.emitted, news.transferred, sink.executed), (2, 6, 6));
    /// assert_eq!(news.acked, 2); // when all three tasks have acked it
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn all(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::All)
    }

    /// All go to its first task.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..3));
    /// topology
    ///     .bolt("sink", move |context| {
    ///         let (task, sender) = (context.task(), sender.clone());
    ///         basic(move |_: &u64, _| sender.send(task).expect("it is read"))
    ///     })
    ///     .parallelism(3)
    ///     .global("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(1_000));
    /// assert!(came.try_iter().eq([0, 0, 0]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn global(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Global)
    }

    /// Who emits says to which task: messages emitted otherwise on this stream do not come here.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder, DEFAULT};
    ///
    /// struct Router;
    ///
    /// impl Spout<u64> for Router {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         out.emit_direct(DEFAULT, 2, 7, 0).expect("there is a task 2");
    ///         out.emit(8, 1).expect("there is room"); // to nobody in particular
    ///         Next::Done
    ///     }
    /// }
    ///
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("router", |_| Router);
    /// topology
    ///     .bolt("sink", move |context| {
    ///         let (task, sender) = (context.task(), sender.clone());
    ///         basic(move |n: &u64, _| sender.send((task, *n)).expect("it is read"))
    ///     })
    ///     .parallelism(3)
    ///     .direct("router");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(1_000));
    /// assert!(came.try_iter().eq([(2, 7)]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn direct(&mut self, source: impl Into<Source>) -> &mut Self {
        self.listen(source.into(), Grouping::Direct)
    }

    /// Has [`tick`](Bolt::tick) called in each of its tasks, about so often. If it acks in there the
    /// [timeout](TopologyBuilder::timeout) has to be longer, or all that it holds times out.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// use expiry_topology::{basic, Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple};
    /// use std::time::Duration;
    ///
    /// struct Beat;
    ///
    /// impl Bolt<u64> for Beat {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         out.ack(tuple);
    ///     }
    ///
    ///     fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
    ///         out.emit((), 1);
    ///     }
    /// }
    ///
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// # topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("beat", |_| Beat).shuffle("numbers").tick_every(Duration::from_secs(10));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("beat");
    /// # let mut topology = topology.start_manual()?;
    /// for _ in 0..35 {
    ///     clock.advance(Duration::from_secs(1));
    ///     assert!(topology.settle(100));
    /// }
    /// assert_eq!(topology.metrics()[1].emitted, 3);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
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
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
/// use expiry_topology::{basic, TopologyBuilder};
/// use std::time::Duration;
///
/// let mut topology = TopologyBuilder::new();
/// topology.timeout(Duration::from_secs(10)).seed(1);
/// topology.spout("numbers", |_| Numbers(0..10));
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
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{BuildError, TopologyBuilder};
    ///
    /// let topology = TopologyBuilder::<u64>::new();
    /// assert_eq!(topology.start_manual().err(), Some(BuildError::NoSpout));
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a spout; `make` makes an instance for each task, and another one after a panic.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// let of_task = |task: usize| Numbers(10 * task as u64..10 * task as u64 + 10);
    /// topology.spout("numbers", move |context| of_task(context.task())).parallelism(3);
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(1_000));
    /// assert_eq!((topology.metrics()[0].tasks, topology.metrics()[0].acked), (3, 30));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..5));
    /// topology
    ///     .bolt("count", move |_| {
    ///         let (mut count, sender) = (0, sender.clone()); // each instance has its own
    ///         basic(move |n: &u64, _| {
    ///             count += 1;
    ///             assert_ne!(*n, 2, "a panic ends the instance");
    ///             sender.send(count).expect("it is read");
    ///         })
    ///     })
    ///     .shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(1_000));
    /// assert!(came.try_iter().eq([1, 2, 1, 2])); // another one from 3 on
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let (clock, second, mut topology) = (ManualClock::new(), Duration::from_secs(1), TopologyBuilder::new());
    /// topology.clock(clock.clone()).timeout(10 * second);
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true); // it does not come to it
    /// assert!(topology.settle(100));
    /// clock.advance(9 * second);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 0);
    /// clock.advance(2 * second);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 1);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// The granularity of timeouts. If it is not given, a 300th of the timeout, between 1 ms and 1 s.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let (clock, second, mut topology) = (ManualClock::new(), Duration::from_secs(1), TopologyBuilder::new());
    /// topology.clock(clock.clone()).timeout(10 * second).interval(4 * second);
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// clock.advance(11 * second);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 0); // 10 s, rounded up to 12
    /// clock.advance(second);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 1);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn interval(&mut self, interval: Duration) -> &mut Self {
        self.interval = Some(interval);
        self
    }

    /// Whether trees are tracked. If not, a message is acked as soon as it is emitted, and nothing times out: at most once.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.acking(false);
    /// topology.spout("numbers", |_| Numbers(0..3));
    /// topology.bolt("lossy", |_| basic(|_: &u64, _| Err::<(), _>("nobody hears of this"))).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].failed), (3, 0));
    /// assert!(topology.tracker().is_none());
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn acking(&mut self, acking: bool) -> &mut Self {
        self.acking = acking;
        self
    }

    /// How many batches the queue of a task of a bolt holds.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.clock(ManualClock::new());
    /// topology.queue(4).batch(1);
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(1_000));
    /// let [numbers, sink] = &topology.metrics()[..] else { unreachable!("there are two") };
    /// assert_eq!((numbers.emitted, numbers.overflow, sink.queued), (5, 1, 4)); // then the spout is not asked
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn queue(&mut self, batches: usize) -> &mut Self {
        self.queue = batches;
        self
    }

    /// How many messages travel together at most.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.clock(ManualClock::new());
    /// topology.batch(10);
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(1_000));
    /// assert_eq!((topology.metrics()[0].emitted, topology.metrics()[1].queued), (100, 10));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn batch(&mut self, messages: usize) -> &mut Self {
        self.batch = messages;
        self
    }

    /// How long a message waits for others at most, where there is more to do. (A task that has nothing to do sends what it has.)
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.clock(ManualClock::new());
    /// topology.flush_every(Duration::ZERO); // each message at once, though 64 might travel together
    /// topology.spout("numbers", |_| Numbers(0..20));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(1_000));
    /// assert_eq!(topology.metrics()[1].queued, 20); // batches
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn flush_every(&mut self, time: Duration) -> &mut Self {
        self.flush_every = time;
        self
    }

    /// How threads wait that have nothing to do.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use std::time::Duration;
    /// use expiry_topology::{basic, Parking, TopologyBuilder};
    ///
    /// let mut topology = TopologyBuilder::new();
    /// topology.wait(Parking); // threads that have nothing to do cost nothing, at once
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let topology = topology.start()?;
    /// topology.wait(Duration::from_secs(60))?;
    /// assert_eq!(topology.metrics()[0].acked, 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&mut self, strategy: impl WaitStrategy) -> &mut Self {
        self.wait = Arc::new(strategy);
        self
    }

    /// The clock that timeouts, pauses and ticks go by: it must not panic. With one that does not run with real time threads look at
    /// it once a millisecond; better is [`start_manual`](Self::start_manual).
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let mut topology = TopologyBuilder::new();
    /// use expiry_topology::ManualClock;
    ///
    /// let (clock, hour) = (ManualClock::new(), Duration::from_secs(3600));
    /// topology.clock(clock.clone()).timeout(24 * hour);
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// clock.advance(23 * hour);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 0);
    /// clock.advance(2 * hour);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 1); // and no day has passed
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn clock(&mut self, clock: impl Clock) -> &mut Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Nothing is emitted until [`Topology::activate`].
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.start_inactive();
    /// topology.spout("numbers", |_| Numbers(0..3));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert_eq!(topology.metrics()[0].emitted, 0);
    /// topology.activate();
    /// assert!(topology.settle(100));
    /// assert_eq!(topology.metrics()[0].emitted, 3);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn start_inactive(&mut self) -> &mut Self {
        self.inactive = true;
        self
    }

    /// Adds one who is told what happens.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// use expiry_topology::{basic, Context, Hook, TopologyBuilder};
    /// use std::sync::mpsc::{channel, Sender};
    ///
    /// struct Trace(Sender<String>);
    ///
    /// impl<M> Hook<M> for Trace {
    ///     fn error(&self, task: &Context, error: &str) {
    ///         self.0.send(format!("{task:?}: {error}")).expect("it is read");
    ///     }
    /// }
    ///
    /// let (sender, traced) = channel();
    /// let mut topology = TopologyBuilder::new();
    /// topology.hook(Trace(sender));
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|n: &u64, _| Err::<(), _>(format!("{n} is none of mine")))).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert!(traced.try_iter().eq(["sink[0 of 1]: 0 is none of mine".to_string()]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn hook(&mut self, hook: impl Hook<M> + 'static) -> &mut Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Who gets the messages that are given up, on the spout's thread, before the spout is told. With such a handler, or with
    /// [`replay`](SpoutSpec::replay), a copy of each message is kept while it is pending. If it panics, that is counted, the
    /// letter is gone, and the spout is told all the same.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let (sender, letters) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.on_dead_letter(move |letter| sender.send((letter.message, letter.failure.to_string())).expect("it is read"));
    /// topology.spout("numbers", |_| Numbers(0..3));
    /// topology
    ///     .bolt("sink", |_| basic(|n: &u64, _| if *n == 1 { Err("it is 1") } else { Ok(()) }))
    ///     .shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert!(letters.try_iter().eq([(1, r#"it was failed by "sink": it is 1"#.to_string())]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn on_dead_letter(
        &mut self,
        handler: impl Fn(DeadLetter<M>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_dead_letter = Some(Box::new(handler));
        self
    }

    /// Makes groupings, edges and jitter reproducible, as far as threads let them be.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// use expiry_topology::{basic, BuildError, ManualClock, TopologyBuilder};
    /// fn tasks_of_numbers(seed: u64) -> Result<Vec<(usize, u64)>, BuildError> {
    ///     # let (sender, came) = std::sync::mpsc::channel();
    ///     let mut topology = TopologyBuilder::new();
    ///     topology.clock(ManualClock::new()).seed(seed);
    ///     topology.spout("numbers", |_| Numbers(0..100)).field("number", |n: &u64| n);
    ///     # topology
    ///     #     .bolt("sink", move |context| {
    ///     #         let (task, sender) = (context.task(), sender.clone());
    ///     #         basic(move |n: &u64, _| sender.send((task, *n)).expect("it is read"))
    ///     #     })
    ///     #     .parallelism(4)
    ///     #     .fields("numbers", ["number"]);
    ///     # let mut topology = topology.start_manual()?;
    ///     # assert!(topology.settle(1_000));
    ///     // and a bolt of four tasks that groups by that field, and sends both here
    ///     Ok(came.try_iter().collect())
    /// }
    ///
    /// assert_eq!(tasks_of_numbers(7)?, tasks_of_numbers(7)?);
    /// assert_ne!(tasks_of_numbers(7)?, tasks_of_numbers(8)?);
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn seed(&mut self, seed: u64) -> &mut Self {
        self.seed = Some(seed);
        self
    }

    /// Starts it, each task on its thread.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says what is wrong, and with which component.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// use expiry_topology::{basic, BuildError, TopologyBuilder};
    /// use std::time::Duration;
    ///
    /// let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).parallelism(2).shuffle("numbers");
    /// let topology = topology.start()?;
    /// topology.wait(Duration::from_secs(60))?;
    /// assert_eq!(topology.metrics()[1].executed, 100);
    ///
    /// let mut deaf = TopologyBuilder::new();
    /// deaf.spout("numbers", |_| Numbers(0..100));
    /// deaf.bolt("sink", |_| basic(|_: &u64, _| ()));
    /// assert_eq!(deaf.start().err(), Some(BuildError::NoInput("sink".to_string())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// use expiry_topology::{basic, ManualClock, TopologyBuilder};
    ///
    /// let (sender, came) = std::sync::mpsc::channel();
    /// let mut topology = TopologyBuilder::new();
    /// topology.clock(ManualClock::new()).seed(1);
    /// topology.spout("given", |_| Numbers(2..5));
    /// topology.bolt("square", |_| basic(|n: &u64, out| out.emit(n * n))).shuffle("given"); // the one that is tested
    /// topology
    ///     .bolt("kept", move |_| { let kept = sender.clone(); basic(move |n: &u64, _| kept.send(*n).expect("it is read")) })
    ///     .shuffle("square");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert!(came.try_iter().eq([4, 9, 16]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
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
