//! Assembling a topology's tasks, and the lanes between them, from its declaration.

use super::board::{Board, Window};
use super::thread::Thread;
use crate::builder::{BoltParts, Doors, Kind, Queued, Settings, Spec, SpoutParts, TaskParts};
use crate::component::{Context, Registry};
use crate::emit::{Emitter, Hooks};
use crate::error::BuildError;
use crate::gate::Gate;
use crate::graph::Graph;
use crate::inbox::{Bell, Call, Inbox, Jam};
use crate::lanes::Sender;
use crate::metrics::Stats;
use crate::outcomes::{Desks, Ended};
use crate::sync::Parker;
use crate::task::{nanos, Shared, Task, Ticks};
use crate::wait::WaitStrategy;
use crate::TopologyBuilder;
use expiry::{AckTracker, Clock, CoarseClock};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

/// A topology's tasks, thread by thread, before they run.
pub(super) struct Parts {
    pub(super) board: Board,
    pub(super) threads: Vec<Thread>,
    /// Whether the clock runs with real time, so that threads can sleep by it.
    pub(super) real: bool,
}

/// The tracker of the topology's trees; `None` without acking.
fn tracker(
    settings: &Settings,
    specs: &[Spec],
    clock: &Arc<dyn Clock>,
    desks: Desks,
    has_reaper: bool,
) -> Result<Option<Arc<AckTracker>>, BuildError> {
    if !settings.acking {
        return Ok(None);
    }
    let mut tracker = AckTracker::builder()
        .timeout(settings.timeout)
        .clock(clock.clone())
        // Spouts take latencies, over all attempts.
        .latency_sampling(0.0)
        .on_outcome(move |outcome| desks.outcome(outcome));
    if let Some(interval) = settings.interval {
        tracker = tracker.interval(interval);
    }
    if let Some(shards) = settings.shards {
        tracker = tracker.shards(shards);
    }
    if let Some(trees) = settings.capacity {
        tracker = tracker.capacity(trees);
    }
    if let Some(seed) = settings.seed {
        tracker = tracker.seed(seed);
    }
    let tracker = if has_reaper { tracker.build() } else { tracker.build_manual() };
    let tracker = tracker?;
    let longest = tracker.longest_timeout();
    let is_long = |spec: &&Spec| spec.own_timeout().is_some_and(|timeout| timeout > longest);
    if let Some(spec) = specs.iter().find(is_long) {
        let why = "is above 2^39 intervals; give the topology a longer interval";
        return Err(BuildError::setting(&spec.name, "timeout", why));
    }
    Ok(Some(Arc::new(tracker)))
}

type Bells = Vec<Vec<(Arc<Bell>, Parker)>>;

/// The bells of a component's threads, task by task.
fn bells_of(spec: &Spec, bells: &[(Arc<Bell>, Parker)]) -> Vec<Arc<Bell>> {
    (0..spec.tasks).map(|task| bells[task % bells.len()].0.clone()).collect()
}

/// Makes all bolts' queues. Returns what counts the batches in each task's, by component.
fn open(settings: &Settings, specs: &[Spec], graph: &Graph, bells: &Bells) -> Vec<Vec<Queued>> {
    let each = specs.iter().zip(bells).zip(&graph.senders);
    let open = |((spec, threads), senders): ((&Spec, &Vec<_>), &Vec<usize>)| match &spec.kind {
        Kind::Spout(_) => (0..spec.tasks).map(|_| Box::new(|| 0_usize) as Queued).collect(),
        Kind::Bolt(bolt) => {
            let senders = senders.iter().flat_map(|&from| &bells[from]);
            (bolt.open)(Doors {
                bells: bells_of(spec, threads),
                senders: senders.map(|(bell, _)| bell.clone()).collect(),
                length: settings.queue,
            })
        }
    };
    each.map(open).collect()
}

/// The queues of the spouts' tasks for their outcomes.
fn outcomes(specs: &[Spec], bells: &Bells) -> Vec<Arc<Inbox<Ended>>> {
    let mut outcomes = Vec::new();
    for (spec, bells) in specs.iter().zip(bells) {
        if let Kind::Spout(spout) = &spec.kind {
            let inbox = |bell| Arc::new(Inbox::new(spout.max_pending, bell, Vec::new()));
            outcomes.extend(bells_of(spec, bells).into_iter().map(inbox));
        }
    }
    outcomes
}

/// What the tasks of a topology are made of, and those that are made.
struct Assembly {
    board: Board,
    threads: Vec<Thread>,
    shared: Arc<Shared>,
    wait: WaitStrategy,
    graph: Graph,
    hooks: Hooks,
    batch: usize,
    /// The shortest timeout of a message.
    timeout: Duration,
    hasher: foldhash::quality::FixedState,
    random: SmallRng,
    jams: Vec<Arc<Jam>>,
    /// The outcome queues of the spouts' tasks that are yet to be made.
    outcomes: std::iter::Enumerate<std::vec::IntoIter<Arc<Inbox<Ended>>>>,
}

