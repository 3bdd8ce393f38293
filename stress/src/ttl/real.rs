//! Real time: a row's load from all threads, as fast as they can, and each value's story.

use super::load::{Client, Done, Load, Seen};
use super::value::Value;
use super::Setting;
use crate::checks::{Check, Checks};
use crate::crowd::{crowd, Work};
use crate::error::Error;
use crate::interrupt;
use crate::keys::Key;
use crate::latency::{human, nanos, Recorder, Times};
use crate::leap::lag_beside;
use crate::ledger::{self, number, Ledger};
use crate::live::{Gauge, Live};
use crate::options::{threads, Ttl};
use crate::pace::Pace;
use crate::report::Report;
use expiry::expiring_map::Entry;
use expiry::{Clock, CoarseClock, ExpiringMap, Lifetime, RemovalCause, StoreError};
use rand::rngs::SmallRng;
use rand::SeedableRng;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The checks of a run on the real clock.
pub const NAMES: [Check; 9] = [
    "one_end_each",
    "told_once",
    "returns_agree",
    "none_early",
    "none_late",
    "ended_is_gone",
    "none_found_late",
    "values_intact",
    "no_surprises",
];

/// One request in this many is timed. A power of two.
const TIMED: u64 = 64;
/// After how many requests a thread looks at the time. A power of two.
const LOOK: u64 = 64;

/// How often a request looks at an entry again that has changed. No request is that unlucky.
const ATTEMPTS: u32 = 10_000;

/// What is timed: how long requests take, and, in an open loop, how long after they were due they
/// were done.
const TIMES: [&str; 2] = ["request", "done_since_due"];

/// How the ledger reports.
const LEDGER: ledger::Names = ledger::Names {
    entry: "value",
    early: "none_early",
    late: "none_late",
    again: "told_once",
    ends: "one_end_each",
    returns: Some("returns_agree"),
    unknown: "no_surprises",
};
/// Values that a thread may insert.
const ROOM: usize = 1 << 30;

/// What the threads and the listener share.
struct Books {
    ledger: Ledger,
    time: Arc<dyn Clock>,
    checks: Arc<Checks>,
    /// How much later than its time the end of a value may be reported: rounding, and the
    /// allowance.
    late: u64,
    requests: AtomicU64,
}

impl Books {
    fn new(threads: usize, time: Arc<dyn Clock>, late: u64) -> Self {
        let checks = Arc::new(Checks::new(&NAMES));
        Books {
            ledger: Ledger::new(threads, ROOM, LEDGER, checks.clone()),
            time,
            checks,
            late,
            requests: AtomicU64::new(0),
        }
    }

    /// What the map's listener does.
    fn told(&self, value: &Value, cause: RemovalCause) {
        self.intact(value);
        let within = value.due()..=value.due() + self.late;
        self.ledger.told(value.number, cause, self.time.now(), within);
    }

    fn intact(&self, value: &Value) {
        let number = value.number;
        let text = || format!("value {number} is not intact");
        self.checks.expect("values_intact", value.is_intact(), text);
    }

    /// Checks a value that a get found against what is known of it. `began` is a reading from
    /// before the get.
    fn found(&self, value: &Value, began: u64) {
        self.intact(value);
        let (number, due) = (value.number, value.due());
        let told = self.ledger.story(number).told_at();
        self.checks.expect("ended_is_gone", told.is_none_or(|told| told >= began), || {
            format!("value {number} was found at {began}, and told to have ended at {told:?}")
        });
        self.checks.expect("none_found_late", began <= due + self.late, || {
            format!("value {number} was found {} after its time", human(began - due))
        });
    }
}

/// A thread's view of the map.
pub struct Shopper<'a, K: Key> {
    map: &'a ExpiringMap<K, Value>,
    keys: &'a [K],
    books: &'a Books,
    thread: usize,
    inserted: u64,
    /// Entries that had changed since they were looked at.
    changed: u64,
}

