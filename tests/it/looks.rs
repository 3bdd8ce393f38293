//! What callers can ask of entries: how long they have left, which are next, and how ids are
//! written.

use crate::drops::census::{Census, Counted};
use crate::rig;
use crate::support::{Told, GENEROUS, HOUR, MS, SECOND};
use expiry::{
    edge, AckTracker, ExpiringMap, ExpiryQueue, Lifetime, LifetimeError, ParseIdError,
    RemovalCause, Root, RootId, SessionId, StoreError, TimeCacheMap,
};
use std::time::{Duration, Instant};

/// A map and a queue of keys 1 to 502, in no order, and more than a look keeps at a time. Each key
/// has as many seconds, and 100 have gone by. The map has one more entry, which never expires.
fn of_many() -> (ExpiringMap<u64, ()>, ExpiryQueue<u64>) {
    let (map, clock) = rig::map(|map| map);
    let (queue, _) = rig::queue(|queue| queue.clock(clock.clone()));
    for key in (1..=502_u64).map(|n| n * 7 % 503) {
        map.insert_for(key, (), Duration::from_secs(key)).unwrap();
        queue.update(key, Duration::from_secs(key)).unwrap();
    }
    map.insert_for(1000, (), Lifetime::Never).unwrap();
    clock.advance(100 * SECOND);
    (map, queue)
}

#[test]
fn the_soonest_come_first_and_without_what_is_over() {
    let (map, queue) = of_many();
    let lasts = |n: u64| (101..=100 + n).map(|key| (key, Duration::from_secs(key - 100)));
    for n in [0, 1, 3, 100, 402] {
        assert!(map.soonest(n as usize).into_iter().eq(lasts(n)), "{n}");
    }
    assert_eq!(map.soonest(usize::MAX).len(), 402);
    // A queue has what is due until a poll has taken it.
    assert_eq!(queue.soonest(1), [(1, Duration::ZERO)]);
    assert_eq!(queue.remaining(&1), Some(Duration::ZERO));
    while !queue.poll().is_empty() {}
    assert!(queue.soonest(3).into_iter().eq(lasts(3)));
    assert_eq!((queue.remaining(&1), queue.remaining(&103)), (None, Some(3 * SECOND)));
}

#[test]
fn the_latest_come_first_and_without_what_never_expires() {
    let (map, queue) = of_many();
    let lasts = |n: u64| (503 - n..503).rev().map(|key| (key, Duration::from_secs(key - 100)));
    for n in [0, 1, 3, 100] {
        assert!(map.latest(n as usize).into_iter().eq(lasts(n)), "{n}");
        assert!(queue.latest(n as usize).into_iter().eq(lasts(n)), "{n}");
    }
    assert_eq!(map.latest(usize::MAX).len(), 402);
    assert_eq!(queue.latest(usize::MAX).last(), Some(&(1, Duration::ZERO)));
}

#[test]
fn what_expires_says_when() {
    let map = ExpiringMap::builder().interval(MS).build().unwrap();
    let queue = ExpiryQueue::builder().interval(MS).build_manual().unwrap();
    let before = Instant::now();
    map.insert_for(1_u64, (), HOUR).unwrap();
    map.insert_for(2, (), Lifetime::Never).unwrap();
    queue.update(1_u64, HOUR).unwrap();
    for at in [map.expires_at(&1), queue.expires_at(&1)] {
        let left = at.unwrap() - before;
        assert!(left >= HOUR - MS && left < HOUR + GENEROUS, "{left:?}");
    }
    assert_eq!((map.expires_at(&2), map.expires_at(&3), queue.expires_at(&3)), (None, None, None));
    assert_eq!(map.expires_at(&1), map.expires_at(&1), "the same until a renewal");
    assert_eq!(queue.expires_at(&1), queue.expires_at(&1));
    // The time that one entry ends at may be another's lifetime.
    let until = map.expires_at(&1).unwrap();
    map.insert_for(4, (), until).unwrap();
    let left = map.remaining(&4).unwrap();
    assert!(left <= HOUR + 10 * MS, "{left:?}");
    let refused = map.insert_for(5, (), before).unwrap_err();
    assert_eq!(refused.error, StoreError::Lifetime(LifetimeError::Zero));
}

