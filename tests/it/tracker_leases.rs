//! What a tracker promises of its leases: an operator's call ends only what it saw, ages and
//! latencies are right for years, and a renewal in the middle of an init holds.

use crate::support::clocks;
use crate::support::{manual_with, pass, Told, HOUR, MS, SECOND};

use clocks::Delayed;
use expiry::{Ack, AckTracker, Done, Lifetime, ManualClock, Outcome, Reason, RootId};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The tracker that a handler acts on, and the outcomes that the handler got.
#[derive(Clone, Default)]
struct Scene {
    tracker: Arc<OnceLock<Arc<AckTracker>>>,
    told: Arc<Mutex<Vec<(RootId, Reason)>>>,
}

impl Scene {
    /// A tracker without a reaper. On the first outcome its handler calls `act`.
    fn new(act: impl Fn(&AckTracker, RootId) + Send + Sync + 'static) -> (Self, Arc<AckTracker>) {
        let scene = Scene::default();
        let mine = scene.clone();
        let tracker = AckTracker::builder()
            .clock(ManualClock::new())
            .on_outcome(move |outcome: Outcome| {
                let mut told = mine.told.lock().unwrap();
                told.push((outcome.root, outcome.reason));
                let is_first = told.len() == 1;
                drop(told);
                if is_first {
                    act(mine.tracker.get().unwrap(), outcome.root);
                }
            })
            .build_manual()
            .unwrap();
        let tracker = Arc::new(tracker);
        assert!(scene.tracker.set(tracker.clone()).is_ok());
        (scene, tracker)
    }

    fn told(&self, reason: Reason) -> usize {
        let told = self.told.lock().unwrap();
        told.iter().filter(|(_, other)| *other == reason).count()
    }
}

const FAILED: Reason = Reason::Failed { by: None };

/// `fail_all` looks for the owner's roots, of which there are two, first. The handler that gets the
/// first failure acts on the other root before its turn comes. Returns how many have failed.
fn fail_all_beside(act: fn(&AckTracker, u64)) -> (Scene, Arc<AckTracker>, usize) {
    let (scene, tracker) = Scene::new(move |tracker, failed| {
        act(tracker, if failed == RootId::Chosen(1) { 2 } else { 1 });
    });
    for id in [1, 2] {
        tracker.init(id, 7, 42).unwrap();
    }
    let failed = tracker.fail_all(42);
    assert_eq!(scene.told(FAILED), failed);
    (scene, tracker, failed)
}

/// It must not fail what it did not see.
#[test]
fn fail_all_leaves_a_chosen_root_alone_that_ends_before_its_turn() {
    let (scene, tracker, failed) =
        fail_all_beside(|tracker, other| assert_eq!(tracker.ack(other, 7), Ok(Ack::Completed)));
    assert_eq!((failed, scene.told(Reason::Acked)), (1, 1));
    let total = tracker.metrics().total;
    assert_eq!((total.early_held, total.late, total.failed), (0, 0, 1));
    assert_eq!(tracker.len(), 0);
}

/// The id is in flight again by then: that is another attempt, which `fail_all` did not see.
#[test]
fn fail_all_leaves_a_later_attempt_under_the_same_id_alone() {
    let (scene, tracker, failed) = fail_all_beside(|tracker, other| {
        assert_eq!(tracker.ack(other, 7), Ok(Ack::Completed));
        // The slots of both are free, and the new attempts may have them.
        tracker.init(other, 7, 42).unwrap();
        tracker.init(3, 7, 42).unwrap();
    });
    assert_eq!((failed, scene.told(Reason::Acked)), (1, 1));
    assert_eq!(tracker.owned_by(42).len(), 2);
}

/// A root that is renewed between the look and its turn is the same root still.
#[test]
fn fail_all_ends_a_root_that_was_renewed_meanwhile() {
    let (_, tracker, failed) = fail_all_beside(|tracker, other| {
        assert_eq!(tracker.reset_timeout_for(other, HOUR), Ok(Done::Now));
    });
    assert_eq!((failed, tracker.len()), (2, 0));
}

