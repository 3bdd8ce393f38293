//! Which process this is: a child of `fork` has the memory of its parent, and one of its threads.
//!
//! The child never gets what another thread held at the fork: no thread is left to give it back. So
//! a holder marks what it holds with its process.

/// A number, not zero, that a process has and its parent has not. One load after the first call.
#[cfg(all(target_os = "linux", not(miri), not(expiry_loom)))]
#[inline]
pub(crate) fn current() -> u32 {
    use std::sync::atomic::Ordering;
    let page = imp::PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: a published page stays.
        let number = unsafe { &*page }.load(Ordering::Relaxed);
        if number != 0 {
            return number;
        }
    }
    imp::first()
}

#[cfg(all(unix, not(expiry_loom), any(miri, not(target_os = "linux"))))]
#[inline]
pub(crate) fn current() -> u32 {
    std::process::id()
}

/// There is no fork here.
#[cfg(any(expiry_loom, not(unix)))]
#[inline]
pub(crate) fn current() -> u32 {
    1
}

#[cfg(all(target_os = "linux", not(miri), not(expiry_loom)))]
mod imp {
    use libc::{madvise, mmap, munmap, MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

    /// A page that the system wipes in a fork's child; null until made, or if it does not know how.
    pub(super) static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

    /// The page's length. It may be less than the system's, not more.
    const LENGTH: usize = 4096;

    #[cold]
    #[inline(never)]
    pub(super) fn first() -> u32 {
        let id = std::process::id();
        let mut page = PAGE.load(Ordering::Acquire);
        if page.is_null() {
            page = publish();
        }
        // SAFETY: null, or a page that stays.
        if let Some(number) = unsafe { page.as_ref() } {
            // All threads of a process store the same.
            number.store(id, Ordering::Relaxed);
        }
        id
    }

    fn publish() -> *mut AtomicU32 {
        // SAFETY: a new mapping, where the system likes.
        let made = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            mmap(null_mut(), LENGTH, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        };
        if made == MAP_FAILED {
            return null_mut();
        }
        // SAFETY: the mapping above.
        let wiped = unsafe { madvise(made, LENGTH, MADV_WIPEONFORK) };
        let mut published = null_mut();
        if wiped == 0 {
            let fresh = made.cast::<AtomicU32>();
            match PAGE.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return fresh,
                Err(theirs) => published = theirs,
            }
        }
        // SAFETY: this is the mapping made here, which no other thread has seen.
        unsafe { munmap(made, LENGTH) };
        published
    }
}
