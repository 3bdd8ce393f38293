//! Hazard announcements: one entry is kept for a caller while the caller is unpinned.
//!
//! `upsert` and an entry's `insert` return a reference to the value that they have put in, and call
//! the listener for the value that they have replaced. The listener runs unpinned, so another
//! thread may end the new entry meanwhile, and the driver would free its slot. An announcement
//! keeps that one slot. The rest of the store is freed as ever, however long the listener takes.
//!
//! ```text
//!   the replacing thread                         other threads
//!   puts the entry in, pinned
//!   announces its slot: HELD
//!   unpins; calls the listener                   one ends the entry, and defers its slot
//!                                                two grace periods end
//!                                                the driver: HELD -> PASSED; leaves the slot alone
//!   pins again; loads the lease
//!    not ended: HELD -> CLEAR
//!    ended:     the reference keeps HELD
//!   returns the reference, with the pin
//!   the reference is dropped: HELD -> CLEAR,
//!    or, if it finds PASSED, clears it, and
//!    defers the slot again
//! ```
//!
//! If the lease has not ended under the new pin, the end comes after the pin, and its grace periods
//! wait for the reference. If it has ended, the driver may have begun its wait before that pin. So
//! the announcement stays until the reference is dropped.
//!
//! The driver cannot miss an announcement. The replacing thread was pinned when the entry ended or
//! had announced it before; in both cases a grace period that begins after the end lets the driver
//! see the announcement. The same holds for [`Ended::into_value`](super::Ended::into_value), which
//! returns the handle instead of a value that is announced.

use super::store::{Found, Pair, Store};
use crate::core::engine::Pin;
use crate::core::slot::Slot;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr;

/// An announcement that announces nothing.
const CLEAR: u64 = 0;
/// Added to a slot's address, which is a multiple of 8: a caller needs the slot.
const HELD: u64 = 1;
/// Added to a slot's address: a caller needs the slot, and the driver has come to it. The caller
/// defers it again.
const PASSED: u64 = 2;

/// The announcements of a store: a list that only grows, by one for each slot that is announced at
/// the same time.
pub(super) struct Hazards {
    newest: AtomicPtr<Announcement>,
}

struct Announcement {
    /// `CLEAR`, or the address of a slot plus its state.
    word: AtomicU64,
    /// The announcement that was added before this one. Never changes.
    older: *const Announcement,
}

// SAFETY: atomics, and a list whose members live as long as it does.
unsafe impl Send for Hazards {}
// SAFETY: as above.
unsafe impl Sync for Hazards {}

impl Hazards {
    pub(super) fn new() -> Self {
        Hazards {
            newest: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Announcement> {
        // Acquire pairs with the swap in `add`: what it leads to is there.
        let mut next: *const Announcement = self.newest.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or a member of the list, which is freed with the list.
            let this = unsafe { next.as_ref() }?;
            next = this.older;
            Some(this)
        })
    }

