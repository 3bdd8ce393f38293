//! What the driver asks of the store: the [`Frontend`] of a keyed store.

use super::lookup::tail;
use super::{Pair, RemovalCause, Store};
use crate::core::engine::{Claim, Frontend, Pin};
use crate::core::index::ANYWHERE;
use crate::core::lease::Lease;
use crate::core::slot::Slot;
use crate::core::threads::Counter;
use crate::panics::caught;
use crate::sync::step;

/// An entry that the driver is about to end: pinned, with its key's hash and where in its index bucket the slot is
/// named.
pub(crate) struct Named {
    pub(super) pin: Pin,
    pub(super) hash: u32,
    pub(super) position: usize,
}

impl<K: 'static, V: 'static> Frontend<Pair<K, V>> for Store<K, V> {
    type Hold = Named;

    fn may_end(&self, claim: &Claim<'_, Pair<K, V>>, _: Lease) -> Option<Named> {
        // Until the index names the slot, the claiming thread may take the payload out again.
        let hash = self.hash_of(claim.id);
        let index = self.engine.index_of(hash);
        // Before the look at where others lead to.
        let pin = self.engine.pin();
        let position = index.position(&pin, hash, claim.id);
        if position == ANYWHERE && !self.is_named(&pin, claim.id, hash) {
            return None;
        }
        Some(Named { pin, hash, position })
    }

    fn runs_users_code(&self) -> bool {
        self.listener.is_some()
    }

    fn prepare(&self, id: u32, _: Slot<'_, Pair<K, V>>, _: Lease) {
        let hash = self.hash_of(id);
        self.engine.index_of(hash).prefetch(hash);
    }

    fn expired(&self, claim: Claim<'_, Pair<K, V>>, named: Named, _: Lease, _: u64, _: u64) {
        step("expired");
        if self.listener.is_none() {
            return self.expired_unheard(&claim, named);
        }
        let ended = self.ended_by_driver(&claim, named, RemovalCause::Expired);
        self.tell(&ended, RemovalCause::Expired);
    }

    fn close(&self) {
        Store::close(self);
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.engine.balance(|share| {
            let Some(counts) = share.counts.get(shard) else {
                return (0, 0);
            };
            let come = [&counts.inserted, &counts.replacing];
            let gone = [&counts.removed, &counts.expired, &counts.closed, &counts.replaced];
            (Counter::balance(&come, &gone), counts.keys.get())
        })
    }

    fn tail(&self, id: u32) -> u32 {
        tail(&self.engine, id).0
    }

    fn discard(&self, slot: Slot<'_, Pair<K, V>>, free: impl FnOnce()) {
        // SAFETY: from the deferred-free list. No thread that could have found it is pinned any
        // more.
        let pair = unsafe { slot.take() };
        free();
        if std::mem::needs_drop::<(K, V)>() && caught(|| drop(pair)) {
            self.drop_panics.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Whether the index names a slot, or one that leads to it, anywhere. Then it names the slot from here on.
    #[cold]
    #[inline(never)]
    fn is_named(&self, pin: &Pin, id: u32, hash: u32) -> bool {
        let leads = |other| tail(&self.engine, other).0 == id;
        match self.engine.index_of(hash).find(hash, &mut { leads }) {
            Some(other) if other != id => {
                self.swing(pin, hash, None, id);
                true
            }
            found => found.is_some(),
        }
    }
}
