//! A timer wheel for each thread, in simulated time, beside a sequential model.

use super::{Clocked, Draw, Fate, Outcome, Tally, CLOCKED, TIMED};
use crate::checks::{Check, Checks};
use crate::crowd::{crowd, Work};
use crate::interrupt;
use crate::latency::{nanos, Recorder};
use crate::live::{Gauge, Live};
use crate::options::Timers;
use expiry::wheel::{Fired, Geometry, Popped, TimerId, TimerWheel};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The checks of a run.
const NAMES: [Check; 7] = [
    "ends_agree",
    "none_early",
    "none_late",
    "results_agree",
    "length_agrees",
    "wakes_in_time",
    "memory_given_back",
];

/// How many ids of timers that have ended are kept, to be used again.
const STALE: usize = 64;
/// Of so many timers that fire, one is armed again.
const PERIODIC: u32 = 8;
/// After how many steps a thread looks at the time, and is counted. A power of two.
const LOOK: u64 = 1024;
/// Places that a wheel with nothing in it may keep.
const KEPT: usize = 128;

/// What threads share.
struct Shared<'a> {
    checks: &'a Checks,
    operations: AtomicU64,
    live: AtomicU64,
    fired: AtomicU64,
}

/// The model: what is scheduled, by deadline and number.
type Model = BTreeMap<(u64, u64), TimerId>;

/// A wheel and its model. Times are in ticks.
struct Pair<'a> {
    shared: &'a Shared<'a>,
    draw: &'a Draw,
    tick: u64,
    rng: SmallRng,
    wheel: TimerWheel<u64>,
    model: Model,
    /// The timers that there are, to be picked at random, and the place of each in that list.
    timers: Vec<(u64, u64)>,
    places: HashMap<u64, usize>,
    stale: VecDeque<TimerId>,
    now: u64,
    numbers: u64,
    calls: u64,
    most: usize,
    times: [Recorder; CLOCKED.len()],
    tally: Tally,
}

