//! Two threads write one word without synchronising.

use std::cell::UnsafeCell;

struct Shared(UnsafeCell<u64>);

// SAFETY: there is none; that is what it is for.
unsafe impl Sync for Shared {}

static WORD: Shared = Shared(UnsafeCell::new(0));

fn count() {
    for _ in 0..100_000 {
        // SAFETY: as above.
        unsafe { *WORD.0.get() += 1 };
    }
}

fn main() {
    let other = std::thread::spawn(count);
    count();
    other.join().expect("it counts");
    // SAFETY: the other one has ended.
    println!("{}", unsafe { *WORD.0.get() });
}
