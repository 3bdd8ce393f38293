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
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{ExpiringMap, Lifetime, ManualClock};
    /// use std::time::Duration;
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let map = ExpiringMap::builder().time_to_live(10 * second).clock(clock.clone()).build_manual()?;
    /// map.insert_with("key", 1, Lifetime::new())?; // no other than by `insert`
    /// clock.advance(9 * second);
    /// assert!(map.contains_key("key"));
    /// clock.advance(2 * second);
    /// assert!(!map.contains_key("key"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Lifetime {
            live: Timeout::Default,
            idle: Timeout::Default,
        }
    }

    /// From its insertion, or its last touch.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{ExpiringMap, Lifetime, ManualClock, Timeout};
    /// # use std::time::Duration;
    /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let map = ExpiringMap::builder().time_to_live(10 * second).clock(clock.clone()).build_manual()?;
    /// map.insert_with("a minute", 1, Lifetime::new().live(60 * second))?;
    /// map.insert_with("for ever", 2, Lifetime::new().live(Timeout::Never))?;
    /// clock.advance(59 * second);
    /// assert!(map.get("a minute").is_some()); // and no longer for that
    /// clock.advance(2 * second);
    /// assert!(!map.contains_key("a minute") && map.contains_key("for ever"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn live(mut self, time: impl Into<Timeout>) -> Self {
        self.live = time.into();
        self
    }

    /// From its last use: insertion, touch, or [`get`](crate::ExpiringMap::get).
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{ExpiringMap, Lifetime, ManualClock};
    /// # use std::time::Duration;
    /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let map = ExpiringMap::builder().time_to_live(60 * second).clock(clock.clone()).build_manual()?;
    /// map.insert_with("key", 1, Lifetime::new().idle(10 * second))?;
    /// clock.advance(9 * second);
    /// assert!(map.get("key").is_some()); // used
    /// clock.advance(9 * second);
    /// assert!(map.contains_key("key"));
    /// clock.advance(2 * second);
    /// assert!(!map.contains_key("key")); // unused for 10 s, long before its 60
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
