//! Recording: the calls on an object at full speed, their answers, and their times.
//!
//! # Times
//!
//! A call's interval must contain the real one. That begins before the call's first access to the
//! object's memory, and ends when all threads can see the last one. Too wide an interval only
//! permits more explanations; too narrow a one would refuse sound histories.
//!
//! * Readings are [`Instant`]'s, `CLOCK_MONOTONIC` on Linux: one clock for all threads, which never
//!   goes back. [`Time::is_in_order`] puts that to the test before each run.
//! * Before a call: the reading is stored, then there is a sequentially consistent fence, then the
//!   call. The fence waits for the store, and the store for the reading; no access of the call is
//!   made before the fence.
//! * After it: a fence, then the reading. When the fence is through, all threads can see what the
//!   call has stored. The reading is not made before that: where the counter could be read out of
//!   order, the system's clock has a barrier before it.
//!
//! The fences are outside of calls: within, only the engine's own orderings apply. The recorder
//! writes nothing that another thread looks at.
//!
//! # The object's clock
//!
//! The clock is a manual one. Every thread moves it now and then; so does a driver, which alone
//! polls. Each call notes the tick before and after. An expiry is a call too, made by the thread
//! that reports it. It lasts from the beginning of that thread's poll, or other call, until the
//! report.

use crate::checks::{Check, Checks};
use crate::options::Histories;
use expiry::{BuildError, ManualClock};
use model::due::{left_by_poll, Due};
use model::linear::{Call, Model, Span, Then};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::atomic::{fence, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The longest timeout, in ticks. Short, so that much expires.
pub const LONGEST: u32 = 8;

/// A tick: the shortest interval that there is.
const INTERVAL: Duration = Duration::from_micros(10);

/// Number of operations, on average, after which a thread moves the clock by a tick.
const TICK_EVERY: f64 = 24.0;

/// The most ticks that the driver moves the clock by at once.
const STRIDE: u32 = 3;

/// The longest time, in nanoseconds, that the driver leaves to the others between two polls.
const PAUSE: u64 = 4_000;

/// How often a thread hands a reading to another thread, which checks that its own are later.
const HANDED: u64 = 200;

/// A store's builder with the settings that all have in common.
macro_rules! set {
    ($builder:expr, $time:expr, $capacity:expr) => {{
        let builder = $builder.interval($time.interval()).clock($time.clock.clone());
        match $capacity {
            Some(capacity) => builder.capacity(capacity),
            None => builder,
        }
    }};
}

pub(super) use set;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<D> {
    /// A call of its own, or an end that was reported.
    Did(D),
    /// A poll has gone by. See [`Due::is_left`].
    Polled { since: u64 },
    /// All time has passed, and all polls: nothing may be there.
    Over,
}

/// Calls, each with the key that it was made on.
pub type Calls<S> = Vec<(u32, Call<Event<<S as Subject>::Did>>)>;

/// An object under load: many objects that numbers name, such as a map and its keys; and the
/// sequential model of one of these.
pub trait Subject: Sized + Sync {
    type State: Copy + Eq + Hash + Debug + Send + Sync;
    /// A call and its answer. Timeouts and times are in ticks.
    type Did: Copy + Debug + Send + Sync + 'static;
    /// An error that a call should not have returned.
    type Error: Display;
    /// What a thread keeps between its calls.
    type Knowledge: Send;

    /// The check that says whether the histories are linearizable.
    const CHECK: Check;
    /// The state of each object at first, and when all time has passed.
    const INITIAL: Self::State;
    const OVER: Self::State;
    /// Whether a poll changes nothing that it does not report.
    const POLLS_LOOK: bool = true;

    /// The result of the next step of a call. See [`Model::step`].
    fn apply(
        state: Self::State,
        call: &Span,
        did: Self::Did,
        memory: u32,
    ) -> Option<(Self::State, Then)>;

    /// The deadline after which no poll may leave it, if it has one.
    fn due(state: &mut Self::State) -> Option<&mut Due>;

    /// What may come of a poll.
    fn polled(state: Self::State, poll: &Span, since: u64, next: &mut Vec<(Self::State, Then)>) {
        next.extend(left_by_poll(state, Self::due, poll, since));
    }

    /// See [`Model::only_looks`].
    fn is_look(did: &Self::Did) -> bool;

    /// # Errors
    ///
    /// If it cannot be built.
    fn new(time: &Time, capacity: Option<usize>, options: &Histories) -> Result<Self, BuildError>;

    fn knowledge(&self, thread: u8, options: &Histories) -> Self::Knowledge;

    /// Makes a call, or a few, on a key.
    fn operate(
        &self,
        key: u32,
        known: &mut Self::Knowledge,
        luck: &mut SmallRng,
        log: &mut Log<'_, Self>,
    );

    /// Drives expiry. Its listener reports go to [`Time::hear`].
    fn poll(&self);

    /// Ends what does not expire.
    fn finish(&self) {}

    /// How many entries there are.
    fn left(&self) -> u64;

    /// How many have ended of those whose ends are reported, by its own count.
    fn ended(&self) -> u64;

    /// Puts something in under this number. False if it is refused.
    fn put(&self, number: u64) -> bool;
}

/// The sequential model of a subject's objects.
#[derive(Debug)]
pub struct Of<S>(PhantomData<S>);

impl<S: Subject> Model for Of<S> {
    type State = S::State;
    type Did = Event<S::Did>;

    fn step(
        state: S::State,
        call: &Call<Event<S::Did>>,
        memory: u32,
        next: &mut Vec<(S::State, Then)>,
    ) {
        match call.did {
            Event::Did(did) => next.extend(S::apply(state, &call.at, did, memory)),
            Event::Polled { since } => S::polled(state, &call.at, since, next),
            Event::Over => next.extend((state == S::OVER).then_some((state, Then::Done))),
        }
    }

    fn only_looks(did: &Event<S::Did>) -> bool {
        match did {
            Event::Did(did) => S::is_look(did),
            Event::Polled { .. } => S::POLLS_LOOK,
            Event::Over => false,
        }
    }
}

/// The time of calls, and the object's.
#[derive(Debug, Clone)]
pub struct Time {
    origin: Instant,
    pub clock: ManualClock,
    told: Arc<AtomicU64>,
}

/// An end that was reported to this thread: its key, what it was, and when.
struct Heard {
    key: u64,
    did: Box<dyn Any>,
    at: u64,
    tick: u32,
}

thread_local!(static HEARD: RefCell<Vec<Heard>> = const { RefCell::new(Vec::new()) });

/// Uses up the first report to this thread about a key among those that a call accounts for.
pub fn heard_of<D: Copy + 'static, T>(key: u64, accounts: impl Fn(D) -> Option<T>) -> Option<T> {
    let accounts = |one: &Heard| accounts(*one.did.downcast_ref().filter(|_| one.key == key)?);
    HEARD.with_borrow_mut(|heard| {
        let at = heard.iter().position(|one| accounts(one).is_some())?;
        accounts(&heard.remove(at))
    })
}

