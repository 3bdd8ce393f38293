//! Stacks that loom's threads use again.
//!
//! Loom maps a stack for each thread of each execution, and unmaps it afterwards: for that the
//! kernel took a quarter of the models' processor time. The linker gives loom these functions
//! instead of those of the C library. Each of the system's threads keeps the stacks that it has
//! mapped.

use libc::{c_int, c_void, off_t, size_t, syscall, SYS_mmap, SYS_munmap, MAP_STACK};
use std::cell::RefCell;

struct Stack {
    start: *mut c_void,
    len: size_t,
    free: bool,
}

std::thread_local! {
    static STACKS: RefCell<Vec<Stack>> = const { RefCell::new(Vec::new()) };
}

/// Sets whether the first stack that `wanted` accepts is free. Returns its start.
fn set_free(free: bool, wanted: impl Fn(&Stack) -> bool) -> Option<*mut c_void> {
    let set = |stacks: &RefCell<Vec<Stack>>| {
        let mut stacks = stacks.borrow_mut();
        let stack = stacks.iter_mut().find(|stack| wanted(stack))?;
        stack.free = free;
        Some(stack.start)
    };
    // A thread that ends has no list any more. What it unmaps then goes to the kernel.
    STACKS.try_with(set).ok().flatten()
}

/// Returns a free stack of this length, or does what the C library does.
///
/// # Safety
///
/// As `mmap(2)`.
#[no_mangle]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_stack = at.is_null() && flags & MAP_STACK != 0;
    if is_stack {
        if let Some(start) = set_free(false, |stack| stack.free && stack.len == len) {
            return start;
        }
    }
    // SAFETY: the caller's.
    let start = unsafe { syscall(SYS_mmap, at, len, protection, flags, file, offset) };
    let start = start as *mut c_void;
    if is_stack && start != libc::MAP_FAILED {
        let stack = Stack { start, len, free: false };
        let _ = STACKS.try_with(|stacks| stacks.borrow_mut().push(stack));
    }
    start
}

/// Keeps a stack that this thread has mapped, or does what the C library does.
///
/// # Safety
///
/// As `munmap(2)`.
#[no_mangle]
pub unsafe extern "C" fn munmap(start: *mut c_void, len: size_t) -> c_int {
    if set_free(true, |stack| stack.start == start && stack.len == len).is_some() {
        return 0;
    }
    // SAFETY: the caller's.
    unsafe { syscall(SYS_munmap, start, len) as c_int }
}
