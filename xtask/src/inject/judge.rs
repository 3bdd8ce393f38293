//! Runs the scenarios with the bugs, and without, and demands what the bugs' files say.

use super::bugs::Bug;
use super::runs::{form, Run, Runs};
use super::Build;
use crate::{in_threads, tree};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a run may take, with the patience of the scenarios that wait for what does not come.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often a run is made for its bug to be found.
const ATTEMPTS: usize = 3;

/// All checks that a run has made, and those that failed; or why there are none.
type Checks = Result<[BTreeSet<String>; 2], String>;

/// Runs the scenario. Returns what came of its checks, and whether the bug has struck.
fn run(build: &Build, bug: &str, args: &str) -> (Checks, bool) {
    let mut command = build.stress(bug);
    command.args(args.split_whitespace()).arg("--json");
    let ended = tree::run_within(command, PATIENCE, &tree::work("inject"));
    let (status, said) = ended.expect("the program was built");
    let ended = status.map_or("no end".into(), |status| status.to_string());
    (checks(&said).ok_or(ended), said.contains("the seeded bug"))
}

/// Reads all checks, and those that failed, from the JSON that `stress` prints.
fn checks(json: &str) -> Option<[BTreeSet<String>; 2]> {
    let (_, rest) = json.split_once("\"checks\":{")?;
    let (checks, _) = rest.split_once('}')?;
    let mut found = [BTreeSet::new(), BTreeSet::new()];
    for check in checks.split(',').filter(|check| !check.is_empty()) {
        let (name, holds) = check.split_once(':')?;
        let name = name.trim_matches('"').to_owned();
        if holds == "false" {
            found[1].insert(name.clone());
        }
        found[0].insert(name);
    }
    Some(found)
}

/// Runs with a bug until the checks that must find it have failed. Returns what came of it, in
/// words, and whether they have.
fn is_found(build: &Build, one: &Run) -> (String, bool) {
    let mut said = format!("{:<20} {}", one.bug, one.args);
    let began = Instant::now();
    for _ in 0..ATTEMPTS {
        let (checks, struck) = run(build, &one.bug, &one.args);
        let took = began.elapsed().as_secs_f64();
        let struck = if struck { "" } else { ", never struck" };
        let (found, by) = match checks {
            Ok([_, failed]) => (
                one.found_by.iter().all(|check| failed.contains(check)),
                format!("found by {failed:?}"),
            ),
            Err(why) => (false, why),
        };
        said += &format!("\n{:<20} {took:.0} s, {by}{struck}", "");
        if found {
            return (said, true);
        }
    }
    (said, false)
}

/// Demands that each run of each bug finds it.
pub fn every_bug_is_found(build: &Build, bugs: &[Bug]) -> Result<(), String> {
    let runs: Vec<_> = bugs.iter().flat_map(|bug| &bug.runs).collect();
    let missed = Mutex::new(Vec::new());
    in_threads(&runs, |one| {
        let (said, found) = is_found(build, one);
        println!("{said}");
        if !found {
            missed.lock().expect("no panic").push(format!("not found: {said}"));
        }
    });
    let missed = missed.into_inner().expect("no panic");
    println!("{} runs, {} of which have missed their bug", runs.len(), missed.len());
    all_right(missed)
}

/// Demands that without a bug every check holds, and that every check has a bug that makes it
/// fail or a reason why it has none.
pub fn every_check_can_fail(build: &Build, bugs: &[Bug], runs: &Runs) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut checks = BTreeSet::new();
    let seeded = || bugs.iter().flat_map(|bug| &bug.runs);
    let args = seeded().map(|one| one.args.as_str());
    let all_args: BTreeSet<_> = args.chain(runs.forms.iter().map(String::as_str)).collect();
    let excepted = &runs.excepted;
    for args in &all_args {
        match run(build, "", args).0 {
            Ok([all, mut failed]) => {
                failed.retain(|check| !excepted.contains(&(form(args), check.clone())));
                if !failed.is_empty() {
                    wrong.push(format!("without a bug: {failed:?}: {args}"));
                }
                checks.extend(all.into_iter().map(|check| (form(args), check)));
            }
            Err(why) => wrong.push(format!("without a bug: {why}: {args}")),
        }
    }
    let found = seeded().flat_map(|one| {
        let checks = one.found_by.iter();
        checks.map(|check| (form(&one.args), check.clone()))
    });
    let found: BTreeSet<_> = found.collect();
    println!(
        "{} runs without a bug, {} checks, of which no bug makes {} fail",
        all_args.len(),
        checks.len(),
        checks.difference(&found).count()
    );
    for check in &checks {
        let (form, name) = check;
        match (found.contains(check), excepted.contains(check)) {
            (false, false) => wrong.push(format!("no bug makes {name} of {form} fail")),
            (true, true) => wrong.push(format!("{name} of {form} has a bug and a reason")),
            _ => {}
        }
    }
    for check in found.union(excepted).filter(|one| !checks.contains(*one)) {
        wrong.push(format!("{} has no check {}", check.0, check.1));
    }
    all_right(wrong)
}

/// Demands that each scenario that `stress` has is among the forms.
pub fn every_scenario_has_its_form(build: &Build, forms: &[String]) -> Result<(), String> {
    let help = build.stress("").arg("--help").output();
    let help = help.map_err(|error| error.to_string())?.stdout;
    let help = String::from_utf8_lossy(&help);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = commands
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        // `nats` is a feature, and needs brokers: its crate's simulation has bugs of its own.
        .filter(|name| !["help", "nats"].contains(name));
    let forms = forms.iter().filter_map(|args| args.split(' ').next());
    let forms: BTreeSet<_> = forms.collect();
    let names: BTreeSet<_> = names.collect();
    let differ = names.symmetric_difference(&forms);
    all_right(differ.map(|name| format!("{name} is a scenario or a form, not both")).collect())
}

fn all_right(wrong: Vec<String>) -> Result<(), String> {
    match wrong[..] {
        [] => Ok(()),
        [..] => Err(wrong.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_are_read_from_the_report() {
        let json =
            r#"{"name":"ack","checks":{"none_early":true,"none_late":false},"passed":false}"#;
        let [all, failed] = checks(json).unwrap();
        assert_eq!(all.len(), 2);
        assert!(failed.iter().eq(["none_late"]));
        assert!(checks("{}").is_none());
    }
}
