//! `tokio_util::time::DelayQueue` on a paused runtime: it needs a runtime's clock and a `Sleep`.
//!
//! * Deadlines are given as instants (`insert_at`, `reset_at`): it reads no clock for them.
//! * It is polled outside of any task, without cooperative budget, and only if it has woken its
//!   waker.
//! * `tokio::time::advance` moves the clock and lets the runtime's timer see it. That does not
//!   count, although the timer's share of waking the queue is in it. Steps without a wake cost
//!   nothing.
//! * `remove` does not look first whether the key is there.
//!
//! What counts is what every user pays: a new `Sleep` for each entry that the queue hands out, and
//! moving its `Sleep` along with its first deadline.

use super::{Account, Timers};
use crate::process::busy;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_util::time::delay_queue::Key;

/// Whether the queue wants to be polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // There is one thread: no order is needed.
        self.0.store(true, Ordering::Relaxed);
    }
}

pub struct DelayQueue {
    // The queue is dropped before the runtime, which its timer is on.
    queue: tokio_util::time::DelayQueue<u64>,
    start: tokio::time::Instant,
    now: u64,
    account: Account,
    /// What looking at the clock costs.
    looking: Duration,
    woken: Arc<Woken>,
    waker: Waker,
    runtime: Rc<Runtime>,
}

/// A runtime whose clock stands still.
pub fn paused() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without threads or I/O")
}

#[inline]
fn tell(runtime: &Runtime, step: u64) {
    runtime.block_on(tokio::time::advance(Duration::from_millis(step)));
}

impl DelayQueue {
    #[inline]
    fn instant(&self, deadline: u64) -> tokio::time::Instant {
        self.start + Duration::from_millis(deadline)
    }
}

impl Timers for DelayQueue {
    const NAME: &'static str = "tokio_util DelayQueue";
    const ASKED: bool = false;
    type Id = Key;

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        let runtime = Rc::new(paused());
        let _context = runtime.enter();
        // It has no waker yet, so it has to be polled once.
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        f(DelayQueue {
            queue: tokio_util::time::DelayQueue::new(),
            start: tokio::time::Instant::now(),
            now: 0,
            account: Account::default(),
            looking: (0..1000)
                .map(|_| {
                    let began = busy();
                    busy() - began
                })
                .min()
                .unwrap_or_default(),
            waker: woken.clone().into(),
            woken,
            runtime: runtime.clone(),
        })
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> Key {
        let at = self.instant(deadline);
        self.queue.insert_at(value, at)
    }

    #[inline]
    fn reschedule(&mut self, id: &mut Key, deadline: u64, _value: u64) {
        let at = self.instant(deadline);
        self.queue.reset_at(id, at);
    }

    #[inline]
    fn cancel(&mut self, id: Key) -> bool {
        self.queue.remove(&id);
        true
    }

    #[inline]
    fn advance(&mut self, now: u64, mut fired: impl FnMut(u64)) {
        let called = busy();
        tell(&self.runtime, now - self.now);
        self.now = now;
        if self.woken.0.load(Ordering::Relaxed) {
            self.woken.0.store(false, Ordering::Relaxed);
            let began = busy();
            let mut context = Context::from_waker(&self.waker);
            while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
                fired(expired.into_inner());
            }
            let took = busy() - began;
            self.account.own += took.saturating_sub(self.looking);
        }
        self.account.all += busy() - called + self.looking;
    }

    fn account(&mut self) -> Option<Account> {
        Some(std::mem::take(&mut self.account))
    }
}
