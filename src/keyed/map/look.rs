//! Reading: look-ups, which use an entry or leave it as it is.

use super::{ExpiringMap, Iter, Ref};
use crate::core::lease::State;
use crate::keyed::store::Found;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// The entry of a key, unless its time is up; this is a use of it. Wait-free, but where another
    /// thread replaces the value just then, or the index grows; one clock reading. With a time to
    /// idle also a swap, once in every interval.
    #[inline(always)]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.get_and(key, |_| ()).map(|(entry, ())| entry)
    }

    /// [`get`](Self::get), and what `ask` says of the entry.
    #[inline(always)]
    pub(super) fn get_and<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        ask: impl Fn(&Found<'_, K, V>) -> R,
    ) -> Option<(Ref<'_, K, V>, R)>
    where
        K: Borrow<Q>,
    {
        let (wanted, pin) = self.seek(key);
        while let Some(found) = self.store.living(&pin, wanted) {
            if self.use_found(&found) && self.store.note_hit(&pin, &found) {
                let (lent, answer) = (found.lend(), ask(&found));
                // SAFETY: found under the pin.
                return Some((unsafe { Ref::new(&self.store, lent, pin) }, answer));
            }
        }
        self.store.note_lookup(&pin, |lookups| &lookups.misses);
        None
    }

    /// Notes that an entry has been used, if that matters. False if it has ended meanwhile.
    #[inline(always)]
    pub(super) fn use_found(&self, found: &Found<'_, K, V>) -> bool {
        if found.lease.is_used_and_live() {
            return true;
        }
        self.store.note_use(found);
        found.lease.is(State::Live) || self.store.prolong(*found)
    }

    /// Whether a read of this entry may change its deadline.
    #[inline(always)]
    pub(super) fn renews(&self, found: &Found<'_, K, V>) -> bool {
        found.lease.is(State::LiveIdle) || self.store.expiry.is_some()
    }

    /// [`use_found`](Self::use_found) of a read that is no look-up: asks the policy.
    pub(super) fn read_found(&self, found: &Found<'_, K, V>) -> bool {
        self.use_found(found) && self.store.note_read(found)
    }

    /// Lends the value of a key, as [`get`](Self::get) does, but is no use of the entry: its time
    /// to idle does not begin anew.
    #[inline(always)]
    pub fn peek<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.peek_and(key, |_| ()).map(|(entry, ())| entry)
    }

    /// [`peek`](Self::peek), and what `ask` says of the entry.
    #[inline(always)]
    pub(super) fn peek_and<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        ask: impl Fn(&Found<'_, K, V>) -> R,
    ) -> Option<(Ref<'_, K, V>, R)>
    where
        K: Borrow<Q>,
    {
        let (wanted, pin) = self.seek(key);
        let found = self.store.living(&pin, wanted)?;
        let (lent, answer) = (found.lend(), ask(&found));
        // SAFETY: found under the pin.
        Some((unsafe { Ref::new(&self.store, lent, pin) }, answer))
    }

    /// A clone of a key's value; otherwise as [`get`](Self::get).
    #[inline]
    pub fn get_cloned<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.get(key).map(|entry| entry.value().clone())
    }

    /// Whether the key has an entry whose time is not up. Does not use it.
    #[inline]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.peek(key).is_some()
    }

    /// How long until a key's entry expires, unless it is used; [`Duration::MAX`] if it never does.
    /// This is no use of the entry.
    ///
    /// Deadlines are rounded up, so this may exceed the lifetime that was asked for: by an
    /// [interval](crate::ExpiringMapBuilder::interval), or without one by a 256th of the lifetime,
    /// and by the clock's lag. Subtract it with [`Duration::saturating_sub`].
    #[doc(alias("ttl", "getExpiresAfter"))]
    pub fn remaining<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let (wanted, pin) = self.seek(key);
        Some(self.store.left(self.store.living(&pin, wanted)?.lease))
    }

    /// When a key's entry expires, unless it is used, by the system's monotonic clock. `None` also
    /// where it never does. With the default clock the answer stays the same until the entry is
    /// renewed; with another clock it is reckoned from a reading of both clocks.
    #[doc(alias = "deadline")]
    pub fn expires_at<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
    {
        let (wanted, pin) = self.seek(key);
        let found = self.store.living(&pin, wanted)?;
        self.store.engine.deadlines.instant(found.lease)
    }

    /// The `n` keys whose entries expire next, soonest first, and how long each has left; fewer if
    /// fewer have a deadline. This is no use of the entries. Walks all entries, as
    /// [`iter`](Self::iter) does.
    #[must_use]
    pub fn soonest(&self, n: usize) -> Vec<(K, Duration)>
    where
        K: Clone,
    {
        self.store.first(n, true, |deadline| deadline)
    }

    /// The `n` entries that expire last, the latest first; otherwise as [`soonest`](Self::soonest).
    /// Entries without a deadline are not among them.
    #[must_use]
    pub fn latest(&self, n: usize) -> Vec<(K, Duration)>
    where
        K: Clone,
    {
        self.store.first(n, true, |deadline| !deadline)
    }

    /// All entries, in no order. A key that is there all the while is met exactly once, with a
    /// value that it had meanwhile, also if other threads replace values, and the map grows or
    /// shrinks. A key that comes or goes meanwhile is met at most once. This is no use of them.
    /// About 0.1 us each.
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter::new(self)
    }
}
