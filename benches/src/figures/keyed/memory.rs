//! Bytes that an entry takes in all: key, value, index, deadlines, allocator. And how long large
//! values stay in memory after an idle process has removed or replaced them.

use super::super::{count, name, numbers, Options};
use crate::keyed::course::Kind;
use crate::keyed::{Key, Setup, Store, Value, INTERVAL};
use crate::process::{allocated, resident, settled};
use crate::report::{Report, Target};
use expiry::ExpiringMap;
use serde_json::{json, Value as Json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Fills a store with so many entries and weighs the process before and after.
pub fn weigh<K: Key, V: Value, S: Store<K, V>>(kind: Kind, entries: usize) -> Json {
    let time = &kind.time();
    // The thread's part of the allocator, and other things that exist once.
    drop(K::make(0));
    let (resident_before, (given_before, held_before)) = (resident(), allocated());
    let hour = Duration::from_secs(3600);
    let store = S::new(&Setup { time, entries, timeout: hour, interval: INTERVAL });
    let timeout = u64::try_from(hour.as_nanos()).expect("an hour");
    store.on_thread(|| {
        for n in 0..entries as u64 {
            store.insert(K::make(n), V::make(n), time.now(), timeout);
            if S::DRIVEN && n % 1024 == 0 {
                store.advance(time.now().get());
            }
        }
        if S::DRIVEN || S::REAL {
            store.advance(time.now().get());
        }
    });
    let _ = settled();
    assert_eq!(store.live(), entries, "{}", S::NAME);
    let (grown, (given, held)) = (resident() - resident_before, allocated());
    json!({
        "name": S::NAME,
        "ours": size_of::<K>() + K::HEAP + size_of::<V>(),
        "grown": grown,
        "allocated": given - given_before,
        "mapped": grown.saturating_sub(held - held_before),
    })
}
const STORES: [&str; 10] = [
    "map",
    "dashmap",
    "papaya",
    "sharded-map",
    "delay-queue-map",
    "moka",
    "queue",
    "zookeeper",
    "sharded",
    "delay-queue",
];

/// Bytes an entry at 1 M, a process for each store; 10 M as well with `--full`.
pub fn memory(options: &Options, report: &mut Report) {
    let stores: Vec<_> = STORES.into_iter().filter(|store| options.asks_for(store)).collect();
    for entries in options.loads(&[1_000_000]) {
        for keys in &options.keys {
            let rounds = options.rounds_at(entries);
            let mut table = report.table(
                format!("keyed memory, {} {keys} keys", count(entries)),
                &format!(
                    "{rounds} round(s), a process each; resident bytes an entry, with key and value; \
                     allocated: by malloc; mapped: resident, but not malloc's"
                ),
            );
            let asked: Vec<_> = stores.iter().map(|store| format!("{store}/{keys}")).collect();
            let asked: Vec<_> = asked.iter().map(String::as_str).collect();
            let answers = options.ask_in_turn(rounds, "keyed", &asked, entries);
            for (store, answers) in stores.iter().zip(answers) {
                let name = format!("{} ({store})", name(&answers));
                let each = |field| numbers(&answers, field).map(|bytes| bytes / entries as f64);
                let bytes = each("grown");
                let load = json!({
                    "allocated": each("allocated").median.round(),
                    "mapped": each("mapped").median.round(),
                    "key_and_value": answers[0]["ours"],
                });
                table.loaded(&name, "bytes", bytes, &load);
                let limit = match (*store, keys.as_str(), entries) {
                    ("map", "u64", 1_000_000) => 50.0,
                    ("queue", "u64", 1_000_000) => 44.0,
                    _ => continue,
                };
                table.check(&name, "bytes", bytes, Target::AtMost(limit));
            }
        }
    }
}

const VALUES: usize = 40;

const BYTES: usize = 8 << 20;

/// How long the values get. Values that are still there count as dropped then.
const PATIENCE: Duration = Duration::from_secs(3);

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A value that counts its drop, after which its memory is free.
struct Large(Vec<u8>);

impl Drop for Large {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.0));
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The child's side: ends `values` values as `how` says, then makes no call and waits for drops.
pub fn serve_drops(how: &str, values: usize) -> Option<Json> {
    let map = ExpiringMap::builder()
        .time_to_live(Duration::from_secs(3600))
        .interval(INTERVAL)
        .build()
        .expect("valid settings");
    let refused = "room in the map";
    let before = resident();
    for key in 0..values {
        // Ones: the kernel maps a page of zeros only when it is written to.
        assert!(map.insert(key, Large(vec![1; BYTES])).expect(refused).is_none());
    }
    let filled = resident();
    for key in 0..values {
        let ended = match how {
            "removed" => map.remove(&key),
            "replaced" => map.insert(key, Large(Vec::new())).expect(refused),
            _ => return None,
        };
        assert!(ended.is_some());
    }
    let began = Instant::now();
    while DROPPED.load(Ordering::Relaxed) < values && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(500));
    }
    let took = began.elapsed();
    Some(json!({
        "ms": took.as_secs_f64() * 1e3,
        "left": values - DROPPED.load(Ordering::Relaxed).min(values),
        "filled_mib": (filled - before) >> 20,
        "left_mib": resident().saturating_sub(before) >> 20,
    }))
}

/// Milliseconds until 40 values of 8 MiB are dropped; at most an interval and 10 ms are asked.
pub fn drops(options: &Options, report: &mut Report) {
    let mut table = report.table(
        format!("{VALUES} values of {} MiB in an idle process", BYTES >> 20),
        &format!(
            "{} round(s), a process each; ms until the last value is dropped, at most {} ms; \
             interval {INTERVAL:?}",
            options.rounds,
            PATIENCE.as_millis()
        ),
    );
    let hows = ["removed", "replaced"];
    let answers = options.ask_in_turn(options.rounds, "drops", &hows, VALUES);
    for (how, answers) in hows.into_iter().zip(answers) {
        let of = |field| numbers(&answers, field);
        let load = json!({
            "values_left": of("left").median,
            "filled_MiB": of("filled_mib").median,
            "left_MiB": of("left_mib").median,
        });
        table.loaded(how, "ms", of("ms"), &load);
        let limit = (INTERVAL + Duration::from_millis(10)).as_secs_f64() * 1e3;
        table.check(how, "ms", of("ms"), Target::AtMost(limit));
    }
}
