//! Removing: one entry, or all for which a condition holds.

use super::ExpiringMap;
use crate::keyed::removed::Ended;
use crate::keyed::store::Cause;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K, V, S> ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Ends the entry of a key. Returns it, unless its time was up. [`Ended::into_value`] gives the
    /// value itself.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// assert_eq!(map.remove("one").map(|ended| *ended.value()), Some(1));
    /// assert!(map.remove("one").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ended<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        loop {
            let (wanted, pin) = self.seek(key);
            let notice = self.store.remove_living(&pin, wanted)?;
            drop(pin);
            if notice.cause == Cause::Removed {
                return Some(notice.told());
            }
            notice.tell();
        }
    }

    /// As [`remove`](Self::remove), if `condition` holds for it; of that very value. It may be
    /// called several times, if others replace it meanwhile.
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
    ) -> Option<Ended<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let (wanted, pin) = self.seek(key);
        let notice = loop {
            let found = self.store.living(&pin, wanted)?;
            // SAFETY: found after the pin.
            let (key, value) = unsafe { found.pair() };
            if !condition(key, value) {
                return None;
            }
            if let Some(notice) = self.store.remove_this(&pin, &found) {
                break notice;
            }
        };
        drop(pin);
        let ended = notice.told();
        // Before the handle is on its way out: as in `upsert_for`.
        drop(condition);
        Some(ended)
    }

    /// Removes the entries for which `keep` is false, and only the very value that `keep` was asked
    /// about. It meets entries as [`iter`](Self::iter) does: one whose value is replaced meanwhile
    /// may be met twice or not at all.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// for n in 0..10 {
    ///     map.insert(n, n * n)?;
    /// }
    /// map.retain(|n, _| n % 2 == 0);
    /// let mut left: Vec<_> = map.iter().map(|entry| *entry.key()).collect();
    /// left.sort();
    /// assert_eq!(left, [0, 2, 4, 6, 8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut iter = self.iter();
        while let Some((found, entry)) = iter.advance() {
            if keep(entry.key(), entry.value()) {
                continue;
            }
            let notice = self.store.remove_this(entry.pin(), &found);
            drop(entry);
            if let Some(notice) = notice {
                notice.tell();
            }
        }
    }

    /// Removes all entries that are there all the while. One whose value is replaced meanwhile may
    /// stay.
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::<String, u64>::builder().build()?;
    /// map.insert("one".to_string(), 1)?;
    /// map.clear();
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }
}
