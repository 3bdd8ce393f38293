//! Nodes, lists and bitmaps: every list of the wheel is a ring through its head, in one array.
//!
//! The heads come first, 64 to a *row*: row 0 has the lists outside the levels, row 1 is the finest
//! level, the last row has one head only, the overflow. So a head's number is `row << 6 | bucket`,
//! and it is also the address of its bit. Ids follow; a node's index is its id plus the number of
//! heads. Unlinking needs neither the list a node is in nor a case for the ends, and the one node
//! whose two neighbours are the same has that list's head on both sides.

use super::trail::{Scouts, Trail, EVERY};
use crate::sync::prefetch;
use crate::wheel::geometry::{MAX_LEVELS, ROW_BITS};

/// In `next`: this node is in no list.
const UNLINKED: u32 = u32::MAX;

/// Level rows, the row outside the levels, and the overflow.
const MAX_ROWS: usize = MAX_LEVELS + 2;

/// One below `UNLINKED` after the heads of the largest geometry.
pub(super) const MAX_ID: u32 = UNLINKED - 1 - ((MAX_ROWS as u32 - 1) << ROW_BITS) - 1;

/// The first head of the levels.
pub(super) const FIRST: u32 = 1 << ROW_BITS;

/// The row of a head.
#[inline]
pub(super) fn row(head: u32) -> usize {
    (head >> ROW_BITS) as usize
}

/// A link of a ring, and what its owner keeps there. 16 bytes without a payload, four to a cache line;
/// 32 with an eight-byte value and its serial.
#[derive(Clone, Debug)]
struct Node<P> {
    next: u32,
    prev: u32,
    /// Of a linked id: its deadline. Of a level's head: the bound of its bucket. Of others: nothing.
    due: u64,
    payload: P,
}

/// All lists of a wheel and, per row, which of them have a node.
#[derive(Clone, Debug)]
pub(super) struct Links<P> {
    nodes: Vec<Node<P>>,
    occupied: [u64; MAX_ROWS],
    heads: u32,
    /// Of each head.
    trails: Vec<Trail>,
    /// Pushes until one is looked at for the trails.
    unseen: u32,
    scouts: Scouts,
}

impl<P: Default> Links<P> {
    /// Whether it is worth remembering the way through long lists. Ids without a payload, the engine's, stand for
    /// many entries each; their lists are short.
    const TRAILS: bool = std::mem::size_of::<P>() > 0;

    /// Empty lists for `rows` rows, the last of them with a single list.
    pub(super) fn new(rows: usize) -> Links<P> {
        debug_assert!((3..=MAX_ROWS).contains(&rows));
        let heads = ((rows as u32 - 1) << ROW_BITS) + 1;
        let ring = |head| Node {
            next: head,
            prev: head,
            due: 0,
            payload: P::default(),
        };
        Links {
            nodes: (0..heads).map(ring).collect(),
            occupied: [0; MAX_ROWS],
            heads,
            trails: vec![Trail::EMPTY; if Self::TRAILS { heads as usize } else { 0 }],
            unseen: EVERY,
            scouts: Scouts::NONE,
        }
    }

    /// The node of `id`, whether it is in a list or not; the array grows up to it.
    #[inline]
    pub(super) fn node_or_grow(&mut self, id: u32) -> u32 {
        assert!(id <= MAX_ID, "wheel id {id} is above Wheel::MAX_ID");
        let node = id + self.heads;
        if node as usize >= self.nodes.len() {
            self.grow(node);
        }
        node
    }

    #[cold]
    fn grow(&mut self, node: u32) {
        self.nodes.resize_with(node as usize + 1, || Node {
            next: UNLINKED,
            prev: UNLINKED,
            due: 0,
            payload: P::default(),
        });
    }

    /// The node of `id` if it is in a list.
    #[inline]
    pub(super) fn scheduled(&self, id: u32) -> Option<u32> {
        let node = id.checked_add(self.heads)?;
        (self.nodes.get(node as usize)?.next != UNLINKED).then_some(node)
    }

    /// What the owner keeps with `id`, whether it is in a list or not; `None` if the array ends before it.
    #[inline]
    pub(super) fn payload(&self, id: u32) -> Option<&P> {
        let node = id.checked_add(self.heads)?;
        Some(&self.nodes.get(node as usize)?.payload)
    }

