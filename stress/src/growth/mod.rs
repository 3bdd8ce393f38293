//! Scenario `growth`: from the default size to many entries, from all threads, and back.
//!
//! Entries are numbered. Each thread has a stretch of the numbers, inserts it in order, and
//! announces its progress. Readers that look meanwhile must find every announced entry, and so must
//! all threads afterwards. Then the threads end their entries, each once. Or the engine is bounded,
//! and more entries try to get in than may (see `bounded`). Memory is that of the entries, and 8
//! bytes for each issued root.

mod bounded;

use crate::checks::{Check, Checks};
use crate::crowd::{crowd, part, Work};
use crate::error::Error;
use crate::interrupt;
use crate::live::{Gauge, Live};
use crate::options::{threads, Growth};
use crate::report::Report;
use crate::subject::{build, Kind, Setting, Subject, LONG};
use crate::usage::{resident, trim};
use crossbeam_utils::CachePadded;
use expiry::CoarseClock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMES: [Check; 7] = [
    "none_lost",
    "count_exact",
    "readers_see_all",
    "drained_once",
    "memory_per_entry",
    "given_back",
    "no_surprises",
];

/// Memory that belongs to no entry: the harness, chunks in which threads own a slot block, and huge
/// pages that the system makes.
const FIXED: u64 = 8 << 20;
/// How long to wait for memory to be given back.
const PATIENCE: Duration = Duration::from_secs(30);
/// The granularity of time. Nothing expires here.
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of operations after which a thread reports its progress. A power of two.
const TELL: u64 = 256;
/// One ended entry in this many is ended a second time, as a trial.
const AGAIN: u64 = 16;

/// Share of the memory, in percent, that may stay once all has ended.
const STAYS: u64 = 15;

/// A kind that grows: the most bytes that an entry may take, its key and value included, and the
/// name of the bytes an entry took.
type Named = (Kind, u64, &'static str);

const KINDS: [Named; 3] = [
    (Kind::Issued, 48, "bytes_an_issued_root"),
    (Kind::Chosen, 88, "bytes_a_chosen_root"),
    (Kind::Map, 120, "bytes_an_entry_of_the_map"),
];

/// A run of one kind.
struct Run<'a> {
    options: &'a Growth,
    checks: &'a Checks,
    kind: Kind,
    /// The most bytes that an entry may take.
    bytes: u64,
    subject: Arc<dyn Subject>,
    threads: usize,
    /// Operations of all kinds, as shown.
    operations: &'a AtomicU64,
}

#[derive(Default)]
struct Row {
    inserted: u64,
    /// Bytes an entry. None where the engine is bounded.
    memory: Option<f64>,
}

