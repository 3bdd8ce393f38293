//! Unit tests of `src/places.rs`.

use super::*;
use std::collections::BTreeSet;

#[test]
fn lowest_first_and_the_last_one_in_front() {
    let mut places = Places::new();
    places.grow(1);
    places.grow(300_000);
    assert_eq!(places.take(), None);
    for place in [299_999, 64, 5, 4096, 70_000, 63] {
        places.give(place);
    }
    let order: Vec<u32> = std::iter::from_fn(|| places.take()).collect();
    assert_eq!(order, [63, 5, 64, 4096, 70_000, 299_999]);
}

/// The last word of all, which is not whole.
#[test]
fn a_bound_within_a_word() {
    let mut places = Places::new();
    places.grow(64);
    places.add(64, 69);
    let order: Vec<u32> = std::iter::from_fn(|| places.take()).collect();
    assert_eq!(order, [65, 66, 67, 68]);
}

#[test]
fn as_a_set() {
    let mut places = Places::new();
    let (mut free, mut bound) = (BTreeSet::new(), 0);
    let mut random = 88_172_645_463_325_252_u64;
    for step in 0..30_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        match random % 5 {
            0 | 1 if bound > 0 => {
                let place = (random >> 8) as u32 % bound;
                if free.insert(place) {
                    places.give(place);
                }
            }
            2 => {
                let taken = places.take();
                assert_eq!(taken.is_some(), !free.is_empty());
                assert!(taken.map_or(true, |place| free.remove(&place)));
            }
            3 if step % 7 == 0 => {
                bound += (random >> 8) as u32 % 20;
                places.grow(bound as usize);
            }
            _ => {}
        }
        if step % 100 == 0 {
            let found = places.free();
            assert_eq!(found.len(), free.len());
            assert!(found.iter().all(|place| free.contains(place)));
        }
    }
    assert!(bound > 5000);
    places.restart(77);
    assert_eq!((places.take(), places.levels[0].len()), (None, 2));
}
