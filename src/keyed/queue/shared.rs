//! What a queue shares with its reaper, and where expired keys go.

use super::{Expired, Inner};
use crate::core::engine::{DueBlock, Pin};
use crate::core::lease::Lease;
use crate::core::occupancy::Ended;
use crate::keyed::removed::{EndedSlot, Removed};
use crate::keyed::store::{Keyed, Named, Pair, RemovalCause};
use crate::kit::target::{ExpiryListener, Target};
use std::sync::Arc;
use std::time::Duration;

/// What a queue shares with its reaper.
pub(super) struct Shared<K: 'static> {
    /// Expired keys that are still there keep the store, but not the target that they may lie in.
    pub(super) store: Arc<Inner<K>>,
    /// Where expired keys go, unless a poll has found them.
    pub(super) target: Target<Expired<K>, ExpiryListener<K>>,
    /// The keys that a shutdown has ended and has yet to return.
    pub(super) kept: crate::kit::lifecycle::Leftovers<Expired<K>>,
}

impl<K: 'static> Shared<K> {
    /// How long after the queue was built a tick begins.
    pub(super) fn since_start(&self, tick: u64) -> Duration {
        Duration::from_nanos(
            tick.saturating_mul(self.store.engine.deadlines.ticks().interval_nanos()),
        )
    }

    /// A key that a shutdown has ended, as it would have expired.
    pub(super) fn left(&self, ended: EndedSlot<&Inner<K>, K, ()>, lease: Lease) -> Expired<K> {
        let ended = Removed::kept(ended, &self.store, RemovalCause::Closed);
        Expired { ended, expiry: self.expiry(lease) }
    }

    /// When a key is due.
    pub(super) fn expiry(&self, lease: Lease) -> Duration {
        self.since_start(self.store.engine.deadlines.of(lease))
    }

    /// The key that has expired in this slot, which the caller has ended.
    fn expired(&self, dead: Ended<'_, Pair<K, ()>>, named: Named, deadline: u64) -> Expired<K> {
        self.gone(self.store.ended_by_driver(dead, named, RemovalCause::Expired), deadline)
    }

    /// A key that has expired, and is out of the index.
    fn gone(&self, ended: EndedSlot<&Inner<K>, K, ()>, deadline: u64) -> Expired<K> {
        let ended = Removed::kept(ended, &self.store, RemovalCause::Expired);
        Expired { ended, expiry: self.since_start(deadline) }
    }
}

impl<K: 'static> Keyed<K, ()> for Shared<K> {
    fn store(&self) -> &Inner<K> {
        &self.store
    }

    fn reports_to_user(&self) -> bool {
        !matches!(self.target, Target::Unheard)
    }

    fn end_together(&self, pin: &Pin, due: &mut DueBlock<'_, Pair<K, ()>>) {
        self.store.end_unheard(pin, due);
    }

    fn report(&self, dead: Ended<'_, Pair<K, ()>>, named: Named, deadline: u64) {
        match &self.target {
            Target::Unheard => self.store.expired_unheard(dead, named),
            Target::Poll(stack) => stack.push(self.expired(dead, named, deadline)),
            Target::Listener(listener) => {
                let ended = self.store.ended_by_driver(dead, named, RemovalCause::Expired);
                self.store.guard(|| listener(ended.key()));
            }
            Target::Channel(sender) => sender.send(self.expired(dead, named, deadline)),
        }
    }

    fn close_all(&self) {
        self.store.close_to(&self.target, &self.kept, |ended, lease| self.left(ended, lease), drop);
    }
}

/// A driver's round that gives the keys it finds to `into`, which keeps them: it is called under a
/// pin.
pub(super) struct Poll<'a, K: 'static, F> {
    pub(super) shared: &'a Shared<K>,
    pub(super) into: F,
}

impl<K: 'static, F: Fn(Expired<K>)> Keyed<K, ()> for Poll<'_, K, F> {
    fn store(&self) -> &Inner<K> {
        &self.shared.store
    }

    fn reports_to_user(&self) -> bool {
        false
    }

    fn end_together(&self, pin: &Pin, due: &mut DueBlock<'_, Pair<K, ()>>) {
        let gone = |ended, deadline| (self.into)(self.shared.gone(ended, deadline));
        self.shared.store.end_due(pin, due, gone);
    }

    fn report(&self, dead: Ended<'_, Pair<K, ()>>, named: Named, deadline: u64) {
        (self.into)(self.shared.expired(dead, named, deadline));
    }

    fn close_all(&self) {
        self.shared.close_all();
    }
}
