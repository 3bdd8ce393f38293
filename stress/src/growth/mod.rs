//! Scenario `growth`: from the default size to many entries, from all threads, and back.
//!
//! Entries are numbered; each thread has a stretch of the numbers, inserts it in order, and says how far it has come. What was said
//! must be found, by readers that look meanwhile and by all threads afterwards; then the threads end their entries, each once. Or the
//! engine is bounded, and more want to get in than may (see `bounded`). Memory is that of the entries, and of issued roots 8 bytes each.

mod bounded;

use crate::checks::{Check, Checks};
use crate::crowd::{crowd, Work};
use crate::error::Error;
use crate::interrupt;
use crate::latency::{Percentiles, Recorder, Times};
use crate::live::{Gauge, Live};
use crate::options::{threads, Grown, Growth};
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

/// The checks of a run.
const NAMES: [Check; 7] = [
    "none_lost",
    "count_exact",
    "readers_see_all",
    "drained_once",
    "memory_per_entry",
    "given_back",
    "no_surprises",
];

/// Memory that is no entry's: the harness, chunks in which threads sit, and what the system makes huge pages of.
const FIXED: u64 = 8 << 20;
/// How long to wait for memory to be given back.
const PATIENCE: Duration = Duration::from_secs(30);
/// The granularity of time. Nothing expires here.
const INTERVAL: Duration = Duration::from_millis(100);
/// After how many operations a thread is counted. A power of two.
const TELL: u64 = 256;
/// Of so many entries that have ended, it is tried once to end them again.
const AGAIN: u64 = 16;

/// What is said of one kind.
struct Names {
    kind: Grown,
    insert: &'static str,
    look: &'static str,
    bytes: &'static str,
    back: &'static str,
}

const KINDS: [Names; 3] = [
    Names {
        kind: Grown::Issued,
        insert: "insert_issued",
        look: "look_issued",
        bytes: "bytes_an_issued_root",
        back: "given_back_issued_percent",
    },
    Names {
        kind: Grown::Chosen,
        insert: "insert_chosen",
        look: "look_chosen",
        bytes: "bytes_a_chosen_root",
        back: "given_back_chosen_percent",
    },
    Names {
        kind: Grown::Map,
        insert: "insert_map",
        look: "look_map",
        bytes: "bytes_an_entry_of_the_map",
        back: "given_back_map_percent",
    },
];

/// A run: what all kinds share.
struct Run<'a> {
    options: &'a Growth,
    checks: &'a Checks,
    threads: usize,
    /// Operations, as shown.
    operations: AtomicU64,
}

/// What came of one kind.
#[derive(Default)]
struct Row {
    inserted: u64,
    looks: u64,
    insert: Option<Percentiles>,
    look: Option<Percentiles>,
    bytes: f64,
    given_back: f64,
    slots: [u64; 2],
}

