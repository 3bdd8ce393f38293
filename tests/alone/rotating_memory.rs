//! D1: a `RotatingMap` that holds no more than it ever did allocates nothing. It counts
//! what its thread allocates.

use crate::heap;

use expiry::RotatingMap;

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

pub fn d01_nothing_is_allocated_after_the_warm_up_and_shrinking_gives_it_back() {
    let before = heap::held();
    let mut map = RotatingMap::new();
    for round in 0..20 {
        turn(&mut map, round);
    }
    let before_calls = heap::calls();
    let mut sum = 0_u64;
    for round in 20..100 {
        sum = sum.wrapping_add(turn(&mut map, round));
    }
    assert_eq!(heap::calls(), before_calls, "allocated");
    assert!(sum > 0);
    let held = heap::held() - before;
    for _ in 0..3 {
        map.rotate();
    }
    assert!(map.is_empty());
    assert_eq!(heap::held() - before, held);
    map.shrink_to_fit();
    assert!(heap::held() - before < 200);
}
