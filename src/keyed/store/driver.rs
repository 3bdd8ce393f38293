//! What the driver asks of the store: the [`Face`] of a keyed store.

use super::lookup::tail;
use super::{Cause, Pair, Store};
use crate::core::engine::{Claim, Face};
use crate::core::index::ANYWHERE;
use crate::core::lease::Lease;
use crate::core::slot::Slot;
use crate::core::threads::Counter;
use crate::panics::caught;
use crate::sync::step;

impl<K: 'static, V: 'static> Face<Pair<K, V>> for Store<K, V> {
    fn may_end(&self, claim: &Claim<'_, Pair<K, V>>, _: Lease) -> bool {
        // Until the index names the slot, the claiming thread may take the payload out again.
        let hash = self.hash_of(claim.id);
        let index = self.engine.index_of(hash);
        // Before the look at where others lead to.
        let pin = self.engine.pin();
        if index.position(&pin, hash, claim.id) != ANYWHERE {
            return true;
        }
        let leads = |id| tail(&self.engine, id).0 == claim.id;
        match index.find(hash, &mut { leads }) {
            Some(id) if id != claim.id => {
                self.swing(&pin, hash, None, claim.id);
                true
            }
            found => found.is_some(),
        }
    }

    fn prepare(&self, id: u32, _: Slot<'_, Pair<K, V>>, _: Lease) {
        let hash = self.hash_of(id);
        self.engine.index_of(hash).prefetch(hash);
    }

    fn expired(&self, claim: Claim<'_, Pair<K, V>>, _: Lease, _: u64, _: u64) {
        step("expired");
        let ended = self.ended_by_driver(&claim, Cause::Expired);
        self.tell(&ended, Cause::Expired);
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
            let gone = [
                &counts.removed,
                &counts.expired,
                &counts.closed,
                &counts.replaced,
            ];
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
            self.drop_panics
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
