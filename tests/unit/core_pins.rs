//! Unit tests of `src/core/pins.rs`.

use super::*;
use std::time::{Duration, Instant};

/// How many seats have a handle, while no thread pins.
fn seats(pins: &Pins) -> usize {
    // SAFETY: no thread changes a seat.
    pins.seats.iter().filter(|seat| unsafe { &*seat.0.get() }.is_some()).count()
}

#[test]
fn the_seats_of_threads_that_have_ended_are_emptied() {
    let pins = Pins::new();
    let _mine = pins.pin();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| drop(pins.pin()));
        }
    });
    // Threads of other tests may have the indices for a while.
    let deadline = Instant::now() + Duration::from_secs(30);
    while seats(&pins) > 1 {
        assert!(Instant::now() < deadline, "a seat stays");
        pins.clear_seats();
        std::thread::yield_now();
    }
}
