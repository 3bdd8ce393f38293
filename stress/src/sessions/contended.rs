//! Fresh keys on which threads meet with a few updates, and which no thread
//! touches again.
//!
//! Threads go through the keys of a batch together. A thread that is through with a key goes on to
//! the next, from where it is, and so do the others. No thread waits, so threads that run at the
//! same time are at the same key. A thread that is interrupted in the middle of an update comes
//! back to it when the others have long moved on. With pollers, time passes in the middle of
//! meetings, so expiries meet updates. After each batch all time passes, interval by interval, and
//! the batch is judged key by key (see `stays`): what is still there then is stranded.

use super::stays::{Fate, Found, Part};
use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::keys::Key;
use crate::live::{Gauge, Live};
use crate::options::Sessions;
use crate::report::Report;
use crossbeam_utils::CachePadded;
use expiry::{Clock, ExpiryQueue, LifetimeError, ManualClock, StoreError, Updated};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const NAMES: [Check; 7] = [
    "none_stranded",
    "none_lost",
    "told_once",
    "ends_when_asked",
    "zero_refused",
    "queue_empty",
    "threads_met",
];

/// Keys if the options do not say.
const KEYS: u64 = 2_000_000;
/// How long to drive at least, if no two threads were seen at a key at once: on a busy machine one
/// may do a batch while the other waits for a core.
const PATIENCE: Duration = Duration::from_secs(600);
/// Keys of a batch.
const BATCH: usize = 1 << 16;
/// The longest timeout, in intervals.
const LONGEST: u64 = 4;
/// The most updates of a key by one thread.
const UPDATES: u64 = 3;
/// One key in this many is timed, to see whether the threads really were there at once.
const TIMED: usize = 16;
/// The interval, of simulated time.
const INTERVAL: Duration = Duration::from_millis(1);

/// What an update did.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Whether the key was not there before.
    pub inserted: bool,
    /// When it is to expire, in intervals.
    pub tick: u64,
}

/// The queue, and its clock.
struct Ours<K: 'static> {
    queue: ExpiryQueue<K>,
    clock: ManualClock,
}

impl<K: Key> Ours<K> {
    fn new(clock: &ManualClock, seed: u64) -> Result<Self, expiry::BuildError> {
        let builder = ExpiryQueue::builder().interval(INTERVAL).clock(clock.clone()).seed(seed);
        Ok(Ours { queue: builder.build_manual()?, clock: clock.clone() })
    }

    /// Inserts the key or renews it, for so many intervals. `None` if the timeout was refused.
    fn update(&self, key: K, intervals: u64) -> Option<Update> {
        let after = INTERVAL * intervals as u32;
        let unchanged = now(&self.clock) + after;
        let (inserted, expiry) = match self.queue.update(key, after) {
            Ok(Updated::Inserted { expiry, .. }) => (true, expiry),
            Ok(Updated::Renewed { expiry }) => (false, expiry),
            Ok(Updated::Unchanged) => (false, unchanged),
            Err(StoreError::Lifetime(LifetimeError::Zero)) => return None,
            // Nothing is full, too long or closed here: a stay that never ends, which is found.
            Err(_) => (true, Duration::ZERO),
        };
        Some(Update { inserted, tick: ticks(expiry) })
    }

    /// Takes the key out. Whether it was there.
    fn remove(&self, key: &K) -> bool {
        self.queue.remove(key).is_some()
    }

    /// Reports all that has expired.
    fn poll(&self, mut each: impl FnMut(&K)) {
        self.queue.poll().iter().for_each(|key| each(key));
    }

    /// Elements that are there, by the queue's own account.
    fn left(&self) -> usize {
        // Two accounts: of the counters, and of the slots.
        let slots: usize = self.queue.dump().values().map(Vec::len).sum();
        self.queue.len().max(slots)
    }
}

fn ticks(time: Duration) -> u64 {
    // Hours of simulated time at most.
    (time.as_nanos() / INTERVAL.as_nanos()) as u64
}

