//! The errors of keyed stores, and what to do about each.

use crate::error::{converts, gives_back};
use crate::time::LifetimeError;
use std::fmt;

/// Why an operation on a keyed store was refused. It has changed nothing.
///
/// ```
/// use expiry::{ExpiryQueue, LifetimeError, StoreError};
/// use std::time::Duration;
///
/// let leases = ExpiryQueue::builder().capacity(1).build_manual()?;
/// leases.update(1, Duration::from_secs(10))?;
/// assert_eq!(leases.update(2, Duration::from_secs(10)), Err(StoreError::Full));
/// let refused = leases.update(1, Duration::ZERO); // it is as it was
/// assert_eq!(refused, Err(StoreError::Lifetime(LifetimeError::Zero)));
/// assert!(leases.contains(&1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The store holds as many entries as its capacity allows. Try again once some have ended.
    Full,
    /// The entry weighs more than the map's
    /// [`max_weight`](crate::ExpiringMapBuilder::max_weight): it never has room.
    TooHeavy,
    /// The operating system gave no memory for more entries.
    OutOfMemory,
    /// So many keys share this one's hash that no index could part them. Either the hasher gives 8
    /// or more of them one and the same 64-bit hash, or the keys were chosen for it. With the
    /// default hasher that takes its secret seed.
    Collisions,
    /// The store has been shut down.
    Closed,
    /// The lifetime is zero, or too long.
    Lifetime(LifetimeError),
    /// Another thread has changed the entry in the meantime. Look at it again.
    Changed,
    /// The key has a value, which was not to be replaced.
    Occupied,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreError::Lifetime(why) => return why.fmt(f),
            StoreError::Full => {
                "the store is full; try again once entries have ended, or raise its capacity"
            }
            StoreError::TooHeavy => {
                "the entry weighs more than the whole map may; raise max_weight"
            }
            StoreError::OutOfMemory => "out of memory",
            StoreError::Collisions => {
                "too many keys share this key's hash; use a better hasher, one with a secret seed"
            }
            StoreError::Closed => "the store has been shut down; build another one",
            StoreError::Occupied => "the key has a value already",
            StoreError::Changed => {
                "another thread has changed the entry in the meantime; look at it again"
            }
        })
    }
}

impl std::error::Error for StoreError {}

converts!(StoreError, lifetimes, tokens);

/// Why an insertion was refused; it gives the key and the value back.
///
/// ```
/// use expiry::{ExpiringMap, StoreError};
///
/// let map = ExpiringMap::builder().capacity(1).build()?;
/// map.insert(1, "one".to_string())?;
/// if let Err(refused) = map.insert(2, "two".to_string()) {
///     assert_eq!(refused.error, StoreError::Full);
///     assert_eq!((refused.key, refused.value.as_str()), (2, "two"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub struct InsertError<K, V> {
    /// The key that was to be inserted.
    pub key: K,
    /// Its value.
    pub value: V,
    /// Why it was not.
    pub error: StoreError,
}

impl<K, V> InsertError<K, V> {
    pub(super) fn of((key, value): (K, V), error: StoreError) -> Self {
        InsertError { key, value, error }
    }
}

gives_back!(InsertError<K, V> for StoreError);
