//! Sessions that survive a restart: the process saves them when it ends, and loads them when it
//! begins. Each has the rest of its time, and none begins anew.
//!
//! ```sh
//! cargo run -p expiry-examples --bin restart
//! ```

mod saved;

use clap::Parser;
use expiry::ExpiringMap;
use expiry_examples::{exit, Done};
use humantime::{format_duration, parse_duration};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Sessions that survive a restart.
#[derive(Parser)]
struct Options {
    /// Starts once, with the sessions of this file. Without it the program starts itself twice.
    #[arg(long)]
    file: Option<PathBuf>,
    /// How long a session lives.
    #[arg(long, value_parser = parse_duration, default_value = "1h")]
    time_to_live: Duration,
}

fn main() -> ExitCode {
    let Options { file, time_to_live } = Options::parse();
    exit(match file {
        Some(file) => once(&file, time_to_live),
        None => twice(time_to_live),
    })
}

/// One life of the process.
fn once(file: &Path, time_to_live: Duration) -> Done {
    let sessions = ExpiringMap::new(time_to_live)?;
    saved::read(&sessions, file)?;
    match sessions.get("ada") {
        Some(ada) => {
            // Deadlines are rounded up.
            let left = Duration::from_secs(ada.remaining().min(time_to_live).as_secs());
            println!("found: ada, {}, with {} left", *ada, format_duration(left));
        }
        None => {
            println!("new: ada, 4711");
            sessions.insert("ada".to_string(), 4711)?;
        }
    }
    saved::write(&sessions, file)
}

/// Two lives, of which the second must find the session of the first.
fn twice(time_to_live: Duration) -> Done {
    let file = std::env::temp_dir().join(format!("restart-{}.json", std::process::id()));
    let life = || -> Done<String> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--file").arg(&file);
        command.arg(format!("--time-to-live={}", format_duration(time_to_live)));
        let output = command.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    };
    let lives = (life()?, life()?);
    print!("{}{}", lives.0, lives.1);
    std::fs::remove_file(file)?;
    if !lives.0.starts_with("new: ada") || !lives.1.starts_with("found: ada, 4711") {
        return Err("the second process has not found the session of the first".into());
    }
    println!("verdict: ok: the session has survived");
    Ok(())
}
