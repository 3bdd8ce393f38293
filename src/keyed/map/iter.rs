//! Going over all entries.

use super::{ExpiringMap, Ref};
use crate::core::engine::{Face, Walk};
use crate::core::slots::Run;
use crate::keyed::store::{Found, Pair};
use std::hash::{BuildHasher, Hash};

/// An iterator over the entries of an [`ExpiringMap`]; see [`ExpiringMap::iter`]. Each item pins
/// the map for as long as it lives, and the iterator itself does not.
///
/// # Examples
///
/// ```
/// use expiry::{expiring_map::Iter, ExpiringMap, RandomState};
///
/// fn total(stock: Iter<'_, &'static str, u64, RandomState>) -> u64 {
///     stock.map(|entry| *entry).sum()
/// }
///
/// let stock = ExpiringMap::builder().build()?;
/// stock.insert("apples", 3)?;
/// stock.insert("pears", 4)?;
/// assert_eq!(total(stock.iter()), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Iter<'a, K: 'static, V: 'static, S> {
    map: &'a ExpiringMap<K, V, S>,
    walk: Walk,
    /// What is left of the bucket that it is in: the id of the next slot, and the slots.
    next: u32,
    slots: Run<'a, Pair<K, V>>,
    at: usize,
}

impl<'a, K, V, S> Iter<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(map: &'a ExpiringMap<K, V, S>) -> Self {
        Iter {
            map,
            walk: Walk::default(),
            next: 0,
            slots: Run::empty(),
            at: 0,
        }
    }

    /// The next entry, and where it was found.
    pub(super) fn advance(&mut self) -> Option<(Found<'a, K, V>, Ref<'a, K, V>)> {
        let store = &*self.map.store;
        loop {
            while let Some(slot) = self.slots.get(self.at) {
                #[allow(clippy::cast_possible_truncation)] // a place in a bucket
                let id = self.next + self.at as u32;
                self.at += 1;
                let pin = store.engine.pin();
                if let Some(found) = store.look_at(&pin, id, slot) {
                    if store.is_living(&found) {
                        // SAFETY: found after the pin.
                        return Some((found, unsafe { Ref::new(&found, pin) }));
                    }
                }
            }
            (self.next, self.slots) = store.engine.next_bucket(&mut self.walk)?;
            self.at = 0;
            for (id, slot) in (self.next..).zip(self.slots.iter()) {
                let lease = slot.lease();
                if lease.state().expires() {
                    store.prepare(id, slot, lease);
                }
            }
        }
    }
}

impl<'a, K, V, S> Iterator for Iter<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = Ref<'a, K, V>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|(_, entry)| entry)
    }
}

impl<K: 'static, V: 'static, S> std::fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
