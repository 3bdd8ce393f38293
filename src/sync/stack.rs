//! A stack on which any thread pushes, and of which one takes everything at once.

use super::cell::Given;
use super::{AtomicPtr, Ordering};
use crate::kit::panics::drop_each;
use std::marker::PhantomData;
use std::ptr;

/// Lock-free: a push is a compare-and-swap, and taking everything one swap. No thread pops a single
/// item, so there is no ABA, and no thread looks at what another may be freeing.
pub(crate) struct Stack<T> {
    head: AtomicPtr<Link<T>>,
    _items: PhantomData<*mut T>,
}

// SAFETY: it owns its items, and gives each to one thread.
unsafe impl<T: Send> Send for Stack<T> {}
// SAFETY: as for `Send`; no thread looks at an item that is in it.
unsafe impl<T: Send> Sync for Stack<T> {}

struct Link<T> {
    item: Given<T>,
    /// The link that was pushed before.
    next: *mut Link<T>,
}

impl<T> Stack<T> {
    pub(crate) fn new() -> Self {
        Stack { head: AtomicPtr::new(ptr::null_mut()), _items: PhantomData }
    }

    pub(crate) fn push(&self, item: T) {
        let mut head = self.head.load(Ordering::Relaxed);
        let item = Given::new(item);
        let link = Box::into_raw(Box::new(Link { item, next: head }));
        loop {
            // Release publishes the link to the taking swap; those below it are published by the
            // swaps that this one follows.
            let pushed =
                self.head.compare_exchange_weak(head, link, Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => return,
                Err(now) => head = now,
            }
            // SAFETY: from the box made here, which no other thread has before the push.
            unsafe { (*link).next = head };
        }
    }

    /// Whether there is nothing on it just then. SeqCst: see [`super::tasks`].
    pub(crate) fn is_empty(&self) -> bool {
        // survives: loom does not see crossbeam's tail and has no sequential consistency. In
        // models a fence before it stands for both.
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// All of it, the last one first.
    pub(crate) fn take(&self) -> Taken<T> {
        Taken { next: self.head.swap(ptr::null_mut(), Ordering::Acquire) }
    }
}

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// What has been taken off a stack.
pub(crate) struct Taken<T> {
    next: *mut Link<T>,
}

impl<T> Iterator for Taken<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: from a box, and taken off the stack by this one alone.
        let link = unsafe { Box::from_raw(self.next) };
        self.next = link.next;
        Some(link.item.into_inner())
    }
}

impl<T> Drop for Taken<T> {
    /// Catches the panics of the items' drops: each item is dropped.
    fn drop(&mut self) {
        drop_each(self);
    }
}
