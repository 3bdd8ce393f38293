//! Scenario `hostile`: an attacker chooses the worst keys, ids and deadlines, beside a friendly
//! user.
//!
//! Each attack and its friendly case run in turns in the same process, three times each; figures
//! are medians. Time is simulated and nothing runs beside them, so the figures compare the work
//! alone.

mod floods;
mod keys;

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::options::{only, Hostile};
use crate::report::{Report, Table};
use crate::usage::{resident, thread_time};
use serde::Serialize;
use std::time::{Duration, Instant};

/// How often each case is run.
const RUNS: usize = 3;
/// By how much a hostile key may cost more than a random one, and from how many keys on that is
/// judged. With fewer keys the machine decides the time.
const MOST: f64 = 1.5;
const JUDGED: u64 = 100_000;

/// What a case has measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Operations, and how long all of them took, by the thread's own time.
    operations: u64,
    took: Duration,
    /// Part of `took` in which the engine's driver ran.
    driven: Duration,
    /// Resident bytes that the case added, and slots that were held at its end.
    resident: u64,
    slots: u64,
}

impl Figures {
    /// Measures `f`, which adds the driver's time to its argument, and returns operations and
    /// slots.
    pub fn of(f: impl FnOnce(&mut Duration) -> (u64, u64)) -> Self {
        let (before, mut driven, began) = (resident(), Duration::ZERO, thread_time());
        let (operations, slots) = f(&mut driven);
        Figures {
            operations,
            took: thread_time().saturating_sub(began),
            driven,
            resident: resident().saturating_sub(before),
            slots,
        }
    }

    fn nanos(&self) -> f64 {
        self.took.as_nanos() as f64 / self.operations.max(1) as f64
    }

    fn share(&self) -> f64 {
        self.driven.as_secs_f64() / self.took.as_secs_f64().max(1e-9)
    }
}

/// Times what the driver does.
pub fn drive<T>(driven: &mut Duration, f: impl FnOnce() -> T) -> T {
    let began = thread_time();
    let done = f();
    *driven += thread_time().saturating_sub(began);
    done
}

/// What an attack has to work with.
pub struct Field<'a> {
    pub options: &'a Hostile,
    /// The checks that receive violations.
    pub checks: &'a Checks,
    pub attack: Check,
    /// Which run of it.
    pub run: u64,
}

impl Field<'_> {
    /// Reports a violation unless `holds`.
    pub fn expect(&self, holds: bool, text: impl FnOnce() -> String) {
        self.checks.expect(self.attack, holds, text);
    }

    pub fn size(&self) -> u64 {
        self.options.size.into()
    }

    pub fn seed(&self) -> u64 {
        self.options.seed.wrapping_mul(1 << 8).wrapping_add(self.run)
    }
}

