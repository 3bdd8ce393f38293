//! Trees that have no root yet.
//!
//! All trees of what a spout emits in one call begin together: one call of the tracker is cheaper
//! than one for each. Their messages wait in their lanes meanwhile.

use crate::emit::Port;
use crate::lanes::Tie;
use crate::tuple::edge;
use expiry::{AckError, AckTracker, Lifetime, Root};

/// Number of trees that begin together.
const TOGETHER: usize = 64;

/// The trees that are to begin.
pub(super) struct Trees {
    /// The XOR of each tree's edges, and its owner.
    trees: Vec<(u64, u64)>,
    /// The roots that the tracker issued last; kept for its memory.
    roots: Vec<Root>,
    timeout: Lifetime,
    /// The number of the spout's task among all spouts' tasks: the upper half of an owner.
    pub(super) number: u32,
}

impl Trees {
    pub(super) fn new(number: u32, timeout: Lifetime) -> Self {
        Trees { trees: Vec::new(), roots: Vec::new(), timeout, number }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// Whether so many wait that they should begin before the spout returns.
    pub(super) fn are_many(&self) -> bool {
        self.trees.len() >= TOGETHER
    }

    /// Sends what was just offered, as the tree of the message in `place`. Returns whether a batch
    /// is full that waits for roots.
    pub(super) fn add<M: Clone>(&mut self, place: u32, port: &mut Port<M>, seed: u64) -> bool {
        let (tree, mut xor) = (self.trees.len(), 0);
        let waits = port.send(|| {
            let edge = edge(seed ^ xor);
            xor ^= edge;
            Tie::Rootless { tree, edge }
        });
        self.trees.push((xor, u64::from(self.number) << 32 | u64::from(place)));
        waits
    }

    /// Begins the trees, and calls `root` with their roots. If the tracker refuses a tree, that
    /// tree and all after it stay here.
    pub(super) fn begin(
        &mut self,
        tracker: Option<&AckTracker>,
        root: impl FnOnce(&[Root]),
    ) -> Result<(), AckError> {
        let Some(tracker) = tracker.filter(|_| !self.trees.is_empty()) else {
            return Ok(());
        };
        self.roots.clear();
        let begun = tracker.issue_many_for(&self.trees, self.timeout, &mut self.roots);
        self.trees.drain(..self.roots.len());
        root(&self.roots);
        begun
    }
}
