//! When, where and how often keyed stores drop keys and values.
//!
//! A store's own driver drops them: its reaper, or a thread that calls `poll` or `flush`. No other
//! call runs a value's `Drop`, and what is slow, stuck or pinned in one store delays no other
//! store.

use crate::rig;
use crate::support::{panics, wait_for, within, Same, GENEROUS, HOUR, MS, SECOND};
use expiry::{ExpiringMap, ExpiryQueue, ManualClock, RemovalCause};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{mpsc, Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

pub mod census;
use crate::support::clocks;
mod once;

use census::{Census, Counted, OnDrop};

/// A door that is shut until the test opens it, or ends.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<bool>, std::sync::Condvar)>);

impl Door {
    fn open(&self) {
        *self.0 .0.lock().unwrap() = true;
        self.0 .1.notify_all();
    }

    fn pass(&self) {
        let open = self.0 .0.lock().unwrap();
        drop(self.0 .1.wait_while(open, |open| !*open).unwrap());
    }
}

/// Opens the door when the test ends, be it by a panic.
struct Opens(Door);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

// ---- fault 1: where users' `Drop` runs ----

/// Counts the threads that have one and still run.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(running: &Arc<AtomicUsize>) -> Self {
        running.fetch_add(1, SeqCst);
        Running(running.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

thread_local!(static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) });

/// Reapers dropped maps, and with these joined other reapers, which were joining them.
#[test]
fn maps_with_reapers_that_expire_together_do_not_join_each_other() {
    const MAPS: u64 = 200;
    within(|| {
        for _ in 0..2 {
            let (census, running) = (Census::new(), Arc::new(AtomicUsize::new(0)));
            let started = Arc::new(AtomicU64::new(0));
            let clock = ManualClock::new();
            let builder = ExpiringMap::builder().time_to_live(100 * MS).interval(100 * MS);
            let outer = builder.shards(4).clock(clocks::Moved(clock.clone())).build().unwrap();
            for key in 0..MAPS {
                let (running, started) = (running.clone(), started.clone());
                let first = AtomicBool::new(true);
                let inner = ExpiringMap::builder()
                    .interval(MS)
                    .shards(1)
                    // The reaper calls it: it counts the reaper's thread.
                    .removal_listener(move |_: &u64, _: &Counted, cause| {
                        if cause == RemovalCause::Expired && first.swap(false, SeqCst) {
                            started.fetch_add(1, SeqCst);
                            RUNNING.with_borrow_mut(|mine| *mine = Some(Running::begin(&running)));
                        }
                    })
                    .build()
                    .unwrap();
                inner.insert_for(0, Counted::new(&census), MS).unwrap();
                for later in 1..50 {
                    let time = later as u32 * 10 * MS;
                    inner.insert_for(later, Counted::new(&census), time).unwrap();
                }
                outer.insert(key, OnDrop::new(|| drop(inner))).unwrap();
            }
            wait_for("all reapers run", || started.load(SeqCst) == MAPS);
            // All are due at one tick. The outer reaper sees it when it wakes up.
            clock.advance(SECOND);
            wait_for("all is dropped", || census.left() == 0);
            wait_for("the reapers end", || running.load(SeqCst) == 0);
            drop(outer);
        }
    });
}

thread_local!(static HOLDS_LOCK: Cell<bool> = const { Cell::new(false) });

