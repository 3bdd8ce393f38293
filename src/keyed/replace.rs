//! Replacing a value in place. `docs/keyed.md` says why it is sound.

use super::node::{Ended, Node, NONE};
use super::store::{Found, Store};
use crate::core::engine::Claim;
use crate::core::lease::{next_incarnation, Lease, State};
use crate::core::slots::Slot;
use crate::sync::Ordering;

impl<K: 'static, V: 'static, S> Store<K, V, S> {
    /// Replaces the node of an entry that was found live by `word`, with `deadline`. The old one's, if this did; `None` if the
    /// entry has changed meanwhile, and then `word` is the caller's as before, but may have been seen: its key and value
    /// have not, the rest is to be retired.
    ///
    /// The caller is pinned. Linearizes where the lease is swapped to REPLACING, by this thread or a helper.
    pub(super) fn replace(
        &self,
        found: &Found<'_>,
        word: u64,
        deadline: u64,
    ) -> Option<Ended<K, V>> {
        let (slot, lease) = (found.slot, found.lease);
        let next = next_incarnation(lease.incarnation());
        // SAFETY: offered nowhere: the caller's alone.
        let node = unsafe { Node::<K, V>::at(word) };
        node.ask_for(Lease::new(State::Replacing, next, deadline));
        // Release: who finds the offer finds what it asks for.
        let offered = slot
            .owner
            .compare_exchange(NONE, word, Ordering::AcqRel, Ordering::Relaxed);
        if offered.is_err() {
            self.help(slot, found.id);
            return None;
        }
        let old = loop {
            self.help(slot, found.id);
            if let Some(old) = node.taken() {
                // It may be on its way in, in another thread's hands.
                self.help(slot, found.id);
                break old;
            }
            if slot.owner.load(Ordering::Acquire) != word {
                // Cleared: before it was, it was marked if it had been taken, and had moved in.
                break node.taken()?;
            }
            let now = slot.lease();
            let open = now.state() == State::Live && now.incarnation() == lease.incarnation();
            let taking = now.state() == State::Replacing && now.incarnation() == next;
            if !open && !taking {
                let withdrawn =
                    slot.owner
                        .compare_exchange(word, NONE, Ordering::AcqRel, Ordering::Acquire);
                if withdrawn.is_ok() {
                    break node.taken()?;
                }
            }
        };
        let (shard, _) = self.engine.hash(slot.key.load(Ordering::Relaxed));
        self.engine
            .with_stripe(|mine, _| self.count(mine, found.id).replaced.add(1));
        // SAFETY: this thread's offer has taken its place: out of its slot, and nobody else's. (Not `found.word`, which is of the
        // same incarnation: these come round.)
        Some(unsafe { Ended::new(old, 0, self.engine.index(shard).grace().clone()) })
    }

    /// Sees an offer through, or clears it if it came too late. The caller is pinned.
    pub(super) fn help(&self, slot: &Slot, id: u32) {
        let offer = slot.owner.load(Ordering::Acquire);
        if offer == NONE {
            let lease = slot.lease();
            if lease.state() == State::Replacing {
                self.settle(slot, id, lease);
            }
            return;
        }
        // SAFETY: found in a slot while pinned; it leaves that before it is retired.
        let asked = unsafe { Node::<K, V>::at(offer) }.lease();
        // Offered elsewhere meanwhile, what it asks for may not be for this slot.
        if slot.owner.load(Ordering::Acquire) != offer {
            return;
        }
        // After the offer: incarnations only go up, so one that is over now was not made for one to come.
        let lease = slot.lease();
        if lease.state() == State::Replacing {
            return self.settle(slot, id, lease);
        }
        if asked.state() == State::Replacing
            && lease.state() == State::Live
            && next_incarnation(lease.incarnation()) == asked.incarnation()
        {
            // A touch may come between: then who offered it, or whoever comes by, tries again.
            if slot.swap_lease(lease, asked).is_ok() {
                self.settle(slot, id, asked);
            }
            return;
        }
        // Over, or moved in and not cleared yet.
        let _ = slot
            .owner
            .compare_exchange(offer, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// As [`settle`](Self::settle), of an entry that was found REPLACING.
    pub(super) fn see_through(&self, found: &Found<'_>) {
        self.settle(found.slot, found.id, found.lease);
    }

    /// Lets the new value move in: `lease` is REPLACING, and from here on whoever looks sees it through. The caller is pinned.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&self, slot: &Slot, id: u32, lease: Lease) {
        let offer = slot.owner.load(Ordering::Acquire);
        let word = slot.word.load(Ordering::Acquire);
        if slot.lease() != lease {
            // It has been seen through.
            return;
        }
        let live = lease.with_state(State::Live);
        // While the lease is this one, the offer is the one that was taken, the word its or the one's before.
        if offer != NONE {
            // Leases come round, offers do not.
            if slot.owner.load(Ordering::Acquire) != offer {
                return;
            }
            // SAFETY: found in a slot while pinned.
            let node = unsafe { Node::<K, V>::at(offer) };
            if word != offer {
                node.take_place(word);
                // Fails if somebody has done it; while we are pinned no other node has the old one's address.
                let _ =
                    slot.word
                        .compare_exchange(word, offer, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        if slot.swap_lease(lease, live).is_ok() {
            let deadline = lease.deadline_near(self.engine.about_now());
            if self.engine.enforce(id, deadline).is_err() {
                self.end_closed(&Claim::of(id, slot, live), live);
            }
        }
        if offer != NONE {
            let _ = slot
                .owner
                .compare_exchange(offer, NONE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}
