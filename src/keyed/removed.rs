//! Entries that have ended, in the hands of the thread that ended them.
//!
//! An ended slot has one owner: its [`EndedSlot`]. When that is dropped, the slot goes to the
//! deferred-free list.
//!
//! Where a map reports into a [channel](super::removals), a removing call returns a [`Removed`] and
//! sends another one: both share the `EndedSlot` by an [`Arc`], whose last holder drops it.

use super::store::{Pair, RemovalCause, Store};
use crate::core::lease::Lease;
use crate::core::occupancy::Ended;
use crate::core::slot::Slot;
use crate::sync::{fence, Ordering};
#[cfg(expiry_loom)]
use loom::sync::Arc as Shared;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
#[cfg(not(expiry_loom))]
use std::sync::Arc as Shared;
use std::time::{Duration, Instant};

/// An entry that has ended, owned by the thread that ended it: out of the index, not free.
pub(crate) struct EndedSlot<H: Deref<Target = Store<K, V>>, K: 'static, V: 'static> {
    store: H,
    id: u32,
    /// A slot of `store`, which `H` keeps.
    slot: Slot<'static, Pair<K, V>>,
    /// The lease that has ended.
    lease: Lease,
}

/// What an ended slot is made of, by value: a function that takes a reference to an `EndedSlot`
/// would keep it out of registers.
pub(super) type Parts<'a, K, V> = (u32, Slot<'a, Pair<K, V>>, Lease);

// SAFETY: it owns a key and a value, which readers may be looking at, and which may be dropped on
// any thread.
unsafe impl<H, K, V> Send for EndedSlot<H, K, V>
where
    H: Deref<Target = Store<K, V>> + Send,
    K: Send + Sync,
    V: Send + Sync,
{
}
// SAFETY: as above; by reference it only lends them.
unsafe impl<H, K, V> Sync for EndedSlot<H, K, V>
where
    H: Deref<Target = Store<K, V>> + Sync,
    K: Send + Sync,
    V: Send + Sync,
{
}

impl<H: Deref<Target = Store<K, V>>, K: 'static, V: 'static> EndedSlot<H, K, V> {
    /// A slot of this store, which is out of the index.
    #[inline(always)]
    pub(super) fn of(store: H, ended: Ended<'_, Pair<K, V>>) -> Self {
        Self::from_parts(store, (ended.id(), ended.slot(), ended.lease()))
    }

    #[inline(always)]
    pub(super) fn from_parts(store: H, (id, slot, lease): Parts<'_, K, V>) -> Self {
        debug_assert_eq!(store.engine.slots.slot(id).map(Slot::address), Some(slot.address()));
        // SAFETY: the store keeps its slots for as long as it is there, and `H` keeps the store.
        let slot =
            unsafe { std::mem::transmute::<Slot<'_, Pair<K, V>>, Slot<'static, Pair<K, V>>>(slot) };
        EndedSlot { store, id, slot, lease }
    }

    fn pair(&self) -> &(K, V) {
        // SAFETY: the payload is this owner's until it lets go.
        unsafe { self.slot.value() }
    }

    pub(super) fn key(&self) -> &K {
        &self.pair().0
    }

    pub(super) fn value(&self) -> &V {
        &self.pair().1
    }

    #[inline(always)]
    pub(super) fn lease(&self) -> Lease {
        self.lease
    }

    /// Key and value, if no thread can be looking at them. Never waits.
    fn into_pair(self) -> Result<(K, V), Self> {
        if !self.store.engine.reclaim.pins.is_unobserved() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: ended by this thread, and no thread that could have found it is pinned any more.
        let pair = unsafe { this.slot.take() };
        this.slot.set_lease(Lease::free(this.lease.generation()));
        // SAFETY: read once: `this` is not dropped.
        drop(unsafe { std::ptr::read(&this.store) });
        Ok(pair)
    }
}

impl<H: Deref<Target = Store<K, V>>, K: 'static, V: 'static> Drop for EndedSlot<H, K, V> {
    #[inline]
    fn drop(&mut self) {
        self.store.free_later(self.id, self.slot);
    }
}

