//! Timers: each operation, everything together, and time in which nothing happens, beside crates and collections.

use super::{count, Options};
use crate::report::{Report, Spread, Target};
use crate::timers::{BTree, CompactingHeap, DelayQueue, HashWheel, Heap, Nothing, Timers, Wheel};
use crate::wheel::{self, Course, Due, Empty, Lives, Load, Op, HOUR};
use serde_json::Value;

/// Somebody in a table.
struct Contestant {
    name: &'static str,
    kind: Kind,
    asked: bool,
    operations: fn(&Load, &[Op]) -> Course,
    lives: fn(&Lives) -> f64,
    empty: fn(bool) -> Empty,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Who is to be judged.
    Ours,
    /// A published crate.
    Crate,
    /// What one builds from the standard library.
    Collection,
    /// The harness alone.
    Nobody,
}

fn contestant<T: Timers>(kind: Kind) -> Contestant {
    Contestant {
        name: T::NAME,
        kind,
        asked: T::ASKED,
        operations: wheel::operations::<T>,
        lives: wheel::lives::<T>,
        empty: wheel::empty::<T>,
    }
}

fn contestants(options: &Options) -> Vec<Contestant> {
    let mut all = vec![
        contestant::<Wheel>(Kind::Ours),
        contestant::<DelayQueue>(Kind::Crate),
        contestant::<HashWheel>(Kind::Crate),
        contestant::<Heap>(Kind::Collection),
        contestant::<CompactingHeap>(Kind::Collection),
        contestant::<BTree>(Kind::Collection),
        contestant::<Nothing>(Kind::Nobody),
    ];
    if let Some(only) = &options.only {
        all.retain(|contestant| contestant.name.contains(only));
    }
    all
}

/// Figures that others have published, for 1 M timers at random times of an hour: operation, nanoseconds, whose.
const REFERENCES: [(Op, f64, &str); 6] = [
    // On machines of their own.
    (Op::Schedule, 8.0, "Caffeine"),
    (Op::Reschedule, 99.0, "Caffeine"),
    (Op::FireSeconds, 82.0, "Caffeine"),
    // Measured on a machine like this one.
    (Op::Schedule, 80.0, "DelayQueue, quiet machine"),
    (Op::Reschedule, 98.0, "DelayQueue, quiet machine"),
    (Op::Cancel, 42.0, "DelayQueue, quiet machine"),
];

/// What everybody took in one table, a number for each round.
struct Table<'a> {
    name: String,
    unit: &'static str,
    all: &'a [Contestant],
    rounds: Vec<Vec<f64>>,
}

impl Table<'_> {
    fn of(&self, at: usize) -> Spread {
        Spread::of(self.rounds[at].iter().copied())
    }

    fn ours(&self) -> Option<usize> {
        self.all.iter().position(|one| one.kind == Kind::Ours)
    }

    /// How many times our time theirs is, round by round.
    fn times(&self, ours: usize, theirs: usize) -> Spread {
        let rounds = self.rounds[ours].iter().zip(&self.rounds[theirs]);
        Spread::of(rounds.map(|(ours, theirs)| theirs / ours))
    }

    fn print(&self, report: &mut Report) {
        for (at, one) in self.all.iter().enumerate() {
            report.figure(&self.name, one.name, self.unit, self.of(at), &Value::Null);
        }
    }

    /// Our speed beside everybody's; checked to be the greatest if `fastest(theirs)`, and so many times the best crate's.
    fn judge(
        &self,
        report: &mut Report,
        fastest: impl Fn(&Contestant) -> bool,
        crates: Option<f64>,
    ) {
        let Some(ours) = self.ours() else { return };
        for (at, one) in self.all.iter().enumerate() {
            if matches!(one.kind, Kind::Crate | Kind::Collection) {
                let name = format!("beside {}", one.name);
                let times = self.times(ours, at);
                if fastest(one) {
                    let least = Target::AtLeast(1.0);
                    report.check(&self.name, &name, "times", times, least);
                } else {
                    report.figure(&self.name, &name, "times", times, &Value::Null);
                }
            }
        }
        let best = (0..self.all.len())
            .filter(|&at| self.all[at].kind == Kind::Crate)
            .min_by(|&a, &b| self.of(a).median.total_cmp(&self.of(b).median));
        if let (Some(best), Some(least)) = (best, crates) {
            let name = format!("beside the best crate, {}", self.all[best].name);
            let times = self.times(ours, best);
            report.check(&self.name, &name, "times", times, Target::AtLeast(least));
        }
    }

    /// Checks our time against a number.
    fn at_most(&self, report: &mut Report, name: &str, limit: f64) {
        if let Some(ours) = self.ours() {
            let target = Target::AtMost(limit);
            report.check(&self.name, name, self.unit, self.of(ours), target);
        }
    }
}

/// Runs the figure at 1 K, 1 M and 10 M.
pub fn run(options: &Options, report: &mut Report) {
    let all = contestants(options);
    for entries in options.loads(&[1000, 1_000_000, 10_000_000]) {
        for due in [Due::Uniform, Due::Random] {
            operations(options, report, &all, entries, due);
        }
        lives(options, report, &all, entries);
    }
    empty(options, report, &all);
}