/// A thread that held the lock, and asked another map for something, dropped such a value there: it
/// waited for itself.
#[test]
fn a_value_is_not_dropped_in_a_call_of_a_thread_that_holds_a_lock() {
    for (reaper, capacity) in [(false, 10_000), (true, 10_000), (false, 48), (true, 48)] {
        let (census, under_lock) = (Census::new(), Arc::new(AtomicUsize::new(0)));
        // Its `Drop` would take the lock: it notes whether the thread that drops it holds that.
        let value = || {
            let (under_lock, counted) = (under_lock.clone(), Counted::new(&census));
            OnDrop::new(move || {
                under_lock.fetch_add(HOLDS_LOCK.get().into(), SeqCst);
                drop(counted);
            })
        };
        let builder =
            || ExpiringMap::builder().time_to_live(MS).interval(MS).capacity(capacity).shards(2);
        let first = if reaper { builder().build() } else { builder().build_manual() };
        let first = first.unwrap();
        let second = ExpiringMap::builder().build().unwrap();
        second.insert(1_u64, 1_u64).unwrap();
        let (lock, done) = (Mutex::new(()), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = 0_u64;
                while !done.load(SeqCst) {
                    let held = lock.lock().unwrap();
                    HOLDS_LOCK.set(true);
                    // What the calls return is kept until the lock is given back.
                    let found = second.get(&1);
                    let replaced = second.insert(2, turn).unwrap();
                    let there = first.get(&(turn % 64));
                    let mine = first.insert(1000 + turn % 2, value());
                    HOLDS_LOCK.set(false);
                    drop(held);
                    drop((found, replaced, there, mine));
                    turn += 1;
                }
            });
            scope.spawn(|| {
                for turn in 0..30_000 {
                    // Or it is full.
                    drop(first.insert(turn % 64, value()));
                    if turn % 3 == 0 {
                        first.remove(&(turn % 64));
                    }
                }
                done.store(true, SeqCst);
            });
        });
        assert_eq!(under_lock.load(SeqCst), 0, "{reaper}, {capacity}");
        wait_for("what has expired is dropped", || {
            first.poll(usize::MAX);
            census.left() == 0
        });
    }
}

/// A value that waits at a door when it is dropped, and says that it is there.
fn stuck_value(door: &Door, entered: &Arc<AtomicBool>) -> OnDrop {
    let (door, entered) = (door.clone(), entered.clone());
    OnDrop::new(move || {
        entered.store(true, SeqCst);
        door.pass();
    })
}

/// One `Drop` that does not end held back the memory of every store in the process.
#[test]
fn a_drop_that_is_stuck_holds_back_no_other_store() {
    let (door, entered) = (Door::default(), Arc::new(AtomicBool::new(false)));
    let stuck = ExpiringMap::builder().interval(MS).build().unwrap();
    // Dropped before the map, which waits for its reaper.
    let _opens = Opens(door.clone());
    stuck.insert(1_u64, stuck_value(&door, &entered)).unwrap();
    drop(stuck.remove(&1));
    // With the old code it is other calls that come to drop it, on a thread of theirs.
    let (clock, census) = (ManualClock::new(), Census::new());
    let map = ExpiringMap::builder().interval(MS).build().unwrap();
    let manual =
        ExpiringMap::builder().time_to_live(SECOND).clock(clock.clone()).build_manual().unwrap();
    let queue = ExpiryQueue::builder().interval(MS).build_manual().unwrap();
    wait_for("the stuck one is being dropped", || entered.load(SeqCst));
    for _ in 0..20 {
        for key in 0..500_u64 {
            map.insert(key % 100, Counted::new(&census)).unwrap();
            manual.insert(key % 100, Counted::new(&census)).unwrap();
            queue.update(Counted::of(&census, key), MS).unwrap();
            if key % 3 == 0 {
                map.remove(&(key % 100));
            }
        }
        map.clear();
        clock.advance(2 * SECOND);
        wait_for("the others are dropped", || {
            manual.poll(usize::MAX);
            drop(queue.poll());
            census.left() == 0
        });
    }
    assert_eq!((map.metrics().unreclaimed, manual.metrics().unreclaimed), (0, 0));
    // As is what its own map lends.
    assert!(stuck.get(&1).is_none());
}

// ---- fault 3: listeners run unpinned ----

type Listened = ExpiringMap<u64, Counted>;

/// A map, its clock, what lets the listener go on that is stuck at the first such end, and whether
/// it has come there.
fn stuck_at(end: fn(u64, RemovalCause) -> bool) -> (Listened, ManualClock, Opens, Arc<AtomicBool>) {
    let (door, entered) = (Door::default(), Arc::new(AtomicBool::new(false)));
    let (waits, enters) = (door.clone(), entered.clone());
    let (map, clock) = rig::map(|map| {
        map.shards(1).removal_listener(move |&key: &u64, _: &Counted, cause| {
            if end(key, cause) && !enters.swap(true, SeqCst) {
                waits.pass();
            }
        })
    });
    (map, clock, Opens(door), entered)
}

