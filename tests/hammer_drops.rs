//! TEST ONLY: what a shutdown has handed out, and the caller has dropped, is dropped soon.
#![cfg(not(expiry_loom))]

use expiry::ExpiryQueue;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn handed_out() {
    let key = Arc::new(7);
    let builder = ExpiryQueue::<Arc<u64>>::builder().shards(1);
    let queue = builder.build();
    let queue = queue.unwrap();
    queue.update(key.clone(), Duration::from_secs(100)).unwrap();
    let left = queue.shutdown();
    assert_eq!(left.len(), 1);
    drop(left);
    let begun = Instant::now();
    while Arc::strong_count(&key) > 1 && begun.elapsed() < Duration::from_secs(2) {
        let _ = queue.get(&key);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        Arc::strong_count(&key),
        1,
        "the key is kept until the queue goes"
    );
}

#[test]
fn polled() {
    handed_out();
}
