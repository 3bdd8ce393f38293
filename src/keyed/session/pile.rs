//! The pile of touched sessions of one shard: anybody puts on, one takes all, and what has ended is pruned.
//!
//! # Pruning beside a touch and a taking (Q14)
//!
//! ```text
//!   touch                        taking                       pruning, pinned
//!   link -> head                 all := swap(head, none)      walk from head, copy what lives
//!   swap(head, link)             report, retire the links     swap(head, the copies) if it is as read
//!                                                             retire the links that were walked over
//! ```
//!
//! The pruning thread never holds what it has taken away: the pile has either all links that were walked over, or the copies of all
//! that live. So a taking beside it misses no session. If a touch comes in between, the swap fails, and the pruning thread copies
//! the new links too, up to the one where it began. If a taking comes in between, there is nothing left to prune.
//!
//! The walk reads links that a taking may have taken meanwhile. Links are therefore freed after a grace period, and a
//! pointer that is still the head after the walk is the same link: none that the pinned thread has read is freed and made anew.

use crate::core::engine::Pin;
use crate::keyed::store::Place;
use crate::sync::cell::Kept;
use crate::sync::{AtomicPtr, Ordering};
use std::ptr;
use std::sync::atomic::AtomicU64 as Statistic;
use std::sync::atomic::Ordering::Relaxed;

pub(super) struct Pile {
    head: AtomicPtr<Link>,
    /// How many links there are; about.
    len: Statistic,
    /// At how many links the pile is pruned: twice as many as the last pruning has left, and some.
    limit: Statistic,
}

// SAFETY: it owns its links, which hold plain numbers.
unsafe impl Send for Pile {}
// SAFETY: as above; links that others can find are only read.
unsafe impl Sync for Pile {}

struct Link {
    place: Kept<Place>,
    /// The one that was there before.
    next: *mut Link,
}

/// How many links are put up with whatever the number of sessions.
#[cfg(not(expiry_loom))]
const SLACK: u64 = 64;
#[cfg(expiry_loom)]
const SLACK: u64 = 1;

impl Pile {
    pub(super) fn new() -> Self {
        Pile {
            head: AtomicPtr::new(ptr::null_mut()),
            len: Statistic::new(0),
            limit: Statistic::new(SLACK),
        }
    }

    /// Puts a place on. Whether there are so many now that it is time to prune.
    pub(super) fn push(&self, place: Place) -> bool {
        let mut head = self.head.load(Ordering::Relaxed);
        let link = new_link(place, head);
        loop {
            // Release publishes the link to takings and prunings; those below it are published by the swaps that this one follows.
            let pushed =
                self.head.compare_exchange_weak(head, link, Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => break,
                Err(now) => head = now,
            }
            // SAFETY: made above, and not published before it is pushed.
            unsafe { (*link).next = head };
        }
        self.len.fetch_add(1, Relaxed) >= self.limit.load(Relaxed)
    }

    /// How many places are on it; about.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// Takes all places off, the last one first, and calls `f` with each.
    pub(super) fn take(&self, pin: &Pin, mut f: impl FnMut(Place)) {
        let first = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        if first.is_null() {
            return;
        }
        let mut taken = 0;
        walk(first, ptr::null_mut(), |place| {
            taken += 1;
            f(place);
        });
        self.shrink(taken);
        self.limit.store(SLACK, Relaxed);
        retire(pin, first);
    }

    /// Drops the places that are not to be `kept`, unless a taking comes in between. Lock-free: each further attempt copies only what
    /// has been put on since.
    pub(super) fn prune(&self, pin: &Pin, kept: impl Fn(Place) -> bool) {
        let (mut walked, mut copies) = (ptr::null_mut(), ptr::null_mut());
        let (mut dropped, mut left) = (0, 0);
        loop {
            // Acquire: the links and all below them. The thread was pinned before.
            let head = self.head.load(Ordering::Acquire);
            let mut some = Vec::new();
            let met = walk(head, walked, |place| {
                if kept(place) {
                    some.push(place);
                } else {
                    dropped += 1;
                }
            });
            if head.is_null() || !met {
                // It has been taken, and put on anew.
                free(copies);
                return;
            }
            left += some.len() as u64;
            for place in some.into_iter().rev() {
                copies = new_link(place, copies);
            }
            // Release publishes the copies.
            let swapped =
                self.head.compare_exchange(head, copies, Ordering::AcqRel, Ordering::Relaxed);
            if swapped.is_ok() {
                self.shrink(dropped);
                self.limit.store(2 * left + SLACK, Relaxed);
                retire(pin, head);
                return;
            }
            walked = head;
        }
    }

    fn shrink(&self, by: u64) {
        // A taking may come before the count of what it takes: then the sum is less than nothing for a moment.
        self.len.fetch_sub(by, Relaxed);
    }
}

fn new_link(place: Place, next: *mut Link) -> *mut Link {
    let place = Kept::new(place);
    Box::into_raw(Box::new(Link { place, next }))
}

/// Calls `f` with the places from `from` on, up to and without `to`. Whether it came to `to`.
///
/// The caller has taken the links, or been pinned since before it read `from` from the pile.
fn walk(from: *mut Link, to: *mut Link, mut f: impl FnMut(Place)) -> bool {
    let mut at = from;
    while at != to {
        // SAFETY: links on a pile are published whole, and are freed only after everybody has unpinned who could find them there.
        let Some(link) = (unsafe { at.as_ref() }) else {
            return false;
        };
        f(*link.place.get());
        at = link.next;
    }
    true
}

/// Frees links when nobody can be walking over them any more. They are off the pile, by the caller.
fn retire(pin: &Pin, first: *mut Link) {
    /// They hold plain numbers, so any thread may free them, whenever.
    struct Retired(*mut Link);
    // SAFETY: as said.
    unsafe impl Send for Retired {}
    impl Retired {
        fn free(self) {
            free(self.0);
        }
    }
    let retired = Retired(first);
    pin.after(move || retired.free());
}

/// Frees links that nobody else can find.
fn free(first: *mut Link) {
    let mut at = first;
    while !at.is_null() {
        // SAFETY: from `new_link`, and the caller's alone.
        let link = unsafe { Box::from_raw(at) };
        at = link.next;
        link.place.into_inner();
    }
}

impl Drop for Pile {
    fn drop(&mut self) {
        // survives: stronger than needed: `&mut self`.
        free(self.head.load(Ordering::Acquire));
    }
}
