//! Maps without expiry, and what is not a store: the floor, and the harness alone.

use super::{finished, Hasher, New, Peer, Proof, Touch};
use dashmap::mapref::entry::Entry;
use dashmap::DashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// XOR of the edges outstanding, and the owner.
#[derive(Clone, Copy)]
struct Tree {
    xor: u64,
    owner: u64,
}

/// `dashmap`, in both forms that look a key up once, under the shard's write lock, for the XOR and,
/// if that gives zero, the removal.
#[derive(Default)]
pub struct Dash<const BY_ENTRY: bool>(DashMap<u64, Tree, Hasher>);

/// Each ack is a `remove_if_mut`.
pub type DashRemoveIf = Dash<false>;

/// Each ack is an `entry`, and an `OccupiedEntry::remove`.
pub type DashEntry = Dash<true>;

impl<const BY_ENTRY: bool> Peer for Dash<BY_ENTRY> {
    const NAME: &'static str = if BY_ENTRY { "dashmap (entry)" } else { "dashmap (remove_if_mut)" };
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
        let acked = |tree: &mut Tree| {
            tree.xor ^= edge;
            tree.xor == 0
        };
        let gone = if BY_ENTRY {
            let Entry::Occupied(mut tree) = self.0.entry(id) else {
                panic!("not in flight");
            };
            acked(tree.get_mut()).then(|| tree.remove())
        } else {
            self.0.remove_if_mut(&id, |_, tree| acked(tree)).map(|(_, tree)| tree)
        };
        gone.map(|tree| finished(tree.owner)).is_some()
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

/// Values are shared, so the XOR is an atomic in the value, beside the owner, and the ack that
/// makes it zero removes the key. Each operation pins.
#[derive(Default)]
pub struct Papaya(papaya::HashMap<u64, (AtomicU64, u64), Hasher>);

impl Peer for Papaya {
    const NAME: &'static str = "papaya";
    type Id = u64;

    fn new(_in_flight: usize) -> Self {
        Self::default()
    }

    #[inline]
    fn begin(&self, _at: usize, (key, xor, owner): New) -> u64 {
        assert!(self.0.pin().insert(key, (AtomicU64::new(xor), owner)).is_none());
        key
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        let map = self.0.pin();
        let (xor, owner) = map.get(&id).expect("in flight");
        if xor.fetch_xor(edge, Ordering::AcqRel) ^ edge != 0 {
            return false;
        }
        map.remove(&id);
        finished(*owner);
        true
    }
}

/// Each ack is a `remove_if_sync`: one look-up for the XOR and the removal. Values are XOR and
/// owner.
#[derive(Default)]
pub struct Scc(scc::HashMap<u64, (u64, u64), Hasher>);

impl Peer for Scc {
    const NAME: &'static str = "scc";
    type Id = u64;

    fn new(_in_flight: usize) -> Self {
        Self::default()
    }

    #[inline]
    fn begin(&self, _at: usize, (key, xor, owner): New) -> u64 {
        assert!(self.0.insert_sync(key, (xor, owner)).is_ok());
        key
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        let gone = self.0.remove_if_sync(&id, |(xor, _)| {
            *xor ^= edge;
            *xor == 0
        });
        gone.map(|(_, (_, owner))| finished(owner)).is_some()
    }

    fn slots(&self) -> Option<usize> {
        Some(self.0.capacity())
    }
}

#[repr(align(32))]
#[derive(Default)]
struct Slot(AtomicU64);

/// Four `fetch_xor` for each tree on a plain array of 32-byte slots. It finds its slot by the
/// position in the window; it keeps no owner, no key and no deadline. It uses the old value only to
/// compare it with the operand, which x86 answers by a flag of a single `lock xor`.
pub struct Floor(Box<[Slot]>);

impl Peer for Floor {
    const NAME: &'static str = "floor (fetch_xor on an array)";
    const PROOF: Proof = Proof::Completions;
    type Id = u64;

    fn new(in_flight: usize) -> Self {
        Floor((0..in_flight).map(|_| Slot::default()).collect())
    }

    #[inline]
    fn begin(&self, at: usize, (_, xor, _): New) -> u64 {
        self.0[at].0.fetch_xor(xor, Ordering::AcqRel);
        at as u64
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        self.0[id as usize].0.fetch_xor(edge, Ordering::AcqRel) == edge
    }

    fn slots(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Does nothing with what it is given but look at it: what the harness costs on its own.
pub struct Nothing;

impl Peer for Nothing {
    const NAME: &'static str = "harness alone";
    const PROOF: Proof = Proof::None;
    type Id = u64;

    fn new(_in_flight: usize) -> Self {
        Nothing
    }

    #[inline]
    fn begin(&self, _at: usize, tree: New) -> u64 {
        black_box(tree).0
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        black_box(id ^ edge) == 0
    }
}

impl Touch for Nothing {
    #[inline]
    fn touch(&self, id: u64) {
        black_box(id);
    }
}
