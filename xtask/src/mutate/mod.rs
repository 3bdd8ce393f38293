//! `cargo xtask mutate`: weakens one ordering, fence or compare-and-swap at a time and looks which
//! loom model notices. Conditions are `cargo mutants`'.
//!
//! All mutants are in one build, of a copy of the workspace in which each site asks at run time
//! whether it is the one that was chosen ([`sites`]). A first run of each model without any says
//! how long it takes and which mutants would have made a difference in it; each mutant then meets
//! these models only, likely killers and quick ones first, until one fails. What is found is
//! written line by line to `target/mutate/mutants.tsv`, so a run that was cut off goes on where it
//! was. A survivor's reason stands at its site.

mod models;
mod report;
mod sites;

use crate::in_threads;
use crate::tree::{self, Sources};
use models::Models;
use report::{Report, KILLED};
use sites::Mutant;
use std::collections::HashSet;
use std::process::Command;

const HELP: &str = "\
cargo xtask mutate [options]

  --list           the mutants, and nothing else
  --changed        those in files that differ from main
  --only WORDS     those whose name contains this
  --survivors      those that survived, or that no model made use of, again
  --again          whatever the report says of them
  --models WORDS   the models whose name, `file::model`, contains this

EXPIRY_LOOM_SECONDS (2) and EXPIRY_LOOM_PREEMPTIONS (3) say how far a model is explored.
";

/// Files without sites: the models' own stand-ins, and clocks, whose atomics loom does not see.
const LEFT_OUT: [&str; 3] = ["src/sync/asymmetric.rs", "src/sync/park.rs", "src/time/"];

/// All that the models run of the topology.
const OF_TOPOLOGY: [&str; 2] = ["topology/src/gate.rs", "topology/src/inbox.rs"];

/// Whether the models run a file's code.
fn has_sites(file: &str) -> bool {
    let is_test = file.ends_with("/tests.rs") || file.contains("/tests/");
    let is_left_out = LEFT_OUT.iter().any(|left_out| file.starts_with(left_out));
    OF_TOPOLOGY.contains(&file) || file.starts_with("src/") && !is_test && !is_left_out
}

/// What was asked for.
#[derive(Debug, Default)]
struct Options {
    list: bool,
    changed: bool,
    only: String,
    models: String,
    survivors: bool,
    again: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or(format!("{word} of what?"));
            match word.as_str() {
                "--list" => options.list = true,
                "--changed" => options.changed = true,
                "--survivors" => options.survivors = true,
                "--again" => options.again = true,
                "--only" => options.only = value()?,
                "--models" => options.models = value()?,
                other => return Err(format!("unknown option: {other}\n\n{HELP}")),
            }
        }
        Ok(options)
    }
}

/// Does what the words of the command line ask for.
pub fn main(words: &[String]) -> Result<(), String> {
    if words == ["--help"] {
        print!("{HELP}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let (mut sources, mutants) = mutants()?;
    let changed = options.changed.then(changed).transpose()?;
    let wanted: Vec<_> = mutants
        .iter()
        .filter(|(_, mutant)| mutant.name().contains(&options.only))
        .filter(|(_, mutant)| changed.as_ref().map_or(true, |files| files.contains(&mutant.file)))
        .collect();
    if options.list {
        for (number, mutant) in wanted {
            let (name, place) = (mutant.name(), mutant.place());
            println!("{number}\t{name}\t{place}\t{}", mutant.text);
        }
        return Ok(());
    }
    let work = tree::work("mutate");
    let report = Report::open(&work.join("mutants.tsv"), &mutants);
    let mut due = wanted;
    due.retain(|(_, mutant)| {
        let verdict = report.verdict(&mutant.name());
        let survived = verdict.as_ref().is_some_and(|verdict| verdict != KILLED);
        verdict.is_none() || options.again || options.survivors && survived
    });
    println!("{} mutants, {} to run", mutants.len(), due.len());
    if due.is_empty() {
        return Ok(());
    }
    due.sort_by_key(|(_, mutant)| mutant.kind);
    tree::add_module(&mut sources, "weak", include_str!("weak.rs"));
    tree::write(&work.join("copy"), &sources)?;
    let models = Models::new(&work, &options.models)?;
    in_threads(&due, |(number, mutant)| {
        let found = models.meet(*number, mutant);
        // Where only some models ran, what they have not noticed stays as it was found before.
        let stays = !options.models.is_empty() && report.verdict(&mutant.name()).is_some();
        if !stays || found.killed.is_some() {
            report.add(mutant, &found);
        }
    });
    report.finish(&mutants)
}

/// Returns the rewritten sources, and all mutants with their numbers.
fn mutants() -> Result<(Sources, Vec<(usize, Mutant)>), String> {
    let mut sources = tree::sources()?;
    let mut mutants = Vec::new();
    for (file, source) in sources.iter_mut().filter(|(file, _)| has_sites(file)) {
        let weak = match file.starts_with("src/") {
            true => "crate::weak",
            false => "::expiry::weak",
        };
        let (rewritten, found) = sites::rewrite(file, source, weak, mutants.len() + 1)
            .map_err(|error| format!("{file}: {error}"))?;
        *source = rewritten;
        mutants.extend(found);
    }
    Ok((sources, (1..).zip(mutants).collect()))
}

/// Returns the files that differ from where this branch left `main`: what is not committed, if this
/// is `main`.
fn changed() -> Result<HashSet<String>, String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(tree::root()).output();
        let output = output.map_err(|error| format!("git: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let base = git(&["merge-base", "main", "HEAD"]).unwrap_or_else(|_| "HEAD".into());
    let mut files = git(&["diff", "--name-only", base.trim()])?;
    files += &git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(files.lines().map(String::from).collect())
}

#[cfg(test)]
mod tests {
    use super::sites::Kind;
    use super::*;

    /// All sources with their sites; a rewritten one is still a source.
    #[test]
    fn every_source_can_be_rewritten() {
        let (sources, mutants) = mutants().unwrap();
        for (file, source) in &sources {
            assert!(syn::parse_file(source).is_ok(), "{file}");
        }
        for kind in [Kind::Ordering, Kind::Fence, Kind::Cas] {
            assert!(mutants.iter().any(|(_, mutant)| mutant.kind == kind));
        }
        let names: HashSet<String> = mutants.iter().map(|(_, mutant)| mutant.name()).collect();
        assert_eq!(names.len(), mutants.len(), "a name is two mutants'");
    }
}
