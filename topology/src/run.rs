//! Topologies at work: on threads, or step by step.

use crate::bolt_task::BoltTask;
use crate::builder::{Kind, Spec, TopologyBuilder};
use crate::component::Context;
use crate::emit::{Batch, Emitter, Hooks, Outbox};
use crate::error::BuildError;
use crate::gate::Gate;
use crate::inbox::{Bell, Call, Inbox, Jam};
use crate::metrics::{ComponentMetrics, Stats};
use crate::outcomes::{Desks, Ended};
use crate::spout_task::{SpoutParts, SpoutTask};
use crate::sync::Parker;
use crate::task::{caught, Shared, Task};
use crate::wait::{Wait, WaitStrategy};
use expiry::{AckTracker, Clock, CoarseClock, Fate};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread sleeps at most that waits for room downstream, or goes by a clock that it cannot sleep by.
const NAP: Duration = Duration::from_millis(1);

/// How often who waits for a topology looks at it.
const LOOK: Duration = Duration::from_millis(1);

/// What one task shows to others.
struct Window {
    component: usize,
    stats: Arc<Stats>,
    queued: Box<dyn Fn() -> usize + Send + Sync>,
}

/// What is known of a topology from outside.
struct Board {
    windows: Vec<Window>,
    bells: Vec<Arc<Bell>>,
    shared: Arc<Shared>,
}

impl Board {
    /// What its components are called, in the order in which they were declared.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.shared.names.iter().map(|(name, _)| &**name)
    }

    fn metrics(&self) -> Vec<ComponentMetrics> {
        let mut metrics: Vec<_> = self.names().map(ComponentMetrics::new).collect();
        for window in &self.windows {
            metrics[window.component].add(&window.stats, (window.queued)());
        }
        metrics
    }

    fn activate(&self, active: bool) {
        self.shared.gate.set(active);
        self.bells.iter().for_each(|bell| bell.ring());
    }

    /// Whether nothing is under way: every message that was sent has been executed, and no spout has something pending.
    fn is_quiet(&self) -> bool {
        let pending = || {
            self.windows
                .iter()
                .any(|window| window.stats.pending.get() != 0)
        };
        !pending() && self.under_way() == 0 && !pending()
    }

    /// How many tuples were sent that have not been executed.
    fn under_way(&self) -> u64 {
        let stats = || self.windows.iter().map(|window| &window.stats);
        // What was executed is read first: what that has sent is then in the sum that is read next, which is never less.
        let executed: u64 = stats().map(|stats| stats.executed.get()).sum();
        let sent: u64 = stats().map(|stats| stats.transferred.get()).sum();
        sent - executed
    }

    /// Whether no spout is asked for messages, nor is about to be.
    fn is_silent(&self) -> bool {
        !self
            .windows
            .iter()
            .any(|window| window.stats.visitor.is_inside())
    }

    fn is_done(&self) -> bool {
        let spouts = |window: &&Window| window.stats.is_spout;
        self.windows
            .iter()
            .filter(spouts)
            .all(|window| window.stats.is_done.load(Ordering::Acquire))
    }

    /// Who keeps a topology from coming to rest; with `is_done_asked`, also who is not done.
    fn stuck(&self, is_done_asked: bool) -> Stuck {
        let now = self.shared.clock.now();
        let metrics = self.metrics();
        let mut components = Vec::new();
        for (at, metrics) in metrics.iter().enumerate() {
            let since = self.windows.iter().filter(|window| window.component == at);
            let since = since
                .map(|window| window.stats.busy_since.get())
                .filter(|&since| since != 0)
                .min();
            let busy = Duration::from_nanos(since.map_or(0, |since| now.saturating_sub(since)));
            let ComponentMetrics {
                pending,
                held,
                queued,
                overflow,
                ..
            } = *metrics;
            let mut tasks = self.windows.iter().filter(|window| window.component == at);
            let is_awaited = is_done_asked
                && tasks
                    .any(|task| task.stats.is_spout && !task.stats.is_done.load(Ordering::Acquire));
            let has_some = pending + held + overflow > 0 || queued > 0;
            if is_awaited || has_some || since.is_some() {
                components.push(StuckComponent {
                    name: metrics.name.clone(),
                    pending,
                    held,
                    queued,
                    overflow,
                    is_awaited,
                    busy,
                });
            }
        }
        Stuck {
            components,
            under_way: self.under_way(),
        }
    }
}

