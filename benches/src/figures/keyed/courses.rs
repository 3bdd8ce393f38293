//! Nanoseconds of each operation on maps and queues, in overlapped and dependent order.

use super::super::child::{ask, number};
use super::super::{count, name, Options};
use crate::keyed::course::{self, Kind, Load, Op, Order};
use crate::keyed::{Key, Store, Value};
use crate::lab::LEAST;
use crate::report::{Report, Spread, Table, Target};
use serde_json::{json, Map, Value as Json};

pub fn measure<K: Key, V: Value, S: Store<K, V>>(
    kind: Kind,
    entries: usize,
    threads: usize,
) -> Json {
    let course = course::run::<K, V, S>(&Load::new(entries, threads, kind));
    let cell =
        |op: Op, order: Order| (order.name().to_string(), json!({ "cpu": course[op.cell(order)] }));
    let orders = |op: Op| Map::from_iter(Order::ALL.map(|order| cell(op, order)));
    let cells = kind.ops().iter().map(|&op| (op.name().to_string(), Json::Object(orders(op))));
    json!({ "name": S::NAME, "does": S::DOES, "cells": Map::from_iter(cells) })
}

/// Stores of each kind: this crate's first, the harness last.
const fn stores(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Maps => &["map", "dashmap", "papaya", "sharded-map", "moka", "nothing-map"],
        Kind::Queues => &["queue", "queue-by-handle", "zookeeper", "nothing"],
    }
}

const K10: usize = 10_000;
const M: usize = 1_000_000;

/// The targets, on one thread, of `u64` keys, in each order: our store, the number of entries, the
/// operation, the peer, and the most times of the peer's time.
const ASKED: [(&str, usize, Op, &str, f64); 16] = [
    ("map", K10, Op::Get, "papaya", 1.2),
    ("map", K10, Op::Touch, "sharded-map", 0.2),
    ("map", K10, Op::Insert, "sharded-map", 0.75),
    ("map", K10, Op::Replace, "sharded-map", 0.6),
    ("map", K10, Op::Remove, "sharded-map", 0.75),
    ("map", M, Op::Get, "papaya", 1.1),
    ("map", M, Op::Touch, "sharded-map", 0.2),
    ("map", M, Op::Insert, "sharded-map", 0.6),
    ("map", M, Op::Replace, "sharded-map", 0.45),
    ("map", M, Op::Remove, "sharded-map", 0.45),
    ("map", M, Op::Grow, "moka", 0.33),
    ("queue", K10, Op::Touch, "zookeeper", 0.25),
    ("queue-by-handle", K10, Op::Touch, "zookeeper", 0.13),
    ("queue", K10, Op::Unchanged, "zookeeper", 1.2),
    ("queue", K10, Op::Insert, "zookeeper", 0.6),
    ("queue", K10, Op::Remove, "zookeeper", 0.8),
];

fn is_ours(store: &str) -> bool {
    matches!(store, "map" | "queue" | "queue-by-handle")
}

fn is_alone(store: &str) -> bool {
    store.starts_with("nothing")
}

/// A store in a table.
struct Subject {
    store: &'static str,
    rounds: Vec<Json>,
}

impl Subject {
    fn name(&self) -> &str {
        name(&self.rounds)
    }
}

/// Maps, or queues.
pub fn courses(options: &Options, report: &mut Report, kind: Kind) {
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
    let asked: Vec<&str> =
        stores(kind).iter().copied().filter(|store| options.asks_for(store)).collect();
    let course = |store: &&str| ask("course", &format!("{store}/{keys}/{threads}"), entries);
    let answers = options.in_turn(rounds, &asked, |store| format!("{title}: {store}"), course);
    let mut subjects = Vec::new();
    let mut table = report.table(
        title,
        &format!(
            "{rounds} rounds, a process each; ns an operation, less the harness's; processor time of \
             the process, all threads; {} ms at least a cell and thread; x: ours over theirs",
            LEAST.as_millis()
        ),
    );
    for (store, rounds) in asked.into_iter().zip(answers) {
        table.note(&format!("{}: {}", name(&rounds), rounds[0]["does"]));
        subjects.push(Subject { store, rounds });
    }
    for &op in kind.ops() {
        let cells = Cells { subjects: &subjects, op };
        cells.print(&mut table);
        if (threads, keys) == (1, "u64") {
            cells.check(&mut table, entries);
        }
    }
}

struct Cells<'a> {
    subjects: &'a [Subject],
    op: Op,
}

impl Cells<'_> {
    /// Nanoseconds of a cell in each round, less those of the harness in the same round. None where
    /// the cell was not measured.
    fn net(&self, subject: &Subject, order: Order) -> Option<Vec<f64>> {
        let nanos = |subject: &Subject| -> Vec<f64> {
            let cell = |round: &Json| number(&round["cells"][self.op.name()][order.name()], "cpu");
            subject.rounds.iter().map(cell).collect()
        };
        let mut net = nanos(subject);
        let alone = self.subjects.iter().find(|other| is_alone(other.store));
        if let Some(alone) = alone.filter(|_| !is_alone(subject.store)) {
            net.iter_mut().zip(nanos(alone)).for_each(|(net, own)| *net -= own);
        }
        net.iter().all(|nanos| nanos.is_finite()).then_some(net)
    }

    fn ratio(&self, ours: &Subject, theirs: &Subject, order: Order) -> Option<Spread> {
        Some(Spread::ratio(&self.net(ours, order)?, &self.net(theirs, order)?))
    }

    fn ours(&self) -> impl Iterator<Item = &Subject> {
        self.subjects.iter().filter(|one| is_ours(one.store))
    }

    fn print(&self, table: &mut Table<'_>) {
        table.columns(self.op.name(), &Order::ALL.map(Order::name));
        for subject in self.subjects {
            let columns = Order::ALL.map(|order| {
                let nanos = Spread::of(self.net(subject, order)?);
                let is_theirs = !is_alone(subject.store) && !is_ours(subject.store);
                let times = |ours: &Subject| self.ratio(ours, subject, order);
                let times = self.ours().filter(|_| is_theirs).filter_map(times).collect();
                Some((nanos, times))
            });
            table.row(subject.name(), &columns);
        }
    }

    fn check(&self, table: &mut Table<'_>, entries: usize) {
        for (store, size, op, peer, limit) in ASKED {
            if (size, op) != (entries, self.op) {
                continue;
            }
            let theirs = self.subjects.iter().find(|subject| subject.store == peer);
            let ours = self.ours().find(|subject| subject.store == store);
            let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
            for order in Order::ALL {
                if let Some(times) = self.ratio(ours, theirs, order) {
                    let name = format!("{} over {}, {}", ours.name(), theirs.name(), order.name());
                    table.check(&name, "times", times, Target::AtMost(limit));
                }
            }
        }
    }
}