impl Time {
    pub fn new() -> Self {
        Time { origin: Instant::now(), clock: ManualClock::new(), told: Arc::default() }
    }

    pub fn interval(&self) -> Duration {
        INTERVAL
    }

    /// A duration of so many ticks.
    pub fn ticks(&self, ticks: u32) -> Duration {
        INTERVAL * ticks
    }

    /// A duration in ticks.
    pub fn to_ticks(&self, time: Duration) -> u32 {
        (time.as_nanos() / INTERVAL.as_nanos()) as u32
    }

    fn tick(&self) -> u32 {
        self.to_ticks(Duration::from_nanos(expiry::Clock::now(&self.clock)))
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

    /// A listener takes its time: one time in four, a tick goes by.
    pub fn dawdle(&self) {
        thread_local!(static TURN: Cell<u32> = const { Cell::new(0) });
        TURN.set(TURN.get().wrapping_add(1));
        if TURN.get().is_multiple_of(4) {
            self.pass();
        }
    }

    /// Notes an end that is reported to this thread.
    pub fn hear<D: 'static>(&self, key: u64, did: D) {
        self.note(key, did);
        self.told.fetch_add(1, Relaxed);
    }

    /// Notes a report that is no end, or that the object does not count as one.
    pub fn note<D: 'static>(&self, key: u64, did: D) {
        let (did, tick) = (Box::new(did), self.tick());
        let heard = Heard { key, did, at: self.after(), tick };
        HEARD.with_borrow_mut(|all| all.push(heard));
    }

    /// How many ends were reported to all threads.
    pub fn told(&self) -> u64 {
        self.told.load(Relaxed)
    }

    /// Waits for a while, so that the other threads go on.
    fn pause(&self, luck: &mut SmallRng) {
        let until = self.real() + luck.random_range(0..PAUSE);
        while self.real() < until {
            std::hint::spin_loop();
        }
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
pub struct Log<'a, S: Subject> {
    pub time: &'a Time,
    thread: u8,
    checks: &'a Checks,
    began: AtomicU64,
    calls: Calls<S>,
}

