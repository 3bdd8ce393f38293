//! What operators can see of a keyed store.

use super::node::DROP_PANICS;
use super::store::Store;
use crate::core::engine::Face;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of a keyed store. Monotonic but for `live`, `slots` and `tables`. Read one after another while others count, so
/// sums are exact only when nothing is going on: then `inserted` is `live + removed + expired + closed`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreMetrics {
    /// Entries now, those included whose time is up but which nobody has come to yet.
    pub live: u64,
    /// Slots whose memory is held, in use or not: about 37 bytes each, and 16 to 29 more for a key in the index; the key and
    /// value on the heap come on top. `live` of `slots` is the load.
    pub slots: u64,
    /// Tables of the index: one for each shard, and more while it grows or shrinks and the driver carries keys over.
    pub tables: u64,
    /// Entries that came in, under a key that had none.
    pub inserted: u64,
    /// Values that took another's place.
    pub replaced: u64,
    /// Entries that somebody removed.
    pub removed: u64,
    /// Entries whose time was up.
    pub expired: u64,
    /// Entries that ended with the store.
    pub closed: u64,
    /// Panics of the listener, or handler, that were caught.
    pub listener_panics: u64,
    /// Keys that went to the second queue of a channel; see [`WhenFull::Spill`](crate::WhenFull::Spill).
    pub spilled: u64,
    /// Keys that nobody got: dropped by [`WhenFull::Drop`](crate::WhenFull::Drop), or the receiver was gone.
    pub undelivered: u64,
    /// Panics of keys' and values' `Drop` that were caught, in all keyed stores of this process: memory outlives its store.
    pub drop_panics: u64,
}

impl<K: 'static, V: 'static, S> Store<K, V, S> {
    pub(super) fn metrics(&self) -> StoreMetrics {
        let mut sum = StoreMetrics {
            listener_panics: self.panics.load(Relaxed),
            drop_panics: DROP_PANICS.load(Relaxed),
            ..StoreMetrics::default()
        };
        for shard in 0..self.engine.shards() {
            sum.live += self.live(shard).0;
            sum.slots += self.engine.held(shard);
            sum.tables += 1 + self.engine.index(shard).tables_to_carry() as u64;
            for share in self.engine.stripes() {
                let counts = &share.counts[shard];
                sum.inserted += counts.inserted.get();
                sum.replaced += counts.replaced.get();
                sum.removed += counts.removed.get();
                sum.expired += counts.expired.get();
                sum.closed += counts.closed.get();
            }
        }
        sum
    }
}
