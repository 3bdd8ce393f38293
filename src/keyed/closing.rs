//! Closing sessions: entries that are neither touched nor expired any more, and are there until
//! they are removed; and looks at entries by their place.

use super::store::{Found, Place, Store, Touched, Wanted};
use crate::core::engine::Pin;
use crate::core::index::ANYWHERE;
use crate::core::lease::{set, State};
use crate::sync::Ordering;
use std::borrow::Borrow;

/// States of an entry that has not ended, where nothing is replaced.
pub(super) const STAYS: u16 = set(&[State::Live, State::Closing]);

impl<K: 'static, V: 'static> Store<K, V> {
    /// Takes an entry out of what is touched and expires, by the swap that a touch or an expiry
    /// would need: `LIVE -> CLOSING`. The error says why not: it is not there, or another call has
    /// done so before.
    pub(super) fn set_closing<Q: Eq + ?Sized>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, Q>,
    ) -> Result<(), Touched>
    where
        K: Borrow<Q>,
    {
        loop {
            let found = self.find(pin, wanted).ok_or(Touched::Gone)?;
            if found.lease.is(State::Closing) {
                return Err(Touched::Closing);
            }
            let closing = found.lease.with_state(State::Closing);
            if found.slot.swap_lease(found.lease, closing).is_ok() {
                return Ok(());
            }
        }
    }

    /// The entry that `place` names, if it is still there, in a store in which nothing is replaced:
    /// no look-up. The caller is pinned, and has the place from a call that saw the entry
    /// published.
    pub(super) fn stay(&self, _pin: &Pin, place: Place) -> Option<Found<'_, K, V>> {
        let spot = self.engine.slots.spot(place.id)?;
        let lease = spot.slot.lease();
        // survives: the pinned caller read the lease with Acquire: the hash is that occupant's.
        let same = lease.is_in(STAYS)
            && lease.generation() == place.generation
            && spot.note.load(Ordering::Acquire) == place.hash;
        same.then_some(Found {
            id: place.id,
            slot: spot.slot,
            lease,
            hash: place.hash,
            position: ANYWHERE,
        })
    }
}
