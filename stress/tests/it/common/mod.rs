//! Running the binary.

use std::process::{Child, Command, Output, Stdio};

/// Runs `stress` with these arguments.
pub fn stress<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stress")).args(args).output().expect("the binary runs")
}

/// The arguments in a text, none of which has a space in it.
pub fn words(args: &str) -> Vec<&str> {
    args.split_whitespace().collect()
}

/// Starts `stress`, whose output can be read.
pub fn start<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Child {
    let mut stress = Command::new(env!("CARGO_BIN_EXE_stress"));
    stress.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ctrl-C ends a run with its report: the object, whose run has not failed.
pub fn interrupted(run: Child) -> serde_json::Value {
    let pid = run.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = run.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(report["notes"].to_string().contains("ended by Ctrl-C"), "{report}");
    report
}

/// Runs `stress` with these words and `--json`; its object, all of whose checks hold.
pub fn run(args: &str) -> serde_json::Value {
    passed(&stress(&words(&format!("{args} --json"))))
}

/// The object of a run that fails because `fails` does not hold, although `holds` does.
pub fn failing(args: &str, fails: &str, holds: &str) -> serde_json::Value {
    let output = stress(&words(&format!("{args} --json")));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(output.status.code(), Some(1), "{json}");
    assert_eq!(json["checks"][fails], false, "{json}");
    assert_eq!(json["checks"][holds], true, "{json}");
    json
}

/// Checks that a run was refused with this reason.
pub fn error(output: &Output, why: &str) {
    assert_eq!(output.status.code(), Some(2), "{why}: {}", stderr(output));
    assert!(stderr(output).contains(why), "{why}: {}", stderr(output));
}

/// What it printed to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The one JSON object that it printed to standard output, and its checks, all of which must hold.
pub fn passed(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(output));
    let json: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    for key in ["scenario", "seconds", "ops_per_s", "checks", "violations", "seed", "parameters"] {
        assert!(json.get(key).is_some(), "{key} is missing: {text}");
    }
    let checks = json["checks"].as_object().expect("checks by name");
    assert!(!checks.is_empty() && checks.values().all(|holds| holds == true), "{text}");
    assert_eq!(json["violations"].as_array().map(Vec::len), Some(0));
    json
}

/// Runs for so many seconds, and for longer if the machine was too busy for each of `counts` to be
/// above zero.
pub fn with_all(
    counts: &[&str],
    seconds: f64,
    run: impl FnMut(f64) -> serde_json::Value,
) -> serde_json::Value {
    let has_all = |report: &serde_json::Value| counts.iter().all(|name| count(report, name) > 0);
    let mut reports = [seconds, 5.0, 30.0].into_iter().map(run);
    let found = reports.find(has_all);
    found.unwrap_or_else(|| panic!("{counts:?} are not all above zero, not in 30 seconds"))
}

/// A count of the report.
pub fn count(report: &serde_json::Value, name: &str) -> u64 {
    report["counts"][name].as_u64().unwrap_or_else(|| panic!("no count {name}: {report}"))
}
