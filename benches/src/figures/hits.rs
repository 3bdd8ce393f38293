//! Caches: how often a map that evicts has the key that is asked for, and what an access costs,
//! beside `moka` and `quick_cache`.
//!
//! An access gets a key, and inserts it if the cache has not got it, unless the trace says
//! otherwise. All peers see the same keys.

use super::Options;
use crate::report::{Report, Spread, Target};
use expiry::{EvictionPolicy, ExpiringMap};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Keys of the Zipf distributions.
const KEYS: u64 = 100_000;
/// Accesses of a trace, about.
const ACCESSES: usize = 1_000_000;
/// Entries of a cache, where the trace does not say otherwise.
const ENTRIES: usize = 5_000;

/// What a program does with a key. Returns whether the key was there.
type Access = Box<dyn FnMut(Step) -> bool>;
type Make = fn(usize) -> Access;

#[derive(Clone, Copy)]
enum Step {
    /// Gets it, or inserts it.
    Ask(u64),
    /// Inserts it.
    Write(u64),
    /// Gets it.
    Read(u64),
}

/// An access to a cache that has these two.
fn by(
    mut get: impl FnMut(u64) -> bool + 'static,
    mut insert: impl FnMut(u64) + 'static,
) -> impl FnMut(Step) -> bool {
    move |step| match step {
        Step::Ask(key) => {
            let hit = get(key);
            if !hit {
                insert(key);
            }
            hit
        }
        Step::Write(key) => {
            insert(key);
            false
        }
        Step::Read(key) => get(key),
    }
}

fn ours(policy: EvictionPolicy, entries: usize) -> Access {
    let cache = ExpiringMap::builder().time_to_live(Duration::from_secs(3600));
    let cache = cache.max_capacity(entries).eviction_policy(policy).build();
    let cache = cache.expect("the settings are right");
    let filled = cache.clone();
    let insert = move |key| drop(filled.insert(key, key).expect("a full map makes room"));
    Box::new(by(move |key| cache.get(&key).is_some(), insert))
}

/// The default policy, the two best known peers, and other policies: the last one is exact.
const PEERS: [(&str, Make); 6] = [
    ("ExpiringMap", |entries| ours(EvictionPolicy::S3Fifo, entries)),
    ("moka", |entries| {
        let cache = moka::sync::Cache::builder()
            .max_capacity(entries as u64)
            .time_to_live(Duration::from_secs(3600))
            .build();
        let filled = cache.clone();
        Box::new(by(move |key| cache.get(&key).is_some(), move |key| filled.insert(key, key)))
    }),
    ("quick_cache, no expiry", |entries| {
        let cache = Rc::new(quick_cache::sync::Cache::new(entries));
        let filled = cache.clone();
        Box::new(by(move |key| cache.get(&key).is_some(), move |key| filled.insert(key, key)))
    }),
    ("LeastRecentlyUsed", |entries| ours(EvictionPolicy::LeastRecentlyUsed, entries)),
    ("SoonestDeadline", |entries| ours(EvictionPolicy::SoonestDeadline, entries)),
    ("exact LRU, no expiry", |entries| {
        // When each key was used last, and the keys in that order.
        let (mut keys, mut uses, mut now) = (HashMap::new(), BTreeMap::new(), 0_u64);
        Box::new(move |step| {
            let (Step::Ask(key) | Step::Write(key) | Step::Read(key)) = step;
            let there = keys.contains_key(&key);
            if !there && matches!(step, Step::Read(_)) {
                return false;
            }
            now += 1;
            if let Some(last) = keys.insert(key, now) {
                uses.remove(&last);
            }
            uses.insert(now, key);
            if keys.len() > entries {
                let (_, oldest) = uses.pop_first().expect("as many as keys");
                keys.remove(&oldest);
            }
            there
        })
    }),
];

/// What a program does, and how many entries its cache may have.
struct Trace {
    name: String,
    steps: Vec<Step>,
    entries: usize,
}

impl Trace {
    fn of(name: impl Into<String>, entries: usize, keys: impl Iterator<Item = u64>) -> Self {
        Trace { name: name.into(), steps: keys.map(Step::Ask).collect(), entries }
    }

    /// Each key is written, and read once, some insertions later: at least 12, and at most so many
    /// percent of the entries.
    fn of_tokens(percent: usize) -> Self {
        let (entries, mut random) = (1_000, SmallRng::seed_from_u64(6));
        let mut steps: Vec<_> = (0..ACCESSES as u64 / 2)
            .flat_map(|key| {
                let later = random.random_range(12..=entries * percent / 100) as u64;
                [(2 * key, Step::Write(key)), (2 * (key + later) + 1, Step::Read(key))]
            })
            .collect();
        steps.sort_by_key(|&(at, _)| at);
        Trace {
            name: format!("written, read once within {percent} %"),
            steps: steps.into_iter().map(|(_, step)| step).collect(),
            entries,
        }
    }
}