#[test]
fn ids_are_read_as_they_are_written() {
    let tracker = AckTracker::builder().build_manual().unwrap();
    let root = tracker.issue(edge(), 1).unwrap();
    assert_eq!(root.to_string().parse(), Ok(root));
    let id = SessionId(0xAB);
    assert_eq!(
        (id.to_string().as_str(), "0x00000000000000ab".parse()),
        ("0x00000000000000ab", Ok(id))
    );
    assert_eq!(format!("{id:?}"), "SessionId(0x00000000000000ab)");
    assert_eq!(SessionId(u64::MAX).to_string(), "0xffffffffffffffff");
    assert_eq!(RootId::from(Root::from_bits(1)).to_string(), "issued:0x0000000000000001");
    for text in
        ["", "0x", "ab", "0xab", "0x+0000000000000ab", "0x00000000000000abc", "0x000000000000000g"]
    {
        assert!(text.parse::<SessionId>().is_err(), "{text}");
        let refused: Result<Root, ParseIdError> = text.parse();
        assert!(refused.is_err(), "{text}");
    }
}

#[cfg(feature = "serde")]
#[test]
fn ids_are_serialized_as_numbers() {
    let id = SessionId(u64::MAX);
    assert_eq!(serde_json::to_string(&id).unwrap(), u64::MAX.to_string());
    assert_eq!(serde_json::from_str::<SessionId>("7").unwrap(), SessionId(7));
    assert_eq!(serde_json::from_str::<Root>("7").unwrap(), Root::from_bits(7));
}

#[cfg(target_os = "linux")]
#[test]
fn a_reaper_has_the_name_of_its_store() {
    let names = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.flatten().map(|name| name.trim().to_string()).collect::<Vec<_>>()
    };
    let map = ExpiringMap::<u64, u64>::builder().name("users-of-a-long-name").build().unwrap();
    let pages = TimeCacheMap::<u64, u64>::builder(SECOND).into_map_builder().unwrap();
    let pages = pages.name("pa\0ges").build().unwrap();
    for name in ["users-of-a-long", "pa ges"] {
        crate::support::wait_for(name, || names().contains(&name.to_string()));
    }
    drop((map, pages));
}

#[cfg(target_os = "linux")]
#[test]
fn the_clock_of_the_boot_runs() {
    use expiry::{BootClock, Clock, MonotonicClock};
    let (own, system) = (BootClock.now(), MonotonicClock::new());
    let map = ExpiringMap::builder().interval(MS).clock(BootClock).build().unwrap();
    map.insert_for(1_u64, 1_u64, 2 * MS).unwrap();
    crate::support::wait_for("the expiry", || map.metrics().total.expired == 1);
    // In this order: its reading began before the other clock's, and ends after it.
    let system = system.now();
    assert!(BootClock.now() - own >= system && system >= 2_000_000);
}

#[test]
fn flush_drops_what_has_ended() {
    let ((queue, clock), census) = (rig::queue(|queue| queue.interval(MS)), Census::new());
    queue.update(Counted::new(&census), MS).unwrap();
    clock.advance(SECOND);
    drop(queue.poll());
    assert!(queue.flush(GENEROUS));
    assert_eq!(census.left(), 0);
    let map = TimeCacheMap::builder(SECOND).clock(clock).build_manual().unwrap();
    map.put(1_u64, Counted::new(&census)).unwrap();
    drop(map.remove(&1));
    assert!(map.flush(GENEROUS));
    assert_eq!(census.left(), 0);
}

