//! What a run knows of each key and each value, and what it demands of what a call gets.
//!
//! A *stamp* is the number of an event: of two events of which one was over before the other began,
//! the first has the lower stamp. So a comparison of stamps needs no allowance for a busy machine.

use crate::checks::{Check, Checks};
use crate::latency::nanos;
use crate::ledger::{self, Ledger};
use crate::options::Cache;
use expiry::{Clock, Lifetimes, ManualClock, RemovalCause};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::Arc;
use std::time::Duration;

/// Each value ends once, with one cause, of which the listener hears once.
pub const ONE_END: Check = "one_end_each";
/// No value expires, or is found, at a time when it may not.
pub const ON_TIME: Check = "on_time";
/// No call gets a value that had ended, or that a removal had invalidated, before the call began.
pub const NONE_STALE: Check = "none_stale";
/// A call gets what its own load has come to, or what a load that was under way has.
pub const ANSWERS: Check = "answers_right";
/// One load of a key at a time, unless a removal has come meanwhile.
pub const ONE_LOAD: Check = "one_load_a_key";
/// The bound holds, and a heavy insertion evicts no more than it weighs, and not itself.
pub const BOUND: Check = "bound_kept";

/// The granularity of deadlines.
pub const INTERVAL: Duration = Duration::from_millis(1);
/// Values that a thread may make.
const ROOM: usize = 1 << 30;

const LEDGER: ledger::Names = ledger::Names {
    entry: "value",
    early: ON_TIME,
    late: ON_TIME,
    again: ONE_END,
    ends: ONE_END,
    returns: None,
    unknown: ONE_END,
};

/// One value, which the backend or an insertion has made.
#[derive(Debug)]
pub struct Made {
    pub number: u64,
    pub key: u64,
    pub weight: u32,
    pub ttl: u64,
    /// Whether it was loaded: then its maker does not learn whether the map has kept it.
    pub is_loaded: bool,
    /// The stamp and the clock reading from before it was made.
    pub began: u64,
    pub made: u64,
    /// The same when the call that made it has returned; `u64::MAX` before.
    pub returned: AtomicU64,
    pub settled: AtomicU64,
    /// The stamp of the report of its end; `u64::MAX` before.
    pub ended: AtomicU64,
}

/// A value as the map has it, or a copy: a load gives copies to the callers that wait for it.
#[derive(Debug)]
pub struct Value {
    pub made: Arc<Made>,
    pub copies: u32,
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Value { made: self.made.clone(), copies: self.copies + 1 }
    }
}

/// A load that has failed.
#[derive(Debug)]
pub struct Fault {
    /// The stamp at which its loader's call has returned; `u64::MAX` before.
    pub returned: AtomicU64,
}

/// What a run knows of a key.
#[derive(Debug, Default)]
pub struct Shelf {
    /// The stamp of the load under way: that of its call.
    loading: AtomicU64,
    /// Removals under way, the stamp at which the last one has returned, and that at which the last
    /// one of those that have returned began.
    removing: AtomicU64,
    removed: AtomicU64,
    floor: AtomicU64,
}

/// A call that has begun.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub key: u64,
    pub stamp: u64,
    time: u64,
    /// The stamp of a removal that had returned before.
    floor: u64,
}

pub struct Books {
    pub ledger: Ledger,
    pub checks: Arc<Checks>,
    pub clock: ManualClock,
    pub shelves: Box<[Shelf]>,
    stamps: AtomicU64,
    late: u64,
    pub done: AtomicU64,
    /// Looks that have found an invalidated value before its loader took it back.
    pub seen_invalidated: AtomicU64,
    /// The key that the only thread replaces, after the load.
    pub replacing: AtomicU64,
    /// Whether the listener is to take the room of each eviction, and how often it has.
    pub is_greedy: AtomicBool,
    pub taken: AtomicU64,
}

impl Books {
    pub fn new(options: &Cache, threads: usize) -> Self {
        let names = [ONE_END, ON_TIME, NONE_STALE, ANSWERS, ONE_LOAD, BOUND];
        let checks = Arc::new(Checks::new(&names));
        Books {
            ledger: Ledger::new(threads, ROOM, LEDGER, checks.clone()),
            checks,
            clock: ManualClock::new(),
            shelves: (0..options.keys).map(|_| Shelf::default()).collect(),
            stamps: AtomicU64::new(1),
            late: nanos(INTERVAL + options.allowance),
            done: AtomicU64::new(0),
            seen_invalidated: AtomicU64::new(0),
            replacing: AtomicU64::new(u64::MAX),
            is_greedy: AtomicBool::new(false),
            taken: AtomicU64::new(0),
        }
    }

