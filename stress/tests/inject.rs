//! Every seeded bug of the engine is found, and by which checks (`cargo xtask inject`).
//!
//! Demanded is that each of the checks named fails, not only some check; others may fail too, and are printed. The rates are such that
//! a bug strikes often enough on a slow machine, and seldom enough that it is not the only thing that happens.
#![cfg(expiry_inject)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

const MAP: &str = "histories --on map --seconds 2";
const ONE_KEY: &str = "histories --on map --seconds 2 --keys 1";
const QUEUE: &str = "histories --on queue --seconds 2";
const ACKS: &str = "histories --on acks --seconds 2";
const ROOTS: &str = "histories --on roots --seconds 2";
const ACK: &str = "ack --seconds 0.7 --fail-rate 0.1 --timeout-rate 0.01 --duplicate-rate 0.02 --late-rate 0.1 \
                   --handoff-rate 0.2 --timeout 100ms --interval 1ms --in-flight 4000 --threads 3 --allowance 5s";
const FEW: &str =
    "ack --seconds 0.3 --timeout 50ms --interval 1ms --in-flight 100 --threads 2 --allowance 5s";
const SESSIONS: &str = "sessions --seconds 0.5 --keys 512 --threads 3 --allowance 5s";
const CONTENDED: &str = "sessions --contended --keys 1";
const TRACKER: &str = "sessions --tracker --seconds 0.5 --keys 512 --allowance 5s";
const TTL: &str = "ttl --row 9 --seconds 2";
const SIMULATED: &str = "ttl --row 53 --simulated";

const MAP_LAW: &[&str] = &["map_linearizable"];
const QUEUE_LAW: &[&str] = &["queue_linearizable"];
const ACKS_LAW: &[&str] = &["acks_linearizable"];
const ROOTS_LAW: &[&str] = &["roots_linearizable"];
const WHOLE: &[&str] = &["capacity_whole"];

