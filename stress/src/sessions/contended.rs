//! The contended drive: fresh keys on which threads meet with a few updates, and which nobody touches again.
//!
//! Threads go through the keys of a batch together: whoever is through with a key goes on to the next, and so do the others,
//! from where they are, once they are through with theirs. Nobody waits, so that threads that run at the same time are at the same
//! key, and one that is interrupted in the middle of an update comes back to it when the others have long moved on. Where there
//! are pollers, time passes in the middle of meetings, so that expiries meet updates. After each batch all time passes, interval
//! by interval, and the batch is judged key by key (see `stays`): what is still there then is stranded.

use super::keys::Key;
use super::stays::{judge, Batch, Judged, Meeting, Part};
use crate::interrupt;
use crate::pin;
use crossbeam_utils::CachePadded;
use expiry::{ExpiryQueue, ManualClock, StoreError, Updated};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// Keys of a batch.
const BATCH: usize = 1 << 16;
/// The longest timeout, in intervals.
const LONGEST: u64 = 4;
/// The most updates of a key by one thread.
const UPDATES: u64 = 3;
/// Of so many keys, one is timed, to see whether the threads really were there at once.
const TIMED: usize = 16;
/// The interval, of simulated time.
pub const INTERVAL: Duration = Duration::from_millis(1);

/// What an update did.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Whether the key was not there before.
    pub inserted: bool,
    /// When it is to expire, in intervals.
    pub tick: u64,
}

/// A queue that can be driven so.
pub trait Driven<K>: Sync {
    /// Inserts the key or renews it, for so many intervals. `None` if the timeout was refused.
    fn update(&self, key: K, intervals: u64) -> Option<Update>;
    /// Takes the key out. Whether it was there.
    fn remove(&self, key: &K) -> bool;
    /// Tells of all that has expired.
    fn poll(&self, each: &mut dyn FnMut(&K));
    /// Elements that are there, by the queue's own account.
    fn left(&self) -> usize;
}

/// The queue of this crate.
pub struct Ours<K: 'static> {
    queue: ExpiryQueue<K>,
    clock: ManualClock,
}

impl<K: Key> Ours<K> {
    /// A queue that is polled.
    ///
    /// # Errors
    ///
    /// If it cannot be built.
    pub fn new(clock: ManualClock, seed: u64) -> Result<Self, expiry::BuildError> {
        let queue = ExpiryQueue::builder()
            .interval(INTERVAL)
            .clock(clock.clone())
            .seed(seed)
            .build_manual()?;
        Ok(Ours { queue, clock })
    }
}

fn ticks(time: Duration) -> u64 {
    // Hours of simulated time at most.
    (time.as_nanos() / INTERVAL.as_nanos()) as u64
}

impl<K: Key> Driven<K> for Ours<K> {
    fn update(&self, key: K, intervals: u64) -> Option<Update> {
        let now = expiry::Clock::now(&self.clock);
        let after = INTERVAL * intervals as u32;
        match self.queue.update(key, after) {
            Ok(Updated::Inserted { expiry, .. }) => {
                Some(Update { inserted: true, tick: ticks(expiry) })
            }
            Ok(Updated::Renewed { expiry }) => {
                Some(Update { inserted: false, tick: ticks(expiry) })
            }
            Ok(Updated::Unchanged) => {
                Some(Update { inserted: false, tick: ticks(Duration::from_nanos(now) + after) })
            }
            Err(StoreError::ZeroTimeout) => None,
            // Nothing is full, too long or closed here: a stay that never ends, which `stays` will find.
            Err(_) => Some(Update { inserted: true, tick: 0 }),
        }
    }

    fn remove(&self, key: &K) -> bool {
        self.queue.remove(key).is_some()
    }

    fn poll(&self, each: &mut dyn FnMut(&K)) {
        for key in self.queue.poll() {
            each(&key);
        }
    }

    fn left(&self) -> usize {
        // Two accounts: of the counters, and of the slots.
        let slots: usize = self.queue.dump().values().map(Vec::len).sum();
        self.queue.len().max(slots)
    }
}

/// How the keys of a batch are driven.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Manner {
    /// Its name among the counts.
    pub name: &'static str,
    /// Whether there are pollers, and time passes meanwhile.
    pub polled: bool,
    /// Share of keys that a thread removes in the end.
    pub removes: f64,
}

/// What a drive is to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Threads that meet.
    pub threads: usize,
    /// Threads that poll, where there are any.
    pub pollers: usize,
    /// Taken in turn, a batch each.
    pub manners: Vec<Manner>,
    /// To how many fresh keys at least two threads are to have come. Whole batches are driven, of each manner as many.
    pub keys: u64,
    /// How long to drive, if that does not come about.
    pub longest: Duration,
    /// How long at least, if no two threads were seen at a key at once: on a busy machine one may do a batch while the other waits
    /// for a core.
    pub patience: Duration,
    /// Of everything random.
    pub seed: u64,
}

