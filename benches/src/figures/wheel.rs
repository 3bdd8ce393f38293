//! Timers: each operation, and all of them together, beside crates and collections.

use super::{count, Options};
use crate::report::{Report, Spread, Table, Target};
use crate::timers::{BTree, CompactingHeap, DelayQueue, Heap, NexusWheel, Nothing, Timers, Wheel};
use crate::wheel::{self, Course, Due, Lives, Load, Op, HOUR};

struct Contestant {
    name: &'static str,
    kind: Kind,
    asked: bool,
    operations: fn(&Load) -> Course,
    lives: fn(&Lives) -> f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    Crate,
    /// What one builds from the standard library.
    Collection,
    Nobody,
}

fn contestant<T: Timers>(kind: Kind) -> Contestant {
    Contestant {
        name: T::NAME,
        kind,
        asked: T::ASKED,
        operations: wheel::operations::<T>,
        lives: wheel::lives::<T>,
    }
}

fn contestants(options: &Options) -> Vec<Contestant> {
    let mut all = vec![
        contestant::<Wheel>(Kind::Ours),
        contestant::<DelayQueue>(Kind::Crate),
        contestant::<NexusWheel>(Kind::Crate),
        contestant::<Heap>(Kind::Collection),
        contestant::<CompactingHeap>(Kind::Collection),
        contestant::<BTree>(Kind::Collection),
        contestant::<Nothing>(Kind::Nobody),
    ];
    all.retain(|contestant| options.asks_for(contestant.name));
    all
}

/// What every contestant took in one part of a table, a number for each round.
struct Part<'a> {
    unit: &'static str,
    all: &'a [Contestant],
    rounds: Vec<Vec<f64>>,
}

impl Part<'_> {
    fn of(&self, at: usize) -> Spread {
        Spread::of(self.rounds[at].iter().copied())
    }

    fn ours(&self) -> Option<usize> {
        self.all.iter().position(|one| one.kind == Kind::Ours)
    }

    fn print(&self, table: &mut Table<'_>) {
        for (at, one) in self.all.iter().enumerate() {
            table.figure(one.name, self.unit, self.of(at));
        }
    }

    /// Our speed beside that of each contestant, round by round. The check is that it is the
    /// greatest if `fastest(theirs)`, and so many times the best crate's.
    fn judge(
        &self,
        table: &mut Table<'_>,
        fastest: impl Fn(&Contestant) -> bool,
        crates: Option<f64>,
    ) {
        let Some(ours) = self.ours() else { return };
        let times = |theirs: usize| Spread::ratio(&self.rounds[theirs], &self.rounds[ours]);
        for (at, one) in self.all.iter().enumerate() {
            if matches!(one.kind, Kind::Crate | Kind::Collection) {
                let least = fastest(one).then_some(Target::AtLeast(1.0));
                table.judge(&format!("beside {}", one.name), "times", times(at), least);
            }
        }
        let best = (0..self.all.len())
            .filter(|&at| self.all[at].kind == Kind::Crate)
            .min_by(|&a, &b| self.of(a).median.total_cmp(&self.of(b).median));
        if let (Some(best), Some(least)) = (best, crates) {
            let name = format!("beside the best crate, {}", self.all[best].name);
            table.check(&name, "times", times(best), Target::AtLeast(least));
        }
    }
}

pub fn run(options: &Options, report: &mut Report) {
    let all = contestants(options);
    for entries in options.loads(&[1000, 1_000_000, 10_000_000]) {
        for due in [Due::Uniform, Due::Random] {
            operations(options, report, &all, &Load::new(entries, due));
        }
        lives(options, report, &all, &Lives::new(entries));
    }
}

fn operations(options: &Options, report: &mut Report, all: &[Contestant], load: &Load) {
    let Load { entries, due, .. } = *load;
    let rounds = options.rounds_at(entries);
    let mut table = report.table(
        format!("timers, {}, {due:?}", count(entries)),
        &format!(
            "{entries} timers over an hour, {rounds} rounds of {} courses; ns per operation, per timer that fires",
            load.times()
        ),
    );
    let run = |one: &Contestant| (one.operations)(load);
    let courses = options.in_turn(rounds, all, |one| one.name.to_string(), run);
    for (op, name) in Op::ALL {
        let of = |courses: &Vec<Course>| courses.iter().map(|course| course[op as usize]).collect();
        let part = Part { unit: "ns", all, rounds: courses.iter().map(of).collect() };
        table.part(name);
        part.print(&mut table);
        // The allocator decides what growing costs, and a clear-away is the work of the structure
        // that left it. Where most steps are empty, the steps themselves are timed: a contestant
        // that is not called in them does not compare.
        let judged = due == Due::Random && !matches!(op, Op::Grow | Op::Clear);
        let mostly_empty = op == Op::FireMillis && (entries as u64) < HOUR / 4;
        let fastest = |one: &Contestant| judged && (one.asked || !mostly_empty);
        let twice = entries == 1_000_000 && matches!(op, Op::Schedule | Op::Cancel);
        part.judge(&mut table, fastest, twice.then_some(2.0));
    }
}

fn lives(options: &Options, report: &mut Report, all: &[Contestant], load: &Lives) {
    let entries = load.window;
    let rounds = options.rounds_at(entries);
    let mut table = report.table(
        format!("timers, {}, lives", count(entries)),
        &format!(
            "{entries} timers in the window, {rounds} rounds of {} lives of ten minutes, 1 s steps; 99 % are cancelled, 1 % fire; ns per life",
            load.lives
        ),
    );
    let rounds = options.in_turn(rounds, all, |one| one.name.to_string(), |one| (one.lives)(load));
    let part = Part { unit: "ns/life", all, rounds };
    part.print(&mut table);
    part.judge(&mut table, |_| true, None);
}
