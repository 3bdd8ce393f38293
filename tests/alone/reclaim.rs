//! Keys and values of entries that have expired are dropped soon, though no caller touches the
//! store again. The test has a process of its own: pins of other threads would hold it up.

use crate::heap;
use expiry::{ExpiringMap, ExpiryQueue, ManualClock};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const MANY: usize = 20_000;

/// Counts how many of it there are.
#[derive(Debug)]
struct Counted(u64, Arc<AtomicUsize>);

impl Counted {
    fn new(key: u64, there: &Arc<AtomicUsize>) -> Self {
        there.fetch_add(1, Relaxed);
        Counted(key, there.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

fn a_polled_map(many: usize) {
    let (clock, there) = (ManualClock::new(), Arc::default());
    let builder = ExpiringMap::builder().time_to_live(SECOND).interval(SECOND).shards(4);
    let map = builder.clock(clock.clone()).build_manual().unwrap();
    for key in 0..many as u64 {
        map.insert(Counted::new(key, &there), Counted::new(key, &there)).unwrap();
    }
    assert_eq!(there.load(Relaxed), 2 * many);
    for _ in 0..10 {
        clock.advance(SECOND);
        while map.poll(4096).more {}
    }
    assert_eq!(there.load(Relaxed), 0, "of {many}");
}

fn a_polled_queue(many: usize) {
    let (clock, there) = (ManualClock::new(), Arc::default());
    let builder = ExpiryQueue::builder().interval(SECOND).shards(4).clock(clock.clone());
    let queue = builder.build_manual().unwrap();
    for key in 0..many as u64 {
        queue.update(Counted::new(key, &there), SECOND).unwrap();
    }
    clock.advance(SECOND);
    let expired = queue.poll();
    assert_eq!((expired.len(), there.load(Relaxed)), (many, many), "lent until they are dropped");
    drop(expired);
    for _ in 0..10 {
        clock.advance(SECOND);
        assert!(queue.poll().is_empty());
    }
    assert_eq!(there.load(Relaxed), 0, "of {many}");
}

fn a_map_with_a_reaper(many: usize) {
    let there = Arc::default();
    let builder = ExpiringMap::builder().time_to_live(Duration::from_millis(1));
    let map = builder.interval(Duration::from_millis(1)).build().unwrap();
    for key in 0..many as u64 {
        map.insert(key, Counted::new(key, &there)).unwrap();
    }
    let began = Instant::now();
    while there.load(Relaxed) != 0 {
        assert!(began.elapsed() < SECOND * 20, "{} of {many} are there", there.load(Relaxed));
        std::thread::yield_now();
    }
}

/// A map that goes, by its owner's hand or by itself, takes its values with it.
fn a_map_that_is_shut_down(many: usize) {
    for by_hand in [true, false] {
        let there = Arc::default();
        let map = ExpiringMap::builder().build().unwrap();
        for key in 0..many as u64 {
            map.insert(key, Counted::new(key, &there)).unwrap();
        }
        assert!(map.remove(&0).is_some());
        if by_hand {
            map.shutdown();
        } else {
            drop(map);
        }
        assert_eq!(there.load(Relaxed), 0, "of {many}");
    }
}

pub fn what_has_expired_is_dropped_untouched() {
    for many in [1, 63, 64, 65, 1000, MANY] {
        a_polled_map(many);
        a_polled_queue(many);
        a_map_with_a_reaper(many);
        a_map_that_is_shut_down(many);
    }
}

/// D9: on a clock that moves only as far as `poll` says.
pub fn what_has_ended_is_dropped_within_an_interval() {
    for (many, end) in [1, 1000].into_iter().flat_map(|many| [0, 1, 2].map(|end| (many, end))) {
        let (clock, there) = (ManualClock::new(), Arc::default());
        let builder = ExpiringMap::builder().interval(SECOND).shards(4).clock(clock.clone());
        let map = builder.build_manual().unwrap();
        for key in 0..many as u64 {
            map.insert_for(key, Counted::new(key, &there), SECOND).unwrap();
        }
        let left = match end {
            0 => {
                (0..many as u64).for_each(|key| drop(map.remove(&key)));
                0
            }
            1 => {
                for key in 0..many as u64 {
                    drop(map.insert(key, Counted::new(key, &there)).unwrap());
                }
                many
            }
            _ => {
                clock.advance(SECOND);
                0
            }
        };
        let mut waited = Duration::ZERO;
        loop {
            let polled = map.poll(4096);
            if there.load(Relaxed) == left {
                break;
            }
            if !polled.more {
                let next = polled.next.expect("a poll is wanted");
                clock.advance(next);
                waited += next;
            }
        }
        assert!(waited <= SECOND, "{waited:?} for {many}, by way {end}");
    }
}

/// A refused `try_into_value` leaves nothing behind, however long a reference is kept.
pub fn a_refused_into_value_allocates_nothing_that_stays() {
    const CALLS: usize = 10_000;
    let map = ExpiringMap::builder().build_manual().unwrap();
    map.insert(1, 1).unwrap();
    let kept = map.get(&1);
    let mut removed = map.remove(&1).unwrap();
    let before = heap::process();
    for _ in 0..CALLS {
        removed = removed.try_into_value().expect_err("the reference is kept");
    }
    let more = heap::process().saturating_sub(before);
    assert!(more < 64 << 10, "{more} bytes after {CALLS} calls");
    drop(kept);
    assert_eq!(removed.try_into_value().ok(), Some(1));
}
