//! `ExpiringMap` and `TimeCacheMap`: one test per promise. Their results in general are those of
//! `oracle.rs`.

use crate::drops::census::{Census, Counted};
use crate::rig;
use crate::support::{panics, wait_for, Told, GENEROUS, MS, SECOND};
use expiry::expiring_map::Entry;
use expiry::{
    BuildError, Clock, ExpiringMap, ExpiringMapBuilder, Lifetime, LifetimeError, Lifetimes,
    ManualClock, RemovalCause, StoreError, StoreShardMetrics, TimeCacheMap,
};
use std::hash::{Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

fn pass<K, V>(map: &ExpiringMap<K, V>, clock: &ManualClock, by: Duration)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    clock.advance(by);
    while map.poll(usize::MAX).more {}
}

#[test]
fn bad_times_are_refused_and_nothing_is_lost() {
    let (map, _) = rig::map(|map| map.interval(MS));
    map.insert("a".to_string(), 1_u64).unwrap();
    let after = Lifetime::After;
    let cases = [
        (Lifetimes::from(Duration::ZERO), StoreError::Lifetime(LifetimeError::Zero)),
        (Lifetimes::from(Duration::MAX), StoreError::Lifetime(LifetimeError::TooLong)),
        (Lifetimes::new().idle(after(Duration::ZERO)), StoreError::Lifetime(LifetimeError::Zero)),
        (Lifetimes::new().idle(after(Duration::MAX)), StoreError::Lifetime(LifetimeError::TooLong)),
    ];
    for (lifetime, error) in cases {
        for key in ["a", "b"] {
            let refused = map.insert_for(key.to_string(), 7, lifetime).unwrap_err();
            assert_eq!((refused.key.as_str(), refused.value, refused.error), (key, 7, error));
        }
        match map.entry("a".to_string()) {
            Entry::Occupied(entry) => {
                let refused = entry.insert_for(7, lifetime).unwrap_err();
                assert_eq!((refused.key.as_str(), refused.error), ("a", error));
            }
            Entry::Vacant(_) => panic!("it is there"),
        }
    }
    assert_eq!(map.touch_for("a", after(Duration::ZERO)), Err(LifetimeError::Zero));
    assert_eq!(map.touch_for("a", after(Duration::MAX)), Err(LifetimeError::TooLong));
    assert_eq!((map.get_cloned("a"), map.len()), (Some(1), 1));
    let builder = || ExpiringMap::<u64, u64>::builder();
    let refused = |builder: ExpiringMapBuilder<u64, u64>| builder.build_manual().unwrap_err();
    assert_eq!(refused(builder().time_to_live(Duration::ZERO)), BuildError::ZeroTimeout);
    assert_eq!(refused(builder().time_to_idle(Duration::ZERO)), BuildError::ZeroTimeout);
    let error = refused(builder().time_to_live(SECOND).interval(SECOND * 2));
    assert!(matches!(error, BuildError::IntervalAboveTimeout { .. }));
    let error = refused(builder().time_to_idle(Duration::MAX).interval(MS));
    assert!(matches!(error, BuildError::TimeoutTooLong { .. }));
}

#[test]
fn a_panic_of_a_key_is_its_callers_and_changes_nothing() {
    let census = Census::new();
    let one = || Counted::of(&census, 1);
    let (map, clock) = rig::map(|map| map.time_to_live(SECOND * 10));
    map.insert(one(), one()).unwrap();
    for bad in ["hash", "eq"] {
        let asks = Counted::when_asked(move |how, _| assert_ne!(how, bad));
        assert!(panics(|| drop(map.get(&one()))));
        assert!(panics(|| drop(map.insert(one(), one()))));
        assert!(panics(|| drop(map.remove(&one()))));
        assert!(panics(|| _ = map.touch(&one())));
        assert!(panics(|| drop(map.entry(one()).or_insert(one()))));
        drop(asks);
        assert_eq!(map.len(), 1);
        assert!(map.touch(&one()));
    }
    let asks = Counted::when_asked(|how, _| panic!("it expires without {how}"));
    pass(&map, &clock, SECOND * 11);
    drop(asks);
    assert!(map.is_empty());
    map.insert(one(), one()).unwrap();
    assert_eq!(map.len(), 1);
    // What did not get in has been dropped too.
    wait_for("its drop", || census.left() == 2);
}

