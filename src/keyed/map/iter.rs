//! Going over all entries.

use super::{ExpiringMap, Ref};
use crate::core::engine::{Face, Walk};
use crate::core::slots::Slot;
use crate::keyed::store::Found;
use std::hash::{BuildHasher, Hash};

/// An iterator over the entries of an [`ExpiringMap`]; see [`ExpiringMap::iter`].
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
    slots: &'a [Slot],
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
            slots: &[],
        }
    }

    /// The next entry, and where it was found.
    pub(super) fn advance(&mut self) -> Option<(Found<'a>, Ref<'a, K, V>)> {
        let store = &*self.map.store;
        loop {
            while let Some((slot, rest)) = self.slots.split_first() {
                let id = self.next;
                self.slots = rest;
                self.next = id.wrapping_add(1);
                if let Some((found, _, pin)) = store.look_at(id, slot) {
                    if store.is_living(&found) {
                        // SAFETY: found after the pin.
                        return Some((found, unsafe { Ref::new(found.word, pin) }));
                    }
                }
            }
            (self.next, self.slots) = store.engine.next_bucket(&mut self.walk)?;
            for slot in self.slots {
                let lease = slot.lease();
                if lease.state().expires() {
                    store.prepare(slot, lease);
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
