//! Maps whose listener has a thread of its own: what a slow listener delays, and what it does not.

use crate::support;

use crate::support::{wait_for, GENEROUS, MS};
use expiry::{BuildError, ExpiringMap, ExpiringMapBuilder, ManualClock, RemovalCause, WhenFull};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

type Map<V> = ExpiringMap<u64, V>;
type Told = (u64, RemovalCause);

const POLICIES: [WhenFull; 3] = [WhenFull::Wait, WhenFull::Spill, WhenFull::Drop];

/// A listener that says for which key it is called, and then waits until it may go on: for one
/// message, or until the sender is dropped.
struct Gate {
    entered: Receiver<Told>,
    go_on: Option<Sender<()>>,
}

impl Gate {
    fn at<V: Send + Sync + 'static>(
        builder: ExpiringMapBuilder<u64, V>,
    ) -> (Self, ExpiringMapBuilder<u64, V>) {
        let (enters, entered) = channel();
        let (go_on, goes_on) = channel();
        let goes_on = Mutex::new(goes_on);
        let builder = builder.removal_listener(move |key: &u64, _: &V, cause| {
            enters.send((*key, cause)).unwrap();
            let _ = goes_on.lock().unwrap().recv();
        });
        let go_on = Some(go_on);
        (Gate { entered, go_on }, builder)
    }

    fn next(&self) -> Told {
        self.entered.recv_timeout(GENEROUS).expect("a call")
    }

    fn open(&mut self) {
        self.go_on = None;
    }
}

/// A map, with a reaper or without.
fn built<V: Send + Sync + 'static>(builder: ExpiringMapBuilder<u64, V>, reaper: bool) -> Map<V> {
    let map = if reaper { builder.build() } else { builder.build_manual() };
    map.unwrap()
}

fn manual(clock: &ManualClock) -> ExpiringMapBuilder<u64, u64> {
    ExpiringMap::builder().interval(MS).time_to_live(10 * MS).clock(clock.clone())
}

/// Runs `work` on a thread of its own, and fails if it does not come to its end.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (ends, ended) = channel();
    let worker = thread::spawn(move || ends.send(work()));
    let result = ended.recv_timeout(GENEROUS);
    let result = result.unwrap_or_else(|_| panic!("{what}: it hangs, or has panicked"));
    worker.join().unwrap().unwrap();
    result
}

#[test]
fn a_slow_listener_delays_no_expiry_and_no_removal() {
    for when_full in POLICIES {
        let clock = ManualClock::new();
        let (mut gate, builder) = Gate::at(manual(&clock));
        let map = builder.listener_thread(100, when_full).build_manual();
        let map = map.unwrap();
        map.insert(0, 0).unwrap();
        assert_eq!(map.remove(&0).as_deref(), Some(&0));
        assert_eq!(gate.next(), (0, RemovalCause::Removed));
        // The listener is in there, and stays.
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
        assert_eq!((metrics.listener_waiting, metrics.spilled), (25, 0));
        gate.open();
        drop(map);
        let told: Vec<Told> = gate.entered.try_iter().collect();
        let order = (1..=5)
            .flat_map(|key| [(key, RemovalCause::Removed), (key + 5, RemovalCause::Replaced)]);
        assert!(told[..10].iter().copied().eq(order), "{told:?}");
        let mut expired = told[10..].to_vec();
        expired.sort_unstable_by_key(|&(key, _)| key);
        assert!(expired.into_iter().eq((6..=20).map(|key| (key, RemovalCause::Expired))));
    }
}

