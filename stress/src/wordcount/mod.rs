//! Scenario `wordcount`: counts the words of real files in a tracked pipeline, injects faults, sends again
//! what they hit, and holds the result against a direct count.
//!
//! ```text
//! files -> spouts -> split workers -> count workers (each word's worker is given by its hash)
//!            ^                             |
//!            +--------- outcomes ----------+
//! ```
//!
//! Each line is a root, each word a child. Channels are bounded, so that memory is: the lines in flight (at most
//! `--max-pending`, and 64 MiB of text), and the distinct words.

mod attempt;
mod direct;
mod faults;
mod files;
mod handle;
mod spout;
mod stages;
mod verdict;
mod words;
mod worker;

use crate::checks::Checks;
use crate::error::Error;
use crate::latency::{human, Latency};
use crate::options::{threads, Wordcount};
use crate::progress::Progress;
use crate::report::{thousands, Report};
use attempt::Books;
use crossbeam_channel::{bounded, RecvTimeoutError};
use expiry::AckTracker;
use faults::Faults;
use files::Files;
use spout::{Desk, Shared, Spout, SpoutTally, PENDING_BYTES};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use verdict::{verdict, Seen};
use words::Counts;
use worker::{Worker, WorkerTally};

/// How many messages each channel of the pipeline holds.
const CHANNEL: usize = 16;
/// How long after a timeout is due its late acks are sent.
const SURELY: Duration = Duration::from_millis(50);

/// How long after everything in flight should have ended a spout gives up waiting.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the progress line shows. Relaxed counters, not used for any check.
#[derive(Debug, Default)]
pub struct Stats {
    lines: AtomicU64,
    bytes: AtomicU64,
    words: AtomicU64,
    in_flight: AtomicU64,
    acked: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    replays: AtomicU64,
    stalls: AtomicU64,
    /// The latest that a timeout was seen after it was due, in nanoseconds.
    latest: AtomicU64,
}

impl Stats {
    fn show(&self, progress: &mut Progress) {
        let get = |count: &AtomicU64| count.load(Relaxed);
        let done = get(&self.acked);
        progress.show(get(&self.bytes), done, |rate| {
            format!(
                "{} lines, {} in flight, {} words, {}/s completed, {} failed, {} timed out, {} replayed, lateness max {}{}",
                get(&self.lines),
                get(&self.in_flight),
                get(&self.words),
                thousands(rate),
                get(&self.failed),
                get(&self.timed_out),
                get(&self.replays),
                human(get(&self.latest)),
                match get(&self.stalls) {
                    0 => String::new(),
                    stalls => format!(", {stalls} stalls"),
                },
            )
        });
    }
}

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense or there is nothing to read.
pub fn run(options: &Wordcount) -> Result<Report, Error> {
    let faults = Faults::new(options)?;
    let spouts = options.spouts as usize;
    if options.max_pending < options.spouts {
        return Err(Error::Option {
            option: "--max-pending",
            why: format!("is below one for each spout; use at least {spouts}"),
        });
    }
    let checks = Arc::new(Checks::new(verdict::names(faults.off())));
    let most = options.max_pending as usize / spouts;
    let (senders, outcomes): (Vec<_>, Vec<_>) = (0..spouts).map(|_| bounded(most)).unzip();
    let mut builder = AckTracker::builder()
        .timeout(options.timeout)
        .on_outcome(Desk {
            spouts: senders,
            checks: checks.clone(),
        });
    if let Some(interval) = options.interval {
        builder = builder.interval(interval);
    }
    // The tracker's settings are tried before a large folder is.
    let tracker = builder.build()?;
    let files = Files::list(options.path.as_deref())?;
    let books = Books::new(checks.clone());
    let stats = Stats::default();
    let shared = Shared {
        tracker: &tracker,
        timeout: options.timeout,
        patience: options.timeout.saturating_mul(2).saturating_add(PATIENCE),
        files: &files,
        books: &books,
        faults: &faults,
        checks: &checks,
        stats: &stats,
    };
    let began = Instant::now();
    let ran = pipeline(options, shared, outcomes, most);
    let took = began.elapsed();
    if ran.spouts.iter().all(|spout| spout.lines == 0) {
        return Err(files.no_text());
    }
    let metrics = tracker.metrics();
    // Nothing is in flight any more; whatever there is all the same would be returned.
    let left = tracker.shutdown(expiry::Fate::Return).len() as u64;
    let direct = direct::count(&files, &checks);
    let seen = Seen {
        direct,
        unsuccessful: books.unsuccessful.load(Relaxed),
        duplicated: books.duplicated.load(Relaxed),
        surplus: books.into_surplus(),
        counted: ran.counted,
        spouts: ran.spouts,
        worker: ran.worker,
        metrics,
        left,
        faults_off: faults.off(),
    };
    verdict(&seen, &checks);
    Ok(verdict::report(&seen, options, took, &files, &checks))
}

