//! Iterating over all entries.

use super::{ExpiringMap, Ref};
use crate::core::engine::Pin;
use crate::keyed::store::{Found, Walk};
use std::hash::{BuildHasher, Hash};

/// An iterator over the entries of an [`ExpiringMap`]; see [`ExpiringMap::iter`]. Each item pins
/// the map for as long as it lives. The iterator itself pins it only between items whose keys share
/// all bits of their hash, which are few unless the hasher is weak.
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
    pub(super) map: &'a ExpiringMap<K, V, S>,
    walk: Walk,
    /// Slots of keys with the last hash that have yet to be shown.
    met: Vec<u32>,
    /// Keeps these slots.
    pin: Option<Pin>,
}

impl<'a, K: 'static, V: 'static, S> Iter<'a, K, V, S> {
    pub(super) fn new(map: &'a ExpiringMap<K, V, S>) -> Self {
        Iter { map, walk: Walk::default(), met: Vec::new(), pin: None }
    }
}

impl<'a, K: Hash + Eq, V, S: BuildHasher + 'static> Iterator for Iter<'a, K, V, S> {
    type Item = Ref<'a, K, V>;

    fn next(&mut self) -> Option<Self::Item> {
        let (lent, pin) = self.advance(|found| found.lend())?;
        // SAFETY: found under the pin.
        Some(unsafe { Ref::new(&self.map.store, lent, pin) })
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + 'static> Iter<'_, K, V, S> {
    /// What `look` makes of the next entry, and the pin under which that was found.
    pub(super) fn advance<R>(
        &mut self,
        look: impl FnOnce(&Found<'_, K, V>) -> R,
    ) -> Option<(R, Pin)> {
        let store = &*self.map.store;
        loop {
            let pin = store.engine.pin();
            while let Some(id) = self.met.pop() {
                let found = store.living_at(&pin, id);
                if self.met.is_empty() {
                    self.pin = None;
                }
                if let Some(found) = found {
                    let made = look(&found);
                    return Some((made, pin));
                }
            }
            if !store.step(&pin, &mut self.walk, &mut self.met) {
                return None;
            }
            self.pin = (!self.met.is_empty()).then_some(pin);
        }
    }
}

impl<K: 'static, V: 'static, S> std::fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
