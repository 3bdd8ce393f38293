//! Settings of a queue.

use super::{Expired, ExpiryQueue, Shared};
use crate::error::BuildError;
use crate::keyed::store::Store;
use crate::kit::channel::{Receiver, WhenFull};
use crate::kit::handle::builder;
use crate::kit::lifecycle::Owner;
use crate::kit::setup::{setters, Setup};
use crate::kit::target::{builds, ExpiryListener, Target};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Settings of an [`ExpiryQueue`].
///
/// ```
/// use expiry::ExpiryQueue;
/// use std::time::Duration;
///
/// let leases = ExpiryQueue::builder()
///     .interval(Duration::from_millis(50))
///     .capacity(1_000_000)
///     .expiry_listener(|worker: &String| println!("{worker} has fallen silent"))
///     .build_manual()?;
/// leases.update("worker 1".to_string(), Duration::from_secs(10))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct ExpiryQueueBuilder<K> {
    setup: Setup,
    listener: Option<Arc<ExpiryListener<K>>>,
}

impl<K> Default for ExpiryQueueBuilder<K> {
    fn default() -> Self {
        ExpiryQueueBuilder { setup: Setup::by_milliseconds(100), listener: None }
    }
}

builder!(ExpiryQueueBuilder<K> with listener);

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueueBuilder<K> {
    setters! {
        "keys",
        /// 100 ms unless set.
        interval,
        expiring capacity,
    }

    /// A stall of the process does not count against the keys. If no thread polled for longer than
    /// `threshold` although a key was due, the holders could not renew their keys. Keys that came
    /// due meanwhile then get the length of that stall on top of their time, once, instead of
    /// expiring at once. At an interval of a second, after a stall from second 10 to second 30, a
    /// key that was due at 12 is due at 33.
    ///
    /// A stall begins when the driver was due to look at a key. The next thread that polls notices
    /// it:
    ///
    /// * With a reaper: the reaper wakes up later than at the next expiration by more than
    ///   `threshold`. The process was stopped, starved, or suspended with a clock that counts it.
    /// * Without a reaper, if the caller has asked for the [`wait_time`](ExpiryQueue::wait_time)
    ///   since the last poll: the caller polls later than that by more than `threshold`.
    /// * Without a reaper, if the caller has not asked: the caller polls later than both the end of
    ///   the last poll and the next expiration as known then, by more than `threshold`.
    ///
    /// A caller that polls more rarely than `threshold` by habit does not stall. Two polls in a row
    /// that come later than that look like two stalls. From the third one on the queue goes by the
    /// shorter of the two gaps, until the caller polls often again for as long as `threshold`. So a
    /// key of such a caller expires two polls late at most, and the queue notices a stall only if
    /// it is longer than the habit by `threshold`. A caller that goes by the wait time has no such
    /// habit.
    ///
    /// These are no stalls: the time that a handler, or a thread that is polling, takes, even if
    /// the process is stopped meanwhile; a gap that ends before anything is due; a gap after a poll
    /// that found nothing to wait for; and a gap of 2^38 intervals or more. A clock that stands
    /// still while the machine is suspended, as the default one does, shows nothing of that, and
    /// none of it counts against any key.
    ///
    /// ```
    /// use expiry::{ExpiryQueue, ManualClock};
    /// use std::time::Duration;
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let leases = ExpiryQueue::builder()
    ///     .interval(second)
    ///     .pause_grace(5 * second)
    ///     .clock(clock.clone())
    ///     .build_manual()?;
    /// leases.update("worker 1", 12 * second)?;
    /// clock.advance(10 * second);
    /// assert!(leases.poll().is_empty());
    /// clock.advance(20 * second); // the process was stopped
    /// assert!(leases.poll().is_empty());
    /// assert!(leases.touch("worker 1", 12 * second)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause_grace(mut self, threshold: Duration) -> Self {
        self.setup.pause_grace = Some(threshold);
        self
    }

    builds! {
        ExpiryQueue<K>, poll "ExpiryQueue::poll", item Expired<K>, expiry_listener(&K)
    }

    fn built(
        self,
        target: Target<Expired<K>, ExpiryListener<K>>,
        reaper: bool,
    ) -> Result<ExpiryQueue<K>, BuildError> {
        let shared = Shared::new(Store::build(&self.setup, None, None)?, target, ());
        let owner = Owner::new(&shared, |shared| &shared.store.engine, &self.setup, reaper)?;
        Ok(ExpiryQueue { shared, hasher: self.setup.hasher(), owner })
    }
}
