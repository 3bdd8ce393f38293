//! A `BinaryHeap` of deadlines over a slab of values, the form found in most servers: cancelling and moving leave the
//! old entry in the heap, and a generation in the slab tells that it is dead when it comes up.

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

/// Dead entries stay until their deadlines.
pub struct Heap {
    heap: BinaryHeap<Entry>,
    places: Vec<Place>,
    free: u32,
    live: usize,
}

impl Heap {
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

impl Timers for Heap {
    const NAME: &'static str = "BinaryHeap";
    type Id = (u32, u32);

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        f(Heap { heap: BinaryHeap::new(), places: Vec::new(), free: END, live: 0 })
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // tens of millions
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
    }

    #[inline]
    fn cancel(&mut self, id: (u32, u32)) -> bool {
        let there = self.places[id.0 as usize].generation == id.1;
        if there {
            self.vacate(id.0);
        }
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

/// The same, and the dead are thrown out whenever they are more than the living: O(1) more a cancel, amortised.
pub struct CompactingHeap(Heap);

impl CompactingHeap {
    #[inline]
    fn compact(&mut self) {
        if self.0.heap.len() > 2 * self.0.live + 64 {
            self.throw_out();
        }
    }

    #[cold]
    fn throw_out(&mut self) {
        let Heap { heap, places, .. } = &mut self.0;
        heap.retain(|Reverse((_, place, generation))| {
            places[*place as usize].generation == *generation
        });
    }
}

impl Timers for CompactingHeap {
    const NAME: &'static str = "BinaryHeap, compacting";
    type Id = (u32, u32);

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        Heap::with(|heap| f(CompactingHeap(heap)))
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> (u32, u32) {
        self.0.schedule(deadline, value)
    }

    #[inline]
    fn reschedule(&mut self, id: &mut (u32, u32), deadline: u64, value: u64) {
        self.0.reschedule(id, deadline, value);
        self.compact();
    }

    #[inline]
    fn cancel(&mut self, id: (u32, u32)) -> bool {
        let there = self.0.cancel(id);
        self.compact();
        there
    }

    #[inline]
    fn advance(&mut self, now: u64, fired: impl FnMut(u64)) {
        self.0.advance(now, fired);
    }
}
