//! Tests of the public interface, in one program. Time is a [`ManualClock`]'s or tokio's paused
//! one, and no runtime has a time driver but where a test says so.

mod body;
mod clock;
#[allow(dead_code)] // these tests use one of them
#[path = "../../../tests/it/support/clocks.rs"]
mod clocks;
mod deadline;
mod examples;
mod idle;
mod layer;
mod limits;
mod owned;
mod timer;

use expiry::{ManualClock, Timeouts, TimeoutsBuilder};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Timeouts that a test drives.
struct Manual {
    clock: ManualClock,
    timeouts: &'static Timeouts,
}

impl Manual {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(TimeoutsBuilder) -> TimeoutsBuilder) -> Self {
        let clock = ManualClock::new();
        let builder = settings(Timeouts::builder().clock(clock.clone()));
        let timeouts = Box::leak(Box::new(builder.build_manual().expect("good settings")));
        Manual { clock, timeouts }
    }

    /// Time goes by, and what is due is woken.
    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        while self.timeouts.poll(1000).more {}
    }

    fn registered(&self) -> u64 {
        self.timeouts.metrics().registered
    }
}

/// Counts the calls of its waker.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Woken {
    fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::new(Woken::default());
        (woken.clone(), woken.into())
    }

    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs `future` in a runtime that has no driver at all.
fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}
