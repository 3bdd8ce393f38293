//! Scenario `cache`: a map in front of a backend that is slow, fails, and recovers.
//!
//! Threads load keys one by one and many at once, beside insertions, removals, and reloads of old
//! values. An operator moves the clock on, polls, and changes the bound. So values end by eviction,
//! expiry, removal and replacement at once. The books record each value (see `books`). At the end
//! one thread checks what rests on no race (see `quiet`).

mod books;
mod caller;
mod quiet;

use crate::crowd::{crowd, Work};
use crate::error::Error;
use crate::interrupt;
use crate::live::{Gauge, Live};
use crate::options::{threads, Cache};
use crate::report::Report;
use books::{Books, Value, BOUND, INTERVAL, ONE_END};
use caller::{Caller, Done};
use expiry::EvictionPolicy::{self, LeastRecentlyUsed, S3Fifo, SoonestDeadline};
use expiry::ExpiringMap;
use model::mix::mix;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type Map = ExpiringMap<u64, Value>;

/// The most that a value weighs.
const HEAVIEST: u32 = 8;
/// The longest time to live, and the age at which a call that loads reloads a value.
const TTL: Duration = Duration::from_millis(100);
const OLD: Duration = Duration::from_millis(80);
/// How often the operator looks, and how often it changes the bound.
const LOOK: Duration = Duration::from_micros(100);
const CHANGE: Duration = Duration::from_millis(5);
/// The eviction policies, by the seed.
const POLICIES: [EvictionPolicy; 3] = [S3Fifo, LeastRecentlyUsed, SoonestDeadline];

pub fn run(options: &Cache) -> Result<Report, Error> {
    // Half of the keys are in, of middling weight.
    let bound = u64::from(options.keys * HEAVIEST / 4);
    let books = Arc::new(Books::new(options));
    let told = books.clone();
    let map = ExpiringMap::builder()
        .interval(INTERVAL)
        .clock(books.clock.clone())
        .time_to_live(TTL)
        .refresh_after(OLD)
        .eviction_policy(POLICIES[options.seed as usize % POLICIES.len()])
        .max_weight(bound as usize, |_, value: &Value| value.weight)
        .removal_listener(move |_: &u64, value: &Value, cause| told.told(value, cause))
        .build_manual()?;
    let (done, took) = load(options, &map, &books, bound);
    quiet::check(&map, &books);
    map.shutdown();
    let (ends, total) = (books.ledger.close(), map.metrics().total);
    let ends = [
        ("values", ends.accepted, total.inserted + total.replaced),
        ("expired", ends.expired, total.expired),
        ("removed", ends.removed, total.removed),
        ("replaced", ends.replaced, total.replaced),
        ("evicted", ends.evicted, total.evicted),
        ("closed", ends.closed, total.closed),
    ];
    ends.iter().for_each(|&(what, is, should)| books.checks.equal(ONE_END, what, is, should));
    let calls = ("calls", done.calls);
    let mut report = Report::new("cache", calls, took, options.seed, &books.checks, options);
    report.counts.extend(done.named());
    report.counts.extend(ends.map(|(what, is, _)| (what, is)));
    report.latency.insert("expiry_lateness", books.ledger.lateness().percentiles());
    Ok(report)
}

/// Runs all threads until it is time to stop, and the operator beside them.
fn load(options: &Cache, map: &Map, books: &Books, bound: u64) -> (Done, Duration) {
    let (length, began) = (Duration::from_secs_f64(options.seconds), Instant::now());
    let is_on = move || began.elapsed() < length && !interrupt::asked();
    let mut works: Vec<Work<'_, Done>> = Vec::new();
    for thread in 0..threads(options.threads) {
        works.push(Box::new(move || {
            let mut caller = Caller::new(map, books, options.seed ^ (thread as u64) << 32);
            while is_on() {
                caller.step();
            }
            caller.done
        }));
    }
    works.push(Box::new(move || {
        operate(options, map, books, bound, is_on);
        Done::default()
    }));
    let mut live = Live::new("cache", Some(length.as_millis() as u64));
    let brought = crowd(works, &mut live, |live| {
        live.show(began.elapsed().as_millis() as u64, || Gauge {
            done: books.stamp(),
            violations: books.checks.violations(),
            ..Gauge::of_store(&map.metrics())
        });
    });
    let mut done = Done::default();
    brought.iter().for_each(|one| done.add(one));
    (done, began.elapsed())
}

/// Moves the clock on as real time goes, polls, and changes the bound.
fn operate(options: &Cache, map: &Map, books: &Books, most: u64, is_on: impl Fn() -> bool) {
    let (began, mut moved) = (Instant::now(), Duration::ZERO);
    // What the entries may weigh: the bound before, until they weigh no more than the new one.
    let mut allowed = most;
    for turn in (0..).take_while(|_| is_on()) {
        let (bound, set) = (most >> (mix(options.seed ^ turn) % 3), Instant::now());
        map.set_max_weight(bound as usize).expect("a map that weighs");
        while is_on() && (allowed != bound || set.elapsed() < CHANGE) {
            let now = began.elapsed();
            books.clock.advance(now - moved);
            moved = now;
            map.poll(1024);
            let weight = map.weight().unwrap_or(u64::MAX);
            if weight <= bound {
                allowed = bound;
            }
            let is_soon = set.elapsed() < CHANGE + options.allowance;
            books.checks.expect(BOUND, weight <= allowed && (allowed == bound || is_soon), || {
                format!("the entries weigh {weight}, and may weigh {bound}, or {allowed} at first")
            });
            thread::sleep(LOOK);
        }
    }
}
