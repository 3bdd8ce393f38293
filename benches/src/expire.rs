//! What expiring costs: a tracker without a thread, a clock moved by hand, and `poll`.

use crate::peers::finished;
use crate::window::{below, mix};
use expiry::{AckTracker, Lifetime, ManualClock, Outcome};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// All at the same tick.
    Mass,
    /// Each at a random one within 30 s, and the clock goes on interval by interval.
    Spread,
}

#[derive(Debug, Clone, Copy)]
pub struct Expiry {
    pub entries: usize,
    pub due: Due,
    /// Under chosen ids, which must be taken out of the index.
    pub chosen: bool,
    pub interval: Duration,
}

const WITHIN: Duration = Duration::from_secs(30);

impl Expiry {
    /// Fills a tracker, then times what it takes to expire everything. That is all of `poll`, with
    /// a handler that takes the owner.
    pub fn run(&self) -> Duration {
        let clock = ManualClock::new();
        let tracker = AckTracker::builder()
            .timeout(WITHIN)
            .interval(self.interval)
            .clock(clock.clone())
            .on_outcome(|outcome: Outcome| finished(outcome.owner))
            .build_manual()
            .expect("valid settings");
        let within = WITHIN.as_nanos() as u64;
        for n in 0..self.entries as u64 {
            let timeout = match self.due {
                Due::Mass => Lifetime::Default,
                Due::Spread => Lifetime::After(Duration::from_nanos(below(n, within) + 1)),
            };
            if self.chosen {
                tracker.init_for(mix(n), 1, n, timeout).expect("not in flight");
            } else {
                tracker.issue_for(1, n, timeout).expect("room");
            }
        }
        // Growth and the inboxes are not expiry.
        while tracker.poll(4096).more {}
        assert_eq!(tracker.metrics().total.expired, 0);
        let step = match self.due {
            Due::Mass => WITHIN,
            Due::Spread => self.interval,
        };
        let mut passed = Duration::ZERO;
        let began = Instant::now();
        while passed < WITHIN + self.interval * 2 {
            clock.advance(step);
            passed += step;
            while tracker.poll(4096).more {}
        }
        let took = began.elapsed();
        assert_eq!(tracker.metrics().total.expired, self.entries as u64);
        took
    }
}
