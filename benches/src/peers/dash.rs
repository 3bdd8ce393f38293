//! `dashmap`, in both forms that look a key up once for the last ack and the removal together.

use super::{finished, Hasher, New, Peer, Touch};
use dashmap::mapref::entry::Entry;
use dashmap::DashMap;

/// XOR of the edges outstanding, and the owner.
#[derive(Clone, Copy)]
struct Tree {
    xor: u64,
    owner: u64,
}

/// Each ack is a `remove_if_mut`: one find under the shard's write lock, XOR, and removal if that gives zero.
#[derive(Default)]
pub struct DashRemoveIf(DashMap<u64, Tree, Hasher>);

impl Peer for DashRemoveIf {
    const NAME: &'static str = "dashmap (remove_if_mut)";
    type Id = u64;

    fn new(_in_flight: usize) -> Self {
        Self::default()
    }

    #[inline]
    fn begin(&self, _at: usize, (key, xor, owner): New) -> u64 {
        assert!(self.0.insert(key, Tree { xor, owner }).is_none());
        key
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        let gone = self.0.remove_if_mut(&id, |_, tree| {
            tree.xor ^= edge;
            tree.xor == 0
        });
        gone.map(|(_, tree)| finished(tree.owner)).is_some()
    }

    fn slots(&self) -> Option<usize> {
        Some(self.0.capacity())
    }
}

impl Touch for DashRemoveIf {
    /// A store in the value, under the shard's lock; no clock is read.
    #[inline]
    fn touch(&self, id: u64) {
        let mut tree = self.0.get_mut(&id).expect("in flight");
        tree.owner = tree.owner.wrapping_add(1);
    }
}

/// Each ack is an `entry`: one find under the shard's write lock, XOR, and `OccupiedEntry::remove` if that gives zero.
#[derive(Default)]
pub struct DashEntry(DashRemoveIf);

impl Peer for DashEntry {
    const NAME: &'static str = "dashmap (entry)";
    type Id = u64;

    fn new(_in_flight: usize) -> Self {
        Self::default()
    }

    #[inline]
    fn begin(&self, at: usize, tree: New) -> u64 {
        self.0.begin(at, tree)
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        let Entry::Occupied(mut tree) = self.0 .0.entry(id) else {
            panic!("not in flight");
        };
        tree.get_mut().xor ^= edge;
        if tree.get().xor == 0 {
            finished(tree.remove().owner);
            return true;
        }
        false
    }

    fn slots(&self) -> Option<usize> {
        self.0.slots()
    }
}
