//! Scenario `wordcount`: counts the words of real files in a topology and injects faults. The
//! topology emits again what the faults hit, and the result is compared with a direct count.
//!
//! ```text
//! lines (reads files) -- shuffle --> split -- fields: word --> count
//!   ^                                                            |
//!   +------------------------- outcomes -------------------------+
//! ```
//!
//! Each line is a root, each word a child. Queues are bounded, and so is memory: it holds the lines
//! in flight (at most `--max-pending`, and 64 MiB of text), and the distinct words.

mod attempt;
mod bolts;
mod direct;
mod faults;
mod files;
mod spout;
mod verdict;
mod words;

use crate::checks::Checks;
use crate::error::Error;
use crate::live::{Gauge, Live};
use crate::options::{threads, Wordcount};
use crate::report::Report;
use attempt::{Books, Piece};
use bolts::{Stage, Worker};
use expiry::AckTracker;
use expiry_topology::{ComponentMetrics, Replay, Topology, TopologyBuilder};
use faults::{Faults, FAULTS};
use files::Files;
use spout::{Reader, SpoutTally};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use verdict::{verdict, Seen};
use words::Counts;

/// How much text may be pending, all spouts together, however long the lines are.
const PENDING_BYTES: usize = 64 << 20;
/// How many lines, or words, travel together.
const BATCH: usize = 256;
/// How long after a timeout is due its late acks are sent.
const SURELY: Duration = Duration::from_millis(50);
/// How often bolts look whether a late ack is due.
const TICK: Duration = Duration::from_millis(5);
/// The first pause before a line is emitted again. Short: the faults do not depend on time.
const PAUSE: Duration = Duration::from_millis(1);
/// How long after everything in flight should have ended it is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a run has, for all its tasks.
pub struct Run {
    files: Files,
    faults: Faults,
    checks: Arc<Checks>,
    /// The books in which attempts end.
    books: Arc<Books>,
    timeout: Duration,
    /// From when on after its issue a line has surely timed out, unless the reaper is slow.
    late_after: Duration,
    /// How many lines a spout may have pending.
    max_pending: usize,
    /// How much text.
    max_bytes: usize,
    stats: Stats,
    /// The tally of all spouts, when they have stopped.
    spouts: Mutex<SpoutTally>,
    /// The counts of all counting bolts, when they have stopped.
    counted: Mutex<Counts>,
}

impl Run {
    /// A run whose tracker has this interval.
    fn new(options: &Wordcount, faults: Faults, files: Files, interval: Duration) -> Self {
        let checks = Arc::new(Checks::new(verdict::names(faults.off())));
        let spouts = options.spouts as usize;
        Run {
            files,
            faults,
            books: Arc::new(Books::new(checks.clone())),
            checks,
            timeout: options.timeout,
            // A coarse clock may add a little to a deadline; the interval always does.
            late_after: options.timeout + 2 * interval + SURELY,
            max_pending: options.max_pending as usize / spouts,
            max_bytes: PENDING_BYTES / spouts,
            stats: Stats::default(),
            spouts: Mutex::default(),
            counted: Mutex::default(),
        }
    }
}

/// What the metrics of a topology do not have.
#[derive(Debug, Default)]
struct Stats {
    /// Bytes read.
    bytes: AtomicU64,
    /// Faults of each kind.
    faults: [AtomicU64; FAULTS.len()],
    /// Tuples that wait for their late ack.
    held: AtomicU64,
}