/// A call, of the map and for key 0, whose listener is stuck, holds back nothing that other threads
/// end in the same map.
fn listener_holds_nothing_back(what: &str, call: fn(&Listened)) {
    let census = Census::new();
    let (map, clock, opens, entered) = stuck_at(|key, _| key == 0);
    map.insert_for(0, Counted::new(&census), 10 * SECOND).unwrap();
    if what == "expired" {
        clock.advance(20 * SECOND);
    }
    let theirs = map.clone();
    let caller = thread::spawn(move || call(&theirs));
    wait_for("the listener is called", || entered.load(SeqCst));
    let before = census.left();
    for key in 1..=1000 {
        map.insert(key, Counted::new(&census)).unwrap();
        map.insert(key, Counted::new(&census)).unwrap();
        map.remove(&key);
    }
    assert!(census.left() <= before + 2000);
    // What the listener's own call has ended is lent to the listener.
    wait_for(what, || {
        map.flush(Duration::ZERO);
        map.metrics().unreclaimed == 0 && census.left() <= before
    });
    drop(opens);
    caller.join().unwrap();
    assert!(map.flush(GENEROUS));
    drop(map);
    assert_eq!(census.left(), 0, "{what}");
}

#[test]
fn a_listener_that_is_stuck_holds_back_nothing() {
    use expiry::expiring_map::Entry;
    fn value() -> Counted {
        Counted::new(&Census::new())
    }
    listener_holds_nothing_back("remove", |map| drop(map.remove(&0)));
    listener_holds_nothing_back("remove_if", |map| drop(map.remove_if(&0, |_, _| true)));
    listener_holds_nothing_back("clear", |map| map.clear());
    listener_holds_nothing_back("retain", |map| map.retain(|_, _| false));
    listener_holds_nothing_back("insert", |map| drop(map.insert(0, value()).unwrap()));
    listener_holds_nothing_back("entry's remove", |map| match map.entry(0) {
        Entry::Occupied(entry) => drop(entry.remove()),
        Entry::Vacant(_) => unreachable!("it is there"),
    });
    listener_holds_nothing_back("upsert", |map| map.upsert(0, |_| (value(), ())).unwrap());
    listener_holds_nothing_back("entry's insert", |map| match map.entry(0) {
        Entry::Occupied(entry) => drop(entry.insert(value()).unwrap()),
        Entry::Vacant(_) => unreachable!("it is there"),
    });
    listener_holds_nothing_back("expired", |map| while map.poll(1000).more {});
    listener_holds_nothing_back("expired", |map| drop(map.remove(&0)));
    listener_holds_nothing_back("expired", |map| drop(map.insert(0, value()).unwrap()));
    listener_holds_nothing_back("expired", |map| drop(map.entry(0).or_insert(value()).unwrap()));
    listener_holds_nothing_back("expired", |map| map.upsert(0, |_| (value(), ())).unwrap());
}

/// A shutdown overtakes an insertion, which ends its own entry and calls the listener for it: not
/// pinned, and what the insertion returns is still there.
#[test]
fn the_listener_of_an_insertion_that_a_shutdown_overtakes_runs_unpinned() {
    let mut overtaken = [0; 2];
    for (call, before) in (0..2).flat_map(|call| (0..6).map(move |before| (call, before))) {
        let (census, compared) = (Census::new(), clocks::Delayed::default());
        let flushed = Arc::new(AtomicUsize::new(0));
        let (caller, compares) = (thread::current().id(), compared.clone());
        let _asks = Counted::when_asked(move |how, _| {
            if how == "eq" {
                expiry::Clock::now(&compares);
            }
        });
        let map = Arc::new_cyclic(|map: &Weak<ExpiringMap<Counted, Counted, Same>>| {
            let (map, flushes) = (map.clone(), flushed.clone());
            let listener = move |_: &Counted, value: &Counted, cause| {
                if (value.id(), cause, thread::current().id()) == (2, RemovalCause::Closed, caller)
                {
                    let map = map.upgrade().unwrap();
                    assert!(map.metrics().unreclaimed > 0, "there is something to wait for");
                    assert!(map.flush(GENEROUS), "the caller is not pinned");
                    flushes.fetch_add(1, SeqCst);
                }
            };
            let builder = ExpiringMap::builder().shards(1).hasher(Same);
            builder.removal_listener(listener).build_manual().unwrap()
        });
        let key = |id| Counted::of(&census, id);
        map.insert(key(1), Counted::of(&census, 1)).unwrap();
        let closes = map.clone();
        // The caller is pinned: the shutdown leaves what it has ended to others.
        compared.after(before, move || closes.shutdown());
        let value = || Counted::of(&census, 2);
        let lent = match call {
            0 => map.entry(key(2)).or_insert(value()).ok(),
            _ => {
                drop(map.insert(key(2), value()));
                None
            }
        };
        overtaken[call] += flushed.load(SeqCst);
        if let Some(lent) = &lent {
            map.flush(Duration::ZERO);
            assert_eq!((lent.id(), lent.is_dropped()), (2, false));
        }
        drop(lent);
        // If the call has compared fewer keys, the shutdown comes now.
        while !compared.has_been() {
            expiry::Clock::now(&compared);
        }
        assert_eq!(map.metrics().listener_panics, 0, "{call}, {before}");
        drop(map);
        assert_eq!(census.left(), 0, "{call}, {before}");
    }
    assert!(overtaken.iter().all(|times| *times > 0), "{overtaken:?}");
}

