//! Entries that have left a map, or did not get in.

use crate::error::gives_back;
use crate::keyed::removed::Removed;
use crate::keyed::StoreError;
use crate::sync::cell::Given;
use std::fmt;

/// An entry that has expired, that a shutdown has ended, or that was refused: the value by value,
/// and the key. The key of an entry that was in the map lies in the map's memory for as long as
/// this does.
///
/// ```
/// # use std::time::Duration;
/// let calls = expiry::PendingMap::builder().build()?;
/// calls.insert("id 7", vec![7], Duration::from_secs(30))?;
/// let left = calls.shutdown().pop().unwrap();
/// assert_eq!((*left.key(), left.value().len()), ("id 7", 1));
/// assert_eq!(left.into_value(), [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PendingEntry<K: 'static, T: 'static> {
    key: Key<K, T>,
    value: T,
}

enum Key<K: 'static, T: 'static> {
    /// In the map's memory, where other threads may still be comparing it.
    InMap(Removed<'static, K, Given<T>>),
    /// The key of an entry that did not get in.
    Own(K),
}

impl<K, T> PendingEntry<K, T> {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &K {
        match &self.key {
            Key::InMap(ended) => ended.key(),
            Key::Own(key) => key,
        }
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The value itself.
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }

    /// The key and the value themselves. Never waits; takes some hundred nanoseconds if the entry
    /// was in the map.
    ///
    /// # Errors
    ///
    /// The entry, if it was in the map, and another thread is in the middle of a call that may be
    /// looking at the key. It succeeds when that call has returned. An entry that was refused
    /// because the map is full, the key is occupied, or the timeout is out of range was not in the
    /// map; nor was one that was refused after the shutdown.
    pub fn try_into_pair(self) -> Result<(K, T), Self> {
        let PendingEntry { key, value } = self;
        match key {
            Key::Own(key) => Ok((key, value)),
            Key::InMap(ended) => match ended.try_into_pair() {
                Ok((key, _taken)) => Ok((key, value)),
                Err(ended) => Err(PendingEntry { key: Key::InMap(ended), value }),
            },
        }
    }

    /// Makes the entry that was in the map, and whose value was taken.
    pub(super) fn in_map(ended: Removed<'static, K, Given<T>>, value: T) -> Self {
        PendingEntry { key: Key::InMap(ended), value }
    }
}

impl<K: fmt::Debug, T: fmt::Debug> fmt::Debug for PendingEntry<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = (self.key(), self.value());
        f.debug_struct("PendingEntry").field("key", key).field("value", value).finish()
    }
}

/// Why a [`PendingMap`](crate::PendingMap) has refused an entry; it gives key and value back.
///
/// ```
/// use expiry::{PendingMap, StoreError};
/// use std::time::Duration;
///
/// let map = PendingMap::builder().capacity(1).build()?;
/// map.insert("a.txt".to_string(), 1, Duration::from_secs(30))?;
/// let refused = map.insert("b.txt".to_string(), 2, Duration::from_secs(30)).unwrap_err();
/// assert_eq!(refused.error, StoreError::Full);
/// let (key, value) = refused.entry.try_into_pair().unwrap();
/// assert_eq!((key.as_str(), value), ("b.txt", 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub struct PendingMapError<K: 'static, T: 'static> {
    /// What was to be inserted.
    pub entry: PendingEntry<K, T>,
    /// Why it was not.
    pub error: StoreError,
    /// The value that the key had. Mostly `None`: the key keeps it. A shutdown beside an insertion
    /// may end the new value when the old one is out.
    pub replaced: Option<T>,
}

impl<K, T> PendingMapError<K, T> {
    pub(super) fn of((key, value): (K, Given<T>), error: StoreError) -> Self {
        let entry = PendingEntry { key: Key::Own(key), value: value.into_inner() };
        PendingMapError { entry, error, replaced: None }
    }
}

gives_back!(PendingMapError<K, T> for StoreError);
