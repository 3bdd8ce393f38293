//! What runs on a thread that has nothing to do with it, handlers and drops, must not take that thread with it.

use crate::trace::event;
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs `f`. True if it panicked, which nobody else hears of: not even a payload whose drop panics gets out.
#[inline(always)]
pub(crate) fn caught(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => false,
        Err(payload) => {
            tell(payload);
            true
        }
    }
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

/// As [`caught`], for what tells of panics itself.
#[cfg(feature = "tracing")]
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        swallow(payload);
    }
}

fn swallow(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
