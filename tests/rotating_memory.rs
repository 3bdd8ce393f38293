//! D1: a `RotatingMap` that holds no more than it ever did allocates nothing. Alone in its binary, because it counts
//! what its thread allocates.

use expiry::RotatingMap;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

// Of this thread: the test harness allocates on its own when it pleases.
thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

fn calls() -> usize {
    CALLS.with(Cell::get)
}

fn bytes() -> isize {
    BYTES.with(Cell::get)
}

struct Counting;

// SAFETY: hands everything to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        BYTES.with(|bytes| bytes.set(bytes.get() + layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.with(|bytes| bytes.set(bytes.get() - layout.size() as isize));
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
    let before = bytes();
    let mut map = RotatingMap::new();
    for round in 0..20 {
        turn(&mut map, round);
    }
    let before_calls = calls();
    let mut sum = 0_u64;
    for round in 20..100 {
        sum = sum.wrapping_add(turn(&mut map, round));
    }
    assert_eq!(calls(), before_calls, "allocated");
    assert!(sum > 0);
    let held = bytes() - before;
    for _ in 0..3 {
        map.rotate();
    }
    assert!(map.is_empty());
    assert_eq!(bytes() - before, held);
    map.shrink_to_fit();
    assert!(bytes() - before < 200);
    // Reserved is allocated.
    map.reserve(5000);
    let before_calls = calls();
    for n in 0..5000 {
        map.put(n, n);
    }
    assert_eq!(calls(), before_calls, "allocated");
}
