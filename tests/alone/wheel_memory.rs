//! A `TimerWheel` that has been warmed up allocates nothing. It counts the allocations of the
//! process.

use crate::heap;

use expiry::wheel::{Geometry, TimerId, TimerWheel};

/// How often `work` allocates.
fn allocations(work: impl FnOnce()) -> usize {
    let before = heap::calls();
    work();
    heap::calls() - before
}

fn churn(wheel: &mut TimerWheel<u64>, ids: &mut [TimerId], rounds: u64) -> usize {
    let mut fired = 0;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..rounds {
        for id in ids.iter_mut() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let deadline = wheel.now() + random % (1 << (random >> 58));
            if wheel.reschedule(*id, deadline).is_err() {
                *id = wheel.schedule(deadline, round);
            } else if random % 5 == 0 {
                wheel.cancel(*id);
                *id = wheel.schedule(deadline, round);
            }
        }
        let now = wheel.now() + (1 << 24);
        fired += wheel.advance(now, |wheel, next| {
            if next.value % 2 == 0 {
                let later = now + 5_000_000;
                wheel.rearm(next, later);
            }
        });
        let progress = wheel.advance_limited(now + (1 << 30), 100, |_, _| ());
        fired += progress.fired;
    }
    fired
}

pub fn nothing_is_allocated_after_warm_up() {
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) > 0);
    let mut wheel = TimerWheel::new(Geometry::NANOS_1MS, 0);
    let mut ids: Vec<TimerId> = (0..1000).map(|n| wheel.schedule(n, n)).collect();
    // CapacityReady for all, and for the places of those that are rearmed under a new id's nose.
    wheel.reserve(2000);
    let mut fired = 0;
    let count = allocations(|| fired = churn(&mut wheel, &mut ids, 300));
    assert_eq!(count, 0, "allocations");
    assert!(fired > 10_000, "{fired}");
}

pub fn reserved_is_reserved() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    wheel.reserve(10_000);
    let count = allocations(|| {
        for n in 0..10_000 {
            wheel.schedule(n, n);
        }
        // One is out, its place kept for it, and another takes a new one.
        let fired = wheel.pop(0);
        wheel.schedule(7, 7);
        if let Some(fired) = fired {
            wheel.rearm(fired, 8);
        }
    });
    assert_eq!(count, 0, "allocations");
}
