//! Maps that evict: what `ExpiringMapBuilder::max_capacity` promises.

use crate::rig;
use crate::support::{self, on_threads, panics, SECOND};
use expiry::expiring_map::Entry;
use expiry::{BuildError, EvictionPolicy, ExpiringMap, ManualClock, RemovalCause, StoreError};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

type Told = support::Told<(u64, RemovalCause)>;

/// A map of at most so many entries, and the keys that its listener was called with.
fn bounded(capacity: usize) -> (ExpiringMap<u64, u64>, ManualClock, Told) {
    let told = Told::default();
    let (map, clock) = rig::map(|map| map.max_capacity(capacity).removal_listener(told.removals()));
    (map, clock, told)
}

/// Why entries have ended since the last time.
fn causes(told: &Told) -> Vec<RemovalCause> {
    told.take().into_iter().map(|(_, cause)| cause).collect()
}

/// How many of these keys a cache has. What it has not is loaded.
fn hits(map: &ExpiringMap<u64, u64>, keys: impl Iterator<Item = u64>) -> usize {
    let hit = |&key: &u64| map.get(&key).is_some() || map.insert(key, key).is_err();
    keys.filter(hit).count()
}

#[test]
fn a_scan_evicts_nothing_that_is_in_use() {
    let (map, ..) = bounded(2000);
    hits(&map, (0..10).flat_map(|_| 0..1000));
    hits(&map, 1_000_000..1_010_000);
    assert_eq!(hits(&map, (0..10).flat_map(|_| 0..1000)), 10_000);
}

#[test]
fn a_loop_that_does_not_fit_hits_as_often_as_it_can() {
    let (map, ..) = bounded(1000);
    hits(&map, (0..10).flat_map(|_| 0..2000));
    // At best the half that fits stays.
    let share = hits(&map, (0..10).flat_map(|_| 0..2000)) as f64 / 20_000.0;
    assert!(share > 0.45, "{share}");
}

#[test]
fn a_working_set_that_shifts_is_followed() {
    let (map, ..) = bounded(1000);
    let share = |set: u64| {
        let keys = || (0..10).flat_map(move |_| set * 500..(set + 1) * 500);
        hits(&map, keys());
        hits(&map, keys()) as f64 / 5000.0
    };
    // A set may take longer, where its keys happen to lie before the hand.
    let mean = (0..8).map(share).sum::<f64>() / 8.0;
    assert!(mean > 0.9, "{mean}");
}

/// Of keys 0 to 9,999, the smaller ones far more often.
fn skewed(count: usize) -> impl Iterator<Item = u64> {
    let mut random = 1_u64;
    (0..count).map(move |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
        (10_000_f64.powf(share) - 1.0) as u64
    })
}

#[test]
fn a_map_that_weighs_keeps_what_is_hot() {
    let by_weight = ExpiringMap::builder().max_weight(64_000, |_: &u64, _: &u64| 64);
    let by_weight = by_weight.shards(1).build_manual().unwrap();
    let (by_number, ..) = bounded(1000);
    let share = |map: &ExpiringMap<u64, u64>| {
        // Keys that come once only, among the others.
        let keys = || skewed(100_000).enumerate().flat_map(|(n, key)| [key, 1_000_000 + n as u64]);
        hits(map, keys()) as f64 / 100_000.0
    };
    let (by_weight, by_number) = (share(&by_weight), share(&by_number));
    assert!(by_number > 0.6, "{by_number}");
    assert!(by_weight > by_number - 0.01, "{by_weight}, {by_number}");
}

/// Keys that return soon after their eviction skip probation. That leaves it its share of the
/// entries, also where a map weighs and learns their number only by counting.
#[test]
fn the_share_of_probation_follows_the_number_of_entries() {
    let by_weight = ExpiringMap::builder().max_weight(640_000, |_: &u64, _: &u64| 64);
    let by_weight = by_weight.shards(1).build_manual().unwrap();
    let (by_number, ..) = bounded(10_000);
    for map in [by_weight, by_number] {
        for keys in [0..10_000, 0..10_000, 100_000..101_000, 100_000..100_900, 0..10_000] {
            hits(&map, keys);
        }
        hits(&map, 200_000..200_090);
        let there = (200_000..200_090).filter(|key| map.contains_key(key)).count();
        assert_eq!(there, 90, "keys that have come once, and lately");
    }
}

