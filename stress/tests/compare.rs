//! `stress compare`, end to end through the binary, about a second each.

mod common;

use common::{count, stderr, stress};
use serde_json::Value;

const SMALL: &str = "compare --entries 2000 --operations 20000 --rounds 2 --threads 1,2";

fn run(args: &str) -> Value {
    let all: Vec<&str> = SMALL.split(' ').chain(args.split_whitespace()).collect();
    let output = stress(&[&all[..], &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(&output));
    serde_json::from_str(&text).expect("one JSON object")
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

#[test]
fn everybody_is_in_it_and_does_the_work() {
    let report = run("--peers papaya,mini-moka,delay-queue,hash-wheel,btree,tokio,pingora");
    for check in [
        "trees_complete",
        "entries_kept",
        "entries_expire",
        "timers_fire",
        "futures_end",
        "nobody_stuck",
    ] {
        assert_eq!(report["checks"][check], true, "{check}");
    }
    assert_eq!(count(&report, "contests"), 5);
    assert_eq!(count(&report, "rounds_complete"), 10);
    for (group, ours, theirs) in [
        ("maps", "issued", "papaya"),
        ("expiring", "map", "mini-moka"),
        ("expiring", "map", "delay-queue"),
        ("timers", "roots", "hash-wheel"),
        ("timers", "roots", "btree"),
        ("timeouts", "tokio", "pingora"),
    ] {
        let rows = rows(&report, group);
        let of = |peer: &str| rows.iter().filter(|(_, name, _)| name == peer).count();
        let operations = if group == "expiring" { 2 * 6 + 1 } else { 2 };
        assert_eq!((of(ours), of(theirs)), (operations, operations), "{group}");
        for (operation, _, row) in rows.iter().filter(|(_, name, _)| name == theirs) {
            let over = &row["over"][ours];
            let [least, median, most] = ["min", "median", "max"].map(|of| over[of].as_f64());
            assert!(least <= median && median <= most, "{operation}: {row}");
            assert!(
                median.is_some() && row["per_s"]["median"].as_f64() > Some(0.0),
                "{row}"
            );
            assert!(row["efficiency"]["median"].as_f64() > Some(0.0), "{row}");
        }
    }
    // Of those that do not expire nothing but look-ups is taken.
    let operations = rows(&report, "expiring").into_iter();
    let papaya = operations.filter(|(_, name, _)| name == "papaya");
    assert!(papaya
        .map(|(operation, ..)| operation)
        .all(|operation| operation == "get"));
    let peers = |contest: &Value| contest["peers"].as_array().expect("peers").clone();
    let contests = report["details"].as_array().expect("contests").iter();
    for peer in contests
        .flat_map(peers)
        .filter(|peer| !peer["bytes"].is_null())
    {
        assert!(peer["bytes"].as_f64() > Some(0.0), "{peer}");
    }
}

#[test]
fn the_text_and_the_page_have_tables_and_charts() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("compare.html");
    let args = format!("{SMALL} --group maps,timers --peers dashmap,wheel --report");
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