fn now(clock: &ManualClock) -> Duration {
    Duration::from_nanos(clock.now())
}

/// How the keys of a batch are driven.
struct Manner {
    name: &'static str,
    /// Whether there is a poller, and time passes meanwhile.
    polled: bool,
    /// Share of keys that a thread removes in the end.
    removes: f64,
}

/// The manners of driving, taken in turn, a batch each.
const MANNERS: [Manner; 4] = [
    Manner { name: "quiet", polled: false, removes: 0.0 },
    Manner { name: "removes", polled: false, removes: 0.25 },
    Manner { name: "polled", polled: true, removes: 0.0 },
    Manner { name: "polled_removes", polled: true, removes: 0.25 },
];

/// Threads meet on the keys of a batch, and then all time passes. Returns what was found.
fn batch<K: Key>(queue: &Ours<K>, clock: &ManualClock, options: &Sessions, number: usize) -> Found {
    let Manner { polled, removes, .. } = MANNERS[number % MANNERS.len()];
    let (threads, pollers) = (options.threads as usize, usize::from(polled));
    let first = (number * BATCH) as u64;
    // Which of the batch's keys it is; beyond the batch if it is none of them.
    let place = |key: &K| key.number().checked_sub(first).map_or(usize::MAX, |at| at as usize);
    // The furthest key that a thread has come to, and how many threads are still at the keys.
    let (furthest, busy) = (CachePadded::new(AtomicUsize::new(0)), AtomicUsize::new(threads));
    let (start, began) = (Barrier::new(threads + pollers), Instant::now());
    let time = || began.elapsed().as_nanos() as u64;
    let meet = |me: usize| {
        let seed = options.seed.wrapping_mul(1 << 32).wrapping_add(number as u64);
        let mut luck = SmallRng::seed_from_u64(seed.wrapping_mul(64).wrapping_add(me as u64));
        let mut parts = vec![Part::default(); BATCH];
        start.wait();
        loop {
            let at = furthest.load(Acquire);
            let Some(part) = parts.get_mut(at) else { break };
            // Different bits of it decide different things.
            let luck: u64 = luck.random();
            let key = K::of(first + at as u64);
            if at.is_multiple_of(TIMED) {
                part.from = time();
            }
            for turn in 0..1 + luck % UPDATES {
                let timeout = (luck >> (8 + 8 * turn) & 0xff) % (LONGEST + 1);
                part.updated(timeout, queue.update(key.clone(), timeout));
                if polled && me == 0 && turn == 0 && luck >> 40 & 3 == 0 {
                    clock.advance(INTERVAL);
                }
            }
            if ((luck >> 48) as f64) < removes * 65536.0 {
                part.removed += u8::from(queue.remove(&key));
            }
            if at.is_multiple_of(TIMED) {
                part.to = time();
            }
            furthest.fetch_max(at + 1, AcqRel);
        }
        busy.fetch_sub(1, AcqRel);
        parts
    };
    let poll = || {
        let mut told = Vec::new();
        start.wait();
        while busy.load(Acquire) > 0 {
            let before = told.len();
            queue.poll(|key| told.push(place(key)));
            if told.len() == before {
                std::thread::yield_now();
            }
        }
        told
    };
    let (parts, told) = std::thread::scope(|scope| {
        let (meet, poll) = (&meet, &poll);
        let meeting: Vec<_> = (0..threads).map(|me| scope.spawn(move || meet(me))).collect();
        let polling: Vec<_> = (0..pollers).map(|_| scope.spawn(poll)).collect();
        // A panic in a thread is a bug in this program: pass it on.
        let parts = meeting.into_iter().map(|one| one.join().expect("a thread panicked"));
        let parts: Vec<Vec<Part>> = parts.collect();
        let told = polling.into_iter().flat_map(|one| one.join().expect("a thread panicked"));
        (parts, told.collect::<Vec<usize>>())
    });

    let mut found = Found::default();
    let mut fates = vec![Fate::default(); BATCH];
    let mut tell = |at: usize, tick| match fates.get_mut(at) {
        Some(fate) => fate.expires(tick),
        // It is not of this batch.
        None => found.twice += 1,
    };
    told.into_iter().for_each(|at| tell(at, 0));
    for _ in 0..LONGEST + 2 {
        let tick = ticks(now(clock));
        queue.poll(|key| tell(place(key), tick));
        clock.advance(INTERVAL);
    }
    found.left = queue.left() as u64;
    for (at, mut fate) in fates.into_iter().enumerate() {
        fate.stranded = queue.remove(&K::of(first + at as u64));
        found.judge(fate, parts.iter().map(|parts| &parts[at]), !polled && removes == 0.0);
    }
    found
}

