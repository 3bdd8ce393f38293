//! Scenario `sessions`: fresh keys of an expiry queue, on which threads meet. It finds one kind of
//! mistake only, on many keys: see `contended`. Keys that threads come back to, and the sessions of
//! a tracker, are the scenario `histories`'.

mod contended;
mod stays;

use crate::error::Error;
use crate::options::Sessions;
use crate::report::Report;

/// How long a run is if the options do not say, in seconds.
const SECONDS: f64 = 10.0;

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense.
pub fn run(options: &Sessions) -> Result<Report, Error> {
    if options.strings {
        contended::run::<String>(options)
    } else {
        contended::run::<u64>(options)
    }
}
