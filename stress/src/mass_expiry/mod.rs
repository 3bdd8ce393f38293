//! Scenario `mass-expiry`: many entries expire at once, which must not stop the threads that go on.
//!
//! The threads of the foreground fill an [`ExpiryQueue`] and go on for a while. After a leap of the
//! clock they go on beside the expiry (see `foreground`). The ledger records what becomes of each
//! entry (see `books`). An entry expires once, at its time, unless a call has said that it renewed
//! or removed the entry before. A conducting thread lets time pass, and announces the phases.
//! Memory is that of the entries, and 8 bytes each.

mod books;
mod foreground;

use crate::checks::Check;
use crate::crowd::{crowd, Work};
use crate::error::Error;
use crate::interrupt;
use crate::latency::{nanos, Times};
use crate::leap::{lag_beside, Leaping};
use crate::live::{Gauge, Live};
use crate::options::{threads, MassExpiry};
use crate::report::Report;
use books::{Books, Terms};
use expiry::{Clock, Expired, ExpiryQueue};
use foreground::Foreground;
use std::sync::atomic::{AtomicU64, AtomicU8, AtomicUsize, Ordering::*};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMES: [Check; 9] = [
    "all_expire",
    "one_end_each",
    "none_early",
    "none_late",
    "renewed_stay",
    "foreground_right",
    "budget_kept",
    "metrics_add_up",
    "nobody_stopped",
];

/// How long after the queue was built entries are due; and how long all else lives.
const LEAP: Duration = Duration::from_secs(3600);
const LIFE: Duration = Duration::from_secs(10 * 3600);
/// How long before that, in intervals, the clock goes at its usual speed again.
const LEAD: u32 = 4;
/// Keys of the foreground are from here on; this one wakes the reaper.
const FOREGROUND: u64 = 1 << 60;
const ALARM: u64 = u64::MAX;
/// How many entries a poll may give beyond its budget: those of a slot block that it has begun.
const BEGUN: u64 = 15;
/// How long after everything should have expired the run gives up waiting.
const PATIENCE: Duration = Duration::from_secs(10);

/// Phases of a run.
const FILLING: u8 = 0;
const BEFORE: u8 = 1;
const DURING: u8 = 2;
const OVER: u8 = 3;

struct Shared<'a> {
    options: &'a MassExpiry,
    queue: &'a ExpiryQueue<u64>,
    books: &'a Books,
    clock: &'a Leaping,
    threads: usize,
    pollers: usize,
    phase: AtomicU8,
    /// Threads that have filled their part, and how much of it each has.
    ready: AtomicUsize,
    filled: Vec<AtomicU64>,
    /// The most entries that a poll gave.
    most: AtomicU64,
}

