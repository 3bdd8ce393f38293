//! Recording: what is called on an object at full speed, what it answers, and when.
//!
//! # Times
//!
//! A call's interval must contain the real one: from before its first access to the object's memory to when its last one is to be
//! seen by all. Too wide an interval only permits more explanations; too narrow a one would refuse sound histories.
//!
//! * Readings are [`Instant`]'s, `CLOCK_MONOTONIC` on Linux: one clock for all threads, which never goes back, be it that they are on
//!   different cores. [`Time::is_in_order`] puts that to the test before each run.
//! * Before a call: the reading is stored, then there is a sequentially consistent fence, then the call. The fence waits for
//!   the store, and the store for the reading; no access of the call is made before the fence.
//! * After it: a fence, then the reading. What the call has stored can be seen by all when the fence is through, and the reading is not
//!   made before that (where the counter could be read out of order, the system's clock has a barrier before it).
//!
//! The fences are outside of calls: within, the engine's own orderings are all there is. They order one call of a thread
//! before its next one, which is what an order in real time asks for. Nothing is written that another thread looks at.
//!
//! # The object's clock
//!
//! A manual one, moved on by everybody now and then, so that time passes whoever gets the processor, and by a driver, the only one who
//! polls, between which it lets the others go on. Each call notes the tick before and after. So an expiry is a call like others: made by the thread that tells it, from when its poll (or whatever it did) began
//! to when it was told.

use super::check::{Call, Model};
use crate::checks::Checks;
use expiry::ManualClock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::atomic::{fence, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The longest timeout, in ticks. Short, so that much expires.
pub const LONGEST: u32 = 8;

/// A tick: the shortest interval that there is.
const INTERVAL: Duration = Duration::from_micros(10);

/// More than ever fit.
const MANY: u64 = 1 << 20;

/// After how many operations, on average, a thread lets a tick go by.
const TICK_EVERY: f64 = 24.0;

/// The most ticks that the driver lets go by at once.
const STRIDE: u32 = 3;

/// The longest that the driver lets the others go on between two polls, in nanoseconds.
const PAUSE: u64 = 4_000;

/// How often a reading is handed to another thread to see whether its own are later.
const HANDED: u64 = 200;

/// The time of calls, and the object's.
#[derive(Debug, Clone)]
pub struct Time {
    origin: Instant,
    clock: ManualClock,
    told: Arc<AtomicU64>,
}

/// Why an end was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Expired,
    Acked,
    Failed,
    Other,
}

/// An end that this thread was told of.
#[derive(Debug, Clone, Copy)]
pub struct Heard {
    pub key: u64,
    /// The value, or the owner.
    pub token: u64,
    pub kind: Kind,
    /// The tick that it was due at, where that is told.
    pub due: Option<u32>,
    at: u64,
    tick: u32,
}

thread_local!(static HEARD: RefCell<Vec<Heard>> = const { RefCell::new(Vec::new()) });

/// The first thing that this thread was told about a key and has not been looked at.
pub fn heard_of(key: u64) -> Option<Heard> {
    HEARD.with_borrow_mut(|heard| {
        let at = heard.iter().position(|one| one.key == key)?;
        Some(heard.remove(at))
    })
}

impl Time {
    pub fn new() -> Self {
        Time { origin: Instant::now(), clock: ManualClock::new(), told: Arc::default() }
    }

    pub fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    pub fn interval(&self) -> Duration {
        INTERVAL
    }

    /// So many ticks.
    pub fn ticks(&self, ticks: u32) -> Duration {
        INTERVAL * ticks
    }

    /// A duration in ticks.
    pub fn to_ticks(&self, time: Duration) -> u32 {
        (time.as_nanos() / INTERVAL.as_nanos()) as u32
    }

    fn tick(&self) -> u32 {
        use expiry::Clock;
        self.to_ticks(Duration::from_nanos(self.clock.now()))
    }

