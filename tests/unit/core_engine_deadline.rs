//! Unit tests of `src/core/engine/deadline.rs`.

use super::*;

#[test]
fn a_round_that_ends_late_does_not_take_time_back() {
    let deadlines =
        Deadlines::new(Source::Default(CoarseClock::new()), Precision::Interval(10), false);
    let now = deadlines.now();
    deadlines.end_round(now + 1000);
    let caught_up = deadlines.caught_up();
    // The round of a thread that has slept since it read the shards.
    deadlines.end_round(now + 500);
    assert_eq!(deadlines.caught_up(), caught_up);
}
