//! Unit tests of `src/core/engine/cursor.rs`.

use super::*;
use crate::core::value::Owned;

/// The thread gives the block back in which it has found that, and goes to another chunk.
#[test]
fn no_slot_is_taken_in_a_chunk_off_the_ring() {
    let slots = Slots::<Owned<u32, ()>>::new(1);
    slots.ensure(0).expect("memory");
    let cursor = Cursor::default();
    cursor.enter(0, 0);
    let taken = cursor.advance(&slots, cursor.cell(0), |_| false, |_| ());
    assert!(taken.is_none());
    assert!(slots.own(0).is_some(), "it has been given back");
}
