//! How long something may take, as callers say it.

use std::time::Duration;

/// How long a root, or an entry, may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timeout {
    /// As long as the settings of the tracker, queue or map say.
    #[default]
    Default,
    /// As long as this, rounded up to the interval. (Counted from when the tracker was built, of 2^40 intervals one counts
    /// as the next: 35 years at a millisecond.)
    After(Duration),
    /// For ever.
    Never,
}

impl From<Duration> for Timeout {
    fn from(time: Duration) -> Self {
        Timeout::After(time)
    }
}