impl<S: Subject> Log<'_, S> {
    /// Makes a call on `key` and notes its answer. An error is a violation.
    #[inline]
    pub fn call(
        &mut self,
        key: u32,
        call: impl FnOnce() -> Result<S::Did, S::Error>,
    ) -> Option<S::Did> {
        let (at, did) = self.timed(call);
        self.enter(key, at, did)
    }

    /// As [`call`](Self::call), of one that is on several keys, or says on which it is.
    pub fn calls(&mut self, call: impl FnOnce() -> Vec<(u32, Result<S::Did, S::Error>)>) {
        let (at, did) = self.timed(call);
        for (key, did) in did {
            self.enter(key, at, did);
        }
    }

    #[inline]
    fn timed<R>(&mut self, call: impl FnOnce() -> R) -> (Span, R) {
        let thread = self.thread;
        let began = self.time.before(&self.began);
        let from = self.time.tick();
        let done = call();
        let to = self.time.tick();
        let ended = self.time.after();
        let mut since = from;
        HEARD.with_borrow_mut(|all| {
            for heard in all.drain(..) {
                since = since.max(heard.tick);
                let (ended, to) = (heard.at, heard.tick);
                let at = Span { began, ended, from, to, since: from, thread };
                let did = Event::Did(*heard.did.downcast().expect("this object's"));
                self.calls.push((heard.key as u32, Call { at, did }));
            }
        });
        (Span { began, ended, from, to, since, thread }, done)
    }

    #[inline]
    fn enter(&mut self, key: u32, at: Span, did: Result<S::Did, S::Error>) -> Option<S::Did> {
        match did {
            Ok(did) => {
                self.calls.push((key, Call { at, did: Event::Did(did) }));
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
}

/// What was recorded.
pub struct Recorded<S: Subject> {
    /// Sorted by key and beginning.
    pub calls: Calls<S>,
    /// The driver's polls, in order, each with the beginning of the longest call under way.
    pub polls: Vec<(u64, Span)>,
    /// When all was over.
    end: u64,
    pub took: Duration,
}

/// Has all threads make calls until each has made its share, and lets all time pass.
pub fn record<S: Subject>(
    subject: &S,
    options: &Histories,
    time: &Time,
    seed: u64,
    checks: &Checks,
) -> Recorded<S> {
    let Histories { threads, keys, operations, .. } = *options;
    // Some operations are two calls, and some ends are calls by themselves.
    let room = operations as usize * 3;
    let log = |thread: u8| Log::<S> {
        time,
        thread,
        checks,
        began: AtomicU64::new(0),
        calls: Vec::with_capacity(room),
    };
    // This forgets the ends that this thread received when an earlier object was dropped.
    HEARD.with_borrow_mut(Vec::clear);
    let busy = AtomicUsize::new(usize::from(threads));
    let start = Barrier::new(usize::from(threads) + 1);
    let mut luck = SmallRng::seed_from_u64(seed);
    std::thread::scope(|scope| {
        let spawn = |thread: u8| {
            let mut luck = SmallRng::from_rng(&mut luck);
            let mut log = log(thread);
            let (busy, start) = (&busy, &start);
            scope.spawn(move || {
                let mut known = subject.knowledge(thread, options);
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
        };
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        let (mut log, mut polls) = (log(threads), Vec::with_capacity(operations as usize));
        start.wait();
        let began = Instant::now();
        while busy.load(Acquire) > 0 {
            time.clock.advance(INTERVAL * luck.random_range(1..=STRIDE));
            // Other threads should see a due entry too before it has ended.
            if luck.random() {
                time.pause(&mut luck);
            }
            polls.push(log.timed(|| subject.poll()).0);
            time.pause(&mut luck);
        }
        let took = began.elapsed();
        // A panic in a thread is a bug in this program: pass it on.
        let mut logs: Vec<_> =
            workers.into_iter().map(|worker| worker.join().expect("a thread panicked")).collect();
        // All that there is becomes due.
        for _ in 0..2 {
            time.clock.advance(INTERVAL * (LONGEST + STRIDE));
            polls.push(log.timed(|| subject.poll()).0);
        }
        log.timed(|| subject.finish());
        let polls = with_oldest::<S>(&polls, &logs);
        logs.push(log.calls);
        let mut calls = logs.concat();
        calls.sort_unstable_by_key(|(key, call)| (*key, call.at.began, call.at.ended));
        Recorded { calls, polls, end: time.after(), took }
    })
}

/// Adds to each poll the beginning of the longest call that was under way then; if there was none,
/// the poll's own beginning.
fn with_oldest<S: Subject>(polls: &[Span], logs: &[Calls<S>]) -> Vec<(u64, Span)> {
    let mut at = vec![0; logs.len()];
    let oldest = |poll: &Span| {
        let mut oldest = poll.began;
        for (log, at) in logs.iter().zip(&mut at) {
            // Calls of one thread do not overlap; the ends that it received lie within them.
            while log.get(*at).is_some_and(|(_, call)| call.at.ended < poll.began) {
                *at += 1;
            }
            if let Some((_, call)) = log.get(*at) {
                oldest = oldest.min(call.at.began);
            }
        }
        (oldest, *poll)
    };
    polls.iter().map(oldest).collect()
}

impl<S: Subject> Recorded<S> {
    /// The history of a key: its calls, the polls that matter to it, and that nothing may be there
    /// in the end.
    pub fn history(&self, of_key: &[(u32, Call<Event<S::Did>>)]) -> Vec<Call<Event<S::Did>>> {
        let mut history: Vec<_> = of_key.iter().map(|(_, call)| *call).collect();
        // The last of several polls, between which no call of this key begins or ends, says what
        // the others say. After the last one of all nothing may be there.
        let before = |at| self.polls.partition_point(|(_, poll)| poll.began < at).checked_sub(1);
        let times = history.iter().flat_map(|call| [call.at.began, call.at.ended]);
        let mut matter: Vec<usize> = times.chain([u64::MAX]).filter_map(before).collect();
        matter.sort_unstable();
        matter.dedup();
        history.extend(matter.into_iter().map(|at| {
            let (since, at) = self.polls[at];
            Call { at, did: Event::Polled { since } }
        }));
        history.sort_unstable_by_key(|call| (call.at.began, call.at.ended));
        // The driver polls at least twice.
        let last = self.polls[self.polls.len() - 1].1;
        let (end, tick) = (self.end, last.to);
        let at = Span { began: end, ended: end, from: tick, since: tick, ..last };
        history.push(Call { at, did: Event::Over });
        history
    }
}
