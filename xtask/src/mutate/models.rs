//! The loom models of the copy: how they are built and run, and which of them meet a mutant.

use super::report::{Found, Verdict};
use super::sites::Mutant;
use crate::tree;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How far each model is explored.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub seconds: u32,
    pub preemptions: u32,
}

/// What a model may have of memory; one that goes round in a circle and collects takes all that
/// there is.
const MEMORY_KIB: &str = "4000000";

/// A model of `loom-tests`.
#[derive(Debug, Clone)]
struct Model {
    binary: PathBuf,
    /// Its file and its function, `topology::no_bell_is_missed`.
    name: String,
}

/// All of them.
#[derive(Debug)]
pub struct Models {
    work: PathBuf,
    models: Vec<Model>,
}

/// How a model ended.
#[derive(Debug)]
enum Ended {
    Passed,
    Failed(String),
}

impl Models {
    /// Builds the copy. Of its models, those whose name contains `of`.
    pub fn build(work: &Path, of: &str) -> Result<Self, String> {
        let output = Command::new(tree::cargo())
            .args(["test", "--locked", "--release", "--no-run"])
            .args(["-p", "loom-tests", "--tests"])
            .arg("--message-format=json-render-diagnostics")
            .current_dir(work.join("copy"))
            // Rewritten code need not be tidy.
            .env(
                "RUSTFLAGS",
                "--cfg expiry_loom --cap-lints warn -A warnings",
            )
            .env("CARGO_TARGET_DIR", work.join("build"))
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| format!("cargo: {e}"))?;
        if !output.status.success() {
            return Err("the copy does not build".into());
        }
        let mut models = Vec::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((_, rest)) = line.split_once("\"executable\":\"") else {
                continue;
            };
            let binary = PathBuf::from(rest.split('"').next().unwrap_or(rest));
            let list = Command::new(&binary).arg("--list").output();
            let list = list.map_err(|e| format!("{}: {e}", binary.display()))?;
            for line in String::from_utf8_lossy(&list.stdout).lines() {
                let name = line.strip_suffix(": test");
                models.extend(name.filter(|name| name.contains(of)).map(|name| Model {
                    binary: binary.clone(),
                    name: name.into(),
                }));
            }
        }
        if models.is_empty() {
            return Err("no models".into());
        }
        Ok(Models {
            work: work.into(),
            models,
        })
    }

    /// Runs each model without a mutant, if that has not been done with this build and these
    /// settings.
    pub fn baseline(
        self,
        settings: Settings,
        processes: usize,
        of: &str,
    ) -> Result<Baseline, String> {
        let Settings {
            seconds,
            preemptions,
        } = settings;
        let kept = self
            .work
            .join(format!("baseline-{of}-{seconds}-{preemptions}.tsv"));
        let stamp = self.stamp();
        let mut runs = match fs::read_to_string(&kept) {
            Ok(text) if text.lines().next() == Some(&stamp) => self.kept(&text),
            _ => {
                let runs = self.run_all(settings, processes)?;
                let lines: String = runs.iter().map(Run::line).collect();
                fs::write(&kept, format!("{stamp}\n{lines}"))
                    .map_err(|e| format!("{}: {e}", kept.display()))?;
                runs
            }
        };
        runs.sort_by_key(|run| run.took);
        let took: f64 = runs.iter().map(|run| run.took.as_secs_f64()).sum();
        println!("{} models, {took:.0} s", runs.len());
        Ok(Baseline {
            work: self.work,
            settings,
            runs,
            killers: Mutex::default(),
        })
    }

    /// Another one when something was built again.
    fn stamp(&self) -> String {
        let binaries = self.models.iter().map(|model| &model.binary);
        let built = binaries.filter_map(|binary| fs::metadata(binary).ok()?.modified().ok());
        format!("{:?} {}", built.max(), self.models.len())
    }

    fn kept(&self, text: &str) -> Vec<Run> {
        let runs = text.lines().skip(1).filter_map(|line| {
            let mut columns = line.split('\t');
            let label = columns.next()?;
            let models = &self.models;
            let model = models.iter().find(|model| model.name == label)?.clone();
            let took = Duration::from_millis(columns.next()?.parse().ok()?);
            let mut numbers = || -> Option<HashSet<usize>> {
                let numbers = columns.next()?.split(' ');
                Some(numbers.filter_map(|number| number.parse().ok()).collect())
            };
            let (comes_to, differs) = (numbers()?, numbers()?);
            Some(Run {
                model,
                took,
                comes_to,
                differs,
            })
        });
        runs.collect()
    }

    fn run_all(&self, settings: Settings, processes: usize) -> Result<Vec<Run>, String> {
        let next = AtomicUsize::new(0);
        let runs: Mutex<Vec<Run>> = Mutex::default();
        let errors: Mutex<Vec<String>> = Mutex::default();
        thread::scope(|scope| {
            for _ in 0..processes {
                scope.spawn(|| {
                    while let Some(model) = self.models.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match Run::of(model, &self.work, settings) {
                            Ok(run) => runs.lock().unwrap().push(run),
                            Err(error) => errors.lock().unwrap().push(error),
                        }
                    }
                });
            }
        });
        let errors = errors.into_inner().unwrap();
        if !errors.is_empty() {
            return Err(errors.join("\n"));
        }
        Ok(runs.into_inner().unwrap())
    }
}

