//! Timeouts of futures: what a timeout adds to a future that yields once, what a million sleeps
//! take, and how late they wake.

use super::{count, name, numbers, Options};
use crate::process::{resident, settled};
use crate::report::{Report, Spread, Target};
use crate::timeouts::{self, Bare, Guard, Load, Ours, Pingora, Tokio, PATIENCE};
use serde_json::{json, Value};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const EACH: usize = 1_000_000;

/// The most that a timeout of each peer but the first may add, as a share of what the peer's adds.
const LIMITS: [f64; 4] = [1.0, 0.25, 1.0, 0.6];

fn entry<G: Guard>() -> (&'static str, fn(&Load) -> f64) {
    (G::NAME, |load| timeouts::run::<G>(load, PATIENCE))
}

/// Runs the figure. All peers of a round run within a second or so of each other; the added cost is
/// taken round by round.
pub fn run(options: &Options, report: &mut Report) {
    let loads = [1, 64].map(|tasks| options.threads.iter().map(move |&threads| (tasks, threads)));
    for (tasks, threads) in loads.into_iter().flatten() {
        let load = Load { tasks: tasks * threads, threads, each: EACH / tasks };
        let rounds = options.rounds;
        let mut table = report.table(
            format!("timeouts, {threads} worker(s), {tasks} task(s) each"),
            &format!(
                "{rounds} rounds of {} futures that yield once, one after the other in each of {} tasks of a runtime of {threads} worker(s)",
                load.operations(),
                load.tasks
            ),
        );
        let peers = [
            entry::<Bare>(),
            entry::<Ours>(),
            entry::<Tokio>(),
            entry::<Pingora>(),
            #[cfg(tokio_unstable)]
            entry::<timeouts::TokioAlternative>(),
        ];
        let took = options.in_turn(rounds, &peers, |peer| peer.0.to_string(), |peer| peer.1(&load));
        let over = |(took, bare): (&f64, &f64)| took - bare;
        let added = took[1..].iter().map(|guarded| guarded.iter().zip(&took[0]).map(over));
        let added: Vec<Vec<f64>> = added.map(Iterator::collect).collect();
        table.figure(Bare::NAME, "ns/future", Spread::of(took[0].iter().copied()));
        for ((name, _), added) in peers[1..].iter().zip(&added) {
            let name = format!("{name}, timeout: added");
            table.figure(&name, "ns/future", Spread::of(added.iter().copied()));
        }
        for ((theirs, (name, _)), limit) in added.iter().zip(&peers[1..]).zip(LIMITS).skip(1) {
            let name = format!("added, of that of {name}");
            let share = Spread::ratio(&added[0], theirs);
            table.check(&name, "times", share, Target::AtMost(limit));
        }
    }
}

const OVER: Duration = Duration::from_secs(5);

/// A task for each sleep, on two workers; the first wakes when all have had the time to begin.
fn measure<S: Guard>(entries: usize) -> Value {
    let (runtime, sleeper) = timeouts::runtime::<S>(2);
    // Microseconds of each; the pages are written to before anything is measured.
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
            // A peer may go by a coarser clock: the figure reports how often it was early.
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
        "name": if S::GUARDS { format!("{}, sleep", S::NAME) } else { "tasks that only wait".into() },
        "bytes": (filled.saturating_sub(before)) as f64 / entries as f64,
        "arm_ns": (armed - cpu).as_nanos() as f64 / entries as f64,
    });
    if S::GUARDS {
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
        "pending" => measure::<Bare>(entries),
        "ours" => measure::<Ours>(entries),
        "tokio" => measure::<Tokio>(entries),
        "pingora" => measure::<Pingora>(entries),
        #[cfg(tokio_unstable)]
        "alternative" => measure::<timeouts::TokioAlternative>(entries),
        _ => return None,
    })
}

pub fn sleeps(options: &Options, report: &mut Report) {
    for entries in options.loads(&[1_000_000]) {
        let rounds = options.rounds;
        let table = report.table(
            format!("sleeps, {} at once", count(entries)),
            &format!("a task each, two workers; due evenly over {OVER:?}; {rounds} round(s), a process each"),
        );
        let peers = [
            "pending",
            "ours",
            "tokio",
            "pingora",
            #[cfg(tokio_unstable)]
            "alternative",
        ];
        for answers in options.ask_in_turn(rounds, "sleeps", &peers, entries) {
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
                    let label = format!("{}: {what}", name(&answers));
                    table.figure(&label, unit, numbers(&answers, field));
                }
            }
        }
    }
}
