//! Keyed stores: `ExpiringMap` and `ExpiryQueue` beside ZooKeeper's queue, moka, and what one builds oneself.

use super::child::{ask, number};
use super::{count, Options};
use crate::keyed::course::{self, Course, Kind, Load, Op};
use crate::keyed::expire::{self, Due, Expiry};
use crate::keyed::{
    Counted, DelayQueue, Key, Map, MiniMoka, Moka, MokaEach, Nothing, Papaya, QueueByHandle,
    QueueByKey, Sharded, Store, Time, Value, ZooKeeper,
};
use crate::process::{allocated, resident, settled, Took};
use crate::report::{Report, Spread, Target};
use expiry::{CoarseClock, ManualClock};
use serde_json::{json, Value as Json};
use std::sync::Arc;
use std::time::Duration;

/// What can be asked of a figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Map,
    ByKey,
    ByHandle,
    ZooKeeper,
    Moka,
    Papaya,
    Other,
}

impl Who {
    fn is_ours(self) -> bool {
        matches!(self, Who::Map | Who::ByKey | Who::ByHandle)
    }
}

/// Somebody in a table.
struct Contestant<R> {
    who: Who,
    name: &'static str,
    run: R,
}

type Run = fn(&Load) -> Course;

fn works<K: Key, V: Value, S: Store<K, V>>(who: Who) -> Contestant<Run> {
    Contestant {
        who,
        name: S::NAME,
        run: course::run::<K, V, S>,
    }
}

/// `K` for those who keep it once, `R` for those who keep it twice.
fn contestants<K: Key, R: Key>(kind: Kind) -> Vec<Contestant<Run>> {
    match kind {
        Kind::Maps => vec![
            works::<K, u64, Map<K, u64>>(Who::Map),
            works::<K, u64, Moka<K, u64>>(Who::Moka),
            works::<K, u64, MiniMoka<K, u64>>(Who::Other),
            works::<R, u64, DelayQueue<R, u64>>(Who::Other),
            works::<R, u64, Sharded<R, u64>>(Who::Other),
            works::<K, u64, Papaya<K, u64>>(Who::Papaya),
            works::<K, u64, Nothing>(Who::Other),
        ],
        Kind::Queues => vec![
            works::<K, (), QueueByKey<K>>(Who::ByKey),
            works::<K, (), QueueByHandle<K>>(Who::ByHandle),
            works::<R, (), ZooKeeper<R, ()>>(Who::ZooKeeper),
            works::<R, (), DelayQueue<R, ()>>(Who::Other),
            works::<R, (), Sharded<R, ()>>(Who::Other),
            works::<K, (), Nothing>(Who::Other),
        ],
    }
}

fn only<R>(options: &Options, mut all: Vec<Contestant<R>>) -> Vec<Contestant<R>> {
    if let Some(only) = &options.only {
        all.retain(|one| one.name.contains(only));
    }
    all
}

/// The kinds of keys that are asked for.
fn kinds(options: &Options) -> Vec<&'static str> {
    let mut all = vec![u64::NAME, String::NAME];
    if let Some(keys) = &options.keys {
        all.retain(|name| name == keys);
    }
    all
}

/// Runs all of them, at 100 K, 1 M and 10 M.
pub fn run(options: &Options, report: &mut Report) {
    maps(options, report);
    queues(options, report);
    expiry(options, report);
    memory(options, report);
}

/// Insert, get, renew, remove, and a mix, on every number of threads asked for; 10 M on one.
pub fn maps(options: &Options, report: &mut Report) {
    courses(options, report, Kind::Maps);
}

/// Insert, renew, remove.
pub fn queues(options: &Options, report: &mut Report) {
    courses(options, report, Kind::Queues);
}

fn courses(options: &Options, report: &mut Report, kind: Kind) {
    for entries in options.loads(&[100_000, 1_000_000, 10_000_000]) {
        for &threads in &options.threads {
            if threads > 1 && entries >= 10_000_000 && options.in_flight.is_none() {
                continue;
            }
            let load = Load::new(entries, threads, kind);
            for keys in kinds(options) {
                let all = if keys == u64::NAME {
                    contestants::<u64, u64>(kind)
                } else {
                    contestants::<String, Arc<str>>(kind)
                };
                course(options, report, &load, keys, only(options, all));
            }
        }
    }
}

