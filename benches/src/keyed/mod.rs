//! Stores of keys that expire, behind one trait, statically dispatched. [`course`] measures their
//! operations, [`expire`] their expiry. A queue (sessions, leases) is a store whose `V` is `()`.
//!
//! What makes the figures fair, beside what the crate's first page says:
//!
//! * An insertion gets a clone of the key, inside the timer, for every store and for the harness
//!   alone; every other call gets a reference. A store that must own a key to touch it clones the
//!   key itself.
//! * Every map compares the deadline with one clock reading in each `get`, `touch` and `remove`,
//!   unless its `DOES` says otherwise. The figures print `DOES` beside each store.
//! * A store that keeps a key in two places gets `Arc<str>` for strings, as Java has references.
//! * All stores hash with foldhash's fast hasher, which is also the default of our maps.
//! * Maps read [`CoarseClock`], our default; moka reads a clock of its own, with its `quanta`
//!   feature. In queues time is simulated: ours load a `ManualClock`, peers get a number.
//! * The figures are processor time of the whole process: they include threads of a store, and work
//!   left after the last call. Waiting for a lock does not count, which favours stores with locks.
//! * The harness checks sums of the values found, and numbers of entries found, touched, replaced,
//!   removed, expired and dropped. `tests` checks that all stores agree with one model.

pub mod course;
mod delay_queue;
pub mod expire;
mod moka;
mod ours;
mod plain;
mod sharded;
mod zookeeper;

pub use delay_queue::DelayQueue;
pub use moka::{Moka, MokaEach};
pub use ours::{Map, QueueByHandle, QueueByKey};
pub use plain::{Dash, Nothing, Papaya};
pub use sharded::Sharded;

pub use crate::peers::ZooKeeper;

use crate::window::mix;
use expiry::{Clock, CoarseClock, ManualClock};
use std::fmt::{Debug, Write};
use std::hash::Hash;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::Duration;

pub trait Key: Hash + Eq + Clone + Default + Debug + Send + Sync + 'static {
    const NAME: &'static str;
    const HEAP: usize;

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

pub trait Value: Clone + Send + Sync + 'static {
    fn make(n: u64) -> Self;

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

#[derive(Debug, Clone)]
pub enum Time {
    /// The machine's time, by our default clock.
    Real(CoarseClock),
    /// Time that the harness moves.
    Simulated(ManualClock),
}

#[derive(Clone, Copy)]
pub enum Now<'a> {
    Real(&'a CoarseClock),
    Told(u64),
}

impl Now<'_> {
    /// Nanoseconds: a reading of the clock, or a number.
    #[inline]
    pub fn get(self) -> u64 {
        match self {
            Now::Real(clock) => clock.coarse(),
            Now::Told(now) => now,
        }
    }
}

impl Time {
    /// The present. A simulated present does not move on while the caller keeps it.
    #[inline]
    pub fn now(&self) -> Now<'_> {
        match self {
            Time::Real(clock) => Now::Real(clock),
            Time::Simulated(clock) => Now::Told(clock.now()),
        }
    }
}

/// The interval of our stores and of ZooKeeper's, where the load has none of its own.
pub const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    pub time: &'a Time,
    /// About how many entries it will have.
    pub entries: usize,
    /// How long these live, unless an insertion says otherwise.
    pub timeout: Duration,
    /// The interval to which a store may round deadlines.
    pub interval: Duration,
}

/// A store that keeps keys until they expire.
pub trait Store<K: Key, V: Value>: Send + Sync + Sized {
    const NAME: &'static str;
    /// Work that the store does in each call, in words, printed beside its figures.
    const DOES: &'static str;
    /// Whether the store does the work, or only shows what the harness costs.
    const WORKS: bool = true;
    /// Whether the store reads a clock of its own and puts work off until `advance`.
    const REAL: bool = false;
    /// Whether the harness calls `advance` in place of a reaper while the store works.
    const DRIVEN: bool = false;
    /// Whether `insert` returns the value that it replaces.
    const RETURNS_OLD: bool = true;
    /// State beside the key that a touch needs.
    type Handle: Copy + Default + Send + Sync;

    fn new(setup: &Setup<'_>) -> Self;

    /// Calls `f` in the context that every thread needs to use the store.
    fn on_thread<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// Inserts an entry, or replaces the one that the key has. The entry expires `timeout`
    /// nanoseconds from now. Returns the number of the replaced value, and the handle.
    fn insert(&self, key: K, value: V, now: Now<'_>, timeout: u64) -> (Option<u64>, Self::Handle);

    /// Returns the number of the key's value, if the key has an entry. A queue has no values.
    fn get(&self, _key: &K, _now: Now<'_>) -> Option<u64> {
        None
    }

    /// Renews an entry: it expires `timeout` nanoseconds from now. Returns `false` if the key has
    /// no entry, where the store says so.
    fn touch(&self, key: &K, handle: Self::Handle, value: V, now: Now<'_>, timeout: u64) -> bool;

    /// Removes an entry. Returns `false` if the key had none, where the store says so.
    fn remove(&self, key: &K, now: Now<'_>) -> bool;

    /// Removes every entry that is due at `now`. Returns how many, where the store says so.
    fn advance(&self, now: u64) -> usize;

    /// Does some of the work that the store has put off. A caller that waits for values to be
    /// dropped calls it repeatedly.
    fn tidy(&self) {}

    fn live(&self) -> usize;
}

#[cfg(test)]
mod tests;
