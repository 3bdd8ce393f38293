//! Scenario `faults`: injects one fault after another into each store of the engine, and checks
//! what must hold all the same.
//!
//! A fault runs on a thread of its own beside a watchdog, so that one that gets stuck is a
//! violation and not the end. The book records the entries that it begins (see `book`). A fault
//! uses the stores through one trait (`crate::subject`).

mod book;
mod channels;
mod deaths;
mod ground;
mod handlers;
mod memory;
mod time;

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::options::{only, Faults};
use crate::refusing::Refused;
use crate::report::{thousands, Report};
use crate::subject::{Kind, KINDS};
use crate::watch;
use ground::Ground;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A fault: its name, the kinds that it applies to, and what it does.
type Fault = (Check, fn(Kind) -> bool, fn(&Ground));

const FAULTS: [Fault; 9] = [
    ("reaper_blocked", |_| true, time::reaper_blocked),
    ("clock_stands_still", |_| true, time::clock_stands_still),
    ("clock_jumps", |_| true, time::clock_jumps),
    ("handlers_panic", |_| true, handlers::handlers_panic),
    ("handlers_reenter", |_| true, handlers::handlers_reenter),
    ("handlers_shut_down", |_| true, handlers::handlers_shut_down),
    ("threads_die", |_| true, deaths::threads_die),
    ("memory_refused", |_| true, memory::memory_refused),
    ("consumers_stop", channels::has_channel, channels::consumers_stop),
];

/// The check that no fault gets stuck, and no thread of this program panics.
const NOBODY_STUCK: Check = "nobody_stuck";

pub fn run(options: &Faults) -> Result<Report, Error> {
    let faults = chosen(&options.only)?;
    let names: Vec<Check> = faults.iter().map(|fault| fault.0).chain([NOBODY_STUCK]).collect();
    let checks = Arc::new(Checks::new(&names));
    let shared = Arc::new(options.clone());
    let runs: Vec<(Fault, Kind)> = faults
        .iter()
        .flat_map(|&fault| KINDS.map(|kind| (fault, kind)))
        .filter(|((_, applies, _), kind)| applies(*kind))
        .collect();
    let (began, operations) = (Instant::now(), AtomicU64::new(0));
    for (at, &(fault, kind)) in runs.iter().enumerate() {
        if interrupt::asked() {
            break;
        }
        let before = (checks.violations(), Instant::now());
        let ground = Ground::new(fault.0, kind, &shared, &checks);
        let met = ground.operations.clone();
        inject(fault, ground, &checks);
        let (took, met) = (before.1.elapsed(), met.load(Relaxed));
        operations.fetch_add(met, Relaxed);
        let verdict = match checks.violations() - before.0 {
            0 => "holds".into(),
            violations => format!("VIOLATED {violations} times"),
        };
        eprintln!(
            "{:>3} of {}  {:20} {:7} {:>8} operations in {:>6.2} s  {verdict}",
            at + 1,
            runs.len(),
            fault.0,
            format!("{kind:?}").to_lowercase(),
            thousands(met as f64),
            took.as_secs_f64(),
        );
    }
    let operations = ("operations", operations.into_inner());
    let mut report =
        Report::new("faults", operations, began.elapsed(), options.seed, &checks, options);
    let (pages, boxes) = Refused::counts();
    report.counts.extend([
        ("faults", runs.len() as u64),
        ("operations", operations.1),
        ("pages_refused", pages as u64),
        ("boxes_refused", boxes as u64),
    ]);
    Ok(report)
}

/// The faults that were asked for.
fn chosen(asked: &[String]) -> Result<Vec<Fault>, Error> {
    only(&FAULTS, |fault| fault.0, asked, "fault")
}

/// Injects a fault, and watches over it. One that gets stuck is left behind.
fn inject(fault: Fault, ground: Ground, checks: &Checks) {
    let (limit, kind) = (ground.options.limit, ground.kind);
    let met = ground.operations.clone();
    let (began, look) = (Instant::now(), limit.min(Duration::from_secs(5)));
    let gives_up = || {
        eprintln!("           {:20} {} operations", fault.0, met.load(Relaxed));
        began.elapsed() >= limit
    };
    let ran = watch::apart(move || fault.2(&ground), look, gives_up);
    if ran.is_none() {
        checks.violated(NOBODY_STUCK, || format!("{}, {kind:?}: stuck", fault.0));
    }
    if let Some(Err(panic)) = ran {
        let why = panic.downcast_ref::<&str>().map(ToString::to_string);
        let why = why.or_else(|| panic.downcast_ref::<String>().cloned());
        checks.violated(NOBODY_STUCK, || {
            format!("{}, {kind:?}: panicked: {}", fault.0, why.unwrap_or_default())
        });
    }
}

#[cfg(test)]
mod tests;
