//! `stress nats --for TIME`: worker processes hold leases, sessions and idempotency keys on three
//! brokers while faults hit both, and write down what happens to them. At the end the records of
//! all processes are judged together, see `history.rs`.

use super::history::{self, judge};
use super::holder::{QUIET, TERMS};
use super::{failed, Workers, WORKERS};
use crate::checks::Checks;
use crate::error::Error;
use crate::live::{Gauge, Live};
use crate::{interrupt, options, report::Report};
use expiry_nats::brokers::Brokers;
use rand::{rngs::SmallRng, Rng, SeedableRng};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A folder of logs, which is removed when this is dropped, unless a rule was broken.
struct Logs(PathBuf);

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Kills or stops a worker or a broker, and waits until that is over. A majority of the brokers is
/// always there.
fn inject(rng: &mut SmallRng, workers: &mut Workers, brokers: &Brokers) -> Result<(), Error> {
    let n = rng.random_range(0..WORKERS.len());
    let fault = rng.random_range(0..4);
    // A worker that is stopped for longer than two partition leases loses what it owns.
    let longest = [101, 8_000, 4_000, 6_000][fault];
    let mut pause = || std::thread::sleep(Duration::from_millis(rng.random_range(100..longest)));
    match fault {
        0 => workers.children[n].kill().map_err(failed)?,
        1 => {
            workers.signal(n, "STOP");
            pause();
            workers.signal(n, "CONT");
        }
        2 => {
            brokers.kill(n);
            pause();
            brokers.restart(n).map_err(failed)?;
        }
        _ => {
            brokers.pause(n);
            pause();
            brokers.go_on(n);
        }
    }
    Ok(())
}

/// The records of all processes.
fn read(folder: &Path) -> Result<Vec<(u64, history::Event)>, Error> {
    let mut records = Vec::new();
    for file in fs::read_dir(folder).map_err(failed)? {
        let text = fs::read_to_string(file.map_err(failed)?.path()).map_err(failed)?;
        records.extend(text.split_inclusive('\n').filter_map(history::parse));
    }
    Ok(records)
}

pub fn run(options: &options::Nats, time: Duration) -> Result<Report, Error> {
    let checks = Checks::new(&history::NAMES);
    let folder = std::env::temp_dir().join(format!("expiry-stress-{}", std::process::id()));
    let logs = Logs(folder);
    fs::create_dir_all(&logs.0).map_err(failed)?;
    let brokers = Brokers::start(WORKERS.len()).map_err(failed)?;
    let holders = Some((logs.0.clone(), options.seed));
    let mut workers = Workers::start(brokers.servers().join(","), holders)?;
    let (began, mut rng) = (Instant::now(), SmallRng::seed_from_u64(options.seed));
    let mut live = Live::new("nats", Some(time.as_secs()));
    let mut faults = 0;
    let mut next = Instant::now() + Duration::from_secs(15);
    // Sessions that were left alone end in their timeout, and once more for owners that died.
    let ends = 3 * Duration::from_millis(TERMS.timeout);
    while began.elapsed() < time + ends && !interrupt::asked() {
        std::thread::sleep(Duration::from_millis(100));
        workers.look()?;
        let (done, is_quiet) = (began.elapsed().as_secs(), began.elapsed() >= time);
        live.show(done, || Gauge {
            done,
            text: format!("{faults} faults, {} workers started again", workers.restarts),
            ..Gauge::default()
        });
        if is_quiet {
            fs::write(logs.0.join(QUIET), "").map_err(failed)?;
        } else if Instant::now() >= next {
            inject(&mut rng, &mut workers, &brokers)?;
            faults += 1;
            next = Instant::now() + Duration::from_millis(rng.random_range(500..6_000));
        }
    }
    let (took, restarts) = (began.elapsed(), workers.restarts);
    drop(workers);
    let records = read(&logs.0)?;
    let count = |of: fn(&history::Event) -> bool| {
        records.iter().filter(|(_, event)| of(event)).count() as u64
    };
    let counts = [
        ("begun", count(|event| matches!(event, history::Event::Begun { .. }))),
        ("told", count(|event| matches!(event, history::Event::Told { .. }))),
        ("first", count(|event| matches!(event, history::Event::First { .. }))),
        ("answers", count(|event| matches!(event, history::Event::Answer { .. }))),
    ];
    let total = records.len() as u64;
    judge(records, &TERMS, &checks);
    let mut report = Report::new("nats", ("records", total), took, options.seed, &checks, options);
    report.counts.extend(counts);
    report.counts.extend([("faults", faults), ("workers_started_again", restarts)]);
    if checks.violations() > 0 {
        println!("the records are in {:?}", logs.0);
        std::mem::forget(logs);
    }
    Ok(report)
}