#[test]
fn the_reaper_ends_what_is_due_beside_a_slow_listener() {
    let (mut gate, builder) = Gate::at(ExpiringMap::builder().interval(MS));
    let builder = builder.listener_thread(10, WhenFull::Spill);
    let map = builder.build().unwrap();
    for key in 0..50_u64 {
        map.insert_with_lifetime(key, key, 2 * MS).unwrap();
    }
    gate.next();
    wait_for("all to be ended", || map.metrics().total.expired == 50);
    assert!(map.is_empty());
    gate.open();
    map.shutdown();
    let metrics = map.metrics();
    assert_eq!((metrics.listener_waiting, metrics.undelivered), (0, 0));
    assert_eq!(1 + gate.entered.try_iter().count(), 50);
}

/// Threads insert, replace and remove beside a reaper. Each value is delivered once, with one cause.
#[test]
fn every_end_is_delivered_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = if cfg!(miri) { 20 } else { 5_000 };
    for (length, when_full) in
        [(1, WhenFull::Wait), (1, WhenFull::Spill), (100, WhenFull::Wait), (100, WhenFull::Spill)]
    {
        let told = Arc::new(Mutex::new(BTreeMap::new()));
        let tells = told.clone();
        let map = ExpiringMap::builder()
            .interval(MS)
            .time_to_live(2 * MS)
            .removal_listener(move |key: &u64, value: &Arc<u64>, cause| {
                assert_eq!(*key, **value % 8);
                let before = tells.lock().unwrap().insert(**value, cause);
                assert_eq!(before, None, "{value} {cause}");
            })
            .listener_thread(length, when_full)
            .build()
            .unwrap();
        let values: Vec<Arc<u64>> = (0..THREADS * EACH).map(Arc::new).collect();
        let returned = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (map, values, returned) = (&map, &values, &returned);
                scope.spawn(move || {
                    let mine = (0..EACH).map(|n| n * THREADS + thread);
                    for value in mine {
                        let key = value % 8;
                        let fresh = values[value as usize].clone();
                        let ended = match value / THREADS % 3 {
                            0 => map.upsert(key, |_| (fresh.clone(), None)),
                            _ => map.insert(key, fresh),
                        };
                        let removed = (value % 5 == 0).then(|| map.remove(&key)).flatten();
                        let ended = ended.unwrap().map(|ended| (ended, RemovalCause::Replaced));
                        let removed = removed.map(|ended| (ended, RemovalCause::Removed));
                        for (ended, cause) in ended.into_iter().chain(removed) {
                            let number = **ended.value();
                            // Taken out, if the listener has seen it, or only dropped.
                            if value % 2 == 0 {
                                drop(ended.try_into_value());
                            }
                            assert!(returned.lock().unwrap().insert(number, cause).is_none());
                        }
                    }
                });
            }
        });
        map.shutdown();
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert!(told.keys().copied().eq(0..THREADS * EACH), "{when_full:?}");
        for (value, cause) in returned.into_inner().unwrap() {
            assert_eq!(told[&value], cause);
        }
        let metrics = map.metrics();
        let counts = (metrics.listener_waiting, metrics.undelivered);
        assert_eq!((counts, metrics.listener_panics), ((0, 0), 0));
        drop(map);
        // The store has dropped each value once: these are all that there are.
        for value in values {
            assert_eq!(Arc::strong_count(&value), 1, "{value}");
        }
    }
}

