//! Many keys in a row: guards, and calls for several keys at once.

use crate::rig;
use crate::support::{panics, Told, MS, SECOND};
use expiry::{ExpiringMap, ManualClock, RemovalCause, StoreError};
use std::time::Duration;

#[test]
fn a_guard_finds_what_a_look_up_finds() {
    let map = ExpiringMap::builder().build().unwrap();
    assert!(map.insert_many((0..1000_u64).map(|key| (key, key))).is_empty());
    let guard = map.guard();
    let keys: Vec<u64> = (0..2000).collect();
    let expected = |key: &u64| (*key < 1000).then_some(*key);
    for (key, value) in keys.iter().zip(guard.get_many(&keys)) {
        assert_eq!(value.copied(), expected(key));
        assert_eq!(guard.get(key).copied(), expected(key));
        assert_eq!(guard.peek(key).copied(), expected(key));
    }
}

#[test]
fn time_stands_still_for_a_guard_and_ends_do_not() {
    let clock = ManualClock::new();
    let builder = ExpiringMap::builder().time_to_live(10 * SECOND);
    let map = builder.clock(clock.clone()).build_manual().unwrap();
    map.insert_many([(1_u64, 10_u64), (2, 20), (3, 30)]);
    let guard = map.guard();
    let one = guard.get(&1);
    map.remove(&1).unwrap();
    clock.advance(11 * SECOND);
    assert_eq!(map.get_cloned(&2), None, "its time is up, and it has been told");
    assert_eq!(one, Some(&10), "what is lent stays");
    assert_eq!(guard.get_many(&[1, 2, 3]), [None, None, Some(&30)]);
    assert!(map.guard().get(&3).is_none(), "a later guard has a later time");
    while map.poll(usize::MAX).more {}
    assert_eq!(guard.get(&3), None, "the driver has ended it");
}

#[test]
fn a_guard_uses_what_it_gets_and_not_what_it_peeks_at() {
    let clock = ManualClock::new();
    let builder = ExpiringMap::builder().time_to_idle(10 * SECOND);
    let map = builder.clock(clock.clone()).build_manual().unwrap();
    map.insert_many([(1_u64, ()), (2, ())]);
    clock.advance(6 * SECOND);
    let guard = map.guard();
    assert!(guard.get(&1).is_some() && guard.peek(&2).is_some());
    drop(guard);
    clock.advance(6 * SECOND);
    assert!(map.contains_key(&1) && !map.contains_key(&2));
    let guard = map.guard();
    clock.advance(6 * SECOND);
    assert!(guard.get(&1).is_some(), "it was there when the guard was made");
    drop(guard);
    assert!(!map.contains_key(&1), "and does not come back");
}

#[test]
fn a_guard_beside_a_clock_that_jumps_by_years() {
    let interval = Duration::from_micros(10);
    let (map, clock) = rig::map(|map| map.time_to_live(10 * SECOND).interval(interval));
    map.insert(1_u64, ()).unwrap();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(200 * 24 * 3600));
        assert!(map.guard().get(&1).is_none());
    }
}

#[test]
fn touches_in_order() {
    let clock = ManualClock::new();
    let builder = ExpiringMap::builder().time_to_live(10 * SECOND);
    let map = builder.clock(clock.clone()).build_manual().unwrap();
    map.insert_many((0..40).map(|key| (key, ())));
    clock.advance(6 * SECOND);
    let keys: Vec<u64> = (20..60).collect();
    let touched = map.touch_many(&keys);
    let expected: Vec<bool> = keys.iter().map(|key| *key < 40).collect();
    assert_eq!(touched, expected);
    clock.advance(6 * SECOND);
    let left: Vec<bool> = (0..40).map(|key| map.contains_key(&key)).collect();
    assert!(left.iter().enumerate().all(|(key, left)| *left == (key >= 20)));
}

#[test]
fn what_is_refused_comes_back_and_what_ends_is_heard_of() {
    let heard = Told::default();
    let hear = heard.handler();
    let builder = ExpiringMap::builder().capacity(30);
    let map = builder
        .removal_listener(move |&key: &u64, &value: &u64, cause| hear((key, value, cause)))
        .build_manual()
        .unwrap();
    let refused = map.insert_many((0..50).map(|key| (key, 1)));
    assert!(refused.iter().all(|refused| refused.error == StoreError::Full));
    let keys: Vec<u64> = refused.iter().map(|refused| refused.key).collect();
    assert_eq!(keys, (30..50).collect::<Vec<_>>());
    assert!(map.insert_many([(3, 2), (4, 2)]).is_empty());
    assert_eq!(map.remove_many(&[3, 3, 40]), 1);
    let expected = [
        (3, 1, RemovalCause::Replaced),
        (4, 1, RemovalCause::Replaced),
        (3, 2, RemovalCause::Removed),
    ];
    assert_eq!(heard.take(), expected);
}

/// The user's iterator runs while nothing is pinned, and half of a group is in when it panics.
#[test]
fn an_iterator_that_panics_leaves_the_map_whole() {
    let map = ExpiringMap::builder().build_manual().unwrap();
    let entries = (0..40_u64).map(|key| {
        assert!(key < 20, "no more");
        (key, String::from("value"))
    });
    assert!(panics(|| drop(map.insert_many(entries))));
    assert_eq!(map.len(), 16, "whole groups");
    assert!(map.flush(SECOND), "nothing is pinned");
    assert_eq!(map.remove_many(&(0..40).collect::<Vec<_>>()), 16);
}

/// A call for many keys that has to end what is due first calls the listener unpinned: what the
/// listener removes can be taken by value.
#[test]
fn a_listener_that_touch_many_calls_runs_unpinned() {
    type Map = ExpiringMap<u64, u64>;
    static MAP: std::sync::OnceLock<Map> = std::sync::OnceLock::new();
    static TAKEN: std::sync::Mutex<Vec<bool>> = std::sync::Mutex::new(Vec::new());
    let clock = ManualClock::new();
    let map = ExpiringMap::builder()
        .time_to_live(10 * SECOND)
        .interval(MS)
        .clock(clock.clone())
        .removal_listener(|&key: &u64, _: &u64, cause| {
            if cause == expiry::RemovalCause::Expired && key < 2 {
                let map = MAP.get().unwrap();
                map.insert_for(key + 10, 0, expiry::Lifetime::Never).unwrap();
                let removed = map.remove(&(key + 10)).unwrap();
                TAKEN.lock().unwrap().push(removed.try_into_value().is_ok());
            }
        })
        .build_manual()
        .unwrap();
    let map = MAP.get_or_init(|| map);
    map.insert_many([(0, 0), (1, 1)]);
    map.insert_for(2, 2, expiry::Lifetime::Never).unwrap();
    clock.advance(Duration::from_millis(3 << 38));
    assert_eq!(map.touch_many(&[0, 2, 1]), [false, true, false]);
    assert_eq!(*TAKEN.lock().unwrap(), [true, true]);
}
