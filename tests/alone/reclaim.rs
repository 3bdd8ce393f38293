//! Keys and values of entries that have expired are dropped soon, though no caller touches the
//! store again. The test has a process of its own: pins of other threads would hold it up.

use crate::census::{Census, Counted};
use crate::heap;
use crate::support::{wait_for, MS, SECOND};
use expiry::{ExpiringMap, ExpiryQueue, ManualClock};
use std::time::Duration;

const MANY: u64 = 20_000;

fn a_polled_map(many: u64) {
    let (clock, there) = (ManualClock::new(), Census::new());
    let builder = ExpiringMap::builder().time_to_live(SECOND).interval(SECOND).shards(4);
    let map = builder.clock(clock.clone()).build_manual().unwrap();
    for key in 0..many {
        map.insert(Counted::of(&there, key), Counted::of(&there, key)).unwrap();
    }
    assert_eq!(there.left(), 2 * many);
    for _ in 0..10 {
        clock.advance(SECOND);
        while map.poll(4096).more {}
    }
    assert_eq!(there.left(), 0, "of {many}");
}

fn a_polled_queue(many: u64) {
    let (clock, there) = (ManualClock::new(), Census::new());
    let builder = ExpiryQueue::builder().interval(SECOND).shards(4).clock(clock.clone());
    let queue = builder.build_manual().unwrap();
    for key in 0..many {
        queue.update(Counted::of(&there, key), SECOND).unwrap();
    }
    clock.advance(SECOND);
    let expired = queue.poll();
    assert_eq!((expired.len() as u64, there.left()), (many, many), "lent until they are dropped");
    drop(expired);
    for _ in 0..10 {
        clock.advance(SECOND);
        assert!(queue.poll().is_empty());
    }
    assert_eq!(there.left(), 0, "of {many}");
}

fn a_map_with_a_reaper(many: u64) {
    let there = Census::new();
    let builder = ExpiringMap::builder().time_to_live(MS);
    let map = builder.interval(MS).build().unwrap();
    for key in 0..many {
        map.insert(key, Counted::of(&there, key)).unwrap();
    }
    wait_for("all to be dropped", || there.left() == 0);
}

/// A map that goes, by its owner's hand or by itself, takes its values with it.
fn a_map_that_is_shut_down(many: u64) {
    for by_hand in [true, false] {
        let there = Census::new();
        let map = ExpiringMap::builder().build().unwrap();
        for key in 0..many {
            map.insert(key, Counted::of(&there, key)).unwrap();
        }
        assert!(map.remove(&0).is_some());
        if by_hand {
            map.shutdown();
        } else {
            drop(map);
        }
        assert_eq!(there.left(), 0, "of {many}");
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
        let (clock, there) = (ManualClock::new(), Census::new());
        let builder = ExpiringMap::builder().interval(SECOND).shards(4).clock(clock.clone());
        let map = builder.build_manual().unwrap();
        for key in 0..many {
            map.insert_for(key, Counted::of(&there, key), SECOND).unwrap();
        }
        let left = match end {
            0 => {
                (0..many).for_each(|key| drop(map.remove(&key)));
                0
            }
            1 => {
                for key in 0..many {
                    drop(map.insert(key, Counted::of(&there, key)).unwrap());
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
            if there.left() == left {
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
