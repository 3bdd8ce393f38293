//! The one door to atomics, cells, threads and pinning.
//!
//! Everything in the crate whose correctness depends on the memory model comes through here, so that
//! a build with `--cfg expiry_loom` runs the very same code under the loom model checker. Statistics
//! (counters that decide nothing) deliberately use [`core::sync::atomic`] in both builds: the checker
//! would spend its time on them.

#[cfg(not(expiry_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(expiry_loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

#[cfg(expiry_loom)]
pub(crate) use loom::thread;
#[cfg(not(expiry_loom))]
pub(crate) use std::thread;

pub(crate) mod exclusive;
pub(crate) mod grace;
pub(crate) mod park;

/// Starts fetching what `place` points to into the cache; a hint.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    prefetch_at(place);
}

/// As [`prefetch`], of an address at which there may be nothing.
#[inline(always)]
pub(crate) fn prefetch_at<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(expiry_loom)))]
    // SAFETY: prefetching has no effect but on speed, wherever it points, and SSE is part of x86_64.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(expiry_loom))))]
    let _ = place;
}
