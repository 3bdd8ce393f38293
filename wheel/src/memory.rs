//! Hints about memory: what is about to be read, and which arrays want huge pages.

/// Starts fetching what `place` points to into the cache; a hint.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    let place: *const T = place;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching has no effect but on speed, and SSE is part of x86_64.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// Makes room for `len` elements in all, amortised, on huge pages where the system leaves that to
/// programs: tens of megabytes touched at random wait for page tables more than for memory.
pub(crate) fn reserve<T>(array: &mut Vec<T>, len: usize) {
    /// Arrays from this size on; a huge page of most systems.
    const HUGE: usize = 2 << 20;
    if len <= array.capacity() {
        return;
    }
    let capacity = len.max(2 * array.capacity());
    if capacity.saturating_mul(std::mem::size_of::<T>()) < HUGE {
        array.reserve(len - array.len());
        return;
    }
    // Not in place: huge pages have to be asked for before the memory is touched.
    let mut larger = Vec::with_capacity(capacity);
    ask_for_huge_pages(&mut larger, HUGE);
    larger.append(array);
    *array = larger;
}

#[cfg(all(target_os = "linux", not(miri)))]
fn ask_for_huge_pages<T>(array: &mut Vec<T>, size: usize) {
    use std::ffi::{c_int, c_void};
    extern "C" {
        fn madvise(begin: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    const MADV_HUGEPAGE: c_int = 14;
    let begin = array.as_mut_ptr() as usize;
    let end = begin + array.capacity() * std::mem::size_of::<T>();
    // Whole ones only: what else is in the first and the last is not ours.
    let (first, last) = ((begin + size - 1) & !(size - 1), end & !(size - 1));
    if first < last {
        // SAFETY: the range lies in memory that the array has, and what is in it stays as it is.
        // Refusal changes nothing but speed. Every program of `std` on Linux links this function.
        let _ = unsafe { madvise(first as *mut c_void, last - first, MADV_HUGEPAGE) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_for_huge_pages<T>(_: &mut Vec<T>, _: usize) {}
