//! Scenario `soak`: all the others, over and over, each time with other seeds, until one fails.

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::options::{only, Cli, Scenario, Soak};
use crate::report::Report;
use crate::usage::{one_arena, resident, trim};
use crate::watch;
use clap::Parser;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RUNS_PASS: Check = "runs_pass";
const MEMORY_FLAT: Check = "memory_flat";

/// How many cycles it takes for memory to be judged; the first is the warm-up.
const CYCLES: usize = 6;
/// By how much memory may be above what it was: a share of it, and bytes for the allocator's moods.
const SHARE: f64 = 0.1;
const BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// The runs of a cycle: the name for `--only`, and the arguments without a seed.
const RUNS: [(&str, &str); 9] = [
    ("ack", "ack --seconds 1 --order shuffled --batch 16 --timeout 500ms --allowance 2m"),
    (
        "ack",
        "ack --seconds 1 --ids chosen --early-rate 0.1 --fail-rate 0.1 --timeout-rate 0.01 \
         --duplicate-rate 0.01 --in-flight 4000 --threads 3 --timeout 500ms --allowance 2m",
    ),
    ("wordcount", "wordcount SRC --drop 0.001 --fail 0.002 --duplicate 0.002 --timeout 500ms"),
    ("cache", "cache --seconds 1 --allowance 2m"),
    ("growth", "growth --entries 100000"),
    ("growth", "growth --entries 100000 --bounded"),
    ("faults", "faults --size 20000 --stall 100ms"),
    ("hostile", "hostile --size 20000"),
    ("histories", "histories --seconds 1"),
];

/// What the word count reads.
const SRC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src");

/// Runs the scenario. A run in which nothing moves for as long as `limit` has failed.
pub fn run(options: &Soak, limit: Duration) -> Result<Report, Error> {
    let runs = only(&RUNS, |run| run.0, &options.only, "scenario of a soak")?;
    one_arena();
    let checks = Checks::new(&[RUNS_PASS, MEMORY_FLAT]);
    let (began, mut done, mut memory) = (Instant::now(), 0, Vec::new());
    let cycles = options.cycles.unwrap_or(options.time.map_or(1, |_| u64::MAX));
    let goes_on = |cycle| cycle < cycles && options.time.is_none_or(|time| began.elapsed() < time);
    'cycles: for cycle in (0..).take_while(|&cycle| goes_on(cycle)) {
        for (_, arguments) in &runs {
            let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(done);
            let arguments = format!("{arguments} --seed {seed}");
            eprintln!("== cycle {cycle}, {:.0?}: stress {arguments}", began.elapsed());
            let report = watch::over(&Arc::new(parse(&arguments)), limit)?;
            if interrupt::asked() {
                break 'cycles;
            }
            done += 1;
            if !report.passed {
                let why = report.violations.join("\n");
                checks.violated(RUNS_PASS, || format!("stress {arguments}\n{why}"));
                break 'cycles;
            }
        }
        trim();
        memory.push(resident());
    }
    let is_judged = memory.len() >= CYCLES;
    checks.expect(MEMORY_FLAT, !is_judged || is_flat(&memory[1..]), || {
        format!("bytes after each cycle: {memory:?}")
    });
    let took = began.elapsed();
    let mut report = Report::new("soak", ("runs", done), took, options.seed, &checks, options);
    report.counts.extend([("runs", done), ("cycles", memory.len() as u64)]);
    if !is_judged {
        report.notes.push(format!("memory was not judged: that takes {CYCLES} cycles"));
    }
    Ok(report)
}

fn parse(arguments: &str) -> Scenario {
    let words = arguments.split_whitespace().map(|word| if word == "SRC" { SRC } else { word });
    let cli = Cli::parse_from(["stress"].into_iter().chain(words));
    cli.scenario.expect("each run names one")
}

/// Whether the later half of these stays within what the earlier half allows.
#[allow(clippy::cast_precision_loss)] // bytes below 2^53
fn is_flat(memory: &[u64]) -> bool {
    let (earlier, later) = memory.split_at(memory.len() / 2);
    let most = |half: &[u64]| half.iter().copied().max().unwrap_or(0) as f64;
    most(later) <= most(earlier) * (1.0 + SHARE) + BYTES
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
}