/// What everybody took, round by round.
struct Table<'a, R> {
    name: String,
    all: &'a [Contestant<R>],
    rounds: Vec<Vec<f64>>,
}

impl<R> Table<'_, R> {
    fn place(&self, who: Who) -> Option<usize> {
        self.all.iter().position(|one| one.who == who)
    }

    fn of(&self, at: usize) -> Spread {
        Spread::of(self.rounds[at].iter().copied())
    }

    /// Round by round, what `f` makes of two numbers.
    fn both(&self, ours: usize, theirs: usize, f: impl Fn(f64, f64) -> f64) -> Spread {
        let rounds = self.rounds[ours].iter().zip(&self.rounds[theirs]);
        Spread::of(rounds.map(|(&ours, &theirs)| f(ours, theirs)))
    }

    /// How many times our time theirs is.
    fn beside(&self, report: &mut Report, ours: usize, theirs: usize, least: Option<f64>) {
        let name = match self.all[ours].who {
            Who::ByKey => format!("by key beside {}", self.all[theirs].name),
            Who::ByHandle => format!("by handle beside {}", self.all[theirs].name),
            _ => format!("beside {}", self.all[theirs].name),
        };
        let times = self.both(ours, theirs, |ours, theirs| theirs / ours);
        match least {
            Some(least) => report.check(&self.name, &name, "times", times, Target::AtLeast(least)),
            None => report.figure(&self.name, &name, "times", times, &Json::Null),
        }
    }

    /// Ours beside everybody who does the same work; `asked` says how many times as fast, of whom, at least.
    fn judge(&self, report: &mut Report, asked: impl Fn(Who, Who) -> Option<f64>) {
        for (at, ours) in self.all.iter().enumerate() {
            for (other, theirs) in self.all.iter().enumerate() {
                let same = theirs.who != Who::Papaya && theirs.name != NOBODY;
                if ours.who.is_ours() && !theirs.who.is_ours() && same {
                    self.beside(report, at, other, asked(ours.who, theirs.who));
                }
            }
        }
    }

    fn at_most(&self, report: &mut Report, who: Who, limit: f64) {
        if let Some(at) = self.place(who) {
            let name = format!("{}, ns", self.all[at].name);
            report.check(&self.name, &name, "ns", self.of(at), Target::AtMost(limit));
        }
    }
}

const NOBODY: &str = <Nothing as Store<u64, ()>>::NAME;

fn course(
    options: &Options,
    report: &mut Report,
    load: &Load,
    keys: &str,
    all: Vec<Contestant<Run>>,
) {
    let rounds = options.rounds_at(load.entries);
    let kind = match load.kind {
        Kind::Maps => "maps",
        Kind::Queues => "queues",
    };
    let title = format!(
        "{kind}, {} {keys} keys, {} thread(s)",
        count(load.entries),
        load.threads
    );
    report.head(
        &title,
        &format!("{rounds} rounds; ns of processor time per operation, all threads of the process; wall: of a thread"),
    );
    let mut courses: Vec<Vec<Course>> = vec![Vec::new(); all.len()];
    for round in 0..rounds {
        for (one, courses) in all.iter().zip(&mut courses) {
            options.say(&format!("round {} of {rounds}: {}", round + 1, one.name));
            courses.push((one.run)(load));
        }
    }
    let ops: &[Op] = match load.kind {
        Kind::Maps => &Op::MAPS,
        Kind::Queues => &Op::QUEUES,
    };
    for &op in ops {
        let of = |f: fn(&Took) -> f64| -> Vec<Vec<f64>> {
            let of = |courses: &Vec<Course>| courses.iter().map(|c| f(&c[op as usize])).collect();
            courses.iter().map(of).collect()
        };
        let table = Table {
            name: format!("{title}: {}", op.name()),
            all: &all,
            rounds: of(|took| took.cpu),
        };
        if options.is_text() {
            println!("   {}", op.name());
        }
        let walls = of(|took| took.wall);
        for (at, one) in all.iter().enumerate() {
            if one.who == Who::Papaya && op != Op::Get {
                continue;
            }
            let wall = Spread::of(walls[at].iter().copied()).median.round();
            let load = json!({ "wall_ns": wall });
            report.figure(&table.name, one.name, "ns", table.of(at), &load);
        }
        asked(report, &table, load, op, keys);
    }
}

