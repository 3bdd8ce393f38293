//! The end of an entry: it takes effect at the swap of the lease, which one thread wins. That
//! thread takes the slot out of the index, and then, unpinned, reports the end.

use super::lookup::tail;
use super::{Found, Mine, Named, Pair, Store, Wanted};
use crate::core::engine::{Chain, Pin, Room};
use crate::core::index::Sighting;
use crate::core::occupancy::Ended;
use crate::keyed::removed::EndedSlot;
use std::borrow::Borrow;

/// How an entry ended.
///
/// ```
/// use expiry::{RemovalCause, ExpiringMap};
///
/// let map = ExpiringMap::builder()
///     .removal_listener(|peer: &u64, _: &(), cause: RemovalCause| match cause {
///         RemovalCause::Expired => println!("{peer} has fallen silent"),
///         RemovalCause::Removed | RemovalCause::Replaced => {}
///         other => println!("{peer}: {other}"),
///     })
///     .build()?;
/// map.insert(7, ())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// The entry's time was up.
    Expired,
    /// A call removed it.
    #[doc(alias = "Explicit")]
    Removed,
    /// A new value took its place.
    Replaced,
    /// The map was full, and evicted it to make room:
    /// [`max_capacity`](crate::ExpiringMapBuilder::max_capacity).
    Size,
    /// The store was shut down.
    Closed,
}

impl std::fmt::Display for RemovalCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RemovalCause::Expired => "expired",
            RemovalCause::Removed => "removed",
            RemovalCause::Replaced => "replaced",
            RemovalCause::Size => "evicted",
            RemovalCause::Closed => "closed",
        })
    }
}

/// Called for every end, once, by the thread that ended the entry, afterwards and unpinned. It may
/// call the store, be slow, or panic.
pub(crate) type Listener<K, V> = dyn Fn(&K, &V, RemovalCause) + Send + Sync;

impl<K: 'static, V: 'static> Store<K, V> {
    /// Ends an entry that was found. Returns `None` if its lease has changed meanwhile. A caller
    /// that is no driver calls `Admission::wake_owed` once it is unpinned.
    #[inline(always)]
    pub(in crate::keyed) fn end(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
        cause: RemovalCause,
    ) -> Option<EndedSlot<&Self, K, V>> {
        let dead = found.seen.end().ok()?;
        let mine = self.engine.mine(pin);
        Some(self.finish(pin, mine, None, dead, (found.hash, found.word), cause))
    }

    /// Ends an entry that was found, whatever has become of its lease. `None` if it has ended.
    #[cold]
    #[inline(never)]
    pub(in crate::keyed) fn end_anyway(
        &self,
        pin: &Pin,
        mut now: Found<'_, K, V>,
        cause: RemovalCause,
    ) -> Option<EndedSlot<&Self, K, V>> {
        // Under the pin the slot has no other occupant.
        while !now.has_ended() {
            if let Some(ended) = self.end(pin, &now, cause) {
                return Some(ended);
            }
            now = now.reloaded();
        }
        None
    }

    /// Ends the entry of a key, even if its time is up.
    #[inline(always)]
    pub(in crate::keyed) fn remove<Q: Eq + ?Sized>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, '_, Q>,
    ) -> Option<EndedSlot<&Self, K, V>>
    where
        K: Borrow<Q>,
    {
        let found = self.find(pin, wanted)?;
        let ended = self.end(pin, &found, RemovalCause::Removed);
        ended.or_else(|| self.remove_changed(wanted.likely.hash, wanted.key))
    }

    /// [`remove`](Self::remove), where another thread has changed the entry meanwhile.
    #[cold]
    #[inline(never)]
    fn remove_changed<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> Option<EndedSlot<&Self, K, V>>
    where
        K: Borrow<Q>,
    {
        let pin = self.engine.pin();
        let wanted = Wanted::new(&self.engine.keys, hash, key);
        loop {
            let found = self.find(&pin, wanted)?;
            if let Some(ended) = self.end(&pin, &found, RemovalCause::Removed) {
                return Some(ended);
            }
        }
    }

    /// Takes an ended slot out of the index. Its permits go to `room`, if any.
    #[inline(always)]
    pub(super) fn finish(
        &self,
        pin: &Pin,
        mine: &Mine,
        room: Option<&mut Room<'_>>,
        dead: Ended<'_, Pair<K, V>>,
        (hash, word): (u32, Option<Sighting<'_>>),
        cause: RemovalCause,
    ) -> EndedSlot<&Self, K, V> {
        let id = dead.id();
        let counts = self.count(mine, id);
        match cause {
            RemovalCause::Expired => counts.expired.add(1),
            RemovalCause::Closed => counts.closed.add(1),
            RemovalCause::Size => counts.evicted.add(1),
            RemovalCause::Removed | RemovalCause::Replaced => counts.removed.add(1),
        }
        self.keys(mine, hash).sub(1);
        let index = self.engine.keys.index_of(hash);
        let leads = move |other| other != id && tail(&self.engine, other).0 == id;
        index.remove(pin, hash, id, word, leads);
        let weight = self.weight_of(id);
        match room {
            Some(room) => room.keep(weight),
            None => self.engine.admission.give_back(weight),
        }
        if self.engine.ended(mine, 1) {
            self.engine.tend_if_wanted(self);
        }
        EndedSlot::of(self, dead)
    }

    /// Takes an entry that the driver, or a shutdown, has ended out of the index.
    pub(in crate::keyed) fn ended_by_driver(
        &self,
        dead: Ended<'_, Pair<K, V>>,
        named: Named<'_>,
        cause: RemovalCause,
    ) -> EndedSlot<&Self, K, V> {
        let mine = self.engine.mine(&named.pin);
        self.finish(&named.pin, mine, None, dead, (named.hash, named.word), cause)
    }

    /// Frees an entry that has expired in a store that reports to no thread. The driver sees to the
    /// deferred-free list when it has left the shard.
    pub(in crate::keyed) fn expired_unheard(&self, dead: Ended<'_, Pair<K, V>>, named: Named<'_>) {
        let mine = self.engine.mine(&named.pin);
        let at = (named.hash, named.word);
        let ended = self.finish(&named.pin, mine, None, dead, at, RemovalCause::Expired);
        let (id, slot, _) = ended.into_parts();
        let chain = Chain::of(id, slot, self.weight_of(id));
        self.engine.free_later(mine, chain, true);
    }

    /// Drops what no receiver gets. Catches and counts a panic of its `Drop`.
    #[inline]
    pub(in crate::keyed) fn discard<T>(&self, value: T) {
        if std::mem::needs_drop::<T>() {
            self.guard(|| drop(value));
        }
    }

    /// Runs the user's code. Catches and counts its panic.
    #[inline]
    pub(in crate::keyed) fn guard(&self, call: impl FnOnce()) {
        self.panics.guard(call);
    }
}
