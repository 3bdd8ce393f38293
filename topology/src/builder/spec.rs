//! A component, as it was declared.

use crate::emit::Emitter;
use crate::error::BuildError;
use crate::inbox::{Bell, Inbox, Jam};
use crate::lanes::Sender;
use crate::outcomes::Ended;
use crate::replay::Replay;
use crate::task::{Shared, Task, Ticks};
use crate::wait::WaitStrategy;
use expiry::Lifetime;
use std::sync::Arc;
use std::time::Duration;

/// What a task of either kind is made of, beside its component's code.
pub(crate) struct TaskParts {
    pub(crate) emitter: Emitter,
    pub(crate) sender: Sender,
    pub(crate) shared: Arc<Shared>,
    pub(crate) ticks: Ticks,
    /// The clock reading of this step.
    pub(crate) now: u64,
}

impl TaskParts {
    /// Begins a step. Returns the time since the step before.
    pub(crate) fn begin_step(&mut self) -> u64 {
        let now = self.shared.clock.now();
        now.saturating_sub(std::mem::replace(&mut self.now, now))
    }
}

/// What a spout's task is made of, beside [`TaskParts`].
pub(crate) struct SpoutParts {
    pub(crate) task: TaskParts,
    /// The task's number among all spouts' tasks.
    pub(crate) number: u32,
    pub(crate) outcomes: Arc<Inbox<Ended>>,
    pub(crate) jam: Arc<Jam>,
    pub(crate) max_pending: usize,
    pub(crate) timeout: Lifetime,
    pub(crate) replay: Replay,
}

/// What a bolt's task is made of, beside [`TaskParts`].
pub(crate) struct BoltParts {
    pub(crate) task: TaskParts,
    /// The component that each of its groupings listens to.
    pub(crate) inputs: Vec<usize>,
    /// The jams of the spouts that lead to the bolt, if it is on a cycle.
    pub(crate) jams: Option<Vec<Arc<Jam>>>,
}

/// What a bolt's queues are made of.
pub(crate) struct Doors {
    /// For each task the bell of its thread.
    pub(crate) bells: Vec<Arc<Bell>>,
    /// The bells of the threads that send to the bolt.
    pub(crate) senders: Vec<Arc<Bell>>,
    /// How many batches a queue holds.
    pub(crate) length: usize,
}

/// Counts the batches in a task's queue.
pub(crate) type Queued = Box<dyn Fn() -> usize + Send + Sync>;

pub(crate) struct SpoutKind {
    /// Makes a task. The types of messages and ids appear in no other part of a declaration.
    pub(crate) make: Box<dyn Fn(SpoutParts) -> Box<dyn Task> + Send>,
    pub(crate) max_pending: usize,
    pub(crate) timeout: Lifetime,
    /// As it was set; and the spout's own, which counts otherwise.
    pub(crate) replay: Option<Replay>,
    pub(crate) own_replay: Replay,
}

pub(crate) struct BoltKind {
    /// Makes the queues of all tasks, before any task of the topology is made.
    pub(crate) open: Box<dyn Fn(Doors) -> Vec<Queued> + Send>,
    pub(crate) make: Box<dyn Fn(BoltParts) -> Box<dyn Task> + Send>,
}

pub(crate) enum Kind {
    Spout(SpoutKind),
    Bolt(BoltKind),
}

impl Kind {
    pub(crate) fn is_spout(&self) -> bool {
        matches!(self, Kind::Spout(_))
    }
}

/// A component, as it was declared.
pub(crate) struct Spec {
    pub(crate) name: Arc<str>,
    pub(crate) tasks: usize,
    pub(crate) threads: Option<usize>,
    /// Whether its first instances are made before the topology starts, as that may fail.
    pub(crate) tries: bool,
    /// Its own way to wait, if it has one.
    pub(crate) wait: Option<WaitStrategy>,
    pub(crate) tick: Option<Duration>,
    /// Whether it is to know which tasks get its messages.
    pub(crate) notes_sent: bool,
    /// The component that each grouping listens to.
    pub(crate) inputs: Vec<usize>,
    /// Whether it listens to a component of another topology.
    pub(crate) strays: bool,
    pub(crate) kind: Kind,
}

impl Spec {
    pub(super) fn new(name: &str, kind: Kind) -> Self {
        Spec {
            name: name.into(),
            tasks: 1,
            threads: None,
            tries: true,
            wait: None,
            tick: None,
            notes_sent: false,
            inputs: Vec::new(),
            strays: false,
            kind,
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or(self.tasks)
    }

    /// The timeout of a spout that does not have the topology's.
    pub(crate) fn own_timeout(&self) -> Option<Duration> {
        match &self.kind {
            Kind::Spout(SpoutKind { timeout: Lifetime::After(timeout), .. }) => Some(*timeout),
            _ => None,
        }
    }

    pub(super) fn replays(&self) -> bool {
        matches!(&self.kind, Kind::Spout(spout) if spout.replay.is_some())
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let component = || self.name.to_string();
        if self.name.is_empty() {
            return Err(BuildError::EmptyName);
        }
        if self.strays {
            return Err(BuildError::OtherTopology(component()));
        }
        if !self.kind.is_spout() && self.inputs.is_empty() {
            return Err(BuildError::NoInput(component()));
        }
        let (tasks, threads) = (self.tasks, self.threads());
        if tasks == 0 || threads == 0 || threads > tasks || tasks > 1 << 16 {
            return Err(BuildError::BadParallelism { component: component(), tasks, threads });
        }
        let own = match &self.kind {
            Kind::Spout(spout) if spout.max_pending == 0 => Some(("max_pending", "is zero")),
            Kind::Spout(spout) if spout.max_pending > 1 << 24 => {
                Some(("max_pending", "is above 2^24"))
            }
            Kind::Spout(spout) => {
                let replay = spout.replay.as_ref().and_then(Replay::check);
                let is_zero = spout.timeout == Lifetime::After(Duration::ZERO);
                let zero =
                    is_zero.then_some(("timeout", "is zero; for none it takes Duration::MAX"));
                replay.map(|why| ("replay", why)).or(zero)
            }
            Kind::Bolt(_) => None,
        };
        let zero = self.tick.filter(Duration::is_zero).map(|_| ("tick_every", "is zero"));
        let wrong = own.or(zero);
        wrong.map_or(Ok(()), |(setting, why)| Err(BuildError::setting(&self.name, setting, why)))
    }
}
