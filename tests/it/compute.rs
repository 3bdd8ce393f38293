//! `ExpiringMap::compute`. What each decision does in each state is asserted by the histories of
//! `oracle.rs`.

use crate::support::{on_threads, Told, MS};
use expiry::expiring_map::{Compute, Computed, Current, Loaded};
use expiry::{
    ExpiringMap, Lifetime, LifetimeError, Lifetimes, ManualClock, RemovalCause, StoreError,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

type Map = ExpiringMap<u64, u64>;

fn map() -> Map {
    ExpiringMap::builder().clock(ManualClock::new()).build_manual().unwrap()
}

/// What a decision about key 1 has found and left.
fn does(map: &Map, deed: Compute<u64>) -> (Option<u64>, Option<u64>) {
    let computed = map.compute(1, |_| deed).unwrap();
    (computed.was().copied(), computed.is().copied())
}

/// The listener runs before the call returns, and may end the new value.
#[test]
fn the_listener_hears_before_it_returns() {
    let (told, here) = (Told::default(), Arc::new(OnceLock::<Map>::new()));
    let (tell, weak) = (told.handler(), Arc::downgrade(&here));
    let map = ExpiringMap::builder()
        .removal_listener(move |_: &u64, &value: &u64, cause| {
            tell((value, cause));
            if value == 7 {
                drop(weak.upgrade().unwrap().get().unwrap().remove(&1));
            }
        })
        .build_manual()
        .unwrap();
    here.set(map.clone()).unwrap();
    for value in [6, 7, 8] {
        let computed = map.compute(1, |_| Compute::Put(value)).unwrap();
        let (was, is) = (computed.was().copied(), computed.is().copied());
        match value {
            6 => assert_eq!((was, is), (None, Some(6))),
            7 => assert_eq!((was, is), (Some(6), Some(7))),
            _ => assert_eq!((was, is), (Some(7), None)),
        }
    }
    drop(map.compute(1, |_| Compute::Put(9)).unwrap());
    drop(map.compute(1, |_| Compute::Remove).unwrap());
    use RemovalCause::{Removed, Replaced};
    assert_eq!(told.take(), [(6, Replaced), (7, Replaced), (8, Removed), (9, Removed)]);
}

#[test]
fn what_is_refused_comes_back_and_nothing_changes() {
    let map = map();
    map.insert(1, 1).unwrap();
    let cases = [(Duration::ZERO, StoreError::Lifetime(LifetimeError::Zero))];
    for (time, error) in
        cases.into_iter().chain([(Duration::MAX, StoreError::Lifetime(LifetimeError::TooLong))])
    {
        for key in [1, 2] {
            let put = Compute::PutFor(7, Lifetimes::from(time));
            let refused = map.compute(key, |_| put).unwrap_err();
            assert_eq!((refused.key, refused.value, refused.error), (key, Some(7), error));
            let refused = map.compute(key, |_| Compute::Touch(time.into())).unwrap_err();
            assert_eq!((refused.key, refused.value, refused.error), (key, None, error));
        }
    }
    assert_eq!((map.get_cloned(&1), map.len()), (Some(1), 1));
    map.shutdown();
    let refused = map.compute(1, |_| Compute::Put(3)).unwrap_err();
    assert_eq!((refused.value, refused.error), (Some(3), StoreError::Closed));
    assert!(matches!(map.compute(1, |_| Compute::Keep), Ok(Computed::Absent)));
}

/// A removal invalidates a load of the key, whether the key has a value meanwhile or not. Other
/// decisions let it go on.
#[test]
fn a_removal_wins_over_a_load_under_way() {
    for (is_there, deed) in
        [(true, Compute::Remove), (false, Compute::Remove), (false, Compute::Keep)]
    {
        let map = map();
        let Loaded::Absent(guard) = map.get_or_guard(&1).unwrap() else { panic!("it is empty") };
        if is_there {
            map.insert(1, 5).unwrap();
        }
        assert_eq!(does(&map, deed), (is_there.then_some(5), None));
        assert_eq!(*guard.insert(2).unwrap(), 2);
        assert_eq!(map.contains_key(&1), deed == Compute::Keep, "{deed:?}");
    }
}

/// Threads count, touch and remove, half of them by `upsert` and `remove_if`: each increment is in
/// a value that was removed, or has expired.
#[test]
fn no_increment_is_lost() {
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    let ended = Arc::new(AtomicU64::new(0));
    let sum = ended.clone();
    let map = ExpiringMap::builder()
        .time_to_idle(MS)
        .interval(MS)
        .removal_listener(move |_: &u64, count: &u64, cause| {
            if cause != RemovalCause::Replaced {
                sum.fetch_add(*count, Relaxed);
            }
        })
        .build()
        .unwrap();
    on_threads(THREADS, |thread| {
        for at in 0..EACH {
            let key = (at * 7 + thread) % 5;
            if thread % 2 == 0 {
                map.upsert(key, |old| (old.map_or(1, |old| old + 1), ())).unwrap();
                if at % 64 == thread {
                    map.remove_if(&key, |_, count| count % 2 == 0);
                }
                continue;
            }
            let computed = map.compute(key, |old| Compute::Put(old.map_or(1, |n| *n + 1)));
            assert!(matches!(computed, Ok(Computed::Put { .. })));
            drop(computed);
            let even = |count: Option<Current<'_, u64, u64>>| match count {
                Some(count) if *count % 2 == 0 => Compute::Remove,
                _ => Compute::Touch(Lifetime::Never),
            };
            if at % 64 == thread {
                drop(map.compute(key, even).unwrap());
            }
        }
    });
    map.shutdown();
    assert_eq!(ended.load(Relaxed), THREADS * EACH);
}
