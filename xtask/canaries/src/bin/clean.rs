//! Correct, and made of what the real tests are made of: a tool that reports this cannot be told from one that reports a bug.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

/// Written by one thread before it raises the flag, read by another after it has seen it raised.
#[derive(Default)]
struct Published {
    value: UnsafeCell<u64>,
    flag: AtomicBool,
}

// SAFETY: see above.
unsafe impl Sync for Published {}

fn a_lock_that_is_fought_for() -> u64 {
    let sum = Arc::new(Mutex::new(vec![0; 10]));
    let add = |sum: Arc<Mutex<Vec<u64>>>| {
        move || (0..20_000).for_each(|n| sum.lock().unwrap()[n % 10] += 1)
    };
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(add(sum.clone()))).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let sum = sum.lock().unwrap().iter().sum();
    sum
}

fn a_channel() -> u64 {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || (0..10_000).for_each(|n| send.send(Box::new(n)).unwrap()));
    let sum = receive.iter().map(|n| *n).sum();
    thread.join().unwrap();
    sum
}

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
    let sums = [
        a_lock_that_is_fought_for(),
        a_channel(),
        the_last_owner(),
        a_flag(),
    ];
    assert_eq!(sums, [80_000, 49_995_000, 39_800, 7]);
}
