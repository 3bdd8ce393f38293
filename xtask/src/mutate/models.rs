//! The loom models of the copy: how they are built and run, and which of them meet a mutant.

use super::sites::Mutant;
use crate::{in_threads, models, tree};
use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What a model may have of memory; one that goes round in a circle and collects takes all that
/// there is.
const MEMORY_KIB: &str = "4000000";

/// How far each model is explored, where the environment does not say otherwise.
const BOUNDS: [(&str, &str); 3] =
    [("EXPIRY_LOOM_SECONDS", "2"), ("EXPIRY_LOOM_PREEMPTIONS", "3"), ("EXPIRY_LOOM_PROGRAMS", "6")];

/// What became of a mutant.
#[derive(Debug, Default)]
pub struct Found {
    /// How many models it met.
    pub tried: usize,
    /// Which model killed it, and what that said.
    pub killed: Option<(String, String)>,
}

/// A model of `loom-tests`, and what it does without a mutant.
#[derive(Debug)]
struct Model {
    binary: PathBuf,
    /// Its file and its function, `topology::no_bell_is_missed`.
    name: String,
    took: Duration,
    /// The mutants that would have made a difference.
    differs: HashSet<usize>,
}

/// All models.
#[derive(Debug)]
pub struct Models {
    work: PathBuf,
    /// The quickest first.
    models: Vec<Model>,
    /// Functions and files, each with a model that has killed a mutant there.
    killers: Mutex<HashSet<(String, String)>>,
}

impl Models {
    /// Builds the copy, and runs each of its models whose name contains `of` without a mutant.
    pub fn new(work: &Path, of: &str) -> Result<Self, String> {
        let mut models =
            Models { work: work.into(), models: built(work, of)?, killers: Mutex::default() };
        let runs = Mutex::new(Vec::new());
        in_threads(&models.models, |model| {
            let run = models.first_run(model);
            runs.lock().unwrap().push(run);
        });
        let runs = runs.into_inner().unwrap().into_iter();
        models.models = runs.collect::<Result<_, _>>()?;
        models.models.sort_by_key(|model| model.took);
        let took: f64 = models.models.iter().map(|model| model.took.as_secs_f64()).sum();
        println!("{} models, {took:.0} s", models.models.len());
        Ok(models)
    }

    fn first_run(&self, model: &Model) -> Result<Model, String> {
        let seen = self.work.join(format!("seen-{}", model.name.replace(':', "_")));
        let _ = fs::remove_file(&seen);
        let began = Instant::now();
        let run = self.run(model, Duration::from_secs(3600), "EXPIRY_MUTANT_SEEN", &seen);
        run.map_err(|how| format!("{} fails without a mutant: {how}", model.name))?;
        let numbers = fs::read_to_string(&seen).unwrap_or_default();
        Ok(Model {
            binary: model.binary.clone(),
            name: model.name.clone(),
            took: began.elapsed(),
            differs: numbers.lines().filter_map(|line| line.parse().ok()).collect(),
        })
    }

    /// Runs the models that a mutant makes a difference in, until one fails.
    pub fn meet(&self, number: usize, mutant: &Mutant) -> Found {
        let mut found = Found::default();
        let met = |model: &&Model| model.differs.contains(&number);
        let mut models: Vec<&Model> = self.models.iter().filter(met).collect();
        self.likely_first(&mut models, mutant);
        for model in models {
            found.tried += 1;
            let limit = model.took * 3 + Duration::from_secs(30);
            if let Err(said) = self.run(model, limit, "EXPIRY_MUTANT", number.to_string().as_ref())
            {
                let mut killers = self.killers.lock().unwrap();
                for of in [&mutant.file, &mutant.function] {
                    killers.insert((of.clone(), model.name.clone()));
                }
                found.killed = Some((model.name.clone(), said));
                break;
            }
        }
        found
    }

    fn likely_first(&self, models: &mut [&Model], mutant: &Mutant) {
        let killers = self.killers.lock().unwrap();
        let spares =
            |of: &String, model: &Model| !killers.contains(&(of.clone(), model.name.clone()));
        models.sort_by_cached_key(|model| {
            let spares = (spares(&mutant.function, model), spares(&mutant.file, model));
            (spares, model.took)
        });
    }

    /// Runs a model in a process of its own, for `limit` at most, with one variable. Returns how it
    /// failed, if it did.
    fn run(&self, model: &Model, limit: Duration, name: &str, value: &Path) -> Result<(), String> {
        let limited = "ulimit -v $1; ulimit -c 0; shift; exec nice -n 19 \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", limited, "sh", MEMORY_KIB])
            .arg(&model.binary)
            .args(["--exact", &model.name, "--nocapture", "--test-threads=1"])
            .envs(BOUNDS.into_iter().filter(|(name, _)| env::var_os(name).is_none()))
            .env("RUST_BACKTRACE", "0")
            .env(name, value);
        match tree::run_within(command, limit, &self.work) {
            Err(error) => Err(format!("could not be run: {error}")),
            Ok((None, _)) => Err(format!("no end after {} s", limit.as_secs())),
            Ok((Some(status), _)) if status.success() => Ok(()),
            Ok((Some(status), said)) => Err(first_panic(&said).unwrap_or(status.to_string())),
        }
    }
}

/// Builds the copy and lists its models whose name contains `of`.
fn built(work: &Path, of: &str) -> Result<Vec<Model>, String> {
    let mut command = Command::new(tree::cargo());
    command
        .args(["test", "--locked", "--profile", "models", "-p", "loom-tests", "--tests"])
        .current_dir(work.join("copy"))
        // Rewritten code need not be tidy.
        .env("RUSTFLAGS", "--cfg expiry_loom --cap-lints warn -A warnings")
        .env("CARGO_TARGET_DIR", work.join("build"));
    let models = models::built(command)?.into_iter().filter(|(_, name)| name.contains(of));
    let model =
        |(binary, name)| Model { binary, name, took: Duration::ZERO, differs: HashSet::new() };
    let models: Vec<Model> = models.map(model).collect();
    (!models.is_empty()).then_some(models).ok_or("no models".into())
}

/// The first line of the first panic's message.
fn first_panic(said: &str) -> Option<String> {
    let mut lines = said.lines().skip_while(|line| !line.contains("panicked at "));
    lines.next()?;
    let message = lines.next()?.trim();
    // What was compared says more than that it was.
    let sides = lines
        .take(2)
        .map(str::trim)
        .filter(|line| line.starts_with("left:") || line.starts_with("right:"));
    let said: Vec<&str> = std::iter::once(message).chain(sides).collect();
    Some(said.join(" ").chars().take(160).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_is_told() {
        let said = "running\nthread 'a' panicked at b.rs:1:2:\nassertion `left == right` failed: late\n  left: 1\n right: 2\nnote: run";
        let told = "assertion `left == right` failed: late left: 1 right: 2";
        assert_eq!(first_panic(said).unwrap(), told);
        assert_eq!(first_panic("ok"), None);
    }
}