impl Run<'_> {
    /// The numbers of a thread, of so many.
    fn stretch(&self, thread: usize, entries: u64) -> Range<u64> {
        let at = |thread: usize| entries * thread as u64 / self.threads as u64;
        at(thread)..at(thread + 1)
    }

    fn expect(&self, check: Check, kind: Grown, holds: bool, text: impl FnOnce() -> String) {
        self.checks.expect(check, holds, || format!("{kind:?}: {}", text()));
    }

    /// Counts an operation, for what is shown.
    fn count(&self, nth: u64) {
        if nth & (TELL - 1) == TELL - 1 {
            self.operations.fetch_add(TELL, Relaxed);
        }
    }

    /// All threads, each with its number, and what is shown meanwhile.
    fn crowd<'w, T: Send>(
        &'w self,
        live: &mut Live,
        subject: &'w dyn Subject,
        works: Vec<Work<'w, T>>,
        times: Option<&mut Times>,
    ) -> Vec<T> {
        let mut times = times;
        crowd(works, live, |live| {
            let done = self.operations.load(Relaxed);
            live.show(done, || Gauge {
                done,
                live: subject.len() as u64,
                latency: times.as_mut().map(|times| times.since()),
                violations: self.checks.violations(),
                text: format!("{} entries", subject.len()),
                ..Gauge::default()
            });
        })
    }

    /// Each thread does this with each entry that it has inserted, which is `done` of its numbers.
    fn each(
        &self,
        live: &mut Live,
        subject: &dyn Subject,
        done: &[CachePadded<AtomicU64>],
        act: impl Fn(u64) + Sync,
    ) {
        let act = &act;
        let work = |thread: usize| -> Work<'_, ()> {
            let numbers = self.stretch(thread, self.options.entries.into());
            let mine = numbers.start..numbers.start + done[thread].load(Acquire);
            Box::new(move || {
                for entry in mine {
                    act(entry);
                    self.count(entry);
                }
            })
        };
        self.crowd(live, subject, (0..self.threads).map(work).collect(), None);
    }

    /// One kind, with a reaper, for so many entries.
    fn subject(
        &self,
        kind: Grown,
        entries: u64,
        capacity: Option<usize>,
    ) -> Result<Arc<dyn Subject>, Error> {
        let setting = Setting {
            kind: match kind {
                Grown::Issued => Kind::Issued,
                Grown::Chosen => Kind::Chosen,
                Grown::Map => Kind::Map,
            },
            clock: Arc::new(CoarseClock::new()),
            reaper: true,
            shards: None,
            capacity,
            interval: INTERVAL,
            seed: Some(self.options.seed),
            told: Arc::new(|_, _| ()),
        };
        Ok(build::<u64>(setting, entries as usize)?)
    }

    /// Grows one kind, and lets it shrink.
    fn grow(&self, live: &mut Live, kind: Grown) -> Result<Row, Error> {
        let entries = u64::from(self.options.entries);
        let (mut inserts, mut looks) = (Times::new(), Times::new());
        let done: Vec<_> = (0..self.threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        let writers: Vec<_> = (0..self.threads).map(|_| inserts.recorder()).collect();
        let readers: Vec<_> = (0..self.options.readers).map(|_| looks.recorder()).collect();
        // With the list of issued roots, which is the harness's own.
        let subject = &*self.subject(kind, entries, None)?;
        trim();
        let before = resident();
        let busy = AtomicUsize::new(self.threads);
        let mut works: Vec<Work<'_, u64>> = Vec::new();
        for (thread, recorder) in writers.into_iter().enumerate() {
            let (done, busy) = (&done[thread], &busy);
            works.push(Box::new(move || {
                self.write(kind, subject, (thread, done), recorder);
                busy.fetch_sub(1, AcqRel);
                0
            }));
        }
        for (number, recorder) in readers.into_iter().enumerate() {
            let (done, busy) = (&done, &busy);
            works.push(Box::new(move || self.read(kind, subject, done, busy, (number, recorder))));
        }
        let looked = self.crowd(live, subject, works, Some(&mut inserts)).iter().sum();
        let full = resident();
        let inserted = done.iter().map(|done| done.load(Acquire)).sum();
        self.counted(kind, subject, (inserted, inserted));
        self.each(live, subject, &done, |entry| {
            self.expect("none_lost", kind, subject.is_there(entry), || {
                format!("entry {entry} is not found after growth")
            });
        });
        let slots = subject.counts().slots;
        self.each(live, subject, &done, |entry| {
            self.drain(kind, subject, entry);
        });
        self.counted(kind, subject, (inserted, 0));
        let gained = full.saturating_sub(before);
        let left = self.given_back(kind, live, subject, (before, gained));
        #[allow(clippy::cast_precision_loss)] // for the eye
        let row = Row {
            inserted,
            looks: looked,
            insert: Some(inserts.percentiles()),
            look: Some(looks.percentiles()),
            bytes: gained as f64 / inserted.max(1) as f64,
            given_back: 100.0 * (1.0 - left as f64 / gained.max(1) as f64),
            slots: [slots, subject.counts().slots],
        };
        self.fits(kind, inserted, gained);
        Ok(row)
    }

    /// Inserts a thread's numbers, and says after each that it is in.
    fn write(
        &self,
        kind: Grown,
        subject: &dyn Subject,
        (thread, done): (usize, &AtomicU64),
        mut recorder: Recorder,
    ) {
        let numbers = self.stretch(thread, self.options.entries.into());
        for entry in numbers {
            if interrupt::asked() {
                break;
            }
            let began = Instant::now();
            let put = subject.put(entry, LONG);
            recorder.record(began.elapsed());
            if let Err(why) = put {
                self.expect("no_surprises", kind, false, || {
                    format!("entry {entry} was refused: {why:?}")
                });
            }
            // Release: what was said to be in is in.
            done.fetch_add(1, Release);
            self.count(entry);
        }
    }

    /// Looks for what was said to be in, until all is. How often it has looked.
    fn read(
        &self,
        kind: Grown,
        subject: &dyn Subject,
        done: &[CachePadded<AtomicU64>],
        busy: &AtomicUsize,
        (number, mut recorder): (usize, Recorder),
    ) -> u64 {
        let seed = self.options.seed.wrapping_mul(64) + number as u64;
        let (mut rng, mut looks) = (SmallRng::seed_from_u64(seed), 0);
        while busy.load(Acquire) > 0 {
            let thread = rng.random_range(0..done.len());
            let there = done[thread].load(Acquire);
            if there == 0 {
                std::thread::yield_now();
                continue;
            }
            // What came last half of the time: it is where growth is.
            let back = if looks % 2 == 0 { there.min(1000) } else { there };
            let first = self.stretch(thread, self.options.entries.into()).start;
            let entry = first + there - 1 - rng.random_range(0..back);
            let began = Instant::now();
            let found = subject.is_there(entry);
            recorder.record(began.elapsed());
            self.expect("readers_see_all", kind, found, || {
                format!("entry {entry} was in, and was not found")
            });
            looks += 1;
            self.count(looks);
        }
        looks
    }

    fn drain(&self, kind: Grown, subject: &dyn Subject, entry: u64) {
        self.expect("drained_once", kind, subject.end(entry), || {
            format!("entry {entry} cannot be ended")
        });
        if entry.is_multiple_of(AGAIN) {
            self.expect("drained_once", kind, !subject.ends_again(entry), || {
                format!("entry {entry} was ended twice")
            });
        }
    }

    /// The engine's counters at rest: so many have come in, and so many are there.
    fn counted(&self, kind: Grown, subject: &dyn Subject, (inserted, live): (u64, u64)) {
        let counts = subject.counts();
        for (what, is, should) in [
            ("entries", subject.len() as u64, live),
            ("inserted", counts.inserted, inserted),
            ("ended", counts.ended, inserted - live),
        ] {
            self.expect("count_exact", kind, is == should, || {
                format!("{what}: {is}, should be {should}")
            });
        }
    }

    /// Whether an entry takes no more memory than it may.
    fn fits(&self, kind: Grown, inserted: u64, gained: u64) {
        let most = match kind {
            Grown::Issued => self.options.bytes_issued,
            Grown::Chosen => self.options.bytes_chosen,
            Grown::Map => self.options.bytes_map,
        };
        let allowed = inserted * u64::from(most) + FIXED;
        self.expect("memory_per_entry", kind, gained <= allowed, || {
            format!("{inserted} entries took {gained} bytes, {allowed} are allowed")
        });
    }

    /// Waits until enough memory has been given back; what there still is of what was `gained`.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of it
    fn given_back(
        &self,
        kind: Grown,
        live: &mut Live,
        subject: &dyn Subject,
        (before, gained): (u64, u64),
    ) -> u64 {
        let may_stay = (gained as f64 * (1.0 - self.options.given_back)) as u64 + FIXED;
        let (began, mut left) = (Instant::now(), gained);
        // One look more than it takes: it goes on for a while.
        while began.elapsed() < PATIENCE {
            let is_enough = left <= may_stay;
            std::thread::sleep(live.pause().max(Duration::from_millis(20)));
            trim();
            left = resident().saturating_sub(before);
            live.show(self.operations.load(Relaxed), || Gauge {
                done: self.operations.load(Relaxed),
                text: format!("{} MiB to be given back", left >> 20),
                ..Gauge::default()
            });
            if is_enough {
                break;
            }
        }
        self.expect("given_back", kind, left <= may_stay, || {
            format!(
                "of {gained} bytes {left} are there after all has ended, {may_stay} may be; {} slots are held",
                subject.counts().slots
            )
        });
        left
    }
}

