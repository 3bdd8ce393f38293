//! Maps that report into a channel: what a slow receiver delays, and what becomes of what it
//! leaves.

use crate::drops::census::{Census, Counted};
use crate::support::clocks::Moved;
use crate::support::{on_threads, wait_for, GENEROUS, MS};
use expiry::{
    ExpiringMap, ExpiringMapBuilder, Lifetime, ManualClock, Receiver, RemovalCause, Removed,
    TimeCacheMap, WhenFull,
};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

type Map<V> = ExpiringMap<u64, V>;
type Removals<V> = Receiver<Removed<'static, u64, V>>;

const POLICIES: [WhenFull; 3] = [WhenFull::Wait, WhenFull::Spill, WhenFull::Drop];

fn manual<V: Send + Sync + 'static>(clock: &ManualClock) -> ExpiringMapBuilder<u64, V> {
    ExpiringMap::builder().interval(MS).time_to_live(10 * MS).clock(clock.clone())
}

fn unclocked<V: Send + Sync + 'static>(
    length: usize,
    when_full: WhenFull,
) -> (Map<V>, Removals<V>) {
    let builder = manual(&ManualClock::new());
    builder.build_manual_with_channel(length, when_full).unwrap()
}

/// Takes what is there: key and cause, sorted.
fn causes<V: Send + Sync>(removals: &Removals<V>) -> Vec<(u64, RemovalCause)> {
    let next = || removals.try_next();
    let all = std::iter::from_fn(next).map(|removed| (*removed.key(), removed.cause()));
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(|&(key, _)| key);
    all
}

#[test]
fn what_has_ended_says_how_long_it_had_left() {
    let clock = ManualClock::new();
    let (map, removals) = manual(&clock).build_manual_with_channel(8, WhenFull::Wait).unwrap();
    map.insert(1, ()).unwrap();
    map.insert_for(2, (), Lifetime::Never).unwrap();
    clock.advance(4 * MS);
    let left = map.remaining(&1).unwrap();
    let replaced = map.insert(1, ()).unwrap().unwrap();
    assert!(left < 10 * MS && replaced.remaining() == left);
    assert_eq!(map.remove(&2).unwrap().remaining(), Duration::MAX);
    clock.advance(20 * MS);
    while map.poll(100).more {}
    assert_eq!(
        (replaced.remaining(), removals.take(3).last().unwrap().remaining()),
        (Duration::ZERO, Duration::ZERO)
    );
    assert!(map.is_empty() && replaced.expires_at().is_some());
}

#[test]
fn a_receiver_that_does_nothing_delays_no_expiry_and_no_removal() {
    for when_full in POLICIES {
        let clock = ManualClock::new();
        let (map, removals) = manual(&clock).build_manual_with_channel(100, when_full).unwrap();
        for key in 1..=20 {
            map.insert(key, key).unwrap();
        }
        for key in 1..=5 {
            assert_eq!(map.remove(&key).as_deref(), Some(&key));
            assert_eq!(map.insert(key + 5, 0).unwrap().as_deref(), Some(&(key + 5)));
        }
        clock.advance(11 * MS);
        while map.poll(1000).more {}
        let metrics = map.metrics();
        assert_eq!((metrics.total.live, metrics.total.expired), (0, 15));
        assert_eq!((removals.len(), metrics.spilled, metrics.undelivered), (25, 0, 0));
        map.insert(21, 21).unwrap();
        drop(map);
        let told: Vec<_> = removals.map(|removed| (*removed.key(), removed.cause())).collect();
        let order = (1..=5)
            .flat_map(|key| [(key, RemovalCause::Removed), (key + 5, RemovalCause::Replaced)]);
        assert!(told[..10].iter().copied().eq(order), "{told:?}");
        let mut expired = told[10..25].to_vec();
        expired.sort_unstable_by_key(|&(key, _)| key);
        assert!(expired.into_iter().eq((6..=20).map(|key| (key, RemovalCause::Expired))));
        assert_eq!(told[25..], [(21, RemovalCause::Closed)]);
    }
}