/// A shutdown ends entry after entry: other threads' removals meanwhile are reclaimed.
#[test]
fn a_listener_of_a_shutdown_that_is_stuck_holds_back_nothing() {
    let census = Census::new();
    let (map, _, opens, entered) = stuck_at(|_, cause| cause == RemovalCause::Closed);
    for key in 0..1000 {
        map.insert(key, Counted::new(&census)).unwrap();
    }
    let theirs = map.clone();
    let caller = thread::spawn(move || theirs.shutdown());
    wait_for("the listener is called", || entered.load(SeqCst));
    let removed = (0..1000).filter(|key| map.remove(key).is_some()).count();
    assert!(removed >= 900);
    wait_for("what was removed is dropped", || {
        map.flush(Duration::ZERO);
        census.left() <= 1000 - removed as u64
    });
    drop(opens);
    caller.join().unwrap();
    drop(map);
    assert_eq!(census.left(), 0);
}

// ---- fault 4: panics of `Drop` on the way of a reference ----

/// Panics when it is dropped, if it is armed.
fn bad(id: u64, armed: bool, census: &Arc<Census>) -> Counted {
    if armed {
        return Counted::armed(census, id);
    }
    Counted::of(census, id)
}

/// A lifetime whose `Drop` panics.
struct BadLifetime(#[allow(dead_code)] Counted);

impl From<BadLifetime> for expiry::Lifetimes {
    fn from(_: BadLifetime) -> Self {
        expiry::Lifetimes::new()
    }
}

type Bads = ExpiringMap<Counted, Counted>;

/// Runs `act`, which panics, and then ends more entries in the same map, which must be dropped all
/// the same.
fn still_reclaims(what: &str, act: &dyn Fn(&Bads, &Arc<Census>)) {
    let census = Census::new();
    let map = ExpiringMap::builder().build_manual().unwrap();
    let good = |key| Counted::of(&census, key);
    map.insert(good(0), good(0)).unwrap();
    assert!(panics(|| act(&map, &census)), "{what}");
    for key in 1..200 {
        map.insert(good(key), good(key)).unwrap();
    }
    map.clear();
    assert!(map.flush(GENEROUS), "{what}");
    assert_eq!((census.left(), map.metrics().unreclaimed), (0, 0), "{what}");
}

#[test]
fn a_drop_that_panics_beside_a_reference_leaves_no_pin() {
    use expiry::expiring_map::Entry;
    still_reclaims("or_insert, occupied", &|map, census| {
        let value = Counted::armed(census, 0);
        drop(map.entry(Counted::of(census, 0)).or_insert(value));
    });
    still_reclaims("or_insert_with, occupied", &|map, census| {
        let value = Counted::armed(census, 0);
        drop(map.entry(Counted::of(census, 0)).or_insert_with(|| value));
    });
    still_reclaims("into_ref", &|map, census| {
        let Entry::Occupied(entry) = map.entry(Counted::armed(census, 0)) else {
            unreachable!("it is there")
        };
        drop(entry.into_ref());
    });
    still_reclaims("or_insert, the key", &|map, census| {
        drop(map.entry(Counted::armed(census, 0)).or_insert(Counted::of(census, 0)));
    });
    // Another thread inserts between the look and the insertion: the value made here is the loser.
    for by_key in [false, true] {
        still_reclaims("or_insert_with, vacant", &|map, census| {
            let entry = map.entry(bad(1, by_key, census));
            assert!(matches!(entry, Entry::Vacant(_)));
            let there = || Counted::of(census, 1);
            map.insert(there(), there()).unwrap();
            drop(entry.or_insert_with(|| bad(1, !by_key, census)));
        });
    }
    still_reclaims("upsert, the closure", &|map, census| {
        let panics = |_: Option<&Counted>| -> (Counted, ()) { panic!("as it is meant to") };
        let _ = map.upsert(Counted::of(census, 0), panics);
    });
    // What the closures hold is dropped before the result is on its way out.
    for key in [0, 1] {
        still_reclaims("upsert, what the closure holds", &|map, census| {
            let held = Counted::armed(census, 9);
            let value = || Counted::of(census, key);
            let _ = map.upsert(value(), move |_| {
                let _ = &held;
                (value(), ())
            });
        });
    }
    still_reclaims("remove_if, what the closure holds", &|map, census| {
        let held = Counted::armed(census, 9);
        let zero = Counted::of(census, 0);
        drop(map.remove_if(&zero, move |_, _| {
            let _ = &held;
            true
        }));
    });
    still_reclaims("remove, the key", &|map, census| {
        let Entry::Occupied(entry) = map.entry(Counted::armed(census, 0)) else {
            unreachable!("it is there")
        };
        drop(entry.remove());
    });
    for key in [0, 1] {
        still_reclaims("or_insert_for, the lifetime", &|map, census| {
            let lifetime = BadLifetime(Counted::armed(census, 9));
            let value = || Counted::of(census, key);
            drop(map.entry(value()).or_insert_for(lifetime, value));
        });
    }
    for by_key in [false, true] {
        still_reclaims("get_or_insert_with, found", &|map, census| {
            let value = bad(9, !by_key, census);
            drop(map.get_or_insert_with(&bad(0, by_key, census), || value));
        });
        #[cfg(feature = "async")]
        still_reclaims("get_or_insert_async, found", &|map, census| {
            let value = bad(9, !by_key, census);
            let load = async { value };
            let key = bad(0, by_key, census);
            let load = map.get_or_insert_async(&key, load);
            drop(crate::support::Task::new().block_on(load));
        });
    }
    still_reclaims("insert, the key's Eq is not asked", &|map, census| {
        // Of two keys that are equal the map keeps the new one; the old one is the driver's to
        // drop.
        drop(map.insert(Counted::of(census, 0), Counted::of(census, 0)));
        panic!("as it is meant to");
    });
}

// ---- D9: how soon values are dropped, and on which thread ----

#[test]
fn a_flush_has_dropped_all_that_had_ended() {
    for reaper in [false, true] {
        let census = Census::new();
        let builder = ExpiringMap::builder().interval(SECOND);
        let map = if reaper { builder.build() } else { builder.build_manual() };
        let map = map.unwrap();
        for key in 0..5000_u64 {
            map.insert(key, Counted::new(&census)).unwrap();
            map.insert(key, Counted::new(&census)).unwrap();
        }
        assert!(map.flush(GENEROUS));
        assert_eq!((census.left(), map.metrics().unreclaimed), (5000, 0));
        let lent = map.get(&7).unwrap();
        map.clear();
        assert!(!map.flush(5 * MS), "a reader holds one");
        assert_eq!(census.left(), 5000);
        assert!(!lent.is_dropped());
        drop(lent);
        assert!(map.flush(GENEROUS));
        assert_eq!((census.left(), map.metrics().unreclaimed), (0, 0));
    }
}

/// Another thread's reader counts as well.
#[test]
fn a_flush_waits_for_other_threads_readers() {
    let census = Census::new();
    let map = ExpiringMap::builder().build_manual().unwrap();
    map.insert(1_u64, Counted::new(&census)).unwrap();
    let (ready, begun) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let map = &map;
        scope.spawn(move || {
            let lent = map.get(&1);
            ready.send(()).unwrap();
            let _ = end.recv();
            drop(lent);
        });
        begun.recv().unwrap();
        drop(map.remove(&1));
        assert!(!map.flush(5 * MS));
        assert_eq!(census.left(), 1);
        drop(ends);
        assert!(map.flush(GENEROUS));
        assert_eq!(census.left(), 0);
    });
}

