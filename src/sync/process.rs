//! Which process this is: a child of `fork` has the memory of its parent, and one of its threads.
//!
//! The child never gets what another thread held at the fork: no thread is left to give it back. So
//! a holder marks what it holds with its process.

/// A number, not zero, that a process has and its parent has not. One load after the first call.
#[cfg(all(unix, not(expiry_loom), not(miri)))]
#[inline]
pub(crate) fn current() -> u32 {
    match imp::NUMBER.load(std::sync::atomic::Ordering::Relaxed) {
        0 => imp::first(),
        number => number,
    }
}

/// There is no fork here.
#[cfg(any(expiry_loom, miri, not(unix)))]
#[inline]
pub(crate) fn current() -> u32 {
    1
}

#[cfg(all(unix, not(expiry_loom), not(miri)))]
mod imp {
    use std::process::id;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// Zero until asked for.
    pub(super) static NUMBER: AtomicU32 = AtomicU32::new(0);

    /// The C library calls this in the child, whose only thread is in `fork`.
    extern "C" fn begin_child() {
        NUMBER.store(id(), Relaxed);
    }

    /// Threads that come here at once register the handler once each, which does no harm.
    #[cold]
    #[inline(never)]
    pub(super) fn first() -> u32 {
        // Before the number is set: a child has the handler, or asks anew.
        // SAFETY: the handler makes a system call and a store. If there is no memory for it, a
        // child takes itself for its parent.
        unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
        NUMBER.store(id(), Relaxed);
        id()
    }
}
