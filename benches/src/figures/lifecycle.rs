//! Lifecycles (init and three acks, full expiry on) beside maps without any expiry, the floor, and
//! Storm's acker.

use super::{count, Options};
use crate::lab::{self, Lab, Load, Round, LEAST};
use crate::peers::{Chosen, DashEntry, DashRemoveIf, Floor, Issued, Nothing, Peer, Touch};
use crate::report::{Report, Spread, Table, Target};
use crate::window::Order;
use serde_json::json;

struct Contestant {
    name: String,
    batch: bool,
    run: Box<dyn Fn(&Load) -> Round>,
    rounds: Vec<Round>,
}

fn contestant<P: Peer>(batch: bool) -> Contestant {
    let times = if batch { ", by 16" } else { "" };
    let lifecycles = move |lab: &mut Lab<P>, trees| lab.run(trees, batch);
    Contestant {
        name: format!("{}{times}", P::NAME),
        batch,
        run: Box::new(move |load| lab::round(load, lifecycles)),
        rounds: Vec::new(),
    }
}

/// Storm's own acker on this kind of machine, one thread: million trees per second, and the
/// multiple that we ask for.
fn storm(in_flight: usize, order: Order) -> Option<(f64, f64)> {
    match (in_flight, order) {
        (100_000, Order::Fifo) => Some((3.0, 3.5)),
        (1_000_000, Order::Fifo) => Some((0.92, 8.0)),
        (100_000, Order::Random) => Some((0.94, 8.0)),
        (1_000_000, Order::Random) => Some((0.55, 8.0)),
        _ => None,
    }
}

// Places in the list of contestants.
const ISSUED: usize = 0;
const ISSUED_BATCH: usize = 1;
const CHOSEN: usize = 2;
const CHOSEN_BATCH: usize = 3;
const DASH: std::ops::Range<usize> = 4..7;
const FLOOR: usize = 7;

fn contestants() -> Vec<Contestant> {
    vec![
        contestant::<Issued>(false),
        contestant::<Issued>(true),
        contestant::<Chosen>(false),
        contestant::<Chosen>(true),
        contestant::<DashRemoveIf>(false),
        contestant::<DashRemoveIf>(true),
        contestant::<DashEntry>(false),
        contestant::<Floor>(false),
        contestant::<Nothing>(false),
        contestant::<Nothing>(true),
    ]
}

impl Contestant {
    fn nanos(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.0).collect()
    }

    fn median(&self) -> f64 {
        Spread::of(self.nanos()).median
    }

    /// How many times our time theirs is, round by round.
    fn times(&self, theirs: &Contestant) -> Spread {
        Spread::ratio(&theirs.nanos(), &self.nanos())
    }
}

/// Runs the figure: 1 K to 1 M on every number of threads asked for, 10 M on one.
pub fn run(options: &Options, report: &mut Report) {
    for in_flight in options.sizes() {
        for &threads in &options.threads {
            if threads > 1 && in_flight >= 10_000_000 && options.in_flight.is_none() {
                continue;
            }
            for &order in &options.order {
                cell(options, report, &Load::standard(in_flight, threads, order), in_flight);
            }
        }
    }
}

fn cell(options: &Options, report: &mut Report, load: &Load, in_flight: usize) {
    let rounds = options.rounds_at(in_flight);
    let (order, threads) = (load.order, load.threads);
    let mut table = report.table(
        format!("lifecycle, {} in flight, {order:?}, {threads} thread(s)", count(in_flight)),
        &format!(
            "{} in flight; {rounds} rounds of {} ms at least, after {} trees untimed; ns per tree and \
             thread (4 operations); the harness's own is a row",
            load.in_flight,
            LEAST.as_millis(),
            load.warm
        ),
    );
    let mut all = contestants();
    all.retain(|contestant| options.asks_for(&contestant.name));
    let done = options.in_turn(rounds, &all, |one| one.name.clone(), |one| (one.run)(load));
    for (contestant, rounds) in all.iter_mut().zip(done) {
        contestant.rounds = rounds;
        let nanos = Spread::of(contestant.nanos());
        let mut extra = json!({
            "in_flight": load.in_flight,
            "ns_per_op": (nanos.median / 4.0 * 10.0).round() / 10.0,
            "million_trees_per_s": (1e5 * threads as f64 / nanos.median).round() / 100.0,
        });
        if let Some(slots) = contestant.rounds.last().and_then(|round| round.1) {
            extra["slots"] = json!(slots);
            extra["full"] = json!((load.in_flight as f64 / slots as f64 * 100.0).round() / 100.0);
        }
        table.loaded(&contestant.name, "ns/tree", nanos, &extra);
    }
    if options.only.is_none() {
        judge(&mut table, &all, load);
    }
}