/// What ends during a flush, and is dropped by it, does not stand for what another thread has yet
/// to drop.
#[test]
fn a_flush_does_not_take_what_ended_later_for_what_had_ended() {
    let (door, entered) = (Door::default(), Arc::new(AtomicBool::new(false)));
    let map = Arc::new(ExpiringMap::builder().build_manual().unwrap());
    let removes = |key: u64| {
        let map: Weak<ExpiringMap<u64, OnDrop>> = Arc::downgrade(&map);
        OnDrop::new(move || _ = map.upgrade().and_then(|map| map.remove(&key).map(drop)))
    };
    map.insert(0, stuck_value(&door, &entered)).unwrap();
    map.insert(1, removes(2)).unwrap();
    map.insert(2, removes(3)).unwrap();
    map.insert(3, OnDrop::NOTHING).unwrap();
    drop(map.remove(&0));
    let opens = Opens(door);
    let theirs = map.clone();
    let other = thread::spawn(move || theirs.flush(GENEROUS));
    wait_for("the other flush drops it", || entered.load(SeqCst));
    drop(map.remove(&1));
    assert!(!map.flush(50 * MS), "the other thread has not dropped it yet");
    drop(opens);
    assert!(other.join().unwrap());
    assert!(map.flush(GENEROUS));
    assert!(map.is_empty());
}