/// A key is there to be read once within insertions of a tenth of the entries. A loop over too many
/// keys makes that a hundredth, until keys are used on probation again.
#[test]
fn what_was_written_is_there_to_be_read_once() {
    let (map, ..) = bounded(1000);
    let read_once = |from: u64, n: u64| {
        let found = (from..from + n).filter(|&key| {
            map.insert(key, key).unwrap();
            key >= from + 60 && map.get(&(key - 60)).is_some()
        });
        found.count() as f64 / (n - 60) as f64
    };
    let in_a_loop = (0..10).fold(0, |_, _| hits(&map, 100_000..102_000));
    // What goes depends on the keys' hashes: of 300 seeds one gave 845.
    assert!(in_a_loop > 800, "{in_a_loop}");
    let soon = read_once(200_000, 500);
    assert!(soon < 0.2, "probation is short now: {soon}");
    read_once(300_000, 20_000);
    assert!(read_once(400_000, 10_000) > 0.9);
}

#[test]
fn an_insertion_looks_at_256_entries_at_most() {
    let told = Told::default();
    let builder = ExpiringMap::builder().max_capacity(4096).shards(1);
    let map = builder.removal_listener(told.removals()).build_manual().unwrap();
    assert_eq!(hits(&map, (0..4096).chain(0..4096)), 4096);
    for key in 10_000..10_008 {
        map.insert(key, key).unwrap();
        (0..4096).chain(10_000..=key).for_each(|key| drop(map.get(&key)));
    }
    // All have been used. The hand comes as far as it looks, and takes the entry that it meets.
    let mut evicted: Vec<_> = told.take().iter().map(|&(key, _)| key).collect();
    evicted.sort_unstable();
    assert!(evicted.windows(2).all(|pair| pair[1] - pair[0] >= 200), "{evicted:?}");
}

#[test]
fn an_insertion_in_a_listener_hides_nothing_that_is_due() {
    let (clock, told) = (ManualClock::new(), Told::default());
    let map: Arc<OnceLock<ExpiringMap<u64, u64>>> = Arc::default();
    let (tell, own, is_first) = (told.removals(), map.clone(), AtomicBool::new(true));
    let builder = ExpiringMap::builder().max_capacity(100).interval(SECOND).shards(1);
    let builder = builder.clock(clock.clone()).removal_listener(move |key: &u64, value, cause| {
        tell(key, value, cause);
        // The first end that the driver reports leaves one place: this fills the map again.
        if is_first.swap(false, Ordering::Relaxed) {
            let map = own.get().unwrap();
            (1000..1002).for_each(|key| drop(map.insert(key, key).unwrap()));
        }
    });
    let built = builder.build_manual().unwrap();
    let map = map.get_or_init(|| built);
    for key in 0..100 {
        let lifetime = if key % 2 == 0 { SECOND } else { 100 * SECOND };
        map.insert_for(key, key, lifetime).unwrap();
    }
    clock.advance(2 * SECOND);
    while told.take().is_empty() {
        map.poll(1);
    }
    (0..20).for_each(|key| drop(map.insert(2000 + key, key).unwrap()));
    let causes = causes(&told);
    assert!(causes.iter().all(|&cause| cause == RemovalCause::Expired), "{causes:?}");
}

#[test]
fn an_entry_that_is_looked_at_is_swept_and_read_and_has_not_changed() {
    let (map, ..) = bounded(300);
    assert_eq!(hits(&map, (0..300).chain(0..300)), 300);
    let Entry::Occupied(entry) = map.entry(200) else { panic!("it is there") };
    map.insert(1000, 0).unwrap(); // the hand comes by
    assert!(map.get(&200).is_some());
    assert_eq!(*entry.insert(7).unwrap(), 200);
}

#[test]
fn touching_and_getting_keep_an_idle_entry() {
    let idle = expiry::Lifetimes::new().idle(60 * SECOND);
    let (map, ..) = bounded(100);
    for key in 0..50 {
        map.insert_for(key, key, idle).unwrap();
    }
    for turn in 0..100 {
        assert!((0..25).all(|key| map.get(&key).is_some()));
        assert!((25..50).all(|key| map.touch(&key)));
        for key in 0..20 {
            map.insert_for(1000 + turn * 20 + key, key, idle).unwrap();
        }
    }
}