#[test]
fn drain_waits_for_what_is_there_and_refuses_what_is_new() {
    use expiry::{SessionTracker, StoreError};
    // The reaper, or the draining call, ends what is due.
    for manual in [false, true] {
        let map = ExpiringMap::builder().interval(MS);
        let map = if manual { map.build_manual() } else { map.build() }.unwrap();
        map.insert_for(1_u64, 1_u64, 2 * MS).unwrap();
        assert!(map.drain(GENEROUS));
        assert_eq!(map.metrics().total.expired, 1);
        assert_eq!(map.insert(2, 2).unwrap_err().error, StoreError::Closed);

        let queue = ExpiryQueue::builder().interval(MS);
        let queue = if manual { queue.build_manual() } else { queue.build() }.unwrap();
        queue.update(1_u64, 2 * MS).unwrap();
        assert!(queue.drain(GENEROUS));
        assert_eq!(queue.update(2, MS), Err(StoreError::Closed));
        // A queue that is polled gives them to the next poll.
        assert_eq!(queue.poll().len(), usize::from(manual));
    }
    // What stays is left to the shutdown.
    let sessions = SessionTracker::builder().build().unwrap();
    sessions.create(HOUR, 7).unwrap();
    assert!(!sessions.drain(MS) && sessions.create(SECOND, 8).is_err());
    assert_eq!(sessions.shutdown().len(), 1);
}

#[cfg(feature = "async")]
#[test]
fn drain_async_waits_for_what_is_there_and_refuses_what_is_new() {
    use crate::support::Task;
    use expiry::SessionTracker;
    use std::task::Poll;
    let task = Task::new();
    // The reaper ends what is due, and wakes the future.
    let map = ExpiringMap::builder().interval(MS).build().unwrap();
    map.insert_for(1_u64, 1_u64, 2 * MS).unwrap();
    let drained = map.drain_async(GENEROUS);
    assert!(map.insert(2, 2).is_err(), "before the future is polled");
    assert!(task.block_on(drained) && map.metrics().total.expired == 1);
    assert!(task.block_on(map.drain_async(Duration::ZERO)), "it has been drained");
    // What stays is left to the shutdown, which wakes the future, too.
    let sessions = SessionTracker::builder().build().unwrap();
    sessions.create(HOUR, 7).unwrap();
    assert!(!task.block_on(sessions.drain_async(MS)));
    let mut drained = std::pin::pin!(sessions.drain_async(Duration::MAX));
    assert!(task.poll(&mut drained).is_pending());
    assert_eq!(sessions.shutdown().len(), 1);
    assert!(task.block_on(drained));
    // Without a reaper, the future polls, and a poll wakes it.
    let (queue, clock) = rig::queue(|queue| queue.interval(MS));
    queue.update(1_u64, 2 * MS).unwrap();
    let mut drained = std::pin::pin!(queue.drain_async(Duration::MAX));
    assert!(task.poll(&mut drained).is_pending());
    clock.advance(4 * MS);
    let before = task.woken();
    assert_eq!(queue.poll().len(), 1);
    assert!(task.woken() > before);
    assert_eq!(task.poll(&mut drained), Poll::Ready(true));
}

#[test]
fn drain_in_a_listener_does_not_wait() {
    let map = ExpiringMap::builder().build().unwrap();
    map.insert(1_u64, 1_u64).unwrap();
    let drained = map.clone();
    let other = ExpiringMap::builder()
        .removal_listener(move |_: &u64, _: &u64, _| assert!(!drained.drain(Duration::MAX)))
        .build()
        .unwrap();
    other.insert(1, 1).unwrap();
    drop(other.remove(&1));
    assert_eq!((other.metrics().listener_panics, map.len()), (0, 1));
}

#[test]
fn clear_leaves_nothing_of_what_has_expired() {
    let told = Told::default();
    let (map, clock) = rig::map(|map| map.removal_listener(told.removals()));
    map.insert_for(1_u64, (), SECOND).unwrap();
    map.insert(2, ()).unwrap();
    clock.advance(2 * SECOND);
    map.clear();
    assert_eq!(map.len(), 0);
    assert_eq!(told.take(), [(1, RemovalCause::Expired), (2, RemovalCause::Removed)]);
}
