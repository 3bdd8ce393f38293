//! Looking at all entries while they come and go.
//!
//! A walk goes over the keys, not over the slots: shard by shard, in the order of
//! `core::index::walk`. So it meets a key once, even if a replacement moves its entry to another
//! slot. It meets all keys of one hash at once.

use super::lookup::tail;
use super::{Found, Place, Store, HELD};
use crate::core::engine::Pin;
use crate::core::lease::State;
use crate::core::occupancy::Occupant;
use crate::core::prefetch_at;
use crate::core::slot::Slot;
use crate::sync::Ordering;
use crate::time::NEVER;
use std::time::Duration;

#[derive(Default)]
pub(in crate::keyed) struct Walk {
    shard: usize,
    /// The cursor in this shard's index.
    place: u64,
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Moves a walk one step on. Puts one slot for each key that it has come to into `met`, which
    /// is empty. Returns `false` at the end.
    pub(in crate::keyed) fn step(&self, pin: &Pin, walk: &mut Walk, met: &mut Vec<u32>) -> bool {
        if walk.shard == self.engine.shards() {
            return false;
        }
        let ahead = |id| {
            if let Some(slot) = self.engine.slots.slot(id) {
                prefetch_at(slot.address());
                self.engine.slots.prefetch_note(id);
            }
        };
        let index = self.engine.keys.at(walk.shard);
        if !index.next(pin, &mut walk.place, met, ahead) {
            *walk = Walk { shard: walk.shard + 1, place: 0 };
        }
        if met.len() > 1 {
            // A slot that leads to another of them has had the same key. If two slots of one key
            // are not linked, the first had ended before the other was published (model
            // `a_walk_meets_keys_of_one_hash`).
            let slots = met.clone();
            let next = |id: u32| {
                let lease = self.engine.slots.slot(id).map(Slot::lease)?;
                (lease.is(State::Forward)).then(|| lease.link())
            };
            met.retain(|&id| {
                !std::iter::successors(next(id), |&id| next(id)).any(|id| slots.contains(&id))
            });
        }
        true
    }

    /// The entry, if it has not ended, that a slot named under this pin holds or leads to.
    pub(in crate::keyed) fn held_at<'g>(
        &'g self,
        pin: &'g Pin,
        id: u32,
    ) -> Option<Found<'g, K, V>> {
        let (id, lease) = tail(&self.engine, id);
        let slot = self.engine.slots.slot(id)?;
        let lease = lease.filter(|lease| lease.is_in(HELD))?;
        Some(Found::under(pin, Occupant { id, slot, lease }, self.hash_of(id), None))
    }

    /// The entry that was found in this place, as it is now, if it has not ended. Where values are
    /// replaced the caller has been pinned since it was found.
    pub(in crate::keyed) fn at<'g>(
        &'g self,
        pin: &'g Pin,
        place: Place,
    ) -> Option<Found<'g, K, V>> {
        let spot = self.engine.slots.spot(place.id)?;
        let lease = spot.slot.lease();
        // survives: the pinned caller read the lease with Acquire: the hash is that occupant's.
        let same = lease.is_in(HELD)
            && lease.generation() == place.generation
            && spot.note.load(Ordering::Acquire) == place.hash;
        let seen = Occupant { id: place.id, slot: spot.slot, lease };
        same.then(|| Found::under(pin, seen, place.hash, None))
    }

    /// [`held_at`](Self::held_at), but `None` if the entry's time is up.
    pub(in crate::keyed) fn living_at<'g>(
        &'g self,
        pin: &'g Pin,
        id: u32,
    ) -> Option<Found<'g, K, V>> {
        self.if_living(|| self.held_at(pin, id))
    }

    /// The `n` keys of the lowest-ranked deadlines, in order, and how long each has left. Left out
    /// are keys without a deadline and, `to_the_tick`, those whose time is up.
    pub(in crate::keyed) fn first(
        &self,
        n: usize,
        to_the_tick: bool,
        rank: impl Fn(u64) -> u64,
    ) -> Vec<(K, Duration)>
    where
        K: Clone,
    {
        let deadlines = &self.engine.deadlines;
        let mut first: Vec<(u64, K)> = Vec::new();
        self.each(|_pin, found| {
            let deadline = deadlines.of(found.lease);
            let lives = !to_the_tick || self.is_living_at(found, deadlines.now());
            if n > 0 && lives && deadline != NEVER {
                let (key, _) = found.pair();
                first.push((deadline, key.clone()));
            }
            if first.len() >= n.saturating_mul(2).max(64) {
                first.select_nth_unstable_by_key(n, |&(deadline, _)| rank(deadline));
                first.truncate(n);
            }
        });
        first.sort_unstable_by_key(|&(deadline, _)| rank(deadline));
        first.truncate(n);
        let now = deadlines.now();
        let left = |(deadline, key)| (key, deadlines.ticks().until(now, deadline));
        first.into_iter().map(left).collect()
    }

    /// Calls `f` with every entry that has not ended. Each is read consistently; together they are
    /// no snapshot. The store is pinned while `f` runs.
    pub(in crate::keyed) fn each(&self, mut f: impl FnMut(&Pin, &Found<'_, K, V>)) {
        let (mut walk, mut met) = (Walk::default(), Vec::new());
        loop {
            let pin = self.engine.pin();
            if !self.step(&pin, &mut walk, &mut met) {
                return;
            }
            for id in met.drain(..) {
                if let Some(found) = self.held_at(&pin, id) {
                    f(&pin, &found);
                }
            }
        }
    }
}
