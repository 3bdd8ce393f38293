//! Random ids of edges.

use crate::sync::process;
use rand::{rngs::SmallRng, RngCore, SeedableRng};
use std::cell::RefCell;

/// A random 64-bit edge id, never zero, from a generator that each thread has seeded from the OS.
/// In the child of a `fork` the thread seeds its generator anew, so parent and child draw different
/// ids.
///
/// With random ids, a tree completes falsely if the XOR of the outstanding ids happens to be zero:
/// a chance of 2^-64 for each ack. At 10,000 acks per second that is once in 58 million years (2^64
/// / 10^4 s = 1.8 * 10^15 s; a widely copied text says 5.8).
///
/// ```
/// use expiry::{edge, AckTracker};
///
/// let tracker = AckTracker::builder().build()?;
/// let (first, second) = (edge(), edge());
/// let root = tracker.issue(first ^ second, 42)?;
/// tracker.ack(root, second)?;
/// tracker.ack(root, first)?;
/// assert!(tracker.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[inline]
pub fn edge() -> u64 {
    thread_local! {
        /// The generator, and the process that has seeded it: the child of a fork has a copy.
        static GENERATOR: RefCell<(u32, SmallRng)> = RefCell::new(seeded());
    }
    let draw = |generator: &mut (u32, SmallRng)| loop {
        if generator.0 != process::current() {
            *generator = seeded();
        }
        let id = generator.1.next_u64();
        if id != 0 {
            return id;
        }
    };
    // A thread that is ending has no generator any more. This call makes one for itself.
    GENERATOR
        .try_with(|generator| draw(&mut generator.borrow_mut()))
        .unwrap_or_else(|_| draw(&mut seeded()))
}

#[cold]
fn seeded() -> (u32, SmallRng) {
    (process::current(), SmallRng::from_os_rng())
}
