//! Assembling a topology's tasks, and the lanes between them, from its declaration.

use super::board::{Board, Queued};
use super::thread::Thread;
use crate::bolt_task::BoltTask;
use crate::builder::{Kind, Spec, TopologyBuilder};
use crate::component::Context;
use crate::emit::{Batch, Emitter, Hooks, Outbox};
use crate::error::BuildError;
use crate::gate::Gate;
use crate::inbox::{Bell, Call, Inbox, Jam};
use crate::metrics::Stats;
use crate::outcomes::{Desks, Ended};
use crate::spout_task::SpoutParts;
use crate::sync::Parker;
use crate::task::{Shared, Task};
use crate::wait::WaitStrategy;
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
    pub(super) wait: Arc<dyn WaitStrategy>,
    /// Whether the clock runs with real time, so that threads can sleep by it.
    pub(super) real: bool,
}

/// The names of components, and of their streams.
fn names<M>(specs: &[Spec<M>]) -> Vec<(Arc<str>, Vec<Arc<str>>)> {
    let of = |spec: &Spec<M>| {
        let streams = spec.streams.iter().map(|stream| stream.name.as_str().into());
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

/// The tracker of the topology's trees; `None` without acking.
fn tracker<M>(
    builder: &TopologyBuilder<M>,
    clock: &Arc<dyn Clock>,
    desks: &Desks,
    has_reaper: bool,
) -> Result<Option<Arc<AckTracker>>, BuildError> {
    if !builder.acking {
        return Ok(None);
    }
    let mut tracker = AckTracker::builder()
        .timeout(builder.timeout)
        .clock(clock.clone())
        // Spouts take latencies, over all attempts.
        .latency_sampling(0.0)
        .on_outcome(desks.clone());
    if let Some(interval) = builder.interval {
        tracker = tracker.interval(interval);
    }
    if let Some(seed) = builder.seed {
        tracker = tracker.seed(seed);
    }
    let tracker = if has_reaper { tracker.build() } else { tracker.build_manual() };
    let tracker = tracker?;
    check_timeouts(&builder.specs, tracker.longest_timeout())?;
    Ok(Some(Arc::new(tracker)))
}

/// Makes the tasks of a topology, and what is between them.
pub(super) fn assemble<M: Clone + Send + 'static>(
    mut builder: TopologyBuilder<M>,
    manual: bool,
) -> Result<Parts, BuildError> {
    let graph = builder.check()?;
    let real = builder.clock.is_none();
    let clock: Arc<dyn Clock> =
        builder.clock.take().unwrap_or_else(|| Arc::new(CoarseClock::new()));
    let mut random = builder.seed.map_or_else(SmallRng::from_os_rng, SmallRng::seed_from_u64);

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
        Arc::new(Jam::new(threads.iter().map(|(bell, _)| bell.clone()).collect()))
    };
    let jams: Vec<Arc<Jam>> = bells.iter().map(jam).collect();

    let tracker = tracker(&builder, &clock, &desks, real && !manual)?;
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
    let on_dead_letter = builder.on_dead_letter;
    let hasher = foldhash::quality::FixedState::with_seed(random.next_u64());

    let all_bells = bells.iter().flatten().map(|(bell, _)| bell.clone());
    let mut board = Board::new(shared.clone(), all_bells.collect());
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
                Outbox::new(graph.lanes[at].iter().map(|&lane| lanes[lane].clone()), builder.batch),
                stats.clone(),
                hooks.clone(),
                graph.streams[at].clone(),
                hasher.clone(),
                SmallRng::seed_from_u64(random.next_u64()),
            );
            let queued: Queued;
            let mut made: Box<dyn Task> = match &spec.kind {
                Kind::Spout(spout) => {
                    queued = Box::new(|| 0);
                    let Some((outcomes, number)) = outcomes.next() else {
                        unreachable!("there is one for each task of a spout");
                    };
                    (spout.make_task)(SpoutParts {
                        emitter,
                        shared: shared.clone(),
                        number,
                        outcomes,
                        jam: jams[at].clone(),
                        max_pending: spout.max_pending,
                        timeout: spout.timeout,
                        replay: spout.replay,
                        on_dead_letter: spout.on_dead_letter.clone().or(on_dead_letter.clone()),
                    })
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
            if spec.tries {
                made.make_first().map_err(|why| {
                    let component = spec.name.clone();
                    BuildError::NoInstance { component, task, why }
                })?;
            }
            board.add(at, stats, queued);
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
    Ok(Parts { board, threads, wait: builder.wait, real })
}

#[cfg(test)]
mod tests {
    use crate::{Bolt, BoltCollector, TopologyBuilder, Tuple, VecSpout};
    use std::collections::HashSet;
    use std::sync::{Arc, Mutex};

    /// Notes the edges of what comes, and sends it on.
    struct Edges(Arc<Mutex<Vec<u64>>>);

    impl Bolt<u64> for Edges {
        fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
            let edges = tuple.anchors.iter().map(|anchor| anchor.xor.get());
            self.0.lock().unwrap().extend(edges);
            out.emit(&tuple, *tuple);
            out.ack(tuple);
        }
    }

    /// The edges that a topology's tasks draw: a spout's, and those of two bolts.
    fn edges(seed: Option<u64>) -> Vec<u64> {
        let edges = Arc::new(Mutex::new(Vec::new()));
        let mut topology = TopologyBuilder::new();
        seed.map(|seed| topology.seed(seed));
        topology.spout("few", |_| VecSpout::new(0..20)).parallelism(2);
        for (name, source) in [("first", "few"), ("second", "first"), ("third", "second")] {
            let edges = edges.clone();
            topology.bolt(name, move |_| Edges(edges.clone())).shuffle(source);
        }
        let mut topology = topology.start_manual().unwrap();
        assert!(topology.settle(10_000) && topology.is_finished());
        let mut edges = edges.lock().unwrap().clone();
        assert_eq!(edges.len(), 2 * 20 * 3);
        // Time is real: batches may be sent on in another order.
        edges.sort_unstable();
        edges
    }

    /// Without a seed each topology, and each of its tasks, draws edges that no other one draws.
    #[test]
    fn two_topologies_draw_different_edges() {
        let all = [edges(None), edges(None)].concat();
        let distinct: HashSet<u64> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(!distinct.contains(&0));
        assert_eq!(edges(Some(7)), edges(Some(7)), "of one seed");
    }
}
