//! Nanoseconds of each operation on maps and queues, in overlapped and dependent order.

use super::super::child::{ask_of, number, own};
use super::super::{count, Options};
use super::{only, Task};
use crate::keyed::course::{self, Kind, Load, Op, Order};
use crate::keyed::{Key, Store, Value};
use crate::lab::LEAST;
use crate::report::{Report, Spread, Target};
use serde_json::{json, Map, Value as Json};
use std::path::PathBuf;

/// Measures the course of one store.
pub struct Measure {
    pub entries: usize,
    pub threads: usize,
}

impl Task for Measure {
    fn run<K: Key, V: Value, S: Store<K, V>>(&self, kind: Kind) -> Json {
        let course = course::run::<K, V, S>(&Load::new(self.entries, self.threads, kind));
        let cell = |op: Op, order| {
            let took = course[op.cell(order)];
            json!({ "cpu": took.cpu, "wall": took.wall })
        };
        let cells: Map<String, Json> = ops(kind)
            .iter()
            .map(|&op| {
                let orders = Order::ALL.map(|order| (order.name().to_string(), cell(op, order)));
                (op.name().to_string(), Json::Object(Map::from_iter(orders)))
            })
            .collect();
        json!({ "name": S::NAME, "does": S::DOES, "cells": cells })
    }
}

const fn ops(kind: Kind) -> &'static [Op] {
    match kind {
        Kind::Maps => &Op::MAPS,
        Kind::Queues => &Op::QUEUES,
    }
}

/// Stores of each kind: this crate's first, the harness last.
const fn stores(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Maps => &["map", "dashmap", "papaya", "sharded-map", "moka", "nothing-map"],
        Kind::Queues => &["queue", "queue-by-handle", "zookeeper", "sharded", "nothing"],
    }
}

/// At most so many times the time of a peer is asked of a store.
struct Asked {
    store: &'static str,
    entries: usize,
    op: Op,
    peer: &'static str,
    limit: f64,
}

const fn asked(
    store: &'static str,
    entries: usize,
    op: Op,
    peer: &'static str,
    limit: f64,
) -> Asked {
    Asked { store, entries, op, peer, limit }
}

const K10: usize = 10_000;
const M: usize = 1_000_000;

/// What is asked, on one thread, of `u64` keys, in each order.
const ASKED: [Asked; 16] = [
    asked("map", K10, Op::Get, "papaya", 1.2),
    asked("map", K10, Op::Touch, "sharded-map", 0.2),
    asked("map", K10, Op::Insert, "sharded-map", 0.75),
    asked("map", K10, Op::Replace, "sharded-map", 0.6),
    asked("map", K10, Op::Remove, "sharded-map", 0.75),
    asked("map", M, Op::Get, "papaya", 1.1),
    asked("map", M, Op::Touch, "sharded-map", 0.2),
    asked("map", M, Op::Insert, "sharded-map", 0.6),
    asked("map", M, Op::Replace, "sharded-map", 0.45),
    asked("map", M, Op::Remove, "sharded-map", 0.45),
    asked("map", M, Op::Grow, "moka", 0.33),
    asked("queue", K10, Op::Touch, "zookeeper", 0.25),
    asked("queue-by-handle", K10, Op::Touch, "zookeeper", 0.13),
    asked("queue", K10, Op::Unchanged, "zookeeper", 1.2),
    asked("queue", K10, Op::Insert, "zookeeper", 0.6),
    asked("queue", K10, Op::Remove, "zookeeper", 0.8),
];

fn is_ours(store: &str) -> bool {
    matches!(store, "map" | "queue" | "queue-by-handle")
}

fn is_alone(store: &str) -> bool {
    store.starts_with("nothing")
}

/// A store in a table, as this program or an older one has it.
struct Subject {
    store: &'static str,
    program: PathBuf,
    is_older: bool,
    rounds: Vec<Json>,
}

impl Subject {
    fn name(&self) -> String {
        let name = self.rounds[0]["name"].as_str().unwrap_or(self.store);
        if self.is_older {
            format!("{name}, older build")
        } else {
            name.to_string()
        }
    }

    /// Nanoseconds of a cell in each round; NaN where the subject does not have it.
    fn nanos(&self, what: &str, op: Op, order: Order) -> Vec<f64> {
        let cell = |round: &Json| number(&round["cells"][op.name()][order.name()], what);
        self.rounds.iter().map(cell).collect()
    }
}

/// Insert, get, touch, replace, remove, and a mix of them.
pub fn maps(options: &Options, report: &mut Report) {
    courses(options, report, Kind::Maps);
}

/// Insert, touch, remove.
pub fn queues(options: &Options, report: &mut Report) {
    courses(options, report, Kind::Queues);
}