    /// Announces a slot. Lock-free; allocates if all announcements are in use.
    fn announce(&self, address: u64) -> &Announcement {
        let held = address + HELD;
        // survives: too deep for a model. A second caller takes an announcement that a first one
        // cleared, and a first driver sets `PASSED`. A second driver, at the first slot, then sees
        // the first caller's reads by way of the second caller only.
        let unused = self.iter().find(|other| {
            other.word.load(Ordering::Relaxed) == CLEAR
                && other
                    .word
                    .compare_exchange(CLEAR, held, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        unused.unwrap_or_else(|| self.add(held))
    }

    #[cold]
    fn add(&self, held: u64) -> &Announcement {
        let mut newest = self.newest.load(Ordering::Relaxed);
        let added = Box::into_raw(Box::new(Announcement {
            word: AtomicU64::new(held),
            older: newest,
        }));
        // Release pairs with the load in `iter` (model `two_announcements`).
        while let Err(now) =
            self.newest
                .compare_exchange(newest, added, Ordering::AcqRel, Ordering::Relaxed)
        {
            newest = now;
            // SAFETY: this thread's alone until the swap succeeds.
            unsafe { (*added).older = newest };
        }
        // SAFETY: a member of the list now, which is freed with the list.
        unsafe { &*added }
    }

    /// The driver comes to a slot that no pinned thread can be looking at. Returns whether a caller
    /// needs it: then that caller defers it again.
    fn pass(&self, address: u64) -> bool {
        self.iter().any(|announcement| announcement.pass(address))
    }
}

impl Announcement {
    fn pass(&self, address: u64) -> bool {
        let held = address + HELD;
        // Acquire, also where the swap fails: the thread that has cleared it has read the payload
        // before (model `a_reference_dropped_beside_the_driver`).
        // survives: the swap's Release: loom never reads from the future. The driver has read the
        // slot's link; the caller that finds `PASSED` writes another.
        self.word.load(Ordering::Acquire) == held
            && self
                .word
                .compare_exchange(held, address + PASSED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// The caller needs the slot no more. Returns whether the driver has come to it.
    fn clear(&self, address: u64) -> bool {
        let held = address + HELD;
        // survives: if it fails, Acquire pairs with `pass`. Loom never reads from the future.
        let cleared = self
            .word
            .compare_exchange(held, CLEAR, Ordering::Release, Ordering::Acquire);
        if cleared.is_err() {
            // Only the driver has changed it, to `PASSED`, and it does not come again.
            // survives: too deep for a model: the other half of `announce`. The caller's own slot
            // goes by the deferred-free list.
            self.word.store(CLEAR, Ordering::Release);
        }
        cleared.is_err()
    }
}

impl Drop for Hazards {
    fn drop(&mut self) {
        let mut next = self.newest.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: from a box; no thread uses the list any more.
            let this = unsafe { Box::from_raw(next) };
            next = this.older.cast_mut();
        }
    }
}

fn address_of<K: 'static, V: 'static>(slot: Slot<'_, Pair<K, V>>) -> u64 {
    slot.address() as usize as u64
}

/// An announced entry. Dropped, it is needed no more.
pub(super) struct Announced<'a, K: 'static, V: 'static> {
    store: &'a Store<K, V>,
    announcement: &'a Announcement,
    id: u32,
    slot: Slot<'a, Pair<K, V>>,
}

impl<K: 'static, V: 'static> Drop for Announced<'_, K, V> {
    fn drop(&mut self) {
        if self.announcement.clear(address_of(self.slot)) {
            self.store.engine.with_stripe(|mine, _| {
                // Drops nothing on this thread, which is pinned.
                self.store.engine.free_later(mine, self.id, true);
            });
        }
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Runs `f` on this thread while it is unpinned, and pins again. An entry that this thread has
    /// put in under `pin` can be read while the result lives, even if it has ended meanwhile.
    pub(super) fn unpinned<'a>(
        &'a self,
        pin: Pin,
        new: &Found<'a, K, V>,
        f: impl FnOnce(),
    ) -> Kept<'a, K, V> {
        let announced = Announced {
            store: self,
            announcement: self.hazards.announce(address_of(new.slot)),
            id: new.id,
            slot: new.slot,
        };
        drop(pin);
        f();
        let pin = self.engine.pin();
        let ended = new.again().has_ended();
        Kept {
            _announced: ended.then_some(announced),
            pin,
        }
    }

    /// Whether a slot that no pinned thread can be looking at may be freed now. If not, a caller
    /// defers it again.
    #[inline]
    pub(super) fn may_free(&self, slot: Slot<'_, Pair<K, V>>) -> bool {
        // Only a call that has a listener to call unpins.
        self.listener.is_none() || !self.hazards.pass(address_of(slot))
    }

    /// Whether a caller needs this slot, which this thread has ended.
    pub(super) fn is_announced(&self, slot: Slot<'_, Pair<K, V>>) -> bool {
        let held = address_of(slot) + HELD;
        let mut announcements = self.hazards.iter();
        self.listener.is_some()
            && announcements.any(|other| other.word.load(Ordering::Acquire) == held)
    }
}

/// What keeps an entry for the caller that has put it in.
pub(super) struct Kept<'a, K: 'static, V: 'static> {
    /// Set if the entry ended while its caller was unpinned. Dropped first.
    _announced: Option<Announced<'a, K, V>>,
    pub(super) pin: Pin,
}

impl<K: 'static, V: 'static> From<Pin> for Kept<'_, K, V> {
    #[inline(always)]
    fn from(pin: Pin) -> Self {
        Kept {
            _announced: None,
            pin,
        }
    }
}

/// For models: announcements by themselves, of slots that have only addresses.
#[cfg(expiry_loom)]
pub struct Announcements(Hazards);

#[cfg(expiry_loom)]
impl Announcements {
    /// Nothing is announced.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Announcements(Hazards::new())
    }

    /// Announces the slot at `address`, a multiple of 8, for as long as this lives.
    pub fn announce(&self, address: u64) {
        self.0.announce(address);
    }

    /// The driver comes to a slot. Returns whether it is announced.
    #[must_use]
    pub fn pass(&self, address: u64) -> bool {
        self.0.pass(address)
    }
}
