//! Jobs for workers that die, are slow, or do not acknowledge what they have done; and jobs that
//! kill every worker.
//!
//! ```sh
//! cargo run -p expiry-examples --bin work_queue
//! ```

mod queue;

use clap::{value_parser, Parser};
use crossbeam_channel::Receiver;
use expiry::ExpiringMapBuilder;
use expiry_examples::{at_least_one, exit, on_threads, Done};
use humantime::parse_duration;
use queue::{Delivery, Settings, WorkQueue};
use rand::{rngs::SmallRng, Rng, SeedableRng};
use std::process::ExitCode;
use std::sync::atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A work queue with a visibility timeout: each job is done at least once, or becomes a dead
/// letter.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 2000)]
    jobs: usize,
    #[arg(long, default_value_t = 4, value_parser = at_least_one())]
    workers: usize,
    /// How long a job that was given out is hidden from other workers.
    #[arg(long, value_parser = parse_duration, default_value = "100ms")]
    visibility: Duration,
    /// How often a job is given out before it is a dead letter.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..))]
    attempts: u32,
    /// Every so manyth job kills each worker that takes it; 0: none.
    #[arg(long, default_value_t = 100)]
    poison_every: usize,
    /// Decides which workers die.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What has become of one job.
#[derive(Debug, Default)]
struct Fate {
    done: AtomicU32,
    acknowledged: AtomicU32,
    dead: AtomicU32,
}

/// What the workers share.
struct Site<'a> {
    options: &'a Options,
    queue: WorkQueue<usize>,
    dead_letters: Receiver<Arc<usize>>,
    fates: Vec<Fate>,
    /// Jobs that are neither acknowledged nor given up.
    open: AtomicIsize,
    deaths: AtomicUsize,
    most_attempts: AtomicU32,
}

impl Site<'_> {
    fn is_poison(&self, job: usize) -> bool {
        self.options.poison_every != 0 && job.is_multiple_of(self.options.poison_every)
    }

    /// Takes jobs, and counts dead letters, until all jobs are settled.
    fn work(&self, mut random: SmallRng) -> Done {
        while self.open.load(Relaxed) > 0 {
            for job in self.dead_letters.try_iter() {
                self.fates[*job].dead.fetch_add(1, Relaxed);
                self.open.fetch_sub(1, Relaxed);
            }
            if let Some(delivery) = self.queue.receive(Duration::from_millis(10))? {
                self.handle(delivery, &mut random)?;
            }
        }
        Ok(())
    }

    fn handle(&self, delivery: Delivery<usize>, random: &mut SmallRng) -> Done {
        let job = *delivery.job;
        self.most_attempts.fetch_max(delivery.attempt, Relaxed);
        let dies_before = self.is_poison(job) || random.random_bool(0.05);
        if dies_before {
            // Another worker takes its place, in this very thread.
            self.deaths.fetch_add(1, Relaxed);
            return Ok(());
        }
        if random.random_bool(0.01) {
            self.do_slowly(&delivery)?;
        }
        if random.random_bool(0.05) {
            self.queue.reject(delivery);
            return Ok(());
        }
        self.fates[job].done.fetch_add(1, Relaxed);
        let dies_after = random.random_bool(0.05);
        if dies_after {
            self.deaths.fetch_add(1, Relaxed);
        } else if self.queue.acknowledge(delivery) {
            self.fates[job].acknowledged.fetch_add(1, Relaxed);
            self.open.fetch_sub(1, Relaxed);
        }
        Ok(())
    }

    /// Takes longer than the visibility timeout, and extends it in time.
    fn do_slowly(&self, delivery: &Delivery<usize>) -> Done {
        for _ in 0..4 {
            thread::sleep(self.options.visibility / 3);
            if !self.queue.extend(delivery)? {
                // Another worker does the job too: it is done at least once.
                break;
            }
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    exit(run(&Options::parse()))
}

fn run(options: &Options) -> Done {
    let settings = Settings { visibility: options.visibility, attempts: options.attempts };
    let (queue, dead_letters) = WorkQueue::new(settings, ExpiringMapBuilder::build)?;
    (0..options.jobs).for_each(|job| queue.push(job));
    let site = Site {
        options,
        queue,
        dead_letters,
        fates: (0..options.jobs).map(|_| Fate::default()).collect(),
        open: AtomicIsize::new(options.jobs as isize),
        deaths: AtomicUsize::new(0),
        most_attempts: AtomicU32::new(0),
    };
    on_threads(options.workers, |number| {
        site.work(SmallRng::seed_from_u64(options.seed ^ (number as u64 + 1) << 32))
    })?;
    check(&site)
}

fn check(site: &Site<'_>) -> Done {
    let [mut once, mut again, mut dead_letters] = [0, 0, 0];
    for (job, fate) in site.fates.iter().enumerate() {
        let [done, acknowledged, dead] =
            [&fate.done, &fate.acknowledged, &fate.dead].map(|count| count.load(Relaxed));
        // A job that was done and never acknowledged is a dead letter too. A poison job is nothing
        // else.
        let is_settled = match (acknowledged, dead) {
            (1, 0) => done >= 1 && !site.is_poison(job),
            (0, 1) => done == 0 || !site.is_poison(job),
            _ => false,
        };
        if !is_settled {
            return Err(format!("job {job}: {fate:?}").into());
        }
        match (dead, done) {
            (1, _) => dead_letters += 1,
            (_, 1) => once += 1,
            _ => again += 1,
        }
    }
    println!(
        "{} jobs: {once} done once, {again} more than once, {dead_letters} dead letters; \
         {:?} workers died, {:?} attempts at most",
        site.options.jobs, site.deaths, site.most_attempts
    );
    println!("verdict: ok: none was lost");
    Ok(())
}
