//! Nodes: what is known of an id, whether it is scheduled or not, in one cache line.
//!
//! An id is scheduled if its *generation* is odd. The generation goes up whenever that changes, by
//! two if the id is moved. So a record that was made for an earlier state does not match any more,
//! and descheduling need not look for it to take it out.

use crate::memory::{self, prefetch};
use std::fmt::Debug;

/// What an owner keeps with an id.
pub trait Payload: Default {
    /// Alignment of a node: choose it so that no node lies across two cache lines.
    type Align: Copy + Debug;
}

/// 16 bytes, four to a cache line.
impl Payload for () {
    type Align = u64;
}

/// A node: 16 bytes without a payload; 32 with an eight-byte value and its serial.
#[derive(Clone, Debug)]
struct Node<P: Payload> {
    _align: [P::Align; 0],
    /// Valid while the id is scheduled.
    due: u64,
    generation: u32,
    payload: P,
}

/// The nodes of all ids up to the highest in use.
#[derive(Clone, Debug)]
pub(super) struct Nodes<P: Payload>(Vec<Node<P>>);

impl<P: Payload> Nodes<P> {
    pub(super) const fn new() -> Nodes<P> {
        Nodes(Vec::new())
    }

    /// Makes a node for `id` and all below it.
    #[cold]
    pub(super) fn grow(&mut self, id: u32) {
        self.reserve(id as usize + 1);
        self.0.resize_with(id as usize + 1, || Node {
            _align: [],
            due: 0,
            generation: 0,
            payload: P::default(),
        });
    }

    #[inline]
    pub(super) fn has(&self, id: u32) -> bool {
        (id as usize) < self.0.len()
    }

    #[inline]
    pub(super) fn is_scheduled(&self, id: u32) -> bool {
        let node = self.0.get(id as usize);
        matches!(node, Some(node) if node.generation % 2 == 1)
    }

    /// Whether the record of `id` that was made at `generation` is that of its present schedule.
    #[inline]
    pub(super) fn is_live(&self, id: u32, generation: u32) -> bool {
        // Records have odd generations only.
        self.0[id as usize].generation == generation
    }

    /// Ends the schedule of `id`. True if the generation has come round: old records could match.
    #[inline]
    #[must_use]
    pub(super) fn end(&mut self, id: u32) -> bool {
        let node = &mut self.0[id as usize];
        debug_assert_eq!(node.generation % 2, 1);
        node.generation = node.generation.wrapping_add(1);
        node.generation == 0
    }

    /// Schedules `id`, which is not scheduled, and returns the generation.
    #[inline]
    pub(super) fn begin(&mut self, id: u32, due: u64) -> u32 {
        let node = &mut self.0[id as usize];
        debug_assert_eq!(node.generation % 2, 0);
        node.generation += 1;
        node.due = due;
        node.generation
    }

    /// Begins another schedule of `id` if it has one and `is` holds of the payload. Otherwise
    /// `None`. The generation is 1 if it has come round.
    #[inline]
    pub(super) fn renew(&mut self, id: u32, due: u64, is: impl FnOnce(&P) -> bool) -> Option<u32> {
        let node = self.0.get_mut(id as usize)?;
        if node.generation % 2 == 0 || !is(&node.payload) {
            return None;
        }
        node.generation = node.generation.wrapping_add(2);
        node.due = due;
        Some(node.generation)
    }

    /// Ends the schedule of `id` if it is scheduled and `is` says so of the payload, which it
    /// returns, with whether the generation has come round.
    #[inline]
    pub(super) fn take(&mut self, id: u32, is: impl FnOnce(&P) -> bool) -> Option<(P, bool)> {
        let node = self.0.get_mut(id as usize)?;
        if node.generation % 2 == 0 || !is(&node.payload) {
            return None;
        }
        node.generation = node.generation.wrapping_add(1);
        Some((std::mem::take(&mut node.payload), node.generation == 0))
    }

    #[inline]
    pub(super) fn due(&self, id: u32) -> Option<u64> {
        let node = self.0.get(id as usize)?;
        (node.generation % 2 == 1).then_some(node.due)
    }

    /// What the owner keeps with `id`, scheduled or not.
    #[inline]
    pub(super) fn payload(&self, id: u32) -> Option<&P> {
        Some(&self.0.get(id as usize)?.payload)
    }

    #[inline]
    pub(super) fn payload_mut(&mut self, id: u32) -> Option<&mut P> {
        Some(&mut self.0.get_mut(id as usize)?.payload)
    }

    /// Fetches the node of `id` ahead of time.
    #[inline]
    pub(super) fn fetch(&self, id: u32) {
        if let Some(node) = self.0.get(id as usize) {
            prefetch(node);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Forgets all ids, even if a payload's drop panics, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn reserve(&mut self, ids: usize) {
        memory::reserve(&mut self.0, ids);
    }

    /// Forgets the ids from `ids` on that are above the highest scheduled one.
    pub(super) fn shrink_to(&mut self, ids: usize) {
        let used = self.0.iter().rposition(|node| node.generation % 2 == 1);
        let keep = ids.max(used.map_or(0, |last| last + 1));
        self.0.truncate(keep);
        self.0.shrink_to(keep);
    }

    #[cold]
    pub(super) fn set_generation(&mut self, id: u32, generation: u32) {
        self.0[id as usize].generation = generation;
    }
}
