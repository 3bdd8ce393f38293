//! Unit tests of `src/core/engine/deadline.rs`.

use super::*;
use crate::core::lease::State;
use crate::time::ManualClock;

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

const LAG: Duration = Duration::from_millis(1);

/// A clock whose cheap reading is as old as it may be.
struct Lagging(ManualClock);

impl Clock for Lagging {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn coarse(&self) -> u64 {
        self.now() - self.lag()
    }

    fn lag(&self) -> u64 {
        nanos(LAG)
    }
}

#[test]
fn what_is_due_is_not_the_deadline_of_the_same_timeout_by_the_exact_clock() {
    let time = ManualClock::new();
    let clock = Source::Custom(Arc::new(Lagging(time.clone())));
    let deadlines = Deadlines::new(clock, Precision::Interval(nanos(LAG)), false);
    let (mine, after) = (LastDeadlines::default(), Duration::from_secs(5));
    deadlines.deadline(&mine, Lifetime::After(after), None).unwrap();
    // The cheap reading is now what the exact one was.
    time.advance(LAG);
    let due = deadlines.due(&mine, nanos(after));
    assert!(deadlines.ticks().begins(due) >= time.now() + nanos(after), "{due} is early");
}
