//! Nanoseconds that an entry takes to expire, all at once or spread over time.

use super::super::{count, Options};
use crate::keyed::expire::{self, Due, Expiry};
use crate::keyed::{
    Counted, DelayQueue, Key, Map, Moka, MokaEach, QueueByKey, Sharded, Store, Value, ZooKeeper,
};
use crate::report::{Report, Spread, Target};
use serde_json::json;
use std::sync::Arc;

type Subject = (&'static str, fn(usize, Due) -> Expiry);

fn subject<K: Key, V: Value, S: Store<K, V>>() -> Subject {
    (S::NAME, expire::run::<K, V, S>)
}

/// The largest share of another store's time that ours may take, if there is a target.
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
        subject::<R, (), ZooKeeper<R>>(),
        subject::<R, Counted, DelayQueue<R, Counted>>(),
        subject::<R, Counted, Sharded<R, Counted>>(),
    ];
    match due {
        Due::Mass => all.push(subject::<K, Counted, Moka<K, Counted>>()),
        Due::Spread => all.push(subject::<K, Counted, MokaEach<K>>()),
        // moka goes by the machine's time: a minute a round.
        Due::Fine | Due::Touched => {}
    }
    all
}

pub fn expiry(options: &Options, report: &mut Report) {
    for entries in options.loads(&[100_000, 1_000_000]) {
        for due in [Due::Mass, Due::Spread, Due::Fine, Due::Touched] {
            for keys in &options.keys {
                let mut all = if keys == u64::NAME {
                    subjects::<u64, u64>(due)
                } else {
                    subjects::<String, Arc<str>>(due)
                };
                all.retain(|(name, _)| options.asks_for(name));
                expire(options, report, (entries, due, keys), &all);
            }
        }
    }
}

fn expire(
    options: &Options,
    report: &mut Report,
    (entries, due, keys): (usize, Due, &str),
    all: &[Subject],
) {
    let rounds = options.rounds_at(entries);
    let mut table = report.table(
        format!("expiry of {} {keys} keys, {due:?}", count(entries)),
        &format!(
            "{rounds} rounds, one thread; ns of its processor time an entry, which is dropped with \
             key and value; x: ours over theirs"
        ),
    );
    let done = options.in_turn(rounds, all, |one| one.0.to_string(), |one| (one.1)(entries, due));
    let nanos: Vec<Vec<f64>> =
        done.iter().map(|rounds| rounds.iter().map(|round| round.0).collect()).collect();
    for ((name, _), (rounds, nanos)) in all.iter().zip(done.iter().zip(&nanos)) {
        let load = json!({ "values_left": rounds.iter().map(|round| round.1).max() });
        table.loaded(name, "ns/entry", Spread::of(nanos.iter().copied()), &load);
    }
    let named = || all.iter().map(|subject| subject.0).zip(&nanos);
    for (ours, our_nanos) in named().filter(|(name, _)| name.starts_with("Expir")) {
        for (theirs, nanos) in named().filter(|(name, _)| !name.starts_with("Expir")) {
            let most = asked(entries, due, ours, theirs).map(Target::AtMost);
            let times = Spread::ratio(our_nanos, nanos);
            table.judge(&format!("{ours} over {theirs}"), "times", times, most);
        }
    }
}
