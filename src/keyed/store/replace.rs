//! Replacement: the old slot forwards to a new one.
//!
//! `docs/design.md`, "Replacing", has the protocol.

use super::enter::{Attempt, Entered, Hindered};
use super::{Found, Store};
use crate::core::engine::{Pin, Refused, Room};
use crate::core::index::ANYWHERE;
use crate::core::lease::{Lease, State};
use crate::keyed::idle::Term;
use crate::keyed::removed::EndedSlot;
use crate::keyed::StoreError;
use crate::sync::step;

impl<K: 'static, V: 'static> Store<K, V> {
    /// Gives an entry that was found live a new value. It takes effect at the swap of the old lease
    /// to `FORWARD`. Runs none of the user's code.
    #[inline(always)]
    pub(in crate::keyed) fn replace(
        &self,
        pin: &Pin,
        room: &mut Room<'_>,
        found: &Found<'_, K, V>,
        pair: (K, V),
        term: Term,
    ) -> Attempt<'_, K, V> {
        if self.engine.admission.is_refusing() {
            return Err((Hindered::Refused(StoreError::Closed), pair));
        }
        // The term goes by the very lease that the swap takes away: a touch in between makes the
        // swap fail.
        let weight = term.weight;
        let term = if term.keeps { self.term_of(found) } else { term };
        let term = Term { weight, ..term };
        // The new entry takes over the old one's share of the capacity.
        let old = self.weight_of(found.id);
        let more = weight.saturating_sub(old);
        if let Err(refused) = room.take(more) {
            return Err((Hindered::Refused(refused.into()), pair));
        }
        self.engine.with_stripe(|mine, stripe| {
            let mut refused = Refused::OutOfMemory;
            let place = self.engine.claim_permitted(mine, stripe, term.deadline, &mut refused);
            let Some((claim, spot)) = place else {
                room.keep(more);
                return Err((Hindered::Refused(refused.into()), pair));
            };
            let lease = self.fill((claim, spot), found.hash, pair, term, true);
            let _telling = mine.telling(term.deadline);
            let forward = found.lease.with_link(State::Forward, claim.id);
            if found.slot.swap_lease(found.lease, forward).is_err() {
                // SAFETY: no lease has led to it.
                let pair = unsafe { claim.slot.take() };
                // The old entry keeps its share of the capacity.
                claim.slot.set_lease(Lease::free(claim.generation));
                room.keep(more);
                return Err((Hindered::Overtaken, pair));
            }
            step("forwarded");
            let seen = (found.id, found.position);
            self.swing(pin, found.hash, Some(seen), claim.id);
            room.keep(old.saturating_sub(weight));
            room.give_back();
            self.count(mine, found.id).replaced.add(1);
            self.count(mine, claim.id).replacing.add(1);
            // SAFETY: forwarded by this thread, and the index names the new slot now.
            let old = unsafe { EndedSlot::of(self, found.id, found.slot) };
            let new = Found {
                id: claim.id,
                slot: claim.slot,
                lease,
                hash: found.hash,
                position: ANYWHERE,
            };
            let closed = self.enforce(pin, &new, spot, term.deadline);
            if let (true, Some((_, bound))) = (term.keeps, term.idle) {
                self.keep_bound(found, &new, bound);
            }
            Ok(Entered { new, old: Some(old), closed })
        })
    }
}