fn judge(table: &mut Table<'_>, all: &[Contestant], load: &Load) {
    let (in_flight, threads) = (load.in_flight, load.threads);
    // This compares with the best of dashmap's forms, by their medians. Single
    // operations are beside single ones, batches beside whatever is fastest.
    let best = |batches: bool| {
        let dash = all[DASH].iter().filter(|dash| batches || !dash.batch);
        dash.min_by(|a, b| a.median().total_cmp(&b.median())).expect("several")
    };
    let million = in_flight == 1_000_000;
    let issued = match (in_flight, threads) {
        (1_000_000, 1) => Some(2.5),
        (1_000_000, _) => Some(3.0),
        (100_000, _) => Some(1.3),
        _ => None,
    };
    for (name, ours, least) in [
        ("issued", &all[ISSUED], issued),
        ("issued by 16", &all[ISSUED_BATCH], None),
        ("chosen by 16", &all[CHOSEN_BATCH], million.then_some(1.5)),
    ] {
        let dash = best(ours.batch);
        let name = format!("{name} beside {}", dash.name);
        table.judge(&name, "times", ours.times(dash), least.map(Target::AtLeast));
    }
    let share = |ours: usize, theirs| all[ours].times(theirs).map(|times| 1.0 / times);
    let most = Target::AtMost(1.5);
    table.check("chosen: share of dashmap's time", "times", share(CHOSEN, best(false)), most);
    let most = million.then_some(Target::AtMost(3.0));
    let above = share(ISSUED, &all[FLOOR]);
    table.judge("issued: share of the floor's time", "times", above, most);
    if let (Some((storm, multiple)), 1) = (storm(in_flight, load.order), threads) {
        let (issued, chosen) = match load.order {
            Order::Fifo => (&all[ISSUED], &all[CHOSEN]),
            Order::Random => (&all[ISSUED_BATCH], &all[CHOSEN_BATCH]),
        };
        for (kind, ours) in [("issued", issued), ("chosen", chosen)] {
            let name = format!("{kind} beside Storm's {storm} M trees/s");
            let times = Spread::of(ours.nanos()).map(|nanos| 1000.0 / nanos / storm);
            table.check(&name, "times", times, Target::AtLeast(multiple));
        }
    }
}

/// Touches: `reset_timeout` on trees in flight, beside a store in dashmap's value and the harness
/// alone.
pub fn touch(options: &Options, report: &mut Report) {
    fn entry<P: Touch>() -> (&'static str, fn(&Load) -> f64) {
        (P::NAME, |load| lab::round::<P>(load, Lab::touch).0)
    }
    let all = [entry::<Issued>(), entry::<Chosen>(), entry::<DashRemoveIf>(), entry::<Nothing>()];
    for in_flight in options.loads(&[1_000_000]) {
        for order in [Order::Fifo, Order::Random] {
            let load = Load::standard(in_flight, 1, order);
            let rounds = options.rounds_at(in_flight);
            let table = report.table(
                format!("touch, {} in flight, {order:?}", count(in_flight)),
                &format!("{} in flight, {rounds} rounds of {} touches", load.in_flight, load.trees),
            );
            let nanos = options.in_turn(rounds, &all, |one| one.0.to_string(), |one| one.1(&load));
            for ((name, _), nanos) in all.iter().zip(nanos) {
                let load = json!({ "in_flight": load.in_flight });
                table.loaded(name, "ns/touch", Spread::of(nanos), &load);
            }
        }
    }
}
