//! Every mistake that a caller can make is a typed error that says what to do, and costs nothing:
//! what was there before still is.
//!
//! Not produced here, because it takes a machine that refuses memory or threads: `OutOfMemory`,
//! `NoThread`; and of trackers `Collisions`, which takes ids found by 2^35 trials.

use crate::support;

use crate::support::{after, manual, manual_with, GENEROUS, MS, SECOND};
use expiry::{
    Ack, AckError, AckTracker, AckTrackerBuilder, BuildError, Clock, Done, ExpiringMap,
    ExpiryQueue, Lifetime, LifetimeError, ManualClock, Outcome, PendingMap, PendingTable, Reaper,
    Root, SessionTracker, ShutdownMode, TimeCacheMap, Tuple, WhenFull,
};
use std::sync::Arc;
use std::time::Duration;

/// Says what to do, not only what is wrong: an instruction, or the range that is allowed.
fn says_what_to_do(error: &dyn std::error::Error) {
    let text = error.to_string();
    let instructions = [
        "use ",
        "try again",
        "wait ",
        "raise ",
        "build ",
        "leave it out",
        "must be",
        "replay",
        "ignore",
        "drop ",
        "release",
        "free ",
        "make ",
        "set ",
    ];
    assert!(
        instructions.iter().any(|words| text.contains(words)),
        "does not say what to do: {text:?}"
    );
    assert!(!text.ends_with('.') && text.len() > 10, "{text:?}");
}

fn refused(set: impl FnOnce(AckTrackerBuilder) -> AckTrackerBuilder) -> BuildError {
    let error = set(AckTracker::builder()).build_manual().unwrap_err();
    says_what_to_do(&error);
    error
}

#[test]
fn timeouts_of_zero_or_nearly() {
    assert_eq!(refused(|b| b.timeout(Duration::ZERO)), BuildError::ZeroTimeout);
    assert_eq!(refused(|b| b.early_timeout(Duration::ZERO)), BuildError::ZeroTimeout);
    let timeout = MS / 1000;
    assert_eq!(refused(|b| b.timeout(timeout)), BuildError::TimeoutTooShort { timeout });
}

#[test]
fn absurd_timeouts() {
    let timeout = Duration::from_secs(365 * 24 * 3600 * 20);
    let error = refused(|b| b.timeout(timeout).interval(MS));
    let BuildError::TimeoutTooLong { timeout: of, longest } = error else { panic!("{error:?}") };
    assert_eq!(of, timeout);
    // The error's advice works, to the nanosecond.
    assert_eq!(longest, MS * 2u32.pow(30) * 2u32.pow(9) - 2 * MS);
    assert!(AckTracker::builder().timeout(longest).interval(MS).build_manual().is_ok());
    let more = longest + Duration::from_nanos(1);
    refused(|b| b.timeout(more).interval(MS));
    let built = AckTracker::builder().timeout(timeout).interval(SECOND).build_manual();
    assert!(built.is_ok());
    let error = refused(|b| b.early_timeout(timeout).interval(MS));
    assert!(matches!(error, BuildError::TimeoutTooLong { .. }), "{error:?}");
    let error = refused(|b| b.timeout(Duration::MAX).interval(MS));
    assert!(matches!(error, BuildError::TimeoutTooLong { .. }), "{error:?}");
}

#[test]
fn absurd_intervals() {
    for interval in [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(9_999)] {
        assert_eq!(refused(|b| b.interval(interval)), BuildError::IntervalTooShort { interval });
    }
    assert!(AckTracker::builder().interval(Duration::from_micros(10)).build_manual().is_ok());
    let error = refused(|b| b.timeout(10 * MS).interval(11 * MS));
    let expected = BuildError::IntervalAboveTimeout { interval: 11 * MS, timeout: 10 * MS };
    assert_eq!(error, expected);
    assert!(AckTracker::builder().timeout(10 * MS).interval(10 * MS).build_manual().is_ok());
    let error = refused(|b| b.early_timeout(10 * MS).interval(11 * MS));
    assert_eq!(error, expected);
    let error = refused(|b| b.interval(Duration::MAX));
    assert!(matches!(error, BuildError::IntervalAboveTimeout { .. }), "{error:?}");
}

