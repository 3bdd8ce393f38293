//! Scenario `cache`: a map in front of a backend that is slow, fails, panics, and recovers.
//!
//! Threads load keys in all ways, one by one and many at once, blocking and as tasks, beside
//! insertions, removals, and reloads of old values. An operator moves the clock on, polls, and
//! changes the bound, so values end by eviction, expiry, removal and replacement at once. The books
//! record each value (see `books`). At the end one thread is left, and what rests on no race is
//! exact.

mod books;
mod caller;

use crate::crowd::{crowd, Work};
use crate::error::Error;
use crate::interrupt;
use crate::latency::nanos;
use crate::ledger::number;
use crate::live::{Gauge, Live};
use crate::mix::mix;
use crate::options::{threads, Cache};
use crate::report::Report;
use books::{Books, Value, BOUND, INTERVAL, ONE_END};
use caller::{Caller, Done};
use expiry::{EvictionPolicy, ExpiringMap, RemovalCause};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

type Map = ExpiringMap<u64, Value>;

/// The most that a value of the load weighs.
const HEAVIEST: u32 = 8;
/// What the heaviest one weighs that comes after the load.
const HEAVY: u32 = 100;
/// The map's time to live, and the age at which a load call reloads a value.
const LIFE: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(80)];
/// How often the operator looks, and how often it changes the bound.
const LOOK: Duration = Duration::from_micros(100);
const CHANGE: u64 = 5_000_000;
/// After how many calls a thread looks at the time.
const CALLS: usize = 64;

/// The bound of the map, and how to change it.
#[derive(Clone, Copy)]
struct Bound {
    most: u64,
    weighs: bool,
}

impl Bound {
    fn set(self, map: &Map, bound: u64) {
        let set = if self.weighs { Map::set_max_weight } else { Map::set_max_capacity };
        set(map, bound as usize).expect("a bound of this kind");
    }
}

pub fn run(options: &Cache) -> Result<Report, Error> {
    let (threads, weighs) = (threads(options.threads), !options.unweighted);
    let most = u64::from(options.keys) / 2 * if weighs { u64::from(HEAVIEST) / 2 } else { 1 };
    let bound = Bound { most, weighs };
    let books = Arc::new(Books::new(options, threads + 2));
    let own = Arc::new(OnceLock::new());
    let map = own.get_or_init(|| build(options, bound, &books, &own, threads + 1));
    let (done, took) = load(options, (map, bound), &books, threads);
    let mut caller = Caller::new((map, &books), (threads, options.seed));
    quiet(&mut caller, bound);
    map.shutdown();
    let (ends, total) = (books.ledger.close(), map.metrics().total);
    for (what, is, should) in [
        ("expired", ends.expired, total.expired),
        ("removed", ends.removed, total.removed),
        ("replaced", ends.replaced, total.replaced),
        ("evicted", ends.evicted, total.evicted),
        ("closed", ends.closed, total.closed),
        ("all that came in", ends.accepted, total.inserted + total.replaced),
    ] {
        books.checks.equal(ONE_END, what, is, should);
    }
    let calls = ("calls", done.calls);
    let mut report = Report::new("cache", calls, took, options.seed, &books.checks, options);
    report.counts.extend(done.named());
    report.counts.extend([
        ("threads", threads as u64),
        ("values", ends.accepted),
        ("expired", ends.expired),
        ("removed", ends.removed),
        ("replaced", ends.replaced),
        ("evicted", ends.evicted),
        ("closed", ends.closed),
        ("seen_invalidated", books.seen_invalidated.load(Relaxed)),
    ]);
    report.latency.insert("expiry_lateness", books.ledger.lateness().percentiles());
    Ok(report)
}

fn build(
    options: &Cache,
    bound: Bound,
    books: &Arc<Books>,
    own: &Arc<OnceLock<Map>>,
    thread: usize,
) -> Map {
    const POLICIES: [EvictionPolicy; 3] = [
        EvictionPolicy::S3Fifo,
        EvictionPolicy::LeastRecentlyUsed,
        EvictionPolicy::SoonestDeadline,
    ];
    let (told, into, most) = (books.clone(), Arc::downgrade(own), bound.most as usize);
    let builder = ExpiringMap::builder()
        .interval(INTERVAL)
        .clock(books.clock.clone())
        .time_to_live(LIFE[0])
        .refresh_after(LIFE[1])
        .eviction_policy(POLICIES[options.seed as usize % POLICIES.len()])
        .removal_listener(move |_: &u64, value: &Value, cause| {
            told.told(value, cause);
            // What it inserts evicts another entry, of which it hears in between.
            if cause == RemovalCause::Size && told.is_greedy.swap(false, Relaxed) {
                let count = told.taken.fetch_add(1, Relaxed);
                let key = u64::MAX / 2 + count;
                let (light, _) =
                    told.make((number(thread, count), key), (1, nanos(LIFE[0])), false);
                let made = light.made.clone();
                let own = into.upgrade();
                if own.and_then(|own| own.get()?.insert(key, light).ok().map(drop)).is_some() {
                    told.ledger.accepted(made.number);
                }
                // Else an insertion that keeps nothing would go on for ever.
                told.is_greedy.store(count < 3 * u64::from(HEAVY), Relaxed);
            }
        });
    let builder = match bound.weighs {
        true => builder.max_weight(most, |_, value: &Value| value.made.weight),
        false => builder.max_capacity(most),
    };
    builder.build_manual().expect("a map")
}

