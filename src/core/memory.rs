//! Zeroed memory that costs nothing until it is touched, and whose pages can be given back.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::ops::Range;

/// Memory for a segment or an index table could not be had.
#[derive(Debug)]
pub(crate) struct OutOfMemory;

/// A box, or an error where `Box::new` would end the process.
pub(crate) fn boxed<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let layout = std::alloc::Layout::new::<T>();
    assert!(layout.size() != 0);
    // SAFETY: its size is not zero.
    let at = unsafe { std::alloc::alloc(layout) }.cast::<T>();
    if at.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: just allocated, with the layout that a box has.
    unsafe {
        at.write(value);
        Ok(Box::from_raw(at))
    }
}

#[cfg(not(expiry_loom))]
mod imp {
    use super::{OutOfMemory, Range, ZeroValid};
    use memmap2::{MmapMut, MmapOptions};
    use std::alloc::{alloc_zeroed, dealloc, Layout};

    /// An array of `T`, all zeroes at first.
    pub(crate) struct Zeroed<T> {
        at: *mut T,
        length: usize,
        /// `None` if it is the allocator's.
        map: Option<MmapMut>,
    }

    // SAFETY: it is an array of `T`, no more.
    unsafe impl<T: Sync> Sync for Zeroed<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Send for Zeroed<T> {}

    /// Mappings from this size on ask for huge pages where the system leaves that to programs.
    #[cfg(target_os = "linux")]
    const HUGE: usize = 2 << 20;

    /// Arrays up to this size come from the allocator, if their owner is going to fill them: a
    /// mapping would cost a system call, and a page at least.
    const SMALL: usize = 16 << 10;

    /// Larger ones up to this size get all pages at once: a call costs less than a fault for each.
    const FILLED: usize = 128 << 10;

    impl<T: ZeroValid> Zeroed<T> {
        pub(crate) fn map(length: usize) -> Result<Self, OutOfMemory> {
            Self::map_with(length, |_| {})
        }

        /// [`map`](Self::map) for an owner that is going to fill the array.
        pub(crate) fn map_filled(length: usize) -> Result<Self, OutOfMemory> {
            let layout = Self::layout(length)?;
            if (1..=SMALL).contains(&layout.size()) {
                // SAFETY: its size is not zero.
                let at = unsafe { alloc_zeroed(layout) }.cast::<T>();
                let zeroed = || Zeroed { at, length, map: None };
                return (!at.is_null()).then(zeroed).ok_or(OutOfMemory);
            }
            Self::map_with(length, |options| {
                if layout.size() <= FILLED {
                    options.populate();
                }
            })
        }

        fn layout(length: usize) -> Result<Layout, OutOfMemory> {
            Layout::array::<T>(length).map_err(|_| OutOfMemory)
        }

        fn map_with(
            length: usize,
            set: impl FnOnce(&mut MmapOptions),
        ) -> Result<Self, OutOfMemory> {
            let mut options = MmapOptions::new();
            set(options.len(Self::layout(length)?.size().max(1)));
            let map = options.map_anon().map_err(|_| OutOfMemory)?;
            // Only atomics lie there, so the pointer is only ever used to share.
            let at = map.as_ptr().cast_mut().cast::<T>();
            debug_assert_eq!(at as usize % std::mem::align_of::<T>(), 0);
            let zeroed = Zeroed { at, length, map: Some(map) };
            zeroed.use_huge_pages(true);
            Ok(zeroed)
        }

        /// Asks the system for huge pages from now on, or for small ones only. A hint.
        pub(crate) fn use_huge_pages(&self, huge: bool) {
            #[cfg(target_os = "linux")]
            if let Some(map) = self.map.as_ref().filter(|map| map.len() >= HUGE) {
                let advice = match huge {
                    true => memmap2::Advice::HugePage,
                    false => memmap2::Advice::NoHugePage,
                };
                let _ = map.advise(advice);
            }
            #[cfg(not(target_os = "linux"))]
            let _ = huge;
        }

        pub(crate) fn as_ptr(&self) -> *mut T {
            self.at
        }

        #[inline]
        pub(crate) fn as_slice(&self) -> &[T] {
            // SAFETY: there are `length` values of `T`, aligned; all zeroes is a valid `T`
            // (`ZeroValid`), which is atomics only, so shared access is all that there ever is.
            unsafe { std::slice::from_raw_parts(self.at, self.length) }
        }

        /// Makes all of `range` read as zeroes: whole pages of a mapping go back to the system, if
        /// it has such a call, and the rest is zeroed in place.
        pub(crate) fn release(&self, range: Range<usize>) {
            #[cfg(target_os = "linux")]
            self.release_pages(range, page_size());
            #[cfg(not(target_os = "linux"))]
            self.zero(range);
        }

        fn zero(&self, range: Range<usize>) {
            self.as_slice()[range].iter().for_each(T::zero);
        }

