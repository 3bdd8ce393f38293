//! Freeing: what becomes of the slots of entries that have ended.
//!
//! `core::engine::freeing` frees slots. This module calls it, and decides where a `Drop` may run.

use super::{Pair, Store};
use crate::core::engine::Chain;
use crate::core::lease::{Lease, State};
use crate::core::occupancy::Occupant;
use crate::core::slot::{Payload, Slot};
use crate::core::threads::is_pinned;
use crate::kit::panics::{caught, is_inside};
use crate::sync::thread;
use std::time::Duration;

impl<K: 'static, V: 'static> Store<K, V> {
    /// Key and value lie outside the slot, so an ended entry holds memory until it is freed.
    const IS_BOXED: bool = Pair::<K, V>::SIZE < std::mem::size_of::<(K, V)>();

    /// An ended entry goes to the deferred-free list of this thread. Out of line and by value, so
    /// that its owner stays in registers.
    #[inline(never)]
    pub(in crate::keyed) fn free_later(&self, id: u32, slot: Slot<'_, Pair<K, V>>) {
        let drops = std::mem::needs_drop::<(K, V)>() && self.drops;
        let chain = Chain::of(id, slot, self.weight_of(id));
        let owed = self.engine.with_stripe(|mine, _| self.engine.free_later(mine, chain, drops));
        match owed {
            0 => {}
            usize::MAX => self.engine.reclaim_now(owed, self),
            owed if drops || Self::IS_BOXED => self.relieve(owed),
            _ => {}
        }
    }

    /// Drops up to so many of what waits, if too much does. Not where a `Drop` must not run: while
    /// this thread is pinned in a store, drives one, or is inside a call of the user's code.
    #[cold]
    fn relieve(&self, most: usize) {
        let may_drop = !is_pinned() && !is_inside() && !self.engine.is_driving();
        if may_drop && self.engine.has_backlog(self) {
            self.engine.reclaim_now(most, self);
            // A thread that is pinned and not running holds back what waits: let it run.
            thread::yield_now();
        }
    }

    /// Drops what has ended in a store that is shut down, and so has no driver that would. A
    /// driver's own round leaves it to the driver, which drops when it is away from every shard. A
    /// pinned thread leaves it to the next one.
    #[cold]
    pub(in crate::keyed) fn free_undriven(&self) {
        if !self.engine.is_driving() && !is_pinned() {
            self.engine.flush(Duration::ZERO, self);
        }
    }

    /// Drops, on this thread, what had ended before. Waits until it may, for at most `limit`; a
    /// thread inside a call of the user's code does not wait. Returns whether all has been dropped.
    pub(in crate::keyed) fn flush(&self, limit: Duration) -> bool {
        let limit = if is_inside() { Duration::ZERO } else { limit };
        self.engine.flush(limit, self)
    }
}

impl<K: 'static, V: 'static> Drop for Store<K, V> {
    fn drop(&mut self) {
        // No other thread uses the store any more.
        self.engine.for_each(|Occupant { slot, lease, .. }| {
            if !lease.is(State::Free) {
                // SAFETY: a slot that is not free has its key and value.
                let pair = unsafe { slot.take() };
                slot.set_lease(Lease::free(lease.generation()));
                caught(|| drop(pair));
            }
        });
    }
}
