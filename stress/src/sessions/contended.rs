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
use crate::pin;
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
/// The share of removes where the options do not say.
const REMOVES: f64 = 0.25;
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
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// Whether there are pollers, and time passes meanwhile.
    polled: bool,
    /// Share of keys that a thread removes in the end.
    removes: f64,
}

impl Manner {
    fn name(self) -> &'static str {
        match (self.polled, self.removes > 0.0) {
            (false, false) => "quiet",
            (false, true) => "removes",
            (true, false) => "polled",
            (true, true) => "polled_removes",
        }
    }
}

/// What a drive is to do.
#[derive(Debug, Clone)]
struct Plan {
    /// Threads that meet.
    threads: usize,
    /// Threads that poll, where there are any.
    pollers: usize,
    /// Taken in turn, a batch each.
    manners: Vec<Manner>,
    /// To how many fresh keys at least two threads are to come, in whole batches, as many of each
    /// manner.
    keys: u64,
    /// How long to drive, if that does not come about.
    longest: Duration,
    /// How long at least, if no two threads were seen at a key at once: on a busy machine one may
    /// do a batch while the other waits for a core.
    patience: Duration,
    seed: u64,
}

impl Plan {
    fn new(options: &Sessions) -> Self {
        // The runs cover both choices that the options leave open.
        let polled = options.pollers.map_or(vec![false, true], |pollers| vec![pollers > 0]);
        let removes = options.removes.map_or(vec![0.0, REMOVES], |rate| vec![rate]);
        let both = |polled| removes.iter().map(move |&removes| Manner { polled, removes });
        Plan {
            threads: options.threads.unwrap_or(2) as usize,
            pollers: options.pollers.unwrap_or(1) as usize,
            manners: polled.into_iter().flat_map(both).collect(),
            keys: options.keys.unwrap_or(KEYS),
            longest: match (options.seconds, options.keys) {
                (None, Some(_)) => Duration::MAX,
                (seconds, _) => Duration::from_secs_f64(seconds.unwrap_or(super::SECONDS)),
            },
            patience: Duration::from_secs(600),
            seed: options.seed,
        }
    }
}

/// Threads meet on the keys of a batch, and then all time passes. Returns what was found.
fn batch<K: Key>(queue: &Ours<K>, clock: &ManualClock, plan: &Plan, number: usize) -> Found {
    let Manner { polled, removes } = plan.manners[number % plan.manners.len()];
    let pollers = if polled { plan.pollers } else { 0 };
    let first = (number * BATCH) as u64;
    // Which of the batch's keys it is; beyond the batch if it is none of them.
    let place = |key: &K| key.number().checked_sub(first).map_or(usize::MAX, |at| at as usize);
    // The furthest key that a thread has come to, and how many threads are still at the keys.
    let (furthest, busy) = (CachePadded::new(AtomicUsize::new(0)), AtomicUsize::new(plan.threads));
    let (start, began) = (Barrier::new(plan.threads + pollers), Instant::now());
    let time = || began.elapsed().as_nanos() as u64;
    let meet = |me: usize| {
        let seed = plan.seed.wrapping_mul(1 << 32).wrapping_add(number as u64);
        let mut luck = SmallRng::seed_from_u64(seed.wrapping_mul(64).wrapping_add(me as u64));
        let mut parts = vec![Part::default(); BATCH];
        pin::worker(me);
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
    let poll = |me: usize| {
        let mut told = Vec::new();
        pin::worker(plan.threads + me);
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
        let meeting: Vec<_> = (0..plan.threads).map(|me| scope.spawn(move || meet(me))).collect();
        let polling: Vec<_> = (0..pollers).map(|me| scope.spawn(move || poll(me))).collect();
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

/// Drives a queue. Returns what was found, for each manner.
fn drive<K: Key>(queue: &Ours<K>, clock: &ManualClock, plan: &Plan, live: &mut Live) -> Vec<Found> {
    let turns = plan.manners.len();
    let mut found = vec![Found::default(); turns];
    let (began, mut shared, mut met) = (Instant::now(), 0, false);
    for number in 0.. {
        let took = began.elapsed();
        let wanted = shared < plan.keys && took < plan.longest || !met && took < plan.patience;
        if number > 0 && number % turns == 0 && (!wanted || interrupt::asked()) {
            break;
        }
        let came = batch(queue, clock, plan, number);
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
    let plan = Plan::new(options);
    if plan.threads < 2 {
        return Err(Error::Option {
            option: "--threads",
            why: "is 1, and nobody meets alone; use at least 2".into(),
        });
    }
    let checks = Checks::new(&NAMES);
    let clock = ManualClock::new();
    let queue = Ours::<K>::new(&clock, options.seed)?;
    let mut live = Live::new("sessions", Some(plan.keys));
    let began = Instant::now();
    let found = drive(&queue, &clock, &plan, &mut live);
    let took = began.elapsed();
    verdict(&plan, &found, &checks);
    let sum = total(&found);
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
    for (manner, found) in plan.manners.iter().zip(&found) {
        report.notes.push(format!("{}: {}", manner.name(), line(found)));
    }
    Ok(report)
}

fn total(found: &[Found]) -> Found {
    let mut sum = Found::default();
    found.iter().for_each(|one| sum.add(one));
    sum
}

/// The result of a manner, in words.
fn line(found: &Found) -> String {
    let rate = match found.stranded {
        0 => "none".into(),
        stranded => format!("{stranded}, one in {}", found.shared / stranded),
    };
    let Found { keys, shared, met, timed, .. } = found;
    format!("{keys} keys, {shared} shared, met at {met} of {timed}, stranded {rate}")
}

/// Compares what was found with what may be.
fn verdict(plan: &Plan, found: &[Found], checks: &Checks) {
    for (manner, found) in plan.manners.iter().zip(found) {
        for (check, what, is) in [
            ("none_stranded", "keys still there", found.stranded),
            ("none_lost", "keys with a stay without an end", found.lost),
            ("told_once", "keys with more ends than stays", found.twice),
            ("ends_when_asked", "keys that ended at another time", found.odd),
            ("zero_refused", "mistaken refusals or acceptances", found.mistaken),
            ("queue_empty", "keys that the queue still counts", found.left),
        ] {
            checks.equal(check, &format!("{}: {what}", manner.name()), is, 0);
        }
    }
    // A run without meetings has shown nothing.
    let sum = total(found);
    checks.expect("threads_met", sum.met > 0, || {
        format!("of {} keys that were timed, none was a meeting", sum.timed)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(patience: Duration) -> Plan {
        Plan {
            threads: 1,
            pollers: 0,
            manners: vec![Manner { polled: false, removes: 0.0 }],
            keys: 0,
            longest: Duration::ZERO,
            patience,
            seed: 1,
        }
    }

    #[test]
    fn a_drive_waits_for_a_meeting_and_not_for_ever() {
        // One thread drives, and meets no other.
        let alone = |patience| {
            let clock = ManualClock::new();
            let queue = Ours::<u64>::new(&clock, 1).unwrap();
            // These keys belong to no batch: one expires, one stays.
            queue.update(1 << 40, 1);
            queue.update(1 << 41, 1 << 30);
            let began = Instant::now();
            let found = drive(&queue, &clock, &plan(patience), &mut Live::new("", None));
            (found[0].clone(), began.elapsed())
        };
        let (found, _) = alone(Duration::ZERO);
        assert_eq!((found.keys, found.met), (BATCH as u64, 0));
        assert_eq!((found.twice, found.left), (1, 1));
        let patience = Duration::from_secs(1);
        let (found, took) = alone(patience);
        assert!(took >= patience && found.met == 0);
    }
}
