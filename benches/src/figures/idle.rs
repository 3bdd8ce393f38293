//! What the reaper costs while everything is acked in time, and while there is nothing to do.

use super::{count, Options};
use crate::peers::{finished, TIMEOUT};
use crate::process::reaper;
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

/// What the reaper has used up: seconds by its own account and by the kernel's, its rounds, and how
/// often it slept.
fn used(tracker: &AckTracker) -> [f64; 4] {
    let metrics = tracker.metrics();
    let (cpu, sleeps) = reaper().unwrap_or_default();
    let (busy, rounds) = (metrics.reaper_busy, metrics.reaper_rounds);
    [busy.as_secs_f64(), cpu.as_secs_f64(), rounds as f64, sleeps as f64]
}

/// What the reaper has used up since then.
fn used_since(tracker: &AckTracker, before: [f64; 4]) -> [f64; 4] {
    let now = used(tracker);
    std::array::from_fn(|at| now[at] - before[at])
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

/// Waits until the reaper has had no round for a second, or patience has ended.
fn quiet(tracker: &AckTracker, patience: Duration) {
    let began = Instant::now();
    let (mut rounds, mut since) = (0, Instant::now());
    while began.elapsed() < patience && since.elapsed() <= Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(10));
        let now = tracker.metrics().reaper_rounds;
        if now != rounds {
            (rounds, since) = (now, Instant::now());
        }
    }
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

fn fill(tracker: &AckTracker, in_flight: u64) -> Vec<Root> {
    (0..in_flight).map(|owner| tracker.issue(EDGE, owner).expect("room")).collect()
}

fn busy(options: &Options, report: &mut Report, in_flight: usize) {
    let watch = options.watch();
    let mut table = report.table(
        format!("reaper, {} in flight", count(in_flight)),
        &format!("issued, first in first out, timeout {TIMEOUT:?}, all acked in time, watched for {watch:?}"),
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
        let mut window = fill(&tracker, in_flight as u64);
        let (before, began) = (used(&tracker), Instant::now());
        let done = keep_full(&tracker, &mut window, pace, watch);
        let seconds = began.elapsed().as_secs_f64();
        let [own, kernel, rounds, sleeps] = used_since(&tracker, before);
        let metrics = tracker.metrics();
        assert_eq!(metrics.total.expired, 0, "all acked in time");
        let load = json!({
            "in_flight": metrics.total.live,
            "trees_per_s": (done as f64 / seconds).round(),
            "rounds_per_s": (rounds / seconds * 10.0).round() / 10.0,
            "sleeps_per_s": (sleeps / seconds * 10.0).round() / 10.0,
        });
        let (share, unit) = (|used: f64| one(100.0 * used / seconds), "% of a core");
        table.loaded(&format!("{name}: by its own account"), unit, share(own), &load);
        let name = format!("{name}: by the kernel's account");
        table.check(&name, unit, share(kernel), Target::AtMost(1.0));
    }
}

fn idle(options: &Options, report: &mut Report) {
    let watch = Duration::from_secs(5);
    let title = "wake-ups with nothing live".to_string();
    let mut table = report.table(title, &format!("rounds of the reaper within {watch:?}"));
    let tracker = AckTracker::builder().timeout(TIMEOUT).build().expect("valid settings");
    let over = |time| {
        let before = used(&tracker);
        std::thread::sleep(time);
        let [_, _, rounds, sleeps] = used_since(&tracker, before);
        (one(rounds), one(sleeps))
    };
    options.say("a fresh tracker");
    quiet(&tracker, Duration::from_secs(5));
    let (rounds, sleeps) = over(watch);
    table.check("a fresh tracker", "rounds", rounds, Target::AtMost(0.0));
    table.figure("a fresh tracker: by the kernel's account", "sleeps", sleeps);
    for root in fill(&tracker, 1_000_000) {
        tracker.ack(root, EDGE).expect("acked in time");
    }
    // Its buckets are looked at once more, when they would have been due.
    let time = TIMEOUT + Duration::from_secs(3);
    let load = json!({ "seconds": time.as_secs() });
    let name = "after 1 M were acked, until they would have been due";
    table.loaded(name, "rounds", over(time).0, &load);
    quiet(&tracker, Duration::from_secs(5));
    table.check("and from then on", "rounds", over(watch).0, Target::AtMost(0.0));
}
