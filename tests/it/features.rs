//! Tests of promises of the feature list, named after its rows: A5 to A14 (ack trees), F2 to F7 and
//! F12 (the engine).
//!
//! What single calls do in each state is asserted by the histories of `oracle.rs`, beside a model:
//! answers and outcomes (A1 to A4, A12, A16), times (A10), latencies (A5), batches (A17), what an
//! operator sees (A18, F7), the ways to end (F2), what a poll returns (F3), and the bound on the
//! capacity (F5). A15 is the `compile_fail` examples of `Tuple`. F8 has a test binary of its own,
//! `memory.rs`, because it measures the process. What needs many threads is in `threads.rs`, also
//! growth (F5). What a clock that lags may delay (F9) is in `tracker_leases.rs`.

use crate::rig;
use crate::support::clocks::{Lagging, Moved, LAG, LAGS};
use crate::support::{
    after, let_pass, manual, manual_with, on_threads, panics, pass, settle, wait_for, Told,
    GENEROUS, HOUR, MS, SECOND,
};
use expiry::{
    edge, Ack, AckError, AckTracker, Done, ExpiringMap, ExpiryQueue, Lateness, Lifetime,
    ManualClock, OnDrop, Outcome, Reason, Root, RootId, ShutdownMode, Tuple, WhenFull,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

// ---- A: ack trees ----

/// A5: latency from init to outcome, for all roots, none, or a share of them.
#[test]
fn a05_latency_sampling() {
    for (rate, least, most) in [(0.0, 0, 0), (1.0, 1000, 1000), (0.5, 350, 650), (0.05, 10, 120)] {
        let (tracker, clock, told) = manual_with(|builder| builder.latency_sampling(rate));
        let mut roots: Vec<RootId> = (0..500).map(RootId::from).collect();
        (0..500).for_each(|id| tracker.init(id, 1, 0).unwrap());
        roots.extend((0..500).map(|_| RootId::from(tracker.issue(1, 0).unwrap())));
        clock.advance(10 * MS);
        for root in roots {
            tracker.ack(root, 1).unwrap();
        }
        let latencies: Vec<Duration> =
            told.take().iter().filter_map(|outcome| outcome.latency).collect();
        assert!((least..=most).contains(&latencies.len()), "{rate}: {}", latencies.len());
        for latency in latencies {
            assert!(latency.abs_diff(10 * MS) < Duration::from_micros(5), "{latency:?}");
        }
    }
}

/// A5: latencies go by exact readings, also where deadlines go by a cheap one that lags.
#[test]
fn a05_a_latency_contains_no_lag_of_the_clock() {
    let clock = Lagging(ManualClock::new());
    clock.0.advance(LAG);
    let same = clock.clone();
    let (tracker, _, told) =
        manual_with(|builder| builder.latency_sampling(1.0).interval(10 * MS).clock(same));
    clock.0.advance(100 * MS);
    LAGS.set(true);
    let mut issued = vec![tracker.issue(1, 0).unwrap()];
    tracker.issue_many(&[(1, 0)], &mut issued).unwrap();
    tracker.init(1, 1, 0).unwrap();
    tracker.init_many(&[(2, 1, 0)], |_, done| done.unwrap());
    LAGS.set(false);
    clock.0.advance(3 * MS);
    for root in issued.into_iter().map(RootId::from).chain([1.into(), 2.into()]) {
        assert_eq!(tracker.ack(root, 1), Ok(Ack::Completed));
    }
    let told = told.take();
    assert_eq!(told.len(), 4);
    for outcome in told {
        let latency = outcome.latency.expect("all are sampled");
        assert!(latency.abs_diff(3 * MS) < Duration::from_micros(5), "{outcome:?}");
    }
}

/// A6: edge ids are never zero and differ, across threads too; all bits of them vary.
#[test]
fn a06_edge_ids() {
    let all = on_threads(5, |_| (0..20_000).map(|_| edge()).collect::<Vec<u64>>()).concat();
    assert!(!all.contains(&0));
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    for bit in 0..64 {
        let set = all.iter().filter(|&id| id >> bit & 1 == 1).count();
        assert!((45_000..55_000).contains(&set), "bit {bit}: {set} of 100,000");
    }
}

/// A7: a tuple that belongs to several roots: one ack settles its share in each.
#[test]
fn a07_multi_anchoring() {
    let (tracker, _, told) = manual();
    let mut parents: Vec<_> = (0..3).map(|n| Tuple::root(&tracker, n).unwrap()).collect();
    let joined = Tuple::join(&mut parents).unwrap();
    assert_eq!(joined.roots().count(), 3);
    for parent in parents {
        assert_eq!(parent.ack(), Ok(Ack::Pending));
    }
    assert!(told.take().is_empty());
    assert_eq!(joined.ack(), Ok(Ack::Completed));
    let owners: HashSet<u64> = told.take().iter().map(|outcome| outcome.owner).collect();
    assert_eq!(owners, HashSet::from([0, 1, 2]));
}

/// A7: a fail of such a tuple fails each, and one that has ended already does not keep the others
/// from it.
#[test]
fn a07_multi_anchored_fail() {
    let (tracker, _, told) = manual();
    let mut parents: Vec<_> = (0..3).map(|n| Tuple::root(&tracker, n).unwrap()).collect();
    let joined = Tuple::join(&mut parents).unwrap();
    let root = parents[1].roots().next().unwrap();
    tracker.fail(root).unwrap();
    assert_eq!(told.only().owner, 1);
    assert_eq!(joined.reset_timeout(), Err(AckError::NotLive));
    assert_eq!(joined.fail_by(9), Err(AckError::NotLive));
    let told = told.take();
    assert_eq!(told.len(), 2);
    for outcome in told {
        assert_ne!(outcome.owner, 1);
        assert_eq!(outcome.reason, Reason::Failed { by: Some(9) });
    }
    assert!(Tuple::join(std::iter::empty::<&mut Tuple<&AckTracker>>()).is_none());
}

/// A7: two parents of the same tree: the child is one tuple of it, with the share of both.
#[test]
fn a07_joining_tuples_of_one_tree() {
    let (tracker, _, told) = manual();
    let mut line = Tuple::root(&tracker, 1).unwrap();
    let mut words = [line.emit(), line.emit()];
    let joined = Tuple::join(&mut words).unwrap();
    assert_eq!(joined.roots().count(), 1);
    for word in words {
        assert_eq!(word.ack(), Ok(Ack::Pending));
    }
    assert_eq!(line.ack(), Ok(Ack::Pending));
    assert_eq!(joined.ack(), Ok(Ack::Completed));
    assert!(told.only().is_acked());
}

/// A8: emitting costs no message: the tree learns of a child with its parent's ack, and waits for
/// all of them.
#[test]
fn a08_edges_are_cached_in_the_parent() {
    let (tracker, _, told) = manual();
    let mut line = Tuple::root(&tracker, 1).unwrap();
    let before = tracker.metrics();
    let mut words: Vec<_> = (0..100).map(|_| line.emit()).collect();
    assert_eq!(tracker.metrics(), before);
    let letter = words[0].emit();
    // Children first: the tree cannot complete as long as the parent is not acked.
    for word in words.drain(..) {
        assert_eq!(word.ack(), Ok(Ack::Pending));
    }
    assert_eq!(line.ack(), Ok(Ack::Pending));
    assert!(told.take().is_empty());
    assert_eq!(letter.ack(), Ok(Ack::Completed));
    assert!(told.only().is_acked());
}

/// A9: an unanchored tuple is not tracked.
#[test]
fn a09_no_anchor() {
    let (tracker, _, told) = manual();
    let mut tuple = Tuple::unanchored(&tracker);
    let child = tuple.emit();
    assert_eq!(child.roots().count(), 0);
    assert_eq!(child.ack(), Ok(Ack::Pending));
    assert_eq!(tuple.fail(), Ok(()));
    assert!(tracker.is_empty() && told.take().is_empty());
    assert_eq!(tracker.metrics().total.inserted, 0);
}

/// A10: with timeouts off there is no timeout that an interval could be above.
#[test]
fn a10_timeouts_off_allows_any_interval() {
    let built = AckTracker::builder()
        .timeouts_off()
        .interval(60 * SECOND)
        .early_timeout(120 * SECOND)
        .build_manual();
    assert!(built.is_ok(), "{:?}", built.err());
}

/// A11: the number of shards is a setting, and roots of both kinds spread over all of them.
#[test]
fn a11_shards() {
    for shards in [1, 2, 8] {
        let (tracker, _, _) = manual_with(|builder| builder.shards(shards));
        for n in 0..50_000 {
            tracker.init(n, 1, 0).unwrap();
        }
        for _ in 0..50_000 {
            tracker.issue(1, 0).unwrap();
        }
        let metrics = tracker.metrics();
        assert_eq!(metrics.shards.len(), shards);
        assert_eq!(metrics.total.live, 100_000);
        for shard in &metrics.shards {
            assert!(shard.live >= 50_000 / shards as u64, "{:?}", metrics.shards);
        }
    }
}

/// A13: the upper 16 bits of an issued id are random: in one tracker, and in two with the default
/// settings.
#[test]
fn a13_an_id_has_16_random_bits() {
    const IDS: usize = 4096;
    let draw = || {
        let tracker = AckTracker::builder().shards(1).build_manual().unwrap();
        let root = |_| (tracker.issue(1, 0).unwrap().to_bits() >> 48) as u16;
        (0..IDS).map(root).collect::<Vec<u16>>()
    };
    let (one, other) = (draw(), draw());
    for ids in [&one, &other] {
        // About 3,970 are expected, with a deviation of 11.
        let distinct = ids.iter().collect::<HashSet<_>>().len();
        assert!(distinct > 3_800, "{distinct} of {IDS}");
        for bit in 0..16 {
            let set = ids.iter().filter(|&id| id >> bit & 1 == 1).count();
            assert!((IDS / 2 - 400..IDS / 2 + 400).contains(&set), "bit {bit}: {set} of {IDS}");
        }
    }
    // One in 65,536 is the same by chance.
    let same = one.iter().zip(&other).filter(|(one, other)| one == other).count();
    assert!(same < 20, "two trackers give the same bits to {same} of {IDS} roots");
}

// ---- what becomes of dropped handles, and of a dropped tracker ----

/// `OnDrop::LetTimeOut`, the default: a dropped tuple leaves its tree to time out.
#[test]
fn a_dropped_tuple_lets_its_tree_time_out() {
    let (tracker, clock, told) = manual();
    drop(Tuple::root(&tracker, 1).unwrap());
    settle(&tracker);
    assert!(told.take().is_empty());
    pass(&tracker, &clock, 100 * MS);
    assert!(told.only().is_timed_out());
}

/// `OnDrop::Fail`: at once, in each of its trees; a settled tuple has nothing left to drop.
#[test]
fn a_dropped_tuple_fails_its_trees() {
    let (tracker, _, told) = manual_with(|builder| builder.on_drop(OnDrop::Fail));
    let mut parents = [Tuple::root(&tracker, 1).unwrap(), Tuple::root(&tracker, 2).unwrap()];
    let child = Tuple::join(&mut parents).unwrap();
    drop(child);
    let told_now = told.take();
    assert_eq!(told_now.len(), 2);
    for outcome in told_now {
        assert_eq!(outcome.reason, Reason::Failed { by: None });
    }
    drop(parents);
    let mut line = Tuple::root(&tracker, 3).unwrap();
    let word = line.emit();
    line.ack().unwrap();
    word.ack().unwrap();
    assert!(told.only().is_acked());
    assert!(panics(|| {
        let _tuple = Tuple::root(&tracker, 4).unwrap();
        std::panic::resume_unwind(Box::new("lost its way"));
    }));
    assert_eq!(told.only().reason, Reason::Failed { by: None });
}

/// F2: a handler that panics while an ack calls it: caught, counted; the ack succeeds, and the
/// tracker goes on.
#[test]
fn a_handler_that_panics_in_an_ack() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let tracker = AckTracker::builder()
        .on_outcome(move |outcome: Outcome| {
            counter.fetch_add(1, Ordering::Relaxed);
            assert!(outcome.owner % 2 == 0, "odd owners are not welcome");
        })
        .build_manual()
        .unwrap();
    for owner in 0..10 {
        let root = tracker.issue(1, owner).unwrap();
        assert_eq!(tracker.ack(root, 1), Ok(Ack::Completed));
        let root = tracker.issue(1, owner).unwrap();
        assert_eq!(tracker.fail(root), Ok(Done::Now));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 20);
    let metrics = tracker.metrics();
    assert_eq!(metrics.handler_panics, 10);
    assert_eq!((metrics.total.acked, metrics.total.failed), (10, 10));
    assert!(tracker.is_empty());
}

