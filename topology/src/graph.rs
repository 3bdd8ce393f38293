//! Which components listen to which, and by which grouping: checked, and made into routes.

use crate::builder::{Input, Kind, Spec};
use crate::error::BuildError;
use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::sync::Arc;

/// Hashes a field of a message.
pub(crate) type FieldHash<M> = Arc<dyn Fn(&M, &mut dyn Hasher) + Send + Sync>;

/// The name of the stream that every component has.
pub const DEFAULT: &str = "default";

/// Which tasks of a bolt get a message. After Storm's groupings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grouping {
    Shuffle,
    LocalOrShuffle,
    Fields(Vec<String>),
    All,
    Global,
    Direct,
}

/// The same, with what it takes to choose.
pub(crate) enum Choice<M> {
    Shuffle,
    Local,
    Fields(Vec<FieldHash<M>>),
    All,
    Global,
    Direct,
}

/// Where the messages of a stream go, to one of its listeners: to some of these tasks, by the
/// numbers of their lanes in the sender's [`lanes`](Graph::lanes).
pub(crate) struct Route<M> {
    pub(crate) first: usize,
    pub(crate) tasks: usize,
    pub(crate) choice: Choice<M>,
}

impl<M> Route<M> {
    /// Whether each message goes to one task, of which the sender need not say which one.
    #[inline]
    pub(crate) fn is_to_one(&self) -> bool {
        !matches!(self.choice, Choice::All | Choice::Direct)
    }
}

/// A stream of a component.
pub(crate) struct Stream<M> {
    pub(crate) name: Arc<str>,
    pub(crate) routes: Vec<Route<M>>,
}

/// The checked graph.
pub(crate) struct Graph<M> {
    /// Streams of each component, in the order in which they were declared.
    pub(crate) streams: Vec<Arc<[Stream<M>]>>,
    /// The first lane of each component; bolts only.
    pub(crate) first_lane: Vec<usize>,
    /// The components that each one listens to, each once.
    pub(crate) senders: Vec<Vec<usize>>,
    /// The lanes of each component's listeners, each once: two streams to one task keep their
    /// order.
    pub(crate) lanes: Vec<Vec<usize>>,
    /// The spouts that lead to each component, if what it emits may come back to it.
    pub(crate) in_cycle: Vec<Option<Vec<usize>>>,
}

impl<M> Graph<M> {
    pub(crate) fn new(specs: &[Spec<M>]) -> Result<Self, BuildError> {
        let names = names(specs)?;
        let sources = sources(specs, &names)?;
        reachable(specs, &sources)?;
        let mut first_lane = Vec::new();
        let mut lanes = 0;
        for spec in specs {
            first_lane.push(lanes);
            if matches!(spec.kind, Kind::Bolt(_)) {
                lanes += spec.tasks;
            }
        }
        let mut streams: Vec<Vec<Stream<M>>> = specs
            .iter()
            .map(|spec| {
                let stream = |stream: &crate::builder::StreamSpec<M>| Stream {
                    name: stream.name.as_str().into(),
                    routes: Vec::new(),
                };
                spec.streams.iter().map(stream).collect()
            })
            .collect();
        let mut to: Vec<Vec<usize>> = vec![Vec::new(); specs.len()];
        for (at, (spec, from)) in specs.iter().zip(&sources).enumerate() {
            for (input, &source) in spec.inputs().iter().zip(from) {
                let (stream, choice) = choose(spec, input, &specs[source])?;
                let (first, lanes) = (first_lane[at], &mut to[source]);
                let known = lanes.iter().position(|&lane| lane == first);
                let here = known.unwrap_or(lanes.len());
                if known.is_none() {
                    lanes.extend(first..first + spec.tasks);
                }
                streams[source][stream].routes.push(Route {
                    first: here,
                    tasks: spec.tasks,
                    choice,
                });
            }
        }
        Ok(Graph {
            streams: streams.into_iter().map(Into::into).collect(),
            first_lane,
            lanes: to,
            in_cycle: (0..specs.len()).map(|at| in_cycle(at, specs, &sources)).collect(),
            senders: sources.into_iter().map(each_once).collect(),
        })
    }
}

