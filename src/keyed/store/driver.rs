//! What the driver asks of the store: the [`Frontend`] of every store type on a [`Store`].

use super::lookup::tail;
use super::{Pair, RemovalCause, Store};
use crate::core::engine::{bits, Chain, DueBlock, Frontend, Pin};
use crate::core::index::Sighting;
use crate::core::lease::{Lease, EXPIRING};
use crate::core::occupancy::{Ended, Occupant};
use crate::core::slot::Slot;
use crate::core::threads::Counter;
use crate::keyed::removed::EndedSlot;
use crate::sync::{step, AtomicU32, Ordering};
use crate::time::NEVER;

/// An entry that the driver is about to end: its pin, its key's hash, and the index's word for it,
/// if a glance has shown that.
pub(crate) struct Named<'s> {
    pub(in crate::keyed) pin: Pin,
    pub(super) hash: u32,
    pub(super) word: Option<Sighting<'s>>,
}

/// A store type on a [`Store`], and so a [`Frontend`]. It says what becomes of an ended entry.
pub(in crate::keyed) trait Keyed<K: 'static, V: 'static> {
    fn store(&self) -> &Store<K, V>;

    /// Whether [`report`](Self::report) may run the user's code.
    fn reports_to_user(&self) -> bool;

    /// Ends what is due in a block, by [`Store::end_due`], if no report runs the user's code:
    /// unreported, but in a poll.
    fn end_together(&self, pin: &Pin, due: &mut DueBlock<'_, Pair<K, V>>) {
        self.store().end_unheard(pin, due);
    }

    /// The driver has ended this entry, which was due at `deadline`. Takes it out of the index, and
    /// reports it. Must not panic.
    fn report(&self, dead: Ended<'_, Pair<K, V>>, named: Named<'_>, deadline: u64);

    /// What [`Frontend::close`] does.
    fn close_all(&self);
}

impl<K: 'static, V: 'static, F: Keyed<K, V>> Frontend<Pair<K, V>> for F {
    type Hold<'s>
        = Named<'s>
    where
        Self: 's;

    fn may_end(&self, live: &Occupant<'_, Pair<K, V>>) -> Option<Named<'_>> {
        let store = self.store();
        // Pinned before `named` follows the links of other slots.
        let pin = store.engine.pin();
        store.named(pin, live.id)
    }

    fn runs_users_code(&self) -> bool {
        self.reports_to_user()
    }

    #[inline]
    fn end_block(&self, pin: &Pin, due: &mut DueBlock<'_, Pair<K, V>>) {
        self.end_together(pin, due);
    }

    fn prepare(&self, _: Slot<'_, Pair<K, V>>, hash: &AtomicU32, _: Lease) {
        let hash = hash.load(Ordering::Relaxed);
        self.store().engine.keys.likely(hash);
    }

    fn expired(&self, dead: Ended<'_, Pair<K, V>>, named: Named<'_>, deadline: u64, _: u64) {
        self.report(dead, named, deadline);
    }

    fn close(&self) {
        self.close_all();
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.store().engine.balance(
            shard,
            |share| &share.counts,
            |counts| {
                let come = [&counts.inserted, &counts.replacing];
                let gone = [
                    &counts.removed,
                    &counts.evicted,
                    &counts.expired,
                    &counts.closed,
                    &counts.replaced,
                ];
                (Counter::balance(&come, &gone), counts.keys.get())
            },
        )
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
        if std::mem::needs_drop::<(K, V)>() {
            self.store().drop_panics.guard(|| drop(pair));
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

    fn report(&self, dead: Ended<'_, Pair<K, V>>, named: Named<'_>, _: u64) {
        step("expired");
        if self.removals.is_unheard() {
            return self.expired_unheard(dead, named);
        }
        let ended = self.ended_by_driver(dead, named, RemovalCause::Expired);
        self.tell(ended, RemovalCause::Expired);
    }

    fn close_all(&self) {
        self.close();
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Ends what is due in a block, unreported. The deferred-free list gets the slots as one chain.
    pub(in crate::keyed) fn end_unheard(&self, pin: &Pin, due: &mut DueBlock<'_, Pair<K, V>>) {
        let mut chain: Option<Chain<'_, Pair<K, V>>> = None;
        self.end_due(pin, due, |ended, _| {
            let (id, slot, _) = ended.into_parts();
            let weight = self.weight_of(id);
            match &mut chain {
                Some(chain) => chain.add(id, slot, weight),
                None => chain = Some(Chain::of(id, slot, weight)),
            }
        });
        if let Some(chain) = chain {
            self.engine.free_later(self.engine.mine(pin), chain, true);
        }
    }

    /// Ends what is due in a block, and calls `gone` with each entry and its deadline, under the
    /// pin: it runs none of the user's code. The driver ends the others one by one: those whose
    /// word is not at hand, and those that another thread renews meanwhile.
    #[inline(always)]
    pub(in crate::keyed) fn end_due<'s>(
        &'s self,
        pin: &Pin,
        due: &mut DueBlock<'_, Pair<K, V>>,
        mut gone: impl FnMut(EndedSlot<&'s Self, K, V>, u64),
    ) {
        let engine = &self.engine;
        let Some(notes) = engine.slots.notes(due.first) else {
            return;
        };
        let (mine, shard) = (engine.mine(pin), engine.shard_of(due.first));
        let (mut ended, mut weight) = (0, 0);
        for at in bits(due.left) {
            let Some(slot) = due.slots.get(at as usize) else {
                continue;
            };
            let lease = slot.lease();
            let deadline = match lease.is_in(EXPIRING) {
                true => engine.deadlines.of_block(lease, due.next),
                false => NEVER,
            };
            if deadline > due.tick {
                due.deadlines[at as usize] = deadline;
                due.left &= !(1 << at);
                continue;
            }
            let (id, hash) = (due.first + at, notes[at as usize].load(Ordering::Relaxed));
            let named_in = engine.keys.shard_of_hash(hash);
            let index = engine.keys.at(named_in);
            // Before the end: until the index has named the slot, its claimer owns it.
            let Some(word) = index.sight(pin, hash, id) else {
                continue;
            };
            let Ok(dead) = (Occupant { id, slot, lease }).end() else {
                continue;
            };
            step("expired");
            due.left &= !(1 << at);
            index.remove(pin, hash, id, Some(word), |other| {
                other != id && tail(engine, other).0 == id
            });
            mine.frontend.counts[named_in].keys.sub(1);
            engine.late(shard, deadline, due.now);
            ended += 1;
            weight += self.weight_of(id);
            gone(EndedSlot::of(self, dead), deadline);
        }
        if ended == 0 {
            return;
        }
        due.ended = ended;
        let ended = ended as u64;
        mine.frontend.counts[shard].expired.add(ended);
        engine.admission.give_back(weight);
        if engine.ended(mine, ended) {
            engine.tend_if_wanted(self);
        }
    }

    /// The index names this slot, whose lease this thread has loaded. `None` if it does not: until
    /// then the claiming thread may take the payload out again.
    pub(in crate::keyed) fn named(&self, pin: Pin, id: u32) -> Option<Named<'_>> {
        let hash = self.hash_of(id);
        let word = self.engine.keys.index_of(hash).sight(&pin, hash, id);
        (word.is_some() || self.settle_name(&pin, id, hash)).then_some(Named { pin, hash, word })
    }

    /// Whether the index names a slot, or one that leads to it. If so, it now names the slot.
    #[cold]
    #[inline(never)]
    fn settle_name(&self, pin: &Pin, id: u32, hash: u32) -> bool {
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