    #[inline]
    fn real(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Lets a tick go by.
    pub fn pass(&self) {
        self.clock.advance(INTERVAL);
    }

    /// A reading after everything that this thread has done.
    #[inline]
    fn after(&self) -> u64 {
        fence(SeqCst);
        self.real()
    }

    /// A reading before everything that this thread will do; into `kept` too.
    #[inline]
    fn before(&self, kept: &AtomicU64) -> u64 {
        let real = self.real();
        kept.store(real, Relaxed);
        fence(SeqCst);
        real
    }

    /// This thread is told of an end by a listener that takes its time: one time in four, a tick
    /// goes by.
    pub fn hear_slowly(&self, key: u64, token: u64, kind: Kind, due: Option<u32>) {
        thread_local!(static TURN: Cell<u32> = const { Cell::new(0) });
        TURN.set(TURN.get().wrapping_add(1));
        if TURN.get().is_multiple_of(4) {
            self.pass();
        }
        self.hear(key, token, kind, due);
    }

    /// This thread is told of an end.
    pub fn hear(&self, key: u64, token: u64, kind: Kind, due: Option<u32>) {
        self.note(key, token, kind, due);
        self.told.fetch_add(1, Relaxed);
    }

    /// This thread is told something that is no end, or that the object does not count as one.
    pub fn note(&self, key: u64, token: u64, kind: Kind, due: Option<u32>) {
        let tick = self.tick();
        let heard = Heard { key, token, kind, due, at: self.after(), tick };
        HEARD.with_borrow_mut(|all| all.push(heard));
    }

    /// How many ends all threads were told of.
    pub fn told(&self) -> u64 {
        self.told.load(Relaxed)
    }

    /// Whether readings of two threads are in the order in which they were made.
    pub fn is_in_order(&self) -> bool {
        let (turn, latest) = (AtomicU64::new(0), AtomicU64::new(0));
        let hand_on = |mine: u64| {
            let mut in_order = true;
            for number in (mine..HANDED).step_by(2) {
                while turn.load(Acquire) != number {
                    std::thread::yield_now();
                }
                let real = self.real();
                in_order &= real >= latest.swap(real, Relaxed);
                turn.store(number + 1, Release);
            }
            in_order
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| hand_on(1));
            let mine = hand_on(0);
            // A panic in there is a bug in this program: pass it on.
            mine & other.join().expect("a thread panicked")
        })
    }
}

/// What a thread notes.
pub struct Log<'a, D> {
    pub time: &'a Time,
    thread: u8,
    checks: &'a Checks,
    began: AtomicU64,
    calls: Vec<(u32, Call<D>)>,
    told: fn(&Heard) -> D,
}

impl<'a, D: Copy> Log<'a, D> {
    /// Makes a call on `key` and notes what it says of it. An error is a surprise.
    #[inline]
    pub fn call<E: Display>(&mut self, key: u32, call: impl FnOnce() -> Result<D, E>) -> Option<D> {
        let (timed, did) = self.timed(call);
        self.enter(key, timed, did)
    }

    /// As [`call`](Self::call), of one that is on several keys, or says on which it is.
    pub fn calls<E: Display>(&mut self, call: impl FnOnce() -> Vec<(u32, Result<D, E>)>) {
        let (timed, did) = self.timed(call);
        for (key, did) in did {
            self.enter(key, timed, did);
        }
    }

    #[inline]
    fn timed<R>(&mut self, call: impl FnOnce() -> R) -> (Call<()>, R) {
        let began = self.time.before(&self.began);
        let from = self.time.tick();
        let done = call();
        let to = self.time.tick();
        let ended = self.time.after();
        let since = self.hear(began, from);
        (Call { began, ended, from, to, since, thread: self.thread, did: () }, done)
    }

    #[inline]
    fn enter<E: Display>(&mut self, key: u32, timed: Call<()>, did: Result<D, E>) -> Option<D> {
        match did {
            Ok(did) => {
                self.calls.push((key, timed.with(did)));
                Some(did)
            }
            Err(error) => {
                self.checks.violated("no_surprises", || {
                    format!("a call on key {key} was refused: {error}")
                });
                None
            }
        }
    }