#[test]
fn threads_keep_the_bound_and_each_entry_ends_once() {
    const EACH: u64 = if cfg!(debug_assertions) { 3_000 } else { 100_000 };
    for (policy, capacity) in POLICIES.into_iter().flat_map(|policy| [(policy, 8), (policy, 100)]) {
        let ends: Arc<Mutex<HashMap<u64, usize>>> = Arc::default();
        let into = ends.clone();
        let map = ExpiringMap::builder()
            .max_capacity(capacity)
            .eviction_policy(policy)
            .removal_listener(move |&key: &u64, _: &u64, cause| {
                assert!(matches!(cause, RemovalCause::Size | RemovalCause::Removed));
                *into.lock().unwrap().entry(key).or_default() += 1;
            })
            .build()
            .unwrap();
        on_threads(4, |thread| {
            for key in (0..EACH).map(|n| n * 4 + thread) {
                map.insert(key, key).expect("a full map makes room");
                assert!(map.weight() <= Some(capacity as u64));
                if key % 12 < 4 {
                    map.get(&key.saturating_sub(8));
                }
                if key % 28 < 4 {
                    drop(map.remove(&key.saturating_sub(4)));
                }
            }
        });
        let (ended, live) = (std::mem::take(&mut *ends.lock().unwrap()), map.len());
        assert!(live <= capacity && ended.values().all(|&times| times == 1), "{policy:?}");
        assert_eq!(ended.len() + live, 4 * EACH as usize, "{policy:?}");
        (0..200).for_each(|key| drop(map.insert(key, key).unwrap()));
        assert_eq!((map.len(), map.weight()), (capacity, Some(capacity as u64)), "{policy:?}");
    }
}

/// A map whose values are weights, of at most so much in all, and what it has removed.
fn weighing_at_most(most: usize) -> (ExpiringMap<u64, u64>, Told) {
    let told = Told::default();
    let builder = ExpiringMap::builder().max_weight(most, weigh);
    (builder.removal_listener(told.removals()).build_manual().unwrap(), told)
}

fn weigh(_: &u64, &weight: &u64) -> u32 {
    u32::try_from(weight).unwrap()
}