/// One model without a mutant.
#[derive(Debug)]
struct Run {
    model: Model,
    took: Duration,
    /// The mutants whose sites it comes to.
    comes_to: HashSet<usize>,
    /// Those that would have made a difference.
    differs: HashSet<usize>,
}

impl Run {
    fn line(&self) -> String {
        let list = |numbers: &HashSet<usize>| {
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            numbers.join(" ")
        };
        let (comes_to, differs) = (list(&self.comes_to), list(&self.differs));
        let (label, took) = (&self.model.name, self.took.as_millis());
        format!("{label}\t{took}\t{comes_to}\t{differs}\n")
    }

    fn of(model: &Model, work: &Path, settings: Settings) -> Result<Self, String> {
        let seen = work.join(format!("seen-{}", model.file()));
        let _ = fs::remove_file(&seen);
        let began = Instant::now();
        let none = Duration::from_secs(3600);
        if let Ended::Failed(how) = model.run(work, settings, none, &[], Some(&seen)) {
            return Err(format!("{} fails without a mutant: {how}", model.name));
        }
        let took = began.elapsed();
        let numbers = fs::read_to_string(&seen).unwrap_or_default();
        let numbers = numbers
            .lines()
            .filter_map(|line| line.parse::<isize>().ok());
        let (differs, comes_to): (Vec<_>, Vec<_>) = numbers.partition(|&number| number > 0);
        Ok(Run {
            model: model.clone(),
            took,
            comes_to: comes_to.into_iter().map(isize::unsigned_abs).collect(),
            differs: differs.into_iter().map(isize::unsigned_abs).collect(),
        })
    }
}

impl Model {
    /// A name for a file.
    fn file(&self) -> String {
        self.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    }

    /// Runs it in a process of its own, for `limit` at most.
    fn run(
        &self,
        work: &Path,
        settings: Settings,
        limit: Duration,
        mutants: &[usize],
        seen: Option<&Path>,
    ) -> Ended {
        let said = work.join(format!("said-{}-{:?}", self.file(), thread::current().id()));
        let ended = self.ended(&said, settings, limit, mutants, seen);
        let _ = fs::remove_file(&said);
        ended.unwrap_or_else(|error| Ended::Failed(format!("could not be run: {error}")))
    }

    fn ended(
        &self,
        said: &Path,
        settings: Settings,
        limit: Duration,
        mutants: &[usize],
        seen: Option<&Path>,
    ) -> std::io::Result<Ended> {
        let file = File::create(said)?;
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "ulimit -v $1; ulimit -c 0; shift; exec nice -n 19 \"$@\"",
                "sh",
            ])
            .arg(MEMORY_KIB)
            .arg(&self.binary)
            .args(["--exact", &self.name, "--nocapture", "--test-threads=1"])
            .env("EXPIRY_LOOM_SECONDS", settings.seconds.to_string())
            .env("EXPIRY_LOOM_PREEMPTIONS", settings.preemptions.to_string())
            .env("EXPIRY_LOOM_PROGRAMS", "6")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        if !mutants.is_empty() {
            let numbers: Vec<String> = mutants.iter().map(usize::to_string).collect();
            command.env("EXPIRY_MUTANT", numbers.join(","));
        }
        if let Some(seen) = seen {
            command.env("EXPIRY_MUTANT_SEEN", seen);
        }
        let mut child = command.spawn()?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if began.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                return Ok(Ended::Failed(format!("no end after {} s", limit.as_secs())));
            }
            thread::sleep(Duration::from_millis(3));
        };
        if status.success() {
            return Ok(Ended::Passed);
        }
        let said = String::from_utf8_lossy(&fs::read(said)?).into_owned();
        Ok(Ended::Failed(
            first_panic(&said).unwrap_or(status.to_string()),
        ))
    }
}

