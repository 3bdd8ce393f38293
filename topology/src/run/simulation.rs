//! A topology without threads, in simulated time.

use super::assemble::{assemble, Parts};
use super::board::Board;
use super::poll;
use crate::builder::TopologyBuilder;
use crate::error::BuildError;
use crate::task::{debug, Task};
use expiry::ManualClock;
use std::time::Duration;

/// A topology without threads, in simulated time: see [`TopologyBuilder::simulate`]. Dropping it
/// calls the spouts' `close` and the bolts' `cleanup`.
///
/// ```
/// use expiry_topology::{Bolt, BoltCollector, Clock, ManualClock, TopologyBuilder, Tuple, VecSpout};
/// use std::time::Duration;
///
/// /// Acks with its ticks.
/// struct Hold(Vec<Tuple<u32>>);
///
/// impl Bolt<u32> for Hold {
///     fn execute(&mut self, tuple: Tuple<u32>, _: &mut BoltCollector<'_>) {
///         self.0.push(tuple);
///     }
///
///     fn tick(&mut self, out: &mut BoltCollector<'_>) {
///         self.0.drain(..).for_each(|tuple| out.ack(tuple));
///     }
/// }
///
/// let (clock, topology) = (ManualClock::new(), TopologyBuilder::new());
/// let one = topology.spout("one", |_| VecSpout::new([1]));
/// topology.bolt("hold", |_| Hold(Vec::new())).shuffle(&one).tick_every(Duration::from_secs(20));
/// let mut topology = topology.simulate(&clock)?;
/// assert!(topology.run(1_000) && topology.metrics()[0].acked == 1);
/// assert_eq!(clock.now(), 20_000_000_000); // at once
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct Simulation {
    pub(super) board: Board,
    clock: ManualClock,
    /// The tasks, each with its component, and whether that component is held.
    tasks: Vec<(usize, bool, Box<dyn Task>)>,
    /// When a task or the tracker has something to do next, as far as the last step has seen.
    due: Option<u64>,
}

debug!([] Simulation, |it| "Simulation {{ components: {:?}, .. }}",
    it.board.names().collect::<Vec<_>>());

impl Simulation {
    pub(crate) fn start(builder: TopologyBuilder, clock: ManualClock) -> Result<Self, BuildError> {
        let Parts { board, threads, .. } = assemble(builder, true)?;
        let tasks = threads.into_iter().flat_map(|thread| {
            let component = thread.component;
            thread.tasks.into_iter().map(move |task| (component, false, task))
        });
        Ok(Simulation { tasks: tasks.collect(), board, clock, due: None })
    }

    /// Ends the trees that are due, and lets each task do a little. Returns whether one had work.
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
        worked || self.tasks.iter().any(|(_, held, task)| !held && task.has_input())
    }

    /// Stops the tasks of a component from doing anything, or lets them go on: a stall. Returns
    /// `false` if there is no such component.
    pub fn hold(&mut self, component: &str, held: bool) -> bool {
        let Some(at) = self.board.names().position(|name| name == component) else {
            return false;
        };
        let tasks = self.tasks.iter_mut().filter(|(component, ..)| *component == at);
        tasks.for_each(|(_, is_held, _)| *is_held = held);
        true
    }

    /// Steps until no task has work at this time. `false` if that takes more than `most` steps.
    pub fn settle(&mut self, most: usize) -> bool {
        (0..most).any(|_| !self.step())
    }

    /// How long until there is something to do, if there is nothing now: a timeout, a pause, a
    /// tick, or a spout that had no message. `None` if nothing will be due.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let now = self.board.shared.clock.now();
        self.due.map(|due| Duration::from_nanos(due.saturating_sub(now)))
    }

    /// Moves the clock from one event that is due to the next, until nothing is under way and no
    /// spout has more, or is asked for more. That is the state that [`wait`](crate::Topology::wait)
    /// waits for, or [`drain`](crate::Topology::drain) after [`deactivate`](Self::deactivate).
    /// Returns `false` if that takes more than `most` steps, or if something is left and nothing is
    /// ever due.
    pub fn run(&mut self, most: usize) -> bool {
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
            // A task that was due and did nothing has to wait.
            self.clock.advance(due.max(Duration::from_micros(1)));
        }
        false
    }

    /// Whether nothing is under way, and no spout has more messages, or is asked for more.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        (self.board.is_done() || self.board.is_silent()) && self.board.is_quiet()
    }

    /// Whether all spouts are done, every message is acked or given up, and every tuple executed.
    /// It is never so if a spout is not done.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.board.is_done() && self.board.is_quiet()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.tasks.iter_mut().for_each(|(.., task)| task.close());
    }
}
