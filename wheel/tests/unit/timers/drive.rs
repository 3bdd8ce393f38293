//! A history of one wheel, read from bytes, beside an oracle; the property test and the fuzzer both
//! run it.
//!
//! The oracle is a sorted set of deadlines on an endless line of `i128`. It knows no levels and no
//! wrap: bits of the clock are made from the line only when the wheel is called. After every step
//! the wheel's own structure is checked too ([`TimerWheel::validate`]), and that every value is
//! dropped once.
//!
//! Bytes rather than a generator, so that what the fuzzer finds can be kept as a test as it is.

use super::{Fired, Geometry, NotScheduled, Popped, Timer, TimerId, TimerWheel};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::rc::Rc;

/// What the history is read from. When it has ended, it is zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        let wide = u64::from(self.byte()) | u64::from(self.byte()) << 8;
        wide % n
    }

    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// At most `bits` bits.
    fn spread(&mut self, bits: u64) -> u64 {
        let length = self.below(bits + 1);
        self.word() & ((1 << length) - 1)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A value whose life is counted.
#[derive(Debug)]
pub(super) struct Value {
    n: u64,
    alive: Rc<Cell<usize>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

struct Entry {
    id: TimerId,
    due: i128,
    /// Was due already when it was scheduled: exempt from the order.
    late: bool,
}

struct Oracle {
    geometry: Geometry,
    origin: u64,
    now: i128,
    entries: HashMap<u64, Entry>,
    by_due: BTreeSet<(i128, u64)>,
    /// All ids there ever were, with the values that they were given for.
    ids: Vec<(TimerId, u64)>,
    foreign: Vec<TimerId>,
    alive: Rc<Cell<usize>>,
    /// Values that a callback holds, or the other wheel.
    outside: usize,
    /// Finest bucket of the latest entry that was fired in its turn.
    reached: i128,
    fired: usize,
    values: u64,
    /// How far the clock has gone since there was no backlog.
    moved: i128,
}

type Wheel = TimerWheel<Value>;

/// How far clock and backlog may go together.
const REACH: i128 = 1 << 61;

impl Oracle {
    fn bits(&self, t: i128) -> u64 {
        self.origin.wrapping_add(t as u64)
    }

    fn value(&mut self) -> Value {
        self.values += 1;
        self.alive.set(self.alive.get() + 1);
        Value { n: self.values, alive: self.alive.clone() }
    }

    fn insert(&mut self, n: u64, id: TimerId, due: i128) {
        let late = due <= self.now;
        assert!(self.by_due.insert((due, n)));
        assert!(self.entries.insert(n, Entry { id, due, late }).is_none());
    }

    /// The timer that `id` names, if it still names one: a rearmed value may have a new id.
    fn named(&mut self, id: TimerId, n: u64) -> Option<Entry> {
        match self.entries.get(&n) {
            Some(entry) if entry.id == id => self.remove(n),
            _ => None,
        }
    }

    fn remove(&mut self, n: u64) -> Option<Entry> {
        let entry = self.entries.remove(&n)?;
        assert!(self.by_due.remove(&(entry.due, n)));
        Some(entry)
    }

    /// Any id there ever was, mostly one that is scheduled.
    fn pick(&mut self, bytes: &mut Bytes) -> Option<(TimerId, u64)> {
        let at = bytes.below(1 << 16) as usize;
        if at % 4 > 0 && !self.by_due.is_empty() {
            let (_, n) = self.by_due.iter().nth(at / 4 % self.by_due.len())?;
            return Some((self.entries[n].id, *n));
        }
        (!self.ids.is_empty()).then(|| self.ids[at / 4 % self.ids.len()])
    }

    fn due(&mut self, bytes: &mut Bytes) -> i128 {
        let unit = match bytes.byte() % 2 {
            0 => 1,
            _ => i128::from(self.geometry.granularity()),
        };
        let near = |bytes: &mut Bytes| i128::from(bytes.below(3)) - 1;
        let due = match bytes.byte() % 9 {
            0 => self.now + near(bytes),
            1 | 2 => self.now + i128::from(bytes.below(300)) * unit,
            3 => self.now - i128::from(bytes.below(300)) * unit,
            4 => self.now + i128::from(bytes.spread(62)),
            5 => self.now - i128::from(bytes.spread(61)),
            6 => match self.by_due.iter().nth(bytes.byte().into()) {
                Some(&(due, _)) => due + near(bytes),
                None => self.now,
            },
            // The edges of the levels, seen from here and seen from zero.
            7 => self.now + (1 << bytes.below(63)) + near(bytes),
            _ => {
                let width = 1_u64 << bytes.below(62);
                let over = self.bits(self.now) % width;
                self.now + i128::from(width - over) + near(bytes)
            }
        };
        due.clamp(self.now - (1 << 61), self.now + REACH)
    }

    /// One change of the wheel, at the top or inside a callback.
    fn change(&mut self, wheel: &mut Wheel, bytes: &mut Bytes) {
        match bytes.byte() % 12 {
            0..=4 => {
                let due = self.due(bytes);
                let value = self.value();
                let n = value.n;
                let id = wheel.schedule(self.bits(due), value);
                self.ids.push((id, n));
                self.insert(n, id, due);
            }
            5..=7 => {
                let Some((id, n)) = self.pick(bytes) else {
                    return;
                };
                let due = self.due(bytes);
                let expected = match self.named(id, n) {
                    Some(_) => {
                        self.insert(n, id, due);
                        Ok(())
                    }
                    None => Err(NotScheduled),
                };
                assert_eq!(wheel.reschedule(id, self.bits(due)), expected);
            }
            8 | 9 => {
                let Some((id, n)) = self.pick(bytes) else {
                    return;
                };
                let expected = self.named(id, n).map(|_| n);
                assert_eq!(wheel.cancel(id).map(|value| value.n), expected);
                assert!(wheel.cancel(id).is_none(), "idempotent");
            }
            10 => {
                let Some((id, n)) = self.pick(bytes) else {
                    return;
                };
                let entry = self.entries.get(&n).filter(|entry| entry.id == id);
                let due = entry.map(|entry| self.bits(entry.due));
                assert_eq!(wheel.deadline(id), due);
                assert_eq!(wheel.contains(id), due.is_some());
                let found = due.map(|_| n);
                assert_eq!(wheel.get(id).map(|value| value.n), found);
                assert_eq!(wheel.get_mut(id).map(|value| value.n), found);
            }
            _ => {
                if let Some(&id) = self.foreign.get(usize::from(bytes.byte()) % 8) {
                    assert!(wheel.cancel(id).is_none() && wheel.get(id).is_none());
                    assert_eq!(wheel.reschedule(id, 0), Err(NotScheduled));
                }
            }
        }
    }

    /// A timer that the wheel has handed out.
    fn on_fired(&mut self, fired: &Fired<Value>) -> i128 {
        let entry = self.remove(fired.value.n).expect("fired twice or unknown");
        assert_eq!(fired.id, entry.id);
        assert_eq!(fired.deadline, self.bits(entry.due));
        assert!(entry.due <= self.now, "early");
        if !entry.late {
            let low = fired.deadline % self.geometry.granularity();
            let bucket = entry.due - i128::from(low);
            assert!(bucket >= self.reached, "out of order");
            self.reached = bucket;
        }
        self.fired += 1;
        entry.due
    }

    /// What a callback does with what it was given.
    fn callback(&mut self, wheel: &mut Wheel, fired: Fired<Value>, bytes: &mut Bytes, deep: u32) {
        let before = self.outside;
        self.on_fired(&fired);
        self.outside += 1;
        self.check(wheel);
        let n = fired.value.n;
        assert!(!wheel.contains(fired.id));
        assert!(wheel.cancel(fired.id).is_none());
        let mut in_hand = Some(fired);
        while !bytes.is_empty() {
            match bytes.byte() % 10 {
                0..=3 => break,
                4..=6 => self.change(wheel, bytes),
                7 => {
                    // Periodic timers move on, so that a full advance comes to an end.
                    let due = self.due(bytes).max(self.now + 1);
                    if let Some(fired) = in_hand.take() {
                        let old = fired.id;
                        let id = wheel.rearm(fired, self.bits(due));
                        self.outside -= 1;
                        if id != old {
                            self.ids.push((id, n));
                        }
                        self.insert(n, id, due);
                    }
                }
                8 if deep < 3 => {
                    // An advance inside an advance.
                    let now = self.bits(self.now);
                    if let Some(fired) = wheel.pop(now) {
                        self.callback(wheel, fired, bytes, deep + 1);
                    }
                }
                8 => self.housekeeping(wheel, bytes),
                _ => {
                    drop(in_hand);
                    self.outside = before;
                    resume_unwind(Box::new(n));
                }
            }
            self.check(wheel);
        }
        drop(in_hand);
        self.outside = before;
    }

    fn housekeeping(&mut self, wheel: &mut Wheel, bytes: &mut Bytes) {
        match bytes.byte() % 8 {
            0 => {
                wheel.clear();
                self.entries.clear();
                self.by_due.clear();
            }
            1 | 2 => wheel.shrink_to_fit(),
            3 => wheel.reserve(bytes.byte().into()),
            _ => self.iterate(wheel, bytes),
        }
    }

    /// Both orders, and both ends in turns.
    fn iterate(&self, wheel: &Wheel, bytes: &mut Bytes) {
        let expected: Vec<u64> = self.by_due.iter().map(|&(due, _)| self.bits(due)).collect();
        let up: Vec<Timer<'_, Value>> = wheel.iter().collect();
        assert!(up.iter().map(|timer| timer.deadline).eq(expected));
        for timer in &up {
            let entry = &self.entries[&timer.value.n];
            assert_eq!(entry.id, timer.id);
            assert_eq!(self.bits(entry.due), timer.deadline);
        }
        let seen = |timer: &Timer<'_, Value>| timer.value.n;
        let mut down: Vec<u64> = wheel.iter().rev().map(|timer| seen(&timer)).collect();
        down.reverse();
        let up: Vec<u64> = up.iter().map(seen).collect();
        assert_eq!(up, down);
        let mut both = wheel.iter();
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let left = up.len() - front.len() - back.len();
            assert_eq!(both.len(), left);
            let step = match bytes.byte() % 2 {
                0 => both.next().map(|timer| front.push(seen(&timer))),
                _ => both.next_back().map(|timer| back.push(seen(&timer))),
            };
            assert_eq!(step.is_some(), left > 0);
            if step.is_none() {
                break;
            }
        }
        assert!(both.next().is_none() && both.next_back().is_none());
        front.extend(back.into_iter().rev());
        assert_eq!(up, front);
    }

    /// Moves the clock, as far as the oracle may follow.
    fn step(&mut self, to: i128) {
        let to = to.clamp(self.now, self.now + (REACH - self.moved).max(0));
        self.moved += to - self.now;
        self.now = to;
    }

    fn all_done(&mut self) {
        self.moved = 0;
        let first = self.by_due.first();
        assert!(first.map_or(true, |&(due, _)| due > self.now), "left over");
    }

    fn check(&self, wheel: &Wheel) {
        wheel.validate();
        assert_eq!(wheel.len(), self.entries.len());
        assert_eq!(wheel.is_empty(), self.entries.is_empty());
        assert_eq!(self.alive.get(), self.entries.len() + self.outside);
        let first = self.by_due.first().map(|&(due, _)| due);
        let delay = wheel.expiration_delay();
        assert_eq!(delay.is_some(), first.is_some());
        if let (Some(delay), Some(first)) = (delay, first) {
            assert!(i128::from(delay) <= (first - self.now).max(0), "too late");
        }
    }
}

fn geometry(bytes: &mut Bytes) -> Geometry {
    let bits = |bits: &[u32], shift| Geometry::new(shift, bits).unwrap();
    match bytes.byte() % 12 {
        0 => Geometry::TICKS,
        1 => Geometry::CAFFEINE,
        2 => Geometry::NANOS_1MS,
        3 => Geometry::MICROS,
        4 => bits(&[1], 0),
        5 => bits(&[2, 2], 0),
        6 => bits(&[1, 2, 1], 3),
        7 => bits(&[1; 8], 1),
        8 => bits(&[6; 8], 14),
        9 => bits(&[1], 61),
        _ => {
            // Anything; absurd ones are refused and replaced.
            let shift = bytes.byte() % 66;
            let levels: Vec<u32> =
                (0..bytes.byte() % 10).map(|_| u32::from(bytes.byte() % 8)).collect();
            Geometry::new(shift.into(), &levels).unwrap_or(Geometry::TICKS)
        }
    }
}

fn origin(bytes: &mut Bytes) -> u64 {
    let near = bytes.below(300);
    match bytes.byte() % 8 {
        0 => i64::MIN as u64,
        1 => (i64::MIN as u64).wrapping_add(near),
        2 => 0_u64.wrapping_sub(near),
        3 => 0,
        4 => near,
        5 => i64::MAX as u64 - near,
        6 => u64::MAX,
        _ => bytes.word(),
    }
}

/// Runs one history. Panics if the wheel and the oracle differ, or if the wheel's structure is
/// broken.
///
/// Returns how many timers were fired.
pub(super) fn run(bytes: &[u8]) -> usize {
    let mut bytes = Bytes(bytes);
    let geometry = geometry(&mut bytes);
    let origin = origin(&mut bytes);
    if bytes.byte() % 8 == 7 {
        return absurd(geometry, origin, &mut bytes);
    }
    let mut oracle = Oracle {
        geometry,
        origin,
        now: 0,
        entries: HashMap::new(),
        by_due: BTreeSet::new(),
        ids: Vec::new(),
        foreign: Vec::new(),
        alive: Rc::default(),
        outside: 0,
        reached: i128::MIN,
        fired: 0,
        values: 0,
        moved: 0,
    };
    let mut other: Wheel = TimerWheel::new(geometry, origin);
    for n in 0..8 {
        let value = oracle.value();
        oracle.foreign.push(other.schedule(n, value));
        oracle.outside += 1;
    }
    let mut wheel: Wheel = TimerWheel::new(geometry, origin);
    while !bytes.is_empty() {
        step(&mut wheel, &mut oracle, &mut bytes);
        oracle.check(&wheel);
    }
    // Everything still fires, and all of it, each at its time.
    oracle.iterate(&wheel, &mut bytes);
    let now = oracle.bits(oracle.now);
    while let Some(fired) = wheel.pop(now) {
        oracle.on_fired(&fired);
    }
    oracle.all_done();
    while let Some(delay) = wheel.expiration_delay() {
        assert!(delay > 0);
        let to = oracle.now + i128::from(delay);
        oracle.step(to);
        assert_eq!(oracle.now, to);
        let now = oracle.bits(to);
        while let Some(fired) = wheel.pop(now) {
            oracle.on_fired(&fired);
        }
        oracle.all_done();
        oracle.check(&wheel);
    }
    assert!(oracle.by_due.is_empty());
    for (id, _) in &oracle.ids {
        assert!(!wheel.contains(*id), "a stale id");
        assert!(other.cancel(*id).is_none(), "a foreign id");
    }
    assert_eq!(other.len(), 8);
    drop((wheel, other));
    assert_eq!(oracle.alive.get(), 0, "a value leaked");
    oracle.fired
}

/// What came of it, or `None` if a callback panicked on purpose.
fn on_purpose<R>(result: std::thread::Result<R>) -> Option<R> {
    match result {
        Ok(result) => Some(result),
        Err(told) if told.is::<u64>() => None,
        Err(failure) => resume_unwind(failure),
    }
}

fn step(wheel: &mut Wheel, oracle: &mut Oracle, bytes: &mut Bytes) {
    match bytes.byte() % 16 {
        0..=5 => oracle.change(wheel, bytes),
        6 => oracle.housekeeping(wheel, bytes),
        7 => {
            let back = oracle.now - 1 - i128::from(bytes.spread(61));
            let to = oracle.bits(back);
            assert_eq!(wheel.advance(to, |_, _| panic!("fired in the past")), 0);
            let mut limit = 1;
            assert!(matches!(wheel.pop_limited(to, &mut limit), Popped::Idle));
            assert_eq!(limit, 1);
        }
        kind => {
            let to = match bytes.byte() % 8 {
                0 => oracle.now,
                1 => oracle.now + i128::from(bytes.spread(61)),
                2 | 3 => match oracle.by_due.iter().nth(usize::from(bytes.byte() % 8)) {
                    Some(&(due, _)) => due + i128::from(bytes.below(3)) - 1,
                    None => oracle.now,
                },
                4 => oracle.now + wheel.expiration_delay().map_or(1, i128::from),
                5 => {
                    oracle.now
                        + i128::from(bytes.below(300)) * i128::from(oracle.geometry.granularity())
                            / 3
                }
                _ => oracle.now + i128::from(bytes.below(300)),
            };
            oracle.step(to);
            let now = oracle.bits(oracle.now);
            let outside = oracle.outside;
            if kind < 13 {
                let before = oracle.fired;
                let fired = catch_unwind(AssertUnwindSafe(|| {
                    wheel.advance(now, |wheel, fired| oracle.callback(wheel, fired, bytes, 0))
                }));
                // A panic stops it anywhere; the next one goes on.
                if let Some(fired) = on_purpose(fired) {
                    assert!(fired <= oracle.fired - before);
                    oracle.all_done();
                }
            } else {
                let limit = usize::from(bytes.byte() % 32);
                let progress = catch_unwind(AssertUnwindSafe(|| {
                    wheel.advance_limited(now, limit, |wheel, fired| {
                        oracle.callback(wheel, fired, bytes, 0);
                    })
                }));
                if let Some(progress) = on_purpose(progress) {
                    assert!(progress.fired + progress.unused <= limit);
                    if progress.more {
                        assert_eq!(progress.unused, 0);
                    } else {
                        oracle.all_done();
                    }
                }
            }
            // Panics have dropped what the callbacks held.
            oracle.outside = outside;
            assert_eq!(wheel.now(), now);
        }
    }
}

/// Times from nowhere, and a clock that goes round the circle in the middle of a backlog: what is
/// late is undefined there, but nothing panics, gets lost or fires twice.
fn absurd(geometry: Geometry, origin: u64, bytes: &mut Bytes) -> usize {
    let mut wheel: TimerWheel<u64> = TimerWheel::new(geometry, origin);
    let mut live: HashMap<TimerId, (u64, u64)> = HashMap::new();
    let (mut values, mut fired) = (0, 0);
    while !bytes.is_empty() {
        let time = match bytes.byte() % 3 {
            0 => bytes.word(),
            1 => wheel.now().wrapping_add((1 << 63) - bytes.below(3)),
            _ => wheel.now().wrapping_add(bytes.spread(63)),
        };
        let pick = |bytes: &mut Bytes, live: &HashMap<TimerId, _>| {
            let mut ids: Vec<TimerId> = live.keys().copied().collect();
            ids.sort_by_key(|id| live[id]);
            (!ids.is_empty()).then(|| ids[bytes.below(ids.len() as u64) as usize])
        };
        match bytes.byte() % 8 {
            0..=2 => {
                values += 1;
                live.insert(wheel.schedule(time, values), (values, time));
            }
            3 => {
                if let Some(id) = pick(bytes, &live) {
                    assert_eq!(wheel.reschedule(id, time), Ok(()));
                    live.get_mut(&id).unwrap().1 = time;
                }
            }
            4 => {
                if let Some(id) = pick(bytes, &live) {
                    let value = live.remove(&id).map(|(value, _)| value);
                    assert_eq!(wheel.cancel(id), value);
                }
            }
            5 => assert_eq!(wheel.iter().rev().count(), live.len()),
            _ => {
                let mut limit = usize::from(bytes.byte() % 8);
                if bytes.byte() % 4 == 0 {
                    limit = usize::MAX;
                }
                while let Popped::Fired(gone) = wheel.pop_limited(time, &mut limit) {
                    let known = live.remove(&gone.id);
                    assert_eq!(known, Some((gone.value, gone.deadline)));
                    fired += 1;
                }
            }
        }
        wheel.validate();
        assert_eq!(wheel.len(), live.len());
        assert_eq!(wheel.iter().count(), live.len());
    }
    fired
}
