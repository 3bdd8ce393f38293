//! A map's bound, while it is in use.

use super::ExpiringMap;
use crate::error::BuildError;
use std::hash::{BuildHasher, Hash};

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// The bound: the most entries, or what they may weigh; `None` if there is none.
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        self.store.engine.admission.limit()
    }

    /// How much of the [capacity](Self::capacity) is in use: what the entries weigh, each 1 unless
    /// the map has a weigher. Those are included that other threads are in the middle of inserting,
    /// and those whose time is up but which no driver has ended yet.
    /// `None` if there is no bound: then nothing is counted.
    #[doc(alias = "weighted_size")]
    #[must_use]
    pub fn weight(&self) -> Option<u64> {
        self.store.engine.admission.taken()
    }

    /// Changes the bound of a map that was built with
    /// [`max_capacity`](crate::ExpiringMapBuilder::max_capacity). This ends the entries beyond it
    /// one by one before it returns, expired ones first, and calls the listener. Of several calls
    /// at once, the last one's bound stays.
    ///
    /// Other threads' insertions do not use the room that this makes: they evict, too, until the
    /// bound holds. Where this finds only insertions in progress it returns, and those that follow
    /// evict the rest.
    ///
    /// O(entries beyond the bound). The policy's queue and fingerprints keep the size that the
    /// first bound gave them.
    ///
    /// ```
    /// let pages = expiry::ExpiringMap::<u64, &str>::builder().max_capacity(1000).build_manual()?;
    /// for page in 0..1000 {
    ///     pages.insert(page, "<h1>")?;
    /// }
    /// pages.set_max_capacity(100)?; // memory is short
    /// assert_eq!((pages.len(), pages.weight(), pages.capacity()), (100, Some(100), Some(100)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError::ZeroCapacity`]: to empty the map, [`clear`](Self::clear) it.
    /// [`BuildError::CapacityTooLarge`], and [`BuildError::OtherBound`]. Then nothing has changed.
    pub fn set_max_capacity(&self, capacity: usize) -> Result<(), BuildError> {
        if capacity as u64 > 1 << 31 {
            return Err(BuildError::CapacityTooLarge { capacity });
        }
        self.set_bound(capacity, false)
    }

    /// Changes the bound of a map that was built with
    /// [`max_weight`](crate::ExpiringMapBuilder::max_weight), as
    /// [`set_max_capacity`](Self::set_max_capacity) does for one without weights. From then on the
    /// map refuses an entry that alone weighs more than the bound, and evicts one that is there.
    ///
    /// # Errors
    ///
    /// [`BuildError::ZeroCapacity`], [`BuildError::OtherBound`].
    pub fn set_max_weight(&self, weight: usize) -> Result<(), BuildError> {
        self.set_bound(weight, true)
    }

    fn set_bound(&self, bound: usize, weighs: bool) -> Result<(), BuildError> {
        if bound == 0 {
            return Err(BuildError::ZeroCapacity);
        }
        let store = &*self.store;
        match &store.eviction {
            Some(eviction) if store.weigher.is_some() == weighs => {
                store.set_limit(eviction, bound as u64, store);
                Ok(())
            }
            _ => Err(BuildError::OtherBound),
        }
    }
}
