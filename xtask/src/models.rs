//! Builds the loom models, and runs each in a process of its own.
//!
//! A panic in a destructor aborts the process. In a process of its own a model that does so is
//! named, and the others run.

use crate::{in_threads, tree, LOOM, LOOM_ENV};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// The models of the programs that a command of cargo builds: the program and the name of each.
pub fn built(mut command: Command) -> Result<Vec<(PathBuf, String)>, String> {
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the models do not build".into());
    }
    let mut models = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((_, rest)) = line.split_once("\"executable\":\"") else {
            continue;
        };
        let binary = PathBuf::from(rest.split('"').next().unwrap_or(rest));
        let list = Command::new(&binary).arg("--list").output();
        let list = list.map_err(tree::failed(&binary))?;
        let list = String::from_utf8_lossy(&list.stdout);
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        models.extend(names.map(|name| (binary.clone(), name.to_string())));
    }
    if models.is_empty() {
        return Err("no models".into());
    }
    Ok(models)
}

/// Begins to build the models with what the other steps leave of the processors: many tests wait.
/// [`run`] waits for this at cargo's lock, and says what went wrong.
pub fn begin_to_build() -> Option<Child> {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(tree::cargo()).args(LOOM.split(' ')).arg("--no-run");
    command.envs(LOOM_ENV).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

/// Runs all models, as many at a time as there are processors.
pub fn run() -> Result<(), String> {
    let mut command = Command::new(tree::cargo());
    command.args(LOOM.split(' ')).envs(LOOM_ENV);
    let mut models = built(command)?;
    // Some of the last in the alphabet take longest. They begin first, so that no processor is idle
    // while one of them ends.
    models.reverse();
    let failed = Mutex::new(Vec::new());
    in_threads(&models, |(binary, name)| {
        let began = Instant::now();
        let run = Command::new(binary).args(["--exact", name]).output();
        let (passed, said) = match run {
            Ok(output) => (output.status.success(), [output.stdout, output.stderr].concat()),
            Err(error) => (false, error.to_string().into_bytes()),
        };
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("model {name} ... {verdict} ({:.1} s)", began.elapsed().as_secs_f64());
        if !passed {
            println!("{}", String::from_utf8_lossy(&said));
            failed.lock().unwrap().push(name.clone());
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("{} models, {} failed", models.len(), failed.len());
    if failed.is_empty() {
        return Ok(());
    }
    Err(failed.join(", "))
}
