//! Timeouts of futures: what a timeout adds to a future that yields once, and what a million sleeps take, and how late they wake.

use super::child::{ask, number};
use super::{count, Options};
use crate::process::{resident, settled, Took};
use crate::report::{Report, Spread, Target};
use crate::timeouts::{self, Bare, Guard, Load, Ours, Pingora, Tokio};
use serde_json::{json, Value};
use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// Futures of a round, for each worker.
const EACH: usize = 1_000_000;

fn entry<G: Guard>() -> (&'static str, fn(&Load) -> Took, Vec<Took>) {
    (G::NAME, timeouts::run::<G>, Vec::new())
}

/// Runs the figure. All of a round are within a second or so of each other; what is added is taken round by round.
pub fn run(options: &Options, report: &mut Report) {
    let loads = [1, 64].map(|tasks| options.threads.iter().map(move |&threads| (tasks, threads)));
    for (tasks, threads) in loads.into_iter().flatten() {
        let table = format!("timeouts, {threads} worker(s), {tasks} task(s) each");
        let load = Load { tasks: tasks * threads, threads, each: EACH / tasks };
        let rounds = options.rounds;
        report.head(
            &table,
            &format!(
                "{rounds} rounds of {} futures that yield once, one after the other in each of {} tasks of a runtime of {threads} worker(s)",
                load.operations(),
                load.tasks
            ),
        );
        let mut all = [entry::<Bare>(), entry::<Ours>(), entry::<Tokio>(), entry::<Pingora>()];
        for _ in 0..rounds {
            for (_, run, tooks) in &mut all {
                tooks.push(run(&load));
            }
        }
        let [bare, peers @ ..] = all;
        for (what, of) in [("processor", cpu as fn(&Took) -> f64), ("wall", wall)] {
            let harness = Spread::of(bare.2.iter().map(of));
            let name = format!("{}, {what}", bare.0);
            report.figure(&table, &name, "ns/future", harness, &json!({}));
            let added = |tooks: &[Took]| -> Vec<f64> {
                tooks.iter().zip(&bare.2).map(|(took, bare)| of(took) - of(bare)).collect()
            };
            let [ours, tokio, pingora] = [0, 1, 2].map(|peer: usize| added(&peers[peer].2));
            for ((name, ..), added) in peers.iter().zip([&ours, &tokio, &pingora]) {
                let name = format!("{name}: added, {what}");
                report.figure(
                    &table,
                    &name,
                    "ns/future",
                    Spread::of(added.iter().copied()),
                    &json!({}),
                );
            }
            let beside = |theirs: &[f64]| Spread::of(ours.iter().zip(theirs).map(|(a, b)| a / b));
            let limit = if threads == 1 { 1.0 / 3.0 } else { 1.0 / 5.0 };
            let name = format!("added, of tokio's, {what}");
            report.check(&table, &name, "times", beside(&tokio), Target::AtMost(limit));
            let name = format!("added, of pingora's, {what}");
            report.check(&table, &name, "times", beside(&pingora), Target::AtMost(1.0));
        }
    }
}

fn cpu(took: &Took) -> f64 {
    took.cpu
}

fn wall(took: &Took) -> f64 {
    took.wall
}

/// Somebody who can wait.
trait Sleeper: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// Whether it ever ends.
    const WAKES: bool = true;
    /// Whether it may end before its time.
    const MAY_BE_EARLY: bool = false;

    fn new() -> Self;

    fn sleep(&self, after: Duration) -> impl Future<Output = ()> + Send;
}

/// Tasks without timers.
struct Pending;

impl Sleeper for Pending {
    const NAME: &'static str = "tasks that only wait";
    const WAKES: bool = false;

    fn new() -> Self {
        Pending
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending().await
    }
}

impl Sleeper for Ours {
    const NAME: &'static str = "expiry, sleep";

    fn new() -> Self {
        Guard::new()
    }

    async fn sleep(&self, after: Duration) {
        self.0.sleep(after).await.expect("there is room");
    }
}

impl Sleeper for Tokio {
    const NAME: &'static str = "tokio, sleep";

    fn new() -> Self {
        Tokio
    }

    async fn sleep(&self, after: Duration) {
        tokio::time::sleep(after).await;
    }
}

impl Sleeper for Pingora {
    const NAME: &'static str = "pingora-timeout, sleep";
    const MAY_BE_EARLY: bool = true;

    fn new() -> Self {
        Pingora
    }

    async fn sleep(&self, after: Duration) {
        pingora_timeout::sleep(after).await;
    }
}

/// A deadline for each task, evenly over this time.
const OVER: Duration = Duration::from_secs(5);

