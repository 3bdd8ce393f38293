//! Calls of the user's code by a store: handlers, listeners, wakers, drops.
//!
//! **A panic stays in the call.** It does not end the thread that made the call.
//!
//! **A thread inside such a call waits for no store.** The code that is called may shut another
//! store down, whose thread may at that moment be inside a call that shuts this one down. So every
//! operation that waits for a store's threads asks [`is_inside`] first, and where that is true
//! leaves the rest of its work to the thread that it would wait for.

use crate::kit::trace::event;
use std::any::Any;
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(not(expiry_loom))]
thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
#[cfg(expiry_loom)]
loom::thread_local!(static DEPTH: Cell<u32> = Cell::new(0));

/// Whether this thread is inside a call of the user's code that some store, or a topology, makes.
pub fn is_inside() -> bool {
    DEPTH.with(Cell::get) != 0
}

/// Whether it is inside one that a store makes. A topology's bolts are their own threads' work,
/// which only the end of that topology waits for.
pub(crate) fn is_called() -> bool {
    DEPTH.with(Cell::get) % BOLT != 0
}

/// Runs `f`, which is such a call. It is for `expiry-topology`, which catches panics itself.
pub fn inside<R>(f: impl FnOnce() -> R) -> R {
    let _inside = Inside::enter(BOLT);
    f()
}

/// What a call of a topology's counts, so that the remainder is the number of the stores' calls.
const BOLT: u32 = 1 << 16;

/// While it lives, this thread is inside such a call. Guards nest.
struct Inside(u32);

impl Inside {
    #[inline]
    fn enter(by: u32) -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + by));
        Inside(by)
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - self.0));
    }
}

/// Runs `f`, the user's code. Returns whether it panicked. No panic of the payload's drop gets out.
#[inline(always)]
pub(crate) fn caught(f: impl FnOnce()) -> bool {
    let _inside = Inside::enter(1);
    goes_on(f).is_none()
}

/// Drops each item, whichever of the drops panic.
pub(crate) fn drop_each<T>(items: impl Iterator<Item = T>) {
    items.for_each(|item| _ = caught(|| drop(item)));
}

/// Number of panics of the user's code that a store has caught.
#[derive(Debug, Default)]
pub(crate) struct Panics(AtomicU64);

impl Panics {
    /// Runs `f`, the user's code, and counts its panic.
    #[inline(always)]
    pub(crate) fn guard(&self, f: impl FnOnce()) {
        if caught(f) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Runs `f`, which may run the user's code. Returns `None` if that has panicked.
#[inline(always)]
pub(crate) fn goes_on<R>(f: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(f)).map_err(tell).ok()
}

#[cold]
#[inline(never)]
fn tell(payload: Box<dyn Any + Send>) {
    event!(ERROR, "a handler panicked", panic = message(&*payload));
    swallow(payload);
}

/// What it panicked with, if that is a text, as nearly always.
fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no text")
}

/// [`caught`] without an event, for the code that reports events.
#[cfg(feature = "tracing")]
pub(crate) fn quietly(f: impl FnOnce()) {
    let _inside = Inside::enter(1);
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        swallow(payload);
    }
}

fn swallow(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
