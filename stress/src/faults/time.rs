//! Faults of time: the reaper stalled, the clock standing still, the clock jumping.

use super::ground::{Ground, Stoppable, Way};
use expiry::{ManualClock, MonotonicClock, RemovalCause};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// A gate at which the first handler waits until it opens.
#[derive(Default)]
struct Gate {
    /// Whether a handler has come; whether the gate is open.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn state(&self) -> std::sync::MutexGuard<'_, (bool, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        let mut state = self.state();
        if state.0 {
            return;
        }
        state.0 = true;
        while !state.1 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open(&self) {
        self.state().1 = true;
        self.changed.notify_all();
    }
}

/// A handler blocks the reaper's thread. No other thread waits for it, polls do its work at the
/// other shards, and it catches up.
pub fn reaper_blocked(ground: &Ground) {
    let clock = Arc::new(MonotonicClock::new());
    let gate = Arc::new(Gate::default());
    let pass = gate.clone();
    let subject = ground.subject(clock.clone(), true, move |_, cause| {
        if cause == RemovalCause::Expired {
            pass.pass();
        }
    });
    ground.put(&*subject, &*clock, 5 * MS);
    let blocked = ground.wait("the reaper at the first entry", || gate.state().0);
    let began = Instant::now();
    // As long as it takes on a busy machine for the others to have gone on.
    let stalled = || {
        let (sums, past) = (ground.book.sums(), began.elapsed());
        let hardly = sums.accepted <= 100 || sums.expired <= 1;
        past < ground.options.stall || (hardly && past < ground.options.limit / 2)
    };
    let poll = || {
        if blocked {
            subject.poll();
        }
        std::thread::sleep(MS);
    };
    let work = |thread| {
        let timeout = (5 + 5 * (thread as u32 % 4)) * MS;
        let way = Way { place: thread, timeout, expects: None };
        ground.churn((&*subject, &*clock), way, |_| stalled());
    };
    // A thread whose part of the book is full is done before the others.
    ground.crowd((1, poll), work, || {
        while stalled() && blocked {
            std::thread::sleep(MS);
        }
    });
    let held_back = ground.book.sums();
    ground.expect(held_back.accepted > 100, || {
        format!("threads have hardly gone on beside a blocked reaper: {held_back:?}")
    });
    ground.expect(held_back.expired > 1, || {
        format!("polls beside a blocked reaper have found nothing: {held_back:?}")
    });
    gate.open();
    ground.settle_real(subject);
}

/// The clock stands still: nothing expires, and all else goes on. Then the clock moves, and all is
/// as it should be.
pub fn clock_stands_still(ground: &Ground) {
    polled(ground);
    let next = ground.again();
    // This is with a reaper, which sleeps by the machine's time.
    let clock = Stoppable::new();
    let subject = next.subject(Arc::new(clock.clone()), true, |_, _| ());
    next.put(&*subject, &clock, 5 * MS);
    clock.stop();
    let before = next.book.sums().expired;
    let (began, stall) = (Instant::now(), next.options.stall / 2);
    let work = |thread| {
        let way = Way { place: thread, timeout: 5 * MS, expects: None };
        next.churn((&*subject, &clock), way, |_| began.elapsed() < stall);
    };
    next.crowd((0, || ()), work, || ());
    // Entries that were on their way when the clock stopped may have expired.
    let expired = next.book.sums().expired - before;
    next.expect(expired <= 1, || format!("{expired} entries expired while the clock stood still"));
    clock.go();
    next.settle_real(subject);
}

fn polled(ground: &Ground) {
    let clock = ManualClock::new();
    clock.advance(SECOND);
    let subject = ground.subject(Arc::new(clock.clone()), false, |_, _| ());
    let quota = ground.options.size / ground.options.threads / 2;
    let work = |thread| {
        let way = Way { place: thread, timeout: MS, expects: None };
        ground.churn((&*subject, &clock), way, |rounds| rounds < quota);
    };
    ground.crowd((1, || subject.poll()), work, || ());
    let sums = ground.book.sums();
    ground.expect(sums.expired == 0, || {
        format!("entries expired while the clock stood still: {sums:?}")
    });
    ground.settle_manual(subject, &clock, SECOND);
}

/// A jump by 2^40 ticks or more wraps around all bits of a deadline. A thread that has slept
/// through the jump may insert an entry where another thread has just done so: the engine takes one
/// of the two for an old one. No such jump comes in the middle of operations.
const ROUND: Duration = Duration::from_millis(1 << 40);

/// The clock jumps forwards while threads and pollers run, by more each time, and to its end at
/// last.
pub fn clock_jumps(ground: &Ground) {
    // From 2^38 ticks of a millisecond on (8.7 years) the bits of a deadline are ambiguous; 2^40
    // are 34.8 years.
    let jumps = [
        SECOND,
        3600 * SECOND,
        DAY,
        365 * DAY,
        9 * 365 * DAY,
        18 * 365 * DAY,
        35 * 365 * DAY,
        100 * 365 * DAY,
    ];
    let clock = ManualClock::new();
    let subject = ground.subject(Arc::new(clock.clone()), false, |_, _| ());
    let quota = ground.options.size / ground.options.threads / jumps.len() as u32;
    for jump in jumps {
        let work = |thread| {
            let timeout = (1 + thread as u32 % 3) * SECOND;
            let way = Way { place: thread, timeout, expects: None };
            ground.churn((&*subject, &clock), way, |rounds| {
                // The first thread moves the clock, in the middle of its operations.
                if rounds == quota / 2 && thread == 0 && jump < ROUND {
                    clock.advance(jump);
                }
                rounds < quota
            });
        };
        ground.crowd((2, || subject.poll()), work, || ());
        // Between operations: earlier entries must not survive the jump, and later ones must not
        // suffer from it.
        ground.put(&*subject, &clock, SECOND);
        clock.advance(jump);
        ground.put(&*subject, &clock, SECOND);
        subject.poll();
        clock.advance(4 * SECOND);
        ground.wait("the end of all before a jump", || {
            subject.poll();
            subject.len() == 0
        });
    }
    let sums = ground.book.sums();
    ground
        .expect(sums.expired > 0 && sums.closed == 0, || format!("nothing has expired: {sums:?}"));
    clock.set(u64::MAX);
    ground.put(&*subject, &clock, SECOND);
    subject.poll();
    subject.shutdown();
    ground.closed(&subject);
    ground.balanced();
}
