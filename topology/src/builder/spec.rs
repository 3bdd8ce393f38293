//! A component, as it was declared.

use super::OnDeadLetter;
use crate::component::{Bolt, Context};
use crate::error::BuildError;
use crate::graph::{FieldHash, Grouping, DEFAULT};
use crate::instance::Made;
use crate::replay::Replay;
use crate::spout_task::SpoutParts;
use crate::task::Task;
use std::sync::Arc;
use std::time::Duration;

/// Makes a task of a spout. The type of the spout's ids appears in no other part of a declaration.
pub(crate) type MakeSpoutTask<M> = Box<dyn Fn(SpoutParts<M>) -> Box<dyn Task> + Send + Sync>;

pub(crate) type BoltFactory<M> = Arc<dyn Fn(&Context) -> Made<dyn Bolt<M>> + Send + Sync>;

/// A stream that a bolt listens to, and its grouping.
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
    pub(crate) make_task: MakeSpoutTask<M>,
    pub(crate) max_pending: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) replay: Option<Replay>,
    pub(crate) on_dead_letter: Option<OnDeadLetter<M>>,
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
    /// Whether its first instances are made before the topology starts, as that may fail.
    pub(crate) tries: bool,
    pub(crate) streams: Vec<StreamSpec<M>>,
    pub(crate) kind: Kind<M>,
}

impl<M> Spec<M> {
    pub(super) fn new(name: &str, kind: Kind<M>) -> Self {
        let stream = StreamSpec { name: DEFAULT.to_string(), fields: Vec::new() };
        Spec {
            name: name.to_string(),
            tasks: 1,
            threads: None,
            tries: false,
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

    pub(super) fn replays(&self) -> bool {
        matches!(&self.kind, Kind::Spout(spout) if spout.replay.is_some())
    }

    /// Checks the component's own settings.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        let (tasks, threads) = (self.tasks, self.threads());
        if tasks == 0 || threads == 0 || threads > tasks || tasks > 1 << 16 {
            let component = self.name.clone();
            return Err(BuildError::BadParallelism { component, tasks, threads });
        }
        let wrong = match &self.kind {
            Kind::Spout(spout) if spout.max_pending == 0 => Some(("max_pending", "is zero")),
            Kind::Spout(spout) if spout.max_pending > 1 << 24 => {
                Some(("max_pending", "is above 2^24"))
            }
            Kind::Spout(spout) => {
                let replay = spout.replay.as_ref().and_then(Replay::check);
                let zero = spout.timeout.filter(Duration::is_zero).map(|_| ("timeout", "is zero"));
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
            Some((setting, why)) => {
                Err(BuildError::Setting { component: self.name.clone(), setting, why })
            }
            None => Ok(()),
        }
    }
}