#[test]
fn absurd_counts() {
    for shards in [1, 2, 256] {
        assert!(AckTracker::builder().shards(shards).build_manual().is_ok());
    }
    assert!(AckTracker::builder().capacity(1 << 31).build_manual().is_ok());
    for rate in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(refused(|b| b.latency_sampling(rate)), BuildError::BadSamplingRate);
    }
}

/// Checks that each of these builders refuses settings that all stores have, and a channel beside
/// its listener.
macro_rules! refuse_alike {
    ($($builder:expr, $listens:ident($listener:expr);)*) => {$(
        let check = |built: Option<BuildError>, error: BuildError| {
            assert_eq!(built.as_ref(), Some(&error), "{}", stringify!($builder));
            says_what_to_do(&error);
        };
        for shards in [0, 3, 12, 257, 512, usize::MAX] {
            let built = $builder.shards(shards).build_manual();
            check(built.err(), BuildError::BadShards { shards });
        }
        let (interval, capacity) = (Duration::ZERO, usize::MAX);
        let built = $builder.interval(interval).build_manual();
        check(built.err(), BuildError::IntervalTooShort { interval });
        check($builder.capacity(0).build_manual().err(), BuildError::ZeroCapacity);
        let built = $builder.capacity(capacity).build_manual();
        check(built.err(), BuildError::CapacityTooLarge { capacity });
        let manual = || $builder.clock(ManualClock::new());
        check(manual().build().err(), BuildError::ManualClock);
        let shared = manual().reaper(&Reaper::global().unwrap());
        check(shared.build_with_channel(1, WhenFull::Drop).err(), BuildError::ManualClock);
        let same = $builder.clock(Arc::new(ManualClock::new()) as Arc<dyn Clock>);
        check(same.build().err(), BuildError::ManualClock);
        check($builder.reaper_budget(0).build_manual().err(), BuildError::ZeroBudget);
        for when_full in [WhenFull::Wait, WhenFull::Spill, WhenFull::Drop] {
            let built = $builder.build_with_channel(0, when_full);
            check(built.err(), BuildError::ZeroChannel);
            for length in [(1 << 31) + 1, 1_000_000_000_000, usize::MAX] {
                let built = $builder.build_manual_with_channel(length, when_full);
                check(built.err(), BuildError::ChannelTooLong { length });
            }
            let built = $builder.$listens($listener).build_with_channel(1, when_full);
            check(built.err(), BuildError::TwoReceivers);
            let built = $builder.$listens($listener).build_manual_with_channel(1, when_full);
            check(built.err(), BuildError::TwoReceivers);
        }
    )*};
}

#[test]
fn every_store_refuses_the_same() {
    refuse_alike! {
        AckTracker::builder(), on_outcome(|_: Outcome| ());
        ExpiringMap::<u64, u64>::builder(), removal_listener(|_, _, _| ());
        ExpiryQueue::<u64>::builder(), expiry_listener(|_| ());
        SessionTracker::builder(), expiry_listener(|_| ());
        PendingTable::<u64>::builder(), expiry_listener(|_| ());
        PendingMap::<u64, u64>::builder(), expiry_listener(|_, _| ());
    }
    let cache = TimeCacheMap::<u64, u64>::builder(1000 * MS).clock(ManualClock::new());
    assert_eq!(cache.build().err(), Some(BuildError::ManualClock));
    #[cfg(feature = "async")]
    {
        let timeouts = expiry::Timeouts::builder().clock(ManualClock::new());
        assert_eq!(timeouts.build().err(), Some(BuildError::ManualClock));
    }
}