    /// Notes what this thread was told since `began`. The tick when that was last, `from` if it was
    /// told nothing.
    #[inline]
    fn hear(&mut self, began: u64, from: u32) -> u32 {
        let mut since = from;
        HEARD.with_borrow_mut(|all| {
            for heard in all.drain(..) {
                since = since.max(heard.tick);
                let call = Call {
                    began,
                    ended: heard.at,
                    from,
                    to: heard.tick,
                    since: from,
                    thread: self.thread,
                    did: (self.told)(&heard),
                };
                self.calls.push((heard.key as u32, call));
            }
        });
        since
    }
}

/// An object under load, made of many that are known by numbers: a map and its keys.
pub trait Subject: Sync {
    type Model: Model;
    /// What a thread keeps between its calls.
    type Knowledge: Send;
    /// The check that says whether the histories are linearizable.
    const CHECK: &'static str;
    /// What each is at first.
    const INITIAL: <Self::Model as Model>::State;

    fn knowledge(&self, thread: u8, keys: u32) -> Self::Knowledge;

    /// Makes a call, or a few, on a key.
    fn operate(
        &self,
        key: u32,
        known: &mut Self::Knowledge,
        luck: &mut SmallRng,
        log: &mut Log<'_, <Self::Model as Model>::Did>,
    );

    /// Drives expiry. What is told is [heard](Time::hear).
    fn poll(&self);

    /// What a poll is to each key; see [`Due::is_left`](super::due::Due::is_left).
    fn polled(since: u64) -> <Self::Model as Model>::Did;

    /// What an end is that was told and that no call has accounted for.
    fn told(heard: &Heard) -> <Self::Model as Model>::Did;

    /// That nothing may be there.
    fn over() -> <Self::Model as Model>::Did;

    /// Ends what does not expire.
    fn finish(&self) {}

    /// How many entries there are.
    fn left(&self) -> u64;

    /// How many have ended of those whose ends are told, by its own count.
    fn ended(&self) -> u64;

    /// Puts something in under this number. False if it is refused.
    fn put(&self, number: u64) -> bool;

    /// Puts in one number after the other, until one is refused, and says how often it was not.
    fn fill(&self) -> u64 {
        (0..MANY).take_while(|&number| self.put(number)).count() as u64
    }
}

/// How much is recorded at a time.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub threads: u8,
    pub keys: u32,
    /// Of each thread.
    pub operations: u32,
}

/// What was recorded.
pub struct Recorded<D> {
    /// Calls, each with its key, sorted by key and beginning.
    pub calls: Vec<(u32, Call<D>)>,
    /// The driver's polls, in order, each with the beginning of what was under way longest.
    pub polls: Vec<(u64, Call<()>)>,
    /// When all was over.
    pub end: u64,
    pub took: Duration,
}

/// Has all threads make calls until each has made its share, and lets all time pass.
pub fn record<S: Subject>(
    subject: &S,
    setting: Setting,
    time: &Time,
    seed: u64,
    checks: &Checks,
) -> Recorded<<S::Model as Model>::Did> {
    let Setting { threads, keys, operations } = setting;
    let log = |thread: u8, room: usize| Log {
        time,
        thread,
        checks,
        began: AtomicU64::new(0),
        calls: Vec::with_capacity(room),
        told: S::told,
    };
    // What this thread was told when an earlier object was dropped.
    HEARD.with_borrow_mut(Vec::clear);
    let busy = AtomicUsize::new(usize::from(threads));
    let start = Barrier::new(usize::from(threads) + 1);
    let mut luck = SmallRng::seed_from_u64(seed);
    let (mut logs, polls, driver, took) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let mut luck = SmallRng::from_rng(&mut luck);
                // Some operations are two calls, and some ends are heard of.
                let mut log = log(thread, operations as usize * 3);
                let (busy, start) = (&busy, &start);
                scope.spawn(move || {
                    let mut known = subject.knowledge(thread, keys);
                    start.wait();
                    for _ in 0..operations {
                        if luck.random_bool(1.0 / TICK_EVERY) {
                            time.pass();
                        }
                        let key = luck.random_range(0..keys);
                        subject.operate(key, &mut known, &mut luck, &mut log);
                    }
                    busy.fetch_sub(1, Release);
                    log.calls
                })
            })
            .collect();
        let mut driver = Driver {
            subject,
            log: log(setting.threads, operations as usize),
            polls: Vec::with_capacity(operations as usize),
        };
        start.wait();
        let began = Instant::now();
        driver.drive(&busy, &mut luck);
        let took = began.elapsed();
        // A panic in a thread is a bug in this program: pass it on.
        let logs: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect();
        driver.finish();
        (logs, driver.polls, driver.log.calls, took)
    });
    let polls = with_oldest(&polls, &logs);
    logs.push(driver);
    let mut calls = logs.concat();
    calls.sort_unstable_by_key(|(key, call)| (*key, call.began, call.ended));
    Recorded { calls, polls, end: time.after(), took }
}

