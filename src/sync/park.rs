//! Sleeping and being woken, for reaper threads.

use super::stack::Stack;
use super::thread::Thread;
use std::sync::Arc;
use std::time::Duration;

/// A thread that sleeps, for one store or for many.
///
/// A wake-up before the sleep is not lost: `unpark` leaves a token that the next `park` consumes.
pub(crate) struct Sleeper {
    thread: Thread,
    /// Where many stores share the thread: which of them wakes it, and where it looks for that.
    call: Option<(u64, Arc<Stack<u64>>)>,
}

impl Sleeper {
    /// A thread that looks after one store.
    pub(crate) fn own(thread: Thread) -> Self {
        Sleeper { thread, call: None }
    }

    /// A thread that looks after many stores. Each time it wakes it takes from `calls` the numbers
    /// of the stores that have woken it.
    pub(crate) fn shared(thread: Thread, number: u64, calls: Arc<Stack<u64>>) -> Self {
        Sleeper { thread, call: Some((number, calls)) }
    }

    pub(crate) fn wake(&self) {
        // First: an unparked thread must find the number.
        // `w04_a_shared_reaper_is_woken_by_each_of_its_stores` fails with the two exchanged.
        if let Some((number, calls)) = &self.call {
            calls.push(*number);
        }
        self.thread.unpark();
    }
}

/// Sleeps until woken or until `limit` has passed, whichever is first.
#[cfg(not(expiry_loom))]
pub(crate) fn park(limit: Option<Duration>) {
    match limit {
        Some(limit) => std::thread::park_timeout(limit),
        None => std::thread::park(),
    }
}

/// Sleeps until woken, or not at all if the limit has passed. The model checker has no time: models
/// move their clock and call `Wakeup::timer_fires`. It reports a sleep that neither ends as a
/// deadlock, which is what a lost wake-up is.
#[cfg(expiry_loom)]
pub(crate) fn park(limit: Option<Duration>) {
    if limit != Some(Duration::ZERO) {
        loom::thread::park();
    }
}

/// Sleeps for a moment. The user's threads call it: it consumes no wake-up that is meant for them.
pub(crate) fn nap(time: Duration) {
    #[cfg(not(expiry_loom))]
    std::thread::sleep(time);
    #[cfg(expiry_loom)]
    doze(time);
}

/// Sleeps for a moment, or until woken.
pub(crate) fn doze(limit: Duration) {
    #[cfg(not(expiry_loom))]
    park(Some(limit));
    // In a model the other threads have their turn.
    #[cfg(expiry_loom)]
    let _ = limit;
    #[cfg(expiry_loom)]
    loom::thread::yield_now();
}

/// Back-off of a thread that waits for a busy one, be it for an instruction or for seconds. It
/// yields first, and then sleeps, each time for a tenth longer: a wait ends late by a tenth of its
/// length, and by [`LONGEST`] at most.
pub(crate) struct Backoff {
    turns: u32,
    sleep: Duration,
}

/// How often a waiting thread yields before it sleeps.
const TURNS: u32 = 64;

/// The first and the longest sleep.
const FIRST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(10);

/// After so many turns it has waited for a second: no thread outside a user's code is kept from
/// going on for so long.
const LONG: u32 = TURNS + 160;

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff { turns: 0, sleep: FIRST }
    }

    /// Whether this has waited for longer than any instruction takes.
    pub(crate) fn is_long(&self) -> bool {
        self.turns > LONG
    }

    /// Yields or sleeps. It does not park: other code may have unparked the caller's thread.
    pub(crate) fn wait(&mut self) {
        self.turns += 1;
        if self.turns <= TURNS {
            super::thread::yield_now();
        } else {
            nap(self.sleep);
            self.sleep = (self.sleep * 11 / 10).min(LONGEST);
        }
    }
}
