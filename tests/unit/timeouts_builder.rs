//! Unit tests of `src/timeouts/builder.rs`.

use super::*;
use crate::ManualClock;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

#[derive(Default)]
struct Task(AtomicU64);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// What a system without such a fence does, or one that has taken it away.
#[test]
fn with_a_fence_without_and_when_it_is_taken_away() {
    const MS: Duration = Duration::from_millis(1);
    for (fence, goes) in [(true, false), (false, false), (true, true)] {
        let clock = ManualClock::new();
        let mut builder = TimeoutsBuilder::default().clock(clock.clone());
        if !fence {
            builder = builder.without_fence();
        }
        let timeouts = builder.build_manual().unwrap();
        let task = Arc::<Task>::default();
        let waker = Waker::from(task.clone());
        let mut context = Context::from_waker(&waker);
        let mut waiting: Vec<_> = (1..=100).map(|n| timeouts.sleep(n * MS)).collect();
        for sleep in &mut waiting {
            assert!(Pin::new(sleep).poll(&mut context).is_pending());
        }
        if goes {
            timeouts.waiters.engine.fence.forget();
        }
        let later = waiting.split_off(50);
        drop(waiting.split_off(25));
        clock.advance(75 * MS);
        while timeouts.poll(1000).more {}
        assert_eq!(task.0.load(SeqCst), 50);
        drop((waiting, later));
        let metrics = timeouts.metrics();
        assert_eq!((metrics.fired, metrics.cancelled), (50, 50));
        assert_eq!(Arc::strong_count(&task), 2);
    }
}