/// What the threads of a drive share.
struct Drive<'a, K, Q> {
    queue: &'a Q,
    clock: &'a ManualClock,
    plan: &'a Plan,
    /// Keys so far that threads shared.
    done: &'a AtomicU64,
    /// Two threads were seen at a key at once.
    met: AtomicBool,
    /// The furthest key of the batch that somebody has come to.
    at: CachePadded<AtomicUsize>,
    /// All threads, at the beginning and at the end of a batch.
    gate: Barrier,
    /// Threads that are still at the batch's keys.
    busy: AtomicUsize,
    /// There is no other batch.
    over: AtomicBool,
    began: Instant,
    _key: std::marker::PhantomData<fn(K)>,
}

impl<K: Key, Q: Driven<K>> Drive<'_, K, Q> {
    fn manner(&self, batch: usize) -> Manner {
        self.plan.manners[batch % self.plan.manners.len()]
    }

    fn first(&self, batch: usize) -> u64 {
        (batch * BATCH) as u64
    }

    /// One thread's meetings of a batch.
    fn meetings(&self, me: usize, batch: usize, rng: &mut SmallRng, parts: &mut [Part]) {
        let Manner { polled, removes, .. } = self.manner(batch);
        parts.fill(Part::default());
        loop {
            let at = self.at.load(Acquire);
            let Some(part) = parts.get_mut(at) else {
                return;
            };
            // Different bits of it decide different things.
            let luck: u64 = rng.random();
            let key = K::of(self.first(batch) + at as u64);
            if at.is_multiple_of(TIMED) {
                part.from = self.now();
            }
            for turn in 0..1 + luck % UPDATES {
                let timeout = (luck >> (8 + 8 * turn) & 0xff) % (LONGEST + 1);
                part.updated(timeout, self.queue.update(key.clone(), timeout));
                if polled && me == 0 && turn == 0 && luck >> 40 & 3 == 0 {
                    self.clock.advance(INTERVAL);
                }
            }
            if removes > 0.0 && ((luck >> 48) as f64) < removes * 65536.0 {
                part.removed += u8::from(self.queue.remove(&key));
            }
            if at.is_multiple_of(TIMED) {
                part.to = self.now();
            }
            self.at.fetch_max(at + 1, AcqRel);
        }
    }

    /// Whether there is another batch: of each manner there are as many, and at least one.
    fn goes_on(&self, batch: usize) -> bool {
        let (plan, took) = (self.plan, self.began.elapsed());
        let wanted = self.done.load(Acquire) < plan.keys && took < plan.longest
            || !self.met.load(Acquire) && took < plan.patience;
        batch == 0 || !batch.is_multiple_of(plan.manners.len()) || wanted && !interrupt::asked()
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Polls while the others are at their keys. Counts, per key, how often it was told as expired.
    fn poll(&self, batch: usize, expired: &mut [u8], strangers: &mut u64) {
        while self.busy.load(Acquire) > 0 {
            let mut some = false;
            self.queue.poll(&mut |key| {
                some = true;
                match expired.get_mut(self.place(batch, key)) {
                    Some(times) => *times = times.saturating_add(1),
                    None => *strangers += 1,
                }
            });
            if !some {
                std::thread::yield_now();
            }
        }
    }

    /// Which of the batch's keys this is; beyond the batch if it is not one of them.
    fn place(&self, batch: usize, key: &K) -> usize {
        let number = key.number();
        let at = number.checked_sub(self.first(batch));
        at.and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX)
    }

    /// Lets all time pass, and judges the batch.
    fn finish(&self, batch: usize, parts: &[&[Part]], expired: &[&[u8]], strangers: u64) -> Judged {
        let mut outcome = Batch { meetings: vec![Meeting::default(); BATCH], strangers, left: 0 };
        for _ in 0..LONGEST + 2 {
            let tick = ticks(Duration::from_nanos(expiry::Clock::now(self.clock)));
            self.queue.poll(&mut |key| match outcome.meetings.get_mut(self.place(batch, key)) {
                Some(meeting) => {
                    meeting.expired = meeting.expired.saturating_add(1);
                    meeting.ended = tick;
                }
                None => outcome.strangers += 1,
            });
            self.clock.advance(INTERVAL);
        }
        outcome.left = self.queue.left();
        for (at, meeting) in outcome.meetings.iter_mut().enumerate() {
            let told = expired.iter().map(|expired| expired[at]);
            meeting.expired = told.fold(meeting.expired, u8::saturating_add);
            meeting.stranded = self.queue.remove(&K::of(self.first(batch) + at as u64));
        }
        let quiet = !self.manner(batch).polled && self.manner(batch).removes == 0.0;
        judge(&outcome, parts, quiet)
    }

    fn worker(&self, me: usize, parts: &[Mutex<Vec<Part>>], mut end: impl FnMut(usize)) {
        let mut rng = SmallRng::seed_from_u64(self.plan.seed.wrapping_mul(64) + me as u64);
        self.batches(|batch| {
            {
                let mut parts = parts[me].lock().expect("nobody panics with it");
                self.meetings(me, batch, &mut rng, &mut parts);
            }
            self.busy.fetch_sub(1, AcqRel);
            self.gate.wait();
            end(batch);
        });
    }

    /// Goes through the batches, all threads together; `batch` goes through a gate in its middle.
    fn batches(&self, mut batch: impl FnMut(usize)) {
        for number in 0.. {
            // One asks for all.
            if self.gate.wait().is_leader() {
                self.over.store(!self.goes_on(number), Release);
            }
            self.gate.wait();
            if self.over.load(Acquire) {
                return;
            }
            batch(number);
        }
    }
}