#[test]
fn what_has_no_room_is_dropped_and_counted() {
    let clock = ManualClock::new();
    let (mut gate, builder) = Gate::at(ExpiringMap::builder().clock(clock));
    let builder = builder.listener_thread(2, WhenFull::Drop);
    let map: Map<Arc<u64>> = builder.build_manual().unwrap();
    let value = Arc::new(0);
    let ends = |key| {
        map.insert(key, value.clone()).unwrap();
        drop(map.remove(&key));
    };
    ends(0);
    assert_eq!(gate.next(), (0, RemovalCause::Removed));
    (1..=9).for_each(ends);
    let metrics = map.metrics();
    assert_eq!((metrics.listener_waiting, metrics.undelivered), (2, 7));
    // The dropped ones wait for nothing more: the store drops their values.
    assert!(map.flush(GENEROUS));
    assert_eq!(Arc::strong_count(&value), 1 + 3);
    gate.open();
    map.shutdown();
    let told: Vec<u64> = gate.entered.try_iter().map(|(key, _)| key).collect();
    assert_eq!((told, map.metrics().undelivered), (vec![1, 2], 7));
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn what_spills_is_counted_and_delivered() {
    let (mut gate, builder) = Gate::at(ExpiringMap::builder());
    let builder = builder.listener_thread(2, WhenFull::Spill);
    let map: Map<u64> = builder.build_manual().unwrap();
    let ends = |key| {
        map.insert(key, key).unwrap();
        map.remove(&key);
    };
    ends(0);
    gate.next();
    (1..=9).for_each(ends);
    let metrics = map.metrics();
    assert_eq!((metrics.listener_waiting, metrics.spilled), (9, 7));
    gate.open();
    map.shutdown();
    let mut told: Vec<u64> = gate.entered.try_iter().map(|(key, _)| key).collect();
    told.sort_unstable();
    assert!(told.into_iter().eq(1..=9));
    let metrics = map.metrics();
    assert_eq!((metrics.listener_waiting, metrics.spilled), (0, 7));
}

#[test]
fn a_thread_waits_for_room_until_there_is_some_or_a_shutdown() {
    for shuts_down in [false, true] {
        let (mut gate, builder) = Gate::at(ExpiringMap::builder());
        let builder = builder.listener_thread(1, WhenFull::Wait);
        let map: Arc<Map<u64>> = Arc::new(builder.build_manual().unwrap());
        for key in 0..3 {
            map.insert(key, key).unwrap();
        }
        map.remove(&0);
        gate.next();
        map.remove(&1); // the one place
        let waiting = map.clone();
        let waits = thread::spawn(move || waiting.remove(&2).map(|ended| *ended));
        wait_for("the removal", || !map.contains_key(&2));
        assert_eq!(map.metrics().spilled, 0);
        let shutdown = shuts_down.then(|| {
            let map = map.clone();
            thread::spawn(move || map.shutdown())
        });
        if shuts_down {
            // The listener has not gone on: nothing waits for room during a shutdown.
            assert_eq!(waits.join().unwrap(), Some(2));
            gate.open();
        } else {
            gate.open();
            assert_eq!(waits.join().unwrap(), Some(2));
        }
        if let Some(shutdown) = shutdown {
            shutdown.join().unwrap();
        }
        map.shutdown();
        let mut told: Vec<u64> = gate.entered.try_iter().map(|(key, _)| key).collect();
        told.sort_unstable();
        assert_eq!(told, [1, 2]);
        assert_eq!(map.metrics().spilled, u64::from(shuts_down));
    }
}

/// A value that a call has returned is the listener's as well: the last of the two to let go frees it.
#[test]
fn a_replacement_returns_what_the_listener_still_sees() {
    let live = Arc::new(AtomicU64::new(0));
    struct Counted(u64, Arc<AtomicU64>);
    impl Counted {
        fn new(number: u64, live: &Arc<AtomicU64>) -> Self {
            live.fetch_add(1, Ordering::SeqCst);
            Counted(number, live.clone())
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (mut gate, builder) = Gate::at(ExpiringMap::builder());
    let builder = builder.listener_thread(10, WhenFull::Wait);
    let map = builder.build_manual().unwrap();
    map.insert(1, Counted::new(1, &live)).unwrap();
    map.insert(2, Counted::new(2, &live)).unwrap();

    // The caller keeps it for longer.
    let old = map.insert(1, Counted::new(3, &live)).unwrap().unwrap();
    assert_eq!((gate.next(), old.0), ((1, RemovalCause::Replaced), 1));
    let Err(mut old) = old.try_into_value() else {
        panic!("the listener is looking at it");
    };
    // The listener keeps it for longer.
    drop(map.remove(&2).unwrap());
    assert!(map.flush(GENEROUS));
    assert_eq!(live.load(Ordering::SeqCst), 3);

    gate.open();
    assert_eq!(gate.next(), (2, RemovalCause::Removed));
    wait_for("the listener to let go", || {
        assert!(map.flush(GENEROUS));
        live.load(Ordering::SeqCst) == 2
    });
    let taken = loop {
        old = match old.try_into_value() {
            Ok(value) => break value,
            Err(old) => old,
        };
    };
    assert_eq!(taken.0, 1);
    drop(taken);
    assert_eq!(live.load(Ordering::SeqCst), 1);
    map.shutdown();
    assert_eq!(live.load(Ordering::SeqCst), 0);
    assert_eq!(gate.next(), (1, RemovalCause::Closed));
}

#[test]
fn a_listener_that_panics_is_called_for_the_next_end() {
    let map = ExpiringMap::builder()
        .removal_listener(|_: &u64, _: &u64, _| panic!("a listener's own"))
        .listener_thread(1, WhenFull::Wait)
        .build()
        .unwrap();
    for key in 0..10 {
        map.insert(key, key).unwrap();
        assert_eq!(map.remove(&key).as_deref(), Some(&key));
    }
    map.insert(10, 10).unwrap();
    map.shutdown();
    assert_eq!(map.metrics().listener_panics, 11);
    assert_eq!(map.metrics().listener_waiting, 0);
}

/// What the listener ends finds a full channel: the listener thread does not wait for itself.
#[test]
fn a_listener_may_end_entries_of_a_full_map() {
    for when_full in POLICIES {
        let told = Arc::new(AtomicU64::new(0));
        let tells = told.clone();
        let place: Arc<OnceLock<Arc<Map<u64>>>> = Arc::default();
        let here = place.clone();
        let map = ExpiringMap::builder()
            .removal_listener(move |key: &u64, _: &u64, _| {
                tells.fetch_add(1, Ordering::SeqCst);
                if *key == 0 {
                    for other in 1..=5 {
                        here.get().expect("it is there").remove(&other);
                    }
                }
            })
            .listener_thread(1, when_full)
            .build_manual()
            .unwrap();
        let map = Arc::new(map);
        place.set(map.clone()).unwrap();
        for key in 0..=5 {
            map.insert(key, key).unwrap();
        }
        drop(map.remove(&0));
        wait_for("all to be removed", || map.is_empty());
        let shut = map.clone();
        in_time("the shutdown", move || shut.shutdown());
        let metrics = map.metrics();
        let told = told.load(Ordering::SeqCst);
        let expected = match when_full {
            WhenFull::Drop => (2, 0, 4),
            _ => (6, 4, 0),
        };
        assert_eq!((told, metrics.spilled, metrics.undelivered), expected);
    }
}

/// A map that its own listener drops, or shuts down: the listener thread waits for neither itself
/// nor the reaper, and delivers what is left.
#[test]
fn a_listener_may_drop_its_map() {
    for when_full in [WhenFull::Wait, WhenFull::Spill] {
        for (reaper, drops) in [(false, false), (false, true), (true, false), (true, true)] {
            let what = format!("{when_full:?}, reaper {reaper}, drops {drops}");
            let (tells, told) = channel();
            let place: Arc<Mutex<Option<Arc<Map<u64>>>>> = Arc::default();
            let here = place.clone();
            let builder = ExpiringMap::builder()
                .removal_listener(move |key: &u64, _: &u64, cause| {
                    // The lock is not held while the map is dropped.
                    let map = here.lock().unwrap().take();
                    if let Some(map) = map {
                        if !drops {
                            map.shutdown();
                        }
                        drop(map);
                    }
                    tells.send((*key, cause)).unwrap();
                })
                .listener_thread(1, when_full);
            let map = Arc::new(built(builder, reaper));
            for key in 0..10 {
                map.insert(key, key).unwrap();
            }
            *place.lock().unwrap() = Some(map.clone());
            let weak = Arc::downgrade(&map);
            let begins = move || drop(map.remove(&0));
            in_time(&what, begins);
            // The channel ends when the store, and with it the listener, has been dropped.
            let mut all: Vec<Told> = Vec::new();
            loop {
                match told.recv_timeout(GENEROUS) {
                    Ok(one) => all.push(one),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                    Err(error) => panic!("{what}: {error} after {all:?}"),
                }
            }
            all.sort_unstable_by_key(|&(key, _)| key);
            let closed = (1..10).map(|key| (key, RemovalCause::Closed));
            let expected = std::iter::once((0, RemovalCause::Removed)).chain(closed);
            assert!(all.iter().copied().eq(expected), "{what}: {all:?}");
            assert!(weak.upgrade().is_none());
        }
    }
}

/// Two maps whose listeners drop each other: no listener thread waits for another one.
#[test]
fn two_listeners_may_drop_each_others_maps() {
    type Place = Arc<Mutex<Option<Map<u64>>>>;
    for reapers in [false, true] {
        let (first, second) = (Place::default(), Place::default());
        let both = Arc::new(std::sync::Barrier::new(2));
        let (ends, ended) = channel::<()>();
        let build = |other: &Place| {
            let (other, both, ends) = (other.clone(), both.clone(), ends.clone());
            let builder = ExpiringMap::builder()
                .removal_listener(move |_: &u64, _: &u64, cause| {
                    let _until_dropped = &ends;
                    if cause == RemovalCause::Removed {
                        both.wait();
                        let other = other.lock().unwrap().take();
                        drop(other);
                    }
                })
                .listener_thread(10, WhenFull::Wait);
            let map = if reapers { builder.build() } else { builder.build_manual() };
            let map = map.unwrap();
            map.insert(1, 1).unwrap();
            map.insert(2, 2).unwrap();
            map
        };
        let (one, two) = (build(&second), build(&first));
        drop(ends);
        // Each listener waits in its first call until both maps are there.
        let mut places = (first.lock().unwrap(), second.lock().unwrap());
        drop(one.remove(&1));
        drop(two.remove(&1));
        *places.0 = Some(one);
        *places.1 = Some(two);
        drop(places);
        let gone = ended.recv_timeout(GENEROUS);
        assert_eq!(gone, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}

#[test]
fn a_shutdown_delivers_all_that_was_queued() {
    for when_full in [WhenFull::Wait, WhenFull::Spill] {
        for reaper in [false, true] {
            let (mut gate, builder) = Gate::at(ExpiringMap::builder());
            let builder = builder.listener_thread(3, when_full);
            let map: Arc<Map<u64>> = Arc::new(built(builder, reaper));
            for key in 0..100 {
                map.insert(key, key).unwrap();
            }
            drop(map.remove(&0));
            assert_eq!(gate.next(), (0, RemovalCause::Removed));
            let shut = map.clone();
            let shutdown = thread::spawn(move || shut.shutdown());
            wait_for("the entries to end", || map.metrics().total.closed == 99);
            assert!(!shutdown.is_finished(), "the listener is in its first call");
            gate.open();
            shutdown.join().unwrap();
            let mut told: Vec<Told> = gate.entered.try_iter().collect();
            told.sort_unstable_by_key(|&(key, _)| key);
            let closed = (1..100).map(|key| (key, RemovalCause::Closed));
            assert!(told.iter().copied().eq(closed), "{told:?}");
        }
    }
}

#[test]
fn each_of_two_shutdowns_waits_until_all_is_delivered() {
    for reaper in [false, true] {
        let (mut gate, builder) = Gate::at(ExpiringMap::builder());
        let builder = builder.listener_thread(3, WhenFull::Spill);
        let map: Arc<Map<u64>> = Arc::new(built(builder, reaper));
        for key in 0..10 {
            map.insert(key, key).unwrap();
        }
        drop(map.remove(&0));
        assert_eq!(gate.next(), (0, RemovalCause::Removed));
        let is_open = Arc::new(AtomicBool::new(false));
        let shutdown = || {
            let (map, is_open) = (map.clone(), is_open.clone());
            thread::spawn(move || {
                map.shutdown();
                assert!(is_open.load(Ordering::Acquire), "it has not waited");
            })
        };
        let first = shutdown();
        wait_for("the entries to end", || map.metrics().total.closed == 9);
        let second = shutdown();
        for _ in 0..1000 {
            thread::yield_now(); // a chance for it not to wait
        }
        is_open.store(true, Ordering::Release);
        gate.open();
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(gate.entered.try_iter().count(), 9);
    }
}

/// A poller waits for room at a shard. The listener's insertion has to drive that shard first, as
/// the clock has jumped by years.
#[test]
fn a_listener_may_insert_after_a_jump_of_the_clock_while_a_poller_waits_for_room() {
    let clock = ManualClock::new();
    let place: Arc<OnceLock<std::sync::Weak<Map<u64>>>> = Arc::default();
    let (enters, entered) = channel();
    let (go_on, goes_on) = channel();
    let (goes_on, here) = (Mutex::new(goes_on), place.clone());
    let map = manual(&clock)
        .shards(1)
        .removal_listener(move |key: &u64, _: &u64, _| {
            enters.send(*key).unwrap();
            if *key == 0 {
                goes_on.lock().unwrap().recv().unwrap();
                let map = here.get().unwrap().upgrade().unwrap();
                map.insert(1000, 1).unwrap();
            }
        })
        .listener_thread(1, WhenFull::Wait)
        .build_manual();
    let map = Arc::new(map.unwrap());
    place.set(Arc::downgrade(&map)).unwrap();
    for key in 0..5 {
        map.insert(key, key).unwrap();
    }
    drop(map.remove(&0));
    assert_eq!(entered.recv_timeout(GENEROUS), Ok(0));
    clock.advance(Duration::from_secs(3600 * 24 * 365 * 10));
    let polled = map.clone();
    let poller = thread::spawn(move || while polled.poll(1000).more {});
    // One end is in the channel, and the poller waits with the next one.
    wait_for("two to expire", || map.metrics().total.expired == 2);
    go_on.send(()).unwrap();
    for _ in 1..5 {
        assert!(entered.recv_timeout(GENEROUS).is_ok(), "they wait for each other");
    }
    poller.join().unwrap();
}

/// A poller drops a value whose `Drop` removes entries. It waits for no room in the channel, though the
/// listener is stuck, and a flush in the listener waits for no poller.
#[test]
fn a_drop_and_a_listener_do_not_wait() {
    struct Removes(u64, Arc<OnceLock<std::sync::Weak<Map<Removes>>>>);
    impl Drop for Removes {
        fn drop(&mut self) {
            if self.0 == 0 {
                let map = self.1.get().and_then(std::sync::Weak::upgrade);
                let map = map.expect("it is there");
                (10..20).for_each(|key| drop(map.remove(&key)));
            }
        }
    }
    let place = Arc::new(OnceLock::new());
    let (enters, entered) = channel();
    let (go_on, goes_on) = channel();
    let goes_on = Mutex::new(goes_on);
    let here: Arc<OnceLock<std::sync::Weak<Map<Removes>>>> = place.clone();
    let map = ExpiringMap::builder()
        .removal_listener(move |key: &u64, _: &Removes, _| {
            if *key == 1 {
                enters.send(()).unwrap();
                goes_on.lock().unwrap().recv().unwrap();
                let map = here.get().unwrap().upgrade().unwrap();
                map.flush(Duration::MAX);
                enters.send(()).unwrap();
            }
        })
        .listener_thread(1, WhenFull::Wait)
        .build_manual();
    let map = Arc::new(map.unwrap());
    place.set(Arc::downgrade(&map)).unwrap();
    for key in 0..20 {
        let value = Removes(key, place.clone());
        assert!(map.insert(key, value).unwrap().is_none());
    }
    drop(map.remove(&0));
    wait_for("the first end", || map.metrics().listener_waiting == 0);
    drop(map.remove(&1));
    assert_eq!(entered.recv_timeout(GENEROUS), Ok(()));
    wait_for("ten to be removed in a drop", || {
        map.poll(1000);
        map.metrics().total.removed == 12
    });
    go_on.send(()).unwrap();
    assert_eq!(entered.recv_timeout(GENEROUS), Ok(()));
}

/// The channels of two maps are full, and each map's listener removes from the other map.
#[test]
fn two_listener_threads_do_not_wait_for_each_others_room() {
    let (told, ends) = channel();
    let maps: Arc<[OnceLock<Map<u64>>; 2]> = Arc::default();
    let meet = Arc::new(Barrier::new(2));
    for at in [0, 1] {
        let (maps, told, meet) = (maps.clone(), told.clone(), meet.clone());
        let other = maps.clone();
        let listener = move |key: &u64, _: &u64, _| {
            if *key == 0 {
                meet.wait();
                // Both listeners are in here: no thread takes from either channel.
                for key in 10..20 {
                    assert!(other[1 - at].get().unwrap().remove(&key).is_some());
                }
            }
            told.send((at, *key)).unwrap();
        };
        let builder = ExpiringMap::builder().removal_listener(listener);
        let builder = builder.listener_thread(1, WhenFull::Wait);
        let map = maps[at].get_or_init(|| builder.build_manual().unwrap());
        for key in 0..20 {
            map.insert(key, key).unwrap();
        }
    }
    for map in maps.iter() {
        assert!(map.get().unwrap().remove(&0).is_some());
    }
    for _ in 0..22 {
        assert!(ends.recv_timeout(GENEROUS).is_ok(), "they wait for each other");
    }
}

#[cfg(feature = "async")]
#[test]
fn a_shutdown_as_a_future_ends_when_all_has_been_delivered() {
    for reaper in [false, true] {
        let (mut gate, builder) = Gate::at(ExpiringMap::builder());
        let builder = builder.listener_thread(3, WhenFull::Wait);
        let map: Map<u64> = built(builder, reaper);
        for key in 0..100 {
            map.insert(key, key).unwrap();
        }
        drop(map.remove(&0));
        gate.next();
        let task = support::Task::new();
        let mut shutdown = Box::pin(map.shutdown_async());
        assert!(task.poll(&mut shutdown).is_pending());
        gate.open();
        task.block_on(shutdown);
        assert_eq!(gate.entered.try_iter().count(), 99);
        assert_eq!(map.metrics().listener_waiting, 0);
    }
}

/// A map without entries, or without a listener, is built and shut down all the same.
#[test]
fn a_thread_without_work_ends() {
    for when_full in POLICIES {
        let map = ExpiringMap::<u64, u64>::builder().listener_thread(1, when_full).build();
        map.unwrap().shutdown();
        let map = ExpiringMap::<u64, u64>::builder()
            .removal_listener(|_, _, _| unreachable!("nothing ends"))
            .listener_thread(1, when_full)
            .build();
        in_time("the drop", move || drop(map.unwrap()));
    }
}

#[test]
fn absurd_lengths_are_refused() {
    let build = |length| {
        let builder = ExpiringMap::<u64, u64>::builder().removal_listener(|_, _, _| ());
        let builder = builder.listener_thread(length, WhenFull::Wait);
        builder.build_manual().err()
    };
    assert_eq!(build(0), Some(BuildError::ZeroChannel));
    let length = usize::MAX;
    assert_eq!(build(length), Some(BuildError::ChannelTooLong { length }));
    assert_eq!(build(1), None);
}
