//! What a fault has to work with: a subject, a book, a clock, and the checks that all faults share.

use super::book::Book;
use crate::checks::{Check, Checks};
use crate::latency::nanos;
use crate::options::Faults;
use crate::subject::{build, build_with_channel, Counted, Kind, Reader, Refusal, Setting, Subject};
use expiry::{Clock, ManualClock, MonotonicClock, RemovalCause, WhenFull};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Barrier};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// The granularity of all subjects.
pub const INTERVAL: Duration = Duration::from_millis(1);
/// Slots in a chunk, the unit in which slots' memory is held.
const CHUNK: u64 = 4096;
/// The settings are constants that a builder accepts; without memory there is nothing to be tested.
const BUILT: &str = "a subject is built";
/// How often the fault lets simulated time pass so that memory is maintained.
const ROUNDS: usize = 200;

/// One run of a fault.
#[derive(Clone)]
pub struct Ground {
    pub kind: Kind,
    pub options: Arc<Faults>,
    pub book: Arc<Book>,
    /// Operations that the fault has met.
    pub operations: Arc<AtomicU64>,
    /// Its name, which is that of its check.
    pub fault: Check,
    checks: Arc<Checks>,
}

impl Ground {
    /// The ground for a fault on one kind of store.
    pub fn new(fault: Check, kind: Kind, options: &Arc<Faults>, checks: &Arc<Checks>) -> Self {
        Ground {
            kind,
            options: options.clone(),
            book: Arc::new(Book::new(options.size as usize * 2, kind, fault, checks)),
            operations: Arc::default(),
            fault,
            checks: checks.clone(),
        }
    }

    /// The same ground with a book of its own.
    pub fn again(&self) -> Self {
        self.with_room(self.book.ledger.room())
    }

    /// The same ground with a book of its own for this many entries.
    pub fn with_room(&self, entries: usize) -> Self {
        let book = Book::new(entries, self.kind, self.fault, &self.checks);
        Ground { book: Arc::new(book), ..self.clone() }
    }

    /// A generator of its own for each `place`.
    pub fn rng(&self, place: u64) -> SmallRng {
        SmallRng::seed_from_u64(self.options.seed.wrapping_mul(1 << 16) + place)
    }

    /// A subject whose ends go into the book, and then to `then`.
    pub fn subject(
        &self,
        clock: Arc<dyn Clock>,
        reaper: bool,
        then: impl Fn(u64, RemovalCause) + Send + Sync + 'static,
    ) -> Arc<dyn Subject> {
        let setting = self.setting(clock, reaper, then);
        build::<Counted>(setting, self.book.ledger.room()).expect(BUILT)
    }

    /// A subject that sends ends through a channel of this length.
    pub fn with_channel(
        &self,
        clock: Arc<dyn Clock>,
        length: usize,
        when_full: WhenFull,
    ) -> (Arc<dyn Subject>, Reader) {
        let setting = self.setting(clock, true, |_, _| ());
        build_with_channel(setting, self.book.ledger.room(), length, when_full).expect(BUILT)
    }

    fn setting(
        &self,
        clock: Arc<dyn Clock>,
        reaper: bool,
        then: impl Fn(u64, RemovalCause) + Send + Sync + 'static,
    ) -> Setting {
        let (book, now) = (self.book.clone(), clock.clone());
        Setting {
            kind: self.kind,
            clock,
            reaper,
            shards: Some(4),
            capacity: None,
            interval: INTERVAL,
            seed: None,
            told: Arc::new(move |number, cause| {
                book.ended(number, cause, now.now());
                then(number, cause);
            }),
        }
    }

    /// Reports a violation unless `holds`.
    pub fn expect(&self, holds: bool, text: impl FnOnce() -> String) {
        self.checks.expect(self.fault, holds, || format!("{:?}: {}", self.kind, text()));
    }

