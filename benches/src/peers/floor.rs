//! What is not a store: the floor, and the harness alone.

use super::{New, Peer, Proof, Touch};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(align(32))]
#[derive(Default)]
struct Slot(AtomicU64);

/// Four `fetch_xor` for each tree on a plain array of 32-byte slots. It finds its slot by the
/// position in the window; it keeps no owner, no key and no deadline. Of what was there before,
/// only whether it equals the operand is asked, which x86 answers by a flag of a single `lock xor`.
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
