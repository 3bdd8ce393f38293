//! Every seeded bug of the engine is found, and by which checks (`cargo xtask inject`).
//!
//! A run is bad if it ends as it would without the bug. What is demanded is that each of the checks named fails, not only some
//! check; others may fail too, and are printed.
#![cfg(expiry_inject)]

mod common;

use common::stderr;
use std::collections::BTreeSet;
use std::process::Command;

/// A bug, as `name/one in how many`; the scenario that runs with it; and the checks that must find it.
struct Seeded {
    bug: &'static str,
    args: &'static str,
    found_by: &'static [&'static str],
}

const fn seeded(
    bug: &'static str,
    args: &'static str,
    found_by: &'static [&'static str],
) -> Seeded {
    Seeded {
        bug,
        args,
        found_by,
    }
}

const MAP: &str = "histories --on map --seconds 1";
const QUEUE: &str = "histories --on queue --seconds 1";
const ACKS: &str = "histories --on acks --seconds 1";
const ROOTS: &str = "histories --on roots --seconds 1";

const MAP_LAW: &[&str] = &["map_linearizable"];
const QUEUE_LAW: &[&str] = &["queue_linearizable"];
const ACKS_LAW: &[&str] = &["acks_linearizable"];
const ROOTS_LAW: &[&str] = &["roots_linearizable"];

const SEEDED: &[Seeded] = &[
    seeded("lost-ack/1000", ACKS, ACKS_LAW),
    seeded("lost-ack/1000", ROOTS, ROOTS_LAW),
    seeded("lost-fail/1000", ACKS, ACKS_LAW),
    seeded("lost-fail/1000", ROOTS, ROOTS_LAW),
    seeded("late-touch/1000", MAP, MAP_LAW),
    seeded("late-touch/1000", QUEUE, QUEUE_LAW),
    seeded("late-touch/1000", ACKS, ACKS_LAW),
    seeded("late-touch/1000", ROOTS, ROOTS_LAW),
    seeded("lost-insert/1000", MAP, MAP_LAW),
    seeded("lost-insert/1000", QUEUE, QUEUE_LAW),
    seeded("lost-insert/1000", ACKS, ACKS_LAW),
    seeded("lost-remove/1000", QUEUE, QUEUE_LAW),
    seeded("duplicate-init/1000", ACKS, ACKS_LAW),
    seeded("double-outcome/1000", MAP, MAP_LAW),
    seeded("double-outcome/1000", ACKS, ACKS_LAW),
    seeded("double-outcome/1000", ROOTS, ROOTS_LAW),
    seeded("lost-outcome/1000", MAP, MAP_LAW),
    seeded("lost-outcome/1000", ACKS, ACKS_LAW),
    seeded("lost-outcome/1000", ROOTS, ROOTS_LAW),
    seeded("torn-end", QUEUE, QUEUE_LAW),
    seeded("torn-end", ACKS, ACKS_LAW),
    seeded("torn-end", ROOTS, ROOTS_LAW),
    seeded("stale-generation", QUEUE, QUEUE_LAW),
    seeded("stale-generation", ROOTS, ROOTS_LAW),
    seeded("stale-get/1000", MAP, MAP_LAW),
    seeded("resurrect/1000", MAP, MAP_LAW),
    seeded("unlapsed", MAP, MAP_LAW),
    seeded("early-expiry/100", MAP, MAP_LAW),
    seeded("early-expiry/100", QUEUE, QUEUE_LAW),
    seeded("early-expiry/100", ACKS, ACKS_LAW),
    seeded("early-expiry/100", ROOTS, ROOTS_LAW),
    seeded("never-expires/1000", MAP, MAP_LAW),
    seeded("never-expires/1000", QUEUE, QUEUE_LAW),
    seeded("never-expires/1000", ACKS, ACKS_LAW),
    seeded("never-expires/1000", ROOTS, ROOTS_LAW),
    seeded("leak-slot/1000", MAP, &["capacity_whole"]),
    seeded("leak-slot/1000", QUEUE, &["capacity_whole"]),
    seeded("leak-slot/1000", ACKS, &["capacity_whole"]),
    seeded("leak-slot/1000", ROOTS, &["capacity_whole"]),
    seeded("lost-news/100", MAP, MAP_LAW),
    seeded("lost-news/100", QUEUE, QUEUE_LAW),
    seeded("lost-news/100", ACKS, ACKS_LAW),
    seeded("lost-news/100", ROOTS, ROOTS_LAW),
];

/// What came of a run: the checks that failed, or why there are none to be looked at.
fn run(bug: &str, args: &str) -> Result<BTreeSet<String>, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_stress"))
        .args(args.split_whitespace())
        .arg("--json")
        .envs((!bug.is_empty()).then_some(("EXPIRY_INJECT", bug)))
        .output()
        .expect("the binary runs");
    let json = serde_json::from_slice::<serde_json::Value>(&output.stdout);
    let json = json.map_err(|_| format!("{}: {}", output.status, stderr(&output)))?;
    let checks = json["checks"].as_object().expect("checks by name").iter();
    let failed = checks.filter(|(_, holds)| **holds == false);
    Ok(failed.map(|(name, _)| name.clone()).collect())
}

#[test]
fn every_seeded_bug_is_found() {
    let mut missed = Vec::new();
    for Seeded {
        bug,
        args,
        found_by,
    } in SEEDED
    {
        let failed = run(bug, args);
        println!("{bug:<20} {args:<40} {failed:?}");
        let found = failed.is_ok_and(|failed| found_by.iter().all(|&check| failed.contains(check)));
        if !found {
            missed.push(format!("{bug} by {found_by:?}: {args}"));
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

#[test]
fn every_bug_is_seeded() {
    let seeded: BTreeSet<_> = SEEDED
        .iter()
        .filter_map(|one| one.bug.split('/').next())
        .collect();
    let all: BTreeSet<_> = expiry::inject::names().collect();
    assert_eq!(seeded, all);
}

#[test]
fn without_a_bug_nothing_is_found() {
    let mut scenarios: Vec<_> = SEEDED.iter().map(|one| one.args).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    for args in scenarios {
        assert_eq!(run("", args), Ok(BTreeSet::new()), "{args}");
    }
}