#[test]
fn a_panic_of_a_values_drop_loses_nothing_else() {
    let census = Census::new();
    // One of 50 panics.
    let value = |key: u64| match key % 50 {
        1 => Counted::armed(&census, key),
        _ => Counted::of(&census, key),
    };
    let (map, clock) = rig::map(|map| map.time_to_live(SECOND * 10));
    let before = map.metrics().drop_panics;
    for key in 0..1000 {
        map.insert(key, value(key)).unwrap();
    }
    for key in 0..100 {
        map.insert(key, value(key)).unwrap();
        map.remove(&(key + 100)).unwrap();
    }
    pass(&map, &clock, SECOND * 11);
    map.insert(5000, value(0)).unwrap();
    wait_for("all drops", || census.left() == 1);
    assert!(map.metrics().drop_panics >= before + 22);
    assert_eq!(map.len(), 1);
}

#[test]
fn a_listener_that_panics_delays_nobody() {
    let told = Arc::new(AtomicUsize::new(0));
    let listener = told.clone();
    let (map, clock) = rig::map(|map| {
        map.time_to_live(SECOND * 10).removal_listener(move |_: &u64, _: &u64, _| {
            listener.fetch_add(1, Relaxed);
            panic!("the listener does not like it");
        })
    });
    for key in 0..100 {
        map.insert(key, key).unwrap();
    }
    assert_eq!(*map.insert(0, 7).unwrap().unwrap().value(), 0);
    assert_eq!(*map.remove(&0).unwrap().value(), 7);
    pass(&map, &clock, SECOND * 11);
    assert_eq!((told.load(Relaxed), map.len()), (101, 0));
    assert_eq!(map.metrics().listener_panics, 101);
    let total = map.metrics().total;
    let ends = (total.replaced, total.removed, total.expired);
    assert_eq!((total.inserted, ends), (100, (1, 1, 99)));
}

type Shared = ExpiringMap<u64, u64>;

/// A map whose listener has the map, by hand or, without a clock, with a thread.
fn reentrant(
    clock: Option<&ManualClock>,
    f: impl Fn(&Shared, u64, RemovalCause) + Send + Sync + 'static,
) -> Arc<Shared> {
    Arc::new_cyclic(|own: &Weak<Shared>| {
        let own = own.clone();
        let builder = ExpiringMap::builder().removal_listener(move |key: &u64, _: &u64, cause| {
            if let Some(map) = own.upgrade() {
                f(&map, *key, cause);
            }
        });
        let timed = |time| builder.time_to_live(10 * time).interval(time);
        match clock {
            Some(clock) => timed(SECOND).clock(clock.clone()).build_manual(),
            None => timed(MS / 10).build(),
        }
        .unwrap()
    })
}

#[test]
fn a_listener_may_call_the_map() {
    let clock = ManualClock::new();
    let map = reentrant(Some(&clock), |map, key, cause| match cause {
        RemovalCause::Expired => {
            assert!(map.get(&key).is_none() && !map.touch(&key) && map.remove(&key).is_none());
            // Polling in a poll does nothing.
            map.poll(usize::MAX);
            map.insert(key + 1000, key).unwrap();
            map.retain(|key, _| *key != 2000);
        }
        RemovalCause::Replaced => drop(map.remove(&key)),
        _ => {}
    });
    for key in 0..100 {
        map.insert(key, key).unwrap();
    }
    map.insert(0, 1).unwrap();
    assert!(map.get(&0).is_none());
    pass(&map, &clock, SECOND * 11);
    assert_eq!(map.len(), 99);
    assert_eq!(map.iter().map(|entry| *entry - (*entry.key() - 1000)).sum::<u64>(), 0);
}

