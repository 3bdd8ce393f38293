//! Scenario `ack`: the tracker alone under load from all threads. A law judges every root's life.
//!
//! Each thread keeps a window of roots in flight. It draws a root's course when it issues the root
//! (see `plan`). The handler enters the root's one outcome in the ledger (see `ledger`). At the
//! root's end its thread checks outcome, times and the results of all operations against what may
//! be true (see `law`). Memory is proportional to the roots in flight.

mod law;
mod ledger;
mod ops;
mod plan;
mod tally;
mod verdict;
mod worker;

use crate::checks::Checks;
use crate::crowd::{crowd, Work};
use crate::error::Error;
use crate::latency::{nanos, Latency, Times};
use crate::live::{Gauge, Live};
use crate::options::{threads, Ack};
use crate::pace::Pace;
use crate::report::Report;
use crossbeam_channel::bounded;
use expiry::AckTracker;
use law::Promise;
use ledger::Ledger;
use ops::Ops;
use plan::Planner;
use rand::rngs::SmallRng;
use rand::SeedableRng;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tally::Tally;
use worker::{Brought, Shared, Worker};

/// How many messages a thread's inbox holds.
const CHANNEL: usize = 64;
/// How long the run waits after everything should have ended.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(options: &Ack) -> Result<Report, Error> {
    let threads = threads(options.threads);
    let planner = Planner::new(options, threads)?;
    let each = (options.in_flight as usize / threads).max(1);
    let checks = Arc::new(Checks::new(&verdict::NAMES));
    let ledger = Arc::new(Ledger::new(each * threads, checks.clone()));
    let entering = ledger.clone();
    let mut builder = AckTracker::builder()
        .timeout(options.timeout)
        .on_outcome(move |outcome| entering.enter(&outcome));
    if let Some(interval) = options.interval {
        builder = builder.interval(interval);
    }
    let tracker = builder.build()?;
    let promise = Promise {
        timeout: options.timeout,
        late: tracker.interval().saturating_add(options.allowance),
    };
    let mut times = [Times::new(), Times::new(), Times::new()];
    let (brought, took) = load(
        options,
        (&tracker, &ledger, &checks),
        &mut times,
        (&planner, promise),
        (threads, each),
    );
    // The tracker holds late acks of chosen roots as if they were early. They expire, and then
    // nothing is left.
    let patience = options.timeout + promise.late + PATIENCE;
    let waiting = Instant::now();
    while !tracker.is_empty() && waiting.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    let metrics = tracker.metrics();
    let left = tracker.shutdown(expiry::ShutdownMode::Return).len() as u64;
    let (mut tally, mut during) = (Tally::default(), Tally::default());
    brought.iter().for_each(|one| tally.add(&one.tally));
    brought.iter().for_each(|one| during.add(&one.during));
    verdict::verdict(&tally, &metrics, left, &checks);

    let operations = ("operations", during.operations());
    let mut report = Report::new("ack", operations, took, options.seed, &checks, options);
    report.counts.extend(tally.named());
    report.counts.extend([
        ("threads", threads as u64),
        ("in_flight", ledger.len() as u64),
        ("early_merged", metrics.total.early_merged),
        ("early_expired", metrics.total.early_expired),
    ]);
    let mut lateness = Latency::new();
    brought.iter().for_each(|one| lateness.add(&one.lateness));
    report.latency.extend([
        ("ack", times[0].percentiles()),
        ("issue", times[1].percentiles()),
        ("timeout_lateness", lateness.percentiles()),
    ]);
    if options.rate.is_some() {
        report.latency.insert("issue_since_due", times[2].percentiles());
    }
    Ok(report)
}

/// Runs the load to its end. Also returns how long it lasted.
fn load(
    options: &Ack,
    (tracker, ledger, checks): (&AckTracker, &Ledger, &Checks),
    times: &mut [Times; 3],
    (planner, promise): (&Planner, Promise),
    (threads, each): (usize, usize),
) -> (Vec<Brought>, Duration) {
    let busy = AtomicUsize::new(threads);
    let began = ledger.now();
    let stop = began.saturating_add(nanos(Duration::from_secs_f64(options.seconds)));
    // A root may have its timeout twice, if it is reset; the last one is as late as is allowed.
    let longest = options.timeout.saturating_mul(3).saturating_add(promise.late);
    let shared = Shared {
        options,
        ledger,
        checks,
        promise,
        busy: &busy,
        until: (stop, stop.saturating_add(nanos(longest + PATIENCE))),
    };
    let (mut to, mut from): (Vec<_>, Vec<_>) = (0..threads).map(|_| bounded(CHANNEL)).unzip();
    // Each thread hands over to the next one.
    to.rotate_left(1);
    let batch = options.batch as usize;
    let mut works: Vec<Work<'_, Brought>> = Vec::new();
    for (number, (to, from)) in to.drain(..).zip(from.drain(..)).enumerate() {
        let rng = SmallRng::seed_from_u64(options.seed.wrapping_add(number as u64));
        let recorders = (times[0].recorder(), times[1].recorder());
        let pace = Pace::part(options.rate, (number, threads), began, options.seed);
        let pace = pace.map(|pace| (pace, times[2].recorder()));
        works.push(Box::new(move || {
            let ops = Ops::new(tracker, options.ids, batch, recorders);
            let luck = (planner.clone(), rng);
            let places = (number * each, each);
            Worker::new(shared, ops, luck, pace, places, batch, (to, from)).run()
        }));
    }
    let mut live = Live::new("ack", Some(stop - began));
    // In an open loop the time that they have waited counts.
    let shown = if options.rate.is_some() { 2 } else { 0 };
    let brought = crowd(works, &mut live, |live| {
        let now = ledger.now().min(stop);
        live.show(now - began, || gauge(tracker, checks, &mut times[shown]));
    });
    let last = brought.iter().map(|one| one.until).max().unwrap_or(stop);
    (brought, Duration::from_nanos(last - began))
}

fn gauge(tracker: &AckTracker, checks: &Checks, times: &mut Times) -> Gauge {
    let metrics = tracker.metrics();
    let total = &metrics.total;
    Gauge {
        done: total.inserted,
        latency: Some(times.since()),
        violations: checks.violations(),
        text: format!("roots: {} acked, {} failed", total.acked, total.failed),
        ..Gauge::of_tracker(&metrics)
    }
}