/// Moves the clock on, and polls.
struct Driver<'a, S: Subject> {
    subject: &'a S,
    log: Log<'a, <S::Model as Model>::Did>,
    polls: Vec<Call<()>>,
}

impl<S: Subject> Driver<'_, S> {
    fn drive(&mut self, busy: &AtomicUsize, luck: &mut SmallRng) {
        while busy.load(Acquire) > 0 {
            self.log.time.clock.advance(INTERVAL * luck.random_range(1..=STRIDE));
            // What is due is to be seen by others too before it has ended.
            if luck.random() {
                self.pause(luck);
            }
            self.poll();
            self.pause(luck);
        }
    }

    fn pause(&self, luck: &mut SmallRng) {
        let until = self.log.time.real() + luck.random_range(0..PAUSE);
        while self.log.time.real() < until {
            std::hint::spin_loop();
        }
    }

    fn poll(&mut self) {
        let (poll, ()) = self.log.timed(|| self.subject.poll());
        self.polls.push(Call { since: poll.from, ..poll });
    }

    /// All that there is becomes due.
    fn finish(&mut self) {
        for _ in 0..2 {
            self.log.time.clock.advance(INTERVAL * (LONGEST + STRIDE));
            self.poll();
        }
        self.log.timed(|| self.subject.finish());
    }
}

/// To each poll, when the call began that had been under way longest then; if none was, when the poll began.
fn with_oldest<D>(polls: &[Call<()>], logs: &[Vec<(u32, Call<D>)>]) -> Vec<(u64, Call<()>)> {
    let mut at = vec![0; logs.len()];
    let oldest = |poll: &Call<()>| {
        let mut oldest = poll.began;
        for (log, at) in logs.iter().zip(&mut at) {
            // Of a thread, one is over before the next one begins; what it has heard lies within.
            while log.get(*at).is_some_and(|(_, call)| call.ended < poll.began) {
                *at += 1;
            }
            if let Some((_, call)) = log.get(*at) {
                oldest = oldest.min(call.began);
            }
        }
        oldest
    };
    polls.iter().map(oldest).zip(polls.iter().copied()).collect()
}

/// The history of a key: its calls, the polls that matter to it, and that nothing may be there in the end.
pub fn history<S: Subject>(
    calls: &[(u32, Call<<S::Model as Model>::Did>)],
    recorded: &Recorded<<S::Model as Model>::Did>,
    into: &mut Vec<Call<<S::Model as Model>::Did>>,
) {
    into.clear();
    into.extend(calls.iter().map(|(_, call)| *call));
    // Of the polls between which nothing of this key begins or ends the last one says what the others say.
    let polls = &recorded.polls;
    let mut matter: Vec<usize> = calls
        .iter()
        .flat_map(|(_, call)| [call.began, call.ended])
        .filter_map(|at| polls.partition_point(|(_, poll)| poll.began < at).checked_sub(1))
        .collect();
    // And the last one of all, after which nothing may be there.
    matter.extend(polls.len().checked_sub(1));
    matter.sort_unstable();
    matter.dedup();
    into.extend(matter.into_iter().map(|at| {
        let (since, poll) = polls[at];
        poll.with(S::polled(since))
    }));
    into.sort_unstable_by_key(|call| (call.began, call.ended));
    let last = polls.last().map_or(0, |(_, poll)| poll.to);
    into.push(Call {
        began: recorded.end,
        ended: recorded.end,
        from: last,
        to: last,
        since: last,
        thread: polls.last().map_or(0, |(_, poll)| poll.thread),
        did: S::over(),
    });
}