#[test]
fn a_listener_may_shut_the_map_down_or_drop_it() {
    let clock = ManualClock::new();
    let closed = Arc::new(AtomicUsize::new(0));
    let counter = closed.clone();
    let map = reentrant(Some(&clock), move |map, key, cause| {
        if cause == RemovalCause::Expired && key == 5 {
            map.shutdown();
            for key in [77, 177] {
                let refused = map.insert(key, 7).unwrap_err();
                assert_eq!(refused.error, StoreError::Closed);
            }
        }
        counter.fetch_add(1, Relaxed);
    });
    for key in 0..100 {
        let time = [Lifetime::Default, Lifetime::Never][usize::from(key >= 50)];
        map.insert_for(key, key, time).unwrap();
    }
    pass(&map, &clock, SECOND * 11);
    assert_eq!((closed.load(Relaxed), map.len()), (100, 0));
    assert_eq!(map.metrics().listener_panics, 0);
    map.shutdown();
    assert_eq!((closed.load(Relaxed), map.len()), (100, 0));

    // The last owner is the listener, on the reaper's own thread.
    let owner: Arc<Mutex<Option<Arc<Shared>>>> = Arc::default();
    let gone = Arc::new(AtomicBool::new(false));
    let (owned, flag) = (owner.clone(), gone.clone());
    let map = reentrant(None, move |_, _, _| {
        drop(owned.lock().unwrap().take());
        flag.store(true, Release);
    });
    let weak = Arc::downgrade(&map);
    // Under the lock: the listener, which may come at once, finds its owner there.
    let mut own = owner.lock().unwrap();
    map.insert(1, 1).unwrap();
    *own = Some(map);
    drop(own);
    while !gone.load(Acquire) || weak.strong_count() != 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_time_cache_keeps_its_window_whatever_its_callbacks_take() {
    for buckets in [2usize, 3, 5, 11] {
        let expiration = SECOND * 10;
        let window = expiration + expiration / u32::try_from(buckets - 1).unwrap();
        let (clock, told) = (ManualClock::new(), Told::default());
        let (slow, tell) = (clock.clone(), told.handler());
        let builder = TimeCacheMap::builder(expiration).buckets(buckets).clock(clock.clone());
        let builder = builder.expiry_listener(move |key: &u64, put_at: &u64| {
            assert_eq!(*key * 313, *put_at);
            tell(*key);
            // A third of a second each: a block full of them takes longer than the interval.
            slow.advance(SECOND / 3);
        });
        let map = builder.build_manual().unwrap();
        let now = || Duration::from_nanos(Clock::now(&clock));
        let mut put = Vec::new();
        for key in 0..100u64 {
            let at = Duration::from_millis(key * 313);
            clock.advance(at.saturating_sub(now()));
            map.put(key, key * 313).unwrap();
            put.push((key, now()));
            map.poll(usize::MAX);
            for &(key, at) in &put {
                let age = now() - at;
                assert!(age >= expiration || map.contains_key(&key), "{age:?} of {expiration:?}");
                assert!(age < window || map.get(&key).is_none(), "{age:?} of {window:?}");
            }
            if now() > at {
                // The callbacks have taken time: what comes later is put later.
                break;
            }
        }
        while !map.is_empty() {
            clock.advance(SECOND / 10);
            map.poll(usize::MAX);
            for &(key, at) in &put {
                let age = now() - at;
                assert!(age < window || map.get(&key).is_none(), "{age:?} of {window:?}");
            }
        }
        assert_eq!(told.len(), put.len());
    }
}

#[test]
fn bad_settings_of_a_time_cache_are_refused() {
    let buckets =
        |buckets| TimeCacheMap::<u64, u64>::builder(SECOND).buckets(buckets).build().err();
    assert_eq!(buckets(1), Some(BuildError::TooFewBuckets { buckets: 1 }));
    assert!(matches!(buckets(usize::MAX), Some(BuildError::IntervalTooShort { .. })));
    assert_eq!(TimeCacheMap::<u64, u64>::new(Duration::ZERO).err(), Some(BuildError::ZeroTimeout));
}

#[test]
fn entries_and_upserts_may_have_lifetimes_of_their_own() {
    let (map, clock) = rig::map(|map| map.time_to_live(SECOND * 10));
    map.entry(1).or_insert_for(SECOND * 3, || 10_u64).unwrap();
    map.entry(1).or_insert_for(SECOND * 100, || 11).unwrap();
    map.upsert_for(2, SECOND * 3, |old| (old.map_or(20, |old| old + 1), ())).unwrap();
    let left = |key: u64| map.remaining(&key).map(|left| left.as_secs());
    assert_eq!((left(1), left(2)), (Some(3), Some(3)));
    assert_eq!(map.get_cloned(&1), Some(10));
    clock.advance(SECOND * 2);
    map.upsert_for(2, SECOND * 5, |old| (old.map_or(20, |old| old + 1), ())).unwrap();
    clock.advance(SECOND * 2);
    assert_eq!((left(1), left(2)), (None, Some(3)));
    assert_eq!(map.get_cloned(&2), Some(21));
    let refused = map.upsert_for(2, Duration::ZERO, |_| (0, ())).unwrap_err();
    assert_eq!((refused.key, refused.error), (2, StoreError::Lifetime(LifetimeError::Zero)));
    assert_eq!(map.get_cloned(&2), Some(21));
}

const STAYING: u64 = 1000;

/// Calls `walk` while one thread gives new values to the keys below [`STAYING`] that are there, and
/// another inserts and removes the keys above, so that the index grows and shrinks.
fn beside_writers(walk: fn(&ExpiringMap<u64, u64>)) {
    let map = ExpiringMap::builder().shards(2).build().unwrap();
    for key in 0..STAYING {
        map.insert(key, 0).unwrap();
    }
    let (done, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let until_done = |round: &dyn Fn()| {
        while !done.load(SeqCst) {
            round();
            rounds.fetch_add(1, SeqCst);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_done(&|| {
                for key in 0..STAYING {
                    if let Entry::Occupied(entry) = map.entry(key) {
                        drop(entry.insert(1));
                    }
                }
            });
        });
        scope.spawn(|| {
            until_done(&|| {
                (STAYING..20 * STAYING).for_each(|key| drop(map.insert(key, 0).unwrap()));
                (STAYING..20 * STAYING).for_each(|key| drop(map.remove(&key)));
            });
        });
        while rounds.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let walked = catch_unwind(AssertUnwindSafe(|| walk(&map)));
        done.store(true, SeqCst);
        walked.unwrap();
    });
}

