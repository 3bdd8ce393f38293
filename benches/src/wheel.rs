//! Timers at work: what is asked of each of [`timers`](crate::timers), and what is timed of it.
//!
//! [`operations`] takes a fresh structure through a fixed course, for a [`Load`] of so many timers
//! over an hour. The load draws deadlines, and the order in which timers are touched, before. Time
//! stands still except where timers fire.
//!
//! | step | timed as |
//! |---|---|
//! | schedule all, from a structure of default size | schedule, growing |
//! | move each once, cancel each, let two hours pass | |
//! | schedule all again: the memory is there | |
//! | move each once | reschedule |
//! | cancel each | cancel |
//! | let two hours pass, with one timer beyond them | clear away |
//! | schedule all again | schedule |
//! | an hour in steps of 1 s, everything fires | fire, 1 s steps |
//! | schedule all again; an hour in steps of 1 ms, everything fires | fire, 1 ms steps |
//!
//! A lazy structure leaves something behind when a timer is moved or cancelled, and pays for it
//! later. `clear away` shows that cost for each such timer. The one timer beyond is there because
//! an empty structure may forget all at once. The names of timers lie in an array by position. The
//! harness gathers 16 of them at a time, so that its own cache misses overlap.
//!
//! [`lives`] keeps a window full while time goes on in steps of 1 s. Each life cancels the timer at
//! its position, which is ten minutes old, and schedules another, due in 20 to 60 minutes. One in a
//! hundred is left to fire. The timing begins after 70 minutes of this, when as much fires and as
//! much garbage goes as comes.
//!
//! [`pairs`] follows the load that `nexus-timer` publishes figures of, with 100,000 timers pending.
//! It differs in three points. The pending timers lie beyond an hour, so that none of them fires.
//! The timers that fire have names. What is timed is a million calls, not the median of single
//! ones.
//!
//! One thread does everything, and its time on a processor counts. Other load lengthens the run,
//! and affects the figures only by what is shared.

use crate::process::busy;
use crate::timers::Timers;
use crate::window::{below, mix};
use std::time::Duration;

pub const HOUR: u64 = 3_600_000;

const SECOND: u64 = 1000;

const GROUP: usize = 16;

/// Fewest operations of a kind that are timed together.
const LEAST: usize = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// All timeouts are the same, so each deadline is after the one before; the oldest is touched
    /// first.
    Uniform,
    /// Each at a random time within the hour; touched in random order.
    Random,
}

/// Timers, and what was drawn for them. It is made once, and all peers use it.
pub struct Load {
    pub entries: usize,
    pub due: Due,
    /// Deadlines, in milliseconds from the beginning of a course.
    deadlines: Vec<u32>,
    /// The deadline that each timer is moved to, in the order of `order`.
    moved: Vec<u32>,
    /// The order in which timers are moved and cancelled.
    order: Vec<u32>,
}

pub(crate) fn permutation(n: usize, seed: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..n as u32).collect();
    for at in (1..n).rev() {
        all.swap(at, below(seed + at as u64, at as u64 + 1) as usize);
    }
    all
}

/// Random milliseconds, of which none is `0` and none after `last`.
fn millis(seed: u64, last: u64) -> u32 {
    below(seed, last) as u32 + 1
}

impl Load {
    pub fn new(entries: usize, due: Due) -> Self {
        let n = entries as u64;
        match due {
            Due::Uniform => Load {
                entries,
                due,
                deadlines: (1..=n).map(|at| (at * HOUR / n) as u32).collect(),
                moved: (1..=n).map(|at| (HOUR + at * HOUR / n) as u32).collect(),
                order: (0..n as u32).collect(),
            },
            Due::Random => Load {
                entries,
                due,
                deadlines: (0..n).map(|at| millis(at, HOUR)).collect(),
                moved: (0..n).map(|at| millis(n + at, HOUR)).collect(),
                order: permutation(entries, 2 * n),
            },
        }
    }

    pub fn times(&self) -> usize {
        LEAST.div_ceil(self.entries)
    }
}

/// What is timed of a course, in the order in which it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Grow,
    Schedule,
    Reschedule,
    Cancel,
    /// Time that passes what moves and cancellations have left.
    Clear,
    /// An hour in steps of a second, for each timer that fires.
    FireSeconds,
    /// An hour in steps of a millisecond, for each timer that fires.
    FireMillis,
}