impl Assembly {
    fn task(
        &mut self,
        at: usize,
        spec: &Spec,
        context: Context,
        stats: Arc<Stats>,
    ) -> Box<dyn Task> {
        let mut random = SmallRng::seed_from_u64(self.random.next_u64());
        let sender = Sender {
            task: context.task,
            batch: self.batch,
            hasher: self.hasher.clone(),
            turn: random.next_u32() as usize,
            notes_sent: spec.notes_sent,
        };
        let (hooks, now) = (self.hooks.clone(), self.shared.clock.now());
        let task = TaskParts {
            emitter: Emitter { context, stats, hooks, random },
            sender,
            now,
            shared: self.shared.clone(),
            ticks: Ticks::new(spec.tick, now),
        };
        match &spec.kind {
            Kind::Spout(spout) => {
                let Some((number, outcomes)) = self.outcomes.next() else {
                    unreachable!("there is one for each task of a spout");
                };
                (spout.make)(SpoutParts {
                    task,
                    #[allow(clippy::cast_possible_truncation)] // checked by the builder
                    number: number as u32,
                    outcomes,
                    jam: self.jams[at].clone(),
                    max_pending: spout.max_pending,
                    timeout: spout.timeout,
                    replay: spout.replay.unwrap_or(spout.own_replay),
                })
            }
            Kind::Bolt(bolt) => {
                let jams = |spouts: &Vec<usize>| {
                    spouts.iter().map(|&spout| self.jams[spout].clone()).collect()
                };
                (bolt.make)(BoltParts {
                    task,
                    inputs: spec.inputs.clone(),
                    jams: self.graph.in_cycle[at].as_ref().map(jams),
                })
            }
        }
    }

    /// Makes the tasks of the component `at`, and their threads.
    fn component(
        &mut self,
        at: usize,
        spec: &Spec,
        bells: Vec<(Arc<Bell>, Parker)>,
        queued: Vec<Queued>,
    ) -> Result<(), BuildError> {
        let registry = Arc::<Registry>::default();
        self.board.components.push((spec.inputs.clone(), registry.clone()));
        let mut tasks: Vec<Vec<Box<dyn Task>>> = bells.iter().map(|_| Vec::new()).collect();
        for (task, queued) in queued.into_iter().enumerate() {
            let thread = task % bells.len();
            let context = Context {
                component: spec.name.clone(),
                task,
                tasks: spec.tasks,
                call: Arc::new(Call::new(bells[thread].0.clone())),
                registry: registry.clone(),
                timeout: self.timeout,
            };
            let is_spout = spec.kind.is_spout();
            let stats = if is_spout { Stats::spout() } else { Stats::bolt(spec.inputs.len()) };
            let stats = Arc::new(stats);
            let mut made = self.task(at, spec, context, stats.clone());
            if spec.tries {
                let component = spec.name.to_string();
                made.make_first().map_err(|why| BuildError::NoInstance { component, task, why })?;
            }
            self.board.windows.push(Window { component: at, stats, queued });
            tasks[thread].push(made);
        }
        for (nth, (tasks, (bell, parker))) in tasks.into_iter().zip(bells).enumerate() {
            self.threads.push(Thread {
                component: at,
                // The system's names of threads end with a NUL, and std panics over one.
                name: format!("{}-{nth}", spec.name).replace('\0', ""),
                tasks,
                bell,
                parker,
                wait: spec.wait.unwrap_or(self.wait),
            });
        }
        Ok(())
    }
}

/// Makes the tasks of a topology, and what is between them.
pub(super) fn assemble(builder: TopologyBuilder, manual: bool) -> Result<Parts, BuildError> {
    let (mut settings, specs, graph) = builder.check()?;
    let real = settings.clock.is_none();
    let clock: Arc<dyn Clock> =
        settings.clock.take().unwrap_or_else(|| Arc::new(CoarseClock::new()));
    let mut random = settings.seed.map_or_else(SmallRng::from_os_rng, SmallRng::seed_from_u64);
    let threads = |spec: &Spec| (0..spec.threads()).map(|_| Bell::new()).collect();
    let bells: Bells = specs.iter().map(threads).collect();
    let queued = open(&settings, &specs, &graph, &bells);
    let outcomes = outcomes(&specs, &bells);
    let desks = Desks::new(outcomes.clone());
    let tracker = tracker(&settings, &specs, &clock, desks.clone(), real && !manual)?;
    let jam = |threads: &Vec<(Arc<Bell>, _)>| {
        Arc::new(Jam::new(threads.iter().map(|(bell, _)| bell.clone()).collect()))
    };
    let shared = Arc::new(Shared {
        tracker,
        desks,
        clock,
        flush_every: nanos(settings.flush_every),
        sample_every: settings.sample_every,
        names: specs.iter().map(|spec| spec.name.clone()).collect(),
        gate: Gate::new(!settings.inactive),
        draining: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
    });
    let mut assembly = Assembly {
        board: Board {
            windows: Vec::new(),
            components: Vec::new(),
            bells: bells.iter().flatten().map(|(bell, _)| bell.clone()).collect(),
            shared: shared.clone(),
        },
        threads: Vec::new(),
        shared,
        wait: settings.wait,
        graph,
        hooks: settings.hooks.into(),
        batch: settings.batch,
        timeout: specs.iter().filter_map(Spec::own_timeout).fold(settings.timeout, Duration::min),
        hasher: foldhash::quality::FixedState::with_seed(random.next_u64()),
        random,
        jams: bells.iter().map(jam).collect(),
        outcomes: outcomes.into_iter().enumerate(),
    };
    for (((at, spec), bells), queued) in specs.iter().enumerate().zip(bells).zip(queued) {
        assembly.component(at, spec, bells, queued)?;
    }
    let Assembly { board, threads, .. } = assembly;
    Ok(Parts { board, threads, real })
}

#[cfg(test)]
#[path = "../../tests/unit/assemble.rs"]
mod tests;