/// Runs all threads until it is time to stop, and the operator beside them.
fn load(
    options: &Cache,
    (map, bound): (&Map, Bound),
    books: &Books,
    threads: usize,
) -> (Done, Duration) {
    let (length, began) = (Duration::from_secs_f64(options.seconds), Instant::now());
    let left = &AtomicUsize::new(threads);
    let mut works: Vec<Work<'_, Done>> = Vec::new();
    for thread in 0..threads {
        works.push(Box::new(move || {
            let mut caller = Caller::new((map, books), (thread, options.seed));
            while began.elapsed() < length && !interrupt::asked() {
                (0..CALLS).for_each(|_| caller.step());
                books.done.fetch_add(CALLS as u64, Relaxed);
            }
            left.fetch_sub(1, Release);
            caller.done
        }));
    }
    works.push(Box::new(move || {
        operate(options, (map, bound), books, || left.load(Acquire) == 0);
        Done::default()
    }));
    let mut live = Live::new("cache", Some(length.as_millis() as u64));
    let brought = crowd(works, &mut live, |live| {
        let position = began.elapsed().min(length).as_millis() as u64;
        live.show(position, || Gauge {
            done: books.done.load(Relaxed),
            violations: books.checks.violations(),
            ..Gauge::of_store(&map.metrics())
        });
    });
    let mut done = Done::default();
    brought.iter().for_each(|one| done.add(one));
    (done, began.elapsed())
}

/// Moves the clock on as real time goes, polls, and changes the bound.
fn operate(options: &Cache, (map, bound): (&Map, Bound), books: &Books, over: impl Fn() -> bool) {
    let (began, mut last, mut changed, mut turn) = (Instant::now(), 0, 0, 0);
    // The bound, and what the entries may weigh until it has been met.
    let (mut limit, mut most) = (bound.most, bound.most);
    while !over() {
        let now = nanos(began.elapsed());
        books.clock.advance(Duration::from_nanos(now - last));
        last = now;
        map.poll(1024);
        let weight = map.weight().unwrap_or(u64::MAX);
        let waits = changed + nanos(options.allowance) > now;
        books.checks.expect(BOUND, weight <= most && (waits || most == limit), || {
            format!("entries weigh {weight}, and may weigh {limit}, or {most} for a moment")
        });
        if weight <= limit {
            most = limit;
        }
        if now > changed + CHANGE && most == limit {
            turn += 1;
            limit = bound.most >> (mix(options.seed ^ turn) % 3);
            bound.set(map, limit);
            (most, changed) = (most.max(limit), now);
        }
        thread::sleep(LOOK);
    }
}

/// One thread is left, and the time stands still.
fn quiet(caller: &mut Caller<'_>, bound: Bound) {
    let (map, books, least) = (caller.map, caller.books, bound.most / 4);
    while map.poll(1024).more {}
    bound.set(map, least);
    let weight = |value: &Value| if bound.weighs { u64::from(value.made.weight) } else { 1 };
    let (mut sum, mut entries) = (0, 0);
    for entry in map.iter() {
        books.ledger.accepted(entry.value().made.number);
        (sum, entries) = (sum + weight(entry.value()), entries + 1);
    }
    books.checks.expect(BOUND, map.weight() == Some(sum) && sum <= least, || {
        format!("the entries weigh {sum}, or {:?}, of {least}", map.weight())
    });
    books.checks.equal(ONE_END, "entries", map.len() as u64, entries);
    for key in (0..4).flat_map(|_| 0..books.shelves.len() as u64) {
        books.replacing.store(key, Relaxed);
        caller.insert(key, if map.contains_key(&key) { HEAVIEST } else { 1 });
    }
    books.replacing.store(u64::MAX, Relaxed);

    // A heavy entry among light ones, whose room the listener takes.
    map.clear();
    (0..least).for_each(|key| caller.insert(key, 1));
    books.is_greedy.store(true, Relaxed);
    let heavy = HEAVY.min(least as u32 / 2);
    caller.insert(least, heavy);
    books.is_greedy.store(false, Relaxed);
    let (taken, most) = (books.taken.load(Relaxed), if bound.weighs { heavy } else { 1 });
    books.checks.expect(BOUND, taken <= u64::from(most), || {
        format!("an entry of weight {most} has evicted {taken}")
    });
}