/// Drives the queue; what came of it, for each manner. The caller's thread is the first of those that meet.
pub fn drive<K: Key, Q: Driven<K>>(
    queue: &Q,
    clock: &ManualClock,
    plan: &Plan,
    done: &AtomicU64,
) -> Vec<Judged> {
    let pollers = if plan.manners.iter().any(|manner| manner.polled) { plan.pollers } else { 0 };
    let drive = &Drive::<K, Q> {
        queue,
        clock,
        plan,
        done,
        met: AtomicBool::new(false),
        at: CachePadded::default(),
        gate: Barrier::new(plan.threads + pollers),
        busy: AtomicUsize::new(plan.threads),
        over: AtomicBool::new(false),
        began: Instant::now(),
        _key: std::marker::PhantomData,
    };
    let parts: Vec<_> =
        (0..plan.threads).map(|_| Mutex::new(vec![Part::default(); BATCH])).collect();
    let polled: Vec<_> = (0..pollers).map(|_| Mutex::new((vec![0u8; BATCH], 0u64))).collect();
    let mut judged = vec![Judged::default(); plan.manners.len()];
    std::thread::scope(|scope| {
        for me in 1..plan.threads {
            let parts = &parts;
            scope.spawn(move || {
                pin::worker(me);
                drive.worker(me, parts, |_| ());
            });
        }
        for (number, polled) in polled.iter().enumerate() {
            scope.spawn(move || {
                pin::worker(plan.threads + number);
                drive.batches(|batch| {
                    if drive.manner(batch).polled {
                        let (expired, strangers) = &mut *polled.lock().expect("nobody panics");
                        drive.poll(batch, expired, strangers);
                    }
                    drive.gate.wait();
                });
            });
        }
        // The first thread also judges, while the others wait at the gate.
        drive.worker(0, &parts, |batch| {
            let parts: Vec<_> = parts.iter().map(|parts| parts.lock().expect("no panic")).collect();
            let mut polled: Vec<_> =
                polled.iter().map(|one| one.lock().expect("no panic")).collect();
            let strangers = polled.iter_mut().map(|one| std::mem::take(&mut one.1)).sum();
            let (shares, expired): (Vec<&[Part]>, Vec<&[u8]>) = (
                parts.iter().map(|parts| &parts[..]).collect(),
                polled.iter().map(|one| &one.0[..]).collect(),
            );
            let came = drive.finish(batch, &shares, &expired, strangers);
            judged[batch % plan.manners.len()].add(&came);
            polled.iter_mut().for_each(|one| one.0.fill(0));
            drive.busy.store(plan.threads, Release);
            drive.at.store(0, Release);
            drive.met.fetch_or(came.met > 0, AcqRel);
            done.fetch_add(came.shared, AcqRel);
        });
    });
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread drives, which meets nobody.
    fn alone(patience: Duration) -> (Judged, Duration) {
        let clock = ManualClock::new();
        let queue = Ours::<u64>::new(clock.clone(), 1).unwrap();
        let plan = Plan {
            threads: 1,
            pollers: 0,
            manners: vec![Manner { name: "quiet", polled: false, removes: 0.0 }],
            keys: 0,
            longest: Duration::ZERO,
            patience,
            seed: 1,
        };
        let began = Instant::now();
        let judged = drive(&queue, &clock, &plan, &AtomicU64::new(0));
        (judged[0].clone(), began.elapsed())
    }

    #[test]
    fn a_drive_waits_for_a_meeting_and_not_for_ever() {
        let (judged, _) = alone(Duration::ZERO);
        assert_eq!((judged.keys, judged.met), (BATCH as u64, 0));
        let patience = Duration::from_secs(1);
        let (judged, took) = alone(patience);
        assert!(took >= patience && judged.met == 0);
    }
}