    /// A value that has not been in the map yet.
    pub fn make(
        &self,
        (number, key): (u64, u64),
        (weight, ttl): (u32, u64),
        is_loaded: bool,
    ) -> (Value, Lifetimes) {
        let [returned, settled, ended] = [(); 3].map(|()| AtomicU64::new(u64::MAX));
        let (began, made) = (self.stamp(), self.clock.now());
        let made =
            Made { number, key, weight, ttl, is_loaded, began, made, returned, settled, ended };
        let lifetime = Lifetimes::new().live(Duration::from_nanos(ttl));
        (Value { made: Arc::new(made), copies: 0 }, lifetime)
    }

    pub fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, SeqCst)
    }

    pub fn call(&self, key: u64) -> Call {
        let floor = self.shelves[key as usize].floor.load(SeqCst);
        Call { key, stamp: self.stamp(), time: self.clock.now(), floor }
    }

    /// The call that has made a value has returned.
    pub fn returned(&self, made: &Made) {
        made.settled.store(self.clock.now(), Release);
        made.returned.store(self.stamp(), Release);
    }

    /// Removes a key by `remove`, which returns what it has ended.
    pub fn removal<T>(&self, key: u64, remove: impl FnOnce() -> T) -> T {
        let shelf = &self.shelves[key as usize];
        shelf.removing.fetch_add(1, SeqCst);
        let begun = self.stamp();
        let removed = remove();
        shelf.floor.fetch_max(begun, SeqCst);
        shelf.removed.fetch_max(self.stamp(), SeqCst);
        shelf.removing.fetch_sub(1, SeqCst);
        removed
    }

    /// The loader of this call begins. The load goes on until what this returns is dropped.
    pub fn load(&self, key: u64, call: u64) -> impl Drop + '_ {
        let shelf = &self.shelves[key as usize];
        let before = shelf.loading.swap(call, SeqCst);
        let is_free = before == 0 || shelf.removing.load(SeqCst) > 0;
        // One of the two loads was under way when the removal came, perhaps not yet in here.
        let is_apart = is_free || shelf.removed.load(SeqCst) > before.min(call);
        self.checks.expect(ONE_LOAD, is_apart, || {
            format!("call {call} loads key {key} beside call {before}, and no call has removed it")
        });
        Loading(shelf, call)
    }

    /// What the map's listener does.
    pub fn told(&self, value: &Value, cause: RemovalCause) {
        let made = &*value.made;
        if made.is_loaded {
            self.ledger.accepted(made.number);
        }
        made.ended.store(self.stamp(), Release);
        let due = made.made + made.ttl;
        self.ledger.told(made.number, cause, self.clock.now(), due..=due + self.late);
        let is_other = cause != RemovalCause::Size || self.replacing.load(Relaxed) != made.key;
        self.checks.expect(BOUND, is_other, || {
            format!("the replacement of key {} has evicted its own entry", made.key)
        });
    }

    /// A call that ended this value has returned.
    pub fn ended(&self, made: &Made) {
        self.checks.expect(ONE_END, made.ended.load(Acquire) != u64::MAX, || {
            format!("a call ended {made:?}, and the listener has not heard of it")
        });
    }

    /// A call got this value: a look-up's, with so many copies, or else a load's.
    pub fn got(&self, call: &Call, value: &Value, copies: u32) {
        let made = &*value.made;
        let (returned, ended) = (made.returned.load(Acquire), made.ended.load(Acquire));
        let is_there = value.copies <= copies;
        let is_fresh = is_there || returned > call.stamp;
        self.checks.expect(ANSWERS, made.key == call.key && is_fresh, || {
            format!("{call:?} got {value:?}, of another key or of a load that was over")
        });
        self.checks.expect(NONE_STALE, !is_there || ended > call.stamp, || {
            format!("{call:?} found {made:?}, which had ended")
        });
        let until = made.settled.load(Acquire).saturating_add(made.ttl + nanos(INTERVAL));
        self.checks.expect(ON_TIME, !is_there || call.time <= until, || {
            format!("{call:?} found {made:?} after its time")
        });
        if !made.is_loaded || made.began > call.floor {
            return;
        }
        // The loader inserts the value, looks, and takes it back: a look-up may come in between.
        // Then the value was in the map, and ends.
        let is_taken_back = is_there && returned > call.stamp;
        self.checks.expect(NONE_STALE, is_taken_back, || {
            format!("{call:?} got {value:?}, which a removal had invalidated")
        });
        self.seen_invalidated.fetch_add(1, Relaxed);
        self.ledger.accepted(made.number);
    }
}

/// A load under way.
struct Loading<'a>(&'a Shelf, u64);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let _ = self.0.loading.compare_exchange(self.1, 0, SeqCst, SeqCst);
    }
}