/// A value that calls its own map when it is dropped.
fn reenters(this: &Weak<ExpiringMap<u64, OnDrop>>, again: u64, census: &Arc<Census>) -> OnDrop {
    let (this, counted) = (this.clone(), Counted::new(census));
    OnDrop::new(move || {
        let census = counted.census();
        let Some(map) = this.upgrade() else { return };
        assert!(map.get(&0).is_some());
        if again > 0 {
            // What is replaced, and what is removed, is dropped later.
            drop(map.insert(1, reenters(&this, again - 1, census)));
            drop(map.remove(&1));
        }
        map.poll(100);
        map.flush(Duration::ZERO);
    })
}

#[test]
fn a_drop_may_call_its_own_map() {
    for reaper in [false, true] {
        within(move || {
            let (census, builder) = (Census::new(), ExpiringMap::builder().interval(MS));
            let map = if reaper { builder.build() } else { builder.build_manual() };
            let map = Arc::new(map.unwrap());
            let this = Arc::downgrade(&map);
            let value = |again| reenters(&this, again, &census);
            map.insert(0, value(0)).unwrap();
            for key in 2..50 {
                map.insert(key, value(key % 5)).unwrap();
                map.insert(key, value(3)).unwrap();
                drop(map.remove(&key));
            }
            wait_for("all but one are dropped", || {
                map.flush(Duration::ZERO);
                census.left() == 1
            });
            assert_eq!(map.metrics().drop_panics, 0);
            // A value has the last handle to the map for a moment, perhaps.
            drop(map);
            wait_for("the last one is dropped", || census.left() == 0);
        });
    }
}

/// A value that has the last handle to its own map is dropped by that map's reaper, which ends
/// then.
#[test]
fn a_map_may_go_with_one_of_its_own_values() {
    within(|| {
        for turn in 0..50 {
            let census = Census::new();
            let map = Arc::new(ExpiringMap::builder().interval(MS).build().unwrap());
            let owner = |map: Option<Arc<ExpiringMap<u64, OnDrop>>>| {
                let owned = (map, Counted::new(&census));
                OnDrop::new(move || drop(owned))
            };
            for key in 0..10 {
                map.insert(key, owner(None)).unwrap();
            }
            let time = if turn % 2 == 0 { MS } else { 100 * SECOND };
            map.insert_for(10, owner(Some(map.clone())), time).unwrap();
            if turn % 2 == 1 {
                drop(map.remove(&10));
            }
            drop(map);
            wait_for("all are dropped", || census.left() == 0);
        }
    });
}

// ---- threads that end ----

thread_local! {
    static KEPT: RefCell<Option<expiry::Ref<'static, u64, Counted>>> =
        const { RefCell::new(None) };
    static CALLS: RefCell<Option<Calls>> = const { RefCell::new(None) };
}

/// Calls the map when it is dropped, which is when its thread has ended.
struct Calls {
    map: &'static ExpiringMap<u64, Counted>,
    key: u64,
    census: Arc<Census>,
}

impl Drop for Calls {
    fn drop(&mut self) {
        let value = Counted::of(&self.census, self.key);
        self.map.insert(self.key, value).unwrap();
        assert_eq!(self.map.get(&self.key).unwrap().id(), self.key);
        assert!(self.map.remove(&self.key).is_some());
    }
}

