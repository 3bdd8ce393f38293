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
        reachable(specs, &senders)?;
        let in_cycle = (0..specs.len()).map(|at| in_cycle(at, specs, &senders)).collect();
        Ok(Graph { senders, in_cycle })
    }
}

/// Whether a spout leads to every bolt.
fn reachable(specs: &[Spec], senders: &[Vec<usize>]) -> Result<(), BuildError> {
    let mut reached: Vec<bool> = specs.iter().map(|spec| spec.kind.is_spout()).collect();
    if !reached.contains(&true) {
        return Err(BuildError::NoSpout);
    }
    loop {
        let more = |&at: &usize| !reached[at] && senders[at].iter().any(|&source| reached[source]);
        match (0..specs.len()).find(more) {
            Some(at) => reached[at] = true,
            None => break,
        }
    }
    let left = specs.iter().zip(&reached).filter(|(_, reached)| !**reached);
    let left: Vec<String> = left.map(|(spec, _)| spec.name.to_string()).collect();
    if left.is_empty() {
        Ok(())
    } else {
        Err(BuildError::Unreachable(left))
    }
}

/// The spouts that a component listens to, by others or not, if it listens to itself, by others or
/// not.
fn in_cycle(at: usize, specs: &[Spec], senders: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut seen = vec![false; senders.len()];
    let mut next = senders[at].clone();
    while let Some(source) = next.pop() {
        if !std::mem::replace(&mut seen[source], true) {
            next.extend(&senders[source]);
        }
    }
    let is_spout = |&spout: &usize| seen[spout] && specs[spout].kind.is_spout();
    seen[at].then(|| (0..specs.len()).filter(is_spout).collect())
}