/// Threads insert, replace and remove beside a reaper. The channel has each value once, with the
/// cause that the call returned.
#[test]
fn every_end_is_delivered_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = if cfg!(miri) { 20 } else { 5_000 };
    for (length, when_full) in
        [(1, WhenFull::Wait), (1, WhenFull::Spill), (100, WhenFull::Wait), (100, WhenFull::Spill)]
    {
        let builder = ExpiringMap::builder().interval(MS).time_to_live(2 * MS);
        let (map, removals) = builder.build_with_channel(length, when_full).unwrap();
        let receiver = thread::spawn(move || {
            let mut told = BTreeMap::new();
            for removed in removals {
                let removed: Removed<'_, u64, Counted> = removed;
                assert_eq!(*removed.key(), removed.value().id() % 8);
                let before = told.insert(removed.value().id(), removed.cause());
                assert_eq!(before, None, "{removed:?}");
            }
            told
        });
        let census = Census::new();
        let returned = on_threads(THREADS, |thread| {
            let mut returned = Vec::new();
            for value in (0..EACH).map(|n| n * THREADS + thread) {
                let key = value % 8;
                let fresh = || Counted::of(&census, value);
                let ended = match value / THREADS % 3 {
                    0 => map.upsert(key, |_| (fresh(), None)),
                    _ => map.insert(key, fresh()),
                };
                let removed = (value % 5 == 0).then(|| map.remove(&key)).flatten();
                for ended in ended.unwrap().into_iter().chain(removed) {
                    returned.push((ended.value().id(), ended.cause()));
                    // Taken out, if the receiver has let go of it, or only dropped.
                    if value % 2 == 0 {
                        drop(ended.try_into_value());
                    }
                }
            }
            returned
        })
        .concat();
        map.shutdown();
        assert_eq!(map.metrics().undelivered, 0);
        drop(map);
        let told = receiver.join().unwrap();
        assert!(told.keys().copied().eq(0..THREADS * EACH), "{when_full:?}");
        let once: BTreeMap<_, _> = returned.iter().copied().collect();
        assert_eq!(once.len(), returned.len(), "returned twice");
        assert!(once.iter().all(|(value, cause)| told[value] == *cause));
        assert_eq!(census.left(), 0, "the store has dropped each value once");
    }
}

#[test]
fn what_finds_no_room_is_dropped_or_spills_and_is_counted() {
    for (when_full, kept, counts) in [(WhenFull::Drop, 2, (0, 7)), (WhenFull::Spill, 9, (7, 0))] {
        let (map, removals) = unclocked(2, when_full);
        let census = Census::new();
        for key in 1..=9 {
            map.insert(key, Counted::new(&census)).unwrap();
            drop(map.remove(&key));
        }
        let metrics = map.metrics();
        assert_eq!((metrics.spilled, metrics.undelivered), counts);
        // No thread holds those that were dropped: the store drops their values.
        assert!(map.flush(GENEROUS));
        assert_eq!(census.left(), kept);
        let told = causes(&removals);
        assert!(told.into_iter().eq((1..=kept).map(|key| (key, RemovalCause::Removed))));
        assert!(map.flush(GENEROUS));
        assert_eq!(census.left(), 0);
    }
}

#[test]
fn a_thread_waits_for_room_until_there_is_some_or_a_shutdown_or_no_receiver() {
    for ends in ["a receipt", "a shutdown", "no receiver"] {
        let (map, removals) = unclocked(1, WhenFull::Wait);
        for key in 1..=2 {
            map.insert(key, key).unwrap();
        }
        map.remove(&1); // the one place
        let waiting = map.clone();
        let waits = thread::spawn(move || waiting.remove(&2).map(|ended| *ended));
        wait_for("the removal", || !map.contains_key(&2));
        assert_eq!((map.metrics().spilled, waits.is_finished()), (0, false));
        let mut removals = Some(removals);
        match ends {
            "a receipt" => assert!(removals.as_ref().is_some_and(|all| all.try_next().is_some())),
            "a shutdown" => map.shutdown(),
            _ => removals = None,
        }
        assert_eq!(waits.join().unwrap(), Some(2), "{ends}");
        let left = removals.map_or(0, |removals| causes(&removals).len());
        let metrics = map.metrics();
        let expected = match ends {
            "a receipt" => (1, 0),
            "a shutdown" => (2, 1),
            _ => (0, 0),
        };
        assert_eq!((left, metrics.spilled), expected, "{ends}");
    }
}