/// How many of the staying keys were met never, and how many more than once.
fn missed_and_met_again(met: impl IntoIterator<Item = u64>) -> (usize, usize) {
    let mut times = [0; STAYING as usize];
    for key in met.into_iter().filter(|key| *key < STAYING) {
        times[usize::try_from(key).unwrap()] += 1;
    }
    let count = |wanted: fn(&u32) -> bool| times.iter().filter(|times| wanted(times)).count();
    (count(|times| *times == 0), count(|times| *times > 1))
}

#[test]
fn a_look_up_beside_writers_finds_each_key_that_stays() {
    beside_writers(|map| {
        for round in 0..400 {
            let missed = |key: &u64| match (key + round) % 2 {
                0 => map.get(key).is_none(),
                _ => map.insert(*key, round).unwrap().is_none(),
            };
            assert_eq!((0..STAYING).filter(missed).count(), 0, "round {round}");
        }
    });
}

#[test]
fn a_walk_beside_writers_meets_each_key_once() {
    beside_writers(|map| {
        let walks: Vec<_> =
            (0..10).map(|_| missed_and_met_again(map.iter().map(|entry| *entry.key()))).collect();
        assert_eq!(walks, [(0, 0); 10], "keys missed, keys met again");
    });
}

#[test]
fn clear_beside_writers_removes_what_was_there() {
    beside_writers(|map| {
        let ended = map.iter().count();
        map.clear();
        let left = (0..STAYING).filter(|key| map.contains_key(key)).count();
        assert_eq!(left, 0, "of {ended}");
    });
}