#[test]
fn fail_all_counts_the_issued_roots_that_it_ends() {
    let (scene, tracker) = Scene::new(|tracker, failed| {
        let other = tracker.owned_by(42).into_iter().find(|one| one.root != failed);
        assert_eq!(tracker.ack(other.unwrap().root, 7), Ok(Ack::Completed));
    });
    for _ in 0..3 {
        tracker.issue(7, 42).unwrap();
    }
    let renewed = tracker.issue(7, 42).unwrap();
    tracker.issue(7, 43).unwrap();
    tracker.reset_timeout(renewed).unwrap();
    assert_eq!(tracker.fail_all(42), 3);
    assert_eq!((scene.told(FAILED), scene.told(Reason::Acked)), (3, 1));
    assert_eq!((tracker.len(), tracker.metrics().total.late), (1, 0));
}

/// Trackers of all kinds of settings: a timeout, none; a short interval, a long one.
fn settings() -> Vec<(&'static str, expiry::AckTrackerBuilder)> {
    let builder = || AckTracker::builder().latency_sampling(1.0);
    vec![
        ("default", builder()),
        ("short", builder().timeout(10 * MS)),
        ("long", builder().timeout(YEAR)),
        ("no timeout", builder().timeouts_off()),
        ("exact", builder().timeout(SECOND).interval(Duration::from_micros(10))),
    ]
}

#[test]
fn ages_are_right_for_ten_years() {
    for (name, builder) in settings() {
        let clock = ManualClock::new();
        let tracker = builder.clock(clock.clone()).build_manual().unwrap();
        tracker.issue_for(7, 42, Lifetime::Never).unwrap();
        tracker.init_for(1, 7, 42, Lifetime::Never).unwrap();
        let mut age = Duration::ZERO;
        // The second step is where 32 bits of 1024 ns, the unit of the default timeout, began
        // again.
        for step in [SECOND, 4409 * SECOND, YEAR, 9 * YEAR + Duration::from_nanos(1)] {
            clock.advance(step);
            age += step;
            let ages: Vec<_> = tracker.oldest(9).iter().map(|root| root.age).collect();
            assert_eq!(ages, [age, age], "{name}");
            let counts = tracker.counts_by_age(&[age, age + Duration::from_nanos(1)]);
            assert_eq!(counts, [0, 2, 0], "{name}");
        }
    }
}

#[test]
fn latencies_are_right_for_ten_years() {
    for (name, builder) in settings() {
        let clock = ManualClock::new();
        let told = Told::default();
        let tell = told.handler();
        let tracker = builder
            .clock(clock.clone())
            .on_outcome(move |outcome: Outcome| tell(outcome.latency))
            .build_manual()
            .unwrap();
        for time in [SECOND, 4410 * SECOND, 10 * YEAR + Duration::from_nanos(1)] {
            let issued = tracker.issue_for(7, 42, Lifetime::Never).unwrap();
            tracker.init_for(1, 7, 42, Lifetime::Never).unwrap();
            clock.advance(time);
            assert_eq!(tracker.ack(issued, 7), Ok(Ack::Completed));
            assert_eq!(tracker.ack(1_u64, 7), Ok(Ack::Completed));
            assert_eq!(told.take(), [Some(time), Some(time)], "{name}");
        }
    }
}

/// An init that finds early signs takes them over in two steps. A renewal between them is reported,
/// and holds.
#[test]
fn a_renewal_in_the_middle_of_an_init_holds() {
    renewed_in_the_middle(None);
    renewed_in_the_middle(Some(8 * SECOND));
}