fn courses(options: &Options, report: &mut Report, kind: Kind) {
    for entries in options.sizes() {
        for &threads in &options.threads {
            for keys in &options.keys {
                course(options, report, kind, (entries, threads, keys));
            }
        }
    }
}

fn course(
    options: &Options,
    report: &mut Report,
    kind: Kind,
    (entries, threads, keys): (usize, usize, &str),
) {
    let rounds = options.rounds_at(entries);
    let kinds = match kind {
        Kind::Maps => "maps",
        Kind::Queues => "queues",
    };
    let title = format!("{kinds}, {} {keys} keys, {threads} thread(s)", count(entries));
    let mut subjects = Vec::new();
    for store in only(options, stores(kind)) {
        let mut add = |program, is_older| {
            let rounds = Vec::new();
            subjects.push(Subject { store, program, is_older, rounds });
        };
        add(own(), false);
        if let (Some(older), true) = (&options.against, is_ours(store)) {
            add(older.clone(), true);
        }
    }
    for round in 0..rounds {
        for subject in &mut subjects {
            options.say(&format!("{title}, round {} of {rounds}: {}", round + 1, subject.store));
            let what = format!("{}/{keys}/{threads}", subject.store);
            subject.rounds.push(ask_of(&subject.program, "course", &what, entries));
        }
    }
    report.head(
        &title,
        &format!(
            "{rounds} rounds, a process each; ns an operation, less the harness's; processor time of \
             the process, all threads; {} ms at least a cell and thread; x: ours over theirs",
            LEAST.as_millis()
        ),
    );
    for subject in &subjects {
        report.note(&format!("{}: {}", subject.name(), subject.rounds[0]["does"]));
    }
    for &op in ops(kind) {
        table(report, &format!("{title}: {}", op.name()), &subjects, op);
        if (threads, keys) == (1, "u64") {
            check(report, &format!("{title}: {}", op.name()), &subjects, op, entries);
        }
    }
}

/// Nanoseconds of a cell in each round, less those of the harness in the same round. None where the
/// cell was not measured.
fn net(
    subjects: &[Subject],
    subject: &Subject,
    what: &str,
    op: Op,
    order: Order,
) -> Option<Vec<f64>> {
    let gross = subject.nanos(what, op, order);
    let alone = subjects.iter().find(|other| is_alone(other.store));
    let alone = alone.filter(|_| !is_alone(subject.store));
    let own = alone.map_or(vec![0.0; gross.len()], |alone| alone.nanos(what, op, order));
    let net: Vec<f64> = gross.iter().zip(own).map(|(gross, own)| gross - own).collect();
    net.iter().all(|nanos| nanos.is_finite()).then_some(net)
}

/// Our time over theirs, round by round.
fn ratio(
    subjects: &[Subject],
    ours: &Subject,
    theirs: &Subject,
    op: Op,
    order: Order,
) -> Option<Spread> {
    let ours = net(subjects, ours, "cpu", op, order)?;
    let theirs = net(subjects, theirs, "cpu", op, order)?;
    Some(Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs)))
}

fn table(report: &mut Report, table: &str, subjects: &[Subject], op: Op) {
    report.columns(&format!("{:<36}", op.name()), &Order::ALL.map(Order::name));
    for subject in subjects {
        let columns = Order::ALL.map(|order| {
            let nanos = Spread::of(net(subjects, subject, "cpu", op, order)?);
            let wall = Spread::of(net(subjects, subject, "wall", op, order)?).median;
            let ours = subjects.iter().filter(|ours| is_ours(ours.store) && !ours.is_older);
            let times: Vec<(String, Spread)> = ours
                .filter(|_| !is_alone(subject.store))
                .filter(|_| !is_ours(subject.store) || subject.is_older)
                .filter(|ours| !subject.is_older || ours.store == subject.store)
                .filter_map(|ours| Some((ours.name(), ratio(subjects, ours, subject, op, order)?)))
                .collect();
            Some((order.name(), nanos, wall, times))
        });
        report.row(table, &subject.name(), &columns);
    }
}

fn check(report: &mut Report, table: &str, subjects: &[Subject], op: Op, entries: usize) {
    let asked = ASKED.iter().filter(|asked| asked.op == op && asked.entries == entries);
    for asked in asked {
        let theirs = subjects.iter().find(|subject| subject.store == asked.peer);
        let ours =
            subjects.iter().find(|subject| subject.store == asked.store && !subject.is_older);
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            for order in Order::ALL {
                if let Some(times) = ratio(subjects, ours, theirs, op, order) {
                    let name = format!("{} over {}, {}", ours.name(), theirs.name(), order.name());
                    report.check(table, &name, "times", times, Target::AtMost(asked.limit));
                }
            }
        }
    }
}
