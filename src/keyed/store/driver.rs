//! What the driver asks of the store: the [`Frontend`] of every store type on a [`Store`].

use super::lookup::tail;
use super::{Pair, RemovalCause, Store};
use crate::core::engine::{Claim, Frontend, Pin};
use crate::core::index::ANYWHERE;
use crate::core::lease::Lease;
use crate::core::slot::Slot;
use crate::core::threads::Counter;
use crate::panics::caught;
use crate::sync::step;

/// An entry that the driver is about to end: pinned, with its key's hash and where in its index
/// bucket the slot is named.
pub(crate) struct Named {
    pub(in crate::keyed) pin: Pin,
    pub(super) hash: u32,
    pub(super) position: usize,
}

/// A store type on a [`Store`], which the driver reaches by the store type's [`Frontend`]. The
/// store type says what becomes of an entry that has ended.
pub(in crate::keyed) trait Keyed<K: 'static, V: 'static> {
    fn store(&self) -> &Store<K, V>;

    /// Whether [`report`](Self::report) may run the user's code.
    fn reports_to_user(&self) -> bool {
        true
    }

    /// The driver has ended this entry, which was due at `deadline`. Takes it out of the index, and
    /// reports it. Must not panic.
    fn report(&self, claim: &Claim<'_, Pair<K, V>>, named: Named, deadline: u64);

    /// What [`Frontend::close`] does.
    fn close_all(&self);
}

impl<K: 'static, V: 'static, F: Keyed<K, V>> Frontend<Pair<K, V>> for F {
    type Hold = Named;

    fn may_end(&self, claim: &Claim<'_, Pair<K, V>>, _: Lease) -> Option<Named> {
        let store = self.store();
        // Before the look at where others lead to.
        let pin = store.engine.pin();
        store.named(pin, claim.id)
    }

    fn runs_users_code(&self) -> bool {
        self.reports_to_user()
    }

    fn prepare(&self, id: u32, _: Slot<'_, Pair<K, V>>, _: Lease) {
        let store = self.store();
        let hash = store.hash_of(id);
        store.engine.keys.index_of(hash).prefetch(hash);
    }

    fn expired(&self, claim: Claim<'_, Pair<K, V>>, named: Named, _: Lease, deadline: u64, _: u64) {
        self.report(&claim, named, deadline);
    }

    fn close(&self) {
        self.close_all();
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.store().engine.balance(|share| {
            let Some(counts) = share.counts.get(shard) else {
                return (0, 0);
            };
            let come = [&counts.inserted, &counts.replacing];
            let gone = [
                &counts.removed,
                &counts.evicted,
                &counts.expired,
                &counts.closed,
                &counts.replaced,
            ];
            (Counter::balance(&come, &gone), counts.keys.get())
        })
    }

    fn tail(&self, id: u32) -> u32 {
        tail(&self.store().engine, id).0
    }

    fn weight(&self, id: u32) -> u64 {
        self.store().weight_of(id)
    }

    fn discard(&self, slot: Slot<'_, Pair<K, V>>, free: impl FnOnce()) {
        // SAFETY: from the deferred-free list. No thread that could have found it is pinned any
        // more.
        let pair = unsafe { slot.take() };
        free();
        if std::mem::needs_drop::<(K, V)>() && caught(|| drop(pair)) {
            self.store().drop_panics.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl<K: 'static, V: 'static> Keyed<K, V> for Store<K, V> {
    fn store(&self) -> &Store<K, V> {
        self
    }

    fn reports_to_user(&self) -> bool {
        !self.removals.is_unheard()
    }

    fn report(&self, claim: &Claim<'_, Pair<K, V>>, named: Named, _: u64) {
        step("expired");
        if self.removals.is_unheard() {
            return self.expired_unheard(claim, named);
        }
        let ended = self.ended_by_driver(claim, named, RemovalCause::Expired);
        self.tell(&ended, RemovalCause::Expired);
    }

    fn close_all(&self) {
        self.close();
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Where the index names a slot whose lease this thread has loaded. `None` if it does not:
    /// until then the claiming thread may take the payload out again.
    pub(in crate::keyed) fn named(&self, pin: Pin, id: u32) -> Option<Named> {
        let hash = self.hash_of(id);
        let position = self.engine.keys.index_of(hash).position(&pin, hash, id);
        if position == ANYWHERE && !self.is_named(&pin, id, hash) {
            return None;
        }
        Some(Named { pin, hash, position })
    }

    /// Whether the index names a slot, or one that leads to it, anywhere. Then it names the slot
    /// from here on.
    #[cold]
    #[inline(never)]
    fn is_named(&self, pin: &Pin, id: u32, hash: u32) -> bool {
        let leads = |other| tail(&self.engine, other).0 == id;
        match self.engine.keys.index_of(hash).find(hash, &mut { leads }) {
            Some(other) if other != id => {
                self.swing(pin, hash, None, id);
                true
            }
            found => found.is_some(),
        }
    }
}
