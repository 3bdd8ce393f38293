//! Scenario `compare`: the same work for each peer that can do it, side by side in one run.
//!
//! A *contest* is one workload and those who do it. A round of it is everybody, one after the other, on each number of threads, in
//! fresh structures; rounds are repeated, so that what the machine does to one it does to all, and ratios are those of one round.
//! Workloads and peers are those of `expiry-benches`, which panic where the work was not done as it should be: here that is a
//! violation, and the peer has no figure in that round.

mod contest;
mod groups;
mod show;

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::live::{Gauge, Live};
use crate::options::{Compare, Group};
use crate::report::Report;
use contest::{Contest, Outcome, Part, Peer, Round};
use crossbeam_channel::{bounded, RecvTimeoutError};
use expiry_benches::figures::child;
use serde_json::json;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// If this process was started to weigh somebody, does that.
pub fn child() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (first, args) = args.split_first()?;
    (first == "child").then(|| match child::serve(args) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(crate::UNUSABLE),
    })
}

impl Outcome {
    /// What it is called.
    fn name(&self) -> &'static str {
        match self.contest.group {
            Group::Maps => "maps",
            Group::Expiring => "expiring",
            Group::Timers => "timers",
            Group::Timeouts => "timeouts",
        }
    }
}

/// How far it is.
#[derive(Default)]
struct Progress {
    steps: AtomicU64,
    operations: AtomicU64,
    rounds: AtomicU64,
    /// Who is at work, at what.
    now: Mutex<String>,
}

impl Progress {
    fn says(&self, what: String) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn gauge(&self, checks: &Checks) -> Gauge {
        Gauge {
            done: self.operations.load(Relaxed),
            violations: checks.violations(),
            text: self
                .now
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            ..Gauge::default()
        }
    }
}

/// Runs the scenario.
///
/// # Errors
///
/// If there is no such peer.
pub fn run(options: &Compare) -> Result<Report, Error> {
    let contests = groups::contests(options)?;
    let names: Vec<Check> = contests.iter().map(|contest| contest.check).collect();
    let checks = Checks::new(&names);
    let rounds = options.rounds.unwrap_or(if options.full { 5 } else { 3 }) as usize;
    let steps = |contest: &Contest| {
        let weighed = contest.peers.iter().filter(|peer| peer.weighed.is_some());
        rounds * contest.threads.len() * contest.peers.len() + weighed.count()
    };
    let steps: usize = contests.iter().map(steps).sum();
    let progress = Progress::default();
    let (alive, gone) = bounded::<()>(0);
    let began = Instant::now();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let (checks, progress) = (&checks, &progress);
        let work = scope.spawn(move || {
            let _alive = alive;
            let all = contests.into_iter();
            all.map(|contest| hold(contest, rounds, checks, progress))
                .collect()
        });
        let mut live = Live::new("compare", Some(steps as u64));
        while gone.recv_timeout(live.pause()) == Err(RecvTimeoutError::Timeout) {
            live.show(progress.steps.load(Relaxed), || progress.gauge(checks));
        }
        live.finish();
        // A panic beside those that are violations is a bug in this program: pass it on.
        work.join().expect("the work panicked")
    });
    let operations = ("operations", progress.operations.load(Relaxed));
    let mut report = Report::new("compare", operations, began.elapsed(), 0, &checks, options);
    report.counts.extend([
        ("contests", outcomes.len() as u64),
        ("rounds_complete", progress.rounds.load(Relaxed)),
        (
            "peers",
            outcomes
                .iter()
                .map(|outcome| outcome.contest.peers.len() as u64)
                .sum(),
        ),
    ]);
    for outcome in &outcomes {
        if outcome.rounds.is_empty() {
            let work = &outcome.contest.work;
            report.notes.push(format!(
                "no round is complete of {}: {work}",
                outcome.name()
            ));
        } else {
            report.tables.extend(show::tables(outcome));
            report.charts.extend(show::charts(outcome));
        }
    }
    report.notes.push(
        "ns: processor time of the whole process for an operation; over: of that, theirs over ours in the same round, above 1 we \
         are faster; op/s and efficiency by real time; medians [least .. greatest of the rounds]"
            .into(),
    );
    report.details = json!(outcomes.iter().map(Outcome::json).collect::<Vec<_>>());
    Ok(report)
}

/// Holds a contest, until its end or until the run is to end.
fn hold(contest: Contest, rounds: usize, checks: &Checks, progress: &Progress) -> Outcome {
    let mut complete = Vec::new();
    for number in 1..=rounds {
        let begun = format!("round {number} of {rounds}");
        match round(&contest, &begun, checks, progress) {
            Some(round) => complete.push(round),
            None => break,
        }
        progress.rounds.fetch_add(1, Relaxed);
    }
    let bytes = weigh(&contest, checks, progress);
    Outcome {
        contest,
        rounds: complete,
        bytes,
    }
}

