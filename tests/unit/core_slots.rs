//! Unit tests of `src/core/slots.rs`.

use super::*;
use crate::core::lease::Lease;
use crate::core::slot::fields;
use crate::sync::AtomicU64;
use std::collections::HashSet;

struct Plain {
    word: AtomicU64,
}

fields!(Plain, AtomicU32 { word: AtomicU64::new(0) });

#[test]
fn every_chunk_has_a_place_of_its_own() {
    for shards in [1, 2, 8] {
        let slots = Slots::<Plain>::new(shards);
        let mut places = HashSet::new();
        let mut last = (0, 0);
        for chunk in 0..2000 {
            let place = slots.place(chunk);
            assert!(places.insert(place));
            assert!(place.1 < shards << place.0);
            assert!(place == (last.0, last.1 + usize::from(chunk > 0)) || place == (last.0 + 1, 0));
            last = place;
        }
    }
}

#[test]
fn a_released_chunk_continues_its_generations() {
    let slots = Slots::<Plain>::new(1);
    slots.ensure(0).unwrap();
    let id = 5;
    let slot = slots.slot(id).unwrap();
    let free = slots.own(0).unwrap();
    assert_eq!(free.slots, (1 << BLOCK) - 1);
    let mut latest = 0;
    for _ in 0..9 {
        latest = Slots::<Plain>::occupancy(slot, free.base);
        slot.set_lease(Lease::free(latest));
    }
    assert_eq!(latest, 9);
    assert!(slots.own(0).is_none(), "one owner");
    assert_eq!(slots.release(0, || ()), Released::Owned);
    slots.leave(0);
    assert_eq!(slots.release(0, || ()), Released::Yes);
    assert_eq!(slot.lease().0, 0, "the page was let go");
    let free = slots.own(0).unwrap();
    assert_eq!(Slots::<Plain>::occupancy(slot, free.base), 10);
    slot.set_lease(Lease::new(State::LiveIssued, 10, 0));
    slots.leave(0);
    assert_eq!(slots.release(0, || ()), Released::InUse);
    // What the failed release owned is given back.
    assert_eq!(slots.own(0).unwrap().slots, (1 << BLOCK) - 1 - (1 << id));
}
