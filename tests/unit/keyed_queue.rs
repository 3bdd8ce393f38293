//! Rounds by hand: when a driver comes back, and what becomes of the index.

use super::ExpiryQueue;
use crate::time::ManualClock;
use std::hash::Hash;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// A queue of one shard at an interval of 10 ms, with nothing in it.
fn empty<K: Hash + Eq + Send + Sync + 'static>() -> ExpiryQueue<K> {
    let queue = ExpiryQueue::builder()
        .interval(Duration::from_millis(10))
        .shards(1)
        .clock(ManualClock::new());
    queue.build_manual().unwrap()
}

/// Ends so many keys by a round; the tick to come back at.
fn expire(queue: &ExpiryQueue<String>, keys: usize) -> Option<u64> {
    for key in 0..keys {
        queue.update(key.to_string(), Duration::from_secs(1)).unwrap();
    }
    let store = queue.store();
    let round = store.engine.poll(SECOND, crate::core::engine::Share::of(usize::MAX), store);
    assert!(queue.is_empty() && !round.more);
    round.next
}

/// The tick to come back at after a round at `tick`.
fn round<K: Hash + Eq + Send + Sync + 'static>(queue: &ExpiryQueue<K>, tick: u64) -> Option<u64> {
    let store = queue.store();
    let now = store.engine.deadlines.ticks().begins(tick);
    store.engine.poll(now, crate::core::engine::Share::of(usize::MAX), store).next
}

#[test]
fn an_idle_driver_comes_back_until_all_is_freed_and_then_no_more() {
    let queue = empty();
    let mut next = expire(&queue, 10_000);
    let mut rounds = 0;
    while let Some(tick) = next {
        rounds += 1;
        assert!(rounds < 1000, "it never goes to sleep");
        next = round(&queue, tick);
    }
    assert_eq!(round(&queue, 1 << 30), None, "it has woken up for nothing");
}

#[test]
fn an_index_gets_small_again_though_somebody_was_pinned_when_it_was_to() {
    let index = |queue: &ExpiryQueue<String>| queue.store().engine.keys.at(0).shape();
    let queue = empty();
    let small = index(&queue);
    // The first table is left behind under the pin, and is wanted again before it may be used.
    let pin = queue.store().engine.pin();
    let mut next = expire(&queue, 1_000);
    let (listed, words) = index(&queue);
    assert!((listed, words) > small, "it has not grown: {words} words");
    for _ in 0..3 {
        next = round(&queue, next.expect("the keys are not freed yet"));
    }
    assert_eq!(index(&queue), (1, words), "it was not refused");
    drop(pin);
    while let Some(tick) = next {
        next = round(&queue, tick);
    }
    assert_eq!(index(&queue), small);
}

/// How large the index of a queue is.
fn size(queue: &ExpiryQueue<u64>) -> (usize, u64) {
    queue.store().engine.keys.at(0).shape()
}

fn fill(queue: &ExpiryQueue<u64>, timeout: Duration) {
    for key in 0..1_000 {
        queue.update(key, timeout).unwrap();
    }
}

/// Fills a queue, and removes all keys again once the index has moved them into a second table. The
/// first table is left behind under the caller's pin. Nothing is due for an hour.
fn fill_and_empty(queue: &ExpiryQueue<u64>) {
    let small = size(queue);
    fill(queue, Duration::from_secs(3600));
    while size(queue).0 > 1 {
        round(queue, 1);
    }
    assert!(size(queue) > small);
    for key in 0..1_000 {
        queue.remove(&key);
    }
}

/// Goes on with rounds at the ticks that they ask for. Returns the index's size in the end, or
/// after some minutes of simulated time.
fn size_at_rest(queue: &ExpiryQueue<u64>, mut next: Option<u64>) -> (usize, u64) {
    while let Some(tick) = next.filter(|tick| *tick < 10_000) {
        next = round(queue, tick);
    }
    size(queue)
}

#[test]
fn an_index_gets_small_again_though_a_round_came_twice_in_a_tick() {
    let queue = empty();
    let small = size(&queue);
    let pin = queue.store().engine.pin();
    fill_and_empty(&queue);
    // Refused in the first, and in the second of the same tick the grace period is over.
    round(&queue, 2);
    drop(pin);
    let next = round(&queue, 2);
    assert_eq!(size_at_rest(&queue, next), small);
}

#[test]
fn an_index_under_a_grace_period_is_come_back_for() {
    let queue = empty();
    let small = size(&queue);
    let pin = queue.store().engine.pin();
    fill_and_empty(&queue);
    let next = round(&queue, 2);
    drop(pin);
    assert_eq!(size_at_rest(&queue, next), small);
}

#[test]
fn an_index_gets_small_again_though_a_budget_ran_out() {
    let queue = empty();
    let small = size(&queue);
    fill(&queue, Duration::from_secs(1));
    assert!(size(&queue) > small);
    let store = queue.store();
    let next = loop {
        let round = store.engine.poll(2 * SECOND, crate::core::engine::Share::of(100), store);
        if !round.more {
            break round.next;
        }
    };
    assert!(queue.is_empty());
    assert_eq!(size_at_rest(&queue, next), small);
}

#[test]
fn who_stays_pinned_is_looked_at_at_longer_and_longer_intervals() {
    let queue = empty();
    let pin = queue.store().engine.pin();
    let mut next = expire(&queue, 100);
    let mut waits = Vec::new();
    let mut tick = 100;
    while waits.len() < 10 {
        let then = next.expect("the keys are not freed yet");
        waits.push(then - tick);
        tick = then;
        next = round(&queue, tick);
    }
    // A tick is 10 ms, and a look is put off by 100 ms at most.
    assert_eq!(waits, [1, 1, 2, 4, 8, 10, 10, 10, 10, 10]);
    drop(pin);
    while let Some(tick) = next {
        next = round(&queue, tick);
    }
}
