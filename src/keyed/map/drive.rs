//! Driving a map, asking how it is, and shutting it down.

use super::ExpiringMap;
use crate::keyed::StoreMetrics;
#[cfg(feature = "async")]
use crate::kit::lifecycle::shut_soon;
use crate::kit::polled::Polled;
use crate::kit::target::drains;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

impl<K, V, S> ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Ends what is due, with at most about `budget` steps of work, and calls the listener. Then
    /// drops values that have ended and that no thread can hold any more. Any number of threads may
    /// poll concurrently: a shard that another one drives is left to it. Does nothing in a listener
    /// that a poll has called.
    #[doc(alias("run_pending_tasks", "cleanUp"))]
    pub fn poll(&self, budget: usize) -> Polled {
        self.store.engine.poll_shared(budget, &*self.store, || false)
    }

    /// Number of entries now, with those that are due and not ended yet. O(threads x shards).
    #[doc(alias = "entry_count")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it has been doing. O(threads x shards).
    #[must_use]
    pub fn metrics(&self) -> StoreMetrics {
        self.store.metrics()
    }

    /// Drops, on this thread, the keys and values of all entries that had ended before this call.
    /// Waits until it may, for at most `limit`; in a listener it does not wait. Returns whether all
    /// have been dropped.
    ///
    /// It may not as long as a thread holds a [`Ref`](crate::Ref), an
    /// [`OccupiedEntry`](crate::expiring_map::OccupiedEntry) or an item of an iterator (this
    /// thread, too), or is in the middle of a call. An entry that a caller holds as
    /// [`Removed`](crate::Removed) is not waited for: a flush that begins after the handle was
    /// dropped waits for it. So it is with the items of a channel.
    pub fn flush(&self, limit: Duration) -> bool {
        self.store.flush(limit)
    }

    drains! { "entries", by store }

    /// Ends all entries, calls the listener
    /// ([`RemovalCause::Closed`](crate::RemovalCause::Closed)), and stops the reaper. When this
    /// returns, insertions are refused with [`StoreError::Closed`](crate::StoreError::Closed),
    /// nothing is found, and the reaper has ended. Each thread that calls this waits for that.
    /// Dropping the map does the same.
    ///
    /// In a listener, a handler or a waker that any store calls, and in a `Drop` that a driver
    /// runs, this waits for no thread. Insertions are refused when it returns. The reaper ends the
    /// entries soon after; until then they are found. Without a reaper this call ends them, except
    /// those in shards that other threads are driving: these threads end them when they leave.
    pub fn shutdown(&self) {
        self.owner.shut();
    }

    /// Shuts the map down without blocking the thread; otherwise as [`shutdown`](Self::shutdown).
    /// Insertions are refused when this returns. The reaper ends the entries and calls the
    /// listener, and the future is ready when that is done. The shutdown goes on if the future is
    /// dropped. A map without a reaper has been shut down when this returns.
    #[cfg(feature = "async")]
    pub fn shutdown_async(&self) -> impl std::future::Future<Output = ()> + Send + '_ {
        let store = &*self.store;
        store.removals.target.close();
        shut_soon(&store.engine, self.owner.reaper(), store)
    }
}
