//! Weakens one thing at a time and looks which loom model notices: see `docs/verification.md`.
//!
//! All mutants are in one build, of a copy of the workspace in which each site asks at run time
//! whether it is the one that was chosen ([`sites`]). A first run of each model without any says
//! how long it takes and which mutants would have made a difference in it; each mutant then meets
//! these models only, likely killers and quick ones first, until one fails. What is found is
//! written line by line, so a run that was cut off goes on where it was.

mod copy;
mod models;
mod report;
mod sites;

use models::{Models, Settings, Suite};
use report::{Found, Report, Verdict};
use sites::{Kind, Mutant};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const HELP: &str = "\
cargo xtask weaken [options]

  --list           the mutants, and nothing else
  --only WORDS     those whose name contains this
  --survivors      those that survived, or that no model made use of, again
  --again          whatever the report says of them
  --tests          conditions and expectations that survived, or that no model made use of, by the ordinary tests
  --together       orderings only, and all at once: each model runs with all, and where it fails with half of them, and so on
  --seconds N      how long a model is explored (EXPIRY_LOOM_SECONDS), 2
  --preemptions N  as EXPIRY_LOOM_PREEMPTIONS, 3
  --models WORDS   the models whose name, `file::model`, contains this
  --over MS        the models that take longer than that when nothing is wrong
  --within MS      without the models that take longer when nothing is wrong
  --processes N    models that run at the same time, 2
";

/// What was asked for.
#[derive(Debug)]
struct Options {
    list: bool,
    only: String,
    models: String,
    survivors: bool,
    again: bool,
    tests: bool,
    together: bool,
    settings: Settings,
    processes: usize,
    over: Duration,
    within: Duration,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            list: false,
            only: String::new(),
            models: String::new(),
            survivors: false,
            again: false,
            tests: false,
            together: false,
            settings: Settings {
                seconds: 2,
                preemptions: 3,
            },
            processes: 2,
            over: Duration::ZERO,
            within: Duration::MAX,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} of what?"));
            let number = |value: String| {
                value
                    .parse::<u32>()
                    .map_err(|_| format!("{value}: no number"))
            };
            match word.as_str() {
                "--list" => options.list = true,
                "--survivors" => options.survivors = true,
                "--again" => options.again = true,
                "--tests" => options.tests = true,
                "--together" => options.together = true,
                "--only" => options.only = value()?,
                "--models" => options.models = value()?,
                "--seconds" => options.settings.seconds = number(value()?)?,
                "--preemptions" => options.settings.preemptions = number(value()?)?,
                "--over" => options.over = Duration::from_millis(number(value()?)?.into()),
                "--within" => options.within = Duration::from_millis(number(value()?)?.into()),
                "--processes" => options.processes = number(value()?)? as usize,
                "--help" => return Err(String::new()),
                other => return Err(format!("unknown option: {other}")),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprint!("{error}\n\n{HELP}");
            return ExitCode::FAILURE;
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Where the workspace is.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("a member of a workspace").into()
}

fn run(options: &Options) -> Result<(), String> {
    let root = root();
    let sources = copy::sources(&root)?;
    let mutants = sources.mutants();
    if options.list {
        for (number, mutant) in &mutants {
            let (name, line) = (mutant.name(), mutant.line);
            println!(
                "{number}\t{name}\t{line}:{}\t{}",
                mutant.column, mutant.text
            );
        }
        return Ok(());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let work = root.join(target).join("weaken");
    sources.write(&root, &work)?;
    let suite = if options.tests {
        Suite::Tests
    } else {
        Suite::Loom
    };
    let models = Models::build(suite, &work, &options.models)?;
    let mut baseline = models.baseline(options.settings, options.processes)?;
    baseline.only(options.over, options.within);
    let report = Report::open(&work.join("mutants.tsv"), &mutants)?;
    let mut due: Vec<_> = mutants
        .iter()
        .filter(|(_, mutant)| mutant.name().contains(&options.only))
        .filter(|(_, mutant)| {
            let verdict = report.verdict(&mutant.name());
            match suite {
                // What these processors do with a weaker ordering says nothing.
                Suite::Tests => {
                    verdict.is_some()
                        && !matches!(mutant.kind, Kind::Ordering | Kind::Fence)
                        && verdict > Some(Verdict::Tested)
                }
                Suite::Loom => {
                    verdict.is_none()
                        || options.again
                        || options.survivors && verdict > Some(Verdict::Tested)
                }
            }
        })
        .filter(|(_, mutant)| !options.together || mutant.kind == Kind::Ordering)
        .collect();
    due.sort_by_key(|(_, mutant)| mutant.kind);
    println!("{} mutants, {} to run", mutants.len(), due.len());
    // Where only some models ran, or tests, what they have not noticed stays as it was found
    // before.
    let some = suite == Suite::Tests || !options.models.is_empty() || options.over > Duration::ZERO;
    let note = |mutant: &Mutant, found: &Found| {
        if !some || found.verdict <= Verdict::Tested {
            report.add(mutant, found);
        }
    };
    if options.together {
        let numbers: Vec<usize> = due.iter().map(|(number, _)| *number).collect();
        baseline.meet_together(options.processes, &numbers, |number, found| {
            note(&mutants[number - 1].1, found);
        });
        due.clear();
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..options.processes {
            scope.spawn(|| {
                while let Some((number, mutant)) = due.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = baseline.meet(*number, mutant);
                    note(mutant, &found);
                }
            });
        }
    });
    println!("{}", report::summary(&report.finish()?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// All sources with their sites; a rewritten one is still a source.
    #[test]
    fn every_source_can_be_rewritten() {
        let mutants = copy::sources(&root()).unwrap().mutants();
        for kind in [
            Kind::Ordering,
            Kind::Fence,
            Kind::Cas,
            Kind::True,
            Kind::False,
        ] {
            assert!(mutants.iter().any(|(_, mutant)| mutant.kind == kind));
        }
        let names: HashSet<String> = mutants.iter().map(|(_, mutant)| mutant.name()).collect();
        assert_eq!(names.len(), mutants.len(), "a name is two mutants'");
    }

    #[test]
    #[ignore = "builds the copy, which takes minutes"]
    fn a_bell_without_a_fence_is_noticed() {
        let root = root();
        let sources = copy::sources(&root).unwrap();
        let work = root.join("target/weaken");
        sources.write(&root, &work).unwrap();
        let settings = Settings {
            seconds: 10,
            preemptions: 3,
        };
        let models = Models::build(Suite::Loom, &work, "topology").unwrap();
        let baseline = models.baseline(settings, 1).unwrap();
        let mutants = sources.mutants();
        let meets = |name: &str| {
            let of = |(_, mutant): &&(usize, Mutant)| mutant.name() == name;
            let (number, mutant) = mutants.iter().find(of).unwrap();
            baseline.meet(*number, mutant)
        };
        for fence in ["Bell::ring", "Bell::sleep"] {
            let found = meets(&format!("topology/src/inbox.rs {fence} fence#1"));
            assert_eq!(found.verdict, Verdict::Killed);
            assert_eq!(found.model, "topology::no_bell_is_missed");
        }
        // It only wakes in vain.
        let found = meets("topology/src/inbox.rs Bell::ring true#2");
        assert_eq!(found.verdict, Verdict::Survived);
    }
}
