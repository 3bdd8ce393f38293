//! Correct, and made of what the real tests are made of but locks and channels: of these, a tool sees too little where `std` is
//! not instrumented. A tool that reports this cannot be told from one that reports a bug.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;

/// Written by one thread before it raises the flag, read by another after it has seen it raised.
#[derive(Default)]
struct Published {
    value: UnsafeCell<u64>,
    flag: AtomicBool,
}

// SAFETY: see above.
unsafe impl Sync for Published {}

/// The last owner, whoever that is, frees what the others have read.
fn the_last_owner() -> u64 {
    let read = Arc::new(AtomicU64::new(0));
    for n in 0..200 {
        let shared = Arc::new(vec![n; 10]);
        let threads: Vec<_> = (0..2)
            .map(|_| (shared.clone(), read.clone()))
            .map(|(shared, read)| {
                thread::spawn(move || read.fetch_add(shared[3], Ordering::Relaxed))
            })
            .collect();
        drop(shared);
        threads
            .into_iter()
            .for_each(|thread| assert!(thread.join().is_ok()));
    }
    read.load(Ordering::Relaxed)
}

fn a_flag() -> u64 {
    let published = Arc::new(Published::default());
    let writer = published.clone();
    let thread = thread::spawn(move || {
        // SAFETY: the flag is not raised yet.
        unsafe { *writer.value.get() = 7 };
        writer.flag.store(true, Ordering::Release);
    });
    while !published.flag.load(Ordering::Acquire) {
        thread::yield_now();
    }
    // SAFETY: the flag is raised.
    let value = unsafe { *published.value.get() };
    thread.join().unwrap();
    value
}

fn main() {
    assert_eq!([the_last_owner(), a_flag()], [39_800, 7]);
}
