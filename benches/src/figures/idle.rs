//! What the reaper costs while everything is acked in time, and while nothing is due for an hour.

use super::{count, Options};
use crate::peers::{finished, TIMEOUT};
use crate::process::{reaper, resident};
use crate::report::{Report, Spread, Target};
use expiry::{AckTracker, ExpiringMap, Outcome, Reaper, RemovalCause, Root};
use serde_json::json;
use std::time::{Duration, Instant};

const EDGE: u64 = 1;

/// How often a paced sender looks at the clock.
const BURST: usize = 256;

/// What the reaper has used up while `work` ran: seconds by the kernel's account, its rounds, and
/// how often it slept. Returns the result of `work`, too.
fn used<R>(tracker: &AckTracker, work: impl FnOnce() -> R) -> ([f64; 3], R) {
    let used = || {
        let (cpu, sleeps) = reaper().unwrap_or_default();
        [cpu.as_secs_f64(), tracker.metrics().reaper_rounds as f64, sleeps as f64]
    };
    let (before, done) = (used(), work());
    let now = used();
    (std::array::from_fn(|at| now[at] - before[at]), done)
}

/// Keeps `window` full for `time`, oldest first: each tree lives `life`, or as long as a turn of
/// the window takes. Returns how many trees completed.
fn keep_full(
    tracker: &AckTracker,
    window: &mut [Root],
    life: Option<Duration>,
    time: Duration,
) -> u64 {
    let began = Instant::now();
    let mut done = 0u64;
    let mut at = 0;
    loop {
        let passed = began.elapsed();
        if passed >= time {
            return done;
        }
        if let Some(life) = life {
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

fn one(figure: f64) -> Spread {
    Spread::of([figure])
}

pub fn run(options: &Options, report: &mut Report) {
    for in_flight in options.loads(&[1_000_000]) {
        busy(options, report, in_flight);
    }
    many(options, report);
    brief(options, report);
}

/// A thousand maps, each with an entry that lives for an hour, on one thread.
fn many(options: &Options, report: &mut Report) {
    const STORES: usize = 1000;
    let watch = Duration::from_secs(5);
    let title = format!("{STORES} maps that share a reaper");
    let what = format!("an entry in each; rounds within {watch:?}; resident bytes a map");
    let mut table = report.table(title, &what);
    options.say("maps that share a reaper");
    let shared = Reaper::new().expect("a thread");
    let before = resident();
    let builder = ExpiringMap::<u64, u64>::builder().reaper(&shared);
    let build = |_| builder.clone().build().expect("valid settings");
    let maps: Vec<_> = (0..STORES).map(build).collect();
    let hour = Duration::from_secs(3600);
    for map in &maps {
        map.insert_for(1, 1, hour).expect("room");
    }
    let bytes = (resident() - before) as f64 / STORES as f64;
    table.check("a map", "KB", one(bytes / 1000.0), Target::AtMost(34.0));
    let rounds = || maps.iter().map(|map| map.metrics().reaper_rounds).sum::<u64>();
    std::thread::sleep(Duration::from_secs(3));
    let before = rounds();
    std::thread::sleep(watch);
    table.check("all", "rounds", one((rounds() - before) as f64), Target::AtMost(0.0));
}

/// How long entries of 20 ms live in a map of hours, to which no interval was given.
fn brief(options: &Options, report: &mut Report) {
    const ENTRIES: u32 = 500;
    let mut table = report.table(
        "20 ms in a map of an hour".to_string(),
        &format!(
            "{ENTRIES} entries of 20 ms beside {ENTRIES} of an hour; until the listener's call"
        ),
    );
    options.say("20 ms in a map of an hour");
    let (sender, lived) = std::sync::mpsc::channel();
    let map = ExpiringMap::builder()
        .time_to_live(Duration::from_secs(3600))
        .removal_listener(move |_: &u32, since: &Instant, cause| {
            if cause == RemovalCause::Expired {
                sender.send(since.elapsed()).expect("a receiver");
            }
        })
        .build()
        .expect("valid settings");
    for key in 0..ENTRIES {
        map.insert(2 * key, Instant::now()).expect("room");
        let brief = Duration::from_millis(20);
        map.insert_for(2 * key + 1, Instant::now(), brief).expect("room");
        std::thread::sleep(Duration::from_micros(3300));
    }
    let mut millis: Vec<_> =
        lived.iter().take(ENTRIES as usize).map(|lived| lived.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    table.check("the first", "ms", one(millis[0]), Target::AtLeast(20.0));
    table.check("99 of 100", "ms", one(millis[millis.len() * 99 / 100]), Target::AtMost(22.0));
    table.figure("the last", "ms", one(millis[millis.len() - 1]));
}

fn fill(tracker: &AckTracker, in_flight: u64) -> Vec<Root> {
    (0..in_flight).map(|owner| tracker.issue(EDGE, owner).expect("room")).collect()
}

fn busy(options: &Options, report: &mut Report, in_flight: usize) {
    let watch = Duration::from_secs(options.seconds as u64);
    let mut table = report.table(
        format!("reaper, {} in flight", count(in_flight)),
        &format!(
            "issued, first in first out, timeout {TIMEOUT:?}, all acked in time, watched for \
             {watch:?}, by the kernel's account"
        ),
    );
    let lives = [("each lives 10 s", Some(10)), ("one thread, flat out", None)];
    for (name, life) in lives {
        let tracker = AckTracker::builder()
            .timeout(TIMEOUT)
            .on_outcome(|outcome: Outcome| finished(outcome.owner))
            .build()
            .expect("valid settings");
        let mut window = fill(&tracker, in_flight as u64);
        let began = Instant::now();
        let life = life.map(Duration::from_secs);
        let ([cpu, rounds, sleeps], done) =
            used(&tracker, || keep_full(&tracker, &mut window, life, watch));
        let seconds = began.elapsed().as_secs_f64();
        let metrics = tracker.metrics();
        assert_eq!(metrics.total.expired, 0, "all acked in time");
        let load = json!({
            "in_flight": metrics.total.live,
            "trees_per_s": (done as f64 / seconds).round(),
            "rounds_per_s": (rounds / seconds * 10.0).round() / 10.0,
            "sleeps_per_s": (sleeps / seconds * 10.0).round() / 10.0,
        });
        table.loaded(name, "% of a core", one(100.0 * cpu / seconds), &load);
        table.check(name, "% of a core", one(100.0 * cpu / seconds), Target::AtMost(1.0));
    }
}
