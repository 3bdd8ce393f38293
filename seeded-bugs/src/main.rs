//! Seeded bugs (`cargo xtask inject`): each is found by the stress scenarios, and each check of
//! the scenarios fails because of one.
//!
//! The bugs are patches (`bugs/`, `README.md`). One build of a copy of the workspace has them all,
//! and each process chooses at most one ([`series`]). [`runs`] says what must find which bug, and
//! [`judge`] demands it.

mod judge;
mod patch;
mod runs;
#[cfg(test)]
mod runtime;
mod series;

use series::CHOICE;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask inject                       every bug is found, every check fails because of one
cargo xtask inject --only WORD           the runs of the bugs whose names contain this
cargo xtask inject --run BUG[/N] ARGS..  stress with these arguments and one bug, which strikes one
                                         time in N
cargo xtask inject --list                the bugs, and what each does
cargo xtask inject --refresh             writes the patches anew where code has moved
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => all(),
        ["--only", only] => series::build().and_then(|b| judge::every_bug_is_found(&b, only)),
        ["--run", bug, ref args @ ..] => run(bug, args),
        ["--list"] => list(),
        ["--refresh"] => series::refresh(),
        ["--help"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(HELP.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}", why.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Makes all demands, so that one that is not met does not hide another.
fn all() -> Result<(), String> {
    let build = series::build()?;
    let met = [
        judge::every_scenario_has_its_form(&build),
        judge::every_bug_is_found(&build, ""),
        judge::every_check_can_fail(&build),
    ];
    let not_met: Vec<String> = met.into_iter().filter_map(Result::err).collect();
    match not_met[..] {
        [] => Ok(()),
        [..] => Err(not_met.join("\n")),
    }
}

fn list() -> Result<(), String> {
    for patch in series::patches()? {
        println!("{:<17} {}", patch.name, patch.what.replace('\n', " "));
    }
    Ok(())
}

/// Runs `stress` with one bug.
fn run(bug: &str, args: &[&str]) -> Result<(), String> {
    let (name, rate) = bug.split_once('/').unwrap_or((bug, "1"));
    if series::patches()?.iter().all(|patch| patch.name != name) {
        return Err(format!("{name} is no bug; --list has them"));
    }
    if rate.parse::<u32>().map_or(true, |one_in| one_in == 0) {
        return Err(format!("{bug}: a bug strikes one time in 1 or more"));
    }
    let build = series::build()?;
    println!(
        "{CHOICE}={bug} {} {}",
        build.stress.display(),
        args.join(" ")
    );
    let status = judge::stress(&build, bug).args(args).status();
    let status = status.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(format!("stress: {status}"))
}