// ---- F: the engine ----

/// F2, W4: a reaper that sleeps for an hour wakes for what is due in 20 ms, be it new or renewed.
#[test]
fn f02_the_reaper_wakes_for_an_earlier_deadline() {
    let builder = AckTracker::builder().timeout(HOUR).interval(MS);
    let (tracker, outcomes) = builder.build_with_channel(10, WhenFull::Wait).unwrap();
    let far = tracker.issue(1, 1).unwrap();
    let_pass(20 * MS); // so that it sleeps
    tracker.issue_for(1, 2, after(20 * MS)).unwrap();
    assert_eq!(outcomes.next_within(GENEROUS).unwrap().owner, 2);
    let_pass(20 * MS);
    tracker.reset_timeout_for(far, after(20 * MS)).unwrap();
    assert_eq!(outcomes.next_within(GENEROUS).unwrap().owner, 1);
}

/// Waits until the reaper has come to rest, and asserts that it then stays there.
fn rests(tracker: &AckTracker, why: &str) {
    // Longer than the second after which a reaper looks again at memory that it could not give
    // back.
    let window = 1200 * MS;
    let rounds = || tracker.metrics().reaper_rounds;
    wait_for("the reaper to come to rest", || {
        let before = rounds();
        let_pass(window);
        rounds() == before
    });
    let before = rounds();
    let_pass(window);
    assert_eq!(rounds(), before, "woke up {why}");
}

