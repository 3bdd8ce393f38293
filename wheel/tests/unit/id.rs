//! Unit tests of `src/id.rs`.

use super::*;
use std::collections::HashSet;

#[test]
fn serials_are_unique_across_sources_and_blocks() {
    let mut sources = [Serials::new(), Serials::new(), Serials::new()];
    let mut seen = HashSet::new();
    for at in 0..3 * (1 << BLOCK_BITS) {
        let serial = sources[at % 2 + at / (1 << BLOCK_BITS) % 2].take();
        assert!(seen.insert(serial), "{serial} twice");
    }
}

#[test]
fn a_block_is_used_up_before_the_next() {
    let mut source = Serials::new();
    for _ in 0..3 {
        let first = source.take().get();
        assert!((1..1 << BLOCK_BITS).all(|n| source.take().get() == first + n));
    }
}

#[test]
fn an_id_is_sixteen_bytes_and_has_room_for_none() {
    assert_eq!(std::mem::size_of::<TimerId>(), 16);
    assert_eq!(std::mem::size_of::<Option<TimerId>>(), 16);
}