/// The first line of the first panic's message.
fn first_panic(said: &str) -> Option<String> {
    let mut lines = said
        .lines()
        .skip_while(|line| !line.contains("panicked at "));
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

/// What the models do without a mutant, and what has been learned of mutants.
#[derive(Debug)]
pub struct Baseline {
    work: PathBuf,
    settings: Settings,
    /// The quickest first.
    runs: Vec<Run>,
    /// How many mutants of a function or of a file each model has killed.
    killers: Mutex<HashMap<(String, String), u32>>,
}

impl Baseline {
    /// Runs the models that a mutant makes a difference in, until one fails.
    pub fn meet(&self, number: usize, mutant: &Mutant) -> Found {
        let mut found = self.found(number, None, String::new());
        let met = |run: &&Run| run.differs.contains(&number);
        let mut runs: Vec<&Run> = self.runs.iter().filter(met).collect();
        found.tried = 0;
        self.likely_first(&mut runs, mutant);
        for run in runs {
            found.tried += 1;
            if let Ended::Failed(said) = self.run(run, &[number]) {
                found.verdict = Verdict::Killed;
                found.model.clone_from(&run.model.name);
                found.said = said;
                self.learn(&run.model.name, mutant);
                break;
            }
        }
        found
    }

    fn run(&self, run: &Run, mutants: &[usize]) -> Ended {
        let limit = run.took * 3 + Duration::from_secs(30);
        run.model
            .run(&self.work, self.settings, limit, mutants, None)
    }

    /// Meets many mutants with few runs. Weaker orderings allow more: a model that passes with all
    /// of these mutants at once would have passed with each. So each model runs with all that
    /// survive, and where it fails, with half of them, and so on. `each` is called with every
    /// mutant in the end.
    pub fn meet_together(
        &self,
        processes: usize,
        mutants: &HashSet<usize>,
        each: impl Fn(usize, &Found) + Sync,
    ) {
        let next = AtomicUsize::new(0);
        let killed: Mutex<HashSet<usize>> = Mutex::default();
        thread::scope(|scope| {
            for _ in 0..processes {
                scope.spawn(|| {
                    while let Some(run) = self.runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let left: Vec<usize> = {
                            let killed = killed.lock().unwrap();
                            let left = |number: &&usize| {
                                run.differs.contains(number) && !killed.contains(number)
                            };
                            mutants.iter().filter(left).copied().collect()
                        };
                        self.split(run, &left, &mut |number, said| {
                            if killed.lock().unwrap().insert(number) {
                                each(number, &self.found(number, Some(run), said));
                            }
                        });
                    }
                });
            }
        });
        let killed = killed.into_inner().unwrap();
        for &number in mutants.iter().filter(|number| !killed.contains(number)) {
            each(number, &self.found(number, None, String::new()));
        }
    }

    fn split(&self, run: &Run, mutants: &[usize], killed: &mut impl FnMut(usize, String)) {
        if mutants.is_empty() {
            return;
        }
        let Ended::Failed(said) = self.run(run, mutants) else {
            return;
        };
        println!("{} fails with {mutants:?}: {said}", run.model.name);
        if let &[one] = mutants {
            return killed(one, said);
        }
        let (left, right) = mutants.split_at(mutants.len() / 2);
        self.split(run, left, killed);
        self.split(run, right, killed);
    }

    fn found(&self, number: usize, killer: Option<&Run>, said: String) -> Found {
        let met = self.runs.iter().filter(|run| run.differs.contains(&number));
        let reached = self.runs.iter().any(|run| run.comes_to.contains(&number));
        let tried = met.count();
        Found {
            verdict: match (killer, tried, reached) {
                (Some(_), ..) => Verdict::Killed,
                (None, 0, true) => Verdict::Idle,
                (None, 0, false) => Verdict::Unreached,
                (None, ..) => Verdict::Survived,
            },
            model: killer.map_or(String::new(), |run| run.model.name.clone()),
            said,
            tried,
            settings: self.settings,
        }
    }

    fn learn(&self, model: &str, mutant: &Mutant) {
        let mut killers = self.killers.lock().unwrap();
        for of in [&mutant.file, &mutant.function] {
            *killers.entry((of.clone(), model.into())).or_default() += 1;
        }
    }

    fn likely_first(&self, runs: &mut [&Run], mutant: &Mutant) {
        let killers = self.killers.lock().unwrap();
        let killed = |of: &String, run: &Run| {
            killers
                .get(&(of.clone(), run.model.name.clone()))
                .map_or(0.0, |&killed| f64::from(killed))
        };
        let cost = |run: &Run| {
            let took = run.took.as_secs_f64().max(0.05);
            took / (1.0 + 8.0 * killed(&mutant.function, run) + killed(&mutant.file, run))
        };
        runs.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_is_told() {
        let said = "running\nthread 'a' panicked at b.rs:1:2:\nassertion `left == right` failed: late\n  left: 1\n right: 2\nnote: run";
        let told = "assertion `left == right` failed: late left: 1 right: 2";
        assert_eq!(first_panic(said).unwrap(), told);
        let said = "thread 'a' panicked at b.rs:1:2:\ndeadlock\nnote: run with\nthread 'a' panicked at c.rs";
        assert_eq!(first_panic(said).unwrap(), "deadlock");
        assert_eq!(first_panic("ok"), None);
    }
}
