//! Scenario `sessions`.

mod contended;
mod keys;
mod meet;
mod stays;
mod zookeeper;

use crate::error::Error;
use crate::options::Sessions;
use crate::report::Report;

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense.
pub fn run(options: &Sessions) -> Result<Report, Error> {
    if options.strings {
        meet::run::<String>(options)
    } else {
        meet::run::<u64>(options)
    }
}