#[test]
fn errors_of_single_calls_say_what_to_do() {
    for error in [
        AckError::ZeroEdge,
        AckError::NotLive,
        AckError::Lifetime(LifetimeError::Zero),
        AckError::Lifetime(LifetimeError::TooLong),
        AckError::Closed,
        AckError::Duplicate,
        AckError::EarlyFull,
        AckError::Full,
    ] {
        says_what_to_do(&error);
    }
}

/// Unknown roots: bits that were never issued, and roots that have ended.
#[test]
fn unknown_roots() {
    let (tracker, _, told) = manual();
    let live = tracker.issue(5, 0).unwrap();
    for bits in [0, 1, u64::MAX, 1 << 63, live.to_bits() ^ 1, live.to_bits() ^ 1 << 63] {
        let root = Root::from_bits(bits);
        assert_eq!(tracker.ack(root, 5), Err(AckError::NotLive), "{root:?}");
        assert_eq!(tracker.fail(root), Err(AckError::NotLive));
        assert_eq!(tracker.fail_by(root, 1), Err(AckError::NotLive));
        assert_eq!(tracker.reset_timeout(root), Err(AckError::NotLive));
        assert_eq!(tracker.reset_timeout_for(root, Lifetime::Never), Err(AckError::NotLive));
        tracker.ack_many(&[(root, 5)], |_, result| {
            assert_eq!(result, Err(AckError::NotLive));
        });
    }
    assert_eq!(tracker.metrics().total.late, 36);
    assert_eq!(tracker.len(), 1);
    assert_eq!(tracker.ack(live, 5), Ok(Ack::Completed));
    assert_eq!(told.take().len(), 1);
}

#[test]
fn duplicates_full_tables_and_too_many_early_arrivals() {
    let (tracker, _, told) = manual_with(|b| b.capacity(3).early_capacity(1));
    tracker.init(1, 5, 0).unwrap();
    assert_eq!(tracker.init(1, 5, 0), Err(AckError::Duplicate));
    tracker.ack(2, 5).unwrap();
    assert_eq!(tracker.ack(3, 5), Err(AckError::EarlyFull));
    tracker.issue(5, 0).unwrap();
    assert_eq!(tracker.issue(5, 0), Err(AckError::Full));
    assert_eq!(tracker.init(4, 5, 0), Err(AckError::Full));
    let mut into = Vec::new();
    assert_eq!(tracker.issue_many(&[(5, 0)], &mut into), Err(AckError::Full));
    assert!(into.is_empty());
    tracker.init_many(&[(4, 5, 0)], |_, result| assert_eq!(result, Err(AckError::Full)));
    assert_eq!(Tuple::root(&tracker, 0).err(), Some(AckError::Full));
    assert_eq!(tracker.len(), 3);
    let metrics = tracker.metrics();
    assert_eq!((metrics.capacity, metrics.refused), (Some(3), 5));
    assert_eq!((metrics.total.early_refused, metrics.total.duplicate), (1, 1));
    assert_eq!(tracker.ack(1, 5), Ok(Ack::Completed));
    assert_eq!(tracker.init(2, 5, 0), Ok(()));
    assert_eq!(told.take().len(), 2);
    // What comes early needs a slot too. The shutdown refuses nothing that is counted.
    for root in [5, 6] {
        tracker.init(root, 5, 0).unwrap();
    }
    assert_eq!(tracker.ack(7, 5), Err(AckError::Full));
    tracker.shutdown(ShutdownMode::Cancel);
    assert_eq!(tracker.issue(5, 0), Err(AckError::Closed));
    assert_eq!(tracker.metrics().refused, 6);
}

