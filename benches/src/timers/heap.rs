//! A `BinaryHeap` of deadlines over a slab of values, the form found in most servers. Cancelling
//! and moving leave the old entry in the heap. A generation in the slab shows that it is dead when
//! it comes up.

use super::Timers;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const END: u32 = u32::MAX;

struct Place {
    value: u64,
    /// Goes up when its timer fires, moves or is cancelled. Odd while there is one.
    generation: u32,
    next_free: u32,
}

/// Deadline, place, generation: 16 bytes.
type Entry = Reverse<(u64, u32, u32)>;

/// Dead entries stay until their deadlines; or, if it compacts, are thrown out whenever they are
/// more than the living: O(1) more a cancel, amortised.
pub struct Slab<const COMPACTS: bool> {
    heap: BinaryHeap<Entry>,
    places: Vec<Place>,
    free: u32,
    live: usize,
}

pub type Heap = Slab<false>;

pub type CompactingHeap = Slab<true>;

impl<const COMPACTS: bool> Slab<COMPACTS> {
    #[inline]
    fn compact(&mut self) {
        if COMPACTS && self.heap.len() > 2 * self.live + 64 {
            self.throw_out();
        }
    }

    #[cold]
    fn throw_out(&mut self) {
        let places = &self.places;
        self.heap.retain(|Reverse((_, place, generation))| {
            places[*place as usize].generation == *generation
        });
    }

    #[inline]
    fn push(&mut self, deadline: u64, place: u32, generation: u32) -> (u32, u32) {
        self.heap.push(Reverse((deadline, place, generation)));
        (place, generation)
    }

    #[inline]
    fn vacate(&mut self, at: u32) -> u64 {
        let place = &mut self.places[at as usize];
        place.generation = place.generation.wrapping_add(1);
        place.next_free = self.free;
        self.free = at;
        self.live -= 1;
        place.value
    }
}

impl<const COMPACTS: bool> Timers for Slab<COMPACTS> {
    const NAME: &'static str = if COMPACTS { "BinaryHeap, compacting" } else { "BinaryHeap" };
    type Id = (u32, u32);

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        f(Slab { heap: BinaryHeap::new(), places: Vec::new(), free: END, live: 0 })
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> (u32, u32) {
        self.live += 1;
        let at = self.free;
        if at == END {
            let at = self.places.len() as u32;
            self.places.push(Place { value, generation: 1, next_free: END });
            return self.push(deadline, at, 1);
        }
        let place = &mut self.places[at as usize];
        self.free = place.next_free;
        place.value = value;
        place.generation = place.generation.wrapping_add(1);
        let generation = place.generation;
        self.push(deadline, at, generation)
    }

    #[inline]
    fn reschedule(&mut self, id: &mut (u32, u32), deadline: u64, _value: u64) {
        let place = &mut self.places[id.0 as usize];
        assert_eq!(place.generation, id.1);
        place.generation = place.generation.wrapping_add(2);
        let generation = place.generation;
        *id = self.push(deadline, id.0, generation);
        self.compact();
    }

    #[inline]
    fn cancel(&mut self, id: (u32, u32)) -> bool {
        let there = self.places[id.0 as usize].generation == id.1;
        if there {
            self.vacate(id.0);
        }
        self.compact();
        there
    }

    #[inline]
    fn advance(&mut self, now: u64, mut fired: impl FnMut(u64)) {
        while let Some(&Reverse((deadline, place, generation))) = self.heap.peek() {
            if deadline > now {
                break;
            }
            self.heap.pop();
            if self.places[place as usize].generation == generation {
                fired(self.vacate(place));
            }
        }
    }
}
