//! The core: slots, their index, their expiry. Everything that is lock-free is in here.
//!
//! ```text
//!   faces (ack)  ->  engine  ->  index   ->  slots  ->  sync
//!                       |  ->  inbox   ->
//!                       |  ->  wheel (single owner: the driver)
//! ```
//!
//! A slot ([`slots`]) is one live thing; its [`lease`] decides. Slots sit in buckets of 16 whose headers have
//! an atomic next expiration. [`engine`] claims slots, ends them, and drives their expiry: one driver
//! at a time (the reaper thread, or whoever polls) keeps a wheel of buckets per shard. [`inbox`] is how
//! others tell it of earlier deadlines, [`index`] how ids that callers choose are found, [`threads`]
//! what each thread keeps to itself.

pub(crate) mod engine;
pub(crate) mod inbox;
pub(crate) mod index;
pub(crate) mod lease;
pub(crate) mod params;
pub(crate) mod reaper;
pub(crate) mod slots;
pub(crate) mod threads;

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