/// A task for each sleep, on two workers; the first wakes when all have had the time to begin.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn measure<S: Sleeper>(entries: usize) -> Value {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime without I/O");
    let sleeper = {
        let _context = runtime.enter();
        Arc::new(S::new())
    };
    // In microseconds, of each; its pages written to before anything is measured.
    let late: Arc<[AtomicU32]> = (0..entries).map(|_| AtomicU32::new(u32::MAX)).collect();
    let counts = Arc::new([0, 0, 0].map(AtomicUsize::new));
    let lead = Duration::from_micros(40 * entries as u64).max(Duration::from_millis(200));
    let (before, cpu, first) = (resident(), settled(), Instant::now() + lead);
    for at in 0..entries {
        let due = first + OVER.mul_f64(at as f64 / entries as f64);
        let (sleeper, late, counts) = (sleeper.clone(), late.clone(), counts.clone());
        runtime.spawn(async move {
            let begun = &counts[0];
            let after = due.saturating_duration_since(Instant::now());
            begun.fetch_add(1, Ordering::Relaxed);
            sleeper.sleep(after).await;
            let waited = Instant::now();
            // A peer may go by a coarser clock: that it was early is told.
            let over = waited.saturating_duration_since(due);
            late[at].store(over.as_micros() as u32, Ordering::Relaxed);
            counts[2].fetch_add(usize::from(waited < due), Ordering::Relaxed);
            counts[1].fetch_add(1, Ordering::Release);
        });
    }
    let reached = |count: usize, limit: Instant| {
        while counts[count].load(Ordering::Acquire) < entries {
            assert!(Instant::now() < limit, "{}: not in time", S::NAME);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    reached(0, first);
    let filled = resident();
    let armed = settled();
    let mut answer = json!({
        "name": S::NAME,
        "bytes": (filled.saturating_sub(before)) as f64 / entries as f64,
        "arm_ns": (armed - cpu).as_nanos() as f64 / entries as f64,
    });
    if S::WAKES {
        reached(1, first + OVER + Duration::from_secs(60));
        let fired = settled();
        let mut late: Vec<u32> = late.iter().map(|late| late.load(Ordering::Relaxed)).collect();
        late.sort_unstable();
        let quantile = |of: f64| f64::from(late[((late.len() - 1) as f64 * of) as usize]) / 1000.0;
        let early = counts[2].load(Ordering::Relaxed);
        assert!(early == 0 || S::MAY_BE_EARLY, "{}: {early} early", S::NAME);
        answer["early"] = json!(early);
        answer["wake_ns"] = json!((fired - armed).as_nanos() as f64 / entries as f64);
        for (name, of) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            answer[name] = json!(quantile(of));
        }
    }
    answer
}

/// The child's side.
pub fn serve(peer: &str, entries: usize) -> Option<Value> {
    Some(match peer {
        "pending" => measure::<Pending>(entries),
        "ours" => measure::<Ours>(entries),
        "tokio" => measure::<Tokio>(entries),
        "pingora" => measure::<Pingora>(entries),
        _ => return None,
    })
}

/// Runs the figure at 1 M; a round is a process.
pub fn sleeps(options: &Options, report: &mut Report) {
    for entries in options.loads(&[1_000_000]) {
        let table = format!("sleeps, {} at once", count(entries));
        let rounds = options.rounds;
        report.head(
            &table,
            &format!("a task each, two workers; due evenly over {OVER:?}; {rounds} round(s), a process each"),
        );
        let peers = ["pending", "ours", "tokio", "pingora"];
        let mut answers: Vec<Vec<Value>> = vec![Vec::new(); peers.len()];
        for _ in 0..rounds {
            for (peer, answers) in peers.iter().zip(&mut answers) {
                options.say(&format!("{peer}, {entries}"));
                answers.push(ask("sleeps", peer, entries));
            }
        }
        for answers in &answers {
            let name = answers[0]["name"].as_str().unwrap_or_default();
            for (field, what, unit) in [
                ("bytes", "the task included", "bytes"),
                ("arm_ns", "to begin, processor", "ns"),
                ("wake_ns", "to wake, processor", "ns"),
                ("p50", "late, median", "ms"),
                ("p99", "late, 99 of 100", "ms"),
                ("max", "late, at most", "ms"),
                ("early", "woken early", "of them"),
            ] {
                if answers[0][field].is_number() {
                    let spread = Spread::of(answers.iter().map(|answer| number(answer, field)));
                    report.figure(&table, &format!("{name}: {what}"), unit, spread, &json!({}));
                }
            }
        }
    }
}
