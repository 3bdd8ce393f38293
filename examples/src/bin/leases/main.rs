//! Workers share resources by leases. Some renew theirs and give them back, some die, some stall and learn that they have lost them.
//!
//! ```sh
//! cargo run -p expiry-examples --bin leases
//! ```

mod history;
mod lease;

use clap::{builder::RangedU64ValueParser, value_parser, Parser};
use expiry::{Clock, MonotonicClock};
use history::{check, End, Held, HistoryError};
use humantime::parse_duration;
use lease::{Lease, Leases};
use rand::{rngs::SmallRng, Rng, SeedableRng};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Leases that are renewed or lost, and taken over once, after their end.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 6, value_parser = value_parser!(u64).range(1..))]
    workers: u64,
    #[arg(long, default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    resources: usize,
    /// How many leases are given in all.
    #[arg(long, default_value_t = 100)]
    grants: usize,
    /// How long a lease lasts after it was given or renewed.
    #[arg(long, value_parser = parse_duration, default_value = "50ms")]
    time: Duration,
    /// Decides who dies.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, thiserror::Error)]
enum LeasesError {
    #[error(transparent)]
    Build(#[from] expiry::BuildError),
    #[error(transparent)]
    Store(#[from] expiry::StoreError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("a worker has panicked")]
    Worker,
}

/// What a holder does when it has done its work.
#[derive(Clone, Copy)]
enum Fate {
    Release,
    Die,
    /// It does not renew for twice its time, and means to go on then.
    Stall,
}

struct Worker<'a> {
    leases: &'a Leases,
    clock: &'a MonotonicClock,
    options: &'a Options,
    /// Leases that may still be given.
    left: &'a AtomicUsize,
    random: SmallRng,
}

impl Worker<'_> {
    /// Holds what is free, one at a time. What it has held.
    fn run(mut self) -> Result<Vec<Held>, LeasesError> {
        let mut history = Vec::new();
        loop {
            let resource = self.random.random_range(0..self.options.resources);
            let before = self.now();
            let Some(lease) = self.leases.acquire(resource)? else {
                if self.left.load(Relaxed) == 0 {
                    return Ok(history);
                }
                // As often as a standby likes to look.
                thread::sleep(self.options.time / 20);
                continue;
            };
            let held =
                Held { grant: lease.grant, from: self.now(), confirmed: before, end: End::Died };
            let one_less = |left: usize| left.checked_sub(1);
            let is_last = self.left.fetch_update(Relaxed, Relaxed, one_less).is_err();
            history.push(self.hold(lease, held, is_last)?);
            if is_last {
                return Ok(history);
            }
        }
    }

    /// Renews a lease now and then, until its fate.
    fn hold(&mut self, lease: Lease, mut held: Held, is_last: bool) -> Result<Held, LeasesError> {
        let fate = match self.random.random_range(0..4) {
            _ if is_last => Fate::Release,
            0 => Fate::Die,
            1 => Fate::Stall,
            _ => Fate::Release,
        };
        for _ in 0..self.random.random_range(0..6) {
            thread::sleep(self.options.time / 3);
            if !self.renewed(&lease, &mut held)? {
                return Ok(held);
            }
        }
        match fate {
            Fate::Die => {}
            Fate::Stall => {
                thread::sleep(2 * self.options.time);
                // If it is not lost: nobody has come to end it, and it is renewed. Then it dies.
                self.renewed(&lease, &mut held)?;
            }
            Fate::Release if self.leases.release(lease) => held.end = End::Released,
            Fate::Release => held.end = End::Refused,
        }
        Ok(held)
    }

    fn renewed(&self, lease: &Lease, held: &mut Held) -> Result<bool, LeasesError> {
        let before = self.now();
        let renewed = self.leases.renew(lease)?;
        if renewed {
            held.confirmed = before;
        } else {
            held.end = End::Refused;
        }
        Ok(renewed)
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now())
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leases: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), LeasesError> {
    // One clock for the leases and for those who check them.
    let clock = Arc::new(MonotonicClock::new());
    let ended = Arc::new(Mutex::new(Vec::new()));
    let told = ended.clone();
    let on_end = move |grant| told.lock().expect("nobody panics with it").push(grant);
    let leases = Leases::new(options.resources, options.time, clock.clone(), on_end)?;

    let left = AtomicUsize::new(options.grants);
    let histories = thread::scope(|scope| {
        let start = |seed| {
            let worker = Worker {
                leases: &leases,
                clock: &clock,
                options,
                left: &left,
                random: SmallRng::seed_from_u64(options.seed ^ seed << 32),
            };
            scope.spawn(|| worker.run())
        };
        let workers: Vec<_> = (1..=options.workers).map(start).collect();
        let ends = workers.into_iter().map(|worker| worker.join());
        ends.map(|end| end.map_err(|_| LeasesError::Worker)?).collect::<Result<Vec<_>, _>>()
    })?;

    // Who died last is not taken over any more, but has an end too.
    let left = leases.close();
    let mut ended = ended.lock().expect("nobody panics with it").clone();
    ended.extend(left);
    let summary = check(&histories.concat(), &ended, options.time)?;
    println!(
        "{} leases given: {} released, {} taken over, at most {:?} after their end",
        summary.grants, summary.released, summary.taken_over, summary.longest_vacancy
    );
    println!("verdict: ok: each was taken over once, and none while its renewal was confirmed");
    Ok(())
}
