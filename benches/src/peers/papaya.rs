//! `papaya`: values are shared, so the XOR is an atomic in the value, and who makes it zero removes the key.

use super::{finished, Batch, Hasher, New, Peer};
use papaya::{HashMap, HashMapRef, LocalGuard};
use std::sync::atomic::{AtomicU64, Ordering};

/// A pinned reference per operation, or per batch. The value is the XOR and the owner.
#[derive(Default)]
pub struct Papaya(HashMap<u64, (AtomicU64, u64), Hasher>);

type Pinned<'a> = HashMapRef<'a, u64, (AtomicU64, u64), Hasher, LocalGuard<'a>>;

#[inline]
fn begin(map: &Pinned<'_>, (key, xor, owner): New) {
    assert!(map.insert(key, (AtomicU64::new(xor), owner)).is_none());
}

#[inline]
fn ack(map: &Pinned<'_>, id: u64, edge: u64) -> bool {
    let (xor, owner) = map.get(&id).expect("in flight");
    if xor.fetch_xor(edge, Ordering::AcqRel) ^ edge != 0 {
        return false;
    }
    map.remove(&id);
    finished(*owner);
    true
}

impl Peer for Papaya {
    const NAME: &'static str = "papaya";
    type Id = u64;

    fn new(_in_flight: usize) -> Self {
        Self::default()
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
    fn begin_many(&self, batch: &mut Batch<u64>) {
        let map = self.0.pin();
        for (id, &tree) in batch.ids.iter_mut().zip(&batch.trees) {
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
