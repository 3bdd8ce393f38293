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
//!    not ended: clears the announcement
//!    ended:     HELD -> PASSED                   the driver finds PASSED: clears it, and defers
//!               or, if it finds PASSED,            the slot again
//!               clears it, and defers the
//!               slot again
//!   returns the reference, with the pin
//! ```
//!
//! If the lease has not ended under the new pin, the end comes after the pin, and its grace periods
//! wait for the reference. If it has ended, the replacing thread and the driver both have to come
//! to the slot, and the second of the two defers it again. Its new grace periods begin after the
//! replacing thread has pinned, so they wait for the reference, too.
//!
//! The driver cannot miss an announcement. The replacing thread was pinned when the entry ended or
//! had announced it before; in both cases a grace period that begins after the end lets the driver
//! see the announcement. The same holds for [`Ended::into_value`](super::Ended::into_value), which
//! returns the handle instead of a value that is announced.

use super::store::{Found, Pair, Store};
use crate::core::engine::Pin;
use crate::core::slot::Slot;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::ptr;

/// An announcement that announces nothing.
const CLEAR: u64 = 0;
/// Added to a slot's address, which is a multiple of 8: the announcing thread is unpinned.
const HELD: u64 = 1;
/// Added to a slot's address: the announcing thread or the driver has come to the slot. The other
/// one defers the slot again.
const PASSED: u64 = 2;

/// The announcements of a store: a list that only grows, by one for each thread that is in such a
/// call at the same time.
pub(super) struct Hazards {
    newest: AtomicPtr<Announcement>,
    /// How often the driver has deferred a slot again.
    deferred: AtomicU64,
}

struct Announcement {
    /// `CLEAR`, or the address of a slot plus its state.
    word: AtomicU64,
    /// Number of that slot. Written by the announcing thread before it unpins.
    id: AtomicU32,
    /// The announcement that was added before this one. Never changes.
    older: *const Announcement,
}

// SAFETY: atomics, and a list whose members live as long as it does.
unsafe impl Send for Hazards {}
// SAFETY: as above.
unsafe impl Sync for Hazards {}

/// What the thread that frees a slot does with it.
enum Verdict {
    /// No caller needs it: the thread frees it.
    Free,
    /// The announcing thread defers it again.
    Leave,
    /// The announcing thread has come to it before: this thread defers it again.
    Defer(u32),
}

impl Hazards {
    pub(super) fn new() -> Self {
        Hazards {
            newest: AtomicPtr::new(ptr::null_mut()),
            deferred: AtomicU64::new(0),
        }
    }

    /// How often the driver has deferred a slot again. A flush during which that changes has one
    /// more entry to wait for.
    pub(super) fn deferred(&self) -> u64 {
        self.deferred.load(Ordering::Acquire)
    }

    fn iter(&self) -> impl Iterator<Item = &Announcement> {
        // Acquire pairs with the swap in `announce`: what it leads to is there.
        let mut next: *const Announcement = self.newest.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or a member of the list, which is freed with the list.
            let this = unsafe { next.as_ref() }?;
            next = this.older;
            Some(this)
        })
    }

    /// Announces a slot. Lock-free; allocates if all announcements are in use.
    fn announce(&self, id: u32, address: u64) -> &Announcement {
        let held = address + HELD;
        let unused = self.iter().find(|other| {
            other.word.load(Ordering::Relaxed) == CLEAR
                && other
                    .word
                    .compare_exchange(CLEAR, held, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        let announced = unused.unwrap_or_else(|| self.add(held));
        // The driver reads it in a grace period that begins after this thread has unpinned.
        announced.id.store(id, Ordering::Relaxed);
        announced
    }

    #[cold]
    fn add(&self, held: u64) -> &Announcement {
        let mut newest = self.newest.load(Ordering::Relaxed);
        let added = Box::into_raw(Box::new(Announcement {
            word: AtomicU64::new(held),
            id: AtomicU32::new(0),
            older: newest,
        }));
        // Release pairs with the load in `iter`.
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

    /// What becomes of a slot that no pinned thread can be looking at.
    fn judge(&self, address: u64) -> Verdict {
        for announcement in self.iter() {
            match announcement.pass(address) {
                None => {}
                Some(Turn::First) => return Verdict::Leave,
                Some(Turn::Second(id)) => return Verdict::Defer(id),
            }
        }
        Verdict::Free
    }
}

/// Whether a thread was the first or the second of the two that come to an announced slot.
enum Turn {
    First,
    /// It has the slot's number.
    Second(u32),
}

impl Announcement {
    /// Notes that the caller has come to a slot that it announces. `None` if it announces another.
    fn pass(&self, address: u64) -> Option<Turn> {
        let word = self.word.load(Ordering::Acquire);
        if word & !(HELD | PASSED) != address {
            return None;
        }
        let id = self.id.load(Ordering::Relaxed);
        // AcqRel: the second thread sees what the first has done, and defers the slot after that.
        if word == address + HELD {
            let passed = address + PASSED;
            let swap =
                self.word
                    .compare_exchange(word, passed, Ordering::AcqRel, Ordering::Acquire);
            if swap.is_ok() {
                return Some(Turn::First);
            }
        }
        // Only the other of the two has changed it, to `PASSED`.
        self.word.store(CLEAR, Ordering::Release);
        Some(Turn::Second(id))
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

impl<K: 'static, V: 'static> Store<K, V> {
    /// Runs `f` on this thread while it is unpinned, and pins again. An entry that this thread has
    /// put in under `pin` can be read under the pin that this returns, even if it has ended
    /// meanwhile. `f` does not panic.
    pub(super) fn unpinned(&self, pin: Pin, new: &Found<'_, K, V>, f: impl FnOnce()) -> Pin {
        let address = address_of(new.slot);
        let announced = self.hazards.announce(new.id, address);
        drop(pin);
        f();
        let pin = self.engine.pin();
        if !new.again().has_ended() {
            // No other thread comes to this announcement: the slot is not deferred yet.
            announced.word.store(CLEAR, Ordering::Release);
        } else if let Some(Turn::Second(id)) = announced.pass(address) {
            self.defer(id);
        }
        pin
    }

    /// Whether a slot that no pinned thread can be looking at may be freed now. If not, it is freed
    /// later.
    #[inline]
    pub(super) fn may_free(&self, slot: Slot<'_, Pair<K, V>>) -> bool {
        // Only a call that has a listener to call unpins.
        if self.listener.is_none() {
            return true;
        }
        match self.hazards.judge(address_of(slot)) {
            Verdict::Free => return true,
            Verdict::Leave => {}
            Verdict::Defer(id) => {
                self.defer(id);
                // After the slot is on the list. Release pairs with the load in `deferred`.
                self.hazards.deferred.fetch_add(1, Ordering::Release);
            }
        }
        false
    }

    /// Whether a call announces this slot, which the caller has ended.
    pub(super) fn is_announced(&self, slot: Slot<'_, Pair<K, V>>) -> bool {
        let address = address_of(slot);
        let is_this = |word: u64| word & !(HELD | PASSED) == address;
        self.listener.is_some()
            && self
                .hazards
                .iter()
                .any(|other| is_this(other.word.load(Ordering::Acquire)))
    }

    /// Defers a slot again. Drops nothing on this thread.
    fn defer(&self, id: u32) {
        self.engine
            .with_stripe(|mine, _| self.engine.free_later(mine, id, true));
    }
}