impl Run<'_> {
    /// The numbers of a thread, of so many.
    fn stretch(&self, thread: usize, entries: u64) -> Range<u64> {
        part(entries, (thread, self.threads))
    }

    fn expect(&self, check: Check, holds: bool, text: impl FnOnce() -> String) {
        self.checks.expect(check, holds, || format!("{:?}: {}", self.kind, text()));
    }

    /// Counts an operation, for the live view.
    fn count(&self, nth: u64) {
        if nth & (TELL - 1) == TELL - 1 {
            self.operations.fetch_add(TELL, Relaxed);
        }
    }

    /// Runs all threads, and displays progress.
    fn crowd<T: Send>(&self, live: &mut Live, works: Vec<Work<'_, T>>) -> Vec<T> {
        crowd(works, live, |live| {
            let done = self.operations.load(Relaxed);
            live.show(done, || Gauge {
                done,
                live: self.subject.len() as u64,
                violations: self.checks.violations(),
                text: format!("{} entries", self.subject.len()),
                ..Gauge::default()
            });
        })
    }

    /// Each thread calls this with each of its own entries.
    fn each<I: Iterator<Item = u64> + Send>(
        &self,
        live: &mut Live,
        own: impl Iterator<Item = I>,
        act: impl Fn(u64) + Sync,
    ) {
        let act = &act;
        let work = |mine: I| -> Work<'_, ()> {
            Box::new(move || {
                mine.for_each(|entry| {
                    act(entry);
                    self.count(entry);
                });
            })
        };
        self.crowd(live, own.map(work).collect());
    }

    /// Each of these entries is there.
    fn is_there(&self, entry: u64) {
        self.expect("none_lost", self.subject.is_there(entry), || {
            format!("entry {entry} got in and is not found")
        });
    }

    /// Grows the kind, and lets it shrink.
    fn grow(&self, live: &mut Live) -> Row {
        let entries = u64::from(self.options.entries);
        let done: Vec<_> = (0..self.threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        let done = &done;
        trim();
        let before = resident();
        let busy = &AtomicUsize::new(self.threads);
        let mut works: Vec<Work<'_, ()>> = Vec::new();
        for (thread, done) in done.iter().enumerate() {
            works.push(Box::new(move || {
                self.write(self.stretch(thread, entries), done);
                busy.fetch_sub(1, AcqRel);
            }));
        }
        for number in 0..self.options.readers {
            works.push(Box::new(move || self.read(done, busy, number.into())));
        }
        self.crowd(live, works);
        let full = resident();
        let inserted = done.iter().map(|done| done.load(Acquire)).sum();
        let own = || {
            done.iter().enumerate().map(|(thread, done)| {
                let first = self.stretch(thread, entries).start;
                first..first + done.load(Acquire)
            })
        };
        self.counted(inserted, inserted);
        self.each(live, own(), |entry| self.is_there(entry));
        self.each(live, own(), |entry| self.drain(entry));
        self.counted(inserted, 0);
        let gained = full.saturating_sub(before);
        self.given_back(live, before, gained);
        self.fits(inserted, gained);
        #[allow(clippy::cast_precision_loss)] // for the eye
        Row { inserted, memory: Some(gained as f64 / inserted.max(1) as f64) }
    }

    /// Inserts a thread's numbers, and announces each of them after its insert.
    fn write(&self, numbers: Range<u64>, done: &AtomicU64) {
        for entry in numbers {
            if interrupt::asked() {
                break;
            }
            let put = self.subject.put(entry, LONG);
            self.expect("no_surprises", put.is_ok(), || {
                format!("entry {entry} was refused: {put:?}")
            });
            // Release: an announced entry is in.
            done.fetch_add(1, Release);
            self.count(entry);
        }
    }

    /// Looks for announced entries, until all are announced.
    fn read(&self, done: &[CachePadded<AtomicU64>], busy: &AtomicUsize, number: u64) {
        let seed = self.options.seed.wrapping_mul(64) + number;
        let (mut rng, mut looks) = (SmallRng::seed_from_u64(seed), 0);
        while busy.load(Acquire) > 0 {
            let thread = rng.random_range(0..done.len());
            let there = done[thread].load(Acquire);
            if there == 0 {
                std::thread::yield_now();
                continue;
            }
            // Half of the looks are for the latest entries: growth happens there.
            let back = if looks % 2 == 0 { there.min(1000) } else { there };
            let first = self.stretch(thread, self.options.entries.into()).start;
            let entry = first + there - 1 - rng.random_range(0..back);
            let found = self.subject.is_there(entry);
            self.expect("readers_see_all", found, || {
                format!("entry {entry} was in, and was not found")
            });
            looks += 1;
            self.count(looks);
        }
    }

    fn drain(&self, entry: u64) {
        self.expect("drained_once", self.subject.end(entry), || {
            format!("entry {entry} cannot be ended")
        });
        if entry.is_multiple_of(AGAIN) {
            self.expect("drained_once", !self.subject.ends_again(entry), || {
                format!("entry {entry} was ended twice")
            });
        }
    }

    /// Checks the engine's counters at rest: so many have come in, and so many are live.
    fn counted(&self, inserted: u64, live: u64) {
        let counts = self.subject.counts();
        for (what, is, should) in [
            ("entries", self.subject.len() as u64, live),
            ("inserted", counts.inserted, inserted),
            ("ended", counts.ended, inserted - live),
        ] {
            self.expect("count_exact", is == should, || {
                format!("{what}: {is}, should be {should}")
            });
        }
    }

    /// Whether an entry takes no more memory than it may.
    fn fits(&self, inserted: u64, gained: u64) {
        let allowed = inserted * self.bytes + FIXED;
        self.expect("memory_per_entry", gained <= allowed, || {
            format!("{inserted} entries took {gained} bytes, {allowed} are allowed")
        });
    }

    /// Waits until enough memory of `gained` has been given back.
    fn given_back(&self, live: &mut Live, before: u64, gained: u64) {
        let may_stay = gained / 100 * STAYS + FIXED;
        let (began, mut left) = (Instant::now(), gained);
        // The loop looks once more than necessary, as memory comes back for a while.
        while began.elapsed() < PATIENCE {
            let is_enough = left <= may_stay;
            std::thread::sleep(live.pause().max(Duration::from_millis(20)));
            trim();
            left = resident().saturating_sub(before);
            let (done, text) =
                (self.operations.load(Relaxed), format!("{} MiB to be given back", left >> 20));
            live.show(done, || Gauge { done, text, ..Gauge::default() });
            if is_enough {
                break;
            }
        }
        self.expect("given_back", left <= may_stay, || {
            format!(
                "of {gained} bytes {left} are there after all has ended, {may_stay} may be; {} slots are held",
                self.subject.counts().slots
            )
        });
    }
}

pub fn run(options: &Growth) -> Result<Report, Error> {
    let names: &[Check] = if options.bounded { &bounded::NAMES } else { &NAMES };
    let checks = Checks::new(names);
    let (threads, operations) = (threads(options.threads), AtomicU64::new(0));
    let entries = u64::from(options.entries);
    let (numbers, capacity) = if options.bounded {
        (bounded::numbers(entries, threads), Some(entries as usize))
    } else {
        (entries, None)
    };
    let began = Instant::now();
    let mut live = Live::new("growth", None);
    let mut rows = Vec::new();
    let is_asked = |named: &&Named| options.on.is_empty() || options.on.contains(&named.0);
    for &(kind, bytes, memory) in KINDS.iter().filter(is_asked) {
        if interrupt::asked() {
            break;
        }
        let setting = Setting {
            kind,
            clock: Arc::new(CoarseClock::new()),
            reaper: true,
            shards: None,
            capacity,
            interval: INTERVAL,
            seed: Some(options.seed),
            told: Arc::new(|_, _| ()),
        };
        let run = Run {
            options,
            checks: &checks,
            kind,
            bytes,
            // This includes the list of issued roots, which is the harness's own.
            subject: build::<u64>(setting, numbers as usize)?,
            threads,
            operations: &operations,
        };
        let row = if options.bounded { run.bound(&mut live) } else { run.grow(&mut live) };
        rows.push((memory, row));
    }
    let took = began.elapsed();
    let inserted = rows.iter().map(|(_, row)| row.inserted).sum::<u64>();
    let operations = ("operations", operations.into_inner());
    let mut report = Report::new("growth", operations, took, options.seed, &checks, options);
    report.counts.extend([("threads", threads as u64), ("inserted", inserted)]);
    for (memory, row) in rows {
        report.figures.extend(row.memory.map(|bytes| (memory, bytes)));
    }
    Ok(report)
}
