//! Tests of what a worker notices: late acks that take effect, and refusals that there should not be.

use super::*;
use crate::wordcount::attempt::{Books, End, Line};
use crate::wordcount::verdict::names;
use clap::Parser;
use expiry::AckTracker;

/// Runs `f` with a worker whose late acks are due at once, and an attempt at a line of one word.
fn with<R>(
    args: &str,
    f: impl for<'a> FnOnce(Worker<'a>, &'a AckTracker, Arc<Attempt<'a>>) -> R,
) -> (R, Arc<Checks>) {
    let checks = Arc::new(Checks::new(names(true)));
    let tracker = AckTracker::builder().build_manual().unwrap();
    let cli =
        crate::options::Cli::parse_from(format!("stress wordcount {args}").split_whitespace());
    let Some(crate::options::Scenario::Wordcount(options)) = cli.scenario else {
        unreachable!()
    };
    let faults = Faults::new(&options).unwrap();
    let (books, stats) = (Books::new(checks.clone()), Stats::default());
    let worker = Worker::new((&faults, &checks, &stats), Duration::ZERO, Duration::ZERO);
    let line = Arc::new(Line {
        id: 1,
        text: b"word".to_vec().into(),
    });
    let attempt = Arc::new(Attempt::new(line, 0, &books));
    attempt.has_words(1);
    let done = f(worker, &tracker, attempt.clone());
    attempt.count(0);
    attempt.end(End::Acked);
    drop(attempt);
    (done, checks)
}

#[test]
fn a_late_ack_that_takes_effect_is_a_violation() {
    for (ended, sound) in [(false, true), (true, false)] {
        let ((), checks) = with("--late 1", |mut worker, tracker, attempt| {
            let (handle, _) = Handle::root(tracker, 0, false).unwrap();
            worker.settle(&attempt, 0, handle, |_| {});
            if ended {
                // It has not: the tracker still tracks it, and takes the ack.
                attempt.end(End::Unsuccessful);
            }
            assert_eq!(worker.finish().late, 1);
        });
        assert_eq!(checks.holds("late_refused"), sound);
    }
}

#[test]
fn each_fault_does_what_it_says() {
    let run = |fault: &str, raw| {
        let (tally, checks) = with(fault, |mut worker, tracker, attempt| {
            let (handle, root) = Handle::root(tracker, 0, raw).unwrap();
            let mut processed = 0;
            worker.settle(&attempt, 0, handle, |_| processed += 1);
            let live = tracker.ack(root, 1).is_ok();
            (processed, live, worker.finish())
        });
        assert_eq!(checks.violations(), 0);
        tally
    };
    let (processed, live, tally) = run("", false);
    assert_eq!((processed, live, tally.completed), (1, false, 1));
    let (processed, live, tally) = run("--drop 1", false);
    assert_eq!((processed, live, tally.dropped), (0, true, 1));
    let (processed, live, tally) = run("--fail 1", false);
    assert_eq!((processed, live, tally.failed), (0, false, 1));
    let (processed, live, tally) = run("--duplicate 1", true);
    assert_eq!((processed, live), (2, false));
    assert_eq!((tally.completed, tally.refused), (1, 1));
    let (processed, live, tally) = run("--stall 1", false);
    assert_eq!((processed, live, tally.stalls), (1, false, 1));
}

#[test]
fn a_refusal_for_another_reason_is_a_violation() {
    let ((), checks) = with("", |mut worker, _, _| worker.refused(AckError::Closed));
    assert!(!checks.holds("no_surprises"));
    let ((), checks) = with("", |mut worker, _, _| worker.acked(Ok(Ack::Held)));
    assert!(!checks.holds("no_surprises"));
}