fn zipf(keys: u64, exponent: f64, seed: u64) -> impl Iterator<Item = u64> {
    let zipf = Zipf::new(keys as f64, exponent).expect("a number of keys, an exponent");
    let mut random = SmallRng::seed_from_u64(seed);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a whole number
    std::iter::repeat_with(move || zipf.sample(&mut random) as u64)
}

fn traces() -> Vec<Trace> {
    let mut all = Vec::new();
    for exponent in [0.7, 0.9, 1.1] {
        for entries in [1_000, 10_000] {
            let name = format!("Zipf {exponent}, {} %", entries * 100 / KEYS as usize);
            all.push(Trace::of(name, entries, zipf(KEYS, exponent, 1).take(ACCESSES)));
        }
    }
    // A fifth of the accesses is to keys that are asked for once.
    let scans = zipf(KEYS, 0.9, 2).enumerate().map(|(n, key)| {
        let n = n as u64;
        if n % 20_000 < 4_000 {
            KEYS + n
        } else {
            key
        }
    });
    all.push(Trace::of("Zipf 0.9 and scans", ENTRIES, scans.take(ACCESSES)));
    for percent in [120, 200] {
        let keys = (ENTRIES * percent / 100) as u64;
        let round = (0..ACCESSES as u64).map(move |n| n % keys);
        all.push(Trace::of(format!("loop of {percent} %"), ENTRIES, round));
    }
    let shifting = zipf(KEYS, 0.9, 3).enumerate().map(|(n, key)| key + n as u64 / 200_000 * KEYS);
    all.push(Trace::of("Zipf 0.9, all keys new each 200 K", ENTRIES, shifting.take(ACCESSES)));
    let drifting = zipf(KEYS, 0.9, 4).enumerate().map(|(n, key)| key + n as u64 / 50);
    all.push(Trace::of("Zipf 0.9, one key new each 50", ENTRIES, drifting.take(ACCESSES)));
    let mut random = SmallRng::seed_from_u64(5);
    let sets =
        (0..ACCESSES as u64).map(move |n| n / 80_000 * 4_000 + random.random_range(0..4_000));
    all.push(Trace::of("sets of 80 %, 20 accesses a key", ENTRIES, sets));
    // Sessions are used until they die, after 20 accesses in the mean, and another one begins.
    let (mut random, mut begun) = (SmallRng::seed_from_u64(7), 0..);
    let mut alive: Vec<u64> = begun.by_ref().take(ENTRIES * 4 / 5).collect();
    let sessions = (0..ACCESSES).map(move |_| {
        let at = random.random_range(0..alive.len());
        if random.random_range(0..20) == 0 {
            alive[at] = begun.next().expect("numbers");
        }
        alive[at]
    });
    all.push(Trace::of("sessions, 80 % alive", ENTRIES, sessions));
    all.extend([2, 8, 50].map(Trace::of_tokens));
    all
}

/// The share of hits in percent, and nanoseconds an access.
fn access(make: Make, trace: &Trace) -> (f64, f64) {
    let mut access = make(trace.entries);
    let began = Instant::now();
    let hits = trace.steps.iter().filter(|&&step| access(step)).count();
    let nanos = began.elapsed().as_nanos() as f64;
    let looks = trace.steps.iter().filter(|step| !matches!(step, Step::Write(_))).count();
    (hits as f64 * 100.0 / looks as f64, nanos / trace.steps.len() as f64)
}

pub fn run(options: &Options, report: &mut Report) {
    let mut table = report.table(
        "hits of caches".into(),
        "one thread gets a key, or inserts it; percent, and the wall time of an access",
    );
    for trace in traces() {
        table.part(&format!("{}, {} entries", trace.name, trace.entries));
        let name = |(name, _): &(&str, Make)| format!("{name}, {}", trace.name);
        let runs = options.in_turn(options.rounds, &PEERS, name, |(_, make)| access(*make, &trace));
        let hits: Vec<_> =
            runs.iter().map(|runs| Spread::of(runs.iter().map(|run| run.0))).collect();
        for (((name, _), runs), hits) in PEERS.iter().zip(&runs).zip(&hits) {
            let nanos = Spread::of(runs.iter().map(|run| run.1)).median;
            table.loaded(name, "%", *hits, &json!({ "ns": nanos.round() }));
        }
        let best = hits[1].median.max(hits[2].median);
        let less = hits[0].map(|hits| best - hits);
        table.check("the best peer has more by", "points", less, Target::AtMost(1.0));
    }
}
