//! Caches: how often a map that evicts has the key that is asked for, and what an access costs,
//! beside `moka` and `quick_cache`.
//!
//! An access gets a key, and inserts it if the cache has not got it. All peers see the same keys.

use super::Options;
use crate::report::{Report, Spread, Target};
use expiry::ExpiringMap;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use serde_json::json;
use std::time::{Duration, Instant};

/// Keys of the Zipf distributions.
const KEYS: u64 = 100_000;
/// Accesses of a trace, about.
const ACCESSES: usize = 1_000_000;
/// Entries of a cache, where the trace does not say otherwise.
const ENTRIES: usize = 5_000;

/// Gets a key, or inserts it. Returns whether it was there.
type Access = Box<dyn Fn(u64) -> bool>;
type Make = fn(usize) -> Access;

const PEERS: [(&str, Make); 3] = [
    ("ExpiringMap", |entries| {
        let lifetime = Duration::from_secs(3600);
        let cache = ExpiringMap::builder().time_to_live(lifetime).max_capacity(entries).build();
        let cache = cache.expect("the settings are right");
        Box::new(move |key| cache.get(&key).is_some() || cache.insert(key, key).is_err())
    }),
    ("moka", |entries| {
        let cache = moka::sync::Cache::builder()
            .max_capacity(entries as u64)
            .time_to_live(Duration::from_secs(3600))
            .build();
        Box::new(move |key| {
            let hit = cache.get(&key).is_some();
            if !hit {
                cache.insert(key, key);
            }
            hit
        })
    }),
    ("quick_cache, no expiry", |entries| {
        let cache = quick_cache::sync::Cache::new(entries);
        Box::new(move |key| {
            let hit = cache.get(&key).is_some();
            if !hit {
                cache.insert(key, key);
            }
            hit
        })
    }),
];

/// Keys in the order in which a program asks for them, and how many entries its cache may have.
struct Trace {
    name: String,
    keys: Vec<u64>,
    entries: usize,
}

impl Trace {
    fn of(name: impl Into<String>, entries: usize, keys: impl Iterator<Item = u64>) -> Self {
        Trace { name: name.into(), keys: keys.collect(), entries }
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
    all
}

/// The share of hits in percent, and nanoseconds an access.
fn access(make: Make, trace: &Trace) -> (f64, f64) {
    let get = make(trace.entries);
    let began = Instant::now();
    let hits = trace.keys.iter().filter(|&&key| get(key)).count();
    let nanos = began.elapsed().as_nanos() as f64;
    (hits as f64 * 100.0 / trace.keys.len() as f64, nanos / trace.keys.len() as f64)
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