/// A pin that outlives what else its thread has, and calls after that: threads that come later get
/// the thread's place, and its state must be whole.
#[test]
fn a_reference_may_outlive_its_thread() {
    within(|| {
        let census = Census::new();
        let map: &'static ExpiringMap<u64, Counted> =
            Box::leak(Box::new(ExpiringMap::builder().build_manual().unwrap()));
        map.insert(1, Counted::new(&census)).unwrap();
        for turn in 0..1000 {
            let theirs = census.clone();
            let begins = move |key| {
                if turn % 2 == 0 {
                    // Registered first, these are destroyed last.
                    KEPT.with_borrow(|_| ());
                    CALLS.with_borrow(|_| ());
                }
                let lent = map.get(&1).unwrap();
                KEPT.with_borrow_mut(|kept| *kept = Some(lent));
                if turn % 3 == 0 {
                    let census = theirs.clone();
                    let calls = Calls { map, key, census };
                    CALLS.with_borrow_mut(|mine| *mine = Some(calls));
                }
                drop(map.insert(2 + turn % 3, Counted::new(&theirs)).unwrap());
                drop(map.insert(1, Counted::new(&theirs)).unwrap());
            };
            let mine = begins.clone();
            let first = thread::spawn(move || mine(100));
            let second = thread::spawn(move || begins(101));
            // Meanwhile, and in their place.
            assert!(map.get(&1).is_some());
            first.join().unwrap();
            second.join().unwrap();
            let later = thread::spawn(move || {
                drop(map.insert(9, Counted::of(&Census::new(), turn)).unwrap());
                let lent = map.get(&9).unwrap();
                assert_eq!((lent.id(), lent.is_dropped()), (turn, false));
            });
            later.join().unwrap();
            if turn % 100 == 99 {
                assert!(map.flush(GENEROUS), "no pin is left");
            }
        }
        map.clear();
        assert!(map.flush(GENEROUS));
        assert_eq!(census.left(), 0);
    });
}

// ---- an idle process ----

/// A flush that gave up took the driver's order to come with it, while the reaper went to sleep.
#[test]
fn a_flush_that_gives_up_leaves_the_drop_to_the_reaper() {
    let census = Census::new();
    let map = ExpiringMap::builder().interval(MS / 10).build().unwrap();
    map.insert(1_u64, Counted::new(&census)).unwrap();
    for turn in 0..1200 {
        map.insert(2, Counted::new(&census)).unwrap();
        let kept = map.get(&1);
        drop(map.remove(&2));
        // Somewhere in this time the reaper comes, and goes to sleep.
        let begun = Instant::now();
        while begun.elapsed() < turn % 400 * Duration::from_nanos(500) {}
        assert!(!map.flush(Duration::ZERO), "a reference is kept");
        drop(kept);
        // Nothing comes after it.
        wait_for("the reaper drops it", || census.left() == 1);
    }
}

/// While a reference is kept, the reaper looks less and less often whether it is still kept.
#[test]
fn a_kept_reference_does_not_wake_the_reaper_each_tick() {
    const LOOKS: u64 = 40;
    let map = ExpiringMap::builder().interval(MS).build().unwrap();
    for key in 0..3_u64 {
        map.insert(key, key).unwrap();
    }
    let kept = map.get(&0);
    let rounds = || map.metrics().reaper_rounds;
    // The first one is in a batch, under a grace period, when the second one comes.
    for key in 1..3 {
        drop(map.remove(&key));
        let before = rounds();
        wait_for("the reaper has come", || rounds() > before);
    }
    let (before, began) = (rounds(), Instant::now());
    thread::sleep(500 * MS);
    let (looks, passed) = (rounds() - before, began.elapsed());
    // In the end it looks each tenth of a second.
    let most = LOOKS + passed.as_millis() as u64 / 50;
    assert!(looks < most, "{looks} rounds in {passed:?}");
    drop(kept);
    wait_for("both are free", || map.metrics().unreclaimed == 0);
}

// ---- a backlog ----

/// No thread drives the map, and values end all the time. Beyond a number of them the thread that
/// ends them drops them, but neither while it holds a reference nor inside a listener.
#[test]
fn what_waits_to_be_dropped_is_bounded() {
    const MANY: u64 = 50_000;
    let census = Census::new();
    let map = ExpiringMap::builder().build_manual().unwrap();
    let churn = || {
        for key in 0..MANY {
            map.insert(1 + key % 100, Counted::new(&census)).unwrap();
            drop(map.remove(&(1 + key % 100)));
        }
    };
    churn();
    assert!(census.left() < 10_000, "{} wait", census.left());
    map.insert(0, Counted::new(&census)).unwrap();
    let kept = map.get(&0);
    let before = census.left();
    churn();
    assert_eq!(census.left(), before + MANY);
    drop(kept);
    churn();
    assert!(census.left() < 10_000, "{} wait", census.left());
}

