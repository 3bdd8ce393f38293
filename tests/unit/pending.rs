use super::super::ticket::{Place, Seal, LAST_ROUND};
use super::*;
use crate::core::lease::GENERATION_BITS;
use crate::{ManualClock, PendingTable};
use rand::rngs::SmallRng;
use rand::SeedableRng;

const LONG: Duration = Duration::from_secs(3600);
const LAST_GENERATION: u32 = (1 << GENERATION_BITS) - 1;

fn table() -> PendingTable<u64> {
    PendingTable::builder().shards(1).clock(ManualClock::new()).build_manual().unwrap()
}

#[test]
fn a_seal_opens_what_it_has_sealed() {
    for seed in 0..100 {
        let seal = Seal::new(&mut SmallRng::seed_from_u64(seed));
        let mut sealed = std::collections::HashSet::new();
        for id in [0, 1, 2, u32::MAX] {
            for generation in [1, 2, LAST_GENERATION] {
                for round in [0, 1, LAST_ROUND] {
                    let place = Place { id, generation, round };
                    let ticket = seal.seal(place);
                    assert_eq!(seal.open(ticket), place);
                    assert!(sealed.insert(ticket));
                }
            }
        }
        // Neighbours are not next to each other.
        let [one, next] =
            [0, 1].map(|id| u64::from(seal.seal(Place { id, generation: 1, round: 0 })));
        assert!((one ^ next).count_ones() > 8, "{one:x} {next:x}");
    }
}

/// A slot's generations come round, and its old tickets name nothing.
#[test]
fn a_stale_ticket_never_reaches_the_next_round() {
    let table = table();
    let first = table.insert(1, LONG).unwrap();
    assert_eq!(table.inner.seal.open(first).generation, 1);
    assert_eq!(table.take(first), Some(1));
    table.inner.age(LAST_GENERATION - 1, 0);
    let mut met = 0;
    // Each slot of the chunk has its last generation, and then the first one of the next round.
    for value in 0..3 * crate::core::params::CHUNK as u64 {
        let ticket = table.insert(value, LONG).unwrap();
        let place = table.inner.seal.open(ticket);
        if (place.id, place.generation) == (table.inner.seal.open(first).id, 1) {
            assert_eq!(place.round, 1);
            assert!(!table.contains(first) && table.take(first).is_none());
            met += 1;
        }
        assert_eq!(table.take(ticket), Some(value));
    }
    assert_eq!(met, 1);
}

#[test]
fn a_slot_that_is_worn_out_is_retired() {
    let table = table();
    let first = table.insert(0, LONG).unwrap();
    table.inner.age(LAST_GENERATION - 1, LAST_ROUND);
    let chunk = crate::core::params::CHUNK as u64;
    let mut worn = 0;
    for value in 0..3 * chunk {
        let ticket = table.insert(value, LONG).unwrap();
        let place = table.inner.seal.open(ticket);
        if u64::from(place.id) < chunk {
            assert_eq!((place.generation, place.round), (LAST_GENERATION, LAST_ROUND));
            worn += 1;
        }
        assert_eq!(table.take(ticket), Some(value));
    }
    // All but the first one's, each once. They count as neither live nor refused.
    assert_eq!(worn, chunk - 1);
    assert_eq!((table.len(), table.metrics().refused), (1, 0));
    assert_eq!(table.take(first), Some(0));
}

/// Where memory goes back and the generations start over, a new round begins.
#[test]
fn rounds_outlive_the_memory_of_slots() {
    let table = table();
    let ticket = table.insert(1, LONG).unwrap();
    let place = table.inner.seal.open(ticket);
    assert_eq!(table.take(ticket), Some(1));
    for (last, round) in [(LAST_GENERATION - 9, 1), (5, 1)] {
        let slots = &table.inner.engine.slots;
        let spot = slots.spot(place.id).unwrap();
        spot.slot.set_lease(Lease::free(last));
        // As the driver does; the table's own thread owns a block of this chunk.
        slots.leave(place.id / 16 * 16);
        assert!(matches!(slots.release(0, || ()), crate::core::slots::Released::Yes));
        assert_eq!(spot.note.load(Ordering::Relaxed), round);
        assert_eq!(spot.slot.lease().0, 0);
    }
}