/// How the caller's handle keeps its store.
pub(super) enum Keeps<'a, K: 'static, V: 'static> {
    /// The store outlives the handle, and frees the slot at the latest when it is dropped.
    Lent(&'a Store<K, V>),
    /// The handle may outlive the store type, and with it the driver.
    Kept(Arc<Store<K, V>>),
}

impl<K: 'static, V: 'static> Drop for Keeps<'_, K, V> {
    /// Runs after the handle has pushed its slot on the deferred-free list. If no driver is left,
    /// this thread frees the slot. Only a [`Kept`](Keeps::Kept) handle does so: otherwise each
    /// `remove` beside a shutdown would drop values, although a driver is there.
    #[inline]
    fn drop(&mut self) {
        if let Keeps::Kept(store) = self {
            // Between the push and the look, as a shutdown's between `refusing` and its flush: one
            // of the two finds the slot.
            // survives: in models each push is followed by a read-modify-write.
            fence(Ordering::SeqCst);
            if store.engine.admission.is_refusing() {
                store.free_undriven();
            }
        }
    }
}

impl<K, V> Deref for Keeps<'_, K, V> {
    type Target = Store<K, V>;

    #[inline]
    fn deref(&self) -> &Store<K, V> {
        match self {
            Keeps::Lent(store) => store,
            Keeps::Kept(store) => store,
        }
    }
}

/// An entry that has ended, with its key and value, for the caller that ended it.
///
/// Readers that found the entry before may still be looking at key and value. So they are lent;
/// [`try_into_value`](Self::try_into_value) gives the value itself where no reader is left. The
/// store's driver drops them after this handle has been dropped
/// ([when](crate::ExpiringMap#when-values-are-dropped)).
///
/// ```
/// # let map = expiry::ExpiringMap::builder().build()?;
/// map.insert("key".to_string(), vec![1, 2, 3])?;
/// let old = map.insert("key".to_string(), vec![])?.unwrap();
/// assert_eq!((old.key().as_str(), old.value().len(), old[0]), ("key", 3, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Removed<'a, K: 'static, V: 'static> {
    slot: Handle<'a, K, V>,
    cause: RemovalCause,
}

/// Whether there is another handle to an ended slot.
enum Handle<'a, K: 'static, V: 'static> {
    Only(EndedSlot<Keeps<'a, K, V>, K, V>),
    /// A removing call has returned one, and the map's channel has the other.
    OneOfTwo(Twice<K, V>),
}

/// An ended slot with two handles.
pub(super) type Twice<K, V> = Shared<EndedSlot<Keeps<'static, K, V>, K, V>>;

impl<'a, K: 'static, V: 'static> Deref for Handle<'a, K, V> {
    type Target = EndedSlot<Keeps<'a, K, V>, K, V>;

    fn deref(&self) -> &EndedSlot<Keeps<'a, K, V>, K, V> {
        match self {
            Handle::Only(slot) => slot,
            Handle::OneOfTwo(slot) => slot,
        }
    }
}

