//! What a run knows of each key and each value, and what it demands of what a call gets.
//!
//! A *stamp* numbers an event. An event that is over before another one begins has the lower stamp.
//! So a comparison of stamps needs no allowance for a busy machine.

use super::TTL;
use crate::checks::{Check, Checks};
use crate::latency::nanos;
use crate::ledger::{self, Ledger};
use crate::options::Cache;
use expiry::{Clock, Lifetimes, ManualClock, RemovalCause};
use model::mix::mix;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Arc;
use std::time::Duration;

/// Each value ends once, with one cause, and the map's counters agree.
pub const ONE_END: Check = "one_end_each";
/// The listener gets a value that an insertion returned as replaced, one that a removal returned as
/// removed.
const RETURNS: Check = "returns_agree";
/// No value expires too early or too late, and no look-up finds one after its time.
pub const ON_TIME: Check = "on_time";
/// No call gets a value that had ended, or that another call had invalidated, before it began.
pub const NONE_STALE: Check = "none_stale";
/// A call gets its own key's value, and no error of a load that was over before the call began.
pub const ANSWERS: Check = "answers_right";
/// One load of a key runs at a time, unless an insertion or a removal has come meanwhile.
pub const ONE_LOAD: Check = "one_load_a_key";
/// The bound holds. An insertion evicts no more than it weighs, and not the entry it replaces.
pub const BOUND: Check = "bound_kept";
/// No call and no report of an end gets a value whose memory the map has given back.
const INTACT: Check = "values_intact";

/// The granularity of deadlines.
pub const INTERVAL: Duration = Duration::from_millis(1);
/// Values that a run may make.
const ROOM: usize = 1 << 32;

const LEDGER: ledger::Names = ledger::Names {
    entry: "value",
    early: ON_TIME,
    late: ON_TIME,
    again: ONE_END,
    ends: ONE_END,
    returns: Some(RETURNS),
    unknown: ONE_END,
};

/// A value that an insertion or the backend has made, or an error of the backend.
#[derive(Debug)]
pub struct Made {
    pub number: u64,
    key: u64,
    pub weight: u32,
    ttl: u64,
    /// The backend made it. The caller does not learn whether the map has kept it.
    is_loaded: bool,
    /// The stamp and the clock reading from before it was made.
    began: u64,
    made: u64,
    /// The same when the call that made it had returned; `u64::MAX` before.
    pub returned: AtomicU64,
    settled: AtomicU64,
    /// The stamp of the report of its end; `u64::MAX` before.
    ended: AtomicU64,
    /// The number again, until the value is dropped.
    seal: AtomicU64,
}

impl Drop for Made {
    fn drop(&mut self) {
        // A thread that reads it after this sees that it is not intact.
        self.seal.store(!self.number, Relaxed);
    }
}

/// What the map holds, and what a load that fails returns.
pub type Value = Arc<Made>;

/// What a run knows of a key.
#[derive(Debug, Default)]
pub struct Shelf {
    /// The stamp of the call that loads; 0 if none does.
    loading: AtomicU64,
    /// Number of insertions and removals under way.
    changing: AtomicU64,
    /// The latest stamp at which one had returned.
    changed: AtomicU64,
    /// The latest stamp at which one began that has returned.
    floor: AtomicU64,
}

/// A call that has begun.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub key: u64,
    pub stamp: u64,
    time: u64,
    /// The floor of the key when the call began.
    floor: u64,
}

pub struct Books {
    pub ledger: Ledger,
    pub checks: Arc<Checks>,
    pub clock: ManualClock,
    pub shelves: Box<[Shelf]>,
    stamps: AtomicU64,
    numbers: AtomicU64,
    /// How late an end may be reported.
    late: u64,
}

impl Books {
    pub fn new(options: &Cache) -> Self {
        let names = [ONE_END, RETURNS, ON_TIME, NONE_STALE, ANSWERS, ONE_LOAD, BOUND, INTACT];
        let checks = Arc::new(Checks::new(&names));
        Books {
            ledger: Ledger::new(ROOM, LEDGER, checks.clone()),
            checks,
            clock: ManualClock::new(),
            shelves: (0..options.keys).map(|_| Shelf::default()).collect(),
            stamps: AtomicU64::new(1),
            numbers: AtomicU64::new(0),
            late: nanos(INTERVAL + options.allowance),
        }
    }

