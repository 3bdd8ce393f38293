//! hyper's timer where neither its own timeouts nor the process's have room.

use expiry::{timeouts, Timeouts};
use expiry_tower::ExpiryTimer;
use hyper::rt::Timer;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

/// A task that woke itself took a whole core for as long as its timeouts were full.
#[test]
fn a_sleep_that_nothing_can_wake_is_ready() {
    let full = Timeouts::builder().capacity(1).build_manual().unwrap();
    let timer = ExpiryTimer::new(Arc::new(full));
    let mut context = Context::from_waker(Waker::noop());
    let [mut first, mut second] = [(); 2].map(|()| timer.sleep(Duration::from_secs(60)));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending(), "it tries again in 10 ms");
    timeouts::global().shutdown();
    assert!(second.as_mut().poll(&mut context).is_ready());
}
