//! How long an entry lives, and how long it may go unused.

use crate::time::Lifetime;

/// How long an entry of an [`ExpiringMap`](crate::ExpiringMap) may live, and how long it may go
/// unused; the nearer ends it.
///
/// A `Duration`, an `Instant` or a [`Lifetime`] is a time to live, with the map's own time to idle.
///
/// ```
/// use expiry::{ExpiringMap, Lifetimes, Lifetime};
/// use std::time::Duration;
///
/// let map = ExpiringMap::builder().time_to_live(Duration::from_secs(60)).build()?;
/// map.insert_for("short", 1, Duration::from_secs(5))?;
/// map.insert_for("unless used", 2, Lifetimes::new().live(Lifetime::Never).idle(Duration::from_secs(5)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetimes {
    pub(super) live: Lifetime,
    pub(super) idle: Lifetime,
    pub(super) keeps: bool,
}

impl Lifetimes {
    /// As the map says.
    #[must_use]
    pub const fn new() -> Self {
        Lifetimes { live: Lifetime::Default, idle: Lifetime::Default, keeps: false }
    }

    /// Sets how long the entry lives from its insertion, or its last touch.
    #[must_use]
    pub fn live(mut self, time: impl Into<Lifetime>) -> Self {
        self.live = time.into();
        self
    }

    /// Sets how long the entry lives from its last use: insertion, touch, or
    /// [`get`](crate::ExpiringMap::get).
    #[must_use]
    pub fn idle(mut self, time: impl Into<Lifetime>) -> Self {
        self.idle = time.into();
        self
    }

    /// An entry that takes the place of another one expires when that one would have. The lifetimes
    /// given here are those of an entry under a key that had none. So a counter counts what comes
    /// in one window, which its updates do not prolong:
    ///
    /// ```
    /// use expiry::{ExpiringMap, Lifetimes, ManualClock};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let calls = ExpiringMap::builder().clock(clock.clone()).build_manual()?;
    /// let window = Lifetimes::from(Duration::from_secs(60)).keep();
    /// let call = |who| calls.upsert_for(who, window, |n| {
    ///     let n = n.map_or(1, |n| n + 1);
    ///     (n, n)
    /// });
    /// assert_eq!((call("ada")?, call("ada")?), (1, 2));
    /// clock.advance(Duration::from_secs(50));
    /// assert_eq!(call("ada")?, 3);
    /// clock.advance(Duration::from_secs(11)); // 61 s after the first call
    /// assert_eq!(call("ada")?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.keeps = true;
        self
    }
}

impl<T: Into<Lifetime>> From<T> for Lifetimes {
    /// This time to live, and the map's own time to idle.
    fn from(time: T) -> Self {
        Lifetimes::new().live(time)
    }
}
