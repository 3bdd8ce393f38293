//! How long an entry lives, and how long unused.

use crate::time::Timeout;
use std::time::Duration;

/// How long an entry of an [`ExpiringMap`](crate::ExpiringMap) may live, and how long it may go unused; the nearer ends it.
///
/// A [`Duration`] or a [`Timeout`] is a time to live, with the map's own time to idle.
///
/// ```
/// use expiry::{ExpiringMap, Lifetime, Timeout};
/// use std::time::Duration;
///
/// let map = ExpiringMap::builder().time_to_live(Duration::from_secs(60)).build()?;
/// map.insert_with("short", 1, Duration::from_secs(5))?;
/// map.insert_with("unless used", 2, Lifetime::new().live(Timeout::Never).idle(Duration::from_secs(5)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    pub(super) live: Timeout,
    pub(super) idle: Timeout,
}

impl Lifetime {
    /// As the map says.
    #[must_use]
    pub const fn new() -> Self {
        Lifetime { live: Timeout::Default, idle: Timeout::Default }
    }

    /// From its insertion, or its last touch.
    #[must_use]
    pub fn live(mut self, time: impl Into<Timeout>) -> Self {
        self.live = time.into();
        self
    }

    /// From its last use: insertion, touch, or [`get`](crate::ExpiringMap::get).
    #[must_use]
    pub fn idle(mut self, time: impl Into<Timeout>) -> Self {
        self.idle = time.into();
        self
    }
}

impl From<Timeout> for Lifetime {
    fn from(time: Timeout) -> Self {
        Lifetime::new().live(time)
    }
}

impl From<Duration> for Lifetime {
    fn from(time: Duration) -> Self {
        Timeout::After(time).into()
    }
}
