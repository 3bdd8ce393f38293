//! What a thread costs a store that it uses for the first time, in bytes. It counts what is
//! allocated.

use crate::heap;

use expiry::{AckTracker, ExpiringMap, ManualClock};
use std::sync::Barrier;
use std::time::Duration;

/// How many bytes this thread allocates in `work`.
fn allocated(work: impl FnOnce()) -> usize {
    let before = heap::allocated();
    work();
    heap::allocated() - before
}

/// Runs `work` in a thread with an index of 300 or more: as many others run meanwhile.
fn after_many_threads<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    const OTHERS: usize = 300;
    let (ready, done) = (Barrier::new(OTHERS + 1), Barrier::new(OTHERS + 1));
    // Any store gives the threads their indices.
    let map = ExpiringMap::builder().shards(1).build_manual().unwrap();
    std::thread::scope(|scope| {
        for key in 0..OTHERS as u64 {
            let (map, ready, done) = (&map, &ready, &done);
            let wait = move || {
                map.insert(key, key).unwrap();
                ready.wait();
                done.wait();
            };
            let small = std::thread::Builder::new().stack_size(64 << 10);
            small.spawn_scoped(scope, wait).unwrap();
        }
        ready.wait();
        let result = scope.spawn(work).join();
        done.wait();
        result.unwrap()
    })
}

/// The stores are fresh, so that what the thread pays is its own stripe and nothing that another
/// thread would need.
pub fn a_thread_of_a_high_index_costs_a_store_its_own_stripe_only() {
    let costs = after_many_threads(|| {
        // The first map makes what the thread needs once, whatever the number of stores.
        let warm = ExpiringMap::builder().shards(1).build_manual().unwrap();
        warm.insert(1, 1).unwrap();
        [1, 16, 256].map(|shards| {
            let map = ExpiringMap::builder().shards(shards).build_manual().unwrap();
            let of_map = allocated(|| drop(map.insert(1_u64, 1_u64).unwrap()));
            let builder = AckTracker::builder().shards(shards);
            let tracker = builder.build_manual().unwrap();
            let of_tracker = allocated(|| assert!(tracker.issue(1, 0).is_ok()));
            (shards, of_map, of_tracker)
        })
    });
    println!("(shards, bytes of a map, bytes of a tracker): {costs:?}");
    for (shards, of_map, of_tracker) in costs {
        // The stripe, pointers to the stripes of 512 threads, and counters for each shard.
        assert!(of_map < 7_500 + 70 * shards, "a map of {shards} shards: {of_map} bytes");
        assert!(
            of_tracker < 4_000 + 140 * shards,
            "a tracker of {shards} shards: {of_tracker} bytes"
        );
    }
}

/// A store keeps the stripe for a later thread. It gives back what the thread had pinned with.
pub fn a_thread_that_has_ended_leaves_its_stripe_only() {
    const THREADS: usize = 200;
    let clock = ManualClock::new();
    let map = ExpiringMap::builder().shards(1).clock(clock.clone()).build_manual().unwrap();
    map.insert(0, 0).unwrap();
    let before = heap::process();
    let all = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let look = || {
            assert!(map.get(&0).is_some());
            all.wait();
        };
        let small = || std::thread::Builder::new().stack_size(64 << 10);
        let threads: Vec<_> =
            (0..THREADS).map(|_| small().spawn_scoped(scope, look).unwrap()).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    for _ in 0..10 {
        map.insert(1, 1).unwrap();
        drop(map.remove(&1));
        clock.advance(Duration::from_secs(2));
        while map.poll(1000).more {}
    }
    let left = heap::process().saturating_sub(before) / THREADS;
    println!("{left} bytes a thread");
    assert!(left < 1500, "{left} bytes a thread");
}