impl Pair<'_> {
    fn expect(&self, check: Check, holds: bool, text: impl FnOnce() -> String) {
        self.shared.checks.expect(check, holds, text);
    }

    fn timed<T>(&mut self, which: usize, f: impl FnOnce(&mut TimerWheel<u64>) -> T) -> T {
        self.calls += 1;
        let timed = (self.calls & (TIMED - 1) == 0).then(Instant::now);
        let done = f(&mut self.wheel);
        if let Some(timed) = timed {
            self.times[which].record(timed.elapsed());
        }
        done
    }

    /// A deadline after now.
    fn deadline(&mut self) -> u64 {
        let after = self.draw.timeout(&mut self.rng).div_ceil(self.tick);
        self.now + after
    }

    fn enter(&mut self, number: u64, deadline: u64, id: TimerId) {
        self.model.insert((deadline, number), id);
        self.places.insert(number, self.timers.len());
        self.timers.push((deadline, number));
        self.most = self.most.max(self.timers.len());
    }

    /// Takes a timer out of the model. Its id, if the model has it.
    fn leave(&mut self, deadline: u64, number: u64) -> Option<TimerId> {
        let id = self.model.remove(&(deadline, number))?;
        if let Some(at) = self.places.remove(&number) {
            self.timers.swap_remove(at);
            if let Some((_, moved)) = self.timers.get(at) {
                self.places.insert(*moved, at);
            }
        }
        if self.stale.len() == STALE {
            self.stale.pop_front();
        }
        self.stale.push_back(id);
        Some(id)
    }

    fn schedule(&mut self) {
        let (deadline, number) = (self.deadline(), self.numbers);
        self.numbers += 1;
        let id = self.timed(0, |wheel| wheel.schedule(deadline, number));
        self.tally.scheduled += 1;
        self.enter(number, deadline, id);
    }

    /// One that is there, if any.
    fn any(&mut self) -> Option<(u64, u64, TimerId)> {
        if self.timers.is_empty() {
            return None;
        }
        let (deadline, number) = self.timers[self.rng.random_range(0..self.timers.len())];
        let id = self.model.get(&(deadline, number))?;
        Some((deadline, number, *id))
    }

    fn cancel(&mut self) {
        let Some((deadline, number, id)) = self.any() else {
            return;
        };
        let cancelled = self.timed(1, |wheel| wheel.deschedule(id));
        self.tally.cancelled += 1;
        self.expect("results_agree", cancelled == Some(number), || {
            format!("timer {number} was cancelled: {cancelled:?}")
        });
        self.leave(deadline, number);
    }

    fn reschedule(&mut self) {
        let Some((deadline, number, id)) = self.any() else {
            return;
        };
        let then = self.deadline();
        let moved = self.timed(2, |wheel| wheel.reschedule(id, then));
        self.tally.moved += 1;
        self.expect("results_agree", moved.is_ok(), || {
            format!("timer {number} cannot be moved: {moved:?}")
        });
        // It keeps its id, which is not stale.
        self.leave(deadline, number);
        self.stale.pop_back();
        self.enter(number, then, id);
    }

    /// Looks at one that is there, and at one that has ended.
    fn look(&mut self) {
        if let Some((deadline, number, id)) = self.any() {
            let found = (self.wheel.get(id).copied(), self.wheel.deadline(id));
            let should = (Some(number), Some(deadline));
            self.expect("results_agree", found == should, || {
                format!("timer {number} for {deadline} is {found:?}")
            });
        }
        if self.stale.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.stale.len());
        let id = self.stale[at];
        let later = self.now + 1;
        let done = (
            self.wheel.reschedule(id, later).is_ok(),
            self.wheel.deschedule(id),
        );
        self.tally.late += 2;
        self.expect("results_agree", done == (false, None), || {
            format!("the id of a timer that has ended was taken: {done:?}")
        });
    }

    /// Lets time pass to the next deadline, or a little longer, and fires what is due, in bounded turns.
    fn advance(&mut self) {
        let Some((&(earliest, _), _)) = self.model.first_key_value() else {
            return;
        };
        let slack = self.rng.random_range(0..4_u64);
        self.advance_to(earliest.max(self.now) + slack * slack);
    }

    fn advance_to(&mut self, now: u64) {
        self.now = now;
        loop {
            let mut limit = self.rng.random_range(1..64);
            match self.wheel.pop_limited(now, &mut limit) {
                Popped::Fired(fired) => self.fired(fired),
                Popped::Limit => {}
                Popped::Idle => break,
            }
        }
        // Of what is overdue only the first is told, and all is given up.
        while let Some((&(deadline, number), _)) = self.model.first_key_value() {
            if deadline > now {
                break;
            }
            self.expect("none_late", false, || {
                format!("timer {number} for {deadline} has not fired at {now}")
            });
            self.leave(deadline, number);
            self.stale.pop_back();
        }
    }

    fn fired(&mut self, fired: Fired<u64>) {
        let (deadline, number, now) = (fired.deadline, fired.value, self.now);
        self.expect("none_early", deadline <= now, || {
            format!("timer {number} for {deadline} fired at {now}")
        });
        let id = self.leave(deadline, number);
        self.expect("ends_agree", id == Some(fired.id), || {
            format!("timer {number} for {deadline} fired at {now}, and is {id:?} in the model")
        });
        self.tally.fired += 1;
        if id.is_some() && self.rng.random_ratio(1, PERIODIC) {
            let then = self.deadline();
            let id = self.wheel.rearm(fired, then);
            self.expect("results_agree", id == fired.id, || {
                format!("timer {number} has another id when it is armed again: {id:?}")
            });
            self.tally.scheduled += 1;
            self.stale.pop_back();
            self.enter(number, then, id);
        }
    }

    /// What holds between any two operations.
    fn agree(&self) {
        let (length, should) = (self.wheel.len(), self.model.len());
        self.expect("length_agrees", length == should, || {
            format!("{length} timers, should be {should}")
        });
        let wake = self.wheel.next_expiration();
        let earliest = self.model.first_key_value().map(|(key, _)| key.0);
        let in_time = match (wake, earliest) {
            (Some(wake), Some(earliest)) => wake <= earliest.max(self.now),
            (None, None) => true,
            _ => false,
        };
        self.expect("wakes_in_time", in_time, || {
            format!("the next expiration is {wake:?}, the earliest deadline {earliest:?}")
        });
    }

    fn step(&mut self, most: usize) {
        if self.timers.len() < most {
            self.schedule();
        } else {
            match self.draw.fate(&mut self.rng) {
                Fate::Cancel => self.cancel(),
                Fate::Move => self.reschedule(),
                Fate::Fire => self.advance(),
            }
            self.look();
        }
        self.agree();
    }

    fn tell(&mut self, told: &mut Tally) {
        let (shared, tally) = (self.shared, &self.tally);
        let since = tally.operations() - told.operations();
        shared.operations.fetch_add(since, Relaxed);
        shared.fired.fetch_add(tally.fired - told.fired, Relaxed);
        let (live, before) = (tally.live(), told.live());
        shared.live.fetch_add(live.wrapping_sub(before), Relaxed);
        *told = *tally;
    }

    /// Lets all time pass, and asks for the memory back.
    fn rest(mut self) -> Tally {
        let places = self.wheel.capacity();
        // Places are doubled, and a freed one is used before there are more.
        let most = 4 * (self.most + STALE);
        self.expect("memory_given_back", places <= most, || {
            format!("{places} places for {} timers at most", self.most)
        });
        while let Some((&(deadline, _), _)) = self.model.last_key_value() {
            // What is armed again has its time, too; once it is not.
            self.advance_to(deadline);
            self.agree();
        }
        let more = self.wheel.pop(u64::MAX >> 2);
        self.expect("ends_agree", more.is_none(), || {
            format!("{more:?} fires, and the model does not have it")
        });
        self.wheel.shrink_to_fit();
        let kept = self.wheel.capacity();
        self.expect("memory_given_back", kept <= KEPT, || {
            format!("{kept} places are kept for no timer")
        });
        self.tally
    }
}