/// Runs the scenario.
pub fn run(options: &Wordcount) -> Result<Report, Error> {
    let faults = Faults::new(options)?;
    if options.max_pending < options.spouts {
        let why = format!("is below one for each spout; use at least {}", options.spouts);
        return Err(Error::Option { option: "--max-pending", why });
    }
    // The tracker's settings are tried before a large folder is.
    let mut tracker = AckTracker::builder().timeout(options.timeout);
    if let Some(interval) = options.interval {
        tracker = tracker.interval(interval);
    }
    let interval = tracker.build_manual()?.interval();
    let run = Arc::new(Run::new(options, faults, Files::list(options.path.as_deref())?, interval));
    let began = Instant::now();
    let topology = topology(options, &run).start()?;
    let patience = options.timeout.saturating_mul(2).saturating_add(PATIENCE);
    finish(&topology, &run, patience);
    // There is acking, so there is a tracker.
    let metrics = topology.tracker_metrics().expect("a tracker");
    let components = topology.kill();
    let took = began.elapsed();
    let spouts = std::mem::take(&mut *held(&run.spouts));
    if spouts.counts.lines == 0 {
        return Err(run.files.no_text());
    }
    let seen = Seen {
        direct: direct::count(&run.files, &run.checks),
        unsuccessful: run.books.unsuccessful.load(Relaxed),
        duplicated: run.books.duplicated.load(Relaxed),
        surplus: std::mem::take(&mut *held(&run.books.surplus)),
        counted: std::mem::take(&mut *held(&run.counted)),
        spouts,
        topology: components,
        metrics,
        faults: FAULTS.map(|fault| run.stats.faults[fault as usize].load(Relaxed)),
        held: run.stats.held.load(Relaxed),
        faults_off: run.faults.off(),
    };
    verdict(&seen, &run.checks);
    Ok(verdict::report(&seen, options, took, &run.files, &run.checks))
}

/// The content of a lock. It is whole even if a thread has panicked.
fn held<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

fn topology(options: &Wordcount, run: &Arc<Run>) -> TopologyBuilder {
    let threads = threads(options.threads);
    let topology = TopologyBuilder::new();
    topology.timeout(options.timeout).seed(options.seed).batch(BATCH);
    if let Some(interval) = options.interval {
        topology.interval(interval);
    }
    let own = run.clone();
    let lines = topology
        .spout("lines", move |_| Reader::new(&own))
        .parallelism(options.spouts as usize)
        .max_pending(run.max_pending)
        .replay(Replay::default().without_limit().base(PAUSE).factor(1.0));
    let own = run.clone();
    let split = topology
        .bolt("split", move |_| Worker::new(Stage::Split(Vec::new()), &own))
        .parallelism(threads)
        .tick_every(TICK)
        .shuffle(&lines);
    let own = run.clone();
    topology
        .bolt("count", move |_| Worker::new(Stage::Count(Counts::default()), &own))
        .parallelism(threads)
        .tick_every(TICK)
        .fields(&split, Piece::text);
    topology
}

/// Waits until every line has been acked and every late ack sent, or nothing more happens.
fn finish(topology: &Topology, run: &Run, patience: Duration) {
    let mut live = Live::new("wordcount", Some(run.files.bytes));
    let (mut before, mut last) = ((0, 0), Instant::now());
    loop {
        let rest = topology.wait(live.pause().min(patience)).is_ok();
        if rest && run.stats.held.load(Relaxed) == 0 {
            break;
        }
        if rest {
            std::thread::sleep(TICK);
        }
        let components = topology.metrics();
        live.show(run.stats.bytes.load(Relaxed), || gauge(run, topology, &components));
        let done = components.iter().map(|of| of.acked + of.failed + of.timed_out + of.executed);
        let read = run.stats.bytes.load(Relaxed) + run.files.begun();
        let now = (done.sum(), read);
        if before != now {
            (before, last) = (now, Instant::now());
        } else if last.elapsed() > patience {
            let pending: u64 = components.iter().map(|of| of.pending).sum();
            // The books will name each line.
            run.checks.expect("every_root_ended", pending == 0, || {
                format!("{pending} lines have no outcome long after their timeout")
            });
            run.checks.expect("no_surprises", pending > 0, || {
                "all lines have ended, and the topology does not come to rest".into()
            });
            break;
        }
    }
}

/// What is shown: what the tracker says, and beside it what the topology does.
fn gauge(run: &Run, topology: &Topology, components: &[ComponentMetrics]) -> Gauge {
    let tracked = topology.tracker_metrics().as_ref().map(Gauge::of_tracker);
    let mut gauge = tracked.unwrap_or_default();
    gauge.violations = run.checks.violations();
    let [lines, .., count] = components else {
        return gauge;
    };
    // What the report's headline counts.
    gauge.done = count.executed;
    gauge.expired = lines.timed_out;
    gauge.text = format!(
        "{} lines, {} in flight, {} words, {} failed, {} timed out, {} replayed",
        lines.emitted.saturating_sub(lines.replayed),
        lines.pending,
        count.executed,
        lines.failed,
        lines.timed_out,
        lines.replayed,
    );
    gauge
}

#[cfg(test)]
mod tests;
