//! Bytes that an entry takes with everything in: key, value, index, deadlines, allocator.

use super::super::child::{ask_of, number, own};
use super::super::{count, Options};
use super::{only, Task};
use crate::keyed::course::Kind;
use crate::keyed::{Key, Setup, Store, Time, Value, INTERVAL};
use crate::process::{allocated, held, resident, settled};
use crate::report::{Report, Spread, Target};
use expiry::{CoarseClock, ManualClock};
use serde_json::{json, Value as Json};
use std::time::Duration;

/// Fills a store with so many entries and weighs the process before and after.
pub struct Weigh(pub usize);

impl Task for Weigh {
    fn run<K: Key, V: Value, S: Store<K, V>>(&self, kind: Kind) -> Json {
        let entries = self.0;
        let time = &match kind {
            Kind::Maps => Time::Real(CoarseClock::new()),
            Kind::Queues => Time::Simulated(ManualClock::new()),
        };
        // The thread's part of the allocator, and other things that exist once.
        drop(K::make(0));
        let before = (resident(), allocated(), held());
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
        let (grown, by_malloc) = (resident() - before.0, held() - before.2);
        json!({
            "name": S::NAME,
            "ours": size_of::<K>() + K::HEAP + size_of::<V>(),
            "grown": grown,
            "allocated": allocated() - before.1,
            "mapped": grown.saturating_sub(by_malloc),
        })
    }
}

/// Maps, then queues.
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
#[allow(clippy::cast_precision_loss)] // tens of millions
pub fn memory(options: &Options, report: &mut Report) {
    for entries in options.loads(&[1_000_000]) {
        for keys in &options.keys {
            let table = format!("keyed memory, {} {keys} keys", count(entries));
            let rounds = options.rounds_at(entries);
            report.head(
                &table,
                &format!(
                    "{rounds} round(s), a process each; resident bytes an entry, with key and value; \
                     allocated: by malloc; mapped: resident, but not malloc's"
                ),
            );
            for store in only(options, &STORES) {
                let answers: Vec<Json> = (0..rounds)
                    .map(|_| ask_of(&own(), "keyed", &format!("{store}/{keys}"), entries))
                    .collect();
                let name = format!("{} ({store})", answers[0]["name"].as_str().unwrap_or(store));
                let each = |field| {
                    Spread::of(answers.iter().map(|answer| number(answer, field) / entries as f64))
                };
                let bytes = each("grown");
                let load = json!({
                    "allocated": each("allocated").median.round(),
                    "mapped": each("mapped").median.round(),
                    "key_and_value": answers[0]["ours"],
                });
                report.figure(&table, &name, "bytes", bytes, &load);
                let limit = match (store, keys.as_str(), entries) {
                    ("map", "u64", 1_000_000) => 50.0,
                    ("queue", "u64", 1_000_000) => 44.0,
                    _ => continue,
                };
                report.check(&table, &name, "bytes", bytes, Target::AtMost(limit));
            }
        }
    }
}
