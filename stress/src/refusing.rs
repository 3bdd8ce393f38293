//! Memory that is refused on demand: the allocator's, and the pages that the engine asks the system
//! for.
//!
//! This program replaces both while it runs. The allocator wraps the system's. `mmap64`, through
//! which pages are mapped, takes the place of the C library's and makes the same system call. (The
//! C library uses a name of its own for stacks and its heap.) Both refuse as the system does: by a
//! null pointer, and by `ENOMEM`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Whether pages can be refused here.
pub const IS_POSSIBLE: bool = cfg!(all(target_os = "linux", target_pointer_width = "64"));

/// Pages from this size on are refused: what the engine maps for its smallest table is 4 KiB.
const PAGES_FROM: usize = 4096;

thread_local! {
    /// What is refused to this thread.
    static MINE: Cell<Option<What>> = const { Cell::new(None) };
}

/// All threads are refused pages.
static ALL: AtomicBool = AtomicBool::new(false);
/// How often pages were refused, and boxes.
static PAGES: AtomicUsize = AtomicUsize::new(0);
static BOXES: AtomicUsize = AtomicUsize::new(0);

/// What is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Pages that are mapped.
    Pages,
    /// What the allocator is asked for.
    Boxes,
}

/// While it lives, requests are refused. One at a time for each thread, and one for all of them.
pub struct Refused {
    all: bool,
}

impl Refused {
    /// A refusal to this thread.
    pub fn to_me(what: What) -> Self {
        MINE.set(Some(what));
        Refused { all: false }
    }

    /// Pages, to all threads.
    pub fn to_all() -> Self {
        ALL.store(true, Release);
        Refused { all: true }
    }

    /// How many requests for pages have been refused so far, and how many for boxes.
    pub fn counts() -> (usize, usize) {
        (PAGES.load(Relaxed), BOXES.load(Relaxed))
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        if self.all {
            ALL.store(false, Release);
        } else {
            MINE.set(None);
        }
    }
}

/// Whether this thread is refused this. An ending thread no longer has such a cell: it gets what it
/// asks for.
fn to_me(what: What) -> bool {
    MINE.try_with(|mine| mine.get() == Some(what)).unwrap_or(false)
}

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: the system's allocator, but for requests that are refused as it may refuse them.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if to_me(What::Boxes) {
            BOXES.fetch_add(1, Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract; the memory came from there.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Maps pages, as the C library's function of this name does.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    at: *mut libc::c_void,
    length: libc::size_t,
    protection: libc::c_int,
    flags: libc::c_int,
    file: libc::c_int,
    offset: libc::off_t,
) -> *mut libc::c_void {
    let refused = ALL.load(Acquire) || to_me(What::Pages);
    if refused && length >= PAGES_FROM {
        PAGES.fetch_add(1, Relaxed);
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return libc::MAP_FAILED;
    }
    // SAFETY: the caller's contract; the system call has these arguments in this order.
    unsafe {
        libc::syscall(libc::SYS_mmap, at, length, protection, flags, file, offset)
            as *mut libc::c_void
    }
}
