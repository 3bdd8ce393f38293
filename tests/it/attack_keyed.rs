//! What an attack on the keyed stores found, each as the shortest sequence that reached it.

use crate::drops::census::{Census, Counted, OnDrop};
use crate::rig;
use crate::support::{self, Same, Told, MS, SECOND};
use expiry::{
    Clock, ExpiringMap, Lifetime, ManualClock, PendingTable, RemovalCause, SessionTracker,
    StoreError, TimeCacheMap,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{mpsc, Arc, OnceLock, Weak};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_micros(10);

/// So many of these intervals.
fn ticks(ticks: u64) -> Duration {
    Duration::from_micros(10 * ticks)
}

/// After a jump of the clock by 2^39 intervals, with no poll since, an expired entry was found
/// again, and a use brought it back for good.
#[test]
fn what_is_over_is_not_found_after_a_jump_of_years() {
    const MORE: [u64; 3] = [(1 << 40) - 100, (1 << 40) + 50, (1 << 39) + 77];
    for jump in [1 << 38, 1 << 39, 3 << 38, 1 << 40, 5 << 39].into_iter().chain(MORE) {
        for idle in [false, true] {
            let (clock, told) = (ManualClock::new(), Told::default());
            let mut builder = ExpiringMap::builder().time_to_live(ticks(1000)).interval(INTERVAL);
            builder = builder.shards(1).clock(clock.clone()).removal_listener(told.removals());
            if idle {
                builder = builder.time_to_idle(ticks(100));
            }
            let map = builder.build_manual().unwrap();
            map.insert(1, ()).unwrap();
            map.insert_for(2, (), Lifetime::Never).unwrap();
            clock.advance(ticks(jump));
            let found: Vec<u64> = map.iter().map(|entry| *entry.key()).collect();
            assert_eq!(found, if idle { vec![] } else { vec![2] }, "{jump}");
            assert!(map.get(&1).is_none(), "{jump} {idle}");
            assert!(map.remaining(&1).is_none(), "{jump} {idle}");
            assert!(map.remove(&1).is_none(), "{jump} {idle}");
            assert_eq!(map.get(&2).is_some(), !idle, "{jump} {idle}");
            // A new one is not taken for an old one.
            map.insert(3, ()).unwrap();
            assert!(map.get(&3).is_some(), "{jump} {idle}");
            while map.poll(usize::MAX).more {}
            let mut told = told.take();
            told.sort_by_key(|&(key, _)| key);
            let over = 1..=1 + u64::from(idle);
            assert!(told.into_iter().eq(over.map(|key| (key, RemovalCause::Expired))), "{jump}");
            assert!(map.get(&3).is_some(), "{jump} {idle}");
        }
    }
}

/// A clock whose cheap reading is just as new, though it may be old.
struct Coarse(ManualClock, Duration);

impl Clock for Coarse {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn lag(&self) -> u64 {
        self.1.as_nanos() as u64
    }
}

/// What a coarse clock may lag behind was added to an entry's time: the window that was promised
/// was longer by that.
#[test]
fn a_time_caches_window_has_no_room_for_a_clocks_lag() {
    let clock = ManualClock::new();
    let expiration = 300 * MS;
    let map = TimeCacheMap::<u64, ()>::builder(expiration)
        .clock(Coarse(clock.clone(), 30 * MS))
        .build_manual()
        .unwrap();
    for ms in 0..300 {
        clock.set(Duration::from_millis(1000 + ms).as_nanos() as u64);
        map.put(ms, ()).unwrap();
    }
    for ms in 0..300 {
        clock.set(Duration::from_millis(1000 + ms + 299).as_nanos() as u64);
        assert!(map.contains_key(&ms), "{ms}");
        clock.set(Duration::from_millis(1000 + ms + 450).as_nanos() as u64);
        assert!(!map.contains_key(&ms), "{ms}");
    }
}

/// A session that was ended by a creation, after a jump of the clock by years, was there to be
/// polled, and no waiting thread was notified.
#[test]
fn who_waits_is_told_of_what_a_creation_has_ended() {
    let clock = ManualClock::new();
    let sessions =
        SessionTracker::builder().interval(INTERVAL).clock(clock.clone()).build_manual().unwrap();
    let old = sessions.create(ticks(1000), 7).unwrap();
    clock.advance(ticks(1 << 38) + ticks(1 << 30));
    sessions.create(ticks(1000), 7).unwrap();
    assert_eq!(sessions.wait_time(), Some(Duration::ZERO));
    assert_eq!(sessions.poll()[0].id, old.id());
}

/// A clock that replaces a value so often that its lease comes round, while an insertion which has
/// found it looks at the time: a thread that is stalled just then sees no more of it.
struct Meddler {
    map: OnceLock<Weak<ExpiringMap<u64, Counted>>>,
    census: Arc<Census>,
    /// Which reading from now on; 0: none.
    armed: AtomicUsize,
}

/// Occupancies of a slot until a generation comes again.
const ROUND: u64 = (1 << 16) - 1;

impl Clock for Meddler {
    fn now(&self) -> u64 {
        let armed = self.armed.load(Relaxed);
        self.armed.store(armed.saturating_sub(1), Relaxed);
        if armed == 1 {
            let map = self.map.get().and_then(Weak::upgrade).unwrap();
            for value in 1..=ROUND {
                map.insert(0, Counted::of(&self.census, value)).unwrap();
            }
        }
        0
    }
}

/// It replaced the value that was there by then, and retired the one that it had found a second
/// time.
#[test]
fn a_replacement_that_has_slept_through_all_generations_retires_what_it_has_replaced() {
    let census = Census::new();
    let armed = AtomicUsize::new(0);
    let clock = Arc::new(Meddler { map: OnceLock::new(), census: census.clone(), armed });
    let map = Arc::new(ExpiringMap::builder().clock(clock.clone()).build_manual().unwrap());
    clock.map.set(Arc::downgrade(&map)).unwrap();
    map.insert(0, Counted::of(&census, 0)).unwrap();
    // The only reading.
    clock.armed.store(1, Relaxed);
    let replaced = map.insert(0, Counted::of(&census, ROUND + 1)).unwrap();
    assert_eq!(replaced.unwrap().value().id(), ROUND);
    assert_eq!(map.get(&0).unwrap().value().id(), ROUND + 1);
    assert_eq!(map.metrics().total.live, 1);
    drop(map);
    assert_eq!(census.left(), 0);
}

/// The same for a listener, which no call makes wait until what is due has ended.
#[test]
fn a_listener_tells_old_from_new_after_a_jump_of_years() {
    for jump in [1 << 38, 1 << 39, (3 << 38) - 2000] {
        let (clock, told) = (ManualClock::new(), Told::default());
        let map = Arc::new_cyclic(|map: &Weak<ExpiringMap<u64, ()>>| {
            let (inner, tell) = (map.clone(), told.handler());
            let builder = ExpiringMap::builder().time_to_live(ticks(1000)).interval(INTERVAL);
            let builder =
                builder.shards(1).clock(clock.clone()).removal_listener(move |&key, _, _| {
                    tell(key);
                    let map = inner.upgrade().unwrap();
                    if key == 1 {
                        map.insert(10, ()).unwrap();
                        assert!(map.contains_key(&10));
                        assert!(map.iter().any(|entry| *entry.key() == 10));
                        map.touch(&3);
                    }
                });
            builder.build_manual().unwrap()
        });
        for key in 1..4 {
            map.insert(key, ()).unwrap();
        }
        clock.advance(ticks(jump));
        while map.poll(usize::MAX).more {}
        assert_eq!(told.take(), [1, 2, 3], "{jump}");
        assert!(map.contains_key(&10), "{jump}");
        assert_eq!(map.metrics().listener_panics, 0, "{jump}");
    }
}

/// A listener's own driver cannot catch up before it returns: what the listener puts in gets the
/// latest deadline that there is.
#[test]
fn a_listener_that_inserts_after_a_jump_of_years_returns() {
    let clock = ManualClock::new();
    let map = Arc::new_cyclic(|map: &Weak<ExpiringMap<u64, ()>>| {
        let map = map.clone();
        let builder = ExpiringMap::builder().time_to_idle(ticks(1000)).interval(INTERVAL);
        let builder = builder.clock(clock.clone()).removal_listener(move |&key, (), _| {
            map.upgrade().unwrap().insert(key + 1, ()).unwrap();
        });
        builder.build_manual().unwrap()
    });
    let table = Arc::new_cyclic(|table: &Weak<PendingTable<u64>>| {
        let table = table.clone();
        let builder = PendingTable::builder().interval(INTERVAL).clock(clock.clone());
        let builder = builder.expiry_listener(move |value| {
            table.upgrade().unwrap().insert(value + 1, SECOND).unwrap();
        });
        builder.build_manual().unwrap()
    });
    map.insert(0, ()).unwrap();
    table.insert(0, SECOND).unwrap();
    clock.advance(ticks(5 << 38));
    while map.poll(usize::MAX).more {}
    while table.poll_into(&mut Vec::new(), usize::MAX).more {}
    assert!(map.peek(&0).is_none() && table.metrics().expired > 0);
    assert_eq!((map.metrics().listener_panics, table.metrics().listener_panics), (0, 0));
    assert_eq!((map.len(), table.len()), (1, 1));
}

/// A value shuts its map down when it is dropped. It was dropped where a grace period ended, while
/// an insertion drove a shard to migrate its index's words: the shutdown waited for its own thread
/// to leave. When that is depends on how often the thread has pinned before.
#[test]
fn a_value_may_shut_its_map_down_wherever_it_is_dropped() {
    let (sender, done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        for pins in 1150..1350 {
            let map = ExpiringMap::builder().shards(1).seed(1).build_manual();
            let map = Arc::new(map.unwrap());
            let this: Weak<ExpiringMap<u64, OnDrop>> = Arc::downgrade(&map);
            let last = OnDrop::new(move || this.upgrade().iter().for_each(|map| map.shutdown()));
            let removed = [last].into_iter().chain((1..70).map(|_| OnDrop::NOTHING));
            for key in 0..pins {
                map.insert(key, OnDrop::NOTHING).unwrap();
            }
            for last in removed {
                // It may be dropped before this is over.
                if map.insert(u64::MAX, last).is_ok() {
                    map.remove(&u64::MAX);
                }
            }
            // Until it is refused.
            let _ = (pins..3000).all(|key| map.insert(key, OnDrop::NOTHING).is_ok());
            sender.send(()).unwrap();
        }
    });
    for pins in 1150..1350 {
        done.recv_timeout(support::GENEROUS)
            .unwrap_or_else(|_| panic!("it waits for itself: {pins}"));
    }
    // Its last map is gone, too, before the test looks for leaks.
    thread.join().unwrap();
}

