//! Leave-taking: entries that are neither touched nor expired any more, and are there until somebody removes them; and looks at
//! entries by their place.

use super::node::NONE;
use super::store::{Found, Place, Store, Touched, Wanted};
use crate::core::lease::{set, State};

/// States of an entry that has not ended, where nothing is replaced.
pub(super) const STAYS: u16 = set(&[State::Live, State::Closing]);

impl<K: 'static, V: 'static, S> Store<K, V, S> {
    /// Takes an entry out of what is touched and expires, by the swap that a touch or an expiry would need: `LIVE -> CLOSING`.
    /// The error says why not: it is not there, or somebody has done so before. The caller is pinned.
    pub(super) fn set_closing<F: Fn(&K) -> bool>(
        &self,
        wanted: Wanted<'_, F>,
    ) -> Result<(), Touched> {
        loop {
            let found = self.find(wanted).ok_or(Touched::Gone)?;
            match found.lease.state() {
                State::Closing => return Err(Touched::Closing),
                State::Replacing => self.see_through(&found),
                _ => {
                    let closing = found.lease.with_state(State::Closing);
                    if found.slot.swap_lease(found.lease, closing).is_ok() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The entry that `place` names, if it is still there, in a store in which nothing is replaced: no look-up. The caller is
    /// pinned, and has the place from whoever saw the entry published.
    ///
    /// The word is read before the lease: of an earlier tenant it cannot be, of a later one the lease would not be this one's.
    /// So the node is retired after the pin, if it is.
    pub(super) fn stay(&self, place: Place) -> Option<Found<'_>> {
        let slot = self.engine.slot(place.id)?;
        let (word, lease) = slot.read(place.bits, STAYS)?;
        let same = word != NONE && lease.incarnation() == place.incarnation;
        same.then(|| Found::of(place.id, slot, word, lease))
    }
}
