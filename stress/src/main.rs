//! `stress`: runs the expiry engine on real input and under load, injects faults, and proves at the end
//! that nothing was lost, nothing came early and nothing was told twice.

mod ack;
mod checks;
mod error;
mod faults;
mod hostile;
mod latency;
mod memory;
mod options;
mod progress;
mod refusing;
mod report;
mod sessions;
mod timeline;
mod ttl;
mod wordcount;

use clap::{CommandFactory, Parser};
use options::{Cli, Scenario};
use report::Json;
use std::process::ExitCode;

/// The exit status when a check has failed.
const FAILED: u8 = 1;
/// The exit status when the scenario could not be run: bad options, bad input.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Some(scenario) = cli.scenario else {
        // Help that was not asked for is an error's text.
        eprintln!("{}", Cli::command().render_long_help());
        return ExitCode::from(UNUSABLE);
    };
    let (json, ran) = match &scenario {
        Scenario::Wordcount(options) => (Json::asked(options.json), wordcount::run(options)),
        Scenario::Ack(options) => (Json::asked(options.json), ack::run(options)),
        Scenario::Sessions(options) => (Json::at(options.json.as_deref()), sessions::run(options)),
        Scenario::Faults(options) => (Json::at(options.json.as_deref()), faults::run(options)),
        Scenario::Hostile(options) => (Json::at(options.json.as_deref()), hostile::run(options)),
        Scenario::Ttl(options) => (Json::at(options.json.as_deref()), ttl::run(options)),
    };
    let ran = ran.and_then(|report| {
        report.print(json)?;
        Ok(report.passed())
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
