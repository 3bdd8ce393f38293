//! What the calls of a queue return.

use crate::keyed::removed::Removed;
use crate::keyed::store::Place;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// Names one stay of a key in a queue, from its insertion to its end. A touch by handle skips the
/// look-up.
///
/// ```
/// use expiry::{ExpiryQueue, Updated};
/// use std::time::Duration;
///
/// let leases = ExpiryQueue::builder().build_manual()?;
/// let ten = Duration::from_secs(10);
/// if let Updated::Inserted { handle, .. } = leases.update("worker 1", ten)? {
///     assert!(leases.touch_by(handle, ten)?);
///     leases.remove("worker 1");
///     leases.update("worker 1", ten)?;
///     assert!(!leases.touch_by(handle, ten)?); // another stay
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub(super) Place);

/// What [`ExpiryQueue::update`](crate::ExpiryQueue::update) did. Times are counted from when the
/// queue was built.
///
/// ```
/// use expiry::{ExpiryQueue, ManualClock, Updated};
/// use std::time::Duration;
///
/// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
/// let leases = ExpiryQueue::builder().interval(second).clock(clock.clone()).build_manual()?;
/// assert!(matches!(leases.update("worker 1", 10 * second)?, Updated::Inserted { .. }));
/// assert_eq!(leases.update("worker 1", 10 * second)?, Updated::Unchanged);
/// clock.advance(second);
/// assert_eq!(leases.update("worker 1", 10 * second)?, Updated::Renewed { expiry: 11 * second });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// The key had no entry, and has one now.
    Inserted {
        /// When it expires.
        expiry: Duration,
        /// The handle touches the key without a look-up.
        handle: Handle,
    },
    /// The key expires at another time now.
    Renewed {
        /// When.
        expiry: Duration,
    },
    /// The key would have expired at this time anyway, when this call looked. The call has written
    /// nothing: a call that overlaps it may have set another time since.
    Unchanged,
}

/// A key that has expired. It lies in the queue's memory, which stays for as long as this does. The
/// queue's driver drops the key after this has been dropped.
///
/// ```
/// # use expiry::{ExpiryQueue, ManualClock};
/// # use std::time::Duration;
/// # let clock = ManualClock::new();
/// # let builder = ExpiryQueue::builder().interval(Duration::from_secs(1)).clock(clock.clone());
/// # let queue = builder.build_manual()?;
/// queue.update("key", Duration::from_secs(5))?;
/// clock.advance(Duration::from_secs(60));
/// let expired = queue.poll();
/// assert_eq!((*expired[0], expired[0].expiry()), ("key", Duration::from_secs(5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Expired<K: 'static> {
    pub(super) ended: Removed<'static, K, ()>,
    pub(super) expiry: Duration,
}

impl<K> Expired<K> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        self.ended.key()
    }

    /// When it was due, counted as by [`update`](crate::ExpiryQueue::update): from when the queue
    /// was built.
    #[must_use]
    pub fn expiry(&self) -> Duration {
        self.expiry
    }
}

impl<K> Deref for Expired<K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.ended.key()
    }
}

impl<K: fmt::Debug> fmt::Debug for Expired<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expired")
            .field("key", self.ended.key())
            .field("expiry", &self.expiry)
            .finish()
    }
}
