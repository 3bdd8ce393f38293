//! Polls: how threads of the user's drive a tracker that has no reaper.

use super::AckTracker;
use std::time::Duration;

/// What a call of [`AckTracker::poll`] left behind.
///
/// ```
/// # use expiry::{edge, AckTracker, ManualClock};
/// # let clock = ManualClock::new();
/// # let tracker = AckTracker::builder().clock(clock.clone()).build_manual()?;
/// # tracker.issue(edge(), 42)?;
/// loop {
///     let polled = tracker.poll(1000);
///     if polled.more {
///         continue; // or do something else first
///     }
///     if tracker.is_empty() {
///         break; // a simulation is over; `next` may have something to do all the same
///     }
///     if let Some(next) = polled.next {
///         clock.advance(next); // or sleep, or wait until something comes in
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Polled {
    /// Whether the budget ran out before the work did: call again at once. It is also true if other
    /// threads were driving some of the shards, which this call left out; yield first then.
    pub more: bool,
    /// How long from now until there may be something to do, if nothing else happens; `None` if
    /// never.
    ///
    /// It is an upper bound for a thread that sleeps, and no sign that anything is in flight. The
    /// old deadline of a root that has ended, or was renewed, counts until it has come. So does
    /// giving memory back, up to a second after a burst. `is_empty()` says whether all is done. A
    /// root that begins later with a nearer deadline does not wake a thread that sleeps so long.
    pub next: Option<Duration>,
}

impl AckTracker {
    /// Ends what is due, with at most about `budget` steps of work. For trackers built without a
    /// reaper; harmless on others. Never waits: any number of threads may poll, and each leaves out
    /// the shards that another one is driving. A poll in a handler finds nothing.
    ///
    /// ```
    /// use expiry::{edge, AckTracker, ManualClock};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let tracker = AckTracker::builder()
    ///     .timeout(Duration::from_secs(30))
    ///     .clock(clock.clone())
    ///     .build_manual()?;
    /// tracker.issue(edge(), 42)?;
    /// let polled = tracker.poll(1000);
    /// assert!(!polled.more && polled.next <= Some(Duration::from_secs(31))); // nothing to do until then
    /// clock.advance(Duration::from_secs(31));
    /// tracker.poll(1000);
    /// assert_eq!(tracker.metrics().total.expired, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll(&self, budget: usize) -> Polled {
        let engine = &self.trees.engine;
        let now = engine.deadlines.clock().now();
        let round = engine.poll_beside(now, budget.max(1), &*self.trees);
        #[cfg(feature = "async")]
        if engine.admission.is_refusing() {
            engine.admission.parted();
        }
        Polled {
            more: round.more || round.busy,
            next: round.next.map(|tick| engine.deadlines.ticks().until(now, tick)),
        }
    }

    /// For models: the clock has come to `tick`.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn timer_fires(&self, tick: u64) {
        self.trees.engine.wakeup.timer_fires(tick);
    }

    /// For models: the hash of a chosen root's key, as the index has it.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn hash_of(&self, key: u64) -> u32 {
        self.trees.engine.keys.hash(key) | 1 << 31
    }

    /// For models: how many chunks are on the first shard's ring, and which of them have their
    /// memory.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn chunks(&self) -> (u32, Vec<u32>) {
        self.trees.engine.chunks()
    }
}
