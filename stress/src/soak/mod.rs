//! Scenario `soak`: all the others, over and over, for hours.

mod log;
mod plan;
mod text;

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::options::{Cli, Scenario, Soak};
use crate::report::{thousands, Report};
use crate::usage::{one_arena, resident, trim};
use crate::watch;
use clap::Parser;
use log::{Line, Log, Run};
use plan::Plan;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use text::Text;

const RUNS_PASS: Check = "runs_pass";
const NOBODY_STUCK: Check = "nobody_stuck";
const MEMORY_FLAT: Check = "memory_flat";

/// How many cycles of a process it takes for its memory to be judged; the first is the warm-up.
const CYCLES: usize = 6;
/// By how much memory may be above what it was: a share of it, and bytes for the allocator's moods.
const SHARE: f64 = 0.1;
const BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the scenario.
pub fn run(options: &Soak) -> Result<Report, Error> {
    let names = plan::names();
    if let Some(unknown) = options.only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Error::Option {
            option: "--only",
            why: format!("{unknown} is not what a soak runs; that is {}", names.join(", ")),
        });
    }
    for also in &options.also {
        parse(also)?;
    }
    one_arena();
    let seconds = options.each.as_secs_f64();
    let text = Text::write(options.seed, (seconds * 256.0).clamp(16.0, 16_384.0) as usize)?;
    let plan = Plan::new(&options.only, &options.also, seconds, options.seed, text.0.clone());
    let mut log = Log::open(options.log.as_deref(), options.seed, plan.runs())?;
    let checks = Checks::new(&[RUNS_PASS, NOBODY_STUCK, MEMORY_FLAT]);
    let process = log.next_process();
    let before: f64 = log.runs().map(|run| run.seconds).sum();
    let began = Instant::now();
    let length = options.length().as_secs_f64();
    let ended_by = loop {
        let (cycle, place) = log.next(plan.runs());
        let spent = before + began.elapsed().as_secs_f64();
        if options.cycles.is_some_and(|cycles| cycle >= cycles) {
            break "its cycles";
        }
        if spent >= length {
            break "its time";
        }
        let arguments = plan.arguments(cycle, place);
        eprintln!(
            "== {:.1} of {:.1} min, cycle {cycle}, run {} of {}: stress {arguments}",
            spent / 60.0,
            length / 60.0,
            place + 1,
            plan.runs()
        );
        let limit = options.patience + 20 * options.each;
        let Some((run, is_stuck)) = one((cycle, place), arguments, limit)? else {
            break "Ctrl-C";
        };
        if is_stuck {
            checks.violated(NOBODY_STUCK, || run.arguments.clone());
            log.add(Line::Run(run))?;
            // A stuck run holds memory and cores: nothing after it would mean anything.
            break "a run that is stuck";
        }
        eprintln!("== {}", if run.passed { "passed" } else { "FAILED" });
        log.add(Line::Run(run))?;
        if place + 1 == plan.runs() {
            trim();
            let resident = resident();
            log.add(Line::Cycle { cycle, process, resident })?;
            eprintln!("== cycle {cycle}: {} MiB resident", mibs(&[resident]));
        }
    };
    Ok(report(options, &log, &checks, before + began.elapsed().as_secs_f64(), ended_by))
}

/// The scenario that these arguments are of.
fn parse(arguments: &str) -> Result<Scenario, Error> {
    let words = ["stress"].into_iter().chain(arguments.split_whitespace());
    let refused =
        |why: String| Error::Option { option: "--also", why: format!("{arguments}: {why}") };
    let cli = Cli::try_parse_from(words).map_err(|error| refused(error.to_string()))?;
    match cli.scenario {
        Some(Scenario::Soak(_)) | None => Err(refused("is not for a soak".into())),
        Some(scenario) => Ok(scenario),
    }
}