thread_local! {
    /// How many entries this thread has evicted, if it counts them.
    static EVICTED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A map of at most 1,000, full of entries of weight `theirs`. Whenever a thread that counts its
/// evictions has evicted an entry, another thread inserts one of that weight; 500 times at most.
fn contended(theirs: u64) -> Arc<OnceLock<ExpiringMap<u64, u64>>> {
    let map: Arc<OnceLock<ExpiringMap<u64, u64>>> = Arc::default();
    let own = map.clone();
    let built = ExpiringMap::builder()
        .max_weight(1000, weigh)
        .removal_listener(move |_: &u64, _: &u64, cause| {
            let evicted = EVICTED.with(Cell::get).filter(|_| cause == RemovalCause::Size);
            let Some(evicted) = evicted else { return };
            EVICTED.with(|count| count.set(Some(evicted + 1)));
            if evicted < 500 {
                let own = own.clone();
                let rival =
                    move || drop(own.get().unwrap().insert(10_000 + evicted, theirs).unwrap());
                thread::spawn(rival).join().unwrap();
            }
        })
        .build_manual()
        .unwrap();
    for key in 0..1000 / theirs {
        built.insert(key, theirs).unwrap();
    }
    map.get_or_init(|| built);
    map
}

#[test]
fn an_insertion_evicts_no_more_entries_than_it_weighs() {
    type Call = fn(&ExpiringMap<u64, u64>, u64);
    let calls: [Call; 3] = [
        |map, weight| drop(map.insert(5000, weight).unwrap()),
        |map, weight| map.upsert(5000, |_| (weight, ())).unwrap(),
        |map, weight| match map.entry(5000) {
            Entry::Occupied(entry) => drop(entry.insert(weight).unwrap()),
            Entry::Vacant(entry) => drop(entry.insert(weight).unwrap()),
        },
    ];
    for (theirs, weight) in [(1, 1), (1, 100), (1, 1000), (1000, 1), (100, 1), (30, 100)] {
        for (call, replaces) in calls.iter().flat_map(|call| [(call, false), (call, true)]) {
            let map = contended(theirs);
            let map = map.get().unwrap();
            if replaces && weight > 1 {
                map.insert(5000, 1).unwrap();
            }
            EVICTED.with(|count| count.set(Some(0)));
            call(map, weight);
            let evicted = EVICTED.with(|count| count.replace(None)).unwrap();
            assert!(evicted <= weight, "{evicted} beside {theirs} for {weight}");
            // Each permit is an entry's, or free: as many light entries fit as at the beginning.
            assert!(map.iter().map(|entry| *entry).sum::<u64>() <= 1000);
            map.clear();
            (0..1000).for_each(|key| drop(map.insert(key, 1).unwrap()));
            assert_eq!(
                (map.len(), map.insert(0, 1001).unwrap_err().error),
                (1000, StoreError::TooHeavy)
            );
        }
    }
}

#[test]
fn a_weigher_that_panics_changes_nothing() {
    let map = ExpiringMap::builder()
        .max_weight(10, |_: &u64, &value: &u64| {
            assert!(value != 3, "as this test wants it");
            5
        })
        .build_manual()
        .unwrap();
    map.insert(1, 1).unwrap();
    assert!(panics(|| drop(map.insert(1, 3))));
    assert!(panics(|| drop(map.upsert(1, |_| (3, ())))));
    map.insert(2, 2).unwrap();
    assert_eq!((map.get(&1).as_deref(), map.len()), (Some(&1), 2));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let builder = || ExpiringMap::<u64, u64>::builder();
    let refused = |builder: expiry::ExpiringMapBuilder<u64, u64>| {
        builder.build_manual().map(drop).unwrap_err()
    };
    assert_eq!(refused(builder().max_capacity(0)), BuildError::ZeroCapacity);
    assert_eq!(refused(builder().capacity(1).max_capacity(1)), BuildError::TwoBounds);
    assert_eq!(refused(builder().max_weight(0, |_, _| 1)), BuildError::ZeroCapacity);
    assert_eq!(refused(builder().max_weight(9, |_, _| 1).capacity(9)), BuildError::TwoBounds);
    let capacity = usize::MAX;
    let error = BuildError::CapacityTooLarge { capacity };
    assert_eq!(refused(builder().max_capacity(capacity)), error);
}

#[test]
fn bounds_that_cannot_be_are_refused() {
    let (map, _, _) = bounded(20);
    let too_large = BuildError::CapacityTooLarge { capacity: (1 << 31) + 1 };
    assert_eq!(map.set_max_capacity(0), Err(BuildError::ZeroCapacity));
    assert_eq!(map.set_max_capacity((1 << 31) + 1), Err(too_large));
    assert_eq!(map.set_max_weight(5), Err(BuildError::OtherBound));
    assert_eq!((map.capacity(), map.metrics().capacity), (Some(20), Some(20)));
    let free = ExpiringMap::<u64, u64>::builder().build_manual().unwrap();
    assert_eq!(free.set_max_capacity(5), Err(BuildError::OtherBound));
    assert_eq!((free.capacity(), free.weight()), (None, None));
    let refuses = ExpiringMap::<u64, u64>::builder().capacity(5).build_manual().unwrap();
    assert_eq!(refuses.set_max_capacity(5), Err(BuildError::OtherBound));
    let (map, _) = weighing_at_most(100);
    assert_eq!(map.set_max_capacity(5), Err(BuildError::OtherBound));
    map.set_max_weight(usize::MAX).unwrap();
    map.insert(8, 1000).unwrap();
    assert_eq!(map.weight(), Some(1000));
}

/// A listener lowers the bound while two insertions keep the permits of what they have evicted:
/// there is nothing to evict, and the insertions do not use those permits.
#[test]
fn a_bound_that_is_lowered_amid_insertions_holds_afterwards() {
    let map: Arc<OnceLock<ExpiringMap<u64, u64>>> = Arc::default();
    let (own, evicted) = (map.clone(), AtomicUsize::new(0));
    let listener = move |_: &u64, _: &u64, _| {
        let map = own.get().unwrap();
        match evicted.fetch_add(1, Ordering::Relaxed) {
            0 => drop(map.insert(4, 4)),
            1 => map.set_max_capacity(1).unwrap(),
            _ => {}
        }
    };
    let built = ExpiringMap::builder().max_capacity(2).removal_listener(listener).build_manual();
    let map = map.get_or_init(|| built.unwrap());
    for key in 1..=3 {
        map.insert(key, key).unwrap();
    }
    assert_eq!((map.len(), map.weight(), map.capacity()), (1, Some(1), Some(1)));
}

#[test]
fn a_bound_is_lowered_and_raised_beside_insertions() {
    let (map, _, _) = bounded(1000);
    thread::scope(|scope| {
        for from in [0, 1 << 20] {
            let map = &map;
            scope.spawn(move || {
                for key in from..from + 20_000 {
                    map.insert(key, key).unwrap();
                }
            });
        }
        for capacity in (1..100).chain([100]) {
            map.set_max_capacity(capacity * 10).unwrap();
            map.set_max_capacity(100).unwrap();
            assert!(map.weight() <= Some(100));
        }
    });
    assert_eq!((map.len(), map.weight()), (100, Some(100)));
}

const POLICIES: [EvictionPolicy; 3] =
    [EvictionPolicy::S3Fifo, EvictionPolicy::LeastRecentlyUsed, EvictionPolicy::SoonestDeadline];

/// A map of this policy, of at most so many entries.
fn evicting(policy: EvictionPolicy, capacity: usize) -> ExpiringMap<u64, u64> {
    let builder = ExpiringMap::builder().max_capacity(capacity).eviction_policy(policy).shards(2);
    builder.build_manual().unwrap()
}

/// Each key is written, and read once, after so many insertions: as many keys have been used since
/// as were written, and read.
#[test]
fn the_least_recently_used_goes_and_what_is_read_late_is_there() {
    for later in [12, 80, 480] {
        let map = evicting(EvictionPolicy::LeastRecentlyUsed, 1000);
        let there = |key: u64| {
            map.insert(key, key).unwrap();
            key >= later && map.get(&(key - later)).is_some()
        };
        let share = (0..10_000).filter(|&key| there(key)).count() as f64 / (10_000 - later) as f64;
        assert!(share > 0.99, "{later}: {share}");
    }
}

fn keys(map: &ExpiringMap<u64, u64>) -> Vec<u64> {
    map.iter().map(|entry| *entry.key()).collect()
}

/// Most of what the policy evicts is among the tenth, or the quarter, that it ought to evict.
#[test]
fn the_policies_are_near_what_they_say() {
    for policy in [EvictionPolicy::LeastRecentlyUsed, EvictionPolicy::SoonestDeadline] {
        let is_lru = policy == EvictionPolicy::LeastRecentlyUsed;
        // A chunk has 4096 slots.
        let chunks: &[u64] = &[5000, 8192, 8500, 9000, 17_000];
        let (among, chunks) = if is_lru { (4, chunks) } else { (10, &chunks[..0]) };
        for &capacity in [100, 1000, 10_000].iter().chain(chunks) {
            let map = evicting(policy, capacity as usize);
            let (mut random, mut right, tries, before) = (5_u64, 0, 2000, 2 * capacity);
            let mut ranks: Vec<u64> = vec![0; before as usize + tries];
            let mut insert = |key: u64, rank: &mut u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Entries of one lifetime lie in the order in which they came.
                let lifetime = if is_lru { 100 } else { 100 + (random >> 40) % 100_000 };
                map.insert_for(key, key, SECOND * lifetime as u32).unwrap();
                *rank = lifetime;
            };
            for key in 0..before {
                insert(key, &mut ranks[key as usize]);
            }
            for n in 0..tries as u64 {
                let key = before + n;
                let before: Vec<u64> = if n % 100 == 0 { keys(&map) } else { Vec::new() };
                insert(key, &mut ranks[key as usize]);
                if let Some(&gone) = before.iter().find(|key| !map.contains_key(key)) {
                    let rank = |key: u64| if is_lru { key } else { ranks[key as usize] };
                    let less = before.iter().filter(|&&key| rank(key) < rank(gone)).count();
                    right += usize::from(less * among <= before.len());
                }
            }
            println!("{policy:?} of {capacity}: {right} of {}", tries / 100);
            assert!(right * 100 >= 80 * tries / 100, "{policy:?} {capacity} {right}");
        }
    }
}
