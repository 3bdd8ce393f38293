//! Which components listen to which: checked.

use crate::builder::Spec;
use crate::error::BuildError;
use std::collections::HashSet;

/// The checked graph.
pub(crate) struct Graph {
    /// The components that each one listens to, each once.
    pub(crate) senders: Vec<Vec<usize>>,
    /// The spouts that lead to each component, if what it emits may come back to it.
    pub(crate) in_cycle: Vec<Option<Vec<usize>>>,
}

impl Graph {
    pub(crate) fn new(specs: &[Spec]) -> Result<Self, BuildError> {
        let mut names = HashSet::new();
        let mut senders = Vec::new();
        for spec in specs {
            spec.check()?;
            if !names.insert(&spec.name) {
                return Err(BuildError::DuplicateName(spec.name.to_string()));
            }
            let mut sources = spec.inputs.clone();
            sources.sort_unstable();
            sources.dedup();
            senders.push(sources);
        }
        if !specs.iter().any(|spec| spec.kind.is_spout()) {
            return Err(BuildError::NoSpout);
        }
        let (mut in_cycle, mut unreachable) = (Vec::new(), Vec::new());
        for (at, spec) in specs.iter().enumerate() {
            let sources = all_sources(at, &senders);
            let is_spout = |&from: &usize| sources[from] && specs[from].kind.is_spout();
            let spouts: Vec<usize> = (0..specs.len()).filter(is_spout).collect();
            if spouts.is_empty() && !spec.kind.is_spout() {
                unreachable.push(spec.name.to_string());
            }
            in_cycle.push(sources[at].then_some(spouts));
        }
        if !unreachable.is_empty() {
            return Err(BuildError::Unreachable(unreachable));
        }
        Ok(Graph { senders, in_cycle })
    }
}

/// For each component, whether the component `at` listens to it, directly or by others.
fn all_sources(at: usize, senders: &[Vec<usize>]) -> Vec<bool> {
    let mut seen = vec![false; senders.len()];
    let mut next = senders[at].clone();
    while let Some(source) = next.pop() {
        if !std::mem::replace(&mut seen[source], true) {
            next.extend(&senders[source]);
        }
    }
    seen
}
