//! The floor: four `fetch_xor` for each tree on a plain array of 32-byte slots. It finds its slot by the position in
//! the window; it keeps no owner, no key and no deadline.

use super::{New, Peer, Proof};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(align(32))]
#[derive(Default)]
struct Slot {
    word: AtomicU64,
}

fn slots(in_flight: usize) -> Box<[Slot]> {
    (0..in_flight).map(|_| Slot::default()).collect()
}

/// The bare floor: of what was there before, only whether it equals the operand is asked, which x86 answers by a flag of
/// a single `lock xor`.
pub struct Floor(Box<[Slot]>);

impl Peer for Floor {
    const NAME: &'static str = "floor (fetch_xor on an array)";
    const PROOF: Proof = Proof::Completions;
    type Id = usize;
    type Scratch = ();

    fn new(in_flight: usize) -> Self {
        Floor(slots(in_flight))
    }

    fn blank() -> usize {
        0
    }

    #[inline]
    fn begin(&self, at: usize, (_, xor, _): New) -> usize {
        self.0[at].word.fetch_xor(xor, Ordering::AcqRel);
        at
    }

    #[inline]
    fn ack(&self, id: usize, edge: u64) -> bool {
        self.0[id].word.fetch_xor(edge, Ordering::AcqRel) == edge
    }

    fn slots(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The floor of who needs the word itself, to compare it with something that differs from tree to tree: on x86 a load
/// and a compare-and-swap.
pub struct FloorWord(Box<[Slot]>);

impl Peer for FloorWord {
    const NAME: &'static str = "floor (fetch_xor, its word used)";
    const PROOF: Proof = Proof::Completions;
    type Id = usize;
    type Scratch = ();

    fn new(in_flight: usize) -> Self {
        FloorWord(slots(in_flight))
    }

    fn blank() -> usize {
        0
    }

    #[inline]
    fn begin(&self, at: usize, (_, xor, _): New) -> usize {
        black_box(self.0[at].word.fetch_xor(xor, Ordering::AcqRel));
        at
    }

    #[inline]
    fn ack(&self, id: usize, edge: u64) -> bool {
        black_box(self.0[id].word.fetch_xor(edge, Ordering::AcqRel)) == edge
    }

    fn slots(&self) -> Option<usize> {
        Some(self.0.len())
    }
}