/// Drives a queue: until at least two threads have come to so many fresh keys, in whole batches, as
/// many of each manner. Returns what was found, for each manner.
fn drive<K: Key>(
    queue: &Ours<K>,
    clock: &ManualClock,
    options: &Sessions,
    live: &mut Live,
) -> Vec<Found> {
    let turns = MANNERS.len();
    let mut found = vec![Found::default(); turns];
    let longest = match (options.seconds, options.keys) {
        (None, Some(_)) => Duration::MAX,
        (seconds, _) => Duration::from_secs_f64(seconds.unwrap_or(super::SECONDS)),
    };
    let keys = options.keys.unwrap_or(KEYS);
    let (began, mut shared, mut met) = (Instant::now(), 0, false);
    for number in 0.. {
        let took = began.elapsed();
        let wanted = shared < keys && took < longest || !met && took < PATIENCE;
        if number > 0 && number % turns == 0 && (!wanted || interrupt::asked()) {
            break;
        }
        let came = batch(queue, clock, options, number);
        shared += came.shared;
        met |= came.met > 0;
        found[number % turns].add(&came);
        let text = || format!("{shared} keys shared");
        live.show(shared, || Gauge { done: shared, text: text(), ..Gauge::default() });
    }
    found
}

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense.
pub fn run<K: Key>(options: &Sessions) -> Result<Report, Error> {
    if options.threads < 2 {
        return Err(Error::Option {
            option: "--threads",
            why: "is 1, and nobody meets alone; use at least 2".into(),
        });
    }
    let checks = Checks::new(&NAMES);
    let clock = ManualClock::new();
    let queue = Ours::<K>::new(&clock, options.seed)?;
    let mut live = Live::new("sessions", Some(options.keys.unwrap_or(KEYS)));
    let began = Instant::now();
    let found = drive(&queue, &clock, options, &mut live);
    let took = began.elapsed();
    let mut sum = Found::default();
    found.iter().for_each(|one| sum.add(one));
    verdict(&found, &sum, &checks);
    let done = ("keys", sum.keys);
    let mut report = Report::new("sessions", done, took, options.seed, &checks, options);
    report.counts.extend([
        done,
        ("keys_shared", sum.shared),
        ("updates", sum.updates),
        ("removed", sum.removed),
        ("refused_zero", sum.refused),
        ("stranded", sum.stranded),
        ("meetings_timed", sum.timed),
        ("meetings_met", sum.met),
    ]);
    Ok(report)
}

/// Compares what was found with what may be.
fn verdict(found: &[Found], sum: &Found, checks: &Checks) {
    for (manner, found) in MANNERS.iter().zip(found) {
        for (check, what, is) in [
            ("none_stranded", "keys still there", found.stranded),
            ("none_lost", "keys with a stay without an end", found.lost),
            ("told_once", "keys with more ends than stays", found.twice),
            ("ends_when_asked", "keys that ended at another time", found.odd),
            ("zero_refused", "mistaken refusals or acceptances", found.mistaken),
            ("queue_empty", "keys that the queue still counts", found.left),
        ] {
            checks.equal(check, &format!("{}: {what}", manner.name), is, 0);
        }
    }
    // A run without meetings has shown nothing.
    checks.expect("threads_met", sum.met > 0, || {
        format!("of {} keys that were timed, none was a meeting", sum.timed)
    });
}
