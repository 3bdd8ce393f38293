//! How long something may take, as callers say it.

use std::time::{Duration, Instant};

/// How long a root, or an entry, may take: a [`Duration`], an [`Instant`], for ever, or the
/// default.
///
/// ```
/// use expiry::{edge, AckTracker, Lifetime};
/// use std::time::Duration;
///
/// let tracker = AckTracker::builder().timeout(Duration::from_secs(30)).build()?;
/// tracker.issue_for(edge(), 1, Lifetime::Default)?;
/// tracker.issue_for(edge(), 2, Duration::from_secs(5))?;
/// tracker.issue_for(edge(), 3, Lifetime::Never)?;
/// assert_eq!(tracker.owned_by(3)[0].remaining, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// As long as the settings of the tracker, queue or map say.
    #[default]
    Default,
    /// As long as this, rounded up to the interval. (Counted from when the tracker was built, of
    /// 2^40 intervals one counts as the next: 35 years at a millisecond.)
    After(Duration),
    /// The entry lives for ever.
    Never,
}

impl From<Duration> for Lifetime {
    fn from(time: Duration) -> Self {
        Lifetime::After(time)
    }
}

impl From<Instant> for Lifetime {
    /// Until then, by the system's monotonic clock: what is left of it now. An instant that has
    /// passed is a lifetime of zero, which calls refuse.
    fn from(at: Instant) -> Self {
        Lifetime::After(at.saturating_duration_since(Instant::now()))
    }
}