/// A hasher that gives all keys one hash made the index double for each key beyond 31, until memory
/// ended.
#[test]
fn keys_of_one_hash_are_refused_beyond_some() {
    let (map, clock) = rig::map(|map| map.time_to_live(ticks(10)).interval(INTERVAL).hasher(Same));
    let insert = |n: u64| map.insert(n, n);
    assert!((0..8).all(|n| insert(n).is_ok()));
    for n in 8..2000 {
        let refused = insert(n).unwrap_err();
        assert_eq!(refused.error, StoreError::Collisions);
        assert_eq!((refused.key, refused.value), (n, n));
    }
    let metrics = map.metrics();
    assert_eq!((metrics.capacity, metrics.refused), (None, 1992));
    // What there is is not concerned.
    assert!((0..8).all(|n| insert(n).unwrap().is_some_and(|old| *old == n)));
    assert!(map.remove(&5).is_some_and(|old| *old == 5));
    assert!(insert(8).is_ok() && insert(5).is_err());
    assert_eq!(map.len(), 8);
    clock.advance(ticks(20));
    while map.poll(usize::MAX).more {}
    assert!((100..108).all(|n| insert(n).is_ok()));
}

/// A deadline that a grain had rounded up to beyond 2^39 ticks was not compared right: the driver
/// did not hear of a nearer one.
#[test]
fn a_deadline_that_comes_near_again_from_the_longest_lifetime_is_kept() {
    const DAY: Duration = Duration::from_secs(86_400);
    let clock = ManualClock::new();
    let builder = ExpiringMap::builder().time_to_live(ticks(1)).clock(clock.clone());
    let map = builder.build_manual().unwrap();
    for _ in 0..70 {
        clock.advance(DAY);
        while map.poll(usize::MAX).more {}
    }
    clock.advance(ticks(1));
    let accepted = |&nth: &u64| {
        map.insert_for(nth, (), ticks((1 << 39) - 2) - Duration::from_millis(nth)).is_ok()
    };
    let longest = (0..).find(accepted).unwrap();
    assert_eq!(map.touch_for(&longest, ticks(1)), Ok(true));
    clock.advance(ticks(2));
    while map.poll(usize::MAX).more {}
    assert!(map.is_empty(), "the longest less {longest} ms");
}
