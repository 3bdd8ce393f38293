//! Threads of a run, and what is shown while they run.

use crate::live::Live;
use crossbeam_channel::{bounded, RecvTimeoutError};
use std::ops::Range;

/// What a thread of a run does, and brings back.
pub type Work<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// The part of so many entries that is a thread's, of so many threads.
pub fn part(entries: u64, (thread, threads): (usize, usize)) -> Range<u64> {
    let at = |thread: usize| entries * thread as u64 / threads as u64;
    at(thread)..at(thread + 1)
}

/// Runs each work on a thread of its own, to the end of all, and calls `show` meanwhile to display
/// progress. Returns the results in the works' order.
pub fn crowd<'a, T: Send>(
    works: Vec<Work<'a, T>>,
    live: &mut Live,
    mut show: impl FnMut(&mut Live),
) -> Vec<T> {
    let (alive, gone) = bounded::<()>(0);
    std::thread::scope(|scope| {
        let spawned = works.into_iter().map(|work| {
            let alive = alive.clone();
            scope.spawn(move || {
                let _alive = alive;
                work()
            })
        });
        let threads: Vec<_> = spawned.collect();
        drop(alive);
        while gone.recv_timeout(live.pause()) == Err(RecvTimeoutError::Timeout) {
            show(live);
        }
        // A panic in a worker is a bug in this program: pass it on.
        let brought = threads.into_iter().map(|thread| thread.join().expect("a worker panicked"));
        brought.collect()
    })
}
