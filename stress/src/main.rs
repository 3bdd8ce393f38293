//! `stress` runs the expiry engine on real input and under load, and injects faults. At the end it
//! proves that nothing was lost, nothing came early and nothing was delivered twice.

mod ack;
mod cache;
mod checks;
mod counts;
mod crowd;
mod error;
mod faults;
mod growth;
mod histories;
mod hostile;
mod interrupt;
mod keys;
mod latency;
mod ledger;
mod live;
#[cfg(feature = "nats")]
mod nats;
mod options;
mod pace;
mod refusing;
mod report;
mod soak;
mod subject;
mod usage;
mod watch;
mod wordcount;

use clap::Parser;
use error::Error;
use options::{Cli, Scenario, Soak};
use report::Report;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The exit status when a check has failed.
const FAILED: u8 = 1;
/// The exit status when the scenario could not be run: bad options, bad input.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    interrupt::listen();
    let scenario = Arc::new(cli.scenario.unwrap_or(Scenario::Soak(Soak::default())));
    let ran = watch::over(&scenario, cli.stuck_after);
    let ran = ran.and_then(|mut report| {
        if interrupt::asked() {
            report.notes.insert(0, "ended by Ctrl-C".into());
        }
        let passed = report.passed;
        report.print(&cli.output)?;
        Ok(passed)
    });
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(error) => {
            eprintln!("stress: {error}");
            ExitCode::from(UNUSABLE)
        }
    }
}

/// Runs a scenario. `limit` is for how long nothing may move in a run of a soak.
fn perform(scenario: &Scenario, limit: Duration) -> Result<Report, Error> {
    match scenario {
        Scenario::Wordcount(options) => wordcount::run(options),
        Scenario::Ack(options) => ack::run(options),
        Scenario::Histories(options) => histories::run(options),
        Scenario::Cache(options) => cache::run(options),
        Scenario::Growth(options) => growth::run(options),
        Scenario::Faults(options) => faults::run(options),
        Scenario::Hostile(options) => hostile::run(options),
        #[cfg(feature = "nats")]
        Scenario::Nats(options) => nats::run(options),
        #[cfg(not(feature = "nats"))]
        Scenario::Nats(_) => Err(Error::WithoutNats),
        Scenario::Soak(options) => soak::run(options, limit),
    }
}