#[test]
fn retain_beside_writers_asks_about_each_value_that_it_removes() {
    beside_writers(|map| {
        let mut asked = Vec::new();
        map.retain(|key, _| {
            asked.push(*key);
            key % 2 == 0
        });
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(missed_and_met_again(asked), (0, 0));
        let left = missed_and_met_again(map.iter().map(|entry| *entry.key()));
        assert_eq!(left, (STAYING as usize / 2, 0));
    });
}

/// A hasher that gives the keys `8 n` to `8 n + 7` one hash.
#[derive(Clone, Default)]
struct Alike(u64);

impl Hasher for Alike {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        self.0 = key / 8;
    }
}

#[test]
fn a_walk_meets_keys_of_one_hash_once() {
    let hasher = std::hash::BuildHasherDefault::<Alike>::default();
    let map = ExpiringMap::builder().hasher(hasher).build().unwrap();
    for key in 0..STAYING {
        map.insert(key, 0_u64).unwrap();
    }
    let met = map.iter().map(|entry| {
        let key = *entry.key();
        map.insert(key ^ 1, 1).unwrap();
        key
    });
    assert_eq!(missed_and_met_again(met), (0, 0));
    map.retain(|key, _| key % 8 == 3);
    assert_eq!(map.len() as u64, STAYING / 8);
    map.clear();
    assert!(map.is_empty());
}

/// A wake-up that the caller's thread got before a call is there after it.
#[test]
fn a_flush_and_a_shutdown_leave_the_callers_wake_up_alone() {
    let map = ExpiringMap::builder().build().unwrap();
    map.insert(1_u64, 1_u64).unwrap();
    let kept = map.get(&1).unwrap();
    map.remove(&1);
    let is_kept = |what: &str, call: &dyn Fn()| {
        std::thread::current().unpark();
        call();
        let began = Instant::now();
        std::thread::park_timeout(GENEROUS);
        assert!(began.elapsed() < GENEROUS, "{what}");
    };
    is_kept("flush", &|| assert!(!map.flush(20 * MS)));
    drop(kept);
    is_kept("shutdown", &|| map.shutdown());
}

/// The clock panics once, on the reaper's thread. The reaper goes on, and the metrics say so.
#[test]
fn a_clock_that_panics_does_not_end_the_reaper() {
    #[derive(Debug)]
    struct PanicsOnce(expiry::MonotonicClock, AtomicBool);
    impl expiry::Clock for PanicsOnce {
        fn now(&self) -> u64 {
            let reaper = std::thread::current().name() == Some("expiry-reaper");
            if reaper && !self.1.swap(true, Relaxed) {
                std::panic::resume_unwind(Box::new("a clock that is broken for a moment"));
            }
            self.0.now()
        }
    }
    let clock = PanicsOnce(expiry::MonotonicClock::new(), false.into());
    let map =
        ExpiringMap::builder().time_to_live(2 * MS).interval(MS).clock(clock).build().unwrap();
    map.insert(1_u64, 1_u64).unwrap();
    wait_for("the entry to expire", || map.is_empty());
    assert_eq!(map.metrics().listener_panics, 1);
}

/// With its own thread a time cache calls its callback, and nothing else has to.
#[test]
fn a_time_cache_has_a_thread_of_its_own() {
    let (sender, expired) = std::sync::mpsc::channel();
    let map = TimeCacheMap::builder(20 * MS)
        .expiry_listener(move |key: &u64, value: &u64| sender.send((*key, *value)).unwrap())
        .build()
        .unwrap();
    map.put(1, 10).unwrap();
    assert_eq!(expired.recv_timeout(GENEROUS), Ok((1, 10)), "no thread has called it");
    assert!(format!("{map:?}").contains("reaper: true"), "{map:?}");
    drop(map);
    assert!(expired.recv().is_err(), "the thread has ended with the map");
}

