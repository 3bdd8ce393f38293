//! What a queue shares with its reaper, and where expired keys go.

use super::{Expired, Inner};
use crate::core::engine::{Claim, Frontend};
use crate::core::lease::Lease;
use crate::core::slot::Slot;
use crate::keyed::removed::{EndedSlot, Removed};
use crate::keyed::store::{Named, Pair, RemovalCause};
use crate::keyed::target::Target;
use std::sync::Arc;
use std::time::Duration;

/// What a queue shares with its reaper.
pub(super) struct Shared<K: 'static> {
    /// Expired keys that are still there keep the store, but not the target that they may lie in.
    pub(super) store: Arc<Inner<K>>,
    /// Where expired keys go, unless a poll has found them.
    pub(super) target: Target<Expired<K>, K>,
    /// The keys that a shutdown has ended and has yet to return.
    pub(super) kept: crate::lifecycle::Leftovers<Expired<K>>,
}

impl<K: 'static> Shared<K> {
    /// How long after the queue was built a tick begins.
    pub(super) fn since_start(&self, tick: u64) -> Duration {
        Duration::from_nanos(tick.saturating_mul(self.store.engine.ticks().interval_nanos()))
    }

    /// A key that a shutdown has ended, as it would have expired.
    pub(super) fn left(&self, ended: EndedSlot<&Inner<K>, K, ()>, lease: Lease) -> Expired<K> {
        Expired { ended: Removed::kept(ended, &self.store), expiry: self.expiry(lease) }
    }

    /// When a key is due.
    pub(super) fn expiry(&self, lease: Lease) -> Duration {
        self.since_start(lease.deadline_near(self.store.engine.about_now()))
    }

    /// The key that has expired in this slot, which the caller has ended.
    fn expired(&self, claim: &Claim<'_, Pair<K, ()>>, named: Named, deadline: u64) -> Expired<K> {
        let ended = self.store.ended_by_driver(claim, named, RemovalCause::Expired);
        Expired { ended: Removed::kept(ended, &self.store), expiry: self.since_start(deadline) }
    }
}

impl<K: 'static> Frontend<Pair<K, ()>> for Shared<K> {
    type Hold = Named;

    fn may_end(&self, claim: &Claim<'_, Pair<K, ()>>, lease: Lease) -> Option<Named> {
        self.store.may_end(claim, lease)
    }

    fn prepare(&self, id: u32, slot: Slot<'_, Pair<K, ()>>, lease: Lease) {
        self.store.prepare(id, slot, lease);
    }

    /// Ends the channel when all keys have been sent. A key expires only in a shard that is not
    /// closed yet.
    fn close(&self) {
        let wanted = self.kept.is_wanted();
        let closed = self.store.close_with(|ended, lease| {
            if wanted {
                self.kept.push(self.left(ended, lease));
            }
        });
        if closed {
            self.target.finish();
        }
    }

    fn expired(
        &self,
        claim: Claim<'_, Pair<K, ()>>,
        named: Named,
        _: Lease,
        deadline: u64,
        _: u64,
    ) {
        match &self.target {
            Target::Poll(stack) => stack.push(self.expired(&claim, named, deadline)),
            Target::Listener(listener) => {
                let ended = self.store.ended_by_driver(&claim, named, RemovalCause::Expired);
                self.store.guard(|| listener(ended.key()));
            }
            Target::Channel(sender) => sender.send(self.expired(&claim, named, deadline)),
        }
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.store.live(shard)
    }

    fn tail(&self, id: u32) -> u32 {
        self.store.tail(id)
    }

    fn discard(&self, slot: Slot<'_, Pair<K, ()>>, free: impl FnOnce()) {
        self.store.discard(slot, free);
    }
}

/// A driver's round that gives the keys it finds to `into`.
pub(super) struct Poll<'a, K: 'static, F> {
    pub(super) shared: &'a Shared<K>,
    pub(super) into: F,
}

impl<K, F: Fn(Expired<K>)> Frontend<Pair<K, ()>> for Poll<'_, K, F> {
    type Hold = Named;

    fn may_end(&self, claim: &Claim<'_, Pair<K, ()>>, lease: Lease) -> Option<Named> {
        self.shared.may_end(claim, lease)
    }

    fn prepare(&self, id: u32, slot: Slot<'_, Pair<K, ()>>, lease: Lease) {
        self.shared.prepare(id, slot, lease);
    }

    fn close(&self) {
        self.shared.close();
    }

    fn expired(
        &self,
        claim: Claim<'_, Pair<K, ()>>,
        named: Named,
        _: Lease,
        deadline: u64,
        _: u64,
    ) {
        (self.into)(self.shared.expired(&claim, named, deadline));
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.shared.live(shard)
    }

    fn tail(&self, id: u32) -> u32 {
        self.shared.store.tail(id)
    }

    fn discard(&self, slot: Slot<'_, Pair<K, ()>>, free: impl FnOnce()) {
        self.shared.store.discard(slot, free);
    }
}