/// F2: nothing wakes up when nothing is live, neither before the first root nor once all have
/// ended.
#[test]
fn f02_an_idle_reaper_does_not_wake_up() {
    let tracker = AckTracker::builder().timeout(30 * MS).interval(MS).build().unwrap();
    rests(&tracker, "before there was anything");
    for n in 0..20_000 {
        // Late ones may be held as early arrivals: those expire, and are gone too.
        let root = tracker.issue(1, 0).unwrap();
        tracker.init(n, 1, 0).unwrap();
        let _ = tracker.ack(root, 1);
        let _ = tracker.ack(n, 1);
    }
    wait_for("everything to end", || tracker.is_empty());
    rests(&tracker, "though everything had ended");
}

/// F2: what never times out is no reason to wake up either.
#[test]
fn f02_a_reaper_does_not_wake_up_for_what_never_expires() {
    let tracker = AckTracker::builder().timeouts_off().build().unwrap();
    for n in 0..100 {
        tracker.issue(1, 0).unwrap();
        tracker.init_for(n, 1, 0, Lifetime::Never).unwrap();
    }
    rests(&tracker, "for roots that never time out");
}

/// F2: a handler's panic on the reaper's thread is caught and counted, and the rest is still
/// delivered.
#[test]
fn f02_the_reaper_survives_panicking_handlers() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let tracker = AckTracker::builder()
        .timeout(20 * MS)
        .reaper_budget(3)
        .on_outcome(move |outcome: Outcome| {
            sender.lock().unwrap().send(outcome.owner).unwrap();
            if outcome.owner % 2 == 1 {
                // Without the default hook's noise.
                std::panic::resume_unwind(Box::new(Bomb));
            }
        })
        .build()
        .unwrap();
    for round in 0..3 {
        for n in 0..50 {
            tracker.issue(1, 50 * round + n).unwrap();
        }
        let seen: HashSet<u64> =
            (0..50).map(|_| receiver.recv_timeout(GENEROUS).unwrap()).collect();
        assert_eq!(seen, (50 * round..50 * round + 50).collect());
    }
    wait_for("the last panic to be counted", || tracker.metrics().handler_panics == 75);
    assert_eq!(tracker.metrics().total.expired, 150);
}

