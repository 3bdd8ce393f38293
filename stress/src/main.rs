//! `stress`: runs the expiry engine on real input and under load, injects faults, and proves at the end
//! that nothing was lost, nothing came early and nothing was told twice.

mod ack;
mod checks;
mod error;
mod faults;
mod histories;
mod hostile;
mod interrupt;
mod latency;
mod live;
mod machine;
mod options;
mod page;
mod refusing;
mod report;
mod sessions;
mod soak;
mod timeline;
mod ttl;
mod usage;
mod wordcount;

use clap::{CommandFactory, Parser};
use error::Error;
use options::{Cli, Scenario};
use report::Report;
use std::process::ExitCode;

/// The exit status when a check has failed.
const FAILED: u8 = 1;
/// The exit status when the scenario could not be run: bad options, bad input.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    interrupt::listen();
    #[cfg(expiry_inject)]
    inject();
    let Some(scenario) = cli.scenario else {
        // Help that was not asked for is an error's text.
        eprintln!("{}", Cli::command().render_long_help());
        return ExitCode::from(UNUSABLE);
    };
    let ran = perform(&scenario);
    let ran = ran.and_then(|report| {
        let passed = report.passed();
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

/// In builds with `--cfg expiry_inject`: gives the engine the bug that `EXPIRY_INJECT` names, as `name` or `name/one_in`.
#[cfg(expiry_inject)]
fn inject() {
    let Ok(asked) = std::env::var("EXPIRY_INJECT") else {
        return;
    };
    let (name, one_in) = asked.split_once('/').unwrap_or((&asked, "1"));
    let chosen = one_in
        .parse()
        .is_ok_and(|one_in| expiry::inject::choose(name, one_in));
    let known: Vec<_> = expiry::inject::names().collect();
    assert!(chosen, "{asked} is no bug; there are {}", known.join(", "));
}

/// Runs a scenario.
fn perform(scenario: &Scenario) -> Result<Report, Error> {
    match scenario {
        Scenario::Wordcount(options) => wordcount::run(options),
        Scenario::Ack(options) => ack::run(options),
        Scenario::Sessions(options) => sessions::run(options),
        Scenario::Histories(options) => histories::run(options),
        Scenario::Ttl(options) => ttl::run(options),
        Scenario::Faults(options) => faults::run(options),
        Scenario::Hostile(options) => hostile::run(options),
        Scenario::Soak(options) => soak::run(options),
    }
}
