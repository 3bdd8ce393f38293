//! Unit tests of `src/core/engine/cursor.rs`.

use super::*;
use crate::core::value::Owned;

/// Neither the bucket that the thread owns, nor one that it comes to.
#[test]
fn no_slot_is_taken_in_a_stale_bucket() {
    let slots = Slots::<Owned<u32, ()>>::new(1);
    slots.ensure(0).expect("memory");
    let cursor = Cursor::default();
    cursor.enter(0, 0);
    let cell = cursor.cell(0);
    let take = |fresh: usize| {
        let is_stale = |bucket| (bucket as usize) < fresh * BUCKET;
        cursor.advance(&slots, cell, is_stale, |_| true, |_| ()).map(|taken| taken.id as usize)
    };
    assert_eq!(take(2), Some(2 * BUCKET));
    assert_eq!(take(2), Some(2 * BUCKET + 1));
    assert_eq!(take(5), Some(5 * BUCKET));
    assert_eq!(take(usize::MAX / BUCKET), None);
    assert!(slots.own(0).is_some(), "it has been given back");
}

/// The thread gives the bucket back in which it has found that, and goes to another chunk.
#[test]
fn no_slot_is_taken_in_a_chunk_off_the_ring() {
    let slots = Slots::<Owned<u32, ()>>::new(1);
    slots.ensure(0).expect("memory");
    let cursor = Cursor::default();
    cursor.enter(0, 0);
    let taken = cursor.advance(&slots, cursor.cell(0), |_| false, |_| false, |_| ());
    assert!(taken.is_none());
    assert!(slots.own(0).is_some(), "it has been given back");
}
