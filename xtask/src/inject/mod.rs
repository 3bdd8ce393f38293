//! `cargo xtask inject`: each seeded bug is found by the stress scenarios, and each check of the
//! scenarios fails because of one.
//!
//! One build of a copy of the workspace has all bugs ([`bugs`]), and each process chooses at most
//! one: the variable `EXPIRY_BUG` names it. [`judge`] demands that the runs find the bugs.

mod bugs;
mod judge;
mod runs;
#[cfg(test)]
mod seeded;

use crate::tree;
use bugs::Bug;
use runs::Runs;
use std::path::PathBuf;
use std::process::Command;

const HELP: &str = "\
cargo xtask inject                       every bug is found, every check fails because of one
cargo xtask inject --only WORD           the runs of the bugs whose names contain this
cargo xtask inject --run BUG[/N] ARGS..  stress with these arguments and one bug, which strikes one
                                         time in N
cargo xtask inject --list                the bugs, and what each does
";

/// Does what the words of the command line ask for.
pub fn main(words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (mut bugs, runs) = bugs::bugs()?;
    match words[..] {
        [] => all(&bugs, &runs),
        ["--only", only] => {
            let build = build(&bugs)?;
            bugs.retain(|bug| bug.name.contains(only));
            if bugs.is_empty() {
                return Err(format!("no bug has {only} in its name; --list has them"));
            }
            judge::every_bug_is_found(&build, &bugs)
        }
        ["--run", bug, ref args @ ..] => run(&bugs, bug, args),
        ["--list"] => {
            for bug in bugs {
                println!("{:<17} {}", bug.name, bug.what);
            }
            Ok(())
        }
        ["--help"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(HELP.into()),
    }
}

/// Asks whether each bug has its place in the sources.
pub fn places() -> Result<(), String> {
    bugs::apply(&bugs::bugs()?.0, &mut tree::sources()?)
}

/// Makes all demands, so that one that is not met does not hide another.
fn all(bugs: &[Bug], runs: &Runs) -> Result<(), String> {
    let build = build(bugs)?;
    let met = [
        judge::every_scenario_has_its_form(&build, &runs.forms),
        judge::every_bug_is_found(&build, bugs),
        judge::every_check_can_fail(&build, bugs, runs),
    ];
    let not_met: Vec<String> = met.into_iter().filter_map(Result::err).collect();
    match not_met[..] {
        [] => Ok(()),
        [..] => Err(not_met.join("\n")),
    }
}

/// Runs `stress` with one bug.
fn run(bugs: &[Bug], bug: &str, args: &[&str]) -> Result<(), String> {
    let (name, rate) = bug.split_once('/').unwrap_or((bug, "1"));
    if bugs.iter().all(|bug| bug.name != name) {
        return Err(format!("{name} is no bug; --list has them"));
    }
    if rate.parse::<u32>().map_or(true, |one_in| one_in == 0) {
        return Err(format!("{bug}: a bug strikes one time in 1 or more"));
    }
    let build = build(bugs)?;
    println!("EXPIRY_BUG={bug} {} {}", build.program.display(), args.join(" "));
    let status = build.stress(bug).args(args).status();
    let status = status.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(format!("stress: {status}"))
}

/// A build of `stress` that has every bug, of which a process chooses at most one.
struct Build {
    /// The folder of the crate `stress` in the copy. Scenarios find their input from there.
    folder: PathBuf,
    program: PathBuf,
}

impl Build {
    /// Returns the command that runs `stress` with a bug, or with none if that is empty.
    fn stress(&self, bug: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder);
        match bug {
            "" => command.env_remove("EXPIRY_BUG"),
            bug => command.env("EXPIRY_BUG", bug),
        };
        command
    }
}

/// Copies the workspace to `target/inject/tree`, adds the bugs and builds the copy's `stress`.
fn build(bugs: &[Bug]) -> Result<Build, String> {
    let work = tree::work("inject");
    let (copy, target) = (work.join("tree"), work.join("build"));
    let mut sources = tree::sources()?;
    bugs::apply(bugs, &mut sources)?;
    tree::add_module(&mut sources, "seeded", include_str!("seeded.rs"));
    tree::write(&copy, &sources)?;
    let status = Command::new(tree::cargo())
        .args(["build", "--locked", "--release", "-p", "stress"])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(&copy)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return Err("the copy with the bugs does not build".into());
    }
    let name = format!("stress{}", std::env::consts::EXE_SUFFIX);
    Ok(Build { folder: copy.join("stress"), program: target.join("release").join(name) })
}
