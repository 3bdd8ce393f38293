//! Timers of all threads in an expiry queue, on the real clock.

use super::ledger::{Ledger, CANCELLED_IS_CANCELLED, FIRES_ONCE};
use super::{Clocked, Draw, Fate, Outcome, Tally, CLOCKED, SINCE_DUE, TIMED};
use crate::checks::{Check, Checks};
use crate::crowd::{crowd, Work};
use crate::error::Error;
use crate::interrupt;
use crate::latency::{human, nanos, Latency, Recorder};
use crate::live::{Gauge, Live};
use crate::options::{Order, Timers};
use crate::pace::Pace;
use crate::page::Chart;
use crate::timeline::Timeline;
use expiry::{ExpiryQueue, Handle, StoreShardMetrics, Updated};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The checks of a run.
const NAMES: [Check; 10] = [
    "every_timer_ends",
    FIRES_ONCE,
    CANCELLED_IS_CANCELLED,
    "none_early",
    "none_late",
    "refusals_true",
    "metrics_add_up",
    "nothing_left",
    "memory_given_back",
    "no_surprises",
];

/// Slots in a chunk, the unit in which slots' memory is held; and how many of these a shard keeps with nothing live.
const CHUNK: u64 = 4096;
const KEPT: u64 = 3;
/// In how many chunks an idle thread owns buckets.
const OWNED: u64 = 2;
/// How long after everything should have ended the run gives up waiting.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much a poll may do.
const BUDGET: usize = 4096;
/// After how many steps the shared counters are brought up to date. A power of two.
const TELL: u64 = 256;

/// What all threads share.
struct Shared<'a> {
    queue: &'a ExpiryQueue<u64>,
    time: &'a Timeline,
    ledger: &'a Ledger,
    checks: &'a Checks,
    draw: &'a Draw,
    order: Order,
    /// By how much later than asked for a timer may fire; and how long after that it is given up.
    late: u64,
    patience: u64,
    /// When to stop scheduling, by the clock.
    stop: u64,
    /// Threads whose timers have not all ended.
    busy: AtomicUsize,
    operations: AtomicU64,
    latest: AtomicU64,
}

/// What a thread knows of a timer.
#[derive(Clone, Copy, Default)]
struct Timer {
    key: u64,
    /// `None`: the place is free.
    handle: Option<Handle>,
    /// Between which clock readings it should fire.
    due: (u64, u64),
    /// It was looked at, and is left to fire.
    waits: bool,
    /// It was given up: whatever is there still, the place is not used again.
    lost: bool,
}

/// A thread of the load.
struct Worker<'a> {
    shared: &'a Shared<'a>,
    rng: SmallRng,
    first: usize,
    timers: Vec<Timer>,
    cursor: usize,
    calls: u64,
    /// When operations are to come; `None` in a closed loop.
    pace: Option<Pace>,
    times: [Recorder; CLOCKED.len()],
    lateness: Latency,
    tally: Tally,
    told: u64,
}

/// What a thread brings back.
#[derive(Default)]
struct Brought {
    tally: Tally,
    /// How many operations it had done when it was time to stop.
    operations: u64,
    lateness: Latency,
}