    /// Waits until `done`, or for the limit of a fault. In that case it reports that something is
    /// stuck.
    pub fn wait(&self, what: &str, mut done: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        while !done() {
            if began.elapsed() > self.options.limit / 2 {
                self.expect(false, || format!("{what} does not come"));
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    pub fn put(&self, subject: &dyn Subject, clock: &dyn Clock, timeout: Duration) -> Option<Put> {
        let number = self.book.begin(clock.now().saturating_add(nanos(timeout)))?;
        self.operations.fetch_add(1, Relaxed);
        Some(match subject.put(number, timeout) {
            Ok(()) => {
                self.book.accepted(number);
                Put::In(number)
            }
            Err(refusal) => Put::Refused(refusal),
        })
    }

    /// Begins, renews and ends entries of its own while `goes_on` returns true, or until the book
    /// is full. `goes_on` receives the number of rounds so far. Refusals that the way does not
    /// expect are violations.
    pub fn churn(
        &self,
        (subject, clock): (&dyn Subject, &dyn Clock),
        way: Way,
        mut goes_on: impl FnMut(u32) -> bool,
    ) {
        let (mut rng, mut own) = (self.rng(way.place), Vec::new());
        let mut rounds = 0;
        while goes_on(rounds) {
            rounds += 1;
            match self.put(subject, clock, way.timeout) {
                None => return,
                Some(Put::In(number)) => own.push(number),
                Some(Put::Refused(refusal)) => {
                    self.expect(way.expects == Some(refusal), || {
                        format!("an entry was refused: {refusal:?}")
                    });
                }
            }
            if own.is_empty() {
                continue;
            }
            let at = rng.random_range(0..own.len());
            if rng.random_bool(0.25) {
                self.operations.fetch_add(1, Relaxed);
                self.renew(subject, clock, own[at], way.timeout);
            }
            if own.len() > 64 || rng.random_bool(0.4) {
                self.operations.fetch_add(1, Relaxed);
                let number = own.swap_remove(at);
                // The entries that are not ended here expire.
                if rng.random_bool(0.6) {
                    subject.end(number);
                }
            }
        }
    }

    /// Renews an entry, if it is there.
    pub fn renew(&self, subject: &dyn Subject, clock: &dyn Clock, number: u64, timeout: Duration) {
        let not_before = clock.now().saturating_add(nanos(timeout));
        if subject.renew(number, timeout) {
            self.book.renewed(number, not_before);
        }
    }

    /// Runs `work` on each worker thread. So many other threads `poll` over and over, until all
    /// work and `then` are done. They begin together.
    pub fn crowd(
        &self,
        (pollers, poll): (usize, impl Fn() + Sync),
        work: impl Fn(u64) + Sync,
        then: impl FnOnce(),
    ) {
        let over = AtomicBool::new(false);
        let started = Barrier::new(self.options.threads as usize + pollers);
        std::thread::scope(|scope| {
            for _ in 0..pollers {
                scope.spawn(|| {
                    started.wait();
                    while !over.load(Acquire) {
                        poll();
                        std::thread::yield_now();
                    }
                });
            }
            let spawn = |thread| {
                let (started, work) = (&started, &work);
                scope.spawn(move || {
                    started.wait();
                    work(thread);
                })
            };
            let workers: Vec<_> = (0..u64::from(self.options.threads)).map(spawn).collect();
            let done: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
            then();
            over.store(true, Release);
            // A panic in a worker is a bug, in here or in the engine.
            done.into_iter().for_each(|done| {
                done.unwrap_or_else(|panic| resume_unwind(panic));
            });
        });
    }

    /// The end of a run on simulated time: all that is left expires, and memory comes back.
    pub fn settle_manual(&self, subject: Arc<dyn Subject>, clock: &ManualClock, longest: Duration) {
        clock.advance(longest + Duration::from_secs(1));
        self.wait("the end of everything", || {
            subject.poll();
            subject.len() == 0
        });
        for _ in 0..ROUNDS {
            if subject.counts().slots <= self.floor() {
                break;
            }
            clock.advance(Duration::from_secs(1));
            subject.poll();
        }
        self.settled(subject);
    }

    /// The end of a run with a reaper, which does all the work.
    pub fn settle_real(&self, subject: Arc<dyn Subject>) {
        self.wait("the end of everything", || subject.len() == 0);
        // The tick and calls maintain memory.
        self.wait("the end of its memory", || subject.counts().slots <= self.floor());
        self.settled(subject);
    }

    /// The most slots that may be held when nothing is live. The driver keeps three chunks of each
    /// shard. Each of the threads that ran at the same time keeps one chunk, in which it owns a
    /// slot block.
    fn floor(&self) -> u64 {
        CHUNK * (3 * 4 + u64::from(self.options.threads) + 4)
    }

    /// Everything has ended: is the book in order, and has memory come back?
    fn settled(&self, subject: Arc<dyn Subject>) {
        let (slots, floor) = (subject.counts().slots, self.floor());
        self.expect(slots <= floor, || {
            format!("{slots} slots are held with nothing live, should be at most {floor}")
        });
        subject.shutdown();
        self.closed(&subject);
        self.balanced();
    }

    /// Checks a subject that has been shut down.
    pub fn closed(&self, subject: &Arc<dyn Subject>) {
        let left = subject.len();
        self.expect(left == 0, || format!("{left} entries are left"));
        self.wait("the drop of the last key or value", || {
            // A thread that uses the grace domain advances it.
            let _ = subject.is_there(0);
            subject.undropped() <= 0 || turned(&**subject)
        });
    }

    /// Whether the book is in order.
    pub fn balanced(&self) {
        self.book.ledger.close();
    }
}

/// Advances grace periods by a map that ends at once. Returns whether all has been dropped.
fn turned(subject: &dyn Subject) -> bool {
    if let Ok(map) = expiry::ExpiringMap::builder().shards(1).build_manual() {
        for key in 0..64 {
            let _ = map.insert(key, key);
        }
        map.shutdown();
    }
    subject.undropped() <= 0
}

/// What became of an attempt to begin an entry.
pub enum Put {
    /// It is in, under this number.
    In(u64),
    /// It is not.
    Refused(Refusal),
}

/// One thread's way through a subject.
pub struct Way {
    /// Each has another one, and so other random choices.
    pub place: u64,
    /// The timeout of all that it begins.
    pub timeout: Duration,
    /// The refusal that is no violation.
    pub expects: Option<Refusal>,
}

/// Real time that can be made to stand still.
#[derive(Debug, Clone)]
pub struct Stoppable {
    real: MonotonicClock,
    /// The reading at which it stands; 0 if it goes.
    stands: Arc<AtomicU64>,
}

impl Stoppable {
    pub fn new() -> Self {
        Stoppable { real: MonotonicClock::new(), stands: Arc::default() }
    }

    /// It stands still from now on.
    pub fn stop(&self) {
        self.stands.store(self.real.now().max(1), Release);
    }

    /// It shows the real time again.
    pub fn go(&self) {
        self.stands.store(0, Release);
    }
}

impl Clock for Stoppable {
    fn now(&self) -> u64 {
        match self.stands.load(Acquire) {
            0 => self.real.now(),
            reading => reading,
        }
    }
}