/// A payload whose own drop panics: it must not take the reaper with it.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("a payload that panics when it is dropped"));
    }
}

/// F2: a shutdown finds everything, wherever there was room for it: in chunks that came one after
/// the other, in other shards, and after the driver had looked after memory.
#[test]
fn f02_a_shutdown_finds_all_chunks() {
    for shards in [2, 1] {
        let (tracker, clock, _) = manual_with(|builder| builder.shards(shards));
        // Of chunks of 4096 two are in use, and not mostly free; then a third one.
        for more in [8000, 4000] {
            for owner in 0..more {
                tracker.issue(1, owner).unwrap();
            }
            clock.advance(MS);
            assert!(!tracker.poll(usize::MAX).more);
        }
        assert_eq!(tracker.shutdown(ShutdownMode::Return).len(), 12_000);
    }
}

/// F2: while a tracker drains, roots may still be acked and failed, and that is how they end.
#[test]
fn f02_acks_count_while_draining() {
    let told = Told::default();
    let tracker = AckTracker::builder().timeout(HOUR).on_outcome(told.handler()).build().unwrap();
    let roots: Vec<Root> = (0..100).map(|n| tracker.issue(1, n).unwrap()).collect();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| tracker.shutdown(ShutdownMode::Drain(GENEROUS)));
        let refused = || tracker.issue(0, 1000) == Err(AckError::Closed);
        wait_for("new roots to be refused", refused);
        for (n, &root) in roots.iter().enumerate() {
            if n % 2 == 0 {
                assert_eq!(tracker.ack(root, 1), Ok(Ack::Completed));
            } else {
                assert_eq!(tracker.fail(root), Ok(Done::Now));
            }
        }
        assert!(drain.join().unwrap().is_empty());
    });
    let told: Vec<Outcome> = told.take().into_iter().filter(|told| told.owner < 1000).collect();
    let acked = told.iter().filter(|outcome| outcome.is_acked()).count();
    let failed = told.iter().filter(|outcome| outcome.is_failed()).count();
    assert_eq!((acked, failed, told.len()), (50, 50, 100));
}