        /// [`release`](Self::release), with pages of this many bytes. Live values beyond the range
        /// may share its first and last page.
        #[cfg(target_os = "linux")]
        fn release_pages(&self, range: Range<usize>, page: usize) {
            let size = std::mem::size_of::<T>();
            let range = range.start..range.end.min(self.length);
            let at = |index: usize| self.as_ptr() as usize + index * size;
            let from = at(range.start).next_multiple_of(page);
            let to = at(range.end) / page * page;
            let map = match &self.map {
                Some(map) if size != 0 && from < to => map,
                _ => return self.zero(range),
            };
            let (offset, advice) = (from - at(0), memmap2::UncheckedAdvice::DontNeed);
            // SAFETY: these pages lie in the mapping, which is private and anonymous, and hold
            // atomics only. They read as zeroes afterwards, a valid value, and callers want zeroes
            // there.
            let released = unsafe { map.unchecked_advise_range(advice, offset, to - from) };
            if released.is_err() {
                return self.zero(range);
            }
            // Values that lie in a released page in part are zeroed, too.
            let first = (from - at(0)).div_ceil(size).min(range.end);
            let last = ((to - at(0)) / size).max(range.start);
            self.zero(range.start..first);
            self.zero(last.max(first)..range.end);
        }
    }

    impl<T> Drop for Zeroed<T> {
        fn drop(&mut self) {
            if let (None, Ok(layout)) = (&self.map, Layout::array::<T>(self.length)) {
                // SAFETY: allocated with this layout.
                unsafe { dealloc(self.at.cast(), layout) };
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn page_size() -> usize {
        // SAFETY: the call has no precondition.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        size.try_into().expect("the system has pages")
    }

    #[cfg(all(test, target_os = "linux"))]
    mod tests {
        use super::Zeroed;
        use crate::sync::{AtomicU32, Ordering::Relaxed};

        /// Whatever the system's pages are: neighbours of a range are live entries.
        #[test]
        fn only_the_range_is_zeroed_where_pages_are_large() {
            const LENGTH: usize = 200_000;
            for page in [4 << 10, 16 << 10, 64 << 10] {
                for range in [0..LENGTH, 1..LENGTH - 1, 70_000..150_001, 100..164, 16_000..33_000] {
                    let values = Zeroed::<AtomicU32>::map(LENGTH).unwrap();
                    values.as_slice().iter().for_each(|value| value.store(7, Relaxed));
                    values.release_pages(range.clone(), page);
                    for (at, value) in values.as_slice().iter().enumerate() {
                        let expected = if range.contains(&at) { 0 } else { 7 };
                        assert_eq!(value.load(Relaxed), expected, "{at} of {range:?}, {page}");
                    }
                }
            }
        }
    }
}

#[cfg(expiry_loom)]
mod imp {
    use super::{OutOfMemory, Range, ZeroValid};

    /// An array of `T`, all zeroes at first.
    pub(crate) struct Zeroed<T> {
        values: Box<[T]>,
    }

    impl<T: ZeroValid> Zeroed<T> {
        pub(crate) fn map(length: usize) -> Result<Self, OutOfMemory> {
            Ok(Zeroed { values: (0..length).map(|_| T::zeroed()).collect() })
        }

        pub(crate) fn map_filled(length: usize) -> Result<Self, OutOfMemory> {
            Self::map(length)
        }

        pub(crate) fn use_huge_pages(&self, _: bool) {}

        pub(crate) fn as_ptr(&self) -> *mut T {
            self.values.as_ptr().cast_mut()
        }

        pub(crate) fn as_slice(&self) -> &[T] {
            &self.values
        }

        pub(crate) fn release(&self, range: Range<usize>) {
            for value in &self.values[range] {
                value.zero();
            }
        }
    }
}

pub(crate) use imp::Zeroed;

/// Values made of atomics for which all zero bits are valid.
///
/// # Safety
///
/// All zero bits must be a valid value, and every part of it must be an atomic.
pub(crate) unsafe trait ZeroValid {
    /// A zero value, where memory is made of values.
    #[cfg(expiry_loom)]
    fn zeroed() -> Self;
    /// Writes zero over the value, part by part.
    fn zero(&self);
}

// SAFETY: an integer behind an atomic.
unsafe impl ZeroValid for AtomicU32 {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        AtomicU32::new(0)
    }
    fn zero(&self) {
        // survives: stands in for pages that are given back. All blocks of the chunk are owned,
        // and given back with Release after it.
        self.store(0, Ordering::Release);
    }
}

// SAFETY: an integer behind an atomic.
unsafe impl ZeroValid for AtomicU64 {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        AtomicU64::new(0)
    }
    fn zero(&self) {
        // survives: as `AtomicU32`: these are the birth stamps of ack trees.
        self.store(0, Ordering::Release);
    }
}

// SAFETY: it has no bits.
unsafe impl ZeroValid for () {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {}
    fn zero(&self) {}
}
