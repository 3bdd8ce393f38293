//! Messages whose trees have no root yet.
//!
//! What a spout emits in one call waits here, and all its trees begin together: one call of the
//! tracker is cheaper than one for each. Then the messages go into the lanes of their tasks, in the
//! order in which they were emitted.

use crate::emit::{Emitter, Found};
use crate::tuple::{Anchor, Anchors};
use expiry::{AckError, AckTracker, Lifetime, Root};
use rand::rngs::SmallRng;
use std::cell::Cell;

/// Number of trees that begin together.
const TOGETHER: usize = 64;

/// A message on its way to one task, whose tree has no root yet.
struct Rootless<M> {
    /// The number, among the trees that are to begin, of the tree that the message is a part of.
    /// For an untracked message it is the number of the next tree.
    tree: usize,
    /// The message's edge in that tree; 0 if the message is untracked.
    edge: u64,
    to: usize,
    stream: usize,
    message: M,
}

/// The trees that are to begin, and the messages that wait for them.
pub(super) struct Trees<M> {
    /// The XOR of each tree's edges, and its owner.
    trees: Vec<(u64, u64)>,
    /// What is sent when they have begun, in the order of emission.
    rootless: Vec<Rootless<M>>,
    /// The roots that the tracker issued last; kept for its memory.
    roots: Vec<Root>,
    timeout: Lifetime,
    /// The number of the spout's task among all spouts' tasks: the upper half of an owner.
    number: u32,
}

impl<M: Clone> Trees<M> {
    pub(super) fn new(number: u32, timeout: Lifetime) -> Self {
        Trees { trees: Vec::new(), rootless: Vec::new(), roots: Vec::new(), timeout, number }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// Whether so many wait that they should begin before the spout returns.
    pub(super) fn are_many(&self) -> bool {
        self.trees.len() >= TOGETHER
    }

    /// Adds the tree of the message in `place`. The emitter has just found the message's tasks.
    pub(super) fn add(
        &mut self,
        emitter: &mut Emitter<M>,
        place: u32,
        stream: usize,
        found: Found,
        message: M,
    ) {
        let owner = u64::from(self.number) << 32 | u64::from(place);
        let xor = self.collect(emitter, stream, found, message, Emitter::<M>::edge);
        self.trees.push((xor, owner));
    }

    /// Adds a message that is part of no tree, behind the messages that wait.
    pub(super) fn add_untracked(
        &mut self,
        emitter: &mut Emitter<M>,
        stream: usize,
        found: Found,
        message: M,
    ) {
        self.collect(emitter, stream, found, message, |_| 0);
    }

    /// Keeps a message's copies until the next tree has a root. Returns the XOR of their edges.
    fn collect(
        &mut self,
        emitter: &mut Emitter<M>,
        stream: usize,
        found: Found,
        message: M,
        mut edge: impl FnMut(&mut SmallRng) -> u64,
    ) -> u64 {
        let (rootless, tree) = (&mut self.rootless, self.trees.len());
        let mut xor = 0;
        emitter.copies(stream, found, message, |random, _, to, message| {
            let edge = edge(random);
            xor ^= edge;
            rootless.push(Rootless { tree, edge, to, stream, message });
        });
        xor
    }

    /// Begins the trees, and sends their messages. If the tracker refuses a tree, that tree and all
    /// that was emitted after it stay here.
    pub(super) fn begin(
        &mut self,
        emitter: &mut Emitter<M>,
        tracker: Option<&AckTracker>,
    ) -> Result<(), AckError> {
        let Some(tracker) = tracker.filter(|_| !self.trees.is_empty()) else {
            return Ok(());
        };
        self.roots.clear();
        let begun = tracker.issue_batch_with(&self.trees, self.timeout, &mut self.roots);
        let issued = self.roots.len();
        let is_sent = |copy: &Rootless<M>| copy.tree + usize::from(copy.edge != 0) <= issued;
        let sent = if begun.is_ok() {
            self.rootless.len()
        } else {
            self.rootless.iter().take_while(|copy| is_sent(copy)).count()
        };
        for copy in self.rootless.drain(..sent) {
            let anchors = if copy.edge == 0 {
                Anchors::new()
            } else {
                let (root, xor) = (self.roots[copy.tree], Cell::new(copy.edge));
                Anchors::from_buf([Anchor { root, xor }])
            };
            emitter.send(copy.stream, copy.to, copy.message, anchors);
        }
        self.trees.drain(..issued);
        self.rootless.iter_mut().for_each(|copy| copy.tree -= issued);
        begun
    }

    /// Sends all messages that wait, untracked. Returns the places of those that had a tree.
    pub(super) fn forsake(&mut self, emitter: &mut Emitter<M>) -> impl Iterator<Item = u32> {
        for copy in self.rootless.drain(..) {
            emitter.send(copy.stream, copy.to, copy.message, Anchors::new());
        }
        #[allow(clippy::cast_possible_truncation)] // the lower half
        std::mem::take(&mut self.trees).into_iter().map(|(_, owner)| owner as u32)
    }
}
