//! Looking at all entries while they come and go.
//!
//! An entry that stays is met exactly once, as slots do not move. One whose value is replaced
//! meanwhile goes on in another slot: it may be met twice, or not at all.

use super::store::{Found, Pair, Store, HELD};
use crate::core::engine::{Claim, Face, Pin, Walk};
use crate::core::slot::Slot;
use crate::core::slots::Run;
use crate::sync::Ordering;

impl<K: 'static, V: 'static> Store<K, V> {
    /// The entry in a slot, if there is one that has not ended.
    pub(super) fn look_at<'a>(
        &self,
        _pin: &Pin,
        id: u32,
        slot: Slot<'a, Pair<K, V>>,
    ) -> Option<Found<'a, K, V>> {
        let lease = slot.lease();
        if !lease.is_in(HELD) {
            return None;
        }
        // In the index, or still its claimer's.
        if !self.may_end(&Claim::of(id, slot, lease), lease) {
            return None;
        }
        // Published, so under the pin it has no other occupant; ended since, perhaps.
        let again = slot.lease();
        let there = again.is_in(HELD) && again.incarnation() == lease.incarnation();
        there.then(|| Found {
            id,
            slot,
            lease: again,
            hash: self
                .engine
                .spot(id)
                .map_or(0, |spot| spot.note.load(Ordering::Relaxed)),
            position: None,
        })
    }

    /// Calls `f` with every entry that has not ended. Each is read consistently; together they are no snapshot. The store is pinned
    /// while one is shown.
    pub(super) fn each(&self, mut f: impl FnMut(&Pin, &Found<'_, K, V>)) {
        let mut walk = Walk::default();
        while let Some((first, slots)) = self.engine.next_bucket(&mut walk) {
            for (id, slot) in (first..).zip(Run::iter(slots)) {
                let pin = self.engine.pin();
                if let Some(found) = self.look_at(&pin, id, slot) {
                    f(&pin, &found);
                }
            }
        }
    }
}