    /// Mutable [`payload`](Links::payload).
    #[inline]
    pub(super) fn payload_mut(&mut self, id: u32) -> Option<&mut P> {
        let node = id.checked_add(self.heads)?;
        Some(&mut self.nodes.get_mut(node as usize)?.payload)
    }

    /// The payload of a node.
    #[inline]
    pub(super) fn payload_at(&mut self, node: u32) -> &mut P {
        &mut self.nodes[node as usize].payload
    }

    /// Empties all lists and forgets all nodes.
    pub(super) fn clear(&mut self) {
        self.scouts = Scouts::NONE;
        self.occupied = [0; MAX_ROWS];
        for head in 0..self.heads {
            let ring = &mut self.nodes[head as usize];
            ring.next = head;
            ring.prev = head;
        }
        // Last: a payload's drop may panic, and finds all of it done then.
        self.nodes.truncate(self.heads as usize);
    }

    /// How many ids have a node, linked or not.
    #[inline]
    pub(super) fn ids(&self) -> usize {
        self.nodes.len() - self.heads as usize
    }

    /// For how many ids there is memory.
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity() - self.heads as usize
    }

    #[inline]
    pub(super) fn id(&self, node: u32) -> u32 {
        node - self.heads
    }

    #[inline]
    pub(super) fn is_linked(&self, node: u32) -> bool {
        self.nodes[node as usize].next != UNLINKED
    }

    #[inline]
    pub(super) fn due(&self, node: u32) -> u64 {
        self.nodes[node as usize].due
    }

    #[inline]
    pub(super) fn set_due(&mut self, node: u32, due: u64) {
        self.nodes[node as usize].due = due;
    }

    /// The first node of a list.
    #[inline]
    pub(super) fn first(&self, head: u32) -> Option<u32> {
        let next = self.nodes[head as usize].next;
        (next != head).then_some(next)
    }

    /// Whether any list of `row` has a node.
    #[inline]
    pub(super) fn any_in_row(&self, row: usize) -> bool {
        self.occupied[row] != 0
    }

    /// The first head that has a node, in rows from `row` on.
    #[inline]
    pub(super) fn first_head(&self, row: usize) -> Option<u32> {
        for (row, bits) in self.occupied.iter().enumerate().skip(row) {
            if *bits != 0 {
                return Some((row as u32) << ROW_BITS | bits.trailing_zeros());
            }
        }
        None
    }

    /// The first head that has a node, from head `from` on.
    pub(super) fn first_head_from(&self, from: u32) -> Option<u32> {
        let bits = self.occupied.get(row(from))? & (u64::MAX << bucket(from));
        if bits != 0 {
            return Some(from >> ROW_BITS << ROW_BITS | bits.trailing_zeros());
        }
        self.first_head(row(from) + 1)
    }

    /// The last head that has a node, before head `to`.
    pub(super) fn last_head_before(&self, to: u32) -> Option<u32> {
        let rows = self.occupied.iter().enumerate().rev();
        for (row, bits) in rows.skip_while(|&(at, _)| at > row(to)) {
            let bits = if row == self::row(to) {
                bits & !(u64::MAX << bucket(to))
            } else {
                *bits
            };
            if bits != 0 {
                return Some((row as u32) << ROW_BITS | bits.ilog2());
            }
        }
        None
    }

    /// The node after `node` in the list of `head`.
    #[inline]
    pub(super) fn after(&self, head: u32, node: u32) -> Option<u32> {
        let next = self.nodes[node as usize].next;
        (next != head).then_some(next)
    }

    /// Appends an unlinked node and returns whether the list was empty.
    #[inline(always)]
    pub(super) fn push_back(&mut self, head: u32, node: u32) -> bool {
        debug_assert!(!self.is_linked(node));
        let last = self.nodes[head as usize].prev;
        let entry = &mut self.nodes[node as usize];
        entry.next = head;
        entry.prev = last;
        self.nodes[last as usize].next = node;
        self.nodes[head as usize].prev = node;
        self.occupied[row(head)] |= bit(head);
        let alone = last == head;
        if Self::TRAILS {
            if alone {
                self.trails[head as usize].begin();
            }
            self.unseen -= 1;
            if self.unseen == 0 {
                self.unseen = EVERY;
                self.trails[head as usize].look_at(node);
            }
        }
        alone
    }

    /// Gets ready for going through the list of `head`, wherever that is spliced to.
    #[inline]
    pub(super) fn send_scouts(&mut self, head: u32) {
        if Self::TRAILS {
            self.scouts = Scouts::along(&self.trails[head as usize]);
        }
    }

    /// To be called for each node that is gone through.
    #[inline]
    pub(super) fn scout(&mut self) {
        if Self::TRAILS {
            let nodes = &self.nodes;
            self.scouts
                .step(|at| nodes.get(at as usize).map(|node| node.next));
        }
    }

    /// Takes a linked node out of whatever list it is in.
    #[inline]
    pub(super) fn unlink(&mut self, node: u32) {
        let entry = &mut self.nodes[node as usize];
        let (next, prev) = (entry.next, entry.prev);
        debug_assert_ne!(next, UNLINKED);
        entry.next = UNLINKED;
        // Both at once: the stores below would wait for one after the other.
        prefetch(&self.nodes[prev as usize]);
        prefetch(&self.nodes[next as usize]);
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        if next == prev {
            // It was alone, so this is the head. (Two nodes and a head are three.)
            self.occupied[row(next)] &= !bit(next);
        }
    }

    /// Appends all of list `from` to list `to`, in order, leaving `from` empty. O(1).
    #[inline]
    pub(super) fn splice(&mut self, from: u32, to: u32) {
        let Node {
            next: first,
            prev: last,
            ..
        } = self.nodes[from as usize];
        if first == from {
            return;
        }
        let before = self.nodes[to as usize].prev;
        self.nodes[before as usize].next = first;
        self.nodes[first as usize].prev = before;
        self.nodes[last as usize].next = to;
        self.nodes[to as usize].prev = last;
        let emptied = &mut self.nodes[from as usize];
        emptied.next = from;
        emptied.prev = from;
        self.occupied[row(to)] |= bit(to);
        self.occupied[row(from)] &= !bit(from);
    }

    pub(super) fn reserve(&mut self, ids: usize) {
        let wanted = ids.saturating_add(self.heads as usize);
        self.nodes.reserve(wanted.saturating_sub(self.nodes.len()));
    }

    pub(super) fn shrink_to(&mut self, ids: usize) {
        let least = ids.saturating_add(self.heads as usize);
        let used = self.nodes.iter().rposition(|node| node.next != UNLINKED);
        let keep = least.max(used.map_or(0, |last| last + 1));
        self.nodes.truncate(keep);
        self.nodes.shrink_to(keep);
    }
}