impl<'a, K: Key> Shopper<'a, K> {
    fn new(
        (map, keys, books): (&'a ExpiringMap<K, Value>, &'a [K], &'a Books),
        thread: usize,
    ) -> Self {
        Shopper { map, keys, books, thread, inserted: 0, changed: 0 }
    }

    /// A value that was found by a look that began then.
    fn seen(&self, value: &Value, began: u64) -> Seen {
        self.books.found(value, began);
        Seen {
            number: value.number,
            length: value.len(),
            rest: value.due().saturating_sub(self.books.time.now()),
        }
    }

    /// A new value and its lifetime.
    fn value(&mut self, length: usize, ttl: u64) -> (Value, Lifetime) {
        let number = number(self.thread, self.inserted);
        self.inserted += 1;
        let value = Value::new(number, self.books.time.now(), ttl, length);
        (value, Lifetime::After(Duration::from_nanos(ttl)))
    }

    /// A value went in, and took the place of another one.
    fn inserted(&self, number: u64, replaced: Option<u64>) {
        self.books.ledger.accepted(number);
        if let Some(old) = replaced {
            self.books.ledger.returned(old, RemovalCause::Replaced);
        }
    }

    fn refused(&self, error: StoreError) {
        self.books.checks.violated("no_surprises", || format!("an insert was refused: {error}"));
    }

    pub fn get(&mut self, key: usize) -> Option<Seen> {
        let began = self.books.time.now();
        self.map.get(&self.keys[key]).map(|value| self.seen(&value, began))
    }

    /// Inserts a new value, or replaces the one that is there.
    pub fn insert(&mut self, key: usize, length: usize, ttl: u64) {
        let (value, after) = self.value(length, ttl);
        let number = value.number;
        match self.map.insert_for(self.keys[key].clone(), value, after) {
            Ok(replaced) => self.inserted(number, replaced.map(|old| old.value().number)),
            Err(refused) => self.refused(refused.error),
        }
    }

    /// Looks at a key's entry and, as one step, replaces its value by one of this length and
    /// lifetime if `wanted` agrees. Returns whether it did.
    pub fn update(
        &mut self,
        key: usize,
        mut wanted: impl FnMut(Option<Seen>) -> Option<(usize, u64)>,
    ) -> bool {
        for _ in 0..ATTEMPTS {
            let began = self.books.time.now();
            let entry = self.map.entry(self.keys[key].clone());
            let seen = match &entry {
                Entry::Occupied(entry) => Some(self.seen(entry.get(), began)),
                Entry::Vacant(_) => None,
            };
            let Some((length, ttl)) = wanted(seen) else {
                return false;
            };
            let (value, after) = self.value(length, ttl);
            let number = value.number;
            let done = match entry {
                Entry::Occupied(entry) => entry.insert_for(value, after).map(drop),
                Entry::Vacant(entry) => entry.insert_for(value, after).map(drop),
            };
            match done.map_err(|refused| refused.error) {
                // What it has replaced is this very value.
                Ok(()) => self.inserted(number, seen.map(|seen| seen.number)),
                Err(StoreError::Changed) => {
                    self.changed += 1;
                    continue;
                }
                Err(error) => self.refused(error),
            }
            return true;
        }
        self.books.checks.violated("no_surprises", || {
            format!("an entry had changed {ATTEMPTS} times in a row since it was looked at")
        });
        false
    }

    /// Removes a key. Whether it was there.
    pub fn remove(&mut self, key: usize) -> bool {
        let removed = self.map.remove(&self.keys[key]);
        if let Some(old) = &removed {
            self.books.ledger.returned(old.value().number, RemovalCause::Removed);
        }
        removed.is_some()
    }
}

pub fn run<K: Key>(options: &Ttl, setting: &Setting) -> Result<Report, Error> {
    let (row, threads) = (setting.row, threads(options.threads));
    let (time, interval) = (CoarseClock::new(), nanos(setting.interval));
    // A time to live is rounded up, and readings may lag, that for a look-up too.
    let rounding = interval + 2 * lag_beside(&time, interval);
    let books = Arc::new(Books::new(threads, Arc::new(time), rounding + nanos(options.allowance)));
    let keys: Vec<K> = setting.keys();
    let map = {
        let books = books.clone();
        ExpiringMap::builder()
            .interval(setting.interval)
            .clock(books.time.clone())
            .removal_listener(move |_: &K, value: &Value, cause| books.told(value, cause))
            .build()?
    };
    let mut times = std::array::from_fn(|_| Times::new());
    let places = (&map, &*keys, &*books);
    let (done, took) = shoppers(options, setting, places, &mut times, threads);
    let live = map.len() as u64;
    drop(map);
    let ends = books.ledger.close();
    let requests = ("requests", done.requests);
    let mut report = Report::new("ttl", requests, took, options.seed, &books.checks, options);
    report.counts.extend(done.named());
    report.counts.extend([
        ("threads", threads as u64),
        ("keys", keys.len() as u64),
        ("inserted", ends.accepted),
        ("expired", ends.expired),
        ("removed", ends.removed),
        ("replaced", ends.replaced),
        ("closed", ends.closed),
        ("live_at_the_end", live),
    ]);
    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    let hits = done.hits as f64 / (done.hits + done.misses).max(1) as f64;
    report.figures.extend([
        ("hit_percent", 100.0 * hits),
        ("interval_ms", setting.interval.as_secs_f64() * 1e3),
        ("squeeze", setting.squeeze),
    ]);
    for (name, times) in TIMES.into_iter().zip(&mut times) {
        let times = times.percentiles();
        // The requests of a closed loop were never due.
        if times.count > 0 {
            report.latency.insert(name, times);
        }
    }
    report.latency.insert("expiry_lateness", books.ledger.lateness().percentiles());
    report.notes.push(format!("cluster {}: {:?}", row.cluster, row.operations));
    Ok(report)
}

/// Runs all threads until it is time to stop, and displays progress. Returns what they did, and how
/// long it took.
fn shoppers<K: Key>(
    options: &Ttl,
    setting: &Setting,
    (map, keys, books): (&ExpiringMap<K, Value>, &[K], &Books),
    times: &mut [Times; TIMES.len()],
    threads: usize,
) -> (Done, Duration) {
    let load = &Load::new(setting.row, keys.len(), setting.squeeze);
    let length = Duration::from_secs_f64(options.seconds);
    let began = Instant::now();
    let mut works: Vec<Work<'_, Done>> = Vec::new();
    for thread in 0..threads {
        let recorders = times.each_ref().map(Times::recorder);
        let shopper = Shopper::new((map, keys, books), thread);
        let pace = Pace::part(options.rate, (thread, threads), 0, options.seed);
        works.push(Box::new(move || {
            let over = || began.elapsed() >= length || interrupt::asked();
            shop(shopper, (options, setting, load), (pace, began), recorders, over)
        }));
    }
    let shown = usize::from(options.rate.is_some());
    let mut live = Live::new("ttl", Some(length.as_millis() as u64));
    let brought = crowd(works, &mut live, |live| {
        let position = began.elapsed().min(length).as_millis() as u64;
        live.show(position, || Gauge {
            done: books.requests.load(Relaxed),
            latency: Some(times[shown].since()),
            violations: books.checks.violations(),
            text: format!("lateness max {}", human(books.ledger.lateness().percentiles().max)),
            ..Gauge::of_store(&map.metrics())
        });
    });
    let (mut done, took) = (Done::default(), began.elapsed());
    brought.iter().for_each(|one| done.add(one));
    (done, took)
}

/// A thread's requests, until it is time to stop.
fn shop<K: Key>(
    mut shopper: Shopper<'_, K>,
    (options, setting, load): (&Ttl, &Setting, &Load),
    (mut pace, began): (Option<Pace>, Instant),
    [mut times, mut since_due]: [Recorder; TIMES.len()],
    over: impl Fn() -> bool,
) -> Done {
    let books = shopper.books;
    let seed = options.seed.wrapping_mul(256) + shopper.thread as u64;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut client = Client::new(setting.row);
    let mut told = 0;
    // However late it begins, it does something.
    loop {
        for _ in 0..LOOK {
            let due = pace.as_mut().map(|pace| pace.due(nanos(began.elapsed())));
            // None is due yet.
            if due == Some(None) {
                break;
            }
            let request = load.draw(&mut rng);
            let timed = (client.done.requests & (TIMED - 1) == 0).then(Instant::now);
            client.request(&mut shopper, request);
            if let Some(timed) = timed {
                times.record(timed.elapsed());
            }
            if let Some(due) = due.flatten() {
                since_due.record(began.elapsed().saturating_sub(Duration::from_nanos(due)));
            }
        }
        let fresh = client.done.requests - told;
        if fresh == 0 {
            std::thread::yield_now();
        }
        books.requests.fetch_add(fresh, Relaxed);
        told = client.done.requests;
        if over() {
            break;
        }
    }
    Done { changed: shopper.changed, ..client.done }
}
