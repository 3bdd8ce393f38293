//! This crate's tracker: a timer is an issued root of one edge, and to ack that is to cancel it.

use super::{Fired, SharedTimers};
use expiry::{Ack, AckTracker, Outcome, Root, Timeout};
use std::time::Duration;

/// Default settings, its reaper running, in milliseconds.
pub struct Roots(AckTracker);

/// More than any timer here.
const LONGEST: Duration = Duration::from_secs(30 * 60);

impl SharedTimers for Roots {
    const NAME: &'static str = "AckTracker, roots of one edge";
    type Id = Root;
    type Handle = ();

    fn new(fired: &'static Fired) -> Self {
        let tell = move |outcome: &Outcome| {
            if outcome.is_timed_out() {
                fired.tell(outcome.owner);
            }
        };
        let tracker = AckTracker::builder()
            .timeout(LONGEST)
            .interval(Duration::from_millis(1))
            .on_outcome(tell)
            .build();
        Roots(tracker.expect("valid settings"))
    }

    fn handle(&self) {}

    #[inline]
    fn schedule(&self, (): &mut (), after: Duration, value: u64) -> Root {
        let issued = self.0.issue_with(1, value, Timeout::After(after));
        issued.unwrap_or_else(|error| panic!("refused: {error}"))
    }

    #[inline]
    fn cancel(&self, (): &mut (), id: Root) -> bool {
        self.0.ack(id, 1) == Ok(Ack::Completed)
    }

    fn live(&self, _scheduled: u64) -> u64 {
        self.0.metrics().total.live
    }
}
