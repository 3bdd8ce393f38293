//! `stress compare`, end to end through the binary, about a second each.

use crate::common::{count, stderr, stress};
use serde_json::Value;

const SMALL: &str = "compare --entries 2000 --operations 20000";

fn run(args: &str) -> Value {
    let all = format!("{SMALL} {args} --json");
    let output = stress(&all.split(' ').collect::<Vec<_>>());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(&output));
    serde_json::from_str(&text).expect("one JSON object")
}

fn hold(report: &Value, checks: &[&str]) {
    for check in checks.iter().chain(&["nobody_stuck"]) {
        assert_eq!(report["checks"][check], true, "{check}");
    }
    let there = report["checks"].as_object().expect("checks by name");
    assert_eq!(there.len(), checks.len() + 1);
}

/// The contests of a group, and of each of its operations and peers the rows.
fn rows(report: &Value, group: &str) -> Vec<(String, String, Value)> {
    let contests = report["details"].as_array().expect("contests").iter();
    let of = contests.filter(|contest| contest["group"] == group);
    let operations = of.flat_map(|contest| contest["operations"].as_array().expect("operations"));
    let text = |value: &Value| value.as_str().expect("a name").to_string();
    operations
        .flat_map(|operation| {
            let rows = operation["rows"].as_array().expect("rows").iter();
            rows.map(|row| {
                (
                    text(&operation["operation"]),
                    text(&row["peer"]),
                    row.clone(),
                )
            })
        })
        .collect()
}

/// Whether a peer has a figure for each operation and number of threads, and its ratio to ours.
fn is_beside(report: &Value, group: &str, (ours, theirs): (&str, &str), figures: usize) {
    let rows = rows(report, group);
    let of = |peer: &str| rows.iter().filter(|(_, name, _)| name == peer).count();
    assert_eq!((of(ours), of(theirs)), (figures, figures), "{group}");
    for (operation, _, row) in rows.iter().filter(|(_, name, _)| name == theirs) {
        let over = &row["over"][ours];
        let [least, median, most] = ["min", "median", "max"].map(|of| over[of].as_f64());
        assert!(least <= median && median <= most, "{operation}: {row}");
        assert!(median.is_some(), "{operation}: {row}");
        assert!(row["per_s"]["median"].as_f64() > Some(0.0), "{row}");
        assert!(row["efficiency"]["median"].as_f64() > Some(0.0), "{row}");
    }
}

fn are_weighed(report: &Value, names: &[&str]) {
    let contests = report["details"].as_array().expect("contests").iter();
    let peers = contests.flat_map(|contest| contest["peers"].as_array().expect("peers"));
    let mut weights = peers.filter(|peer| peer["bytes"].as_f64() > Some(8.0));
    for name in names {
        let found = weights.any(|peer| peer["name"] == *name);
        assert!(found, "{name}: {}", report["details"]);
    }
}

#[test]
fn everybody_is_in_it_and_does_the_work() {
    let report = run("--peers papaya,hash-wheel,btree,tokio,pingora --group maps,timers,timeouts --threads 1,2 --rounds 2");
    hold(&report, &["trees_complete", "timers_fire", "futures_end"]);
    assert_eq!(count(&report, "contests"), 3);
    assert_eq!(count(&report, "rounds_complete"), 6);
    is_beside(&report, "maps", ("issued", "papaya"), 2);
    is_beside(&report, "maps", ("chosen", "papaya"), 2);
    is_beside(&report, "timers", ("roots", "hash-wheel"), 2);
    is_beside(&report, "timers", ("roots", "btree"), 2);
    is_beside(&report, "timeouts", ("expiry", "pingora"), 2);
    is_beside(&report, "timeouts", ("expiry", "tokio"), 2);
    // What few timeouts of futures take is less than what the process takes now and then.
    are_weighed(&report, &["issued", "papaya", "roots", "hash-wheel"]);
}

#[test]
fn entries_are_kept_and_expire() {
    let report =
        run("--peers papaya,mini-moka,delay-queue --group expiring --threads 1 --rounds 1");
    hold(&report, &["entries_kept", "entries_expire"]);
    // Seven operations while they live, and expiry.
    is_beside(&report, "expiring", ("map", "mini-moka"), 8);
    is_beside(&report, "expiring", ("map", "delay-queue"), 8);
    // Of those that do not expire nothing but look-ups is taken.
    let rows = rows(&report, "expiring").into_iter();
    let papaya: Vec<_> = rows.filter(|(_, name, _)| name == "papaya").collect();
    assert_eq!(papaya.len(), 1);
    assert_eq!(papaya[0].0, "get");
    are_weighed(&report, &["map", "mini-moka", "delay-queue"]);
}

#[test]
fn the_text_and_the_page_have_tables_and_charts() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("compare.html");
    let args = format!(
        "{SMALL} --threads 1,2 --rounds 1 --group maps,timers --peers dashmap,wheel --report"
    );
    let mut args: Vec<&str> = args.split(' ').collect();
    args.push(page.to_str().unwrap());
    let output = stress(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(&output));
    let html = std::fs::read_to_string(&page).unwrap();
    for part in [
        "dashmap (remove_if_mut)",
        "mutex + TimerWheel",
        "over issued",
        "over roots",
        "efficiency",
    ] {
        assert!(text.contains(part) && html.contains(part), "{part}: {text}");
    }
    for part in [
        "init or ack, ns, 2 threads",
        "init or ack, throughput",
        "timers: bytes an entry",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(html.matches("<svg ").count() >= 8);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (args, why) in [
        ("--peers nobody", "nobody is nobody there"),
        ("--group maps --peers moka", "dashmap"),
        ("--threads 0", "threads"),
        ("--rounds 0", "rounds"),
        ("--group all", "timeouts"),
    ] {
        let all: Vec<&str> = ["compare"].into_iter().chain(args.split(' ')).collect();
        let output = stress(&all);
        assert_eq!(output.status.code(), Some(2), "{args}");
        assert!(stderr(&output).contains(why), "{args}: {}", stderr(&output));
    }
}
