//! One thread's values, one for each shard.

use super::threads::{boxed, publish, unbox};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One thread's value of each shard. [`GROUP`] of them are made when the thread first counts at one
/// of their shards, so one call of a store with 256 shards pays for one group. Finding a value
/// costs one load and a sum, as in a boxed slice.
pub(crate) struct PerShard<C> {
    shards: usize,
    /// The values of the shards from `GROUP * n` on; null until made.
    groups: [AtomicPtr<C>; GROUPS],
}

/// The number of shards whose values lie together.
const GROUP: usize = 16;
/// The number of groups that the most shards take.
const GROUPS: usize = 256 / GROUP;

impl<C> PerShard<C> {
    /// Makes room for so many shards, a power of two, at most 256.
    pub(crate) fn new(shards: usize) -> Self {
        assert!(shards <= GROUP * GROUPS && shards.is_power_of_two());
        PerShard { shards, groups: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())) }
    }

    /// The number of values in each group: all groups are full, or there is only one.
    #[inline(always)]
    fn len(&self) -> usize {
        self.shards.min(GROUP)
    }

    /// The value of a shard, for a reader: `None` if its group has not been made.
    pub(crate) fn get(&self, shard: usize) -> Option<&C> {
        assert!(shard < self.shards);
        // Acquire: a thread that sums the counters reads a group that another thread has made.
        // survives: loom does not see this standard atomic.
        let group = self.groups[shard / GROUP].load(Ordering::Acquire);
        // SAFETY: a published group has a value for each of its shards, and is freed only with
        // `self`.
        (!group.is_null()).then(|| unsafe { &*group.add(shard % GROUP) })
    }
}

impl<C: Default> PerShard<C> {
    #[cold]
    #[inline(never)]
    fn make(&self, shard: usize) -> *mut C {
        let fresh = boxed(self.len(), |_| C::default());
        publish(&self.groups[shard / GROUP], fresh, |fresh| {
            // SAFETY: made above with this length and not published.
            drop(unsafe { unbox(fresh, self.len()) });
        })
    }
}

/// The value of a shard, for the thread that counts.
impl<C: Default> std::ops::Index<usize> for PerShard<C> {
    type Output = C;

    #[inline(always)]
    fn index(&self, shard: usize) -> &C {
        assert!(shard < self.shards);
        // With the remainder the compiler knows that there is such a group.
        // survives: only the stripe's thread makes its groups, and the next one acquires the stripe
        // in `take`. Kept: any thread may call `index`, so the type must publish what it makes.
        let mut group = self.groups[shard / GROUP % GROUPS].load(Ordering::Acquire);
        if group.is_null() {
            group = self.make(shard);
        }
        // SAFETY: as in `get`.
        unsafe { &*group.add(shard % GROUP) }
    }
}

impl<C> Drop for PerShard<C> {
    fn drop(&mut self) {
        let len = self.len();
        for group in &mut self.groups {
            let group = *group.get_mut();
            if !group.is_null() {
                // SAFETY: made by `make` with this length; `&mut self`: nothing uses it any more.
                drop(unsafe { unbox(group, len) });
            }
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/core_per_shard.rs"]
mod tests;
