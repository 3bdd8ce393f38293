//! Replacement: the old slot forwards to a new one.
//!
//! `docs/design.md`, "Replacing", has the protocol.

use super::{Found, Fresh, Store};
use crate::core::engine::{Pin, Refused};
use crate::core::index::ANYWHERE;
use crate::core::lease::State;
use crate::keyed::idle::Term;
use crate::keyed::removed::EndedSlot;
use crate::keyed::StoreError;
use crate::sync::step;

/// What a replacement came to.
pub(in crate::keyed) enum Replaced<'a, K: 'static, V: 'static> {
    /// The old value, and the new entry. If the store is shut down, this call has ended it again.
    Done {
        old: EndedSlot<&'a Store<K, V>, K, V>,
        new: Found<'a, K, V>,
        closed: Option<EndedSlot<&'a Store<K, V>, K, V>>,
    },
    /// The entry has changed meanwhile.
    Changed,
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Gives an entry that was found live a new value. It takes effect at the swap of the old lease
    /// to `FORWARD`. Key and value that are not in stay in `fresh`.
    pub(in crate::keyed) fn replace(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
        fresh: &mut Fresh<K, V>,
        term: Term,
    ) -> Result<Replaced<'_, K, V>, StoreError> {
        self.engine.with_stripe(|mine, stripe| {
            let mut refused = Refused::OutOfMemory;
            // The new entry takes over the old one's share of the capacity.
            let place = self
                .engine
                .claim_instead(mine, stripe, term.deadline, &mut refused);
            let Some((claim, spot)) = place else {
                return Err(refused.into());
            };
            let Some(pair) = fresh.take() else {
                unreachable!("a call inserts what it has yet to insert");
            };
            let lease = self.fill((claim, spot), found.hash, pair, term);
            let _telling = mine.telling(term.deadline);
            let forward = found.lease.with_link(State::Forward, claim.id);
            if found.slot.swap_lease(found.lease, forward).is_err() {
                // SAFETY: no lease has led to it.
                *fresh = Some(unsafe { claim.slot.take() });
                self.engine.free_instead(&claim);
                return Ok(Replaced::Changed);
            }
            step("forwarded");
            let seen = (found.id, found.position);
            self.swing(pin, found.hash, Some(seen), claim.id);
            self.count(mine, found.id).replaced.add(1);
            self.count(mine, claim.id).replacing.add(1);
            // SAFETY: forwarded by this thread, and the index names the new slot now.
            let old = unsafe { EndedSlot::new(self, found.id) };
            let new = Found {
                id: claim.id,
                slot: claim.slot,
                lease,
                hash: found.hash,
                position: ANYWHERE,
            };
            let closed = self.enforce(pin, mine, &new, spot, term.deadline);
            Ok(Replaced::Done { old, new, closed })
        })
    }
}
