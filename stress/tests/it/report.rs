//! What a run leaves behind: the page, the object, and what Ctrl-C makes of it.

use crate::common::{error, interrupted, start, stderr, stress, words};
use serde_json::Value;
use std::time::{Duration, Instant};

#[test]
fn the_page_has_everything_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let (page, json) = (folder.path().join("run.html"), folder.path().join("run.json"));
    let (page_name, json_name) = (page.to_str().unwrap(), json.to_str().unwrap());
    let args = format!("ack --seconds 1.2 --allowance 20s --report {page_name} --json {json_name}");
    let output = stress(&words(&args));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).trim_end().ends_with("PASSED"));
    let html = std::fs::read_to_string(&page).unwrap();
    for part in [
        "<!DOCTYPE html>",
        "PASSED",
        "Throughput",
        "Times by percentile",
        "No root had a second outcome",
        "prefers-color-scheme: dark",
        "ack --seconds 1.2",
    ] {
        assert!(html.contains(part), "{part} is not in the page");
    }
    assert!(html.matches("<svg ").count() >= 4);
    // Nothing is fetched: the only address is the name of a namespace.
    let addresses = html.matches("http").count();
    assert_eq!(addresses, html.matches("http://www.w3.org/2000/svg").count());
    assert!(!html.contains("<script") && !html.contains("<link"));
    let object: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(object["scenario"], "ack");
    let series = object["series"].as_array().unwrap();
    assert!(series.len() >= 3, "{series:?}");
    assert!(series.iter().any(|sample| sample["per_s"].as_f64() > Some(0.0)));
    assert!(series.iter().all(|sample| sample["resident"].as_u64() > Some(0)));
    for key in ["charts", "machine", "command"] {
        assert!(!object[key].is_null(), "{key}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none").join("run");
    for option in ["--report", "--json"] {
        let args = ["ack", "--seconds", "0.05", "--allowance", "20s", option];
        let output = stress(&[&args[..], &[nowhere.to_str().unwrap()]].concat());
        error(&output, "cannot write");
    }
}

#[test]
fn ctrl_c_ends_a_run_with_its_report() {
    for args in [
        "ack --seconds 3600 --allowance 20s --json",
        "sessions --seconds 3600 --json",
        "ttl --row 53 --seconds 3600 --memory 16 --allowance 20s --json",
        "histories --seconds 3600 --json",
    ] {
        let (mut run, began) = (start(&words(args)), Instant::now());
        // It runs when it has said something.
        let mut said = run.stderr.take().unwrap();
        std::io::Read::read_exact(&mut said, &mut [0]).unwrap();
        let rest = std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let report = interrupted(run);
        assert!(began.elapsed() < Duration::from_secs(600), "{args}");
        rest.join().unwrap().unwrap();
        assert_eq!(report["passed"], true, "{report}");
        assert_eq!(report["notes"][0], "ended by Ctrl-C");
        assert!(report["seconds"].as_f64() < Some(600.0), "{report}");
        assert!(report["ops_per_s"].as_f64() > Some(0.0), "{report}");
    }
}