/// An attack.
#[derive(Clone, Copy)]
struct Attack {
    name: Check,
    /// It, or its friendly case.
    case: fn(&Field<'_>, bool) -> Figures,
    /// Whether it may cost [`MOST`] times as much as the friendly case at most. This is so where
    /// both do the same work.
    alike: bool,
    control: Option<fn(&Field<'_>) -> Figures>,
}

const fn attack(name: Check, case: fn(&Field<'_>, bool) -> Figures, alike: bool) -> Attack {
    Attack { name, case, alike, control: None }
}

const ATTACKS: [Attack; 10] = [
    attack("weak_hasher", keys::weak_hasher, true),
    attack("integer_keys", keys::integer_keys, true),
    attack("aimed_keys", keys::aimed_keys, true),
    Attack { control: Some(keys::roots_hit), ..attack("aimed_roots", keys::aimed_roots, true) },
    attack("unknown_issued", floods::unknown_issued, false),
    attack("unknown_chosen", floods::unknown_chosen, false),
    attack("never_acked", floods::never_acked, false),
    attack("one_tick", floods::one_tick, false),
    attack("cascading", floods::cascading, false),
    attack("guessed_roots", floods::guessed_roots, false),
];

/// An attack's medians, for the report.
#[derive(Debug, Serialize)]
struct Row {
    attack: Check,
    ns_hostile: f64,
    ns_friendly: f64,
    ratio: f64,
    /// Whether the ratio is within its limit, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<bool>,
    resident_mib_hostile: f64,
    resident_mib_friendly: f64,
    slots_hostile: u64,
    slots_friendly: u64,
    driver_share_hostile: f64,
    driver_share_friendly: f64,
    /// The ratio of the control: how much the attack costs where it hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_control: Option<f64>,
}

#[derive(Serialize)]
struct Parameters<'a> {
    #[serde(flatten)]
    options: &'a Hostile,
    attacks: &'a [Row],
}

pub fn run(options: &Hostile) -> Result<Report, Error> {
    let attacks = only(&ATTACKS, |attack| attack.name, &options.only, "attack")?;
    let names: Vec<Check> = attacks.iter().map(|attack| attack.name).collect();
    let checks = Checks::new(&names);
    let began = Instant::now();
    let (mut rows, mut operations) = (Vec::new(), 0);
    for attack in &attacks {
        if interrupt::asked() {
            break;
        }
        rows.push(compare(attack, options, &checks, &mut operations));
    }
    let operations = ("operations", operations);
    let parameters = Parameters { options, attacks: &rows };
    let mut report =
        Report::new("hostile", operations, began.elapsed(), options.seed, &checks, &parameters);
    report.figures.extend(rows.iter().map(|row| (row.attack, row.ratio)));
    report.tables.push(table(&rows));
    report.counts.insert("attacks", rows.len() as u64);
    Ok(report)
}

/// A table of an operation's cost, the memory it took, and the driver's share of the time: each
/// hostile, and friendly.
fn table(rows: &[Row]) -> Table {
    let head = ["attack", "ns", "friendly", "times", "MiB", "friendly", "driver %", "friendly"];
    let row = |row: &Row| {
        vec![
            row.attack.replace('_', " "),
            format!("{:.0}", row.ns_hostile),
            format!("{:.0}", row.ns_friendly),
            format!("{:.2}", row.ratio),
            format!("{:.1}", row.resident_mib_hostile),
            format!("{:.1}", row.resident_mib_friendly),
            format!("{:.0}", row.driver_share_hostile * 100.0),
            format!("{:.0}", row.driver_share_friendly * 100.0),
        ]
    };
    Table {
        title: "Attacks, and the same work where nobody means harm".into(),
        head: head.map(String::from).into(),
        rows: rows.iter().map(row).collect(),
    }
}

fn compare(attack: &Attack, options: &Hostile, checks: &Checks, operations: &mut u64) -> Row {
    let (mut hostile, mut friendly, mut control) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let field = Field { options, checks, attack: attack.name, run: run as u64 };
        // The case that runs first finds the caches cold: each case is first in turn.
        for first in [run % 2 == 0, run % 2 != 0] {
            let figures = (attack.case)(&field, first);
            *operations += figures.operations;
            if first { &mut hostile } else { &mut friendly }.push(figures);
        }
        control.extend(attack.control.map(|case| case(&field)));
    }
    let (worse, better) = (medians(&hostile), medians(&friendly));
    let ratio = worse.nanos / better.nanos;
    let ratio_control = (!control.is_empty()).then(|| medians(&control).nanos / better.nanos);
    let row = Row {
        attack: attack.name,
        ns_hostile: worse.nanos,
        ns_friendly: better.nanos,
        ratio,
        within: (attack.alike && u64::from(options.size) >= JUDGED).then_some(ratio <= MOST),
        resident_mib_hostile: worse.resident,
        resident_mib_friendly: better.resident,
        slots_hostile: worse.slots as u64,
        slots_friendly: better.slots as u64,
        driver_share_hostile: worse.share,
        driver_share_friendly: better.share,
        ratio_control,
    };
    checks.expect(attack.name, row.within != Some(false), || {
        format!("{ratio:.2} times what it costs where friendly; at most {MOST} are allowed")
    });
    eprintln!(
        "{:15} {:>6.0} ns hostile {:>6.0} friendly {ratio:>5.2} x{}{}",
        row.attack,
        row.ns_hostile,
        row.ns_friendly,
        if row.within == Some(false) { " !" } else { "  " },
        ratio_control.map_or(String::new(), |ratio| format!("  ({ratio:.1} x with the secret)")),
    );
    row
}

struct Medians {
    nanos: f64,
    resident: f64,
    slots: f64,
    share: f64,
}

fn medians(runs: &[Figures]) -> Medians {
    let median = |of: &dyn Fn(&Figures) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Medians {
        nanos: median(&Figures::nanos),
        resident: median(&|figures| figures.resident as f64 / f64::from(1 << 20)),
        slots: median(&|figures| figures.slots as f64),
        share: median(&Figures::share),
    }
}
