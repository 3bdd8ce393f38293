//! Shutdown: ends every entry, and then frees their slots.

use super::{Named, Pair, RemovalCause, Store};
use crate::core::occupancy::Ended;
use crate::keyed::removed::EndedSlot;
use crate::kit::lifecycle::{shut, Reaping, Shut};
use std::time::Duration;

/// How long a shutdown waits for pinned threads, so that it can drop what has ended.
const PARTING: Duration =
    if cfg!(expiry_loom) { Duration::ZERO } else { Duration::from_millis(10) };

impl<K: 'static, V: 'static> Store<K, V> {
    /// Ends every entry, and reports it. Returns whether the store is closed: see
    /// [`Engine::close`](crate::core::engine::Engine::close).
    pub(in crate::keyed) fn close(&self) -> bool {
        self.close_with(|ended| self.tell(ended, RemovalCause::Closed))
    }

    /// Ends every entry, and gives each to `left` instead of the listener.
    pub(in crate::keyed) fn close_with<'s>(
        &'s self,
        mut left: impl FnMut(EndedSlot<&'s Self, K, V>),
    ) -> bool {
        let give = |dead: Ended<'_, Pair<K, V>>, named: Named<'_>| {
            left(self.ended_by_driver(dead, named, RemovalCause::Closed));
        };
        let closed = self.engine.close(self, give);
        if closed {
            self.part();
        }
        closed
    }

    /// Drops what has ended: no driver comes any more. Waits for pinned threads, `PARTING` at most.
    pub(in crate::keyed) fn part(&self) {
        self.engine.flush(PARTING, self);
    }
}

impl<K: 'static, V: 'static> Shut for Store<K, V> {
    fn shut(&self, reaper: Option<&Reaping>) {
        self.removals.target.close();
        shut(&self.engine, reaper, self);
    }
}
