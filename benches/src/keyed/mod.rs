//! Stores of keys that expire, behind one trait, statically dispatched; [`course`] and [`expire`] are what is asked of them.
//!
//! A queue (sessions, leases) is a store without values: its `V` is `()`.
//!
//! # What makes it fair, beside what the crate's first page says
//!
//! * Keys are handed over as the store needs them: owned for an insertion, by reference otherwise; who must own a key to renew
//!   it takes the caller's. All of them were allocated before the clock starts, in the order in which they are needed.
//! * Where a store keeps a key in two places, it gets `Arc<str>` for strings: what the object reference is in Java.
//! * One hasher for everybody, foldhash's fast one, which is also our maps' own.
//! * The clock. In queues time is simulated: who can be told gets a plain number, ours loads its `ManualClock`. In maps it
//!   is real: everybody reads [`CoarseClock`], which is our default, except moka and mini-moka, which read their own. moka's
//!   `quanta` feature is on, so that it reads the processor's counter where that can be trusted, and otherwise the system's
//!   clock, which is what mini-moka always reads.
//! * What counts is processor time of the whole process: what threads of the store's own do, and what is left to do when the
//!   last call has returned, is in it. Time spent waiting for a lock is not, which is in favour of those that have locks.
//! * The work is checked: sums of the values found, numbers of entries found, renewed, removed, expired, and of values
//!   dropped. `tests` sees that everybody does the same.

pub mod course;
mod delay_queue;
pub mod expire;
mod mini_moka;
mod moka;
mod nothing;
mod ours;
mod papaya;
mod sharded;
mod zookeeper;

pub use delay_queue::DelayQueue;
pub use mini_moka::MiniMoka;
pub use moka::{Moka, MokaEach, Timed};
pub use nothing::Nothing;
pub use ours::{Map, QueueByHandle, QueueByKey};
pub use papaya::Papaya;
pub use sharded::Sharded;
pub use zookeeper::ZooKeeper;

use crate::window::mix;
use expiry::{Clock, CoarseClock, ManualClock};
use std::fmt::{Debug, Write};
use std::hash::Hash;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A key, made from a number.
pub trait Key: Hash + Eq + Clone + Default + Debug + Send + Sync + 'static {
    /// What it is called in tables.
    const NAME: &'static str;
    /// Bytes that it owns on the heap.
    const HEAP: usize;

    /// The `n`th.
    fn make(n: u64) -> Self;
}

impl Key for u64 {
    const NAME: &'static str = "u64";
    const HEAP: usize = 0;

    #[inline]
    fn make(n: u64) -> u64 {
        mix(n + 1)
    }
}

/// Bytes of a string.
const TEXT: usize = 24;

fn text(n: u64) -> String {
    // No byte to spare: memory is weighed.
    let mut text = String::with_capacity(TEXT);
    let written = write!(text, "session-{:016x}", mix(n + 1));
    debug_assert!(written.is_ok() && text.len() == TEXT);
    text
}

impl Key for String {
    const NAME: &'static str = "String";
    const HEAP: usize = TEXT;

    fn make(n: u64) -> String {
        text(n)
    }
}

impl Key for Arc<str> {
    const NAME: &'static str = "String";
    /// Its counters included.
    const HEAP: usize = TEXT + 16;

    fn make(n: u64) -> Arc<str> {
        text(n).into()
    }
}

/// A value, made from a number.
pub trait Value: Clone + Send + Sync + 'static {
    /// The `n`th.
    fn make(n: u64) -> Self;

    /// The number, if it has kept it.
    fn number(&self) -> u64;
}

impl Value for u64 {
    #[inline]
    fn make(n: u64) -> u64 {
        n
    }

    #[inline]
    fn number(&self) -> u64 {
        *self
    }
}

impl Value for () {
    #[inline]
    fn make(_n: u64) {}

    #[inline]
    fn number(&self) -> u64 {
        0
    }
}

static COUNTED: AtomicI64 = AtomicI64::new(0);

/// Eight bytes that are counted while they live.
#[derive(Debug)]
pub struct Counted(u64);

impl Counted {
    /// How many there are.
    #[must_use]
    pub fn alive() -> i64 {
        COUNTED.load(Ordering::Relaxed)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::make(self.0)
    }
}

impl Drop for Counted {
    #[inline]
    fn drop(&mut self) {
        COUNTED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Value for Counted {
    #[inline]
    fn make(n: u64) -> Self {
        COUNTED.fetch_add(1, Ordering::Relaxed);
        Counted(n)
    }

    #[inline]
    fn number(&self) -> u64 {
        self.0
    }
}

/// What a store goes by.
#[derive(Debug, Clone)]
pub enum Time {
    /// The machine's time, by our default clock.
    Real(CoarseClock),
    /// Time that the harness moves.
    Simulated(ManualClock),
}

/// The present, for those who can be told.
#[derive(Clone, Copy)]
pub struct Now<'a> {
    real: Option<&'a CoarseClock>,
    told: u64,
}

impl Now<'_> {
    /// In nanoseconds: a reading of the clock, or a number.
    #[inline]
    #[must_use]
    pub fn get(self) -> u64 {
        match self.real {
            Some(clock) => clock.coarse(),
            None => self.told,
        }
    }
}

impl Time {
    /// The present; simulated time does not move on for who keeps it.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Now<'_> {
        match self {
            Time::Real(clock) => Now {
                real: Some(clock),
                told: 0,
            },
            Time::Simulated(clock) => Now {
                real: None,
                told: clock.now(),
            },
        }
    }
}

/// To what expiry times are rounded by those who round; the default of our queues.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Somebody who keeps keys until they expire.
pub trait Store<K: Key, V: Value>: Send + Sync + Sized {
    /// What it is called in tables.
    const NAME: &'static str;
    /// Whether it does the work, or only shows what asking for it costs.
    const WORKS: bool = true;
    /// Whether it can only go by the machine's time.
    const REAL: bool = false;
    /// What a renewal needs beside the key.
    type Handle: Copy + Default + Send + Sync;

    /// Makes an empty one of default size. About `entries` will be in it, each for `timeout` unless it says otherwise.
    fn new(time: &Time, entries: usize, timeout: Duration) -> Self;

    /// Calls `f` as every thread that uses this must be called.
    fn on_thread<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// A key that is not there yet; it expires `timeout` nanoseconds from now.
    fn insert(&self, key: K, value: V, now: Now<'_>, timeout: u64) -> Self::Handle;

    /// The number of the value, unless it is not there.
    fn get(&self, key: &K, now: Now<'_>) -> Option<u64>;

    /// The key gets its timeout anew. False if it is not there, where that is told.
    fn renew(
        &self,
        key: &mut K,
        handle: Self::Handle,
        value: V,
        now: Now<'_>,
        timeout: u64,
    ) -> bool;

    /// Takes a key out. False if it was not there.
    fn remove(&self, key: &K) -> bool;

    /// Ends everything that is due at `now`. How many, unless that is asked in [`live`](Self::live) only.
    fn advance(&self, now: u64) -> usize;

    /// Does what it has put off. To be called until it is through, by who waits for values to be dropped.
    fn tidy(&self) {}

    /// How many there are.
    fn live(&self) -> usize;
}

#[cfg(test)]
mod tests;
