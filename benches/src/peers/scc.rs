//! `scc::HashMap`: each ack is a `remove_if`, one look-up for the XOR and the removal together.

use super::{finished, Hasher, New, Peer};
use scc::HashMap;

#[derive(Clone, Copy)]
struct Tree {
    xor: u64,
    owner: u64,
}

/// The synchronous operations of its `HashMap`.
pub struct Scc(HashMap<u64, Tree, Hasher>);

impl Peer for Scc {
    const NAME: &'static str = "scc";
    type Id = u64;
    type Scratch = ();

    fn new(_in_flight: usize) -> Self {
        Scc(HashMap::default())
    }

    fn blank() -> u64 {
        0
    }

    #[inline]
    fn begin(&self, _at: usize, (key, xor, owner): New) -> u64 {
        assert!(self.0.insert_sync(key, Tree { xor, owner }).is_ok());
        key
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        let gone = self.0.remove_if_sync(&id, |tree| {
            tree.xor ^= edge;
            tree.xor == 0
        });
        match gone {
            Some((_, tree)) => {
                finished(tree.owner);
                true
            }
            None => false,
        }
    }

    fn slots(&self) -> Option<usize> {
        Some(self.0.capacity())
    }
}
