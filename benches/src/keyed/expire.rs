//! The cost of expiring: the caller lets every entry expire, and key and value are dropped.
//!
//! A store gets the time from the harness if it can. `moka` goes by the machine's time: it gets
//! time to be filled, and is called when the entries are due; the processor time of the calls
//! counts. Values count how many of them are left. For stores that free memory in grace periods the
//! harness calls [`Store::tidy`] until none is left, or the count stops falling. That counts as
//! well.

use super::{Counted, Key, Setup, Store, Time, Value, INTERVAL};
use crate::process::busy;
use crate::wheel::permutation;
use crate::window::below;
use expiry::ManualClock;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// All at the same time, or, by the machine's time, before the first poll.
    Mass,
    /// Each at a random time within ten seconds, which go by in steps of 100 ms.
    Spread,
    /// Each at a random time within a minute, which goes by in steps of 1 ms.
    Fine,
    /// As [`Fine`](Due::Fine), and each is renewed once before, in random order, until another
    /// random time within that minute.
    Touched,
}

impl Due {
    /// The times at which the first and the last may be due, the one after the other.
    fn within(self) -> Duration {
        match self {
            Due::Mass => Duration::ZERO,
            Due::Spread => Duration::from_secs(10),
            Due::Fine | Due::Touched => Duration::from_secs(60),
        }
    }

    /// The steps in which time goes by, and the interval of the stores.
    fn step(self) -> Duration {
        match self {
            Due::Mass | Due::Spread => INTERVAL,
            Due::Fine | Due::Touched => Duration::from_millis(1),
        }
    }

    /// The `n`th of these times, after the first one, in nanoseconds.
    fn draw(self, n: u64) -> u64 {
        below(!n, self.within().as_nanos() as u64)
    }
}

/// The result of a round: nanoseconds for each entry, and values that were not dropped in the end.
pub type Expiry = (f64, i64);

/// Calls in which nothing moves before it is said that nothing will.
const IDLE: u32 = 5000;

/// Fills a store, then times what it takes to expire everything. `V` is [`Counted`], or nothing at
/// all.
pub fn run<K: Key, V: Value, S: Store<K, V>>(entries: usize, due: Due) -> Expiry {
    // Nothing is due before. By the machine's time filling must not take longer; if it does, there
    // is another attempt.
    let first = if S::REAL { 200_000 + 6 * entries as u64 } else { 20_000_000 };
    let mut firsts = (0..).map(|doubled| Duration::from_micros(first << doubled));
    firsts.find_map(|first| attempt::<K, V, S>(entries, due, first)).expect("endless")
}

/// As [`run`], with nothing due before `first`. `None` if by the machine's time an entry was due
/// before the store was full.
fn attempt<K: Key, V: Value, S: Store<K, V>>(
    entries: usize,
    due: Due,
    first: Duration,
) -> Option<Expiry> {
    let clock = ManualClock::new();
    let time = Time::Simulated(clock.clone());
    let store = S::new(&Setup { time: &time, entries, timeout: first, interval: due.step() });
    let nanos = |time: Duration| time.as_nanos() as u64;
    let alive = Counted::alive();
    let took = store.on_thread(|| {
        let began = Instant::now();
        let timeout = |n| match due {
            Due::Mass => nanos(first),
            _ if S::REAL => nanos(first.saturating_sub(began.elapsed())) + due.draw(n),
            _ => nanos(first) + due.draw(n),
        };
        let mut handles = Vec::with_capacity(entries);
        for n in 0..entries as u64 {
            let (_, handle) = store.insert(K::make(n), V::make(n), time.now(), timeout(n));
            handles.push(handle);
        }
        if due == Due::Touched {
            for at in permutation(entries, 1) {
                let (n, handle) = (u64::from(at), handles[at as usize]);
                let (key, value) = (K::make(n), V::make(n));
                let renewed = store.touch(&key, handle, value, time.now(), timeout(!n));
                assert!(renewed, "{}: not renewed", S::NAME);
            }
        }
        drop(handles);
        // Growth is not expiry.
        let early = store.advance(0);
        if S::REAL && began.elapsed() >= first {
            return None;
        }
        assert!(early == 0 && store.live() == entries, "{}: early", S::NAME);
        let from = match due {
            Due::Mass => first + began.elapsed(),
            _ => first,
        };
        let last = from + due.within() + INTERVAL * 12;
        let (mut expired, mut at) = (0, from);
        // One reading for all steps: it takes longer than a step in which nothing is due.
        let called = busy();
        while at < last {
            at = match due {
                Due::Mass => last,
                _ => at + due.step(),
            };
            if S::REAL {
                std::thread::sleep(at.saturating_sub(began.elapsed()));
            } else {
                clock.set(nanos(at));
            }
            expired += store.advance(nanos(at));
        }
        let mut took = busy() - called;
        // This does the work that a call has put off, until nothing moves any more.
        let (called, mut seen, mut idle, mut more) = (busy(), i64::MAX, 0, Duration::ZERO);
        while idle < IDLE {
            expired += store.advance(nanos(last));
            store.tidy();
            let left = Counted::alive() - alive + store.live() as i64;
            idle += 1;
            if left < seen {
                (seen, idle, more) = (left, 0, busy() - called);
            }
            if left <= 0 {
                break;
            }
        }
        took += more;
        assert!(!S::WORKS || store.live() == 0, "{}: immortal", S::NAME);
        assert!(!S::WORKS || expired == entries, "{}: expired {expired}", S::NAME);
        Some(took)
    });
    took.map(|took| (took.as_nanos() as f64 / entries as f64, Counted::alive() - alive))
}