impl Op {
    pub const ALL: [(Op, &str); 7] = [
        (Op::Grow, "schedule, growing"),
        (Op::Schedule, "schedule"),
        (Op::Reschedule, "reschedule"),
        (Op::Cancel, "cancel"),
        (Op::Clear, "clear away"),
        (Op::FireSeconds, "fire, 1 s steps"),
        (Op::FireMillis, "fire, 1 ms steps"),
    ];
}

/// Nanoseconds that each operation took, by [`Op`].
pub type Course = [f64; Op::ALL.len()];

#[inline(always)]
fn gather<I: Copy>(names: &mut Vec<I>, ids: &[I], at: &[u32]) {
    names.clear();
    names.extend(at.iter().map(|&at| ids[at as usize]));
}

struct Lab<'a, T: Timers> {
    timers: T,
    load: &'a Load,
    ids: Vec<T::Id>,
    /// When this course began, and what time it is.
    base: u64,
    now: u64,
    /// Timers that have fired, and the sum of their values.
    fired: (u64, u64),
    took: [(Duration, usize); Op::ALL.len()],
}

impl<T: Timers> Lab<'_, T> {
    fn timed(&mut self, op: Option<Op>, f: impl FnOnce(&mut Self)) {
        let began = busy();
        f(self);
        let all = busy() - began;
        // Steps in which time passes call nothing else.
        let all = match (op, self.timers.account()) {
            (Some(Op::Clear | Op::FireSeconds | Op::FireMillis), Some(account)) => account.own,
            _ => all,
        };
        if let Some(op) = op {
            let (took, count) = &mut self.took[op as usize];
            *took += all;
            *count += self.load.entries;
        }
    }

    fn schedule(&mut self, op: Option<Op>) {
        self.ids.clear();
        self.base = self.now;
        let base = self.base;
        self.timed(op, |lab| {
            for (value, &deadline) in lab.load.deadlines.iter().enumerate() {
                let id = lab.timers.schedule(base + u64::from(deadline), value as u64);
                lab.ids.push(id);
            }
        });
    }

    fn reschedule(&mut self, op: Option<Op>) {
        let base = self.base;
        self.timed(op, |lab| {
            let mut names = Vec::with_capacity(GROUP);
            let load = lab.load;
            for (at, moved) in load.order.chunks(GROUP).zip(load.moved.chunks(GROUP)) {
                gather(&mut names, &lab.ids, at);
                for ((&value, &deadline), id) in at.iter().zip(moved).zip(&mut names) {
                    let deadline = base + u64::from(deadline);
                    lab.timers.reschedule(id, deadline, u64::from(value));
                }
                for (&at, &id) in at.iter().zip(&names) {
                    lab.ids[at as usize] = id;
                }
            }
        });
    }

    fn cancel(&mut self, op: Option<Op>) {
        let mut cancelled = 0;
        self.timed(op, |lab| {
            let mut names = Vec::with_capacity(GROUP);
            for at in lab.load.order.chunks(GROUP) {
                gather(&mut names, &lab.ids, at);
                for &id in &names {
                    cancelled += usize::from(lab.timers.cancel(id));
                }
            }
        });
        assert_eq!(cancelled, self.load.entries, "{}", T::NAME);
    }

    #[inline]
    fn step(&mut self, now: u64) {
        self.now = now;
        let (count, sum) = &mut self.fired;
        self.timers.advance(now, |value| {
            *count += 1;
            *sum += value;
        });
    }

    /// An hour, after which everything must have fired.
    fn fire(&mut self, op: Op, step: u64) {
        self.fired = (0, 0);
        let _ = self.timers.account();
        self.timed(Some(op), |lab| {
            for n in 1..=HOUR / step {
                lab.step(lab.base + n * step);
            }
            for &id in &lab.ids {
                lab.timers.release(id);
            }
        });
        self.check(self.load.entries);
    }

    fn check(&self, fired: usize) {
        let n = fired as u64;
        if T::WORKS {
            assert_eq!(self.fired, (n, n * n.saturating_sub(1) / 2), "{}", T::NAME);
        }
    }

    /// Two hours, in which everything goes that was left of moves and cancellations.
    fn clear(&mut self, op: Option<Op>) {
        let later = self.base + 2 * HOUR;
        let beyond = self.timers.schedule(later + 1, 0);
        self.fired = (0, 0);
        let _ = self.timers.account();
        self.timed(op, |lab| lab.step(later));
        self.check(0);
        assert!(self.timers.cancel(beyond), "{}", T::NAME);
        self.step(later + 1);
        self.check(0);
    }

    /// Schedules, moves, cancels, and lets the time go by in which something is left of them. A
    /// growing structure is not timed together with one that does not grow.
    fn round(&mut self, first: bool) {
        let when = |op| (!first).then_some(op);
        self.schedule(first.then_some(Op::Grow));
        self.reschedule(when(Op::Reschedule));
        self.cancel(when(Op::Cancel));
        self.clear(when(Op::Clear));
    }
}

