//! References to entries.

use crate::core::engine::Pin;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

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
    pair: &'a (K, V),
    pin: Pin,
}

impl<K, V> Ref<'_, K, V> {
    /// # Safety
    ///
    /// The pair was found under the pin, or this thread owns its slot until after the pin; and the
    /// map outlives the reference.
    #[inline(always)]
    pub(super) unsafe fn new(pair: NonNull<(K, V)>, pin: Pin) -> Self {
        // SAFETY: the caller's; the pin goes with it.
        let pair = unsafe { pair.as_ref() };
        Ref { pair, pin }
    }

    /// The pin under which it was found, for a caller that needs the entry no more.
    pub(super) fn into_pin(self) -> Pin {
        self.pin
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.pair.0
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &V {
        &self.pair.1
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.pair.1
    }
}

impl<K, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pair.1.fmt(f)
    }
}
