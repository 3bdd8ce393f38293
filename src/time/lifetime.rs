//! How long something may take, as callers say it.

use std::fmt;
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
    /// As long as this, rounded up to the interval. (A deadline on one tick in 2^40, every 35 years
    /// at a millisecond, moves to the next one.)
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

/// Why a store refuses a lifetime. The call has changed nothing.
///
/// ```
/// use expiry::{ExpiringMap, LifetimeError, StoreError};
/// use std::time::Duration;
///
/// let map = ExpiringMap::builder().build()?;
/// map.insert("key", 1)?;
/// assert_eq!(map.touch_for("key", Duration::ZERO), Err(LifetimeError::Zero));
/// let refused = map.insert_for("key", 2, Duration::MAX).unwrap_err();
/// assert_eq!(refused.error, StoreError::Lifetime(LifetimeError::TooLong));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifetimeError {
    /// It is zero, or an instant that has passed. To end an entry now, remove it; or fail the root.
    Zero,
    /// It is longer than the store's ticks can express: 2^39 - 2 intervals, 17 years at 1 ms. Take
    /// a shorter one, [`Lifetime::Never`] where the call accepts it, or a longer interval.
    TooLong,
}

impl fmt::Display for LifetimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LifetimeError::Zero => "the lifetime is zero, or has passed; use a longer one, or end the entry yourself",
            LifetimeError::TooLong => "the lifetime is too long for the store's interval; use a shorter one, Lifetime::Never where the call accepts it, or a longer interval",
        })
    }
}

impl std::error::Error for LifetimeError {}
