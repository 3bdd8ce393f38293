//! Scenario `sessions`: keys that are renewed, removed and expire, and threads that meet on them.
//!
//! An expiry queue, or with `--tracker` a session tracker, under calls from all threads, whose
//! histories must be linearizable: that is the scenario `histories` on one of its store types.
//! `--contended` is another drive, for one kind of mistake only, and many more keys: see
//! `contended`.

mod contended;
mod keys;
mod stays;
#[path = "../../../benches/src/peers/zookeeper.rs"]
mod zookeeper;

use crate::error::Error;
use crate::histories;
use crate::options::{Histories, On, Sessions};
use crate::report::Report;
pub use keys::Key;

/// How long a run is if the options do not say, in seconds.
const SECONDS: f64 = 10.0;

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense.
pub fn run(options: &Sessions) -> Result<Report, Error> {
    match (options.contended, options.strings) {
        (true, false) => return contended::run::<u64>(options),
        (true, true) => return contended::run::<String>(options),
        (false, _) => {}
    }
    let most = |option, given: u64, most: u8| match u8::try_from(given) {
        Ok(given) if given <= most => Ok(given),
        _ => {
            Err(Error::Option { option, why: format!("is above {most}; use less, or --contended") })
        }
    };
    let mut report = histories::run(&Histories {
        on: Some(if options.tracker { On::Sessions } else { On::Queue }),
        threads: most("--threads", options.threads.unwrap_or(3).into(), 48)?,
        seconds: options.seconds.unwrap_or(SECONDS),
        keys: most("--keys", options.keys.unwrap_or(4), u8::MAX)?.into(),
        operations: 20_000,
        seed: options.seed,
    })?;
    report.scenario = "sessions";
    Ok(report)
}
