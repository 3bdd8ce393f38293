//! Open loop: operations come by a schedule, whether or not earlier ones are done, as those of many
//! independent clients do.
//!
//! The time of an operation then counts from when it was due. In a closed loop the next operation
//! waits for the one before. That hides what a stall does to all operations that would have come
//! meanwhile (coordinated omission, as Gil Tene has named it).

use rand::rngs::SmallRng;
use rand::SeedableRng;
use rand_distr::{Distribution, Exp};

/// A thread's part of a schedule. It is Poisson's, with gaps drawn before anything is measured of
/// what they lead to.
#[derive(Debug)]
pub struct Pace {
    gaps: Exp<f64>,
    rng: SmallRng,
    /// When the next one is due, in nanoseconds.
    next: f64,
}

impl Pace {
    /// So many operations a second, from `began` on. `None` if the rate is no number above zero.
    #[allow(clippy::cast_precision_loss)] // to the microsecond in 100 days
    pub fn new(per_second: f64, began: u64, seed: u64) -> Option<Self> {
        let gaps = Exp::new(per_second / 1e9).ok()?;
        let mut pace = Pace { gaps, rng: SmallRng::seed_from_u64(seed), next: began as f64 };
        pace.skip();
        let possible = per_second > 0.0 && per_second.is_finite();
        (possible && pace.next.is_finite()).then_some(pace)
    }

    /// The `nth` thread's part of what `rate` gives all `threads` together, from `began` on. `None`
    /// without a rate.
    #[allow(clippy::cast_precision_loss)] // threads
    pub fn part(
        rate: Option<f64>,
        (nth, threads): (usize, usize),
        began: u64,
        seed: u64,
    ) -> Option<Self> {
        Pace::new(rate? / threads as f64, began, seed ^ nth as u64)
    }

    fn skip(&mut self) {
        self.next += self.gaps.sample(&mut self.rng);
    }

    /// When the next operation was due, if that is by `now`; the one after it is next then.
    #[inline]
    // The result is not below zero.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn due(&mut self, now: u64) -> Option<u64> {
        let due = self.next;
        (due <= now as f64).then(|| {
            self.skip();
            due as u64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_during_a_stall_is_due_since_then() {
        let mut pace = Pace::new(1e3, 0, 1).unwrap();
        let stalled: Vec<u64> = std::iter::from_fn(|| pace.due(1_000_000_000)).collect();
        assert!((900..1100).contains(&stalled.len()));
        // Half of them were due in the first half.
        let early = stalled.iter().filter(|due| **due < 500_000_000).count();
        assert!((400..600).contains(&early));
    }
}
