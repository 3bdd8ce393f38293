//! Tests of a spout's own checks: outcomes that come twice, to nobody, for another root, or too early.

use super::*;
use crate::wordcount::verdict::names;
use crossbeam_channel::bounded;

fn checks() -> Arc<Checks> {
    Arc::new(Checks::new(names(true)))
}

#[test]
fn outcomes_of_nobody_and_outcomes_too_many_are_violations() {
    let tracker = AckTracker::builder().build_manual().unwrap();
    let root = RootId::Issued(tracker.issue(1, 0).unwrap());
    let of = |owner| tracker_outcome(root, owner);
    let checks = checks();
    let (spout, _outcomes) = bounded(1);
    let desk = Desk {
        spouts: vec![spout],
        checks: checks.clone(),
    };
    desk.outcome(&of(owner(0, 0, 0)));
    assert_eq!(checks.violations(), 0);
    desk.outcome(&of(owner(0, 0, 1)));
    assert_eq!(checks.violations(), 1);
    desk.outcome(&of(owner(1, 0, 0)));
    assert_eq!(checks.violations(), 2);
    assert!(!checks.holds("one_outcome_each"));
}

/// An outcome of the given root and owner, from a tracker that was made to give one.
fn tracker_outcome(root: RootId, owner: u64) -> Outcome {
    let (tracker, outcomes) = AckTracker::builder()
        .build_with_channel(1, expiry::WhenFull::Wait)
        .unwrap();
    let issued = tracker.issue(1, owner).unwrap();
    tracker.ack(issued, 1).unwrap();
    let mut outcome = outcomes.try_next().unwrap();
    outcome.root = root;
    outcome
}

#[test]
fn a_spout_refuses_outcomes_that_are_not_its_own() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "one\ntwo\n").unwrap();
    let files = Files::list(Some(dir.path())).unwrap();
    let tracker = AckTracker::builder().build_manual().unwrap();
    let options = "stress wordcount --drop 0".split(' ');
    let Some(crate::options::Scenario::Wordcount(options)) =
        <crate::options::Cli as clap::Parser>::parse_from(options).scenario
    else {
        unreachable!()
    };
    let faults = Faults::new(&options).unwrap();
    let checks = checks();
    let books = Books::new(checks.clone());
    let stats = Stats::default();
    let shared = Shared {
        tracker: &tracker,
        timeout: Duration::from_secs(1),
        patience: Duration::from_millis(1),
        files: &files,
        books: &books,
        faults: &faults,
        checks: &checks,
        stats: &stats,
    };
    let (_in, outcomes) = bounded(1);
    let (out, _jobs) = bounded(1);
    let mut spout = Spout::new(0, shared, (outcomes, out), (2, 1 << 20));
    let mut jobs = spout.fill();
    assert_eq!(jobs.len(), 2);
    jobs.iter().for_each(|job| job.attempt.has_words(1));
    jobs.iter().for_each(|job| job.attempt.count(0));
    let end = |spout: &mut Spout, place, tenant, root| {
        let outcome = tracker_outcome(RootId::Issued(root), owner(0, place, tenant));
        spout.ended(&Ended { outcome, at: None }, Instant::now());
        checks.violations()
    };
    let roots: Vec<Root> = spout
        .places
        .iter()
        .map(|place| place.pending.as_ref().unwrap().root)
        .collect();
    assert_eq!(end(&mut spout, 0, 0, roots[0]), 0);
    // Again; the next tenant, who has not come; a place that there is not; another's root.
    assert_eq!(end(&mut spout, 0, 0, roots[0]), 1);
    assert_eq!(end(&mut spout, 0, 1, roots[0]), 2);
    assert_eq!(end(&mut spout, 7, 0, roots[0]), 3);
    assert_eq!(end(&mut spout, 1, 0, roots[0]), 4);
    assert!(!checks.holds("one_outcome_each"));
    jobs.clear();
    // The tracker is never polled: a root that was let go of has no outcome, ever.
    assert!(checks.holds("every_root_ended"));
    spout.again.push_back((
        Arc::new(Line {
            id: 9,
            text: b"three".to_vec().into(),
        }),
        0,
    ));
    spout.run();
    assert!(!checks.holds("every_root_ended"));
}

#[test]
fn a_timeout_that_is_early_by_either_clock_is_a_violation() {
    let ms = Duration::from_millis;
    for (due, seen, took, sound) in [(10, 10, 10, true), (10, 9, 10, false), (10, 12, 9, false)] {
        let checks = checks();
        not_early(&checks, (ms(due), ms(seen)), ms(took), ms(10));
        assert_eq!(checks.holds("none_early"), sound);
    }
}