/// A replacement that keeps the lifetime ends when the first value would have, whichever call it
/// is.
#[test]
fn a_replacement_may_keep_the_lifetime() {
    type Replace = fn(&ExpiringMap<u64, u64>, Lifetimes);
    let calls: [Replace; 3] = [
        |map, lifetime| drop(map.insert_for(1, 2, lifetime).unwrap()),
        |map, lifetime| map.upsert_for(1, lifetime, |_| (2, ())).unwrap(),
        |map, lifetime| {
            let Entry::Occupied(entry) = map.entry(1) else { panic!("it is there") };
            drop(entry.insert_for(2, lifetime).unwrap());
        },
    ];
    let keep = Lifetimes::from(SECOND * 30).keep();
    for replace in calls {
        let (map, clock) = rig::map(|map| map);
        map.insert_for(1, 1, SECOND * 10).unwrap();
        clock.advance(SECOND * 6);
        replace(&map, keep);
        assert_eq!((map.remaining(&1), map.get(&1).as_deref()), (Some(SECOND * 4), Some(&2)));
        clock.advance(SECOND * 5);
        assert!(map.get(&1).is_none());
        // For ever stays for ever, until a touch says otherwise.
        map.insert_for(1, 1, Lifetime::Never).unwrap();
        replace(&map, keep);
        assert_eq!(map.remaining(&1), Some(Duration::MAX));
        assert_eq!(map.touch_for(&1, SECOND * 7), Ok(true));
        replace(&map, keep);
        assert_eq!(map.remaining(&1), Some(SECOND * 7));
        assert_eq!(map.touch_for(&1, Lifetime::Never), Ok(true));
        assert_eq!(map.remaining(&1), Some(Duration::MAX));
    }
}

/// An entry under a new key has what is given beside `keep`; one with a time to idle keeps both
/// times.
#[test]
fn a_kept_time_to_idle_and_a_new_key() {
    let (map, clock) = rig::map(|map| map);
    let lifetime = Lifetimes::from(SECOND * 30).idle(SECOND * 10);
    map.insert_for(1_u64, 1_u64, lifetime.keep()).unwrap();
    assert_eq!(map.remaining(&1), Some(SECOND * 10));
    for _ in 0..3 {
        clock.advance(SECOND * 8);
        map.insert_for(1, 2, Lifetimes::new().keep()).unwrap();
        assert_eq!(map.get(&1).as_deref(), Some(&2), "a use prolongs it");
    }
    assert_eq!(map.remaining(&1), Some(SECOND * 6), "and not beyond the time to live");
}

/// F7: what happens to an entry is counted at the shard that has its memory: here one of 16.
#[test]
fn what_happens_is_counted_at_the_shard_of_the_entry() {
    let (map, clock) = rig::map(|map| map.time_to_live(SECOND * 10).shards(16));
    for key in 0..100u64 {
        map.insert(key, 0_u64).unwrap();
    }
    for key in 0..20 {
        drop(map.insert(key, 1).unwrap());
    }
    for key in 20..50 {
        drop(map.remove(&key));
    }
    for key in 50..60 {
        map.insert_for(key, 2, SECOND * 100).unwrap();
    }
    clock.advance(SECOND * 20);
    while map.poll(usize::MAX).more {}
    let metrics = map.metrics();
    let of_entries = |shard: &StoreShardMetrics| {
        let mut shard = shard.clone();
        shard.tables = 0;
        shard
    };
    let total = of_entries(&metrics.total);
    let counts = [total.inserted, total.replaced, total.removed, total.expired, total.live];
    assert_eq!(counts, [100, 30, 30, 60, 10]);
    let here: Vec<_> = metrics.shards.iter().map(of_entries).filter(|s| s.slots > 0).collect();
    assert_eq!(here, [total], "{metrics:?}");
    map.clear();
    let metrics = map.metrics();
    let removed = metrics.shards.iter().filter(|shard| shard.removed > 0).count();
    assert_eq!((removed, metrics.total.removed), (1, 40));
}