    pub fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, SeqCst)
    }

    /// A value that has not been in the map yet.
    pub fn make(&self, key: u64, weight: u32, is_loaded: bool) -> (Value, Lifetimes) {
        let number = self.numbers.fetch_add(1, Relaxed);
        let ttl = mix(number) % nanos(TTL);
        let [returned, settled, ended] = [(); 3].map(|()| AtomicU64::new(u64::MAX));
        let seal = AtomicU64::new(number);
        let (began, made) = (self.stamp(), self.clock.now());
        let made = Made {
            number,
            key,
            weight,
            ttl,
            is_loaded,
            began,
            made,
            returned,
            settled,
            ended,
            seal,
        };
        (Arc::new(made), Lifetimes::new().live(Duration::from_nanos(ttl)))
    }

    /// The call that has made a value, or an error, has returned.
    pub fn returned(&self, made: &Made) {
        made.settled.store(self.clock.now(), Release);
        made.returned.store(self.stamp(), Release);
    }

    pub fn call(&self, key: u64) -> Call {
        let floor = self.shelves[key as usize].floor.load(SeqCst);
        Call { key, stamp: self.stamp(), time: self.clock.now(), floor }
    }

    /// Runs a call that inserts or removes a key.
    pub fn change<T>(&self, key: u64, change: impl FnOnce() -> T) -> T {
        let shelf = &self.shelves[key as usize];
        shelf.changing.fetch_add(1, SeqCst);
        let began = self.stamp();
        let changed = change();
        shelf.floor.fetch_max(began, SeqCst);
        shelf.changed.fetch_max(self.stamp(), SeqCst);
        shelf.changing.fetch_sub(1, SeqCst);
        changed
    }

    /// The loader of this call begins.
    pub fn load_begins(&self, call: &Call) {
        let shelf = &self.shelves[call.key as usize];
        let before = shelf.loading.swap(call.stamp, SeqCst);
        let is_alone = before == 0 || shelf.changing.load(SeqCst) > 0;
        // Or such a call came after the first of the two calls had begun.
        let is_apart = is_alone || shelf.changed.load(SeqCst) > before.min(call.stamp);
        self.checks.expect(ONE_LOAD, is_apart, || {
            format!("{call:?} loads beside call {before}, and no call has changed the key")
        });
    }

    /// The loader of this call is about to return, or to panic.
    pub fn load_ends(&self, call: &Call) {
        let loading = &self.shelves[call.key as usize].loading;
        let _ = loading.compare_exchange(call.stamp, 0, SeqCst, SeqCst);
    }

    /// The listener hears of an end.
    pub fn told(&self, made: &Made, cause: RemovalCause) {
        self.intact(made);
        if made.is_loaded {
            self.ledger.accepted(made.number);
        }
        made.ended.store(self.stamp(), Release);
        let due = made.made + made.ttl;
        self.ledger.told(made.number, cause, self.clock.now(), due..=due + self.late);
    }

    fn intact(&self, made: &Made) {
        let is_intact = made.seal.load(Relaxed) == made.number;
        self.checks.expect(INTACT, is_intact, || format!("{made:?} is not intact"));
    }

    /// A look-up, or a call that `loads`, got this value.
    pub fn got(&self, call: &Call, made: &Made, loads: bool) {
        self.intact(made);
        let is_under_way = made.is_loaded && made.returned.load(Acquire) > call.stamp;
        self.checks.expect(ANSWERS, made.key == call.key, || format!("{call:?} got {made:?}"));
        // A call that waits for a load gets its value, also where that entry has ended.
        if !(loads && is_under_way) {
            self.ledger.accepted(made.number);
            self.checks.expect(NONE_STALE, made.ended.load(Acquire) > call.stamp, || {
                format!("{call:?} found {made:?}, which had ended")
            });
            let until = made.settled.load(Acquire).saturating_add(made.ttl + nanos(INTERVAL));
            self.checks.expect(ON_TIME, call.time <= until, || {
                format!("{call:?} found {made:?} after its time")
            });
        }
        let is_valid = !made.is_loaded || made.began >= call.floor;
        self.checks.expect(NONE_STALE, is_valid, || {
            format!("{call:?} got {made:?}, which another call had invalidated")
        });
    }
}