/// What is asked, of 1 M numbers.
fn asked(report: &mut Report, table: &Table<'_, Run>, load: &Load, op: Op, keys: &str) {
    let judged = load.entries == 1_000_000 && keys == u64::NAME;
    table.judge(report, |_, theirs| match (op, theirs) {
        _ if !judged => None,
        (Op::Renew, Who::ZooKeeper) => Some(5.0),
        (Op::Renew, Who::Moka) => Some(10.0),
        (Op::Grow | Op::Insert | Op::Remove, Who::Moka) => Some(3.0),
        _ => None,
    });
    if op == Op::Get {
        if let (Some(ours), Some(papaya)) = (table.place(Who::Map), table.place(Who::Papaya)) {
            let share = table.both(ours, papaya, |ours, papaya| ours / papaya);
            let name = "share of papaya's time, with one reading of the clock";
            let limit = Target::AtMost(1.5);
            report.check(&table.name, name, "times", share, limit);
        }
    }
    if op == Op::Renew && judged && load.threads == 1 {
        table.at_most(report, Who::Map, 60.0);
        table.at_most(report, Who::ByKey, 60.0);
        table.at_most(report, Who::ByHandle, 25.0);
    }
}

type Expire = fn(usize, Due) -> Expiry;

fn expires<K: Key, V: Value, S: Store<K, V>>(who: Who) -> Contestant<Expire> {
    Contestant {
        who,
        name: S::NAME,
        run: expire::run::<K, V, S>,
    }
}

fn expirers<K: Key, R: Key>(due: Due) -> Vec<Contestant<Expire>> {
    let mut all = vec![
        expires::<K, Counted, Map<K, Counted>>(Who::Map),
        expires::<K, (), QueueByKey<K>>(Who::ByKey),
        expires::<R, (), ZooKeeper<R, ()>>(Who::ZooKeeper),
        match due {
            Due::Mass => expires::<K, Counted, Moka<K, Counted>>(Who::Moka),
            Due::Spread => expires::<K, Counted, MokaEach<K>>(Who::Moka),
        },
        expires::<R, Counted, DelayQueue<R, Counted>>(Who::Other),
        expires::<R, Counted, Sharded<R, Counted>>(Who::Other),
    ];
    if due == Due::Mass {
        // It has no times of single entries.
        all.push(expires::<K, Counted, MiniMoka<K, Counted>>(Who::Other));
    }
    all
}

/// Everything expires, at once or spread over time.
pub fn expiry(options: &Options, report: &mut Report) {
    for entries in options.loads(&[100_000, 1_000_000, 10_000_000]) {
        for due in [Due::Mass, Due::Spread] {
            for keys in kinds(options) {
                let all = if keys == u64::NAME {
                    expirers::<u64, u64>(due)
                } else {
                    expirers::<String, Arc<str>>(due)
                };
                expire(options, report, entries, due, keys, only(options, all));
            }
        }
    }
}

fn expire(
    options: &Options,
    report: &mut Report,
    entries: usize,
    due: Due,
    keys: &str,
    all: Vec<Contestant<Expire>>,
) {
    let rounds = options.rounds_at(entries);
    let title = format!("expiry of {} {keys} keys, {due:?}", count(entries));
    report.head(
        &title,
        &format!("{rounds} rounds, one thread; ns of its processor time per entry, dropped with key and value"),
    );
    let mut left = vec![0; all.len()];
    let mut table = Table {
        name: title,
        all: &all,
        rounds: vec![Vec::new(); all.len()],
    };
    for round in 0..rounds {
        for (at, one) in all.iter().enumerate() {
            options.say(&format!("round {} of {rounds}: {}", round + 1, one.name));
            let expiry = (one.run)(entries, due);
            table.rounds[at].push(expiry.nanos);
            left[at] = expiry.left.max(left[at]);
        }
    }
    for (at, one) in all.iter().enumerate() {
        let load = json!({ "values_left": left[at] });
        report.figure(&table.name, one.name, "ns/entry", table.of(at), &load);
    }
    table.judge(report, |_, _| None);
    table.at_most(report, Who::Map, 200.0);
    table.at_most(report, Who::ByKey, 200.0);
}