pub fn operations<T: Timers>(load: &Load) -> Course {
    T::with(|timers| {
        let mut lab = Lab {
            timers,
            load,
            ids: Vec::with_capacity(load.entries),
            base: 0,
            now: 0,
            fired: (0, 0),
            took: Default::default(),
        };
        lab.round(true);
        for _ in 0..load.times() {
            lab.round(false);
            lab.schedule(Some(Op::Schedule));
            lab.fire(Op::FireSeconds, SECOND);
        }
        lab.schedule(None);
        lab.fire(Op::FireMillis, 1);
        lab.took.map(|(took, count)| took.as_nanos() as f64 / count.max(1) as f64)
    })
}

/// Lives, of which one in a hundred fires. They are made once, and all peers use them.
pub struct Lives {
    /// How many timers are in the window, besides those that were left to fire.
    pub window: usize,
    pub lives: usize,
    order: Vec<u32>,
    timeouts: Vec<u32>,
}

const LIFE: u64 = HOUR / 6;

/// Timeouts are drawn once and come round.
const TIMEOUTS: usize = 1 << 16;

impl Lives {
    pub fn new(window: usize) -> Self {
        Lives {
            window,
            lives: window.max(LEAST),
            order: permutation(window, 0),
            timeouts: (0..TIMEOUTS as u64)
                .map(|n| millis(n, HOUR - 2 * LIFE) + 2 * LIFE as u32)
                .collect(),
        }
    }
}

/// Nanoseconds that a life takes: cancel and schedule, and whatever becomes due or must be cleaned
/// up meanwhile.
pub fn lives<T: Timers>(lives: &Lives) -> f64 {
    T::with(|mut timers| {
        let n = lives.window as u64;
        let timeout = |life: u64| u64::from(lives.timeouts[life as usize % TIMEOUTS]);
        let left = |life: u64| mix(life).is_multiple_of(100);
        let mut ids: Vec<T::Id> = Vec::with_capacity(lives.window);
        let mut fired = 0_u64;
        // Scheduled by position; `order` says how old each position is taken to be.
        for life in 0..n {
            ids.push(timers.schedule(timeout(life), life));
        }
        let (mut now, mut cancelled) = (0, 0);
        let mut live = |timers: &mut T, from: u64, to: u64| {
            let mut names = Vec::with_capacity(GROUP);
            for group in (from..to).step_by(GROUP) {
                let group = group..(group + GROUP as u64).min(to);
                let at = |life: u64| lives.order[(life % n) as usize] as usize;
                names.clear();
                names.extend(group.clone().map(|life| ids[at(life)]));
                for (life, &id) in group.zip(&names) {
                    let second = life * LIFE / n / SECOND * SECOND;
                    if second > now {
                        now = second;
                        timers.advance(now, |_| fired += 1);
                    }
                    // This cancels the timer of the earlier life at this position.
                    if left(life) {
                        timers.release(id);
                    } else {
                        assert!(timers.cancel(id));
                        cancelled += 1;
                    }
                    ids[at(life)] = timers.schedule(now + timeout(life), life);
                }
            }
        };
        let warm = n * 7;
        live(&mut timers, 0, warm);
        let _ = timers.account();
        let began = busy();
        live(&mut timers, warm, warm + lives.lives as u64);
        let mut took = busy() - began;
        if let Some(account) = timers.account() {
            took = (took + account.own).saturating_sub(account.all);
        }
        timers.advance(now + HOUR + SECOND, |_| fired += 1);
        ids.into_iter().for_each(|id| timers.release(id));
        let all = n + warm + lives.lives as u64;
        assert!(!T::WORKS || cancelled + fired == all, "{}", T::NAME);
        took.as_nanos() as f64 / lives.lives as f64
    })
}