/// A round; nothing if the run was to end before it was complete.
fn round(contest: &Contest, begun: &str, checks: &Checks, progress: &Progress) -> Option<Round> {
    let mut all = Vec::new();
    for &threads in &contest.threads {
        let mut tooks = Vec::new();
        for peer in &contest.peers {
            if interrupt::asked() {
                return None;
            }
            progress.says(format!(
                "{begun}: {}, {threads} thread(s), {}",
                peer.title, contest.work
            ));
            tooks.push(attempt(contest.check, checks, || (peer.run)(threads)));
            progress.steps.fetch_add(1, Relaxed);
            progress.operations.fetch_add(contest.timed, Relaxed);
        }
        all.push(tooks);
    }
    Some(all)
}

/// What `f` gives, unless it says, by a panic, that somebody has not done the work.
fn attempt<T>(check: Check, checks: &Checks, f: impl FnOnce() -> T) -> Option<T> {
    // What it had its hands on is gone with it.
    let panicked = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(done) => return Some(done),
        Err(panicked) => panicked,
    };
    let text = panicked.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panicked.downcast_ref::<&str>().map(ToString::to_string));
    checks.violated(check, || text.unwrap_or_else(|| "somebody panicked".into()));
    None
}

/// What an entry of each takes, in bytes.
#[allow(clippy::cast_precision_loss)] // below 2^53
fn weigh(contest: &Contest, checks: &Checks, progress: &Progress) -> Vec<Option<f64>> {
    let (task, entries) = contest.weighing;
    let each = contest.peers.iter().map(|peer: &Peer| {
        let who = peer.weighed.filter(|_| !interrupt::asked())?;
        progress.says(format!("what an entry takes: {}", peer.title));
        let answer = attempt(contest.check, checks, || child::ask(task, who, entries));
        progress.steps.fetch_add(1, Relaxed);
        Some(child::number(&answer?, "grown") / entries as f64)
    });
    let mut bytes: Vec<Option<f64>> = each.collect();
    let alone = contest
        .peers
        .iter()
        .position(|peer| peer.part == Part::Alone);
    if let Some(alone) = alone.and_then(|at| bytes[at].take()) {
        bytes.iter_mut().flatten().for_each(|bytes| *bytes -= alone);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::contest::Tooks;
    use super::*;
    use expiry_benches::process::Took;

    fn peer(name: &'static str, part: Part, run: fn(usize) -> Tooks) -> Peer {
        Peer {
            name,
            title: name,
            part,
            run: Box::new(run),
            weighed: None,
        }
    }

    fn contest() -> Contest {
        let works = |threads: usize| {
            #[allow(clippy::cast_precision_loss)]
            let nanos = 10.0 * threads as f64;
            vec![Some(Took {
                cpu: nanos,
                wall: nanos,
            })]
        };
        Contest {
            group: Group::Timers,
            work: "work".into(),
            check: "same_work",
            operations: vec!["do"],
            drawn: 0,
            threads: vec![1, 2],
            peers: vec![
                peer("ours", Part::Ours, works),
                peer("lazy", Part::Theirs, |threads| {
                    assert!(threads == 1, "lazy: fired: 3, not 4");
                    let nanos = 5.0;
                    vec![Some(Took {
                        cpu: nanos,
                        wall: nanos,
                    })]
                }),
                peer("silent", Part::Theirs, |_| std::panic::panic_any(7)),
            ],
            beside: vec![0],
            added: false,
            timed: 5,
            weighing: ("none", 1),
        }
    }

    #[test]
    fn who_does_not_do_the_work_is_told_and_the_others_go_on() {
        let checks = Checks::new(&["same_work"]);
        let progress = Progress::default();
        let outcome = hold(contest(), 3, &checks, &progress);
        let (_, texts, all) = checks.verdict();
        assert_eq!(all, 3 * 3, "{texts:?}");
        assert!(texts.contains(&"same_work: lazy: fired: 3, not 4".to_string()));
        assert!(texts.contains(&"same_work: somebody panicked".to_string()));
        assert_eq!(outcome.rounds.len(), 3);
        let rows: Vec<_> = outcome
            .rows(0)
            .iter()
            .map(|row| (row.peer, row.threads))
            .collect();
        assert_eq!(rows, [(0, 1), (0, 2), (1, 1)]);
        assert_eq!(progress.steps.load(Relaxed), 3 * 2 * 3);
        assert_eq!(progress.rounds.load(Relaxed), 3);
        let tables = show::tables(&outcome);
        assert_eq!((tables.len(), tables[0].rows.len()), (1, 3));
        assert_eq!(tables[0].rows[1][5], "0.50", "efficiency");
        assert_eq!(
            outcome.json()["operations"][0]["rows"][0]["ns"]["median"],
            10.0
        );
        assert!(!show::charts(&outcome).is_empty());
    }
}
