//! Loads: of several callers that miss a key, one loads its value.

use crate::drops::census::{Census, Counted};
use crate::rig;
use crate::support::{panics, wait_for, Same, Waiters, GENEROUS, MS, SECOND};
use expiry::expiring_map::{Compute, Entry, LoadGuard, Loaded, OccupiedEntry};
use expiry::{BuildError, ExpiringMap, Lifetimes, LoadError, ManualClock, RandomState, StoreError};
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

fn map() -> ExpiringMap<u64, u64> {
    ExpiringMap::builder().build_manual().unwrap()
}

#[test]
fn a_load_that_fails_or_panics_hands_over() {
    let (map, in_load) = (&map(), &Barrier::new(2));
    thread::scope(|scope| {
        for panics in [false, true] {
            let loader = scope.spawn(move || {
                let load = || {
                    in_load.wait();
                    in_load.wait();
                    assert!(!panics, "as this test wants it");
                    Err("no")
                };
                catch_unwind(AssertUnwindSafe(|| {
                    map.try_get_or_insert_with(&1, load).map(|one| *one)
                }))
            });
            in_load.wait();
            let waiter = scope.spawn(|| *map.get_or_insert_with(&1, || 7).unwrap());
            in_load.wait();
            match loader.join().unwrap() {
                Ok(loaded) => {
                    assert!(matches!(loaded, Err(LoadError::Failed(error)) if *error == "no"))
                }
                Err(_) => assert!(panics),
            }
            assert_eq!(waiter.join().unwrap(), 7);
            map.clear();
        }
    });
}

#[test]
fn a_loader_that_wants_its_own_key_is_refused() {
    let map = map();
    let outer = map.get_or_insert_with(&1, || {
        assert!(matches!(map.get_or_insert_with(&1, || 5), Err(LoadError::Recursive)));
        assert!(matches!(map.get_or_guard(&1), Err(LoadError::Recursive)));
        *map.get_or_insert_with(&2, || 5).unwrap() + 1
    });
    assert_eq!(*outer.unwrap(), 6);
}

#[test]
fn a_guard_inserts_or_hands_over() {
    let map = map();
    let Loaded::Absent(guard) = map.get_or_guard(&1).unwrap() else { panic!("nothing is there") };
    assert_eq!(guard.key(), &1);
    drop(guard);
    let Loaded::Absent(guard) = map.get_or_guard(&1).unwrap() else { panic!("nothing is there") };
    assert_eq!(*guard.insert(3).unwrap(), 3);
    let Loaded::Absent(guard) = map.get_or_guard(&2).unwrap() else { panic!("nothing is there") };
    map.insert(2, 8).unwrap();
    assert_eq!(*guard.insert(9).unwrap(), 9, "what it has loaded");
    assert_eq!(map.get_cloned(&2), Some(8), "another call was faster");
}

#[test]
fn a_thread_waits_for_another_load_as_long_as_it_likes() {
    let map = &ExpiringMap::<u64, u64>::builder().statistics(true).build_manual().unwrap();
    let Loaded::Absent(guard) = map.get_or_guard(&1).unwrap() else { panic!("nothing is there") };
    let waiter = |limit| {
        move || match map.get_or_guard_timeout(&1, limit) {
            Ok(Loaded::Found(value)) => Ok(*value),
            Ok(Loaded::Absent(_)) => panic!("the guard brings it"),
            Err(error) => Err(error),
        }
    };
    thread::scope(|scope| {
        for limit in [Duration::ZERO, MS] {
            let timed_out = scope.spawn(waiter(limit)).join().unwrap();
            assert!(matches!(timed_out, Err(LoadError::TimedOut)));
        }
        let waiters = [SECOND * 60, Duration::MAX].map(|limit| scope.spawn(waiter(limit)));
        wait_for("they have asked", || map.metrics().misses == 5);
        assert_eq!(*guard.insert(3).unwrap(), 3);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap().unwrap(), 3);
        }
    });
    assert_eq!(waiter(Duration::ZERO)().unwrap(), 3);
}

#[test]
fn lookups_and_loads_are_counted_if_that_is_wanted() {
    for statistics in [false, true] {
        let map = ExpiringMap::<u64, u64>::builder().statistics(statistics).build_manual().unwrap();
        map.get_or_insert_with(&1, || 1).unwrap();
        map.get_or_insert_with(&1, || 1).unwrap();
        map.try_get_or_insert_with(&2, || Err("no")).unwrap_err();
        assert_eq!(map.guard().get_many([&1, &3]), [Some(&1), None]);
        assert!(map.get(&1).is_some() && map.peek(&4).is_none() && !map.contains_key(&5));
        let metrics = map.metrics();
        let counted = [metrics.hits, metrics.misses, metrics.loads, metrics.failed_loads];
        assert_eq!(counted, if statistics { [3, 3, 1, 1] } else { [0; 4] });
    }
}

#[test]
fn a_hit_makes_no_key() {
    let map = ExpiringMap::builder().build_manual().unwrap();
    let (census, other) = (Census::new(), Census::new());
    let key = Counted::of(&census, 1);
    for _ in 0..10 {
        assert_eq!(map.get_or_insert_with(&key, || Counted::of(&other, 2)).unwrap().id(), 2);
        assert_eq!(census.made(), 3, "the first call has made two");
    }
}

#[test]
fn a_closed_or_full_map_loads_nothing() {
    let map = ExpiringMap::<u64, u64>::builder().capacity(1).build_manual().unwrap();
    assert_eq!(*map.get_or_insert_with(&1, || 1).unwrap(), 1);
    let full = map.get_or_insert_with(&2, || 2);
    assert!(matches!(full, Err(LoadError::Refused(refused)) if refused.error == StoreError::Full
        && (refused.key, refused.value) == (2, 2)));
    map.shutdown();
    let closed = map.get_or_insert_with(&3, || panic!("it is not called"));
    assert!(matches!(closed, Err(LoadError::Closed)));
}

