//! Runs jobs in one of any number of processes, and writes what they did to a file. The file
//! refuses a leader that is late: each line has the token of its leader, and tokens never fall.
//!
//! ```sh
//! nats-server -js &
//! cargo run -p expiry-nats --example leader -- one /tmp/jobs.txt &
//! cargo run -p expiry-nats --example leader -- two /tmp/jobs.txt
//! ```
//!
//! Kill or stop the process that leads: within 23 seconds the other one leads. Continue a stopped
//! one: its late line is refused.

use expiry_nats::{Nats, Options};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

/// Appends a line, unless a later leader has written. Returns whether it did.
fn append(file: &Path, token: u64, job: &str) -> std::io::Result<bool> {
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(file)?;
    // The comparison and the write are one step for all processes.
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let last = text.lines().next_back().and_then(|line| line.split(' ').next()?.parse().ok());
    if last.is_some_and(|last: u64| last > token) {
        return Ok(false);
    }
    writeln!(file, "{token} {job}")?;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let (Some(worker), Some(file)) = (words.next(), words.next()) else {
        return Err("usage: leader WORKER FILE [SERVER]".into());
    };
    let mut options = Options::new("example", &worker);
    if let Some(server) = words.next() {
        options = options.servers([server]);
    }
    let nats = Nats::connect(options).await?;
    let leader = nats.leader("jobs").replicas(1).join().await?;
    let mut jobs = tokio::time::interval(Duration::from_secs(1));
    jobs.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut count = 0;
    loop {
        let lease = tokio::select! {
            lease = leader.campaign() => lease?,
            _ = tokio::signal::ctrl_c() => break,
        };
        println!("{worker} leads, with token {}", lease.token());
        loop {
            tokio::select! {
                why = lease.lost() => {
                    println!("{worker} leads no longer: {why:?}");
                    break;
                }
                _ = tokio::signal::ctrl_c() => {
                    lease.release().await?;
                    leader.leave().await;
                    return Ok(());
                }
                _ = jobs.tick() => {
                    count += 1;
                    let job = format!("{worker} did job {count}");
                    // Here the process may have been stopped for an hour: the file decides.
                    if !append(file.as_ref(), lease.token(), &job)? {
                        println!("{worker} is late: another leader has written");
                        break;
                    }
                }
            }
        }
    }
    leader.leave().await;
    Ok(())
}
