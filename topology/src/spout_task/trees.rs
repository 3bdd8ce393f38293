//! Messages that were offered and not sent: each waits for the root of its tree.
//!
//! All trees of what a spout emits in one call begin together: one call of the tracker is cheaper
//! than one for each. An untracked message waits behind those before it, so order is kept.

use crate::outcomes::Owner;
use crate::tuple::{edge, Anchor, Anchors};
use expiry::{AckError, AckTracker, Lifetime, Root};
use std::cell::Cell;
use std::collections::VecDeque;

/// Once this many messages wait, their trees begin before the spout returns.
pub(super) const TOGETHER: usize = 64;

/// A message that was offered and not sent.
struct Offered {
    /// Whether it is a dead letter, and goes by that port.
    is_letter: bool,
    /// What the edges of its copies follow from; `None` if it is untracked.
    seed: Option<u64>,
}

/// The messages that are to be sent, and the trees that are to begin for them.
pub(super) struct Trees {
    offered: VecDeque<Offered>,
    /// For each tracked message the XOR of its tree's edges, and its owner.
    trees: Vec<(u64, u64)>,
    /// The roots that the tracker issued last; kept for its memory.
    roots: Vec<Root>,
    timeout: Lifetime,
    /// The number of the spout's task among all spouts' tasks.
    pub(super) task: u32,
}

/// The edges of a message's copies, in the order in which they are sent.
fn edges(seed: u64) -> impl Iterator<Item = u64> {
    let mut xor = 0;
    std::iter::repeat_with(move || {
        let edge = edge(seed ^ xor);
        xor ^= edge;
        edge
    })
}

impl Trees {
    pub(super) fn new(task: u32, timeout: Lifetime) -> Self {
        Trees { offered: VecDeque::new(), trees: Vec::new(), roots: Vec::new(), timeout, task }
    }

    pub(super) fn len(&self) -> usize {
        self.offered.len()
    }

    /// Adds an untracked message that was just offered.
    pub(super) fn add_untracked(&mut self, is_letter: bool) {
        self.offered.push_back(Offered { is_letter, seed: None });
    }

    /// Adds the message in `place`, of which so many copies were just offered.
    pub(super) fn add(&mut self, place: u32, is_letter: bool, seed: u64, copies: usize) {
        let xor = edges(seed).take(copies).fold(0, |xor, edge| xor ^ edge);
        self.trees.push((xor, Owner { task: self.task, place }.into()));
        self.offered.push_back(Offered { is_letter, seed: Some(seed) });
    }

    /// Begins the trees, and calls `send` for each message, with whether it is a letter and the
    /// anchors of its copies. If the tracker refuses a tree, its message and all after it stay.
    pub(super) fn begin(
        &mut self,
        tracker: Option<&AckTracker>,
        mut send: impl FnMut(bool, &mut dyn FnMut() -> Anchors),
    ) -> Result<(), AckError> {
        self.roots.clear();
        let mut begun = Ok(());
        if let Some(tracker) = tracker.filter(|_| !self.trees.is_empty()) {
            begun = tracker.issue_many_for(&self.trees, self.timeout, &mut self.roots);
            self.trees.drain(..self.roots.len());
        }
        let mut roots = self.roots.iter();
        while let Some(&Offered { is_letter, seed }) = self.offered.front() {
            match seed {
                None => send(is_letter, &mut Anchors::new),
                Some(seed) => {
                    let Some(&root) = roots.next() else { break };
                    let mut anchors = edges(seed)
                        .map(|edge| Anchors::from_buf([Anchor { root, xor: Cell::new(edge) }]));
                    send(is_letter, &mut || anchors.next().unwrap_or_default());
                }
            }
            self.offered.pop_front();
        }
        begun
    }
}