impl Shared<'_> {
    /// How many entries the threads have inserted.
    fn filled(&self) -> u64 {
        self.filled.iter().map(|filled| filled.load(Acquire)).sum()
    }

    /// Polls once. True if there may be more.
    fn poll(&self, found: &mut Vec<Expired<u64>>) -> bool {
        let budget = self.options.budget as usize;
        let more = self.queue.poll_into(found, budget).more;
        let gave = found.len() as u64;
        if gave == 0 {
            return more;
        }
        self.most.fetch_max(gave, Relaxed);
        self.books.checks.expect("budget_kept", gave <= budget as u64 + BEGUN, || {
            format!("a poll with a budget of {budget} gave {gave} entries")
        });
        let entries = found.drain(..).filter(|key| **key != ALARM);
        entries.for_each(|key| self.books.expired(*key));
        true
    }

    /// A thread that polls.
    fn poller(&self) {
        let mut found = Vec::new();
        while self.phase.load(Acquire) != OVER {
            if !self.poll(&mut found) {
                std::thread::yield_now();
            }
        }
    }

    /// Announces the phases, and lets time pass. Returns how long the foreground was timed for.
    fn conduct(&self) -> Duration {
        let nap = || std::thread::sleep(Duration::from_millis(1));
        while self.ready.load(Acquire) < self.threads {
            nap();
        }
        let began = Instant::now();
        self.phase.store(BEFORE, Release);
        let before = Duration::from_secs_f64(self.options.seconds);
        while began.elapsed() < before && !interrupt::asked() {
            nap();
        }
        let books = self.books;
        let lead = nanos(self.options.interval * LEAD);
        let to_go = (books.terms.due - lead).saturating_sub(books.time.now());
        books.holds.store(self.pollers == 0, Release);
        self.phase.store(DURING, Release);
        self.clock.leap(to_go);
        self.wait();
        self.phase.store(OVER, Release);
        began.elapsed()
    }

    /// Waits until all have a story.
    fn wait(&self) {
        // The reaper sleeps by the machine's time: this wakes it to look at the clock.
        let alarm = self.queue.update(ALARM, self.options.interval);
        self.books
            .checks
            .expect("foreground_right", alarm.is_ok(), || format!("a key was refused: {alarm:?}"));
        let filled = self.filled();
        let span = self.options.interval * (self.options.intervals + LEAD);
        let (began, patience) = (Instant::now(), span + self.options.allowance + PATIENCE);
        while self.books.settled.load(Acquire) < filled && began.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub fn run(options: &MassExpiry) -> Result<Report, Error> {
    let threads = threads(options.threads);
    let pollers = options.pollers as usize;
    let (interval, time) = (nanos(options.interval), Leaping::default());
    let span = options.interval.saturating_mul(options.intervals);
    if interval == 0 || span > LIFE - LEAP {
        return Err(Error::Option {
            option: "--intervals",
            why: "take longer than some hours; use fewer, or a shorter --interval".into(),
        });
    }
    let terms = Terms {
        due: time.now() + nanos(LEAP),
        interval,
        intervals: options.intervals.into(),
        late: interval + lag_beside(&time, interval) + nanos(options.allowance),
    };
    let clock: Arc<dyn Clock> = Arc::new(time.clone());
    let books = Books::new((options.entries, threads), (clock.clone(), terms), options.allowance);
    let books = Arc::new(books);
    let builder = ExpiryQueue::builder()
        .interval(options.interval)
        .reaper_budget(options.budget as usize)
        .clock(clock);
    let queue = if pollers > 0 {
        builder.build_manual()?
    } else {
        let books = books.clone();
        builder
            .expiry_listener(move |&key| {
                if key != ALARM {
                    books.expired(key);
                    books.hold();
                }
            })
            .build()?
    };
    let shared = Shared {
        options,
        queue: &queue,
        books: &books,
        clock: &time,
        threads,
        pollers,
        phase: AtomicU8::new(FILLING),
        ready: AtomicUsize::new(0),
        filled: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        most: AtomicU64::new(0),
    };
    let mut times = [Times::new(), Times::new()];
    let mut live = Live::new("mass-expiry", None);
    let (did, took) = perform(&shared, &mut times, &mut live);
    at_rest(&shared);
    let mut report = Report::new(
        "mass-expiry",
        ("foreground operations", did.iter().sum()),
        took,
        options.seed,
        &books.checks,
        options,
    );
    told(&mut report, &shared, did, times);
    Ok(report)
}

/// Runs all threads to their end. Returns the operations of the foreground before and during, and
/// how long both took.
fn perform(shared: &Shared<'_>, times: &mut [Times; 2], live: &mut Live) -> ([u64; 2], Duration) {
    let mut works: Vec<Work<'_, ([u64; 2], Duration)>> = Vec::new();
    for thread in 0..shared.threads {
        let recorders = times.each_ref().map(|times| times.recorder());
        let foreground = Foreground::new(shared, thread, recorders);
        works.push(Box::new(move || (foreground.run(), Duration::ZERO)));
    }
    for _ in 0..shared.pollers {
        works.push(Box::new(move || {
            shared.poller();
            Default::default()
        }));
    }
    works.push(Box::new(move || ([0; 2], shared.conduct())));
    let books = shared.books;
    let brought = crowd(works, live, |live| {
        let phase = shared.phase.load(Relaxed);
        let told = books.told.load(Relaxed);
        let operations = books.operations.iter().map(|count| count.load(Relaxed));
        let done = operations.sum::<u64>();
        live.show(told, || Gauge {
            done: done + shared.filled(),
            latency: Some(times[usize::from(phase >= DURING)].since()),
            violations: books.checks.violations(),
            text: format!(
                "{}, {told} expired",
                ["filling", "before", "expiring", "clearing"][usize::from(phase)]
            ),
            ..Gauge::of_store(&shared.queue.metrics())
        });
    });
    let mut did = [0; 2];
    for (one, _) in &brought {
        did[0] += one[0];
        did[1] += one[1];
    }
    (did, brought.iter().map(|one| one.1).sum())
}

/// What must hold when all threads have gone.
fn at_rest(shared: &Shared<'_>) {
    let (books, checks) = (shared.books, &shared.books.checks);
    books.ledger.close();
    // Time is beyond the alarm's too, and pollers have gone.
    let (began, mut found) = (Instant::now(), Vec::new());
    while shared.queue.contains(&ALARM) && began.elapsed() < PATIENCE {
        shared.queue.poll_into(&mut found, 1 << 16);
        std::thread::yield_now();
    }
    let metrics = shared.queue.metrics().total;
    checks.equal("all_expire", "keys in the queue", metrics.live, 0);
    let told = books.told.load(Relaxed) + 1; // the alarm's
    checks.equal("metrics_add_up", "expired", metrics.expired, told);
    let ended = metrics.expired + metrics.removed;
    checks.equal("metrics_add_up", "inserted", metrics.inserted, ended);
}

#[allow(clippy::cast_precision_loss)] // counts below 2^53
fn told(report: &mut Report, shared: &Shared<'_>, did: [u64; 2], mut times: [Times; 2]) {
    let books = shared.books;
    let told = books.told.load(Relaxed);
    let [before, during] = times.each_mut().map(|times| times.percentiles());
    let ratio = during.p99 as f64 / before.p99.max(1) as f64;
    report.counts.extend([
        ("threads", shared.threads as u64),
        ("pollers", shared.pollers as u64),
        ("filled", shared.filled()),
        ("expired", told),
        ("foreground_before", did[0]),
        ("foreground_during", did[1]),
        ("longest_poll_entries", shared.most.load(Relaxed)),
    ]);
    report.figures.insert("foreground_p99_ratio", ratio);
    report.latency.extend([
        ("foreground_before", before),
        ("foreground_during", during),
        ("expiry_lateness", books.ledger.lateness().percentiles()),
    ]);
}
