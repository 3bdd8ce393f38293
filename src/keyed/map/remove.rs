//! Removing: one entry, or all for which a condition holds.

use super::ExpiringMap;
use crate::keyed::living::Notice;
use crate::keyed::removed::Removed;
use crate::keyed::store::{RemovalCause, Walk, Wanted};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// Removed entries of which the listener has yet to hear, also where a user's closure panics.
struct Notices<'a, K: 'static, V: 'static>(Vec<Notice<'a, K, V>>);

impl<K, V> Notices<'_, K, V> {
    /// The caller is unpinned.
    fn tell(&mut self) {
        self.0.drain(..).for_each(|notice| notice.tell());
    }
}

impl<K, V> Drop for Notices<'_, K, V> {
    fn drop(&mut self) {
        self.tell();
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// Ends the entry of a key. Returns it, unless its time was up. [`Removed::try_into_value`]
    /// gives the value itself. A load of the key that is under way is
    /// [invalidated](Self::get_or_insert_with).
    ///
    /// Lock-free while no load is under way; else it takes a lock for some instructions. This is so
    /// for all calls that remove.
    #[doc(alias("invalidate", "evict", "getdel"))]
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Removed<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.invalidate_load(key);
        self.remove_hashed(self.wanted(self.hash(key), key))
    }

    /// Runs, unpinned, before a call looks for the entry that it replaces or removes.
    #[inline(always)]
    pub(super) fn invalidate_load<Q: Hash + ?Sized>(&self, key: &Q) {
        self.flights.invalidate(|| self.hasher.hash_one(key));
    }

    #[inline(always)]
    pub(super) fn remove_hashed<Q: Eq + ?Sized>(
        &self,
        wanted: Wanted<'_, '_, Q>,
    ) -> Option<Removed<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let (store, cause) = (&*self.store, RemovalCause::Removed);
        let pin = store.engine.pin();
        let found = store.find(&pin, wanted)?;
        if store.is_living(&found) {
            if let Some(ended) = store.end(&pin, &found, cause) {
                drop(pin);
                return Some(Notice { ended, cause }.told());
            }
        }
        drop(pin);
        self.remove_changed(wanted.likely.hash, wanted.key)
    }

    /// [`remove_hashed`](Self::remove_hashed), where the entry has changed or its time is up.
    #[cold]
    #[inline(never)]
    fn remove_changed<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> Option<Removed<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let (wanted, pin) = (self.wanted(hash, key), self.store.engine.pin());
        let (ended, is_living) = loop {
            let found = self.store.find(&pin, wanted)?;
            let (is_living, cause) = (self.store.is_living(&found), RemovalCause::Removed);
            let ended = match is_living {
                true => self.store.end(&pin, &found, cause).map(|ended| Notice { ended, cause }),
                false => self.store.make_way(&pin, &found),
            };
            if let Some(ended) = ended {
                break (ended, is_living);
            }
        };
        drop(pin);
        let removed = ended.told();
        is_living.then_some(removed)
    }

    /// Removes the entry if `condition` holds for its very value; otherwise as
    /// [`remove`](Self::remove). The map calls `condition` again if another thread replaces the
    /// value meanwhile. A load of the key is invalidated in any case.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// map.insert("key", 1)?;
    /// assert!(map.remove_if("key", |_, value| *value > 1).is_none());
    /// assert_eq!(map.remove_if("key", |_, value| *value == 1).as_deref(), Some(&1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_if<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> Option<Removed<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.invalidate_load(key);
        let (wanted, pin) = self.seek(key);
        let notice = loop {
            let found = self.store.living(&pin, wanted)?;
            let (key, value) = found.pair();
            if !condition(key, value) {
                return None;
            }
            if let Some(notice) = self.store.remove_this(&pin, &found) {
                break notice;
            }
        };
        drop(pin);
        let ended = notice.told();
        // Before the handle is on its way out: what the closure holds may panic when it is dropped.
        drop(condition);
        Some(ended)
    }

    /// Removes the entries for which `keep` is false, and only the very value that `keep` was asked
    /// about. Each key that is there all the while is asked about, as [`iter`](Self::iter) meets
    /// it. If another thread replaces a value that `keep` has just rejected, `keep` is asked again,
    /// about the new value. All loads under way are invalidated: `keep` has not seen their values.
    #[doc(alias = "invalidate_entries_if")]
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.flights.invalidate_all();
        let (mut walk, mut met) = (Walk::default(), Vec::new());
        let mut notices = Notices(Vec::new());
        loop {
            let pin = self.store.engine.pin();
            if !self.store.step(&pin, &mut walk, &mut met) {
                return;
            }
            for id in met.drain(..) {
                while let Some(found) = self.store.living_at(&pin, id) {
                    let (key, value) = found.pair();
                    if keep(key, value) {
                        break;
                    }
                    if let Some(notice) = self.store.remove_this(&pin, &found) {
                        notices.0.push(notice);
                        break;
                    }
                }
            }
            drop(pin);
            notices.tell();
        }
    }

    /// Removes every key that is there when this is called, whatever value it has by the time that
    /// the call comes to it. Keys that other threads insert meanwhile may stay. All loads under way
    /// are invalidated. Entries whose time is up end first, as expired, as in
    /// [`poll`](Self::poll).
    #[doc(alias = "invalidate_all")]
    pub fn clear(&self) {
        self.store.engine.poll_shared(usize::MAX, &*self.store, || false);
        self.retain(|_, _| false);
    }
}
