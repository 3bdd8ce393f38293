//! `scc::HashMap`: each ack is a `remove_if`, one look-up for the XOR and the removal together.

use super::{finished, Hasher, New, Peer};

/// The synchronous operations of its `HashMap`, from keys to the XOR of the edges outstanding and
/// the owner.
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