fn renewed_in_the_middle(idle: Option<Duration>) {
    let mut met = 0;
    for readings in 0.. {
        let clock = Delayed::default();
        let builder = AckTracker::builder();
        let builder = idle.map_or(builder.clone(), |idle| builder.idle_timeout(idle));
        let tracker = builder
            .timeout(10 * SECOND)
            .interval(SECOND)
            // So that the init looks at the clock between its steps.
            .latency_sampling(1.0)
            .clock(clock.clone())
            .build_manual()
            .unwrap();
        let tracker = Arc::new(tracker);
        assert_eq!(tracker.ack(1_u64, 1), Ok(Ack::Held));
        let (theirs, passing) = (tracker.clone(), clock.clone());
        let answer = Arc::new(OnceLock::new());
        let said = answer.clone();
        clock.after(readings, move || {
            passing.clock.advance(5 * SECOND);
            said.set(theirs.reset_timeout(1_u64).unwrap()).unwrap();
        });
        tracker.init(1, 7, 42).unwrap();
        let Some(answer) = answer.get() else {
            break;
        };
        // Where it came before the first step it has renewed the early signs, and the init sets its
        // own time.
        if *answer == Done::Now {
            met += 1;
            let left = tracker.owned_by(42)[0].remaining;
            let lives = idle.unwrap_or(10 * SECOND);
            assert_eq!(left, Some(lives), "after {readings} readings");
            clock.clock.advance(lives - SECOND);
            tracker.poll(1000);
        }
        assert_eq!(tracker.ack(1_u64, 6), Ok(Ack::Completed));
    }
    assert_eq!(met, 1, "the renewal came between the two steps");
}

/// An init that meets early signs after a jump of the clock by years polls first. What it sets
/// counts from after that, however slow the handlers are that it calls.
#[test]
fn an_init_that_has_to_poll_first_is_not_over_when_it_returns() {
    let clock = ManualClock::new();
    let slow = clock.clone();
    let tracker = AckTracker::builder()
        .timeout(30 * SECOND)
        .interval(MS)
        .shards(1)
        .clock(clock.clone())
        .on_outcome(move |_: Outcome| slow.advance(HOUR))
        .build_manual()
        .unwrap();
    tracker.issue(7, 1).unwrap();
    assert_eq!(tracker.ack(1_u64, 1), Ok(Ack::Held));
    clock.advance(Duration::from_millis(3 << 38));
    tracker.init(1, 7, 42).unwrap();
    let left = tracker.owned_by(42)[0].remaining;
    assert_eq!(left, Some(30 * SECOND));
    while tracker.poll(1000).more {}
    assert_eq!(tracker.ack(1_u64, 7), Ok(Ack::Completed));
}

/// Times out what is idle for 30 ms, or lives for 100.
fn idling() -> (AckTracker, ManualClock, Told) {
    manual_with(|builder| builder.idle_timeout(30 * MS))
}

#[test]
fn acks_and_resets_keep_a_root_until_its_timeout() {
    for chosen in [false, true] {
        let (tracker, clock, told) = idling();
        let begin = |edges, id| match chosen {
            true => tracker.init(id, edges, id).map(|()| RootId::Chosen(id)).unwrap(),
            false => tracker.issue(edges, id).unwrap().into(),
        };
        let [_, acked, reset] = [1, 2, 3].map(|id| begin(0xff, id));
        let lives: fn(&AckTracker, u64) -> bool = |tracker, id| !tracker.owned_by(id).is_empty();
        for round in 0..4 {
            pass(&tracker, &clock, 20 * MS);
            assert_eq!(lives(&tracker, 1), round == 0, "round {round}");
            assert_eq!(tracker.ack(acked, 1 << round), Ok(Ack::Pending));
            assert_eq!(tracker.reset_timeout_for(reset, 100 * MS), Ok(Done::Now));
            let left = tracker.owned_by(3)[0].remaining.unwrap();
            assert!((30 * MS..=32 * MS).contains(&left), "{left:?}");
        }
        pass(&tracker, &clock, 25 * MS);
        assert!(!lives(&tracker, 2), "its timeout is over, however often it is acked");
        assert!(lives(&tracker, 3));
        pass(&tracker, &clock, 10 * MS);
        assert!(tracker.is_empty());
        let due = told.take().into_iter().map(|outcome| match outcome.reason {
            Reason::TimedOut { due, .. } => (outcome.owner, due.as_millis()),
            other => panic!("{other:?}"),
        });
        let due: Vec<_> = due.collect();
        assert!(matches!(due[..], [(1, 30..=32), (2, 100..=102), (3, 110..=112)]), "{due:?}");
    }
}

#[test]
fn idle_timeouts_that_cannot_be_are_refused() {
    for bad in [Duration::ZERO, Duration::from_micros(1), Duration::MAX] {
        assert!(AckTracker::builder().idle_timeout(bad).build_manual().is_err());
    }
}
