//! Nanoseconds that an entry takes to expire, all at once or spread over time.

use super::super::{count, Options};
use crate::keyed::expire::{self, Due, Expiry};
use crate::keyed::{
    Counted, DelayQueue, Key, Map, MiniMoka, Moka, MokaEach, QueueByKey, Sharded, Store, Value,
    ZooKeeper,
};
use crate::report::{Report, Spread, Target};
use serde_json::json;
use std::sync::Arc;

/// A store, and what its rounds came to.
struct Subject {
    name: &'static str,
    run: fn(usize, Due) -> Expiry,
    nanos: Vec<f64>,
    left: i64,
}

fn subject<K: Key, V: Value, S: Store<K, V>>() -> Subject {
    Subject { name: S::NAME, run: expire::run::<K, V, S>, nanos: Vec::new(), left: 0 }
}

/// At most so much of another store's time is asked of ours, if anything is.
fn asked(entries: usize, due: Due, ours: &str, theirs: &str) -> Option<f64> {
    let is = |name, store: &str| store.contains(name);
    match due {
        Due::Mass | Due::Spread if is("ZooKeeper", theirs) => Some(match entries {
            0..=100_000 => 1.2,
            _ if is("Map", ours) => 0.6,
            _ => 0.5,
        }),
        Due::Fine | Due::Touched if is("BTreeMap", theirs) => Some(0.6),
        _ => None,
    }
}

fn subjects<K: Key, R: Key>(due: Due) -> Vec<Subject> {
    let mut all = vec![
        subject::<K, Counted, Map<K, Counted>>(),
        subject::<K, (), QueueByKey<K>>(),
        subject::<R, (), ZooKeeper<R, ()>>(),
        subject::<R, Counted, DelayQueue<R, Counted>>(),
        subject::<R, Counted, Sharded<R, Counted>>(),
    ];
    match due {
        Due::Mass => {
            all.push(subject::<K, Counted, Moka<K, Counted>>());
            all.push(subject::<K, Counted, MiniMoka<K, Counted>>());
        }
        // mini-moka has no timeouts of single entries.
        Due::Spread => all.push(subject::<K, Counted, MokaEach<K>>()),
        // moka goes by the machine's time: a minute a round.
        Due::Fine | Due::Touched => {}
    }
    all
}

/// All entries expire, at once or spread over time.
pub fn expiry(options: &Options, report: &mut Report) {
    for entries in options.loads(&[100_000, 1_000_000]) {
        for due in [Due::Mass, Due::Spread, Due::Fine, Due::Touched] {
            for keys in &options.keys {
                let mut all = if keys == u64::NAME {
                    subjects::<u64, u64>(due)
                } else {
                    subjects::<String, Arc<str>>(due)
                };
                all.retain(|subject| options.only.iter().all(|only| subject.name.contains(only)));
                expire(options, report, entries, (due, keys), &mut all);
            }
        }
    }
}

fn expire(
    options: &Options,
    report: &mut Report,
    entries: usize,
    (due, keys): (Due, &str),
    all: &mut [Subject],
) {
    let rounds = options.rounds_at(entries);
    let table = format!("expiry of {} {keys} keys, {due:?}", count(entries));
    report.head(
        &table,
        &format!(
            "{rounds} rounds, one thread; ns of its processor time an entry, which is dropped with \
             key and value; x: ours over theirs"
        ),
    );
    for round in 0..rounds {
        for subject in all.iter_mut() {
            options.say(&format!("round {} of {rounds}: {}", round + 1, subject.name));
            let expiry = (subject.run)(entries, due);
            subject.nanos.push(expiry.nanos);
            subject.left = subject.left.max(expiry.left);
        }
    }
    let (ours, theirs): (Vec<_>, Vec<_>) =
        (all.iter()).partition(|subject| subject.name.starts_with("Expir"));
    for subject in &*all {
        let load = json!({ "values_left": subject.left });
        report.figure(&table, subject.name, "ns/entry", Spread::of(subject.nanos.clone()), &load);
    }
    for ours in ours {
        for theirs in &theirs {
            let times = ours.nanos.iter().zip(&theirs.nanos).map(|(ours, theirs)| ours / theirs);
            let (name, times) = (format!("{} over {}", ours.name, theirs.name), Spread::of(times));
            match asked(entries, due, ours.name, theirs.name) {
                Some(most) => report.check(&table, &name, "times", times, Target::AtMost(most)),
                None => report.figure(&table, &name, "times", times, &json!({})),
            }
        }
    }
}
