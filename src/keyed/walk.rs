//! Looking at all entries while they come and go.

use super::store::{Found, Store, HELD};
use crate::core::engine::{Claim, Face, Walk};
use crate::core::lease::State;
use crate::core::slots::Slot;
use crate::sync::grace::Pin;
use crate::sync::Ordering;

impl<K: 'static, V: 'static, S> Store<K, V, S> {
    /// The entry in a slot, live, or somebody's who is taking leave of it; and what keeps its node.
    pub(super) fn look_at<'a>(
        &self,
        id: u32,
        slot: &'a Slot,
    ) -> Option<(Found<'a>, u64, Option<Pin>)> {
        loop {
            let lease = slot.lease();
            if !lease.is_in(HELD) {
                return None;
            }
            let bits = slot.key.load(Ordering::Acquire);
            let pin = self.pin(self.engine.hash(bits).0);
            // In the index, or still its claimer's. Sees through what is being replaced.
            let published = self.may_end(&Claim::of(id, slot, lease), lease);
            let word = slot.word.load(Ordering::Acquire);
            // Unless it is the same tenancy afterwards, these may be of different ones.
            let again = slot.lease();
            if again.incarnation() != lease.incarnation() || again.state() == State::Replacing {
                continue;
            }
            let there = published && again.is_in(HELD);
            return there.then(|| (Found::of(id, slot, word, again), bits, pin));
        }
    }

    /// Calls `f` with every entry that has not ended, and what its slot has as its key. Each is read consistently; together they
    /// are no snapshot. One is held while it is shown.
    pub(super) fn each(&self, mut f: impl FnMut(&Found<'_>, u64)) {
        let mut walk = Walk::default();
        while let Some((first, slots)) = self.engine.next_bucket(&mut walk) {
            for (id, slot) in (first..).zip(slots) {
                if let Some((found, bits, _pin)) = self.look_at(id, slot) {
                    f(&found, bits);
                }
            }
        }
    }
}
