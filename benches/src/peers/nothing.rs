//! Nobody: what the harness costs on its own.

use super::{New, Peer, Proof};
use std::hint::black_box;

/// Does nothing with what it is given but look at it.
pub struct Nothing;

impl Peer for Nothing {
    const NAME: &'static str = "harness alone";
    const PROOF: Proof = Proof::None;
    type Id = u64;
    type Scratch = ();

    fn new(_in_flight: usize) -> Self {
        Nothing
    }

    fn blank() -> u64 {
        0
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

impl super::Touch for Nothing {
    #[inline]
    fn touch(&self, id: u64) {
        black_box(id);
    }
}
