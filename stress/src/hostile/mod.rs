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
use crate::report::Report;
use cpu_time::ThreadTime;
use std::time::Instant;

/// How often each case is run.
const RUNS: usize = 3;
/// By how much a hostile key may cost more than a random one, and from how many keys on that is
/// judged. With fewer keys the machine decides the time.
const MOST: f64 = 1.5;
const JUDGED: u64 = 100_000;

/// What a case has measured: nanoseconds an operation, by the thread's own time.
pub struct Figure(f64);

impl Figure {
    /// Measures `f`, which returns how many operations it was.
    pub fn of(f: impl FnOnce() -> u64) -> Self {
        let began = ThreadTime::now();
        let operations = f();
        let took = began.elapsed();
        Figure(took.as_nanos() as f64 / operations.max(1) as f64)
    }
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
    case: fn(&Field<'_>, bool) -> Figure,
    /// Whether it may cost [`MOST`] times as much as the friendly case at most. This is so where
    /// both do the same work.
    alike: bool,
    control: Option<fn(&Field<'_>) -> Figure>,
}

const fn attack(name: Check, case: fn(&Field<'_>, bool) -> Figure, alike: bool) -> Attack {
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

pub fn run(options: &Hostile) -> Result<Report, Error> {
    let attacks = only(&ATTACKS, |attack| attack.name, &options.only, "attack")?;
    let names: Vec<Check> = attacks.iter().map(|attack| attack.name).collect();
    let checks = Checks::new(&names);
    let (began, mut ratios) = (Instant::now(), Vec::new());
    for attack in &attacks {
        if interrupt::asked() {
            break;
        }
        ratios.push((attack.name, compare(attack, options, &checks)));
    }
    let done = ("attacks", ratios.len() as u64);
    let mut report = Report::new("hostile", done, began.elapsed(), options.seed, &checks, options);
    report.figures.extend(ratios);
    report.counts.extend([done]);
    Ok(report)
}

/// Runs both cases. Returns how many times as much the attack costs.
fn compare(attack: &Attack, options: &Hostile, checks: &Checks) -> f64 {
    let (mut hostile, mut friendly, mut control) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let field = Field { options, checks, attack: attack.name, run: run as u64 };
        // The case that runs first finds the caches cold: each case is first in turn.
        for is_hostile in [run % 2 == 0, run % 2 != 0] {
            let Figure(nanos) = (attack.case)(&field, is_hostile);
            if is_hostile { &mut hostile } else { &mut friendly }.push(nanos);
        }
        control.extend(attack.control.map(|case| case(&field).0));
    }
    let (worse, better) = (median(hostile), median(friendly));
    let ratio = worse / better;
    let is_judged = attack.alike && u64::from(options.size) >= JUDGED;
    checks.expect(attack.name, !is_judged || ratio <= MOST, || {
        format!("{ratio:.2} times what it costs where friendly; at most {MOST} are allowed")
    });
    let hit = match control.is_empty() {
        true => String::new(),
        false => format!("  ({:.1} x with the secret)", median(control) / better),
    };
    let name = attack.name;
    eprintln!("{name:15} {worse:>6.0} ns hostile {better:>6.0} friendly {ratio:>5.2} x{hit}");
    ratio
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