const SEEDED: &[Seeded] = &[
    seeded("lost-ack/1000", ACKS, ACKS_LAW),
    seeded("lost-ack/1000", ROOTS, ROOTS_LAW),
    seeded("lost-ack/1000", ACK, &["completions_true", "late_harmless"]),
    seeded("lost-fail/500", ACKS, ACKS_LAW),
    seeded("lost-fail/500", ROOTS, ROOTS_LAW),
    seeded("lost-fail/100", ACK, &["one_outcome_each"]),
    seeded("late-touch/50", MAP, MAP_LAW),
    seeded("late-touch/1000", QUEUE, QUEUE_LAW),
    seeded("late-touch/20", ACKS, ACKS_LAW),
    seeded("late-touch/200", ROOTS, ROOTS_LAW),
    seeded("late-touch/100", SESSIONS, &["renewed_is_renewed"]),
    seeded("late-touch/100", TRACKER, &["renewed_is_renewed"]),
    seeded("late-touch/1000", CONTENDED, &["ends_when_asked"]),
    seeded("lost-insert/1000", MAP, MAP_LAW),
    seeded("lost-insert/1000", QUEUE, QUEUE_LAW),
    seeded("lost-insert/1000", ACKS, ACKS_LAW),
    seeded("lost-insert/100", SESSIONS, &["every_stay_ends"]),
    seeded("lost-insert/1000", CONTENDED, &["none_lost"]),
    seeded("lost-insert/1000", TRACKER, &["every_session_ends"]),
    seeded("lost-insert/1000", TTL, &["one_end_each"]),
    seeded(
        "lost-insert/1000",
        SIMULATED,
        &["ends_agree", "length_agrees", "results_agree"],
    ),
    seeded("lost-remove/1000", QUEUE, QUEUE_LAW),
    seeded("lost-remove/100", SESSIONS, &["told_once"]),
    seeded("lost-remove/100", CONTENDED, &["told_once"]),
    seeded("duplicate-init/1000", ACKS, ACKS_LAW),
    seeded("double-outcome/200", MAP, MAP_LAW),
    seeded("double-outcome/1000", ACKS, ACKS_LAW),
    seeded("double-outcome/1000", ROOTS, ROOTS_LAW),
    seeded("double-outcome/1000", ACK, &["one_outcome_each"]),
    seeded("double-outcome/100", SESSIONS, &["told_once"]),
    seeded("double-outcome/100", TRACKER, &["ends_once"]),
    seeded("double-outcome/1000", TTL, &["told_once"]),
    seeded("lost-outcome/200", MAP, MAP_LAW),
    seeded("lost-outcome/1000", ACKS, ACKS_LAW),
    seeded("lost-outcome/1000", ROOTS, ROOTS_LAW),
    seeded(
        "lost-outcome/1000",
        ACK,
        &["every_root_ended", "metrics_add_up"],
    ),
    seeded("lost-outcome/1000", TTL, &["one_end_each"]),
    // Elsewhere it goes so wrong that the engine itself no longer comes to an end.
    seeded("torn-end", ROOTS, ROOTS_LAW),
    seeded("stale-generation", QUEUE, QUEUE_LAW),
    seeded("stale-generation", ROOTS, ROOTS_LAW),
    seeded(
        "stale-generation",
        ACK,
        &["completions_true", "late_harmless"],
    ),
    seeded("stale-get/1000", MAP, MAP_LAW),
    seeded("stale-get/100", TTL, &["ended_is_gone"]),
    seeded(
        "stale-get/100",
        SIMULATED,
        &["results_agree", "values_intact"],
    ),
    seeded("resurrect/100", MAP, MAP_LAW),
    seeded("unlapsed", ONE_KEY, MAP_LAW),
    seeded("early-expiry/20", MAP, MAP_LAW),
    seeded("early-expiry/20", QUEUE, QUEUE_LAW),
    seeded("early-expiry/20", ACKS, ACKS_LAW),
    seeded("early-expiry/20", ROOTS, ROOTS_LAW),
    seeded("early-expiry/10", ACK, &["none_early"]),
    seeded("early-expiry/10", SESSIONS, &["none_early"]),
    seeded("early-expiry/10", TTL, &["none_early"]),
    seeded("never-expires/50", MAP, MAP_LAW),
    seeded("never-expires/50", QUEUE, QUEUE_LAW),
    seeded("never-expires/50", ACKS, ACKS_LAW),
    seeded("never-expires/50", ROOTS, ROOTS_LAW),
    seeded(
        "never-expires/100",
        CONTENDED,
        &["none_stranded", "queue_empty"],
    ),
    seeded("leak-slot/1000", MAP, WHOLE),
    seeded("leak-slot/1000", QUEUE, WHOLE),
    seeded("leak-slot/1000", ACKS, WHOLE),
    seeded("leak-slot/1000", ROOTS, WHOLE),
    seeded("lost-news/2", MAP, MAP_LAW),
    seeded("lost-news/2", QUEUE, QUEUE_LAW),
    seeded("lost-news/2", ACKS, ACKS_LAW),
    seeded("lost-news/100", ROOTS, ROOTS_LAW),
    seeded("lost-wakeup", FEW, &["every_root_ended", "nothing_left"]),
];

/// How long a run may take, with the patience of the scenarios that wait for what does not come.
const PATIENCE: Duration = Duration::from_secs(120);

/// What came of a run: the checks that failed, or why there are none to be looked at.
fn run(bug: &str, args: &str) -> Result<BTreeSet<String>, String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stress"))
        .args(args.split_whitespace())
        .arg("--json")
        .envs((!bug.is_empty()).then_some(("EXPIRY_INJECT", bug)))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut out = child.stdout.take().expect("it was asked for");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let began = Instant::now();
    while child.try_wait().expect("it is a child").is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = child.wait().expect("it is a child");
    let text = reader.join().expect("no panic").expect("text");
    let json: Value = serde_json::from_str(&text).map_err(|_| status.to_string())?;
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
        match &failed {
            Ok(checks) => println!("{bug:<20} {args}\n{:<20} found by {checks:?}", ""),
            Err(why) => println!("{bug:<20} {args}\n{:<20} {why}", ""),
        }
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
