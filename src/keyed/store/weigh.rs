//! Weights: a map's bound may be the sum of what its entries weigh.
//!
//! An entry holds as many permits of `core::engine::admission` as it weighs. Its weight lies beside
//! its slot, and stays while the slot has this occupant. A value that takes another one's place
//! takes over its permits, and takes or gives back the difference. A thread takes permits before it
//! publishes the entry, and gives them back after the entry has left the index, so the sum of the
//! live entries never exceeds the bound.
//!
//! A call that evicts keeps the permits of what it evicts until it has as many as it needs: see
//! [`Room`](crate::core::engine::Room). Each eviction yields at least one, and no other call takes
//! them. So the call evicts at most as many entries as its own weighs, whatever other threads
//! insert. Where it finds nothing to evict it gives back what it keeps: otherwise two calls could
//! keep half of the permits each, and wait for each other.

use super::{Pair, Store};
use crate::core::slots::Spot;
use crate::keyed::StoreError;
use crate::sync::Ordering;
use std::sync::Arc;

/// The user's code, which says what an entry weighs.
pub(crate) type Weigher<K, V> = Arc<dyn Fn(&K, &V) -> u32 + Send + Sync>;

impl<K: 'static, V: 'static> Store<K, V> {
    /// What an entry weighs, at least 1. Runs the user's code.
    #[cold]
    pub(super) fn weigh(
        &self,
        weigher: &Weigher<K, V>,
        key: &K,
        value: &V,
    ) -> Result<u64, StoreError> {
        let weight = u64::from(weigher(key, value)).max(1);
        match self.engine.admission.limit() {
            Some(limit) if weight > limit => Err(StoreError::TooHeavy),
            _ => Ok(weight),
        }
    }

    #[inline(always)]
    pub(super) fn note_weight(&self, spot: Spot<'_, Pair<K, V>>, weight: u64) {
        if self.weigher.is_some() {
            spot.term.weight.store(weight, Ordering::Relaxed);
        }
    }

    /// The weight of the entry in a slot that has no other occupant meanwhile.
    #[inline(always)]
    pub(super) fn weight_of(&self, id: u32) -> u64 {
        if self.weigher.is_none() {
            return 1;
        }
        let spot = self.engine.slots.spot(id);
        // survives: the lease publishes it, and the caller has loaded that with Acquire.
        spot.map_or(1, |spot| spot.term.weight.load(Ordering::Relaxed))
    }
}
