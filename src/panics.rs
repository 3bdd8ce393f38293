//! What runs on a thread that has nothing to do with it, handlers and drops, must not take that thread with it.

use crate::inject::{hit, Bug};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs `f`. True if it panicked, which nobody else hears of: not even a payload whose drop panics gets out.
#[inline(always)]
pub(crate) fn caught(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => false,
        Err(payload) => {
            swallow(payload);
            !hit(Bug::LostPanic)
        }
    }
}

#[cold]
#[inline(never)]
fn swallow(payload: Box<dyn std::any::Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