/// A value that a call has returned lies in the channel as well: the last of the two handles frees
/// it.
#[test]
fn a_value_has_two_handles() {
    for caller_first in [false, true] {
        let (map, removals) = unclocked(10, WhenFull::Wait);
        let census = Census::new();
        map.insert(1, Counted::new(&census)).unwrap();
        let returned = map.remove(&1).unwrap();
        let returned = returned.try_into_value().expect_err("the channel has the other handle");
        let received = removals.try_next().unwrap();
        let (first, last) = match caller_first {
            true => (returned, received),
            false => (received, returned),
        };
        drop(first);
        assert!(map.flush(GENEROUS));
        assert_eq!(census.left(), 1);
        assert!(last.try_into_value().is_ok());
        assert_eq!(census.left(), 0);
        assert_eq!(map.metrics().unreclaimed, 0);
    }
}

/// The channel keeps the store, and the store the channel: neither stays when both handles are
/// gone.
#[test]
fn what_no_thread_receives_is_dropped_with_the_last_receiver() {
    for receiver_first in [false, true] {
        for reaper in [false, true] {
            let census = Census::new();
            let builder = manual(&ManualClock::new());
            let (map, removals) = match reaper {
                true => builder
                    .clock(Moved(ManualClock::new()))
                    .build_with_channel(2, WhenFull::Spill)
                    .unwrap(),
                false => builder.build_manual_with_channel(2, WhenFull::Spill).unwrap(),
            };
            for key in 0..10 {
                map.insert(key, Counted::new(&census)).unwrap();
                drop(map.insert(key, Counted::new(&census)));
            }
            let again = removals.clone();
            drop(removals);
            assert_eq!(again.len(), 10);
            if receiver_first {
                drop(again);
                assert_eq!(map.metrics().undelivered, 0);
                drop(map.remove(&0));
                assert_eq!(map.metrics().undelivered, 1);
                drop(map);
            } else {
                drop(map);
                assert_eq!(again.len(), 20);
                drop(again);
            }
            assert_eq!(census.left(), 0, "{receiver_first} {reaper}");
        }
    }
}

/// The last receiver goes while threads send, and then the map: nothing stays behind.
#[test]
fn a_receiver_dropped_beside_senders_leaves_nothing() {
    for round in 0..if cfg!(miri) { 2 } else { 200 } {
        let census = Census::new();
        let (map, removals) = unclocked(1 + round % 3, POLICIES[round % 2]);
        let senders = [0_u64, 1].map(|at| {
            let (map, census) = (map.clone(), census.clone());
            thread::spawn(move || {
                for key in 0..20 {
                    map.insert(2 * key + at, Counted::new(&census)).unwrap();
                    drop(map.remove(&(2 * key + at)));
                }
            })
        });
        let _ = removals.next_within(GENEROUS);
        drop(removals);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        drop(map);
        assert_eq!(census.left(), 0);
    }
}

#[test]
fn a_time_cache_map_may_report_into_a_channel() {
    let clock = ManualClock::new();
    let builder = TimeCacheMap::builder(10 * MS).clock(clock.clone()).into_map_builder().unwrap();
    let (map, removed) = builder.build_manual_with_channel(10, WhenFull::Drop).unwrap();
    for key in 0..4_u64 {
        map.insert(key, key).unwrap();
    }
    drop(map.remove(&0));
    map.insert(1, 7).unwrap();
    assert_eq!(causes(&removed), [(0, RemovalCause::Removed), (1, RemovalCause::Replaced)]);
    clock.advance(20 * MS);
    while map.poll(100).more {}
    map.insert(4, 4).unwrap();
    drop(map);
    let mut told: Vec<_> = (1..4).map(|key| (key, RemovalCause::Expired)).collect();
    told.push((4, RemovalCause::Closed));
    assert_eq!(causes(&removed), told);
}

#[cfg(feature = "async")]
#[test]
fn a_stream_ends_with_the_last_handle() {
    use crate::support::Task;
    let (map, removals) = unclocked(10, WhenFull::Spill);
    let (task, mut stream) = (Task::new(), removals.into_stream());
    map.insert(1, 1_u64).unwrap();
    map.insert(2, 2).unwrap();
    assert!(task.poll(&mut Box::pin(stream.recv())).is_pending());
    drop(map.remove(&1));
    assert_eq!(task.block_on(Box::pin(stream.recv())).as_deref(), Some(&1));
    map.shutdown();
    assert_eq!(task.block_on(Box::pin(stream.recv())).as_deref(), Some(&2));
    assert!(task.poll(&mut Box::pin(stream.recv())).is_pending());
    drop(map);
    assert!(task.block_on(Box::pin(stream.recv())).is_none());
}
