//! `papaya`: values are shared, so the XOR is an atomic in the value, and who makes it zero removes the key.

use super::{finished, Hasher, New, Peer};
use crate::window::GROUP;
use papaya::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

struct Tree {
    xor: AtomicU64,
    owner: u64,
}

/// A pinned reference per operation, or per batch.
pub struct Papaya(HashMap<u64, Tree, Hasher>);

type Pinned<'a> = papaya::HashMapRef<'a, u64, Tree, Hasher, papaya::LocalGuard<'a>>;

#[inline]
fn begin(map: &Pinned<'_>, (key, xor, owner): New) {
    let xor = AtomicU64::new(xor);
    assert!(map.insert(key, Tree { xor, owner }).is_none());
}

#[inline]
fn ack(map: &Pinned<'_>, id: u64, edge: u64) -> bool {
    let tree = map.get(&id).expect("in flight");
    if tree.xor.fetch_xor(edge, Ordering::AcqRel) ^ edge != 0 {
        return false;
    }
    map.remove(&id);
    finished(tree.owner);
    true
}

impl Peer for Papaya {
    const NAME: &'static str = "papaya";
    type Id = u64;
    type Scratch = ();

    fn new(_in_flight: usize) -> Self {
        Papaya(HashMap::default())
    }

    fn blank() -> u64 {
        0
    }

    #[inline]
    fn begin(&self, _at: usize, tree: New) -> u64 {
        begin(&self.0.pin(), tree);
        tree.0
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        ack(&self.0.pin(), id, edge)
    }

    #[inline]
    fn begin_many(
        &self,
        (): &mut (),
        _at: &[usize; GROUP],
        trees: &[New; GROUP],
        ids: &mut [u64; GROUP],
    ) {
        let map = self.0.pin();
        for (id, &tree) in ids.iter_mut().zip(trees) {
            begin(&map, tree);
            *id = tree.0;
        }
    }

    #[inline]
    fn ack_many(&self, acks: &[(u64, u64)]) -> usize {
        let map = self.0.pin();
        acks.iter().map(|&(id, edge)| usize::from(ack(&map, id, edge))).sum()
    }
}