/// A shutdown, or the drop of other handles, ends no load.
#[test]
fn a_shutdown_beside_a_load_keeps_nothing_and_all_callers_get_the_value() {
    for (loads, shuts_down) in [(true, true), (false, true), (true, false)] {
        let map = ExpiringMap::<u64, u64>::builder().statistics(true).build_manual().unwrap();
        let Loaded::Absent(guard) = map.get_or_guard(&1).unwrap() else { panic!("it is empty") };
        let waiters = &Waiters::default();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                waiters.join();
                map.get_or_insert_with(&1, || panic!("it waits")).map(|value| *value)
            });
            waiters.sleep(1, || map.metrics().misses == 2);
            if shuts_down {
                map.shutdown();
                assert!(matches!(map.get_or_guard(&2), Err(LoadError::Closed)));
            } else {
                drop(map.clone());
            }
            if loads {
                assert_eq!(*guard.insert(5).unwrap(), 5);
                assert_eq!(waiter.join().unwrap().unwrap(), 5);
            } else {
                drop(guard);
                assert!(matches!(waiter.join().unwrap(), Err(LoadError::Closed)));
            }
        });
        assert_eq!(map.len(), usize::from(!shuts_down));
    }
}

/// The calls that invalidate the load of key 1.
const INVALIDATIONS: [fn(&ExpiringMap<u64, u64>); 5] = [
    |map| assert!(map.remove(&1).is_none()),
    |map| assert_eq!(map.remove_many([&0, &1]), 0),
    |map| assert!(map.remove_if(&1, |_, _| true).is_none()),
    |map| map.retain(|_, _| true),
    |map| map.clear(),
];

#[test]
fn an_invalidation_wins_over_a_load_under_way() {
    for invalidate in INVALIDATIONS {
        let map = ExpiringMap::builder().statistics(true).build_manual().unwrap();
        let Loaded::Absent(first) = map.get_or_guard(&1).unwrap() else { panic!("it is empty") };
        invalidate(&map);
        // A caller that comes afterwards loads, and does not wait.
        let Loaded::Absent(second) = map.get_or_guard(&1).unwrap() else { panic!("it is empty") };
        let value = first.insert(5).unwrap();
        assert_eq!((*value.key(), *value), (1, 5));
        assert!(!map.contains_key(&1), "the map does not keep it");
        assert_eq!(*second.insert(6).unwrap(), 6);
        assert_eq!((map.get_cloned(&1), *value), (Some(6), 5));
        assert_eq!(map.metrics().loads, 2, "both callers got a value");
    }
}

/// The calls that give key 1 another value.
const INSERTIONS: [fn(&ExpiringMap<u64, u64>); 8] = [
    |map| drop(map.insert(1, 9).unwrap()),
    |map| drop(map.insert_for(1, 9, MS).unwrap()),
    |map| assert!(map.insert_many([(1, 9)]).is_empty()),
    |map| map.upsert(1, |_| (9, ())).unwrap(),
    |map| drop(map.compute(1, |_| Compute::Put(9)).unwrap()),
    |map| drop(map.entry(1).or_insert(9).unwrap()),
    |map| match map.entry(1) {
        Entry::Vacant(entry) => drop(entry.insert(9).unwrap()),
        Entry::Occupied(entry) => drop(entry.insert(9).unwrap()),
    },
    |map| {
        let other = self::map();
        other.insert_for(1, 9, GENEROUS).unwrap();
        assert!(map.load(other.save(), Duration::ZERO).is_empty());
    },
];

/// An insertion wins, also where its entry is no longer there when the load is over.
#[test]
fn an_insertion_wins_over_a_load_under_way() {
    for ends in [true, false] {
        for insert in INSERTIONS {
            let (map, clock) = rig::map(|map| map.interval(MS).time_to_live(MS));
            let Loaded::Absent(guard) = map.get_or_guard(&1).unwrap() else { panic!("no entry") };
            insert(&map);
            if ends {
                clock.advance(GENEROUS * 2);
                map.poll(usize::MAX);
            }
            assert_eq!(*guard.insert(5).unwrap(), 5);
            assert_eq!(map.get_cloned(&1), (!ends).then_some(9));
        }
    }
}

