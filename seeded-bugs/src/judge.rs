//! Runs the scenarios with the bugs, and without, and demands what `runs.rs` says.

use crate::runs::{form, Seeded, EXCEPT, FORMS, SEEDED};
use crate::series::{Build, CHOICE};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How long a run may take, with the patience of the scenarios that wait for what does not come.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often a run is made for its bug to be found.
const ATTEMPTS: usize = 3;

/// What came of a run.
struct Outcome {
    /// All checks that the run has made, and those that failed; or why there are none.
    checks: Result<[BTreeSet<String>; 2], String>,
    /// Whether the bug has struck.
    struck: bool,
}

/// The command that runs `stress` with a bug, or with none if that is empty.
pub fn stress(build: &Build, bug: &str) -> Command {
    let mut command = Command::new(&build.stress);
    command.current_dir(&build.folder);
    match bug {
        "" => command.env_remove(CHOICE),
        bug => command.env(CHOICE, bug),
    };
    command
}

fn run(build: &Build, bug: &str, args: &str) -> Outcome {
    let mut child = stress(build, bug)
        .args(args.split_whitespace())
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let reader = |from: Option<Box<dyn Read + Send>>| {
        let mut from = from.expect("it was asked for");
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is judged all the same.
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|out| Box::new(out) as _));
    let err = reader(child.stderr.take().map(|err| Box::new(err) as _));
    let began = Instant::now();
    while child.try_wait().expect("it is a child").is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(20));
    }
    let status = child.wait().expect("it is a child");
    let out = out.join().expect("no panic");
    let err = err.join().expect("no panic");
    let names = |json: &Value| {
        let checks = json["checks"].as_object()?;
        let failed = checks.iter().filter(|(_, holds)| **holds == false);
        let failed = failed.map(|(name, _)| name.clone()).collect();
        Some([checks.keys().cloned().collect(), failed])
    };
    let json: Option<Value> = serde_json::from_str(&out).ok();
    Outcome {
        checks: json.as_ref().and_then(names).ok_or(status.to_string()),
        struck: err.contains("the seeded bug"),
    }
}

/// Runs with a bug until the checks that must find it have failed. Returns what came of it, in
/// words, and whether they have.
fn is_found(build: &Build, one: &Seeded) -> (String, bool) {
    let mut said = format!("{:<20} {}", one.bug, one.args);
    let began = Instant::now();
    for _ in 0..ATTEMPTS {
        let Outcome { checks, struck } = run(build, one.bug, one.args);
        let took = began.elapsed().as_secs_f64();
        let struck = if struck { "" } else { ", never struck" };
        let (found, by) = match checks {
            Ok([_, failed]) => (
                one.found_by.iter().all(|&check| failed.contains(check)),
                format!("found by {failed:?}"),
            ),
            Err(why) => (false, why),
        };
        // To text: it cannot fail.
        let _ = write!(said, "\n{:<20} {took:.0} s, {by}{struck}", "");
        if found {
            return (said, true);
        }
    }
    (said, false)
}

/// Demands that each run of a bug whose name contains `only` finds it.
pub fn every_bug_is_found(build: &Build, only: &str) -> Result<(), String> {
    let runs: Vec<_> = SEEDED
        .iter()
        .filter(|one| one.name().contains(only))
        .collect();
    if runs.is_empty() {
        return Err(format!("no bug has {only} in its name; --list has them"));
    }
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Mostly they wait.
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(one) = runs.get(next.fetch_add(1, Relaxed)) {
                    let (said, found) = is_found(build, one);
                    println!("{said}");
                    if !found {
                        missed.lock().expect("no panic").push(said);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("no panic");
    if missed.is_empty() {
        println!("{} runs, each of which has found its bug", runs.len());
        return Ok(());
    }
    Err(format!("not found:\n{}", missed.join("\n")))
}

/// Demands that without a bug every check holds, and that every check has a bug that makes it
/// fail or a reason why it has none.
pub fn every_check_can_fail(build: &Build) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut checks = BTreeSet::new();
    let runs = FORMS.iter().copied();
    let runs: BTreeSet<_> = runs.chain(SEEDED.iter().map(|one| one.args)).collect();
    for args in &runs {
        let is_excepted = |check: &String| {
            let mut excepted = EXCEPT.iter();
            excepted.any(|(of, name, _)| *of == form(args) && name == check)
        };
        match run(build, "", args).checks {
            Ok([all, mut failed]) => {
                failed.retain(|check| !is_excepted(check));
                if !failed.is_empty() {
                    wrong.push(format!("without a bug: {failed:?}: {args}"));
                }
                checks.extend(all.into_iter().map(|check| (form(args), check)));
            }
            Err(why) => wrong.push(format!("without a bug: {why}: {args}")),
        }
    }
    let found = SEEDED.iter().flat_map(|one| {
        let checks = one.found_by.iter();
        checks.map(|check| (form(one.args), (*check).to_string()))
    });
    let found: BTreeSet<_> = found.collect();
    let excepted = EXCEPT.iter();
    let excepted = excepted.map(|(form, check, _)| ((*form).to_string(), (*check).to_string()));
    let excepted: BTreeSet<_> = excepted.collect();
    println!(
        "{} runs without a bug, {} checks, of which no bug makes {} fail",
        runs.len(),
        checks.len(),
        checks.difference(&found).count()
    );
    for (form, check) in &checks {
        let has_bug = found.contains(&(form.clone(), check.clone()));
        let has_reason = excepted.contains(&(form.clone(), check.clone()));
        match (has_bug, has_reason) {
            (false, false) => wrong.push(format!("no bug makes {check} of {form} fail")),
            (true, true) => wrong.push(format!("{check} of {form} has a bug and a reason")),
            _ => {}
        }
    }
    for (form, check) in found.union(&excepted) {
        if !checks.contains(&(form.clone(), check.clone())) {
            wrong.push(format!("{form} has no check {check}"));
        }
    }
    all_right(wrong)
}

/// Demands that each scenario that `stress` has is among the forms.
pub fn every_scenario_has_its_form(build: &Build) -> Result<(), String> {
    let help = stress(build, "").arg("--help").output();
    let help = help.map_err(|error| error.to_string())?.stdout;
    let help = String::from_utf8_lossy(&help);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = commands
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help");
    let first = |args: &&'static str| args.split(' ').next().unwrap_or_default();
    let forms: BTreeSet<_> = FORMS.iter().map(first).collect();
    let names: BTreeSet<_> = names.collect();
    let differ = names.symmetric_difference(&forms);
    all_right(
        differ
            .map(|name| format!("{name} is a scenario or a form, not both"))
            .collect(),
    )
}

fn all_right(wrong: Vec<String>) -> Result<(), String> {
    match wrong[..] {
        [] => Ok(()),
        [..] => Err(wrong.join("\n")),
    }
}