/// Ended values of a bounded map count against its bound, too: what has ended and is not dropped
/// weighs at most a quarter of it, and as much as goes between two looks.
#[test]
fn what_has_ended_in_a_bounded_map_is_a_share_of_the_bound() {
    type Map = ExpiringMap<u64, Counted>;
    let builder = || Map::builder().time_to_live(HOUR);
    let weighs = |bound, weight| builder().max_weight(bound, move |_, _| weight);
    let maps = [
        (64, weighs(64, 1)),
        (64, weighs(64_000, 1000)),
        (4000, weighs(4000, 1)),
        (64, builder().max_capacity(64)),
        (4000, builder().max_capacity(4000)),
        (1000, builder().capacity(1000)),
    ];
    for (bound, builder) in maps {
        let (census, map) = (Census::new(), builder.build_manual().unwrap());
        let most = Cell::new(0);
        let look = || most.set(most.get().max(census.left()));
        for key in 0..20_000 {
            drop(map.insert(key, Counted::new(&census)));
            look();
        }
        for _ in 0..20_000 {
            map.insert(0, Counted::new(&census)).ok();
            look();
        }
        for key in 1..20_000 {
            drop(map.insert(key, Counted::new(&census)));
            drop(map.remove(&key));
            look();
        }
        let most = most.get();
        assert!(most <= bound + bound / 4 + bound / 32 + 20, "{most} for {bound}");
    }
}

/// A map with a manual clock, and the milliseconds until all that has ended is dropped.
fn in_milliseconds() -> (ExpiringMap<u64, Counted>, impl Fn(&Census) -> u32) {
    let (map, clock) = rig::map(|map| map.interval(MS));
    let driven = map.clone();
    let count = move |census: &Census| {
        let passes = |_: &u32| {
            clock.advance(MS);
            driven.poll(usize::MAX);
            census.left() > 0
        };
        (0..5000).take_while(passes).count() as u32
    };
    (map, count)
}

#[test]
fn a_value_is_dropped_some_milliseconds_after_its_end() {
    let census = Census::new();
    let (map, milliseconds) = in_milliseconds();
    for key in 0..10 {
        map.insert(key, Counted::new(&census)).unwrap();
        drop(map.remove(&key));
        let taken = milliseconds(&census);
        assert!(taken <= 32, "{taken} ms");
    }
}

#[test]
fn values_are_dropped_soon_after_a_reader_has_gone() {
    let census = Census::new();
    let (map, milliseconds) = in_milliseconds();
    for key in 0..10 {
        map.insert(key, Counted::new(&census)).unwrap();
    }
    let (say, said) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let lent = &map;
        let reader = scope.spawn(move || {
            let kept = lent.get(&0);
            say.send(()).unwrap();
            released.recv().unwrap();
            drop(kept);
        });
        said.recv().unwrap();
        drop(map.remove(&1));
        // Some end while the first ones wait.
        assert_eq!(milliseconds(&census), 5000);
        (0..10).for_each(|key| drop(map.remove(&key)));
        assert_eq!(milliseconds(&census), 5000);
        release.send(()).unwrap();
        reader.join().unwrap();
        let taken = milliseconds(&census);
        assert!(taken <= 200, "{taken} ms");
    });
}

/// A large map may hold many ended values: an eighth of the live ones waits for the driver.
#[test]
fn an_eighth_of_the_live_entries_may_wait() {
    let census = Census::new();
    let map = ExpiringMap::builder().build_manual().unwrap();
    for key in 0..80_000_u64 {
        map.insert(key, Counted::new(&census)).unwrap();
    }
    (0..9_000).for_each(|key| drop(map.insert(key, Counted::new(&census)).unwrap()));
    assert_eq!(census.left(), 89_000, "this thread has dropped some");
    (0..80_000).for_each(|key| drop(map.insert(key, Counted::new(&census)).unwrap()));
    assert!(census.left() < 91_000, "{} are there", census.left());
}
