//! Polling, and how long until there is something to poll.

use super::{Expired, ExpiryQueue};
use crate::kit::polled::{poll_all, Polled};
use std::hash::Hash;
use std::time::Duration;

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// Returns all keys that have expired, however far the clock has jumped. Never waits.
    ///
    /// Any number of threads may poll concurrently, and share the work: one thread at a time polls
    /// a shard, and the others leave it out. Each key is returned to one of them. A poll that
    /// returns nothing found nothing due, or only in shards that other threads were at. (A poll in
    /// a handler finds nothing.) Where there is a handler or a channel, it is given what a poll
    /// finds, and the poll returns nothing.
    ///
    /// The keys are sorted by [expiry](Expired::expiry); keys of the same expiry are in no order.
    /// Between polls of several threads there is no order: of two keys in two shards the one due
    /// later may be returned first. The keys of one poll were due before those of a poll that
    /// begins after it, if no other thread polls, no thread was held up half-way through an update,
    /// and the clock does not go back.
    #[must_use]
    pub fn poll(&self) -> Vec<Expired<K>> {
        let poll = |into: &mut _| self.shared.poll_into(into, usize::MAX);
        let mut expired = poll_all(poll);
        expired.sort_unstable_by_key(Expired::expiry);
        expired
    }

    /// Ends what is due with at most about `budget` steps of work: expired keys, blocks looked at,
    /// cascades. Unlike [`poll`](Self::poll), it may find any of the keys that were due, and
    /// appends them to `into`, sorted among themselves. The next poll finds what the budget did not
    /// cover.
    pub fn poll_into(&self, into: &mut Vec<Expired<K>>, budget: usize) -> Polled {
        let before = into.len();
        let polled = self.shared.poll_into(into, budget);
        into[before..].sort_unstable_by_key(Expired::expiry);
        polled
    }

    /// How long until a key is due: zero if one is, `None` if none will be. Wait-free, O(shards).
    ///
    /// It is at most the time until any key is due whose [`update`](Self::update) or touch has
    /// returned. It may be longer while another thread is half-way through an `update` or a touch:
    /// of the same key, or to a shorter timeout. It may be shorter: the old time of a key that was
    /// removed or renewed counts until a poll has passed it, and a poll looks 2^30 - 1 intervals
    /// ahead at most.
    ///
    /// After ZooKeeper's `getWaitTime`. An update with a shorter timeout does not wake a thread
    /// that sleeps for this long. So sleep no longer than the shortest timeout, or have the
    /// updating threads wake the sleeper, or build the queue with a reaper.
    ///
    /// ```
    /// use expiry::{ExpiryQueue, ManualClock};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let builder = ExpiryQueue::builder().interval(Duration::from_secs(1)).clock(clock.clone());
    /// let queue = builder.build_manual()?;
    /// for (session, seconds) in [("a", 7), ("b", 3), ("c", 7)] {
    ///     queue.update(session, Duration::from_secs(seconds))?;
    /// }
    /// let (mut expired, mut closed) = (Vec::new(), Vec::new());
    /// while let Some(wait) = queue.wait_time() {
    ///     clock.advance(wait); // where the clock is a real one, sleep
    ///     while queue.poll_into(&mut expired, 1000).more {}
    ///     for session in expired.drain(..) {
    ///         closed.push((session.expiry().as_secs(), *session));
    ///     }
    /// }
    /// closed.sort();
    /// assert_eq!(closed, [(3, "b"), (7, "a"), (7, "c")]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        self.shared.wait_time()
    }
}
