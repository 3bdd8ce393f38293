//! D1: a `RotatingMap` that holds no more than it ever did allocates nothing. Alone in its binary, because it counts
//! what the process allocates.

use expiry::RotatingMap;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: hands everything to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIVE: u64 = 30_000;

/// A third of them dies with each rotation, and as many come.
fn turn(map: &mut RotatingMap<u64, u64>, round: u64) -> u64 {
    let mut sum = 0;
    for n in round * LIVE / 3..(round + 1) * LIVE / 3 {
        map.put(n, n);
        map.touch(&(n / 2 + round * LIVE / 6));
        map.remove(&n.wrapping_sub(7).wrapping_mul(3));
    }
    map.rotate_with(|_, value| sum += value);
    sum
}

#[test]
fn d01_nothing_is_allocated_after_the_warm_up_and_shrinking_gives_it_back() {
    let before = BYTES.load(Ordering::Relaxed);
    let mut map = RotatingMap::new();
    for round in 0..20 {
        turn(&mut map, round);
    }
    let calls = CALLS.load(Ordering::Relaxed);
    let mut sum = 0_u64;
    for round in 20..100 {
        sum = sum.wrapping_add(turn(&mut map, round));
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), calls, "allocated");
    assert!(sum > 0);
    let held = BYTES.load(Ordering::Relaxed) - before;
    for _ in 0..3 {
        map.rotate();
    }
    assert!(map.is_empty());
    assert_eq!(BYTES.load(Ordering::Relaxed) - before, held);
    map.shrink_to_fit();
    assert!(BYTES.load(Ordering::Relaxed) - before < 200);
    // Reserved is allocated.
    map.reserve(5000);
    let calls = CALLS.load(Ordering::Relaxed);
    for n in 0..5000 {
        map.put(n, n);
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), calls, "allocated");
}
