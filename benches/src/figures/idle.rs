//! What the reaper costs while everything is acked in time, and while there is nothing to do.

use super::{count, Options};
use crate::peers::{finished, TIMEOUT};
use crate::process::{reaper, Reaper};
use crate::report::{Report, Spread, Target};
use expiry::{AckTracker, Outcome, Root};
use serde_json::json;
use std::time::{Duration, Instant};

/// At what rate trees complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// A tree lives this long.
    Lives(Duration),
    /// As fast as one thread can.
    Flat,
}

const EDGE: u64 = 1;

/// How often a paced sender looks at the clock.
const BURST: usize = 256;

/// What the reaper has used up: by its own account, and by the kernel's.
#[derive(Clone, Copy)]
struct Used {
    busy: Duration,
    rounds: u64,
    thread: Reaper,
}

fn used(tracker: &AckTracker) -> Used {
    let metrics = tracker.metrics();
    Used {
        busy: metrics.reaper_busy,
        rounds: metrics.reaper_rounds,
        thread: reaper().unwrap_or_default(),
    }
}

/// Keeps `window` full for `time`, oldest first.
fn keep_full(tracker: &AckTracker, window: &mut [Root], pace: Pace, time: Duration) -> u64 {
    let began = Instant::now();
    let mut done = 0u64;
    let mut at = 0;
    loop {
        let passed = began.elapsed();
        if passed >= time {
            return done;
        }
        if let Pace::Lives(life) = pace {
            let due = passed.as_secs_f64() / life.as_secs_f64();
            #[allow(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss
            )]
            let wanted = (due * window.len() as f64) as u64;
            if done + BURST as u64 > wanted {
                std::thread::sleep(Duration::from_micros(500));
                continue;
            }
        }
        for _ in 0..BURST {
            let root = &mut window[at];
            tracker.ack(*root, EDGE).expect("acked in time");
            *root = tracker.issue(EDGE, done).expect("room");
            at += 1;
            if at == window.len() {
                at = 0;
            }
            done += 1;
        }
    }
}

/// Waits until the reaper has had no round for a second. How long that took; none if it never did.
fn quiet(tracker: &AckTracker, patience: Duration) -> Option<Duration> {
    let began = Instant::now();
    let (mut rounds, mut since) = (used(tracker).rounds, Instant::now());
    while began.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(10));
        let now = used(tracker).rounds;
        if now != rounds {
            (rounds, since) = (now, Instant::now());
        }
        if since.elapsed() > Duration::from_secs(1) {
            return Some(began.elapsed());
        }
    }
    None
}

fn one(figure: f64) -> Spread {
    Spread::of([figure])
}

/// Runs the figure at 1 M in flight.
pub fn run(options: &Options, report: &mut Report) {
    for in_flight in options.loads(&[1_000_000]) {
        busy(options, report, in_flight);
    }
    idle(options, report);
}

#[allow(clippy::cast_precision_loss)]
fn busy(options: &Options, report: &mut Report, in_flight: usize) {
    let table = format!("reaper, {} in flight", count(in_flight));
    report.head(
        &table,
        &format!(
            "issued, first in first out, timeout {TIMEOUT:?}, all acked in time, watched for {:?}",
            options.watch
        ),
    );
    for (name, pace) in [
        ("each lives 10 s", Pace::Lives(Duration::from_secs(10))),
        ("one thread, flat out", Pace::Flat),
    ] {
        let tracker = AckTracker::builder()
            .timeout(TIMEOUT)
            .on_outcome(|outcome: &Outcome| finished(outcome.owner))
            .build()
            .expect("valid settings");
        let mut window: Vec<Root> =
            (0..in_flight as u64).map(|owner| tracker.issue(EDGE, owner).expect("room")).collect();
        let before = used(&tracker);
        let began = Instant::now();
        let done = keep_full(&tracker, &mut window, pace, options.watch);
        let seconds = began.elapsed().as_secs_f64();
        let after = used(&tracker);
        let metrics = tracker.metrics();
        assert_eq!(metrics.total.expired, 0, "all acked in time");
        let load = json!({
            "in_flight": metrics.total.live,
            "trees_per_s": (done as f64 / seconds).round(),
            "rounds_per_s": ((after.rounds - before.rounds) as f64 / seconds * 10.0).round() / 10.0,
            "sleeps_per_s": ((after.thread.sleeps - before.thread.sleeps) as f64 / seconds * 10.0).round() / 10.0,
        });
        let share = 100.0 * (after.busy - before.busy).as_secs_f64() / seconds;
        let by_kernel = 100.0 * (after.thread.cpu - before.thread.cpu).as_secs_f64() / seconds;
        let own = format!("{name}: by its own account");
        report.figure(&table, &own, "% of a core", one(share), &load);
        let kernel = format!("{name}: by the kernel's account");
        report.check(&table, &kernel, "% of a core", one(by_kernel), Target::AtMost(1.0));
    }
}

#[allow(clippy::cast_precision_loss)]
fn idle(options: &Options, report: &mut Report) {
    let table = "wake-ups with nothing live";
    let watch = Duration::from_secs(5);
    report.head(table, &format!("rounds of the reaper within {watch:?}"));
    let tracker = AckTracker::builder().timeout(TIMEOUT).build().expect("valid settings");
    let mut look = |name: &str| {
        let before = used(&tracker);
        std::thread::sleep(watch);
        let after = used(&tracker);
        let rounds = (after.rounds - before.rounds) as f64;
        report.check(table, name, "rounds", one(rounds), Target::AtMost(0.0));
        let sleeps = (after.thread.sleeps - before.thread.sleeps) as f64;
        let name = format!("{name}: by the kernel's account");
        report.figure(table, &name, "sleeps", one(sleeps), &json!({}));
    };
    options.say("a fresh tracker");
    let _ = quiet(&tracker, Duration::from_secs(5));
    look("a fresh tracker");
    let roots: Vec<Root> =
        (0..1_000_000).map(|owner| tracker.issue(EDGE, owner).expect("room")).collect();
    for root in roots {
        tracker.ack(root, EDGE).expect("acked in time");
    }
    // Its buckets are looked at once more, when they would have been due.
    let before = used(&tracker);
    let began = Instant::now();
    std::thread::sleep(TIMEOUT + Duration::from_secs(3));
    let rounds = (used(&tracker).rounds - before.rounds) as f64;
    let seconds = began.elapsed().as_secs_f64();
    let load = json!({ "seconds": seconds.round() });
    let name = "after 1 M were acked, until they would have been due";
    report.figure(table, name, "rounds", one(rounds), &load);
    let _ = quiet(&tracker, Duration::from_secs(5));
    let mut look = |name: &str| {
        let before = used(&tracker);
        std::thread::sleep(watch);
        let rounds = (used(&tracker).rounds - before.rounds) as f64;
        report.check(table, name, "rounds", one(rounds), Target::AtMost(0.0));
    };
    look("and from then on");
}