/// F3: a poll that had budget to spare has seen everything, also what came after an earlier poll
/// ran out of budget.
#[test]
fn f03_a_poll_sees_what_came_after_one_that_ran_out_of_budget() {
    for which in 0..200 {
        let (tracker, clock, told) = manual_with(|builder| builder.shards(1));
        // Enough for several blocks, so that a budget of 1 leaves some of the dirty ones unread.
        let roots: Vec<Root> = (0..200).map(|n| tracker.issue(1, n).unwrap()).collect();
        assert!(tracker.poll(1).more);
        tracker.reset_timeout_for(roots[which], after(10 * MS)).unwrap();
        let polled = tracker.poll(usize::MAX);
        assert!(!polled.more);
        assert_eq!(polled.next, Some(10 * MS), "for root {which}");
        clock.advance(10 * MS);
        assert!(!tracker.poll(usize::MAX).more);
        assert_eq!(told.only().owner, which as u64);
    }
}

/// F3: a poll that had budget to spare has migrated an index that has outgrown its table, also in a
/// tick in which the driver has maintained memory before.
#[test]
fn f03_a_poll_migrates_in_the_tick_of_another() {
    let (tracker, _clock, _told) = manual_with(|builder| builder.shards(1));
    settle(&tracker);
    let tables = || tracker.metrics().shards[0].tables;
    for id in 0.. {
        tracker.init(id, 1, 0).unwrap();
        if tables() > 1 {
            break;
        }
    }
    settle(&tracker);
    assert_eq!(tables(), 1);
}

/// F3, B7: time may jump by years, with no poll in between, at any interval. No timeout is early,
/// and none is lost.
#[test]
fn f03_jumps_of_years_are_neither_early_nor_lost() {
    let year = Duration::from_secs(365 * 24 * 3600);
    for interval in [Duration::from_micros(10), MS, SECOND] {
        let (tracker, clock, told) =
            manual_with(|builder| builder.interval(interval).timeout(10 * interval).shards(1));
        for years in [1, 2, 40] {
            tracker.issue(1, 0).unwrap();
            clock.advance(year * years);
            // A new root beside one that is overdue.
            tracker.issue(1, 1).unwrap();
            settle(&tracker);
            assert_eq!(told.only().owner, 0, "{interval:?}, {years} years");
            pass(&tracker, &clock, 10 * interval - Duration::from_nanos(1));
            assert!(told.take().is_empty(), "early: {interval:?}, {years} years");
            pass(&tracker, &clock, Duration::from_nanos(1));
            assert_eq!(told.only().owner, 1, "{interval:?}, {years} years");
        }
    }
}

/// F3: the default interval is a millisecond, and no more than the timeout.
#[test]
fn f03_the_interval_is_no_longer_than_the_timeout() {
    for timeout in [MS / 50, MS, 30_000 * MS] {
        let tracker = AckTracker::builder().timeout(timeout).build_manual().unwrap();
        assert_eq!(tracker.interval(), timeout.min(MS));
    }
}

/// F12: where no interval was chosen, an entry of 20 ms in a map of hours is over within a
/// millisecond, and the driver is wanted but once a second for what lives for an hour.
#[test]
fn f12_precision_follows_the_lifetime() {
    let clock = ManualClock::new();
    let hour = 3_600_000 * MS;
    let builder = ExpiringMap::builder().time_to_live(hour).clock(clock.clone());
    let map = builder.build_manual().unwrap();
    for key in 0..2000_u64 {
        map.insert(key, 1_u64).unwrap();
        clock.advance(MS);
    }
    clock.advance(MS / 3);
    map.insert_for(2000, 2, 20 * MS).unwrap();
    clock.advance(20 * MS - MS / 100);
    assert!(map.contains_key(&2000), "early");
    clock.advance(MS);
    assert!(!map.contains_key(&2000), "late");
    map.poll(usize::MAX);
    assert_eq!(map.len(), 2000);
    clock.advance(hour - 3000 * MS);
    let mut ends = 0;
    while !map.is_empty() {
        let before = map.len();
        let polled = map.poll(usize::MAX);
        ends += usize::from(map.len() < before);
        clock.advance(polled.next.unwrap_or_default());
    }
    assert!(ends <= 3, "{ends} wake-ups to end entries of two seconds");
}