/// One run, on a thread of its own, and whether it is stuck. `None` if Ctrl-C has cut it short.
fn one(
    (cycle, place): (u64, usize),
    arguments: String,
    limit: Duration,
) -> Result<Option<(Run, bool)>, Error> {
    let scenario = parse(&arguments)?;
    let began = Instant::now();
    let gives_up = || interrupt::asked() || began.elapsed() >= limit;
    let ran = watch::apart(move || crate::perform(&scenario), LOOK, gives_up);
    if interrupt::asked() {
        return Ok(None);
    }
    let is_stuck = ran.is_none();
    let (passed, operations, violations) = match ran {
        Some(Ok(Ok(report))) => (report.passed, report.operations(), report.violations),
        Some(Ok(Err(error))) => (false, 0, vec![error.to_string()]),
        Some(Err(_)) => (false, 0, vec!["panicked".into()]),
        None => (false, 0, vec![format!("stuck for {limit:?}")]),
    };
    let (seconds, resident) = (began.elapsed().as_secs_f64(), resident());
    let run = Run { cycle, place, arguments, passed, operations, seconds, resident, violations };
    Ok(Some((run, is_stuck)))
}

/// The sums of one scenario's runs.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    runs: u64,
    failed: u64,
    operations: u64,
    seconds: f64,
}

fn report(options: &Soak, log: &Log, checks: &Checks, seconds: f64, ended_by: &str) -> Report {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let mut all = Sum::default();
    for run in log.runs() {
        let name = run.arguments.split(' ').next().unwrap_or_default();
        for sum in [sums.entry(name.into()).or_default(), &mut all] {
            sum.runs += 1;
            sum.failed += u64::from(!run.passed);
            sum.operations += run.operations;
            sum.seconds += run.seconds;
        }
        checks.expect(RUNS_PASS, run.passed, || {
            format!("cycle {}: stress {}: {}", run.cycle, run.arguments, run.violations.join("; "))
        });
    }
    let mut judged = 0;
    for (process, resident) in log.resident().iter().enumerate() {
        if resident.len() >= CYCLES {
            judged += 1;
            checks.expect(MEMORY_FLAT, is_flat(&resident[1..]), || {
                format!("process {process}, MiB after each cycle: {}", mibs(resident))
            });
        }
    }
    let took = Duration::from_secs_f64(seconds);
    let mut report =
        Report::new("soak", ("operations", all.operations), took, options.seed, checks, options);
    report.counts.extend([
        ("runs", all.runs),
        ("runs_failed", all.failed),
        ("operations_checked", all.operations),
        ("cycles", log.resident().iter().map(Vec::len).sum::<usize>() as u64),
        ("processes_whose_memory_was_judged", judged),
    ]);
    report.notes.push(format!("ended by {ended_by}"));
    let row = |[name, runs, failed, operations, seconds]: [&str; 5]| {
        format!("{name:12} {runs:>6} {failed:>7} {operations:>12} {seconds:>9}")
    };
    report.notes.push(row(["scenario", "runs", "failed", "operations", "seconds"]));
    report.notes.extend(sums.iter().map(|(name, sum)| {
        let (operations, seconds) = (thousands(sum.operations as f64), sum.seconds);
        let (runs, failed) = (sum.runs.to_string(), sum.failed.to_string());
        row([name, &runs, &failed, &operations, &format!("{seconds:.0}")])
    }));
    let last = log.resident().pop().unwrap_or_default();
    if !last.is_empty() {
        report.notes.push(format!("MiB resident after each cycle: {}", mibs(&last)));
    }
    if judged == 0 {
        let why = format!("memory was not judged: that takes {CYCLES} cycles of one process");
        report.notes.push(why);
    }
    report
}

/// Whether the later half of these stays within what the earlier half allows.
fn is_flat(resident: &[u64]) -> bool {
    let (earlier, later) = resident.split_at(resident.len() / 2);
    let most = |half: &[u64]| half.iter().copied().max().unwrap_or(0) as f64;
    most(later) <= most(earlier) * (1.0 + SHARE) + BYTES
}

fn mibs(bytes: &[u64]) -> String {
    let mib = |bytes: &u64| format!("{:.1}", *bytes as f64 / f64::from(1 << 20));
    bytes.iter().map(mib).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_grows_is_seen() {
        const MIB: u64 = 1 << 20;
        assert!(is_flat(&[100 * MIB; 8]));
        assert!(is_flat(&[90 * MIB, 110 * MIB, 95 * MIB, 115 * MIB]));
        let grows: Vec<u64> = (0..20).map(|cycle| (100 + 4 * cycle) * MIB).collect();
        assert!(!is_flat(&grows));
    }

    #[test]
    fn only_scenarios_can_be_added() {
        assert!(parse("ack --seconds 1").is_ok());
        for bad in ["", "soak --hours 1", "dance", "ack --seconds x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