impl<'a, K: 'static, V: 'static> Removed<'a, K, V> {
    /// A handle to a slot of this store: one of two, if it is `shared`.
    #[inline(always)]
    pub(super) fn of(
        store: &'a Store<K, V>,
        ended: Parts<'a, K, V>,
        shared: Option<Twice<K, V>>,
        cause: RemovalCause,
    ) -> Self {
        let only = || Handle::Only(EndedSlot::from_parts(Keeps::Lent(store), ended));
        Removed { slot: shared.map_or_else(only, Handle::OneOfTwo), cause }
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &K {
        self.slot.key()
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &V {
        self.slot.value()
    }

    /// How it ended.
    #[must_use]
    pub fn cause(&self) -> RemovalCause {
        self.cause
    }

    /// How long it would live from now, had it not ended, rounded up to the interval. Zero if its
    /// time was up; [`Duration::MAX`] if it was to live for ever. [`Ref::remaining`] says the same
    /// of an entry that lives.
    ///
    /// [`Ref::remaining`]: crate::Ref::remaining
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (day, night) =
    /// #     (expiry::ExpiringMap::builder().build()?, expiry::ExpiringMap::builder().build()?);
    /// day.insert_for("key", 1, Duration::from_secs(60))?;
    /// let moved = day.remove("key").unwrap();
    /// night.insert_for("key", *moved, moved.remaining())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.slot.store.left(self.slot.lease)
    }

    /// When it would have expired; `None` if never.
    #[must_use]
    pub fn expires_at(&self) -> Option<Instant> {
        self.slot.store.engine.deadlines.instant(self.slot.lease)
    }

    /// The value itself, if no reader can be holding it. Never waits; takes some hundred
    /// nanoseconds. This thread drops the key.
    ///
    /// # Errors
    ///
    /// The handle, where a thread is pinned in this store: it holds a [`Ref`](crate::Ref), or is in
    /// the middle of a call. Also where the call that put this value in has yet to return a
    /// reference to it: its listener is running. And where the map reports into a
    /// [channel](crate::ExpiringMapBuilder::build_with_channel), and the other handle to this entry
    /// is still there: a removing call returns one, and the channel has one.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// map.insert(1, vec![1, 2, 3])?;
    /// let reader = map.get(&1);
    /// let removed = map.remove(&1).unwrap();
    /// let removed = removed.try_into_value().expect_err("the reader holds it");
    /// drop(reader);
    /// assert_eq!(removed.try_into_value().ok(), Some(vec![1, 2, 3]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_into_value(self) -> Result<V, Self> {
        let (key, value) = self.try_into_pair()?;
        // Before the value is on its way out: the key's `Drop` may panic.
        drop(key);
        Ok(value)
    }

    /// [`try_into_value`](Self::try_into_value), with the key.
    pub(super) fn try_into_pair(self) -> Result<(K, V), Self> {
        let Removed { slot, cause } = self;
        let slot = match slot {
            Handle::Only(slot) => Ok(slot),
            Handle::OneOfTwo(slot) => Shared::try_unwrap(slot).map_err(Handle::OneOfTwo),
        };
        let pair = slot.and_then(|slot| slot.into_pair().map_err(Handle::Only));
        pair.map_err(|slot| Removed { slot, cause })
    }
}

impl<K: 'static, V: 'static> Removed<'static, K, V> {
    /// A handle that keeps the store: it may outlive the store type.
    pub(super) fn kept(
        slot: EndedSlot<&Store<K, V>, K, V>,
        store: Arc<Store<K, V>>,
        cause: RemovalCause,
    ) -> Self {
        Removed { slot: Handle::Only(slot.kept(store)), cause }
    }

    pub(super) fn one_of_two(slot: Twice<K, V>, cause: RemovalCause) -> Self {
        Removed { slot: Handle::OneOfTwo(slot), cause }
    }
}

impl<K: 'static, V: 'static> Deref for Removed<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: fmt::Debug + 'static, V: fmt::Debug + 'static> fmt::Debug for Removed<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Removed")
            .field("key", self.key())
            .field("value", self.value())
            .field("cause", &self.cause)
            .finish()
    }
}

impl<'a, K: 'static, V: 'static> EndedSlot<&'a Store<K, V>, K, V> {
    pub(super) fn store(&self) -> &'a Store<K, V> {
        self.store
    }

    /// The same slot, which keeps the store from here on.
    pub(super) fn kept(self, store: Arc<Store<K, V>>) -> EndedSlot<Keeps<'static, K, V>, K, V> {
        EndedSlot::from_parts(Keeps::Kept(store), self.into_parts())
    }

    /// What it owns, which the caller owns from here on.
    #[inline(always)]
    pub(super) fn into_parts(self) -> Parts<'a, K, V> {
        let this = ManuallyDrop::new(self);
        (this.id, this.slot, this.lease)
    }
}
