//! Scenario `sessions`: an expiry queue under load from all threads, and each key's history held against the law.
//!
//! A run is a row of rounds. In each, all threads update, touch and remove the same keys, which expire meanwhile, told by the
//! reaper's handler or by pollers. Then all stop, time passes, nothing may be left, and for each key what everybody noted and
//! was told is put together and judged (see `history`). Memory is proportional to the keys of a round.
//!
//! `--tracker` is the same on a `SessionTracker`: see `tracker`.
//!
//! `--contended` is another drive, for one kind of mistake only, and many more keys: see `contended`.

mod contended;
mod history;
mod keys;
mod meet;
mod stays;
mod tracker;
mod worker;
mod zookeeper;

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::latency::{human, Latency};
use crate::live::{Gauge, Live};
use crate::options::{threads, Sessions};
use crate::pin;
use crate::report::Report;
use crate::timeline::{Reading, Timeline};
use expiry::ExpiryQueue;
#[cfg(test)]
pub use history::tests::handles;
use history::{judge, Did, Event, Promise};
pub use keys::Key;
use rand::rngs::SmallRng;
use rand::SeedableRng;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use worker::{Shared, Worker};

const NAMES: [Check; 9] = [
    "every_stay_ends",
    "told_once",
    "nothing_left",
    "none_early",
    "none_late",
    "renewed_is_renewed",
    "deadlines_right",
    "histories_explained",
    "no_surprises",
];

/// How long a run is if the options do not say, in seconds.
const SECONDS: f64 = 10.0;
/// How long after everything should have expired a round gives up waiting.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense.
pub fn run(options: &Sessions) -> Result<Report, Error> {
    if options.tracker {
        return tracker::run(options);
    }
    match (options.contended, options.strings) {
        (true, false) => meet::run::<u64>(options),
        (true, true) => meet::run::<String>(options),
        (false, false) => rounds::<u64>(options),
        (false, true) => rounds::<String>(options),
    }
}

/// What is told as expired, by the handler or a poller.
type Told = Mutex<Vec<(u64, Event)>>;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panics takes the run with it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run.
struct Run<'a, K: Key> {
    options: &'a Sessions,
    queue: ExpiryQueue<K>,
    time: Timeline,
    told: Arc<Told>,
    pollers: usize,
    promise: Promise,
    checks: Checks,
    workers: Vec<Worker>,
    keys: usize,
    tally: Tally,
}

/// What has been counted, and measured.
#[derive(Default)]
struct Tally {
    rounds: u64,
    histories: u64,
    events: u64,
    counts: [u64; 6],
    driven: Duration,
    lateness: Latency,
    operation: Latency,
}

impl Tally {
    fn count(&mut self, did: &Did) {
        let at = match did {
            Did::Inserted { .. } => 0,
            Did::Renewed { .. } => 1,
            Did::Touched { .. } => 2,
            Did::Gone { .. } => 3,
            Did::Removed { .. } => 4,
            Did::Expired => 5,
        };
        self.counts[at] += 1;
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let names = ["inserted", "renewed", "touched", "gone", "removed", "expired"];
        names.into_iter().zip(self.counts)
    }

    /// Stays that have not been told to have ended.
    fn open(&self) -> u64 {
        self.counts[0].saturating_sub(self.counts[4] + self.counts[5])
    }
}

fn rounds<K: Key>(options: &Sessions) -> Result<Report, Error> {
    let mut run = Run::<K>::new(options)?;
    let length = Duration::from_secs_f64(options.seconds.unwrap_or(SECONDS));
    let began = Instant::now();
    let mut live = Live::new("sessions", Some(length.as_millis() as u64));
    let (mut whole, mut seen) = (true, Latency::new());
    while whole && began.elapsed() < length && !interrupt::asked() {
        whole = run.round();
        live.show(began.elapsed().as_millis() as u64, || Gauge {
            done: run.tally.events,
            latency: Some(run.tally.operation.since(&mut seen)),
            violations: run.checks.violations(),
            text: format!(
                "{} rounds, {} keys judged, lateness max {}",
                run.tally.rounds,
                run.tally.histories,
                human(run.tally.lateness.percentiles().max),
            ),
            ..Gauge::of_store(run.queue.metrics())
        });
    }
    let series = live.finish();
    let tally = &run.tally;
    let operations = tally.events - tally.counts[5];
    let mut report = Report::new(
        "sessions",
        ("operations", operations),
        tally.driven,
        options.seed,
        &run.checks,
        options,
    );
    report.series = series;
    report.counts.extend(tally.named());
    report.counts.extend([
        ("threads", run.workers.len() as u64),
        ("pollers", run.pollers as u64),
        ("rounds", tally.rounds),
        ("histories", tally.histories),
    ]);
    report.latency.insert("operation", tally.operation.percentiles());
    report.latency.insert("expiry_lateness", tally.lateness.percentiles());
    Ok(report)
}

/// How many keys, or sessions, a round has.
///
/// # Errors
///
/// If they are too many.
fn keys(options: &Sessions) -> Result<u32, Error> {
    let keys = options.keys.unwrap_or(4096);
    u32::try_from(keys).map_err(|_| Error::Option {
        option: "--keys",
        why: "is more than a round can have; use at most 4294967295, or --contended".into(),
    })
}

/// How many threads poll.
///
/// # Errors
///
/// If nobody would see simulated time pass, or nothing would be there to be removed.
fn pollers(options: &Sessions) -> Result<usize, Error> {
    let pollers = crate::options::pollers(options.pollers, options.simulated)?;
    if options.removes.is_some_and(|removes| removes >= 1.0) {
        return Err(Error::Option {
            option: "--removes",
            why: "is 1, and there would be nothing to remove; use less".into(),
        });
    }
    Ok(pollers)
}