/// F4: a full channel that waits holds up the threads that end roots, and loses nothing. `stress
/// faults` has the other policies, and receivers that go.
#[test]
fn f04_a_full_channel_may_wait() {
    let (tracker, outcomes) = AckTracker::builder().build_with_channel(2, WhenFull::Wait).unwrap();
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for owner in 0..100 {
                tracker.issue(0, owner).unwrap();
                sent.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_for("the channel to be full", || outcomes.len() == 2);
        for owner in 0..100 {
            // The one that waits has not counted yet.
            assert!(sent.load(Ordering::SeqCst) <= owner + 2);
            assert_eq!(outcomes.next_within(GENEROUS).unwrap().owner, owner);
        }
    });
    let metrics = tracker.metrics();
    assert_eq!((metrics.spilled, metrics.undelivered), (0, 0));
    assert!(outcomes.try_next().is_none() && outcomes.is_empty());
    assert!(outcomes.next_within(MS).is_none());
}

/// F6: the bits of an issued root are another id, as a chosen one.
#[test]
fn f06_an_issued_id_as_a_chosen_one() {
    let (tracker, _, told) = manual();
    let root = tracker.issue(1, 1).unwrap();
    tracker.init(root.to_bits(), 2, 2).unwrap();
    assert_eq!(tracker.ack(root.to_bits(), 2), Ok(Ack::Completed));
    assert_eq!(told.only().owner, 2);
    assert_eq!(tracker.ack(root, 1), Ok(Ack::Completed));
    assert_eq!(told.only().owner, 1);
}

/// F7: the reaper is busy for as long as a listener takes, by the store's clock.
#[test]
fn f07_the_reaper_is_busy_while_a_listener_runs() {
    let clock = ManualClock::new();
    clock.advance(HOUR);
    let works = clock.clone();
    let queue = ExpiryQueue::builder().interval(MS).clock(Moved(clock.clone()));
    let queue = queue.expiry_listener(move |_: &u64| works.advance(10 * SECOND)).build().unwrap();
    queue.update(1, MS).unwrap();
    clock.advance(2 * MS);
    let busy = || queue.metrics().reaper_busy;
    // The test's own step may lie in a round, too.
    wait_for("the round to be counted", || busy() >= 10 * SECOND);
    assert!(busy() <= 10 * SECOND + 2 * MS, "{:?}", busy());
}

/// F7: the lateness of a while is that of its end, less that of its beginning.
#[test]
fn f07_the_lateness_since_a_snapshot() {
    let (queue, clock) = rig::queue(|queue| queue.interval(MS));
    let late = |many: usize, by: Duration| {
        for key in 0..many as u64 {
            queue.update(key, MS).unwrap();
        }
        clock.advance(MS + by);
        assert_eq!(queue.poll().len(), many);
        queue.metrics().total.lateness
    };
    let before = late(5, 100 * MS);
    let now = late(3, 10 * SECOND);
    let since = now.since(&before);
    assert_eq!((before.total(), since.total()), (5, 3));
    assert!(since.quantile(0.0).unwrap() > 10 * SECOND, "{since:?}");
    assert_eq!((now.since(&Lateness::default()), now.since(&now)), (now, Lateness::default()));
}

/// F3: polls of a small budget come to each shard, though none of them finishes one.
#[test]
fn f03_small_budgets_reach_all_shards() {
    let (map, clock) = rig::map(|map| map.shards(4).interval(MS).time_to_live(MS));
    (0..40_000_u64).for_each(|key| drop(map.insert(key, ()).unwrap()));
    // The wheels have all of them before the first is due.
    while map.poll(1000).more {}
    clock.advance(2 * MS);
    for _ in 0..8 {
        assert!(map.poll(16).more);
    }
    let expired: Vec<u64> = map.metrics().shards.iter().map(|shard| shard.expired).collect();
    assert!(expired.iter().all(|&shard| shard > 0), "{expired:?}");
}
