//! `--inject-bug`: gives this process one of the bugs that are seeded in the engine and in the executor, if it was built with them.

use crate::error::Error;
use crate::report::Report;

/// Gives this process the bug that was asked for, as `name` or `name/one_in`. False if it was only asked which there are.
///
/// # Errors
///
/// If there is no such bug, or none at all in this build.
#[cfg(expiry_inject)]
pub fn choose(asked: &str) -> Result<bool, Error> {
    let known = || {
        expiry::inject::BUGS
            .iter()
            .chain(expiry_topology::inject::BUGS)
    };
    if asked == "list" {
        known().for_each(|(name, what)| println!("{name:<17} {}", what.trim()));
        return Ok(false);
    }
    let (name, one_in) = asked.split_once('/').unwrap_or((asked, "1"));
    let one_in = one_in.parse().ok().filter(|&one_in| one_in > 0);
    let chosen = known().any(|(known, _)| *known == name)
        && one_in.is_some_and(|one_in| expiry::inject::choose(name, one_in));
    let unknown = || Error::UnknownBug {
        asked: asked.into(),
    };
    chosen.then_some(true).ok_or_else(unknown)
}

/// As above, where there are none.
///
/// # Errors
///
/// Always.
#[cfg(not(expiry_inject))]
pub fn choose(_asked: &str) -> Result<bool, Error> {
    Err(Error::NoBugs)
}

/// Says in the report how often the bug has struck.
pub fn note(report: &mut Report, asked: &str) {
    #[cfg(expiry_inject)]
    report.notes.push(format!(
        "the seeded bug {asked} has struck {} times",
        expiry::inject::hits()
    ));
    #[cfg(not(expiry_inject))]
    let _ = (report, asked);
}