/// A topology has not come to rest in time.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
/// use std::time::Duration;
///
/// /// Is never done.
/// struct Asleep;
///
/// impl Spout<u64> for Asleep {
///     fn next(&mut self, _: &mut SpoutCollector<'_, u64>) -> Next {
///         Next::Asleep
///     }
/// }
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("asleep", |_| Asleep);
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("asleep");
/// let topology = topology.start()?;
/// let stuck = topology.wait(Duration::ZERO).unwrap_err();
/// assert_eq!(stuck.under_way, 0);
/// assert!(stuck.to_string().contains(r#""asleep" (not done, "#));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// Those who are not at rest.
    pub components: Vec<StuckComponent>,
    /// Tuples that were sent and have not been executed. (Those that bolts hold have been.)
    pub under_way: u64,
}

/// A component that is not at rest: to [`Topology::wait`] also a spout that is not done, with nothing pending.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
/// # use std::time::Duration;
///
/// /// Is never done.
/// struct Asleep;
///
/// impl Spout<u64> for Asleep {
///     fn next(&mut self, _: &mut SpoutCollector<'_, u64>) -> Next {
///         Next::Asleep
///     }
/// }
///
/// # let mut topology = TopologyBuilder::new();
/// # topology.spout("asleep", |_| Asleep);
/// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("asleep");
/// # let topology = topology.start()?;
/// let stuck = topology.wait(Duration::ZERO).unwrap_err();
/// let culprit = &stuck.components[0];
/// assert_eq!((culprit.name.as_str(), culprit.is_awaited, culprit.pending), ("asleep", true, 0));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StuckComponent {
    /// Its name.
    pub name: String,
    /// Messages that it has pending. Of spouts.
    pub pending: u64,
    /// Tuples that it has neither acked nor failed. Of bolts.
    pub held: u64,
    /// Batches in its queues. Of bolts.
    pub queued: usize,
    /// Batches that it could not send on yet.
    pub overflow: u64,
    /// It is a spout, it is not done, and somebody waits for that.
    pub is_awaited: bool,
    /// For how long one of its tasks has been in a call of its own code: a spout that blocks, say.
    pub busy: Duration,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_way = self.under_way;
        write!(
            f,
            "the topology has not come to rest in time: {under_way} tuples are under way;"
        )?;
        for component in &self.components {
            write!(f, " {:?} (", component.name)?;
            let figures = [
                (component.pending, "pending"),
                (component.held, "held"),
                (component.queued as u64, "batches queued"),
                (component.overflow, "batches without room"),
            ];
            if component.is_awaited {
                f.write_str("not done, ")?;
            }
            for (figure, what) in figures.into_iter().filter(|(figure, _)| *figure > 0) {
                write!(f, "{figure} {what}, ")?;
            }
            if component.busy.is_zero() {
                f.write_str("not in its own code)")?;
            } else {
                write!(f, "in its own code for {:?})", component.busy)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Stuck {}

/// A topology's tasks, thread by thread, before they run.
struct Parts {
    board: Board,
    threads: Vec<Thread>,
    wait: Arc<dyn WaitStrategy>,
    /// Whether a thread can sleep by the clock.
    real: bool,
}

/// What a thread runs.
struct Thread {
    component: usize,
    name: String,
    tasks: Vec<Box<dyn Task>>,
    bell: Arc<Bell>,
    parker: Parker,
}

/// What components, and their streams, are called.
fn names<M>(specs: &[Spec<M>]) -> Vec<(Arc<str>, Vec<Arc<str>>)> {
    let of = |spec: &Spec<M>| {
        let streams = spec
            .streams
            .iter()
            .map(|stream| stream.name.as_str().into());
        (spec.name.as_str().into(), streams.collect())
    };
    specs.iter().map(of).collect()
}

/// Whether the interval allows the spouts' timeouts.
fn check_timeouts<M>(specs: &[Spec<M>], longest: Duration) -> Result<(), BuildError> {
    for spec in specs {
        if matches!(&spec.kind, Kind::Spout(spout) if spout.timeout > Some(longest)) {
            return Err(BuildError::Setting {
                component: spec.name.clone(),
                setting: "timeout",
                why: "is above 2^39 intervals; give the topology a longer interval",
            });
        }
    }
    Ok(())
}

fn assemble<M: Clone + Send + 'static>(
    builder: TopologyBuilder<M>,
    manual: bool,
) -> Result<Parts, BuildError> {
    let graph = builder.check()?;
    let real = builder.clock.is_none();
    let clock: Arc<dyn Clock> = builder
        .clock
        .unwrap_or_else(|| Arc::new(CoarseClock::new()));
    let mut random = builder
        .seed
        .map_or_else(SmallRng::from_os_rng, SmallRng::seed_from_u64);

    // A bell for each thread, an inbox for each task.
    let threads = |spec: &Spec<M>| (0..spec.threads()).map(|_| Bell::new()).collect();
    let bells: Vec<Vec<(Arc<Bell>, Parker)>> = builder.specs.iter().map(threads).collect();
    let mut lanes: Vec<Arc<Inbox<Batch<M>>>> = Vec::new();
    let mut outcomes: Vec<Arc<Inbox<Ended>>> = Vec::new();
    for (at, (spec, threads)) in builder.specs.iter().zip(&bells).enumerate() {
        let senders = graph.senders[at].iter().flat_map(|&from| &bells[from]);
        let senders: Vec<_> = senders.map(|(bell, _)| bell.clone()).collect();
        for task in 0..spec.tasks {
            let bell = threads[task % threads.len()].0.clone();
            match &spec.kind {
                Kind::Spout(spout) => {
                    outcomes.push(Arc::new(Inbox::new(spout.max_pending, bell, Vec::new())));
                }
                Kind::Bolt(_) => {
                    lanes.push(Arc::new(Inbox::new(builder.queue, bell, senders.clone())));
                }
            }
        }
    }
    let desks = Desks::new(outcomes.clone());
    let jam = |threads: &Vec<(Arc<Bell>, Parker)>| {
        Arc::new(Jam::new(
            threads.iter().map(|(bell, _)| bell.clone()).collect(),
        ))
    };
    let jams: Vec<Arc<Jam>> = bells.iter().map(jam).collect();

    let tracker = if builder.acking {
        let mut tracker = AckTracker::builder()
            .timeout(builder.timeout)
            .clock(clock.clone())
            // Spouts take it, over all attempts.
            .latency_sampling(0.0)
            .on_outcome(desks.clone());
        if let Some(interval) = builder.interval {
            tracker = tracker.interval(interval);
        }
        if let Some(seed) = builder.seed {
            tracker = tracker.seed(seed);
        }
        let tracker = if manual || !real {
            tracker.build_manual()
        } else {
            tracker.build()
        };
        let tracker = tracker?;
        check_timeouts(&builder.specs, tracker.longest_timeout())?;
        Some(Arc::new(tracker))
    } else {
        None
    };
    let shared = Arc::new(Shared {
        tracker,
        desks,
        clock,
        flush_every: u64::try_from(builder.flush_every.as_nanos()).unwrap_or(u64::MAX),
        names: names(&builder.specs),
        gate: Gate::new(!builder.inactive),
        draining: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
    });
    let hooks: Hooks<M> = builder.hooks.into();
    let on_dead_letter = builder.on_dead_letter.map(Arc::new);
    let hasher = foldhash::quality::FixedState::with_seed(random.next_u64());

    let mut board = Board {
        windows: Vec::new(),
        bells: bells
            .iter()
            .flatten()
            .map(|(bell, _)| bell.clone())
            .collect(),
        shared: shared.clone(),
    };
    let mut threads = Vec::new();
    let mut outcomes = outcomes.into_iter().zip(0u32..);
    for (at, (spec, bells)) in builder.specs.into_iter().zip(bells).enumerate() {
        let name: Arc<str> = spec.name.as_str().into();
        let mut tasks: Vec<Vec<Box<dyn Task>>> = bells.iter().map(|_| Vec::new()).collect();
        for task in 0..spec.tasks {
            let thread = task % bells.len();
            let context = Context {
                component: name.clone(),
                task,
                tasks: spec.tasks,
                call: Arc::new(Call::new(bells[thread].0.clone())),
            };
            let stats = Arc::new(Stats::new(matches!(spec.kind, Kind::Spout(_))));
            let emitter = Emitter::new(
                at,
                context,
                Outbox::new(
                    graph.lanes[at].iter().map(|&lane| lanes[lane].clone()),
                    builder.batch,
                ),
                stats.clone(),
                hooks.clone(),
                graph.streams[at].clone(),
                hasher.clone(),
                SmallRng::seed_from_u64(random.next_u64()),
            );
            let queued: Box<dyn Fn() -> usize + Send + Sync>;
            let made: Box<dyn Task> = match &spec.kind {
                Kind::Spout(spout) => {
                    queued = Box::new(|| 0);
                    let Some((outcomes, number)) = outcomes.next() else {
                        unreachable!("there is one for each task of a spout");
                    };
                    Box::new(SpoutTask::new(SpoutParts {
                        emitter,
                        shared: shared.clone(),
                        number,
                        outcomes,
                        jam: jams[at].clone(),
                        factory: spout.factory.clone(),
                        max_pending: spout.max_pending,
                        timeout: spout.timeout,
                        replay: spout.replay,
                        on_dead_letter: on_dead_letter.clone(),
                    }))
                }
                Kind::Bolt(bolt) => {
                    let inbox = lanes[graph.first_lane[at] + task].clone();
                    let window = inbox.clone();
                    let jams = |spouts: &Vec<usize>| {
                        spouts.iter().map(|&spout| jams[spout].clone()).collect()
                    };
                    queued = Box::new(move || window.len());
                    Box::new(BoltTask::new(
                        at,
                        emitter,
                        shared.clone(),
                        inbox,
                        bolt.factory.clone(),
                        bolt.tick,
                        graph.in_cycle[at].as_ref().map(jams),
                    ))
                }
            };
            board.windows.push(Window {
                component: at,
                stats,
                queued,
            });
            tasks[thread].push(made);
        }
        for (nth, (tasks, (bell, parker))) in tasks.into_iter().zip(bells).enumerate() {
            threads.push(Thread {
                component: at,
                // The system's names of threads end with a NUL, and std panics over one.
                name: format!("{}-{nth}", spec.name).replace('\0', ""),
                tasks,
                bell,
                parker,
            });
        }
    }
    Ok(Parts {
        board,
        threads,
        wait: builder.wait,
        real,
    })
}

impl Thread {
    /// Runs its tasks until the topology is stopped.
    fn run(mut self, shared: &Shared, wait: &dyn WaitStrategy, real: bool) {
        let mut fruitless = 0;
        while !shared.is_stopping() {
            if !real {
                poll(shared);
            }
            let mut due: Option<u64> = None;
            let mut worked = false;
            for task in &mut self.tasks {
                let step = task.step();
                worked |= step.worked;
                due = due.into_iter().chain(step.due).min();
            }
            if worked {
                fruitless = 0;
                continue;
            }
            let wait = caught(|| wait.wait(fruitless)).unwrap_or(Wait::Park(Duration::MAX));
            self.pause(wait, due, shared, real);
            fruitless = fruitless.saturating_add(1);
        }
        self.tasks.iter_mut().for_each(|task| task.close());
    }

    fn pause(&self, wait: Wait, due: Option<u64>, shared: &Shared, real: bool) {
        let mut limit = if real { Duration::MAX } else { NAP };
        if let Some(due) = due {
            let until = Duration::from_nanos(due.saturating_sub(shared.clock.now()));
            // What is due and cannot be done waits for room.
            limit = limit.min(if until.is_zero() { NAP } else { until });
        }
        match wait {
            Wait::Spin => std::hint::spin_loop(),
            Wait::Yield => std::thread::yield_now(),
            Wait::Sleep(time) => std::thread::sleep(time.min(limit)),
            Wait::Park(time) => self.bell.sleep(&self.parker, time.min(limit), || {
                shared.is_stopping() || self.tasks.iter().any(|task| task.has_input())
            }),
        }
    }
}

/// Ends what is due, where nobody else does. The clock reading at which to do so again.
fn poll(shared: &Shared) -> Option<u64> {
    let tracker = shared.tracker.as_ref()?;
    loop {
        let now = shared.clock.now();
        let polled = tracker.poll(4096);
        if !polled.more {
            let next = u64::try_from(polled.next?.as_nanos()).unwrap_or(u64::MAX);
            return Some(now.saturating_add(next));
        }
    }
}

/// A topology on its threads. Dropping it is as [`kill`](Self::kill). By one of its own components too: that one's thread
/// is not waited for.
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
/// use expiry_topology::{basic, TopologyBuilder};
/// use std::time::Duration;
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", |_| Numbers(0..1_000));
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).parallelism(2).shuffle("numbers");
/// let topology = topology.start()?; // runs by itself from here on
/// topology.wait(Duration::from_secs(60))?;
/// assert_eq!(topology.kill()[0].acked, 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Topology {
    board: Board,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("components", &self.board.names().collect::<Vec<_>>())
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl Topology {
    pub(crate) fn start<M: Clone + Send + 'static>(
        builder: TopologyBuilder<M>,
    ) -> Result<Self, BuildError> {
        let Parts {
            board,
            threads,
            wait,
            real,
        } = assemble(builder, false)?;
        let mut topology = Topology {
            board,
            threads: Vec::new(),
        };
        for thread in threads {
            let (shared, wait) = (topology.board.shared.clone(), wait.clone());
            let handle = std::thread::Builder::new()
                .name(thread.name.clone())
                .spawn(move || thread.run(&shared, &*wait, real))
                .map_err(|error| BuildError::NoThread(error.to_string()))?;
            topology.threads.push(handle);
        }
        Ok(topology)
    }

    /// What its components have been doing, in the order in which they were declared.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let topology = topology.start()?;
    /// topology.wait(Duration::from_secs(60))?;
    /// let [numbers, sink] = &topology.metrics()[..] else { unreachable!("there are two") };
    /// assert_eq!((numbers.name.as_str(), numbers.acked), ("numbers", 100));
    /// assert_eq!((sink.name.as_str(), sink.executed), ("sink", 100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Vec<ComponentMetrics> {
        self.board.metrics()
    }

    /// The tracker behind it, if there is acking: for its metrics, also when the topology has gone. Owners of its roots are the
    /// topology's: who issues some by himself may have spouts told what is not so.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..100));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let topology = topology.start()?;
    /// topology.wait(Duration::from_secs(60))?;
    /// let tracker = topology.tracker().expect("there is acking").clone();
    /// drop(topology);
    /// assert_eq!(tracker.metrics().total.acked, 100); // a tree for each of 100 messages
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tracker(&self) -> Option<&Arc<AckTracker>> {
        self.board.shared.tracker.as_ref()
    }

    /// Spouts are asked for messages from now on.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..100));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// topology.start_inactive();
    /// let topology = topology.start()?;
    /// assert_eq!(topology.metrics()[0].emitted, 0);
    /// topology.activate(); // when what the bolts need is there, say
    /// topology.wait(Duration::from_secs(60))?;
    /// assert_eq!(topology.metrics()[0].acked, 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn activate(&self) {
        self.board.activate(true);
    }

    /// Spouts are asked for no more messages. What is pending goes on, replays included.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// use std::sync::mpsc::{channel, Sender};
    ///
    /// /// Always has more.
    /// struct Endless(Sender<&'static str>);
    ///
    /// impl Spout<u64> for Endless {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         out.emit(7, 7).map_or(Next::Idle, |()| Next::Ready)
    ///     }
    ///
    ///     fn deactivate(&mut self) {
    ///         self.0.send("silent").expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, told) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("endless", move |_| Endless(sender.clone()));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("endless");
    /// # topology.start_inactive();
    /// # let topology = topology.start()?;
    /// topology.activate();
    /// # while topology.metrics()[0].emitted == 0 { std::thread::yield_now(); }
    /// topology.deactivate();
    /// assert_eq!(told.recv()?, "silent");
    /// let emitted = topology.metrics()[0].emitted;
    /// assert_eq!(topology.kill()[0].emitted, emitted); // nothing was emitted any more
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deactivate(&self) {
        self.board.activate(false);
    }

    /// Waits until all spouts are [done](crate::Next::Done) and everything has come to its end: each message acked or given up, the spouts
    /// told, and every tuple executed. (Bolts may still hold tuples that were not tracked, or whose trees have ended.) Where a
    /// spout is never done, [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// [`Stuck`] if that has not happened in time, naming who is not at rest. The topology goes on.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// use std::time::Duration;
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..100)); // and is done then
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let topology = topology.start()?;
    /// topology.wait(Duration::from_secs(60))?;
    /// let metrics = topology.metrics();
    /// assert_eq!((metrics[0].acked, metrics[0].pending, metrics[1].executed), (100, 0, 100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self, limit: Duration) -> Result<(), Stuck> {
        self.until(limit, true, |board| board.is_done() && board.is_quiet())
    }

    fn until(
        &self,
        limit: Duration,
        is_done_asked: bool,
        done: impl Fn(&Board) -> bool,
    ) -> Result<(), Stuck> {
        let began = Instant::now();
        while !done(&self.board) {
            if began.elapsed() >= limit {
                return Err(self.board.stuck(is_done_asked));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Stops it when everything has come to its end: asks spouts for no more, waits for what is pending, replays and what bolts hold
    /// until a tick included, and ends the threads. Returns what it has been doing. What spouts have not emitted by now (what is
    /// still in a channel, say) they keep: to have that done too, let them be `Done`, and [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`Stuck`] if that has not happened in time, and then it is stopped all the same, as by [`kill`](Self::kill).
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..u64::MAX)); // is never done
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let topology = topology.start()?;
    /// let metrics = topology.drain(Duration::from_secs(60))?;
    /// assert_eq!((metrics[0].acked, metrics[0].pending), (metrics[0].emitted, 0)); // none is left half done
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(mut self, limit: Duration) -> Result<Vec<ComponentMetrics>, Stuck> {
        let draining = &self.board.shared.draining;
        draining.store(true, Ordering::Release);
        self.deactivate();
        let rest = self.until(limit, false, |board| board.is_silent() && board.is_quiet());
        self.stop();
        rest.map(|()| self.metrics())
    }

    /// Stops it at once: what is pending is left alone, and the spouts are not told. Waits until each thread has come to the end
    /// of what it is at.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    ///
    /// /// Never acks.
    /// struct Hold(Vec<Tuple<u64>>);
    ///
    /// impl Bolt<u64> for Hold {
    ///     fn execute(&mut self, tuple: Tuple<u64>, _: &mut BoltCollector<'_, u64>) {
    ///         self.0.push(tuple);
    ///     }
    /// }
    ///
    /// # struct One;
    /// # impl expiry_topology::Spout<u64> for One {
    /// #     fn next(&mut self, out: &mut expiry_topology::SpoutCollector<'_, u64>) -> expiry_topology::Next {
    /// #         out.emit(1, 1).map_or(expiry_topology::Next::Idle, |()| expiry_topology::Next::Done)
    /// #     }
    /// # }
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("one", |_| One);
    /// # topology.bolt("hold", |_| Hold(Vec::new())).shuffle("one");
    /// # let topology = topology.start()?;
    /// # while topology.metrics()[0].pending == 0 { std::thread::yield_now(); }
    /// let metrics = topology.kill(); // does not wait for what is pending
    /// assert_eq!((metrics[0].pending, metrics[0].acked, metrics[0].failed), (1, 0, 0));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn kill(mut self) -> Vec<ComponentMetrics> {
        self.stop();
        self.metrics()
    }

    fn stop(&mut self) {
        let shared = &self.board.shared;
        shared.stopping.store(true, Ordering::Release);
        self.board.bells.iter().for_each(|bell| bell.ring());
        for thread in self.threads.drain(..) {
            if thread.thread().id() == std::thread::current().id() {
                // A component of its own had the last of it: this thread ends when that returns.
                continue;
            }
            // Components' panics are caught in there. If a thread has died all the same, there is nothing to join.
            let _ = thread.join();
        }
        if let Some(tracker) = &shared.tracker {
            tracker.shutdown(Fate::Return);
        }
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A topology without threads: see [`TopologyBuilder::start_manual`]. Dropping it closes spouts and cleans bolts up.
///
/// Nothing passes the time but the test:
///
/// ```
/// use expiry::{Clock, ManualClock};
/// use expiry_topology::{Bolt, BoltCollector, Next, Spout, SpoutCollector, TopologyBuilder, Tuple};
/// use std::time::Duration;
///
/// struct One(bool);
///
/// impl Spout<u32> for One {
///     fn next(&mut self, out: &mut SpoutCollector<'_, u32>) -> Next {
///         if std::mem::replace(&mut self.0, true) {
///             return Next::Done;
///         }
///         out.emit(1, 0).expect("there is room");
///         Next::Ready
///     }
/// }
///
/// /// Acks with its ticks.
/// struct Hold(Vec<Tuple<u32>>);
///
/// impl Bolt<u32> for Hold {
///     fn execute(&mut self, tuple: Tuple<u32>, _: &mut BoltCollector<'_, u32>) {
///         self.0.push(tuple);
///     }
///
///     fn tick(&mut self, out: &mut BoltCollector<'_, u32>) {
///         self.0.drain(..).for_each(|tuple| out.ack(tuple));
///     }
/// }
///
/// let clock = ManualClock::new();
/// let mut topology = TopologyBuilder::new();
/// topology.clock(clock.clone()).seed(1);
/// topology.spout("one", |_| One(false));
/// topology.bolt("hold", |_| Hold(Vec::new())).shuffle("one").tick_every(Duration::from_secs(20));
/// let mut topology = topology.start_manual()?;
/// while topology.settle(1_000) && !topology.is_finished() {
///     clock.advance(topology.next_due().expect("there is a tick"));
/// }
/// assert_eq!(topology.metrics()[0].acked, 1);
/// assert_eq!(clock.now(), 20_000_000_000); // at once
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct ManualTopology<M> {
    board: Board,
    /// Each with its component, and whether that is held.
    tasks: Vec<(usize, bool, Box<dyn Task>)>,
    /// The clock reading at which something is to be done, as far as the last step has seen.
    due: Option<u64>,
    _messages: std::marker::PhantomData<fn(M)>,
}

impl<M> fmt::Debug for ManualTopology<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualTopology")
            .field("components", &self.board.names().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<M: Clone + Send + 'static> ManualTopology<M> {
    pub(crate) fn start(builder: TopologyBuilder<M>) -> Result<Self, BuildError> {
        let Parts { board, threads, .. } = assemble(builder, true)?;
        let tasks = threads.into_iter().flat_map(|thread| {
            let component = thread.component;
            thread
                .tasks
                .into_iter()
                .map(move |task| (component, false, task))
        });
        Ok(ManualTopology {
            tasks: tasks.collect(),
            board,
            due: None,
            _messages: std::marker::PhantomData,
        })
    }

    /// Ends what is due, and lets each task do a little. Whether one of them had something to do.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.clock(ManualClock::new());
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.step());
    /// assert_eq!(topology.metrics()[0].emitted, 1); // one step is one call of `next`
    /// while topology.step() {}
    /// assert!(topology.is_finished());
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn step(&mut self) -> bool {
        self.due = poll(&self.board.shared);
        let mut worked = false;
        for (_, held, task) in &mut self.tasks {
            if !*held {
                let step = task.step();
                worked |= step.worked;
                self.due = self.due.into_iter().chain(step.due).min();
            }
        }
        worked
            || self
                .tasks
                .iter()
                .any(|(_, held, task)| !held && task.has_input())
    }

    /// Stops the tasks of a component from doing anything, or lets them go on: a stall. False if there is no such component.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..10));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.hold("sink", true) && !topology.hold("sing", true)); // there is no "sing"
    /// assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].pending, topology.metrics()[1].executed), (10, 0));
    /// topology.hold("sink", false);
    /// assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].pending, topology.metrics()[1].executed), (0, 10));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn hold(&mut self, component: &str, held: bool) -> bool {
        let Some(at) = self.board.names().position(|name| name == component) else {
            return false;
        };
        let tasks = self
            .tasks
            .iter_mut()
            .filter(|(component, ..)| *component == at);
        tasks.for_each(|(_, is_held, _)| *is_held = held);
        true
    }

    /// Steps until there is nothing more to do at this time, or `most` steps have been done: false then.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..10));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(!topology.settle(3)); // there is more to do
    /// assert!(topology.settle(100));
    /// assert_eq!(topology.metrics()[0].acked, 10);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn settle(&mut self, most: usize) -> bool {
        (0..most).any(|_| !self.step())
    }

    /// How long until there is something to do, if nothing is now: a timeout, a pause, a tick, a spout that had nothing. `None`: never.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// topology.timeout(Duration::from_secs(10)).interval(Duration::from_secs(1));
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// assert_eq!(topology.next_due(), Some(Duration::from_secs(10))); // the timeout
    /// clock.advance(Duration::from_secs(10));
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 1);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let now = self.board.shared.clock.now();
        self.due
            .map(|due| Duration::from_nanos(due.saturating_sub(now)))
    }

    /// Lets the clock pass from one thing that is due to the next, by `advance`, until nothing is under way and no spout has more, or
    /// is asked for more: as [`wait`](Topology::wait), or after [`deactivate`](Self::deactivate) as [`drain`](Topology::drain).
    /// False if that takes more than `most` steps, or something is left and nothing is ever due.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Clock, ManualClock, Replay, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// topology.clock(clock.clone());
    /// topology.spout("numbers", |_| Numbers(0..1)).replay(Replay::default().attempts(3).base(Duration::from_secs(10)));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| Err::<(), _>("no"))).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.run(1_000, |next| clock.advance(next)));
    /// assert!(topology.is_finished() && topology.metrics()[0].dead_letters == 1);
    /// assert!(clock.now() > 20_000_000_000); // two pauses, of about 10 s and 20 s
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn run(&mut self, most: usize, mut advance: impl FnMut(Duration)) -> bool {
        for _ in 0..most {
            if self.step() {
                continue;
            }
            if self.is_at_rest() {
                return true;
            }
            let Some(due) = self.next_due() else {
                return false;
            };
            // What is due and could not be done has to wait.
            advance(due.max(Duration::from_micros(1)));
        }
        false
    }

    /// Whether nothing is under way, and no spout has more, or is asked for more.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..u64::MAX)); // is never done
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(!topology.settle(100) && !topology.is_at_rest());
    /// topology.deactivate(); // is asked for no more
    /// assert!(topology.settle(100) && topology.is_at_rest());
    /// assert_eq!(topology.metrics()[0].acked, topology.metrics()[0].emitted);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        (self.board.is_done() || self.board.is_silent()) && self.board.is_quiet()
    }

    /// Whether all spouts are done, every message is acked or given up, and every tuple executed. Never so if one is not done.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..10));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100) && !topology.is_finished()); // the spout is done, its messages are not
    /// topology.hold("sink", false);
    /// assert!(topology.settle(100) && topology.is_finished());
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.board.is_done() && self.board.is_quiet()
    }

    /// What its components have been doing.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..10));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// let [numbers, sink] = &topology.metrics()[..] else { unreachable!("there are two") };
    /// assert_eq!((numbers.acked, sink.name.as_str(), sink.executed), (10, "sink", 10));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Vec<ComponentMetrics> {
        self.board.metrics()
    }

    /// The tracker behind it, if there is acking.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..10));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// assert_eq!(topology.tracker().expect("there is acking").metrics().total.live, 10); // trees
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn tracker(&self) -> Option<&Arc<AckTracker>> {
        self.board.shared.tracker.as_ref()
    }

    /// As [`Topology::activate`].
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..10));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// topology.start_inactive();
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100) && topology.metrics()[0].emitted == 0);
    /// topology.activate();
    /// assert!(topology.settle(100) && topology.metrics()[0].emitted == 10);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn activate(&self) {
        self.board.activate(true);
    }

    /// As [`Topology::deactivate`].
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..10));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.step();
    /// topology.deactivate();
    /// assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].emitted, topology.metrics()[0].acked), (1, 1)); // of 10
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn deactivate(&self) {
        self.board.activate(false);
    }
}

impl<M> Drop for ManualTopology<M> {
    fn drop(&mut self) {
        self.tasks.iter_mut().for_each(|(.., task)| task.close());
    }
}
