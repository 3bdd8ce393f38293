//! Bytes that an entry takes in all: key, value, index, deadlines, allocator.

use super::super::{count, name, numbers, Options};
use crate::keyed::course::Kind;
use crate::keyed::{Key, Setup, Store, Value, INTERVAL};
use crate::process::{allocated, resident, settled};
use crate::report::{Report, Target};
use serde_json::{json, Value as Json};
use std::time::Duration;

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

const STORES: [&str; 6] = ["map", "dashmap", "papaya", "moka", "queue", "zookeeper"];

/// Bytes an entry at 1 M, a process for each store.
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