/// Runs the scenario.
///
/// # Errors
///
/// If a tracker or map cannot be built.
pub fn run(options: &Growth) -> Result<Report, Error> {
    let names: &[Check] = if options.bounded { &bounded::NAMES } else { &NAMES };
    let checks = Checks::new(names);
    let run = Run {
        options,
        checks: &checks,
        threads: threads(options.threads),
        operations: AtomicU64::new(0),
    };
    let is_asked = |names: &&Names| options.on.is_empty() || options.on.contains(&names.kind);
    let began = Instant::now();
    let mut live = Live::new("growth", None);
    let mut rows = Vec::new();
    for names in KINDS.iter().filter(is_asked) {
        if interrupt::asked() {
            break;
        }
        let row = if options.bounded {
            run.bound(&mut live, names.kind)?
        } else {
            run.grow(&mut live, names.kind)?
        };
        rows.push((names, row));
    }
    let (took, series) = (began.elapsed(), live.finish());
    let sum = |of: fn(&Row) -> u64| rows.iter().map(|(_, row)| of(row)).sum::<u64>();
    let operations = ("operations", run.operations.load(Relaxed));
    let mut report = Report::new("growth", operations, took, options.seed, &checks, options);
    report.series = series;
    report.counts.extend([("threads", run.threads as u64), ("inserted", sum(|row| row.inserted))]);
    if !options.bounded {
        report.counts.extend([
            ("looked_up_meanwhile", sum(|row| row.looks)),
            ("slots_when_full", sum(|row| row.slots[0])),
            ("slots_at_the_end", sum(|row| row.slots[1])),
        ]);
    }
    for (names, row) in rows {
        report.latency.extend(row.insert.map(|times| (names.insert, times)));
        report.latency.extend(row.look.map(|times| (names.look, times)));
        if !options.bounded {
            report.figures.extend([(names.bytes, row.bytes), (names.back, row.given_back)]);
        }
    }
    Ok(report)
}
