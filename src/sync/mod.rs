//! The one door to atomics, cells, threads and pinning.
//!
//! Everything in the crate whose correctness depends on the memory model comes through here, so a
//! build with `--cfg expiry_loom` runs the same code under the loom model checker. Statistics
//! (counters that decide nothing) use [`core::sync::atomic`] in both builds: the checker would
//! spend its time on them.

#[cfg(expiry_loom)]
use loom as source;
#[cfg(not(expiry_loom))]
use std as source;

#[cfg(expiry_loom)]
pub(crate) use loom::sync::atomic::AtomicUsize;
pub(crate) use source::sync::atomic::{
    fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering,
};
// For calls that wait by their nature, as for another thread's load; nothing lock-free uses them.
pub(crate) use source::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use source::thread;

pub(crate) mod asymmetric;
pub(crate) mod cell;
#[cfg(test)]
pub(crate) mod counted;
#[cfg(expiry_loom)]
#[path = "../../tests/loom/epoch.rs"]
pub(crate) mod epoch;
pub(crate) mod exclusive;
pub(crate) mod flights;
pub(crate) mod park;
pub(crate) mod process;
pub(crate) mod stack;
#[cfg(feature = "async")]
pub(crate) mod tasks;
pub(crate) mod worker;

/// Stores a value after one that another thread's read-modify-write may just have put there.
///
/// Loom needs a swap: it takes a store and such a value for concurrent, and lets a later read see
/// either. In C++'s model nothing comes between that value and the one that it was made of.
#[inline(always)]
pub(crate) fn overwrite(word: &AtomicU64, value: u64, order: Ordering) {
    #[cfg(not(expiry_loom))]
    word.store(value, order);
    #[cfg(expiry_loom)]
    word.swap(value, order);
}

/// Starts fetching what `place` points to into the cache; a hint. There may be nothing at it.
#[inline(always)]
pub(crate) fn prefetch_at<T>(place: *const T) {
    #[cfg(test)]
    counted::PREFETCHES.set(counted::PREFETCHES.get() + 1);
    #[cfg(all(target_arch = "x86_64", not(miri), not(expiry_loom)))]
    // SAFETY: prefetching affects only speed, wherever it points, and SSE is part of x86_64.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(expiry_loom))))]
    let _ = place;
}

/// A step of a protocol between two atomic accesses, by name. In a model another thread
/// goes on there, if the model says so; else this is nothing.
#[inline(always)]
pub(crate) fn step(_name: &'static str) {
    #[cfg(expiry_loom)]
    steps::reached(_name);
}

#[cfg(expiry_loom)]
pub(crate) mod steps {
    use std::cell::RefCell;
    use std::rc::Rc;

    type Stops = Rc<dyn Fn(&'static str) -> bool>;

    std::thread_local! {
        // It belongs to the system's thread, on which all threads of a model take turns.
        static STOPS: RefCell<Option<Stops>> = const { RefCell::new(None) };
    }

    pub(super) fn reached(name: &'static str) {
        let stops = STOPS.with_borrow(Clone::clone);
        if stops.is_some_and(|stops| stops(name)) {
            loom::thread::yield_now();
        }
    }

    /// From now until the next call, a thread yields at each step for which `stops` is true.
    pub(crate) fn stop_at(stops: impl Fn(&'static str) -> bool + 'static) {
        STOPS.set(Some(Rc::new(stops)));
    }
}