fn operations(
    options: &Options,
    report: &mut Report,
    all: &[Contestant],
    entries: usize,
    due: Due,
) {
    let load = Load::new(entries, due);
    let rounds = options.rounds_at(entries);
    let title = format!("timers, {}, {due:?}", count(entries));
    report.head(
        &title,
        &format!(
            "{entries} timers over an hour, {rounds} rounds of {} courses; ns per operation, per timer that fires",
            load.times()
        ),
    );
    let mut courses: Vec<Vec<Course>> = vec![Vec::new(); all.len()];
    for round in 0..rounds {
        for (one, courses) in all.iter().zip(&mut courses) {
            options.say(&format!("round {} of {rounds}: {}", round + 1, one.name));
            courses.push((one.operations)(&load, &Op::ALL));
        }
    }
    let rounds = |ops: &[Op]| -> Vec<Vec<f64>> {
        let sum = |course: &Course| ops.iter().map(|&op| course.nanos(op)).sum();
        let of = |courses: &Vec<Course>| courses.iter().map(sum).collect();
        courses.iter().map(of).collect()
    };
    for op in Op::ALL {
        let table = Table {
            name: format!("{title}: {}", op.name()),
            unit: "ns",
            all,
            rounds: rounds(&[op]),
        };
        if options.is_text() {
            println!("   {}", op.name());
        }
        table.print(report);
        // Growing is the allocator's affair, and what is cleared away belongs to who has left it. And where most steps are empty,
        // it is steps that are timed: nothing to compare with who is not asked in them.
        let judged = due == Due::Random && !matches!(op, Op::Grow | Op::Clear);
        let mostly_empty = op == Op::FireMillis && (entries as u64) < HOUR / 4;
        let fastest = |one: &Contestant| judged && (one.asked || !mostly_empty);
        let twice = entries == 1_000_000 && matches!(op, Op::Schedule | Op::Cancel);
        table.judge(report, fastest, twice.then_some(2.0));
        for (_, nanos, whose) in REFERENCES.iter().filter(|reference| reference.0 == op) {
            if entries == 1_000_000 && due == Due::Random {
                table.at_most(report, &format!("beside {whose}'s {nanos}"), *nanos);
            }
        }
    }
    // One alone says little of who is lazy, or of who sorts when scheduling.
    let sums: [(&str, &[Op]); 2] = [
        (
            "schedule, move, cancel and clear away",
            &[Op::Schedule, Op::Reschedule, Op::Cancel, Op::Clear],
        ),
        ("schedule and fire, 1 s steps", &[Op::Schedule, Op::FireSeconds]),
    ];
    for (name, ops) in sums {
        let table =
            Table { name: format!("{title}: {name}"), unit: "ns", all, rounds: rounds(ops) };
        if options.is_text() {
            println!("   {name}");
        }
        table.print(report);
        table.judge(report, |_| due == Due::Random, None);
    }
}

fn lives(options: &Options, report: &mut Report, all: &[Contestant], entries: usize) {
    let load = Lives::new(entries);
    let rounds = options.rounds_at(entries);
    let title = format!("timers, {}, lives", count(entries));
    report.head(
        &title,
        &format!(
            "{entries} timers in the window, {rounds} rounds of {} lives of ten minutes, 1 s steps; 99 % are cancelled, 1 % fire; ns per life",
            load.lives
        ),
    );
    let mut table =
        Table { name: title, unit: "ns/life", all, rounds: vec![Vec::new(); all.len()] };
    for round in 0..rounds {
        for (one, nanos) in all.iter().zip(&mut table.rounds) {
            options.say(&format!("round {} of {rounds}: {}", round + 1, one.name));
            nanos.push((one.lives)(&load));
        }
    }
    table.print(report);
    table.judge(report, |_| true, None);
}

fn empty(options: &Options, report: &mut Report, all: &[Contestant]) {
    for one_far in [false, true] {
        let what = if one_far { "one timer weeks ahead" } else { "no timer at all" };
        report.head(
            &format!("timers, empty time: {what}"),
            &format!("{} rounds; ns per call", options.rounds),
        );
        let mut rounds: Vec<Vec<Empty>> = vec![Vec::new(); all.len()];
        for _ in 0..options.rounds {
            for (one, rounds) in all.iter().zip(&mut rounds) {
                options.say(one.name);
                rounds.push((one.empty)(one_far));
            }
        }
        type Time = fn(&Empty) -> f64;
        let times: [(&str, Time); 2] =
            [("an hour in one call", |empty| empty.hour), ("a millisecond", |empty| empty.milli)];
        for (name, time) in times {
            let rounds = rounds.iter().map(|rounds| rounds.iter().map(time).collect());
            let table = Table {
                name: format!("timers, {what}: {name}"),
                unit: "ns",
                all,
                rounds: rounds.collect(),
            };
            if options.is_text() {
                println!("   {name}");
            }
            table.print(report);
            if name.contains("hour") {
                table.at_most(report, "an empty hour", 1000.0);
            }
        }
    }
}
