//! What operators can see of a keyed store.

use super::listener_thread::ListenerThread;
use super::store::Store;
use crate::core::engine::Face;
use crate::core::lateness::Lateness;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Counters of one shard of a keyed store. Monotonic but for `live`, `slots` and `tables`.
/// Read one after another while others count, so sums are exact only when nothing is going
/// on: then `inserted` is `live + removed + expired + closed`.
///
/// # Examples
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
/// assert_eq!(total.inserted, total.live + total.removed + total.expired + total.closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StoreShardMetrics {
    /// Entries now, those included whose time is up but which no thread has ended yet.
    pub live: u64,
    /// Slots whose memory is held, in use or not. A slot takes 8 bytes, and key and value
    /// (a pointer to them above 64 bytes), and 5 bytes beside it. A key takes 16 to 29 more
    /// in the index. `live` of `slots` is the share of the held memory in use.
    pub slots: u64,
    /// Tables of the index: 1, and more while it grows or shrinks and the driver migrates
    /// keys.
    pub tables: u64,
    /// Entries that came in, under a key that had none.
    pub inserted: u64,
    /// Values that took another's place.
    pub replaced: u64,
    /// Entries that a call removed.
    pub removed: u64,
    /// Entries whose time was up.
    pub expired: u64,
    /// Entries that ended with the store.
    pub closed: u64,
}

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
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StoreMetrics {
    /// Shard by shard.
    pub shards: Vec<StoreShardMetrics>,
    /// All shards together.
    pub total: StoreShardMetrics,
    /// The most entries there may be, if that is bounded.
    pub capacity: Option<u64>,
    /// Calls that found no room for their entry: the capacity was reached, there was no
    /// memory, or there were too many keys of one hash.
    pub refused: u64,
    /// How late expirations were seen.
    pub lateness: Lateness,
    /// Time that the reaper has spent working, of all the time since the store was built.
    pub reaper_busy: Duration,
    /// How often it has woken up.
    pub reaper_rounds: u64,
    /// Panics of the listener, or handler, that were caught, and of the clock on the reaper's thread.
    pub listener_panics: u64,
    /// Ends that wait for a map's [listener
    /// thread](crate::ExpiringMapBuilder::listener_thread) to call the listener. Each keeps
    /// its entry's slot, with key and value.
    pub listener_waiting: u64,
    /// Keys of a queue, or ends of a map with a listener thread, that went to the second
    /// queue of a full channel; see [`WhenFull::Spill`](crate::WhenFull::Spill).
    pub spilled: u64,
    /// Keys, or ends, that were not delivered: dropped by
    /// [`WhenFull::Drop`](crate::WhenFull::Drop), or the receiver was gone.
    pub undelivered: u64,
    /// Panics of `Drop` of this store's keys and values that the store has caught.
    pub drop_panics: u64,
    /// Entries that have ended and whose memory is not free yet: a reader may hold them, or
    /// the driver has yet to drop key and value. Those that a caller holds as `Ended`, or
    /// that wait for the listener thread, are not counted.
    pub unreclaimed: u64,
}

impl<K: 'static, V: 'static> Store<K, V> {
    fn shard_metrics(&self, shard: usize) -> StoreShardMetrics {
        let mut sum = StoreShardMetrics {
            live: self.live(shard).0,
            slots: self.engine.held(shard),
            tables: 1 + self.engine.index(shard).tables_to_carry() as u64,
            ..StoreShardMetrics::default()
        };
        for share in self.engine.stripes() {
            let Some(counts) = share.counts.get(shard) else {
                continue;
            };
            sum.inserted += counts.inserted.get();
            sum.replaced += counts.replaced.get();
            sum.removed += counts.removed.get();
            sum.expired += counts.expired.get();
            sum.closed += counts.closed.get();
        }
        sum
    }

    pub(super) fn metrics(&self) -> StoreMetrics {
        let shards: Vec<_> =
            (0..self.engine.shards()).map(|shard| self.shard_metrics(shard)).collect();
        let total = shards.iter().fold(StoreShardMetrics::default(), |a, b| StoreShardMetrics {
            live: a.live + b.live,
            slots: a.slots + b.slots,
            tables: a.tables + b.tables,
            inserted: a.inserted + b.inserted,
            replaced: a.replaced + b.replaced,
            removed: a.removed + b.removed,
            expired: a.expired + b.expired,
            closed: a.closed + b.closed,
        });
        let astray = self.listener_thread.as_ref().map(ListenerThread::astray);
        let (spilled, undelivered) = astray.unwrap_or_default();
        StoreMetrics {
            shards,
            total,
            capacity: self.engine.capacity(),
            refused: self.engine.refusals(),
            lateness: self.engine.lateness(),
            reaper_busy: Duration::from_nanos(self.engine.busy.get()),
            reaper_rounds: self.engine.rounds.get(),
            listener_panics: self.panics.load(Relaxed) + self.engine.clock_panics.get(),
            listener_waiting: self.listener_thread.as_ref().map_or(0, ListenerThread::waiting),
            spilled,
            undelivered,
            drop_panics: self.drop_panics.load(Relaxed),
            unreclaimed: self.engine.unreclaimed(),
        }
    }
}