impl Worker<'_> {
    fn run(mut self) -> Brought {
        let (mut steps, mut idle) = (0_u64, 0);
        while self.shared.time.now() < self.shared.stop && !interrupt::asked() {
            // A look at the clock every so often.
            for _ in 0..16 {
                let Some(done) = self.next() else {
                    std::thread::yield_now();
                    break;
                };
                idle = if done { 0 } else { idle + 1 };
            }
            steps += 1;
            if steps & (TELL / 16 - 1) == 0 {
                self.tell();
            }
            if idle > self.timers.len() && self.pace.is_none() {
                // All in sight wait for their time.
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let operations = self.tally.operations();
        self.drain();
        self.tell();
        self.shared.busy.fetch_sub(1, AcqRel);
        Brought {
            tally: self.tally,
            operations,
            lateness: self.lateness,
        }
    }

    /// Looks at another place, if something is due. `None` if not; false if there was nothing to do.
    fn next(&mut self) -> Option<bool> {
        let time = self.shared.time;
        let due = match &mut self.pace {
            Some(pace) => Some(pace.due(time.now())?),
            None => None,
        };
        let at = self.pick();
        let mut done = self.visit(at);
        if let Some(due) = due {
            // What was due is an operation, not a look.
            for _ in 0..self.timers.len() {
                if done {
                    break;
                }
                let at = self.pick();
                done = self.visit(at);
            }
            let since = time.now().saturating_sub(due);
            self.times[SINCE_DUE].record(Duration::from_nanos(since));
        }
        Some(done)
    }

    fn pick(&mut self) -> usize {
        if self.shared.order == Order::Shuffled {
            return self.rng.random_range(0..self.timers.len());
        }
        self.cursor = (self.cursor + 1) % self.timers.len();
        self.cursor
    }

    fn tell(&mut self) {
        let done = self.tally.operations();
        let since = done - std::mem::replace(&mut self.told, done);
        self.shared.operations.fetch_add(since, Relaxed);
    }

    /// Looks at a place: whether its timer has fired, and what is to become of it. Keeps it full. False if there was
    /// nothing to do.
    fn visit(&mut self, at: usize) -> bool {
        let timer = self.timers[at];
        if timer.handle.is_some() && timer.waits && !self.has_ended(at) {
            return false;
        }
        let Some(handle) = self.timers[at].handle else {
            return !self.timers[at].lost && self.schedule(at);
        };
        match self.shared.draw.fate(&mut self.rng) {
            Fate::Cancel => {
                if self.cancel(at) {
                    self.schedule(at);
                }
            }
            Fate::Move => self.reschedule(at, handle),
            Fate::Fire => self.timers[at].waits = true,
        }
        true
    }

    /// Runs an operation, and times one in a few. Its result, and clock readings from before and after.
    fn timed<T>(&mut self, which: usize, f: impl FnOnce(&Shared<'_>) -> T) -> (T, u64, u64) {
        self.calls += 1;
        let timed = (self.calls & (TIMED - 1) == 0).then(Instant::now);
        let before = self.shared.time.now();
        let done = f(self.shared);
        let after = self.shared.time.now();
        if let Some(timed) = timed {
            self.times[which].record(timed.elapsed());
        }
        (done, before, after)
    }

    fn due(&self, timeout: u64, before: u64, after: u64) -> (u64, u64) {
        (before + timeout, after + timeout + self.shared.late)
    }

    /// Schedules a timer in a free place.
    fn schedule(&mut self, at: usize) -> bool {
        let timeout = self.shared.draw.timeout(&mut self.rng);
        let key = self.shared.ledger.begin(self.first + at);
        let (done, before, after) = self.timed(0, |shared| {
            shared.queue.update(key, Duration::from_nanos(timeout))
        });
        let Ok(Updated::Inserted { handle, .. }) = done else {
            self.shared.checks.violated("no_surprises", || {
                format!("scheduling timer {key:#x} for {timeout} ns: {done:?}")
            });
            self.shared
                .ledger
                .cancelled(self.first + at, self.shared.checks);
            return true;
        };
        self.tally.scheduled += 1;
        self.timers[at] = Timer {
            key,
            handle: Some(handle),
            due: self.due(timeout, before, after),
            waits: false,
            lost: false,
        };
        true
    }

    /// Cancels a timer. False if it came too late.
    fn cancel(&mut self, at: usize) -> bool {
        let key = self.timers[at].key;
        let (done, _, after) = self.timed(1, |shared| shared.queue.remove(&key));
        if done.is_none() {
            self.too_late(at, after);
            return false;
        }
        self.shared
            .ledger
            .cancelled(self.first + at, self.shared.checks);
        self.tally.cancelled += 1;
        self.timers[at].handle = None;
        true
    }

    fn reschedule(&mut self, at: usize, handle: Handle) {
        let timeout = self.shared.draw.timeout(&mut self.rng);
        let (done, before, after) = self.timed(2, |shared| {
            shared.queue.touch_by(handle, Duration::from_nanos(timeout))
        });
        match done {
            Ok(true) => {
                self.tally.moved += 1;
                self.timers[at].due = self.due(timeout, before, after);
            }
            Ok(false) => self.too_late(at, after),
            Err(error) => self.shared.checks.violated("no_surprises", || {
                format!("a move by {timeout} ns was refused: {error}")
            }),
        }
    }

    /// A timer was said to be gone by a call that had ended then: it has fired, and somebody is told of it or has been.
    fn too_late(&mut self, at: usize, after: u64) {
        self.tally.late += 1;
        let timer = &mut self.timers[at];
        timer.waits = true;
        let due = timer.due.0;
        self.shared
            .checks
            .expect("refusals_true", after >= due, || {
                format!(
                    "timer {:#x} was said to be gone {} ns before it was due",
                    timer.key,
                    due - after
                )
            });
    }

    /// Whether a timer that waits has fired; judges it then, and frees its place. One that is long overdue is given up.
    fn has_ended(&mut self, at: usize) -> bool {
        let Shared { ledger, checks, .. } = *self.shared;
        let timer = &mut self.timers[at];
        let (key, (first, last)) = (timer.key, timer.due);
        let Some(fired) = ledger.fired_at(self.first + at) else {
            if self.shared.time.now() > last.saturating_add(self.shared.patience) {
                checks.violated("every_timer_ends", || {
                    format!("timer {key:#x} has not fired long after it was due")
                });
                timer.handle = None;
                timer.lost = true;
            }
            return timer.lost;
        };
        checks.expect("none_early", fired >= first, || {
            format!("timer {key:#x} fired {} ns early", first - fired)
        });
        checks.expect("none_late", fired <= last, || {
            format!("timer {key:#x} fired {} late", human(fired - first))
        });
        let late = fired.saturating_sub(first);
        self.lateness.record_nanos(late);
        self.shared.latest.fetch_max(late, Relaxed);
        self.tally.fired += 1;
        timer.handle = None;
        true
    }

    /// Cancels what has long to wait, and waits for the rest.
    fn drain(&mut self) {
        let soon = self.shared.time.now() + 2 * self.shared.draw.timeout;
        for at in 0..self.timers.len() {
            let timer = self.timers[at];
            if timer.handle.is_some() && timer.due.0 > soon {
                self.cancel(at);
            }
            self.timers[at].waits = true;
        }
        let mut left: Vec<usize> = (0..self.timers.len()).collect();
        loop {
            left.retain(|&at| self.timers[at].handle.is_some() && !self.has_ended(at));
            if left.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Polls until no thread waits for a timer.
fn poll(shared: &Shared<'_>) -> Brought {
    let mut fired = Vec::new();
    while shared.busy.load(Acquire) > 0 {
        shared.queue.poll_into(&mut fired, BUDGET);
        let now = shared.time.now();
        for key in fired.drain(..) {
            shared.ledger.fired(*key, now, shared.checks);
        }
        std::thread::yield_now();
    }
    Brought::default()
}

/// Runs the load to its end.
///
/// # Errors
///
/// If the queue cannot be built.
pub fn run(
    options: &Timers,
    draw: &Draw,
    (threads, each): (usize, usize),
) -> Result<Outcome, Error> {
    let time = Timeline::new(false);
    let (ledger, checks) = (
        Arc::new(Ledger::new(each * threads)),
        Arc::new(Checks::new(&NAMES)),
    );
    let built = time.now();
    let builder = ExpiryQueue::builder()
        .interval(options.interval)
        .clock(time.clock());
    let queue = if options.pollers > 0 {
        builder.build()?
    } else {
        let (time, ledger, checks) = (time.clone(), ledger.clone(), checks.clone());
        builder.build_with_handler(move |&key| ledger.fired(key, time.now(), &checks))?
    };
    let mut clocked = Clocked::new();
    let (brought, most, outcome) = load(
        options,
        (draw, each, threads),
        (&queue, &time, &ledger, &checks),
        &mut clocked,
        built,
    );
    let metrics = at_rest(&queue, most, threads + options.pollers as usize, &checks);
    drop(queue);
    let mut tally = Tally::default();
    let (mut lateness, mut operations) = (Latency::new(), 0);
    for one in &brought {
        tally.add(&one.tally);
        lateness.add(&one.lateness);
        operations += one.operations;
    }
    for (what, is, should) in [
        ("inserted", metrics.inserted, tally.scheduled),
        ("removed", metrics.removed, tally.cancelled),
        ("expired", metrics.expired, tally.fired),
    ] {
        checks.equal("metrics_add_up", what, is, should);
    }
    checks.equal("nothing_left", "timers in the queue", metrics.live, 0);
    let (took, series, spread) = outcome;
    let mut latency: Vec<_> = clocked.named().collect();
    latency.push(("firing_lateness", lateness.percentiles()));
    Ok(Outcome {
        tally,
        operations,
        took,
        series,
        // The handler is gone with the queue.
        checks: Arc::into_inner(checks).expect("nobody else has the checks"),
        counts: vec![
            ("pollers", options.pollers.into()),
            ("slots_at_most", most),
            ("slots_at_the_end", metrics.slots),
        ],
        charts: vec![spread],
        latency,
    })
}

type Shown = (Duration, crate::live::Series, Chart);

/// All threads, and what is shown; also the most slots that were seen.
fn load(
    options: &Timers,
    (draw, each, threads): (&Draw, usize, usize),
    (queue, time, ledger, checks): (&ExpiryQueue<u64>, &Timeline, &Ledger, &Checks),
    clocked: &mut Clocked,
    built: u64,
) -> (Vec<Brought>, u64, Shown) {
    let interval = nanos(options.interval);
    let (began, length) = (time.now(), nanos(Duration::from_secs_f64(options.seconds)));
    let shared = &Shared {
        queue,
        time,
        ledger,
        checks,
        draw,
        order: options.order,
        late: interval + time.lag(interval) + nanos(options.allowance),
        patience: nanos(PATIENCE),
        stop: began + length,
        busy: AtomicUsize::new(threads),
        operations: AtomicU64::new(0),
        latest: AtomicU64::new(0),
    };
    let mut works: Vec<Work<'_, Brought>> = Vec::new();
    for number in 0..threads {
        let worker = Worker {
            shared,
            rng: SmallRng::seed_from_u64(options.seed.wrapping_mul(256) + number as u64),
            first: number * each,
            timers: vec![Timer::default(); each],
            cursor: 0,
            calls: 0,
            pace: Pace::part(options.rate, (number, threads), began, options.seed),
            times: clocked.0.each_ref().map(|times| times.recorder()),
            lateness: Latency::new(),
            tally: Tally::default(),
            told: 0,
        };
        works.push(Box::new(move || worker.run()));
    }
    for _ in 0..options.pollers {
        works.push(Box::new(move || poll(shared)));
    }
    let shown = if options.rate.is_some() { SINCE_DUE } else { 0 };
    let mut spread = None;
    let (mut live, mut most) = (Live::new("timers", Some(length)), 0);
    let brought = crowd(works, &mut live, |live| {
        let position = (time.now() - began).min(length);
        if position >= length / 2 && spread.is_none() {
            spread = Some(occupancy(queue, time.now() - built, options.timeout));
        }
        live.show(position, || {
            let metrics = queue.metrics();
            most = most.max(metrics.total.slots);
            Gauge {
                done: shared.operations.load(Relaxed),
                latency: Some(clocked.0[shown].since()),
                violations: checks.violations(),
                text: format!(
                    "{} cancelled, latency of {}, lateness max {}",
                    metrics.total.removed,
                    CLOCKED[shown],
                    human(shared.latest.load(Relaxed))
                ),
                ..Gauge::of_store(metrics)
            }
        });
    });
    let took = Duration::from_nanos(length.min(time.now() - began));
    let spread = spread.unwrap_or_else(|| occupancy(queue, time.now() - built, options.timeout));
    (brought, most, (took, live.finish(), spread))
}

/// How many timers fire when: those in flight by their time to go, in the middle of a run. What is further off than twice the mean is in
/// the last bar. `now` is counted from when the queue was built.
fn occupancy(queue: &ExpiryQueue<u64>, now: u64, timeout: Duration) -> Chart {
    const BARS: u32 = 32;
    let mut bars: Vec<(Duration, u64)> = (1..=BARS)
        .map(|bar| (2 * timeout * bar / BARS, 0))
        .collect();
    for (expiry, keys) in queue.dump() {
        let to_go = expiry.saturating_sub(Duration::from_nanos(now));
        let bar = bars.partition_point(|(bound, _)| *bound <= to_go);
        bars[bar.min(BARS as usize - 1)].1 += keys.len() as u64;
    }
    Chart::by_duration(
        "Timers by time to go, halfway",
        "time to go, the last and more",
        bars,
    )
}

/// The metrics once memory has been given back.
fn at_rest(
    queue: &ExpiryQueue<u64>,
    most: u64,
    threads: usize,
    checks: &Checks,
) -> StoreShardMetrics {
    // As many shards as by default, and the chunks in which threads have sat.
    let shards = crate::options::threads(None).next_power_of_two().min(16);
    let kept = (KEPT * shards as u64 + OWNED * (threads as u64 + 1)) * CHUNK;
    let began = Instant::now();
    loop {
        // Beside a reaper it gives what it finds to the handler; there is nothing to be found.
        let _ = queue.poll();
        let metrics = queue.metrics().total;
        if metrics.slots <= kept || began.elapsed() > PATIENCE {
            checks.expect("memory_given_back", metrics.slots <= kept, || {
                format!(
                    "{} slots are held with {} timers, at most {kept} should be; there were {most}",
                    metrics.slots, metrics.live
                )
            });
            return metrics;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