/// Which unpins for that, and then finds the same entry, or says that it has changed.
#[test]
fn an_occupied_entry_wins_over_a_load_under_way() {
    type Change = fn(OccupiedEntry<'_, u64, u64, RandomState>);
    let changes: [Change; 2] =
        [|entry| drop(entry.insert(9).unwrap()), |entry| drop(entry.remove().unwrap())];
    for change in changes {
        let (map, clock) = reloading();
        map.insert(1, 1).unwrap();
        clock.advance(7 * SECOND);
        let reloaded = map.get_or_insert_with(&1, || {
            let Entry::Occupied(entry) = map.entry(1) else { panic!("it is there") };
            change(entry);
            clock.advance(20 * SECOND);
            map.poll(usize::MAX);
            2
        });
        assert_eq!(*reloaded.unwrap(), 2);
        assert!(map.is_empty());
    }
    let (map, _clock) = reloading();
    let _under_way = map.get_or_guard(&2).unwrap();
    map.insert(1, 1).unwrap();
    let entries = [map.entry(1), map.entry(1)];
    map.insert(1, 3).unwrap();
    let [Entry::Occupied(one), Entry::Occupied(two)] = entries else { panic!("it is there") };
    assert_eq!(one.insert(9).unwrap_err().error, StoreError::Changed);
    assert!(two.remove().is_none());
    assert_eq!(map.get_cloned(&1), Some(3));
}

#[test]
fn a_removal_of_another_key_leaves_a_load_alone() {
    let map = map();
    let Loaded::Absent(guard) = map.get_or_guard(&1).unwrap() else { panic!("it is empty") };
    assert!(map.remove(&2).is_none());
    drop(guard.insert(5).unwrap());
    assert_eq!(map.get_cloned(&1), Some(5));
}

/// Has eight threads load key 1 while a loader is in the middle of it, and then lets that end with
/// what `outcome` says. Returns their results, and how many of them have loaded.
fn beside_eight(
    map: &ExpiringMap<u64, u64>,
    outcome: fn() -> Result<(u64, Lifetimes), &'static str>,
    after: fn(&ExpiringMap<u64, u64>),
) -> (Vec<Result<u64, &'static str>>, usize) {
    let (loads, waiters) = (&AtomicUsize::new(0), &Waiters::default());
    let loaded = thread::scope(|scope| {
        let Loaded::Absent(guard) = map.get_or_guard(&0).unwrap() else { panic!("it is empty") };
        let load = move || {
            loads.fetch_add(1, Ordering::Relaxed);
            drop(map.get_or_guard(&0).unwrap()); // until all wait
            outcome()
        };
        let load = move || {
            let result = map.try_get_or_insert_with(&1, load);
            after(map);
            result.map(|value| *value).map_err(|error| match error {
                LoadError::Failed(error) => *error,
                other => panic!("{other}"),
            })
        };
        let threads: Vec<_> = (0..9)
            .map(|_| {
                scope.spawn(move || {
                    waiters.join();
                    load()
                })
            })
            .collect();
        waiters.sleep(9, || map.metrics().misses == 9 + 1 + 1);
        drop(guard.insert(0).unwrap());
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (loaded, loads.load(Ordering::Relaxed))
}

#[test]
fn all_that_wait_get_the_first_failure() {
    let map = ExpiringMap::builder().statistics(true).build_manual().unwrap();
    let (failed, loads) = beside_eight(&map, || Err("an outage"), |_| ());
    assert_eq!((failed, loads), (vec![Err("an outage"); 9], 1));
    let loaded = map.try_get_or_insert_with(&1, || Ok::<_, &str>((5, Lifetimes::new())));
    assert_eq!(*loaded.unwrap(), 5, "a caller that comes later loads anew");
}

#[test]
fn all_that_wait_get_the_first_value_though_it_is_gone() {
    let map = ExpiringMap::builder().statistics(true).build_manual().unwrap();
    let after = |map: &ExpiringMap<u64, u64>| drop(map.remove(&1));
    let (loaded, loads) = beside_eight(&map, || Ok((5, Lifetimes::new())), after);
    assert_eq!((loaded, loads), (vec![Ok(5); 9], 1));
}

/// Keys of one hash, of which no load brings another one's value.
#[test]
fn a_caller_that_waits_for_another_key_of_its_hash_loads_its_own() {
    let map =
        ExpiringMap::<u64, u64>::builder().hasher(Same).statistics(true).build_manual().unwrap();
    thread::scope(|scope| {
        let Loaded::Absent(guard) = map.get_or_guard(&1).unwrap() else { panic!("it is empty") };
        let other = scope.spawn(|| *map.get_or_insert_with(&2, || 20).unwrap());
        wait_for("it has asked", || map.metrics().misses == 2);
        drop(guard.insert(10).unwrap());
        assert_eq!(other.join().unwrap(), 20);
    });
    let mut calls = 0;
    let found = map.get_or_insert_many(&[3, 4], |missing| {
        calls += 1;
        missing.iter().map(|&&key| (key, key * 10)).collect::<Vec<_>>()
    });
    assert_eq!((found.unwrap(), calls), ([(&3, 30), (&4, 40)].into(), 2));
}

#[test]
fn a_load_reserves_room_before_its_value_is_there() {
    fn guard_of(map: &ExpiringMap<u64, u64>, key: u64) -> LoadGuard<'_, u64, u64, RandomState> {
        match map.get_or_guard(&key) {
            Ok(Loaded::Absent(guard)) => guard,
            _ => panic!("it has no value"),
        }
    }
    let builder = || ExpiringMap::builder().max_weight(100, |_: &u64, value: &u64| *value as u32);
    let map = &builder().build_manual().unwrap();
    (0..9).for_each(|key| drop(map.insert(key, 10).unwrap()));
    let mut guard = guard_of(map, 9);
    guard.reserve(60).unwrap();
    guard.reserve(10).unwrap();
    assert_eq!((map.weight(), map.len()), (Some(100), 4));
    assert_eq!(map.insert(10, 50).unwrap_err().error, StoreError::Full, "it has evicted all");
    assert_eq!(guard.reserve(101), Err(StoreError::TooHeavy));
    assert_eq!((map.weight(), map.len()), (Some(60), 0));
    drop(guard.insert(50).unwrap());
    assert_eq!((map.weight(), map.get_cloned(&9)), (Some(50), Some(50)));
    let mut guard = guard_of(map, 10);
    guard.reserve(50).unwrap();
    assert_eq!((map.weight(), map.len()), (Some(100), 1));
    drop(guard);
    assert_eq!(map.weight(), Some(50));
    let (mut failed, mut late) = (guard_of(map, 11), guard_of(map, 12));
    failed.reserve(10).unwrap();
    late.reserve(10).unwrap();
    map.remove(&12);
    drop(late.insert(10).unwrap());
    assert!(matches!(failed.insert(101), Err(refused) if refused.error == StoreError::TooHeavy));
    assert_eq!(map.weight(), Some(50), "neither is in, and nothing is kept");

    let full = &ExpiringMap::builder().capacity(1).build_manual().unwrap();
    let (mut one, mut two) = (guard_of(full, 1), guard_of(full, 2));
    assert_eq!((one.reserve(7), two.reserve(7)), (Ok(()), Err(StoreError::Full)));
    drop(one);
    full.insert(3, 3).unwrap();
    full.shutdown();
    assert_eq!(two.reserve(1), Err(StoreError::Closed));
}

/// A map whose values live for 10 s and are reloaded after 6 s, and its clock.
fn reloading() -> (ExpiringMap<u64, u64>, ManualClock) {
    rig::map(|map| map.time_to_live(10 * SECOND).refresh_after(6 * SECOND).statistics(true))
}

#[test]
fn a_refresh_time_is_below_the_time_to_live() {
    let refused = |live: Option<u64>, refresh| {
        let mut builder = ExpiringMap::<u64, u64>::builder();
        if let Some(live) = live {
            builder = builder.time_to_live(Duration::from_secs(live));
        }
        let built = builder.refresh_after(Duration::from_secs(refresh)).build_manual();
        built.map(drop).unwrap_err()
    };
    for live in [None, Some(1), Some(2)] {
        let (refresh_after, time_to_live) = (2 * SECOND, live.map(Duration::from_secs));
        assert_eq!(refused(live, 2), BuildError::RefreshTooLate { refresh_after, time_to_live });
    }
    assert_eq!(refused(Some(1), 0), BuildError::ZeroTimeout);
}

#[test]
fn one_caller_reloads_an_old_value_and_the_others_do_not_wait() {
    let (map, clock) = reloading();
    let found = |value| map.get_or_insert_with(&1, || value).unwrap();
    let load = |value| *found(value);
    assert!(load(1) == 1 && !found(2).is_stale());
    clock.advance(5 * SECOND);
    assert!(load(2) == 1 && !found(2).is_stale());
    clock.advance(2 * SECOND);
    let reloaded = map.get_or_insert_with(&1, || {
        assert!(load(3) == 1 && found(3).is_stale(), "this very thread");
        thread::scope(|scope| {
            assert_eq!(scope.spawn(|| load(4)).join().unwrap(), 1);
            let guard = scope.spawn(|| matches!(map.get_or_guard(&1), Ok(Loaded::Found(_))));
            assert!(guard.join().unwrap(), "whoever has no loader");
        });
        5
    });
    assert!(reloaded.is_ok_and(|value| *value == 5 && !value.is_stale()));
    assert_eq!((load(6), map.metrics().loads, map.metrics().total.replaced), (5, 2, 1));
    clock.advance(9 * SECOND);
    assert!(map.contains_key(&1), "its lifetime has begun anew");
}

#[test]
fn a_reload_that_fails_or_panics_leaves_the_old_value() {
    let (map, clock) = reloading();
    map.insert(1, 1).unwrap();
    clock.advance(7 * SECOND);
    let fail = || map.try_get_or_insert_with(&1, || Err("an outage"));
    assert!(fail().is_ok_and(|value| *value == 1 && value.is_stale()));
    let panics = || map.get_or_insert_with(&1, || panic!("as this test wants it")).map(|one| *one);
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!((map.get_cloned(&1), map.metrics().failed_loads), (Some(1), 2));
    assert_eq!(*map.get_or_insert_with(&1, || 2).unwrap(), 2, "the next caller tries again");
    clock.advance(7 * SECOND);
    let overtaken = map.try_get_or_insert_with(&1, || {
        map.insert(1, 3).unwrap();
        Err("an outage")
    });
    assert!(overtaken.is_ok_and(|value| *value == 3 && !value.is_stale()));
    clock.advance(10 * SECOND);
    assert!(matches!(fail(), Err(LoadError::Failed(error)) if *error == "an outage"));
}

#[test]
fn a_call_that_changes_the_key_beats_a_reload_under_way() {
    type Change = fn(&ExpiringMap<u64, u64>);
    let replace: Change = |map| drop(map.insert(1, 7).unwrap());
    let upsert: Change = |map| map.upsert(1, |_| (7, ())).unwrap();
    let remove: Change = |map| assert!(map.remove(&1).is_some());
    let remove_and_insert: Change = |map| {
        drop(map.remove(&1));
        map.insert(1, 7).unwrap();
    };
    let changes = [(replace, Some(7)), (upsert, Some(7)), (remove_and_insert, Some(7))];
    for (change, left) in changes.into_iter().chain([(remove, None), (ExpiringMap::clear, None)]) {
        let (map, clock) = reloading();
        map.insert(1, 1).unwrap();
        clock.advance(7 * SECOND);
        let reloaded = map.get_or_insert_with(&1, || {
            change(&map);
            2
        });
        assert_eq!((*reloaded.unwrap(), map.get_cloned(&1)), (2, left));
    }
}

#[test]
fn a_reload_of_a_value_that_expires_meanwhile_goes_in_and_ends_the_wait() {
    let (map, clock) = reloading();
    map.insert(1, 1).unwrap();
    clock.advance(7 * SECOND);
    thread::scope(|scope| {
        let mut waiter = None;
        let reloaded = map.get_or_insert_with(&1, || {
            clock.advance(4 * SECOND);
            let wait = || *map.get_or_insert_with(&1, || panic!("it waits")).unwrap();
            waiter = Some(scope.spawn(wait));
            wait_for("it has asked", || map.metrics().misses == 1);
            2
        });
        assert_eq!((*reloaded.unwrap(), map.get_cloned(&1)), (2, Some(2)));
        assert_eq!(waiter.unwrap().join().unwrap(), 2);
    });
}

/// What a bulk load of these keys returns, in order, and what its loader was asked for. The loader
/// has ten times each key.
fn load_many(map: &ExpiringMap<u64, u64>, keys: &[u64]) -> (Vec<(u64, u64)>, Vec<Vec<u64>>) {
    let mut asked = Vec::new();
    let found = map.get_or_insert_many(keys, |missing| {
        let missing: Vec<_> = missing.iter().map(|&&key| key).collect();
        asked.push(missing.clone());
        missing.into_iter().map(|key| (key, key * 10))
    });
    let mut found: Vec<_> = found.unwrap().into_iter().map(|(&key, value)| (key, value)).collect();
    found.sort_unstable();
    (found, asked)
}

#[test]
fn one_call_loads_all_missing_keys() {
    let map = ExpiringMap::builder().statistics(true).build_manual().unwrap();
    map.insert(2, 5).unwrap();
    let (found, asked) = load_many(&map, &[3, 1, 2, 3]);
    assert_eq!((found, asked), (vec![(1, 10), (2, 5), (3, 30)], vec![vec![3, 1]]));
    assert_eq!((map.get_cloned(&3), map.len(), map.metrics().loads), (Some(30), 3, 2));
    assert_eq!(load_many(&map, &[1, 2]), (vec![(1, 10), (2, 5)], vec![]));
    assert_eq!(load_many(&map, &[]), (vec![], vec![]));
}

#[test]
fn a_bulk_load_may_leave_keys_out_and_what_it_was_not_asked_for_is_dropped() {
    let map = map();
    let found = map.get_or_insert_many(&[1, 2], |_| [(2, 20), (3, 30), (2, 21)]).unwrap();
    assert_eq!((found.len(), found[&2], map.len()), (1, 20, 1));
    assert_eq!(load_many(&map, &[1, 2, 3]).1, [[1, 3]]);
}

#[test]
fn a_bulk_load_chooses_lifetimes_or_fails_for_all_that_wait() {
    let clock = ManualClock::new();
    let map = ExpiringMap::<u64, u64>::builder()
        .clock(clock.clone())
        .statistics(true)
        .build_manual()
        .unwrap();
    let waiters = &Waiters::default();
    thread::scope(|scope| {
        let mut waiter = None;
        let failed = map.try_get_or_insert_many::<_, Vec<_>, _>(&[1, 2], |_| {
            let wait =
                || map.try_get_or_insert_with(&1, || -> Result<_, &str> { panic!("it waits") });
            waiter = Some(scope.spawn(move || {
                waiters.join();
                wait().map(|value| *value)
            }));
            waiters.sleep(1, || map.metrics().misses == 3);
            Err("an outage")
        });
        assert!(matches!(failed, Err(LoadError::Failed(error)) if *error == "an outage"));
        let failed = waiter.unwrap().join().unwrap();
        assert!(matches!(failed, Err(LoadError::Failed(error)) if *error == "an outage"));
    });
    let lifetime = |seconds| Lifetimes::new().live(Duration::from_secs(seconds));
    let load = |_: &[&u64]| Ok::<_, ()>([(1, 10, lifetime(2)), (2, 20, lifetime(9))]);
    assert_eq!(map.try_get_or_insert_many(&[1, 2], load).unwrap().len(), 2);
    clock.advance(5 * SECOND);
    assert_eq!((map.contains_key(&1), map.contains_key(&2)), (false, true));
}

#[test]
fn a_bulk_load_is_invalidated_key_by_key_and_a_panic_hands_over() {
    let map = map();
    let found = map.get_or_insert_many(&[1, 2], |_| {
        map.remove(&1);
        assert!(matches!(map.get_or_insert_with(&2, || 0), Err(LoadError::Recursive)));
        assert!(matches!(map.get_or_insert_many(&[2], |_| []), Err(LoadError::Recursive)));
        [(1, 10), (2, 20)]
    });
    assert_eq!(
        (found.unwrap()[&1], map.contains_key(&1), map.get_cloned(&2)),
        (10, false, Some(20))
    );
    let panics = || map.get_or_insert_many(&[3], |_| -> Vec<_> { panic!("as this test wants it") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(load_many(&map, &[3]).1, [[3]]);
}

/// Keys whose drop panicked left the other keys' loads under way for ever.
#[test]
fn a_bulk_load_ends_all_loads_though_the_drop_of_a_key_panics() {
    let census = Census::new();
    let map: ExpiringMap<Counted, Counted> = ExpiringMap::builder().build_manual().unwrap();
    let keys: Vec<_> = (0..8).map(|id| Counted::armed(&census, id)).collect();
    assert!(panics(|| drop(map.get_or_insert_many(&keys, |_| []))));
    keys.iter().for_each(Counted::disarm);
    for key in &keys {
        assert!(matches!(map.get_or_guard(key), Ok(Loaded::Absent(_))), "{}", key.id());
    }
}

/// A caller that waits for a load, which began while it cloned its key, leaked that load.
#[test]
fn a_key_whose_drop_panics_beside_another_load_leaks_nothing() {
    let (census, begun) = (Census::new(), Arc::new(Barrier::new(2)));
    let map: ExpiringMap<Counted, u64> = ExpiringMap::builder().build_manual().unwrap();
    let (theirs, key) = (Counted::of(&census, 7), Counted::armed(&census, 7));
    let (other, in_load) = (map.clone(), begun.clone());
    let loader = thread::spawn(move || {
        in_load.wait();
        let load = || {
            in_load.wait();
            in_load.wait();
            7
        };
        assert_eq!(other.get_or_insert_with(&theirs, load).map(|seven| *seven).ok(), Some(7));
    });
    let asks = Counted::when_asked({
        let begun = begun.clone();
        move |how, _| {
            if how == "clone" {
                begun.wait();
                begun.wait();
            }
        }
    });
    assert!(panics(|| drop(map.get_or_guard_timeout(&key, Duration::ZERO))));
    drop(asks);
    begun.wait();
    loader.join().unwrap();
    key.disarm();
    drop((map, key));
    assert_eq!(census.left(), 0);
}

#[test]
fn a_full_or_closed_map_gives_a_bulk_load_its_values_or_an_error() {
    let map = ExpiringMap::builder().capacity(1).build_manual().unwrap();
    assert_eq!(load_many(&map, &[1, 2]).0, [(1, 10), (2, 20)]);
    assert_eq!((map.len(), map.metrics().refused), (1, 1));
    map.shutdown();
    assert!(matches!(map.get_or_insert_many(&[1], |_| [(1, 1)]), Err(LoadError::Closed)));
}

#[test]
fn a_bulk_load_runs_its_own_loader_before_it_waits_for_others() {
    let map = &ExpiringMap::builder().statistics(true).build_manual().unwrap();
    let load = |keys: [u64; 2]| {
        let mut asked = Vec::new();
        let found = map.get_or_insert_many(&keys, |missing| {
            asked.extend(missing.iter().map(|&&key| key));
            wait_for("the other call has asked", || map.metrics().misses == 5 || asked.len() > 1);
            missing.iter().map(|&&key| (key, key * 10)).collect::<Vec<_>>()
        });
        assert_eq!(found.unwrap(), [(&keys[0], keys[0] * 10), (&keys[1], keys[1] * 10)].into());
        asked
    };
    thread::scope(|scope| {
        let Loaded::Absent(guard) = map.get_or_guard(&3).unwrap() else { panic!("it is empty") };
        let one = scope.spawn(move || load([1, 3]));
        wait_for("it has asked", || map.metrics().misses == 3);
        let two = scope.spawn(move || load([2, 1]));
        wait_for("both wait", || map.metrics().loads == 2);
        drop(guard);
        assert_eq!(two.join().unwrap(), [2], "the other call loads 1");
        assert_eq!(one.join().unwrap(), [1, 3], "its second call, as the guard was dropped");
    });
}

#[test]
fn a_listener_waits_for_no_load() {
    let (pages, loaded) = (&map(), Arc::new(AtomicUsize::new(0)));
    let (listening, calls) = (pages.clone(), loaded.clone());
    let other = ExpiringMap::<u64, u64>::builder().removal_listener(move |_, _, _| {
        match listening.get_or_guard_timeout(&1, Duration::from_secs(1)) {
            Ok(Loaded::Absent(guard)) => drop(guard.insert(2)),
            _ => panic!("it loads itself"),
        }
        let load = || {
            let own = listening.get_or_insert_with(&1, || 4);
            assert!(matches!(own, Err(LoadError::Recursive)));
            3
        };
        assert_eq!(*listening.get_or_insert_with(&1, load).unwrap(), 3);
        calls.fetch_add(1, Ordering::Relaxed);
    });
    let other = other.build_manual().unwrap();
    other.insert(1, 1).unwrap();
    let in_load = &Barrier::new(2);
    thread::scope(|scope| {
        let load = || {
            in_load.wait();
            in_load.wait();
            1
        };
        let loader = scope.spawn(move || *pages.get_or_insert_with(&1, load).unwrap());
        in_load.wait();
        drop(other.remove(&1));
        assert_eq!(loaded.load(Ordering::Relaxed), 1);
        let in_bolt = expiry::inside(|| pages.get_or_guard_timeout(&1, Duration::ZERO));
        assert!(matches!(in_bolt, Err(LoadError::TimedOut)), "a bolt waits");
        assert_eq!(pages.get_cloned(&1), None, "no removal could invalidate such a value");
        in_load.wait();
        assert_eq!(loader.join().unwrap(), 1, "that load has gone on");
    });
}

#[test]
fn an_error_is_dropped_though_the_drop_of_its_key_panics() {
    let (error, census) = (Arc::new(()), Census::new());
    let map: ExpiringMap<Counted, Counted> = ExpiringMap::builder().build_manual().unwrap();
    let load = || Err(error.clone());
    let bad = || Counted::armed(&census, 1);
    assert!(panics(|| drop(map.try_get_or_insert_with(&bad(), load))));
    #[cfg(feature = "async")]
    {
        let load = async { Err(error.clone()) };
        let key = bad();
        let load = map.try_get_or_insert_async(&key, load);
        let task = crate::support::Task::new();
        assert!(panics(|| drop(task.block_on(load))));
        key.disarm();
    }
    assert_eq!(Arc::strong_count(&error), 1);
}

#[cfg(feature = "async")]
mod tasks {
    use super::*;
    use crate::support::Task;
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::Waker;

    /// A future that a runtime may move between threads.
    fn sendable<F: std::future::Future + Send>(future: F) -> F {
        future
    }

    #[test]
    fn one_of_many_tasks_loads_and_the_others_are_woken() {
        let (map, task) = (map(), Task::new());
        let loads = AtomicUsize::new(0);
        let (open, opened) = std::sync::mpsc::channel();
        let load = async {
            std::future::poll_fn(|_| match opened.try_recv() {
                Ok(()) => std::task::Poll::Ready(()),
                Err(_) => std::task::Poll::Pending,
            })
            .await;
            loads.fetch_add(1, Ordering::Relaxed);
            1
        };
        let mut first = pin!(map.get_or_insert_async(&1, load));
        let mut second = pin!(sendable(map.get_or_insert_async(&1, async { panic!("it waits") })));
        assert!(task.poll(&mut first).is_pending());
        for _ in 0..3 {
            // Both are polled, so the one goes on waiting for the other.
            assert!(task.poll(&mut first).is_pending());
            assert!(task.poll(&mut second).is_pending());
        }
        assert_eq!((task.woken(), task.held()), (0, 2));
        open.send(()).unwrap();
        assert!(task.poll(&mut first).is_ready());
        assert_eq!((task.woken(), task.held()), (1, 0));
        assert!(task.poll(&mut second).is_ready());
        assert_eq!(loads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_load_that_its_own_task_keeps_unpolled_hands_over() {
        let (map, task, other) = (map(), Task::new(), Task::new());
        let (open, opened) = std::sync::mpsc::channel();
        let wakers = Mutex::new(Vec::new());
        let load = std::future::poll_fn(|context| match opened.try_recv() {
            Ok(()) => std::task::Poll::Ready(1),
            Err(_) => {
                wakers.lock().unwrap().push(context.waker().clone());
                std::task::Poll::Pending
            }
        });
        let mut kept = pin!(map.get_or_insert_async(&1, load));
        let mut third = pin!(map.get_or_insert_async(&1, async { panic!("it waits") }));
        assert!(task.poll(&mut kept).is_pending());
        assert!(other.poll(&mut third).is_pending());
        assert!(other.poll(&mut third).is_pending(), "another task's load is left alone");
        let mut second = pin!(map.get_or_insert_async(&1, ready(2)));
        for _ in 0..20 {
            assert!(task.poll(&mut second).is_pending());
            assert_eq!(task.woken(), 0, "the load is not due for a poll");
        }
        wakers.lock().unwrap().drain(..).for_each(Waker::wake);
        for polls in 1..=8 {
            assert_eq!(task.woken(), polls, "the load's waker; then this asks for another poll");
            assert!(task.poll(&mut second).is_pending());
        }
        let std::task::Poll::Ready(Ok(value)) = task.poll(&mut second) else { panic!("it loads") };
        assert_eq!((*value, map.get_cloned(&1), other.woken()), (2, Some(2), 1));
        assert_eq!(*other.block_on(third).unwrap(), 2);
        // The kept one has its own value, and does not bring back what was removed.
        map.remove(&1);
        open.send(()).unwrap();
        assert_eq!(*task.block_on(kept).unwrap(), 1);
        assert_eq!((map.get_cloned(&1), task.held(), other.held()), (None, 0, 0));
    }

    /// `join!` polls its futures in turn, and begins with another one each time; `select!` begins
    /// with any of them.
    #[test]
    fn futures_of_one_task_load_once_in_whatever_order_it_polls_them() {
        let (map, task) = (map(), Task::new());
        let loads = AtomicUsize::new(0);
        let load = |key: u64| async move {
            std::future::poll_fn(|_| std::task::Poll::<()>::Pending).await;
            key
        };
        let mut futures: Vec<_> =
            (0..3).map(|_| Box::pin(map.get_or_insert_async(&1, load(1)))).collect();
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1], [1, 2, 0], [0, 2, 1]] {
            for at in order {
                assert!(task.poll(&mut futures[at]).is_pending());
            }
        }
        assert_eq!(map.metrics().loads + map.metrics().failed_loads, 0, "one load is under way");
        let joined = task.block_on(async {
            let load = |value| {
                let loads = &loads;
                async move {
                    loads.fetch_add(1, Ordering::Relaxed);
                    let mut polls = 0..5;
                    let wake = |context: &mut std::task::Context<'_>| {
                        context.waker().wake_by_ref();
                        polls
                            .next()
                            .map_or(std::task::Poll::Ready(()), |_| std::task::Poll::Pending)
                    };
                    std::future::poll_fn(wake).await;
                    value
                }
            };
            let one = async { *map.get_or_insert_async(&2, load(1)).await.unwrap() };
            let two = async { *map.get_or_insert_async(&2, load(2)).await.unwrap() };
            tokio::join!(one, two)
        });
        assert_eq!((joined, loads.into_inner()), ((1, 1), 1));
    }

    #[test]
    fn a_task_that_waits_hears_of_a_shutdown_by_the_load() {
        for loads in [true, false] {
            let (map, task) = (map(), Task::new());
            let Ok(Loaded::Absent(guard)) = map.get_or_guard(&1) else { panic!("it is empty") };
            let mut waits = pin!(map.get_or_insert_async(&1, async { panic!("it waits") }));
            assert!(task.poll(&mut waits).is_pending());
            map.shutdown();
            assert!(task.poll(&mut waits).is_pending());
            if loads {
                assert_eq!(*guard.insert(5).unwrap(), 5);
                assert_eq!(*task.block_on(waits).unwrap(), 5);
            } else {
                drop(guard);
                assert!(matches!(task.block_on(waits), Err(LoadError::Closed)));
            }
        }
    }

    #[test]
    fn a_load_that_is_cancelled_hands_over() {
        let (map, task) = (map(), Task::new());
        let mut first = Box::pin(map.get_or_insert_async(&1, pending()));
        let mut second = pin!(map.try_get_or_insert_async(&1, ready(Err("no"))));
        let mut third = pin!(map.get_or_insert_async(&1, ready(3)));
        assert!(task.poll(&mut first).is_pending());
        assert!(task.poll(&mut second).is_pending());
        assert!(task.poll(&mut third).is_pending());
        let woken = task.woken();
        drop(first);
        assert_eq!(task.woken() - woken, 2);
        let failed = task.block_on(second);
        assert!(matches!(failed, Err(LoadError::Failed(error)) if *error == "no"));
        assert_eq!(*task.block_on(third).unwrap(), 3);
    }

    #[test]
    fn a_waiting_call_leaves_only_its_last_waker_and_none_when_it_is_dropped() {
        let (map, loader, tasks) = (map(), Task::new(), [Task::new(), Task::new()]);
        let mut load = pin!(map.get_or_insert_async(&1, pending()));
        assert!(loader.poll(&mut load).is_pending());
        let mut waiting = Box::pin(map.get_or_insert_async(&1, ready(2)));
        assert!(tasks.iter().all(|task| task.poll(&mut waiting).is_pending()));
        assert_eq!(tasks.each_ref().map(Task::held), [0, 1]);
        drop(waiting);
        assert_eq!(tasks.each_ref().map(Task::held), [0, 0]);
    }

    #[test]
    fn a_task_that_waits_gets_the_value_though_the_entry_has_ended() {
        let clock = ManualClock::new();
        let map =
            ExpiringMap::<u64, u64>::builder().clock(clock.clone()).max_capacity(1).build_manual();
        let (map, task) = (map.unwrap(), Task::new());
        let ends: [&dyn Fn(); 3] =
            [&|| drop(map.remove(&1)), &|| clock.advance(2 * SECOND), &|| {
                drop((0..100).map(|key| map.insert(2 + key, 0)).collect::<Vec<_>>())
            }];
        for end in ends {
            let Ok(Loaded::Absent(guard)) = map.get_or_guard(&1) else {
                panic!("nothing is there")
            };
            let mut second = pin!(map.get_or_insert_async(&1, async { panic!("it waits") }));
            assert!(task.poll(&mut second).is_pending());
            drop(guard.insert_for(5, SECOND).unwrap());
            end();
            assert!(!map.contains_key(&1));
            assert_eq!(*task.block_on(second).unwrap(), 5);
        }
    }

    #[test]
    fn a_task_reloads_an_old_value_and_others_do_not_wait() {
        let ((map, clock), task, other) = (reloading(), Task::new(), Task::new());
        map.insert(1, 1).unwrap();
        clock.advance(7 * SECOND);
        let mut cancelled = Box::pin(map.get_or_insert_async(&1, pending()));
        assert!(task.poll(&mut cancelled).is_pending());
        let load = |value| map.get_or_insert_async(&1, ready(value));
        assert_eq!(*other.block_on(pin!(sendable(load(2)))).unwrap(), 1);
        assert_eq!(*map.get_or_insert_with(&1, || 2).unwrap(), 1, "a thread");
        drop(cancelled);
        let failed = map.try_get_or_insert_async(&1, ready(Err("an outage")));
        assert_eq!(*task.block_on(pin!(failed)).unwrap(), 1);
        assert_eq!(*task.block_on(pin!(load(3))).unwrap(), 3);
        assert_eq!((map.get_cloned(&1), task.held(), other.held()), (Some(3), 0, 0));
    }

    #[test]
    fn a_task_loads_a_value_that_chooses_its_lifetime() {
        let ((map, clock), task) = (rig::map(|map| map), Task::new());
        for seconds in [2, 5] {
            let lifetime = Lifetimes::new().live(Duration::from_secs(seconds));
            let load =
                map.try_get_or_insert_async(&seconds, ready(Ok::<_, ()>((seconds, lifetime))));
            assert_eq!(*task.block_on(pin!(load)).unwrap(), seconds);
        }
        clock.advance(4 * SECOND);
        assert_eq!((map.contains_key(&2), map.contains_key(&5)), (false, true));
    }

    /// A bulk load of two keys by a task: the second one's value is ten times the key, once `open`.
    fn load_two<'m>(
        map: &'m ExpiringMap<u64, u64>,
        keys: [&'static u64; 2],
        open: &'m AtomicUsize,
        asked: &'m AtomicUsize,
    ) -> impl std::future::Future<Output = HashMap<&'static u64, u64>> + Send + 'm {
        let load = move |missing: Vec<&'static u64>| {
            asked.fetch_add(missing.len(), Ordering::Relaxed);
            let mut missing =
                Some(missing.into_iter().map(|&key| (key, key * 10, Lifetimes::new())));
            std::future::poll_fn(move |context| match open.load(Ordering::Relaxed) {
                0 => {
                    context.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
                _ => {
                    std::task::Poll::Ready(Ok::<_, ()>(missing.take().expect("it is polled once")))
                }
            })
        };
        let found = map.try_get_or_insert_many_async(keys, load);
        sendable(async move { found.await.unwrap() })
    }

    #[test]
    fn bulk_loads_of_tasks_load_each_key_once() {
        let (map, one, two) = (map(), Task::new(), Task::new());
        let (open, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut first = pin!(load_two(&map, [&1, &3], &open, &asked));
        let mut second = pin!(load_two(&map, [&2, &1], &open, &asked));
        assert!(one.poll(&mut first).is_pending());
        assert!(two.poll(&mut second).is_pending());
        open.store(1, Ordering::Relaxed);
        assert!(two.poll(&mut second).is_pending(), "it has loaded 2, and waits for 1");
        assert_eq!(one.block_on(first), [(&1, 10), (&3, 30)].into());
        assert_eq!(two.block_on(second), [(&1, 10), (&2, 20)].into());
        assert_eq!((asked.load(Ordering::Relaxed), one.held(), two.held()), (3, 0, 0));
    }

    #[test]
    fn a_bulk_load_that_its_own_task_keeps_unpolled_or_drops_hands_over_each_key() {
        let (map, task) = (map(), Task::new());
        let (shut, open, asked) = (AtomicUsize::new(0), AtomicUsize::new(1), AtomicUsize::new(0));
        let mut kept = Box::pin(load_two(&map, [&1, &2], &shut, &asked));
        assert!(task.poll(&mut kept).is_pending());
        let mut second = pin!(load_two(&map, [&2, &3], &open, &asked));
        assert!(task.poll(&mut second).is_pending(), "it has loaded 3, and asks for another poll");
        assert_eq!(task.block_on(second), [(&2, 20), (&3, 30)].into());
        let mut third = pin!(load_two(&map, [&1, &3], &open, &asked));
        let other = Task::new();
        assert!(other.poll(&mut third).is_pending(), "another task's load is left alone");
        drop(kept);
        assert_eq!(other.block_on(third), [(&1, 10), (&3, 30)].into());
        assert_eq!((asked.load(Ordering::Relaxed), task.held(), other.held()), (5, 0, 0));
    }

    #[test]
    fn a_bulk_load_of_a_task_fails_for_all_that_wait() {
        let (map, task) = (map(), Task::new());
        let load = |_: Vec<&u64>| ready(Err::<Vec<_>, _>("an outage"));
        let failed = task.block_on(pin!(map.try_get_or_insert_many_async(&[1, 2], load)));
        assert!(matches!(failed, Err(LoadError::Failed(error)) if *error == "an outage"));
        assert_eq!(load_many(&map, &[1, 2]).1, [[1, 2]]);
    }

    #[test]
    fn a_thread_waits_for_a_task() {
        let (map, task) = (map(), Task::new());
        let Ok(Loaded::Absent(guard)) = task.block_on(map.get_or_guard_async(&1)) else {
            panic!("nothing is there");
        };
        thread::scope(|scope| {
            let waiter = scope.spawn(|| *map.get_or_insert_with(&1, || 9).unwrap());
            let loaded = scope.spawn(move || *guard.insert(5).unwrap());
            assert_eq!(loaded.join().unwrap(), 5);
            assert_eq!(waiter.join().unwrap(), 5);
        });
    }
}
