//! How late the driver ends entries: a histogram, to which each end adds by one plain store.

use super::threads::Counter;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

const BUCKETS: usize = 64;

/// A histogram of how late expirations were seen after they were due: powers of two of nanoseconds.
///
/// ```
/// use expiry::{ExpiryQueue, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let queue = ExpiryQueue::builder().clock(clock.clone()).build_manual()?;
/// queue.update("key", Duration::from_secs(1))?;
/// clock.advance(Duration::from_secs(4)); // and nobody has polled
/// assert_eq!(queue.poll().len(), 1);
/// let lateness = queue.metrics().total.lateness;
/// assert_eq!(lateness.total(), 1);
/// let median = lateness.quantile(0.5).unwrap();
/// assert!(median >= Duration::from_secs(3) && median < Duration::from_secs(6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lateness {
    /// `counts[i]` were late by at least `2^i` and less than `2^(i+1)` ns; `counts[0]` includes
    /// zero.
    pub counts: Vec<u64>,
}

impl fmt::Debug for Lateness {
    /// The total, and upper bounds of some quantiles.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lateness")
            .field("total", &self.total())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.quantile(1.0))
            .finish_non_exhaustive()
    }
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness { counts: vec![0; BUCKETS] }
    }
}

impl AddAssign<&Lateness> for Lateness {
    fn add_assign(&mut self, other: &Lateness) {
        let len = self.counts.len().max(other.counts.len());
        self.counts.resize(len, 0);
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }
}

impl Lateness {
    /// How many expirations it has seen.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What has come since `earlier`, an older snapshot of the same: what a monitor shows of the
    /// last minute.
    #[must_use]
    pub fn since(&self, earlier: &Lateness) -> Lateness {
        let before = earlier.counts.iter().chain(std::iter::repeat(&0));
        let pairs = self.counts.iter().zip(before);
        let counts = pairs.map(|(now, before)| now.saturating_sub(*before));
        Lateness { counts: counts.collect() }
    }

    /// An upper bound of the given quantile (0.0 to 1.0), to a factor of two. `None` if nothing has
    /// expired.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let rank = (self.total() as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        self.counts
            .iter()
            .position(|&count| {
                seen += count;
                seen >= rank.max(1)
            })
            .map(|at| Duration::from_nanos(2u64.saturating_pow(at as u32 + 1)))
    }
}

/// The counters of a [`Lateness`]. One thread at a time writes, any may read.
pub(crate) struct Counts([Counter; BUCKETS]);

impl Counts {
    pub(crate) fn new() -> Self {
        Counts(std::array::from_fn(|_| Counter::default()))
    }

    /// Counts one that was so many nanoseconds late.
    #[inline]
    pub(crate) fn add(&self, late: u64) {
        self.0[(late | 1).ilog2() as usize].add(1);
    }

    pub(crate) fn read(&self) -> Lateness {
        Lateness { counts: self.0.iter().map(Counter::get).collect() }
    }
}