impl<'a, K: Key> Run<'a, K> {
    fn new(options: &'a Sessions) -> Result<Self, Error> {
        let threads = threads(options.threads);
        let keys = keys(options)? as usize;
        let pollers = pollers(options)?;
        let time = Timeline::new(options.simulated);
        let told = Arc::new(Told::default());
        let builder = ExpiryQueue::<K>::builder().interval(options.interval).clock(time.clock());
        let before = time.before().clock;
        let queue = if pollers > 0 {
            builder.build()?
        } else {
            let (told, time) = (told.clone(), time.clone());
            builder.build_with_handler(move |key| {
                // It has no reading from before the expiry: only the deadline says how long ago that may have been.
                let ever = Reading { real: 0, clock: 0 };
                tell(&told, key, ever, time.after());
            })?
        };
        let interval = options.interval.as_nanos() as u64;
        let allowance = (!options.simulated).then_some(options.allowance.as_nanos() as u64);
        Ok(Run {
            options,
            queue,
            promise: Promise {
                built: (before, time.after().clock),
                rounding: interval + time.lag(interval),
                late: allowance,
            },
            workers: (0..threads as u64)
                .map(|at| SmallRng::seed_from_u64(options.seed.wrapping_mul(64) + at))
                .map(|rng| Worker::new(rng, keys))
                .collect(),
            time,
            told,
            pollers,
            checks: Checks::new(&NAMES),
            keys,
            tally: Tally::default(),
        })
    }

    /// A round. False if something is left that will never expire: then there is no point in another one.
    fn round(&mut self) -> bool {
        let shared = &Shared {
            queue: &self.queue,
            time: &self.time,
            checks: &self.checks,
            keys: self.keys,
            threads: self.workers.len(),
            interval: self.options.interval,
            longest: self.options.longest,
            removes: self.options.removes.unwrap_or(0.1),
        };
        let (stop, told) = (AtomicBool::new(false), &*self.told);
        let mut events: Vec<(u32, Event)> = Vec::new();
        let (workers, tally) = (&mut self.workers, &mut self.tally);
        let whole = std::thread::scope(|scope| {
            for _ in 0..self.pollers {
                scope.spawn(|| poll(shared, told, &stop));
            }
            let began = Instant::now();
            let threads: Vec<_> = workers
                .iter_mut()
                .enumerate()
                .map(|(number, worker)| {
                    scope.spawn(move || {
                        pin::worker(number);
                        worker.round(shared)
                    })
                })
                .collect();
            for thread in threads {
                // A panic in a worker is a bug in this program: pass it on.
                for (key, event) in thread.join().expect("a worker panicked") {
                    tally.count(&event.did);
                    tally.operation.record_nanos(event.ended - event.began);
                    events.push((key, event));
                }
            }
            tally.driven += began.elapsed();
            let whole = wait(shared, told, (tally, &mut events), self.options.allowance);
            stop.store(true, Release);
            whole
        });
        let left = self.queue.len().max(self.queue.dump().values().map(Vec::len).sum());
        self.checks.equal(
            "nothing_left",
            "keys in the queue after all time has passed",
            left as u64,
            0,
        );
        self.judge(events);
        self.tally.rounds += 1;
        whole && left == 0
    }

    /// Judges each key by its events of a round.
    fn judge(&mut self, mut events: Vec<(u32, Event)>) {
        events.sort_unstable_by_key(|(key, event)| (*key, event.began, event.ended));
        self.tally.events += events.len() as u64;
        let mut history = Vec::new();
        for of_key in events.chunk_by(|(one, _), (other, _)| one == other) {
            history.clear();
            history.extend(of_key.iter().map(|(_, event)| *event));
            let found = judge(&history, &self.promise);
            for (check, why) in found.wrong {
                self.checks.violated(check, || {
                    format!(
                        "key {} in round {}: {why}: {history:?}",
                        of_key[0].0, self.tally.rounds
                    )
                });
            }
            found.lateness.iter().for_each(|&late| self.tally.lateness.record_nanos(late));
            self.tally.histories += 1;
        }
    }
}

/// Notes that a key was told as expired.
fn tell<K: Key>(told: &Told, key: &K, before: Reading, after: Reading) {
    lock(told).push((key.number(), Event::between(Did::Expired, before, after, 0)));
}

/// Polls until it is told to stop.
fn poll<K: Key>(shared: &Shared<'_, K>, told: &Told, stop: &AtomicBool) {
    while !stop.load(Acquire) {
        let before = shared.time.before();
        let expired = shared.queue.poll();
        if expired.is_empty() {
            std::thread::yield_now();
            continue;
        }
        let after = shared.time.after();
        for key in &expired {
            tell(told, &**key, before, after);
        }
    }
}

/// Lets time pass until every stay has been told to have ended, and nothing is left. False if that does not happen.
fn wait<K: Key>(
    shared: &Shared<'_, K>,
    told: &Told,
    (tally, events): (&mut Tally, &mut Vec<(u32, Event)>),
    allowance: Duration,
) -> bool {
    let longest = shared.interval * (shared.longest + 2);
    let (began, patience) = (Instant::now(), longest + allowance + PATIENCE);
    shared.time.advance(longest);
    loop {
        for (number, event) in lock(told).drain(..) {
            tally.count(&event.did);
            match u32::try_from(number) {
                Ok(key) if number < shared.keys as u64 => events.push((key, event)),
                _ => shared.checks.violated("told_once", || {
                    format!("a key that nobody put in was told as expired: {number}")
                }),
            }
        }
        if tally.open() == 0 && shared.queue.is_empty() {
            return true;
        }
        if began.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