/// What came out of the pipeline.
struct Ran {
    spouts: Vec<SpoutTally>,
    counted: Counts,
    worker: WorkerTally,
}

/// Runs the pipeline to its end.
fn pipeline<'a>(
    options: &Wordcount,
    shared: Shared<'a>,
    outcomes: Vec<crossbeam_channel::Receiver<spout::Ended>>,
    most: usize,
) -> Ran {
    let threads = threads(options.threads);
    let stall_for = options.stall_for.unwrap_or(options.timeout * 5 / 4);
    // A coarse clock may add a little to a deadline; the interval always does.
    let late_after = options.timeout + 2 * shared.tracker.interval() + SURELY;
    let hasher = foldhash::fast::FixedState::with_seed(options.seed);
    let worker = move || {
        Worker::new(
            (shared.faults, shared.checks, shared.stats),
            late_after,
            stall_for,
        )
    };
    let (jobs_in, jobs) = bounded(CHANNEL);
    let (counters, batches): (Vec<_>, Vec<_>) = (0..threads).map(|_| bounded(CHANNEL)).unzip();
    // Nothing is sent on it: it closes when the last worker has gone.
    let (alive, gone) = bounded::<()>(0);
    std::thread::scope(|scope| {
        let mut spouts = Vec::new();
        for (number, outcomes) in outcomes.into_iter().enumerate() {
            let limits = (most, PENDING_BYTES / options.spouts as usize);
            let spout = Spout::new(number, shared, (outcomes, jobs_in.clone()), limits);
            spouts.push(scope.spawn(move || spout.run()));
        }
        drop(jobs_in);
        let mut splits = Vec::new();
        for _ in 0..threads {
            let (jobs, counters, hasher) = (jobs.clone(), counters.clone(), hasher.clone());
            splits.push(scope.spawn(move || stages::split(worker(), &jobs, &counters, &hasher)));
        }
        drop((jobs, counters));
        let mut counts = Vec::new();
        for batches in batches {
            let alive = alive.clone();
            counts.push(scope.spawn(move || {
                let _alive = alive;
                stages::count(worker(), &batches, shared.stats)
            }));
        }
        drop(alive);
        let mut progress = Progress::new(Some(shared.files.bytes));
        while gone.recv_timeout(progress.pause()) == Err(RecvTimeoutError::Timeout) {
            shared.stats.show(&mut progress);
        }
        progress.finish();
        // A panic in a worker is a bug in this program: pass it on.
        let mut ran = Ran {
            spouts: spouts
                .into_iter()
                .map(|spout| spout.join().expect("a spout panicked"))
                .collect(),
            counted: Counts::default(),
            worker: WorkerTally::default(),
        };
        for split in splits {
            ran.worker
                .add(&split.join().expect("a split worker panicked"));
        }
        for count in counts {
            let (counted, tally) = count.join().expect("a count worker panicked");
            ran.worker.add(&tally);
            for (word, n) in counted {
                words::add(&mut ran.counted, &word, n);
            }
        }
        ran
    })
}

/// All spouts' histograms of one kind together.
fn together(spouts: &[SpoutTally], which: impl Fn(&SpoutTally) -> &Latency) -> Latency {
    let mut all = Latency::new();
    spouts.iter().for_each(|spout| all.add(which(spout)));
    all
}