impl Tally {
    fn live(&self) -> u64 {
        self.scheduled.wrapping_sub(self.cancelled + self.fired)
    }
}

/// Runs the wheels.
pub fn run(options: &Timers, draw: &Draw, (threads, each): (usize, usize)) -> Outcome {
    let checks = Checks::new(&NAMES);
    let mut clocked = Clocked::new();
    let length = Duration::from_secs_f64(options.seconds);
    let shared = &Shared {
        checks: &checks,
        operations: AtomicU64::new(0),
        live: AtomicU64::new(0),
        fired: AtomicU64::new(0),
    };
    let began = Instant::now();
    let mut works: Vec<Work<'_, (Tally, u64)>> = Vec::new();
    for number in 0..threads as u64 {
        let mut pair = Pair {
            shared,
            draw,
            tick: nanos(options.interval).max(1),
            rng: SmallRng::seed_from_u64(options.seed.wrapping_mul(256) + number),
            wheel: TimerWheel::new(Geometry::TICKS, 0),
            model: Model::new(),
            timers: Vec::new(),
            places: HashMap::new(),
            stale: VecDeque::new(),
            now: 0,
            numbers: 0,
            calls: 0,
            most: 0,
            times: clocked.0.each_ref().map(|times| times.recorder()),
            tally: Tally::default(),
        };
        works.push(Box::new(move || {
            let mut told = Tally::default();
            // However late it begins, it does something.
            loop {
                (0..LOOK).for_each(|_| pair.step(each));
                pair.tell(&mut told);
                if began.elapsed() >= length || interrupt::asked() {
                    break;
                }
            }
            let operations = pair.tally.operations();
            (pair.rest(), operations)
        }));
    }
    let mut live = Live::new("timers", Some(nanos(length)));
    let brought = crowd(works, &mut live, |live| {
        live.show(nanos(began.elapsed().min(length)), || Gauge {
            done: shared.operations.load(Relaxed),
            live: shared.live.load(Relaxed),
            expired: shared.fired.load(Relaxed),
            latency: Some(clocked.0[0].since()),
            violations: checks.violations(),
            text: "latency of schedule, in a wheel".into(),
            ..Gauge::default()
        });
    });
    let took = began.elapsed().min(length);
    let (mut tally, mut operations) = (Tally::default(), 0);
    for (one, did) in &brought {
        tally.add(one);
        operations += did;
    }
    Outcome {
        tally,
        operations,
        took,
        series: live.finish(),
        charts: Vec::new(),
        latency: clocked.named().collect(),
        counts: Vec::new(),
        checks,
    }
}
