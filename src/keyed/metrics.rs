//! What operators can see of a keyed store.

use super::store::Store;
use crate::core::engine::Frontend;
use crate::core::lateness::Lateness;
use crate::kit::snapshot::snapshot;
use std::time::Duration;

snapshot! {
    /// Counters of one shard of a keyed store. Monotonic but for `live`, `slots` and `tables`.
    /// Read one after another while others count, so sums are exact only when nothing is going
    /// on: then `inserted` is `live + removed + evicted + expired + closed`.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().shards(4).build()?;
    /// for key in 0..100 {
    ///     map.insert(key, "value")?;
    /// }
    /// map.remove(&7);
    /// let metrics = map.metrics();
    /// let live: Vec<u64> = metrics.shards.iter().map(|shard| shard.live).collect();
    /// assert_eq!((live.len(), live.iter().sum()), (4, metrics.total.live));
    /// let total = metrics.total;
    /// assert_eq!(total.inserted, total.live + total.removed + total.evicted + total.expired + total.closed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct StoreShardMetrics of [<K: 'static, V: 'static>] store: Store<K, V>, shard {
        /// Entries now, those included whose time is up but which no thread has ended yet.
        live: u64 as LIVE = store.live(shard).0;
        /// Slots whose memory is held, in use or not. A slot takes 8 bytes, and key and value
        /// (a pointer to them above 64 bytes), and 5 bytes beside it. A key takes 16 to 29 more
        /// in the index. `live` of `slots` is the share of the held memory in use.
        slots: u64 as SLOTS = store.engine.held(shard);
        /// Tables of the index: 1, or more while the driver migrates keys, to grow or shrink it.
        tables: u64 as TABLES = 1 + store.engine.keys.at(shard).tables_to_migrate() as u64;
        /// Entries that came in, under a key that had none.
        inserted: u64 as INSERTED sum inserted;
        /// Values that took another's place.
        replaced: u64 as REPLACED sum replaced;
        /// Entries that a call removed.
        removed: u64 as REMOVED sum removed;
        /// Entries that a full map has evicted.
        evicted: u64 as EVICTED sum evicted;
        /// Entries whose time was up.
        expired: u64 as EXPIRED sum expired;
        /// Entries that ended with the store.
        closed: u64 as CLOSED sum closed;
        /// How late expirations were seen.
        lateness: Lateness as LATENESS = store.engine.lateness(shard);
    }
}

snapshot! {
    /// A snapshot of a keyed store's counters.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// map.insert(1, "one")?;
    /// map.insert(1, "eins")?;
    /// map.remove(&1);
    /// let total = map.metrics().total;
    /// assert_eq!((total.inserted, total.replaced, total.removed, total.live), (1, 1, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct StoreMetrics by StoreShardMetrics of [<K: 'static, V: 'static>] store: Store<K, V> {
        /// The most entries there may be, if that is bounded.
        capacity: Option<u64> as CAPACITY = store.engine.admission.limit();
        /// What all entries weigh, those included that are on their way in; each is 1 unless the
        /// map has a weigher. `None` where the capacity is not bounded.
        weight: Option<u64> as WEIGHT = store.engine.admission.taken();
        /// Calls that found no room for their entry: the capacity was reached, there was no
        /// memory, or there were too many keys of one hash.
        refused: u64 as REFUSED = store.engine.refusals();
        /// Look-ups that found an entry, of a map with
        /// [`statistics`](crate::ExpiringMapBuilder::statistics).
        hits: u64 as HITS = store.lookups(|lookups| &lookups.hits);
        /// Look-ups that found none, of such a map.
        misses: u64 as MISSES = store.lookups(|lookups| &lookups.misses);
        /// Loads whose callers got a value, of such a map: also one that the map has not kept,
        /// because a later call had [invalidated](crate::expiring_map::LoadGuard::insert) the load.
        loads: u64 as LOADS = store.lookups(|lookups| &lookups.loads);
        /// Loads that have failed, panicked, were cancelled or refused, of such a map.
        failed_loads: u64 as FAILED_LOADS = store.lookups(|lookups| &lookups.failed_loads);
        /// Time that the reaper has spent working, of all the time since the store was built.
        reaper_busy: Duration as REAPER_BUSY = Duration::from_nanos(store.engine.busy.get());
        /// How often it has woken up.
        reaper_rounds: u64 as REAPER_ROUNDS = store.engine.rounds.get();
        /// Caught panics of the listener or handler, and of the clock.
        listener_panics: u64 as HANDLER_PANICS
            = store.panics.count() + store.engine.deadlines.clock_panics();
        /// Keys of a queue, or removals of a map, that went to the second queue of a full channel;
        /// see [`WhenFull::Spill`](crate::WhenFull::Spill).
        spilled: u64 as SPILLED = store.removals.target.astray().0;
        /// Keys, or removals, that were not delivered: dropped by
        /// [`WhenFull::Drop`](crate::WhenFull::Drop), or the receiver was gone.
        undelivered: u64 as UNDELIVERED = store.removals.target.astray().1;
        /// Panics of `Drop` of this store's keys and values that the store has caught.
        drop_panics: u64 as DROP_PANICS = store.drop_panics.count();
        /// Entries that have ended and whose memory is not free yet: a reader may hold them, or
        /// the driver has yet to drop key and value. Those that a caller, or a channel, holds as
        /// `Removed` are not counted.
        unreclaimed: u64 as UNRECLAIMED = store.engine.unreclaimed();
    }
    publish
}

impl<K: 'static, V: 'static> Store<K, V> {
    pub(super) fn metrics(&self) -> StoreMetrics {
        StoreMetrics::of(self)
    }
}
