//! How long an entry lives, and how long unused.

use crate::time::Lifetime;
use std::time::Duration;

/// How long an entry of an [`ExpiringMap`](crate::ExpiringMap) may live, and how long it may go unused; the nearer ends it.
///
/// A [`Duration`] or a [`Lifetime`] is a time to live, with the map's own time to idle.
///
/// ```
/// use expiry::{ExpiringMap, Lifetimes, Lifetime};
/// use std::time::Duration;
///
/// let map = ExpiringMap::builder().time_to_live(Duration::from_secs(60)).build()?;
/// map.insert_with_lifetime("short", 1, Duration::from_secs(5))?;
/// map.insert_with_lifetime("unless used", 2, Lifetimes::new().live(Lifetime::Never).idle(Duration::from_secs(5)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetimes {
    pub(super) live: Lifetime,
    pub(super) idle: Lifetime,
}

impl Lifetimes {
    /// As the map says.
    #[must_use]
    pub const fn new() -> Self {
        Lifetimes { live: Lifetime::Default, idle: Lifetime::Default }
    }

    /// From its insertion, or its last touch.
    #[must_use]
    pub fn live(mut self, time: impl Into<Lifetime>) -> Self {
        self.live = time.into();
        self
    }

    /// From its last use: insertion, touch, or [`get`](crate::ExpiringMap::get).
    #[must_use]
    pub fn idle(mut self, time: impl Into<Lifetime>) -> Self {
        self.idle = time.into();
        self
    }
}

impl From<Lifetime> for Lifetimes {
    fn from(time: Lifetime) -> Self {
        Lifetimes::new().live(time)
    }
}

impl From<Duration> for Lifetimes {
    fn from(time: Duration) -> Self {
        Lifetime::After(time).into()
    }
}
