//! An allocator that counts. A test that includes this module has it as its allocator, and so is
//! alone in its binary, or counts by the thread: the test harness allocates on its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that are allocated and not freed.
static PROCESS: AtomicUsize = AtomicUsize::new(0);

// Without destructors, so they are there to a thread's end.
thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    static FREED: Cell<usize> = const { Cell::new(0) };
}

/// Bytes of the whole process that are allocated and not freed.
pub fn process() -> usize {
    PROCESS.load(Relaxed)
}

/// How often this thread has allocated.
pub fn calls() -> usize {
    CALLS.with(Cell::get)
}

/// How many bytes this thread has allocated.
pub fn allocated() -> usize {
    ALLOCATED.with(Cell::get)
}

/// How many of them more than it has freed.
pub fn held() -> isize {
    allocated() as isize - FREED.with(Cell::get) as isize
}

/// Bytes of this process by a field of `statm`: 0 is what it has mapped, 1 what is resident.
#[cfg(target_os = "linux")]
pub fn statm(field: usize) -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(field).unwrap().parse::<usize>().unwrap() * 4096
}

struct Counting;

fn add(to: &Cell<usize>, n: usize) {
    to.set(to.get() + n);
}

// SAFETY: everything is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PROCESS.fetch_add(layout.size(), Relaxed);
        CALLS.with(|calls| add(calls, 1));
        ALLOCATED.with(|bytes| add(bytes, layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        PROCESS.fetch_sub(layout.size(), Relaxed);
        FREED.with(|bytes| add(bytes, layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
