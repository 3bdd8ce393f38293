//! Driving a map, asking how it is, and shutting it down.

use super::ExpiringMap;
use crate::keyed::StoreMetrics;
use crate::kit::lifecycle::drain;
#[cfg(feature = "async")]
use crate::kit::lifecycle::{drain_soon, shut_soon};
use crate::kit::polled::Polled;
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

    /// Number of entries now, with those whose time is up but which no driver has ended yet.
    /// O(threads x shards).
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
    /// dropped waits for it. The channel's handles are such.
    pub fn flush(&self, limit: Duration) -> bool {
        self.store.flush(limit)
    }

    /// Waits for room, where the [capacity](crate::ExpiringMapBuilder::capacity) is bounded: see
    /// [`CapacityReady`](crate::CapacityReady), which has an example. An entry that is due makes
    /// room when the reaper, or a thread that polls, ends it.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn room(&self) -> crate::CapacityReady<'_> {
        crate::CapacityReady::new(self.store.engine.admission.door())
    }

    /// Refuses new entries, and waits until none is left, for at most `limit` of real time: they
    /// expire, or are removed. Returns whether none is left. Blocks; in a listener or a handler it
    /// does not wait. Polls meanwhile where there is no reaper. A [`shutdown`](Self::shutdown) ends
    /// what is left.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let map = expiry::ExpiringMap::<u64, &str>::builder().build()?;
    /// map.insert(1, "a request")?;
    /// let worker = std::thread::spawn({
    ///     let map = map.clone();
    ///     move || map.remove(&1).is_some()
    /// });
    /// assert!(map.drain(Duration::from_secs(30)) && map.insert(2, "another").is_err());
    /// map.shutdown();
    /// assert!(worker.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, limit: Duration) -> bool {
        let store = &*self.store;
        drain(&store.engine, self.owner.reaper(), store, limit)
    }

    /// Drains the map without blocking the thread; otherwise as [`drain`](Self::drain). Insertions
    /// are refused when this returns. The reaper wakes the future every millisecond, which looks;
    /// it checks the limit, too. Without a reaper each poll wakes the future, which polls. The map
    /// goes on refusing if the future is dropped.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let map = expiry::ExpiringMap::new(Duration::from_millis(20))?;
    /// map.insert(1, "one")?;
    /// let drained = map.drain_async(Duration::from_secs(30));
    /// assert!(map.insert(2, "two").is_err()); // from here on
    /// assert!(drained.await && map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn drain_async(
        &self,
        limit: Duration,
    ) -> impl std::future::Future<Output = bool> + Send + '_ {
        let store = &*self.store;
        drain_soon(&store.engine, self.owner.reaper(), store, limit)
    }

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
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn shutdown_async(&self) -> impl std::future::Future<Output = ()> + Send + '_ {
        let store = &*self.store;
        store.wait_no_more();
        shut_soon(&store.engine, self.owner.reaper(), store)
    }
}
