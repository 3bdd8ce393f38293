//! Follows the logs of a directory, counts their entries by level and minute, and prints lines that
//! it does not understand:
//!
//! ```text
//! cargo run -p expiry-topology --example tail -- DIRECTORY [--state FILE] [--until-idle]
//! ```
//!
//! With `--until-idle` it ends once it has read all logs. Otherwise it ends when its input has a
//! line, or ends. A second run goes on where the first one was: the state file keeps the offsets.
//! That file is `DIRECTORY/.tail` unless an option names another one. See `tail/logs.rs` for the
//! topology.

#[path = "tail/logs.rs"]
mod logs;

use expiry_topology::{Context, Hook};
use logs::{offsets, topology, Settings};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// Prints what goes wrong. Lines that cannot be parsed are printed once, as dead letters.
struct Errors;

impl Hook for Errors {
    fn error(&self, task: &Context, error: &str) {
        if task.component() != "parse" {
            eprintln!("{task:?}: {error}");
        }
    }
}

fn settings() -> Option<Settings> {
    let mut args = std::env::args().skip(1);
    let mut settings = Settings::new(Path::new(&args.next().filter(|arg| !arg.starts_with('-'))?));
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--until-idle" => settings.until_idle = true,
            "--state" => settings.state = args.next()?.into(),
            _ => return None,
        }
    }
    Some(settings)
}

fn main() -> Result<(), Box<dyn Error>> {
    let settings = settings().ok_or("usage: tail DIRECTORY [--state FILE] [--until-idle]")?;
    // Better now than again and again.
    offsets(&settings.state)?;
    std::fs::read_dir(&settings.directory)?;
    let until_idle = settings.until_idle;
    let topology = topology(
        settings,
        |counts| {
            counts
                .iter()
                .for_each(|((minute, level), count)| println!("{minute} {level:6} {count}"))
        },
        |line, why| println!("{}:{}: {why}: {:?}", line.file, line.offset, line.text),
    );
    topology.hook(Errors);
    let topology = topology.start()?;
    if until_idle {
        topology.wait(Duration::MAX)?;
    } else {
        std::io::stdin().read_line(&mut String::new())?;
    }
    let metrics = topology.drain(Duration::from_secs(60))?;
    let tail = &metrics[0];
    eprintln!("{} lines counted, {} given up", tail.acked, tail.dead_letters);
    Ok(())
}
