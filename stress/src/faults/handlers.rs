//! Faults of handlers: they panic, come back into what has called them, and shut it down.

use super::ground::{Ground, Put, Way};
use crate::latency::nanos;
use crate::subject::{Kind, Refusal, Subject};
use expiry::{Clock, ManualClock, MonotonicClock, RemovalCause};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// What a handler comes back to.
type Home = Arc<OnceLock<Weak<dyn Subject>>>;

/// Lets all threads at a subject, each for its share of the entries.
fn all_at(ground: &Ground, subject: &dyn Subject, clock: &dyn Clock, divisor: u32) {
    let quota = ground.options.size / ground.options.threads / divisor;
    let work = |thread| {
        let timeout = (2 + 3 * (thread as u32 % 4)) * MS;
        let way = Way { place: thread, timeout, expects: Some(Refusal::Closed) };
        ground.churn((subject, clock), way, |rounds| rounds < quota);
    };
    ground.crowd((0, || ()), work, || ());
}

/// Every third call panics: the engine catches and counts it, and no thread or entry suffers from
/// it.
pub fn handlers_panic(ground: &Ground) {
    let clock = Arc::new(MonotonicClock::new());
    let (calls, panics) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let (kind, counted) = (ground.kind, panics.clone());
    let subject = ground.subject(clock.clone(), true, move |_, cause| {
        // A queue calls its handler for what expires. This program itself records what is removed.
        let called = kind != Kind::Queue || cause == RemovalCause::Expired;
        if called && calls.fetch_add(1, Relaxed) % 3 == 0 {
            counted.fetch_add(1, Relaxed);
            // This avoids the hook, which would print.
            std::panic::resume_unwind(Box::new("planned"));
        }
    });
    all_at(ground, &*subject, &*clock, 2);
    ground.wait("the end of everything", || subject.len() == 0);
    let mut seen = (0, 0);
    ground.wait("the count of panics", || {
        seen = (subject.counts().panics, panics.load(Relaxed));
        seen.0 == seen.1
    });
    ground.expect(seen.1 > 0, || "no handler has panicked".into());
    ground.settle_real(subject);
}

thread_local! {
    /// How deep in handlers this thread is.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Handlers begin, renew, end and look up entries of the very subject that has called them, and
/// poll it.
pub fn handlers_reenter(ground: &Ground) {
    let clock = Arc::new(MonotonicClock::new());
    let subject = Back::into(ground, clock.clone(), true);
    all_at(ground, &*subject, &*clock, 4);
    ground.settle_real(subject);

    // The same in polls, where the clock decides when they find something.
    let next = ground.again();
    let clock = ManualClock::new();
    let subject = Back::into(&next, Arc::new(clock.clone()), false);
    all_at(&next, &*subject, &clock, 4);
    for _ in 0..20 {
        clock.advance(MS);
        subject.poll();
    }
    next.wait("the end of what handlers begin", || {
        clock.advance(MS);
        subject.poll();
        subject.len() == 0
    });
    next.settle_manual(subject, &clock, Duration::from_secs(1));
}

/// A handler that comes back.
struct Back {
    ground: Ground,
    home: Home,
    clock: Arc<dyn Clock>,
    calls: AtomicU64,
}

impl Back {
    /// A subject into which its own handler comes back.
    fn into(ground: &Ground, clock: Arc<dyn Clock>, reaper: bool) -> Arc<dyn Subject> {
        let home = Home::default();
        let back = Back {
            ground: ground.clone(),
            home: home.clone(),
            clock: clock.clone(),
            calls: AtomicU64::new(0),
        };
        let subject = ground.subject(clock, reaper, move |number, _| back.come(number));
        // Set once, here.
        let _ = home.set(Arc::downgrade(&subject));
        subject
    }

    fn come(&self, number: u64) {
        let Some(subject) = self.home.get().and_then(Weak::upgrade) else {
            return;
        };
        let depth = DEPTH.get();
        if depth >= 3 {
            return;
        }
        DEPTH.set(depth + 1);
        let call = self.calls.fetch_add(1, Relaxed);
        self.ground.operations.fetch_add(1, Relaxed);
        match call % 5 {
            0 => drop(self.ground.put(&*subject, &*self.clock, 3 * MS)),
            1 => {
                // A neighbouring entry, which exists or not.
                subject.end(number ^ 1);
            }
            2 => {
                let not_before = self.clock.now() + nanos(2 * MS);
                let neighbour = number ^ 2;
                if subject.renew(neighbour, 20 * MS) {
                    self.ground.book.renewed(neighbour, not_before);
                }
            }
            3 => subject.poll(),
            _ => {
                subject.len();
                if call % 1000 == 4 {
                    subject.is_there(number);
                }
            }
        }
        DEPTH.set(depth);
    }
}

/// A handler shuts down the store that has called it, in a poll and on the reaper's thread, while
/// threads use the store.
pub fn handlers_shut_down(ground: &Ground) {
    for reaper in [false, true] {
        let next = ground.again();
        let clock = Arc::new(MonotonicClock::new());
        let home: Home = Arc::default();
        let (calls, back) = (AtomicUsize::new(0), home.clone());
        let at = next.options.size as usize / 100;
        let asked = Arc::new(AtomicBool::new(false));
        let said = asked.clone();
        let subject = next.subject(clock.clone(), reaper, move |_, cause| {
            if cause != RemovalCause::Expired || calls.fetch_add(1, AcqRel) != at {
                return;
            }
            if let Some(subject) = back.get().and_then(Weak::upgrade) {
                subject.shutdown();
                said.store(true, Release);
            }
        });
        let _ = home.set(Arc::downgrade(&subject));
        // There are so many that something is left to be shut down.
        for _ in 0..next.options.size / 10 {
            next.put(&*subject, &*clock, Duration::from_secs(3600));
        }
        let work = |thread| {
            let began = Instant::now();
            let way = Way { place: thread, timeout: 2 * MS, expects: Some(Refusal::Closed) };
            next.churn((&*subject, &*clock), way, |_| {
                !asked.load(Acquire) && began.elapsed() < next.options.limit / 4
            });
        };
        next.crowd((usize::from(!reaper), || subject.poll()), work, || {
            next.wait("the shutdown by a handler", || asked.load(Acquire));
            // The reaper does the rest; of a map, a polling thread may do it.
            if reaper || next.kind == Kind::Map {
                next.wait("the end of what was left", || subject.len() == 0);
            }
        });
        // If a handler asks a tracker for this in a poll, the tracker leaves it to a call from
        // outside.
        subject.shutdown();
        let refused = next.put(&*subject, &*clock, MS);
        let closed = matches!(refused, Some(Put::Refused(_)) | None);
        next.expect(closed, || "an entry was accepted after the shutdown".into());
        next.closed(&subject);
        if reaper && next.kind == Kind::Queue {
            // In its handler, a queue's shutdown ends what is left without delivering it, as its
            // docs say. The count shows those ends. It may contain entries that were in for a
            // moment, and were refused.
            let (sums, closed) = (next.book.sums(), subject.counts().closed as usize);
            let ended = sums.told - sums.closed + closed;
            let right = (sums.accepted..=sums.accepted + sums.refused).contains(&ended);
            next.expect(right, || format!("{closed} closed, {sums:?}"));
        } else {
            next.balanced();
        }
    }
}