/// A head's place in its row.
#[inline]
fn bucket(head: u32) -> u32 {
    head & ((1 << ROW_BITS) - 1)
}

/// A head's bit in its row.
#[inline]
fn bit(head: u32) -> u64 {
    1 << bucket(head)
}

/// What the validator of the tests may look at.
#[cfg(any(test, fuzzing))]
impl<P: Default> Links<P> {
    /// The nodes of a list in order, after checking the links both ways.
    pub(super) fn ring(&self, head: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let (mut at, mut next) = (head, self.nodes[head as usize].next);
        while next != head {
            assert!(next >= self.heads, "list {head} runs into head {next}");
            assert_eq!(self.nodes[next as usize].prev, at, "back link of {next}");
            assert!(found.len() < self.nodes.len(), "list {head} never ends");
            found.push(next);
            (at, next) = (next, self.nodes[next as usize].next);
        }
        assert_eq!(self.nodes[head as usize].prev, at, "tail of {head}");
        found
    }

    pub(super) fn bits(&self, row: usize) -> u64 {
        self.occupied[row]
    }

    #[cfg(test)]
    pub(super) fn heads(&self) -> u32 {
        self.heads
    }

    pub(super) fn linked(&self) -> usize {
        let ids = &self.nodes[self.heads as usize..];
        ids.iter().filter(|node| node.next != UNLINKED).count()
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> (usize, usize) {
        (self.nodes.len(), self.nodes.capacity())
    }
}
