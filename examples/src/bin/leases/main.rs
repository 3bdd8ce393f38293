//! Workers share resources by leases. Some renew theirs and give them back, some die, some stall
//! and learn that they have lost them.
//!
//! ```sh
//! cargo run -p expiry-examples --bin leases
//! ```

mod history;
mod lease;

use clap::Parser;
use expiry::{Clock, ExpiryQueueBuilder, MonotonicClock};
use expiry_examples::{at_least_one, exit, on_threads, Done};
use history::{check, End, Held};
use humantime::parse_duration;
use lease::{Lease, Leases};
use rand::{rngs::SmallRng, Rng, SeedableRng};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// Leases that are renewed, or lost and then taken over once, after their end.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 6, value_parser = at_least_one())]
    workers: usize,
    #[arg(long, default_value_t = 3, value_parser = at_least_one())]
    resources: usize,
    /// How many leases are given in all.
    #[arg(long, default_value_t = 100)]
    grants: usize,
    /// How long a lease lasts after it was given or renewed.
    #[arg(long, value_parser = parse_duration, default_value = "50ms")]
    time: Duration,
    /// Decides which workers die.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a holder does when it has done its work.
#[derive(Clone, Copy)]
enum Fate {
    Release,
    Die,
    /// It does not renew for twice the time of a lease, and then means to go on.
    Stall,
}

struct Worker<'a> {
    leases: &'a Leases,
    clock: &'a MonotonicClock,
    options: &'a Options,
    /// Number of leases that may still be given.
    left: &'a AtomicUsize,
    random: SmallRng,
}

impl Worker<'_> {
    /// Holds free resources, one at a time. Returns what it has held.
    fn run(mut self) -> Done<Vec<Held>> {
        let mut history = Vec::new();
        loop {
            let resource = self.random.random_range(0..self.options.resources);
            let confirmed = self.now();
            let Some(lease) = self.leases.acquire(resource)? else {
                if self.left.load(Relaxed) == 0 {
                    return Ok(history);
                }
                // A standby looks as often as it likes.
                sleep(self.options.time / 20);
                continue;
            };
            let held = Held { grant: lease.grant, from: self.now(), confirmed, end: End::Died };
            let one_less = |left: usize| left.checked_sub(1);
            let is_last = self.left.fetch_update(Relaxed, Relaxed, one_less).is_err();
            history.push(self.hold(lease, held, is_last)?);
            if is_last {
                return Ok(history);
            }
        }
    }

    /// Renews a lease now and then, until its fate.
    fn hold(&mut self, lease: Lease, mut held: Held, is_last: bool) -> Done<Held> {
        let fate = match self.random.random_range(0..4) {
            _ if is_last => Fate::Release,
            0 => Fate::Die,
            1 => Fate::Stall,
            _ => Fate::Release,
        };
        for _ in 0..self.random.random_range(0..6) {
            sleep(self.options.time / 3);
            if !self.renew(&lease, &mut held)? {
                return Ok(held);
            }
        }
        match fate {
            Fate::Die => {}
            Fate::Stall => {
                sleep(2 * self.options.time);
                // The renewal may succeed, if the reaper has not ended the lease. Then it dies.
                self.renew(&lease, &mut held)?;
            }
            Fate::Release if self.leases.release(lease) => held.end = End::Released,
            Fate::Release => held.end = End::Refused,
        }
        Ok(held)
    }

    fn renew(&self, lease: &Lease, held: &mut Held) -> Done<bool> {
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
    exit(run(&Options::parse()))
}

fn run(options: &Options) -> Done {
    // The leases and the check share one clock.
    let clock = Arc::new(MonotonicClock::new());
    let ended = Arc::new(Mutex::new(Vec::new()));
    let reported = ended.clone();
    let removal_listener =
        move |grant| reported.lock().expect("no thread panics with it").push(grant);
    let build = |queue: ExpiryQueueBuilder<_>| queue.clock(clock.clone()).build();
    let leases = Leases::new(options.resources, options.time, build, removal_listener)?;
    let left = AtomicUsize::new(options.grants);
    let histories = on_threads(options.workers, |number| {
        let random = SmallRng::seed_from_u64(options.seed ^ (number as u64 + 1) << 32);
        Worker { leases: &leases, clock: &clock, options, left: &left, random }.run()
    })?;

    // The last lease of a resource may have been lost too. No worker takes it over any more.
    let left = leases.close();
    let mut ended = ended.lock().expect("no thread panics with it").clone();
    ended.extend(left);
    let summary = check(&histories.concat(), &ended, options.time)?;
    println!(
        "{} leases given: {} released, {} taken over, at most {:?} after their end",
        summary.grants, summary.released, summary.taken_over, summary.longest_vacancy
    );
    println!("verdict: ok: each was taken over once, and none while its renewal was confirmed");
    Ok(())
}
