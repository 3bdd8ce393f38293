//! Unit tests of `src/core/engine/deadline.rs`.

use super::*;
use crate::core::lease::State;

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

#[test]
fn a_lease_can_have_the_furthest_deadline() {
    let deadlines =
        Deadlines::new(Source::Default(CoarseClock::new()), Precision::Interval(1), false);
    // Near the tick for which the lease's bits would read as never.
    for tick in QUARTER - 4..QUARTER + 4 {
        deadlines.end_round(deadlines.ticks().begins(tick));
        let furthest = deadlines.furthest();
        assert!((tick + 3 * QUARTER - 2..tick + 3 * QUARTER).contains(&furthest));
        assert_eq!(Lease::new(State::Live, 1, furthest).deadline_from(tick), furthest);
    }
}