#[test]
fn the_longest_timeout_is_the_longest() {
    let (tracker, ..) = manual();
    let longest = tracker.longest_timeout();
    let mut into = Vec::new();
    for (timeout, issued) in
        [(longest, Ok(())), (longest + MS, Err(AckError::Lifetime(LifetimeError::TooLong)))]
    {
        assert_eq!(tracker.issue_for(5, 0, after(timeout)).map(|_| ()), issued);
        assert_eq!(tracker.issue_many_for(&[(5, 0)], after(timeout), &mut into), issued);
        assert_eq!(Tuple::root_for(&tracker, 0, after(timeout)).map(drop), issued);
    }
    assert_eq!((tracker.len(), into.len()), (3, 1));
}

/// Use after a shutdown: refused, whatever it is; what was live has had its outcome.
#[test]
fn use_after_shutdown() {
    for manual in [true, false] {
        let told = support::Told::default();
        let builder = AckTracker::builder().on_outcome(told.handler());
        let tracker = if manual { builder.build_manual() } else { builder.build() }.unwrap();
        let root = tracker.issue(5, 0).unwrap();
        tracker.init(1, 5, 0).unwrap();
        tracker.ack(2, 5).unwrap();
        let mut line = Tuple::root(&tracker, 0).unwrap();
        let word = line.emit();
        tracker.shutdown(ShutdownMode::Cancel);
        assert_eq!(told.take().len(), 3);
        assert_eq!(tracker.issue(5, 0), Err(AckError::Closed));
        assert_eq!(tracker.issue(0, 0), Err(AckError::Closed));
        assert_eq!(tracker.init(3, 5, 0), Err(AckError::Closed));
        assert_eq!(tracker.init(2, 5, 0), Err(AckError::Closed));
        let mut into = Vec::new();
        assert_eq!(tracker.issue_many(&[(5, 0)], &mut into), Err(AckError::Closed));
        tracker.init_many(&[(3, 5, 0)], |_, result| assert_eq!(result, Err(AckError::Closed)));
        assert_eq!(tracker.ack(root, 5), Err(AckError::NotLive));
        assert_eq!(tracker.fail(root), Err(AckError::NotLive));
        assert_eq!(tracker.reset_timeout(root), Err(AckError::NotLive));
        for gone in [
            tracker.ack(1, 5).err(),
            tracker.fail(1).err(),
            tracker.reset_timeout(1).err(),
            tracker.ack(7, 5).err(),
        ] {
            assert!(matches!(gone, Some(AckError::Closed | AckError::NotLive)), "{gone:?}");
        }
        assert_eq!(word.ack(), Err(AckError::NotLive));
        assert_eq!(line.fail(), Err(AckError::NotLive));
        assert_eq!(Tuple::root(&tracker, 0).err(), Some(AckError::Closed));
        assert!(!tracker.poll(100).more);
        assert!(tracker.shutdown(ShutdownMode::Drain(GENEROUS)).is_empty());
        assert_eq!(tracker.fail_all(0), 0);
        assert!(tracker.oldest(10).is_empty());
        assert!(tracker.is_empty() && told.take().is_empty());
    }
}

/// Numbers at the ends of their range are no mistakes.
#[test]
fn extreme_numbers_are_fine() {
    let (tracker, _, told) = manual();
    for id in [0, 1, u64::MAX, u64::MAX - 1, 1 << 63] {
        for owner in [0, u64::MAX] {
            tracker.init(id, u64::MAX, owner).unwrap();
            assert_eq!(tracker.ack(id, 1), Ok(Ack::Pending));
            assert_eq!(tracker.ack(id, u64::MAX ^ 1), Ok(Ack::Completed));
            let root = tracker.issue(u64::MAX, owner).unwrap();
            assert_eq!(tracker.fail_by(root, u64::MAX), Ok(Done::Now));
            let told = told.take();
            assert!(told.len() == 2 && told.iter().all(|told| told.owner == owner));
        }
    }
    // A budget of zero counts as one, or this would never end.
    while tracker.poll(0).more {}
    assert!(tracker.oldest(0).is_empty());
    assert_eq!(tracker.counts_by_age(&[]), [0]);
}
