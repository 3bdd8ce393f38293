//! References to entries.

use crate::core::engine::Pin;
use crate::core::lease::Lease;
use crate::keyed::store::{Found, Lent, Store};
use std::time::{Duration, Instant};

/// An entry's key and value, lent for as long as this lives. It pins the map: while it lives, no
/// key or value that ends in this map is dropped. So do not keep it. The entry may end in the
/// meantime; what is lent stays what it was.
///
/// It is not `Send`, and so not for holding across an `await`: clone what is needed there
/// ([`get_cloned`](crate::ExpiringMap::get_cloned), of an `Arc` if it is large).
///
/// ```
/// # let map = expiry::ExpiringMap::builder().build()?;
/// map.insert(7, "seven".to_string())?;
/// let entry = map.get(&7).unwrap();
/// map.remove(&7);
/// assert_eq!((*entry.key(), entry.value().as_str()), (7, "seven")); // what is lent stays
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ref<'a, K: 'static, V: 'static> {
    seen: Current<'a, K, V>,
    pin: Pin,
}

impl<'a, K, V> Ref<'a, K, V> {
    /// # Safety
    ///
    /// What is lent was found under the pin, or this thread owns its slot until after the pin.
    #[inline(always)]
    pub(super) unsafe fn new(store: &'a Store<K, V>, lent: Lent<K, V>, pin: Pin) -> Self {
        // SAFETY: the caller's; the pin goes with it.
        let pair = unsafe { lent.pair.as_ref() };
        Ref { seen: Current { pair, lease: lent.lease, store }, pin }
    }

    /// The pin under which it was found, for a caller that needs the entry no more.
    pub(super) fn into_pin(self) -> Pin {
        self.pin
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.seen.pair.0
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &V {
        self.seen.value()
    }

    /// How long until the entry expires by the deadline that the look-up read, which came before
    /// this use of it; zero if that has passed. [`Duration::MAX`] if it never expires. As
    /// [`ExpiringMap::remaining`](crate::ExpiringMap::remaining), without another look-up.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let minute = Duration::from_secs(60);
    /// let pages = expiry::ExpiringMap::new(minute)?;
    /// pages.insert("/", "<h1>")?;
    /// let page = pages.get("/").unwrap();
    /// let max_age = page.remaining().min(minute); // deadlines are rounded up
    /// assert!(max_age > Duration::from_secs(50));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.seen.remaining()
    }

    /// When the entry expires by that deadline, by the system's monotonic clock; `None` if it never
    /// does. As [`ExpiringMap::expires_at`](crate::ExpiringMap::expires_at).
    #[must_use]
    pub fn expires_at(&self) -> Option<Instant> {
        self.seen.expires_at()
    }
}

/// The entry that a closure of [`ExpiringMap::compute`](crate::ExpiringMap::compute) decides about.
/// Dereferences to the value.
pub struct Current<'a, K: 'static, V: 'static> {
    pair: &'a (K, V),
    /// As the look-up read it.
    lease: Lease,
    store: &'a Store<K, V>,
}

impl<'a, K, V> Current<'a, K, V> {
    #[inline(always)]
    pub(super) fn new(store: &'a Store<K, V>, found: &Found<'a, K, V>) -> Self {
        Current { pair: found.pair(), lease: found.lease, store }
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &V {
        &self.pair.1
    }

    /// How long the entry has left before this use, as [`Ref::remaining`] says. Reads the clock.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.store.left(self.lease)
    }

    /// When the entry expires by its deadline, as [`Ref::expires_at`] says it.
    #[must_use]
    pub fn expires_at(&self) -> Option<Instant> {
        self.store.engine.deadlines.instant(self.lease)
    }
}

/// What a reference to an entry is, to most callers: its value.
macro_rules! stands_for_value {
    ($($reference:ident),*) => {$(
        impl<K, V> std::ops::Deref for $reference<'_, K, V> {
            type Target = V;

            fn deref(&self) -> &V {
                self.value()
            }
        }

        impl<K, V: std::fmt::Debug> std::fmt::Debug for $reference<'_, K, V> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.value().fmt(f)
            }
        }
    )*};
}

pub(super) use stands_for_value;

stands_for_value!(Ref, Current);