/// Where each component is, by its name.
fn names<M>(specs: &[Spec<M>]) -> Result<HashMap<&str, usize>, BuildError> {
    let mut names = HashMap::new();
    for (at, spec) in specs.iter().enumerate() {
        if spec.name.is_empty() {
            return Err(BuildError::EmptyName);
        }
        if names.insert(spec.name.as_str(), at).is_some() {
            return Err(BuildError::DuplicateName(spec.name.clone()));
        }
        let mut streams = HashSet::new();
        for stream in &spec.streams {
            if !streams.insert(&stream.name) {
                return Err(BuildError::DuplicateStream {
                    component: spec.name.clone(),
                    stream: stream.name.clone(),
                });
            }
            let mut fields = HashSet::new();
            if let Some((field, _)) = stream.fields.iter().find(|(name, _)| !fields.insert(name)) {
                return Err(BuildError::DuplicateField {
                    component: spec.name.clone(),
                    field: field.clone(),
                });
            }
        }
    }
    Ok(names)
}

/// The sources that each component listens to, input by input.
fn sources<M>(
    specs: &[Spec<M>],
    names: &HashMap<&str, usize>,
) -> Result<Vec<Vec<usize>>, BuildError> {
    let of = |spec: &Spec<M>| {
        let source = |input: &Input| match names.get(input.source.as_str()) {
            Some(&at) => Ok(at),
            None => Err(BuildError::UnknownComponent {
                component: spec.name.clone(),
                source: input.source.clone(),
            }),
        };
        if matches!(spec.kind, Kind::Bolt(_)) && spec.inputs().is_empty() {
            return Err(BuildError::NoInput(spec.name.clone()));
        }
        spec.inputs().iter().map(source).collect()
    };
    specs.iter().map(of).collect()
}

/// Whether a spout leads to every bolt.
fn reachable<M>(specs: &[Spec<M>], sources: &[Vec<usize>]) -> Result<(), BuildError> {
    let is_spout = |spec: &Spec<M>| matches!(spec.kind, Kind::Spout(_));
    let mut reached: Vec<bool> = specs.iter().map(is_spout).collect();
    if !reached.contains(&true) {
        return Err(BuildError::NoSpout);
    }
    loop {
        let more = |&at: &usize| !reached[at] && sources[at].iter().any(|&source| reached[source]);
        match (0..specs.len()).find(more) {
            Some(at) => reached[at] = true,
            None => break,
        }
    }
    let left = specs.iter().zip(&reached).filter(|(_, reached)| !**reached);
    let left: Vec<String> = left.map(|(spec, _)| spec.name.clone()).collect();
    if left.is_empty() {
        Ok(())
    } else {
        Err(BuildError::Unreachable(left))
    }
}

fn each_once(mut components: Vec<usize>) -> Vec<usize> {
    components.sort_unstable();
    components.dedup();
    components
}

/// The spouts that a component listens to, by others or not, if it listens to itself, by others or
/// not.
fn in_cycle<M>(at: usize, specs: &[Spec<M>], sources: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut seen = vec![false; sources.len()];
    let mut next = sources[at].clone();
    while let Some(source) = next.pop() {
        if !std::mem::replace(&mut seen[source], true) {
            next.extend(&sources[source]);
        }
    }
    let is_spout = |&at: &usize| seen[at] && matches!(specs[at].kind, Kind::Spout(_));
    seen[at].then(|| (0..specs.len()).filter(is_spout).collect())
}

/// The number of the stream that `spec` listens to, and how tasks are chosen.
fn choose<M>(
    spec: &Spec<M>,
    input: &Input,
    source: &Spec<M>,
) -> Result<(usize, Choice<M>), BuildError> {
    let at = source.streams.iter().position(|stream| stream.name == input.stream);
    let Some(at) = at else {
        return Err(BuildError::UnknownStream {
            component: spec.name.clone(),
            source: source.name.clone(),
            stream: input.stream.clone(),
        });
    };
    let choice = match &input.grouping {
        Grouping::Shuffle => Choice::Shuffle,
        Grouping::LocalOrShuffle => Choice::Local,
        Grouping::All => Choice::All,
        Grouping::Global => Choice::Global,
        Grouping::Direct => Choice::Direct,
        Grouping::Fields(fields) => {
            if fields.is_empty() {
                return Err(BuildError::NoFields(spec.name.clone()));
            }
            let hash = |field: &String| {
                let declared = source.streams[at].fields.iter().find(|(name, _)| name == field);
                let unknown = || BuildError::UnknownField {
                    component: spec.name.clone(),
                    source: source.name.clone(),
                    stream: input.stream.clone(),
                    field: field.clone(),
                };
                declared.map(|(_, hash)| hash.clone()).ok_or_else(unknown)
            };
            Choice::Fields(fields.iter().map(hash).collect::<Result<_, _>>()?)
        }
    };
    Ok((at, choice))
}