/// In a process of its own, what the entries of one store take.
fn weigh<K: Key, V: Value, S: Store<K, V>>(time: &Time, entries: usize) -> Json {
    // What is there once: this thread's part of an allocator, say.
    drop(K::make(0));
    let (before, held) = (resident(), allocated());
    let store = S::new(time, entries, Duration::from_secs(3600));
    let timeout = Duration::from_secs(3600).as_nanos() as u64;
    store.on_thread(|| {
        for n in 0..entries as u64 {
            store.insert(K::make(n), V::make(n), time.now(), timeout);
            // Growth is the driver's.
            if !S::REAL && n % 1024 == 0 {
                store.advance(0);
            }
        }
        store.advance(0);
    });
    let _ = settled();
    assert_eq!(store.live(), entries, "{}", S::NAME);
    json!({
        "name": S::NAME,
        "ours": size_of::<K>() + K::HEAP + size_of::<V>(),
        "grown": resident() - before,
        "allocated": allocated() - held,
    })
}

/// Those that are weighed: maps, then queues.
const WEIGHED: [&str; 9] = [
    "map",
    "moka",
    "mini-moka",
    "delay-queue-map",
    "sharded-map",
    "queue",
    "zookeeper",
    "delay-queue",
    "sharded",
];

fn weigh_by_name<K: Key, R: Key>(name: &str, entries: usize) -> Option<Json> {
    let real = &Time::Real(CoarseClock::new());
    let simulated = &Time::Simulated(ManualClock::new());
    Some(match name {
        "map" => weigh::<K, u64, Map<K, u64>>(real, entries),
        "moka" => weigh::<K, u64, Moka<K, u64>>(real, entries),
        "mini-moka" => weigh::<K, u64, MiniMoka<K, u64>>(real, entries),
        "delay-queue-map" => weigh::<R, u64, DelayQueue<R, u64>>(simulated, entries),
        "sharded-map" => weigh::<R, u64, Sharded<R, u64>>(simulated, entries),
        "queue" => weigh::<K, (), QueueByKey<K>>(simulated, entries),
        "zookeeper" => weigh::<R, (), ZooKeeper<R, ()>>(simulated, entries),
        "delay-queue" => weigh::<R, (), DelayQueue<R, ()>>(simulated, entries),
        "sharded" => weigh::<R, (), Sharded<R, ()>>(simulated, entries),
        _ => return None,
    })
}

/// The child's side: `STORE/KEYS`.
#[must_use]
pub fn serve(store: &str, entries: usize) -> Option<Json> {
    match store.split_once('/')? {
        (store, "u64") => weigh_by_name::<u64, u64>(store, entries),
        (store, "String") => weigh_by_name::<String, Arc<str>>(store, entries),
        _ => None,
    }
}

/// Bytes per entry beyond key and value, at 1 M and 10 M.
#[allow(clippy::cast_precision_loss)]
pub fn memory(options: &Options, report: &mut Report) {
    for entries in options.loads(&[1_000_000, 10_000_000]) {
        for keys in kinds(options) {
            let table = format!("keyed memory, {} {keys} keys", count(entries));
            let rounds = options.rounds_at(entries);
            report.head(
                &table,
                &format!("{rounds} round(s), a process each; bytes per entry beyond key (with its heap) and value (8, of queues none)"),
            );
            let mut answers: Vec<Vec<Json>> = vec![Vec::new(); WEIGHED.len()];
            for _ in 0..rounds {
                for (store, answers) in WEIGHED.iter().zip(&mut answers) {
                    options.say(&format!("{store}, {entries}"));
                    answers.push(ask("keyed", &format!("{store}/{keys}"), entries));
                }
            }
            for (store, answers) in WEIGHED.iter().zip(&answers) {
                let name = format!("{} ({store})", answers[0]["name"].as_str().unwrap_or(store));
                let beyond = |field: &str| {
                    Spread::of(answers.iter().map(|answer| {
                        number(answer, field) / entries as f64 - number(answer, "ours")
                    }))
                };
                let load = json!({ "allocated": beyond("allocated").median.round() });
                let bytes = beyond("grown");
                report.figure(&table, &name, "bytes", bytes, &load);
                if matches!(*store, "map" | "queue") {
                    let limit = Target::AtMost(64.0);
                    report.check(&table, &name, "bytes", bytes, limit);
                }
            }
        }
    }
}
