//! Keyed stores at work, with nothing expiring: one loop for every operation, order, size and
//! store.
//!
//! A *cell* is one operation in one order on one store. In *overlapped* order keys are random and
//! independent, so the processor overlaps their cache misses. In *dependent* order the place of the
//! next step depends on the result of the last, so misses cannot overlap.
//!
//! Keys are drawn and stored in the order of the steps before any cell begins. A cell repeats
//! passes of at most [`PASS`] steps until each thread has run for [`LEAST`]. The timer is read
//! outside a pass, and a pass is long enough that its two readings do not show. Insertions into
//! empty stores take as many fresh stores as that needs, or 262,144 insertions; the stores are made
//! and dropped outside the timer. [`Nothing`](super::Nothing) runs through the same loop and shows
//! what the loop costs.
//!
//! Maps read the machine's clock. In queues simulated time stands still, so a touch leaves a later
//! visit of the entry's bucket to the driver that no figure here covers; `keyed-expiry` does.

use super::{Key, Now, Setup, Store, Time, Value, INTERVAL};
use crate::lab::{at_once, LEAST};
use crate::process::{settled, Took};
use crate::wheel::permutation;
use expiry::{CoarseClock, ManualClock};
use std::hint::black_box;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Insertion into a store that began empty.
    Grow,
    Get,
    /// Renewal that moves the deadline.
    Touch,
    /// Renewal that leaves the deadline where it is, by the interval.
    Unchanged,
    Replace,
    Mixed,
    Remove,
    /// Insertion into a store that has had more entries.
    Insert,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Grow => "insert, growing",
            Op::Get => "get",
            Op::Touch => "touch",
            Op::Unchanged => "touch, unchanged",
            Op::Replace => "replace",
            Op::Mixed => "80 % get, 15 % touch, 5 % replace",
            Op::Remove => "remove",
            Op::Insert => "insert",
        }
    }

    /// Place of the cell in a [`Course`].
    pub fn cell(self, order: Order) -> usize {
        self as usize + order as usize * OPS
    }
}

const OPS: usize = 8;

/// How the key of a step depends on the step before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Overlapped,
    /// The place of the key is computed from the last result.
    Dependent,
}

impl Order {
    pub const ALL: [Order; 2] = [Order::Overlapped, Order::Dependent];

    pub fn name(self) -> &'static str {
        ["overlapped", "dependent"][self as usize]
    }
}

/// Times of the cells, by [`Op::cell`]; the first eight are those in overlapped order.
pub type Course = [Took; OPS * 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Stores with values, by real time.
    Maps,
    /// Stores without values, by simulated time.
    Queues,
}

impl Kind {
    /// Operations in the order of the tables.
    pub fn ops(self) -> &'static [Op] {
        use Op::{Get, Grow, Insert, Mixed, Remove, Replace, Touch, Unchanged};
        match self {
            Kind::Maps => &[Grow, Insert, Get, Touch, Replace, Remove, Mixed],
            Kind::Queues => &[Grow, Insert, Touch, Unchanged, Remove],
        }
    }

    pub fn time(self) -> Time {
        match self {
            Kind::Maps => Time::Real(CoarseClock::new()),
            Kind::Queues => Time::Simulated(ManualClock::new()),
        }
    }
}

/// Most steps in a pass, and least steps between two repetitions of the order of the keys.
pub const PASS: usize = 1 << 14;

/// Entries that fresh stores have together when insertions into empty stores are timed at once.
const FILL: usize = 1 << 16;

/// Insertions into empty stores after which their cell ends, however short it was.
const ENOUGH: f64 = (1 << 18) as f64;

/// Lifetime of the first entries. Later passes use longer ones.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// A size, a number of threads, and the orders drawn for them. All stores share one.
pub struct Load {
    pub entries: usize,
    /// Number of threads. Each works on entries of its own.
    pub threads: usize,
    pub kind: Kind,
    /// For each thread, permutations of the numbers below its share, one after the other.
    walks: Vec<Vec<u32>>,
}

impl Load {
    /// A load of so many entries, rounded down to the same number for each thread.
    pub fn new(entries: usize, threads: usize, kind: Kind) -> Self {
        let share = (entries / threads).max(1);
        let walk = |thread: usize| {
            let seed = |turn: usize| ((thread as u64) << 40) + ((turn as u64) << 48);
            let turns = 0..PASS.div_ceil(share);
            turns.flat_map(|turn| permutation(share, seed(turn))).collect()
        };
        Load { entries: share * threads, threads, kind, walks: (0..threads).map(walk).collect() }
    }

    fn share(&self) -> usize {
        self.entries / self.threads
    }

    /// Number of keys that a pass removes before others are inserted.
    fn chunk(&self) -> usize {
        (self.share() / 2).clamp(1, PASS)
    }
}

/// A key that is passed to a store, its handle, and the number of its entry.
struct Step<K, H> {
    key: K,
    entry: u32,
    handle: H,
}

/// Steps of a pass, and the sums of the results that a get of each and the mix return.
struct Pass {
    steps: Range<usize>,
    values: u64,
    mixed: u64,
}

#[inline]
fn mixed(entry: u32) -> Op {
    match entry % 100 {
        0..=79 => Op::Get,
        80..=94 => Op::Touch,
        _ => Op::Replace,
    }
}

/// The keys of one thread.
///
/// `steps` holds the entries of the first fill, then `chunk` keys that are not in the store, then
/// the permutations. Removals and insertions go round the *ring*: the absent keys and the first
/// permutation. A chunk of the ring is absent; the worker removes the next chunk, and inserts the
/// absent one.
struct Worker<K, H> {
    steps: Vec<Step<K, H>>,
    fill: Vec<Pass>,
    walk: Vec<Pass>,
    ring: Vec<Pass>,
    absent: usize,
    turn: usize,
    timeout: u64,
    undriven: usize,
}

/// Nanoseconds and steps of a worker or of all, in one operation.
#[derive(Clone, Copy, Default)]
struct Tally {
    cpu: f64,
    wall: f64,
    steps: f64,
}

impl<K: Key, H: Copy + Default> Worker<K, H> {
    fn new(load: &Load, thread: usize) -> Self {
        let (share, chunk) = (load.share(), load.chunk());
        let base = (thread * share) as u32;
        let absent = (load.entries + thread * chunk) as u32;
        let all = (base..base + share as u32)
            .chain(absent..absent + chunk as u32)
            .chain(load.walks[thread].iter().map(|&at| base + at));
        let steps: Vec<_> = all
            .map(|entry| Step { key: K::make(u64::from(entry)), entry, handle: H::default() })
            .collect();
        let passes = |within: Range<usize>, length: usize| -> Vec<Pass> {
            let starts = within.clone().step_by(length);
            let range = starts.map(|from| from..within.end.min(from + length));
            range.map(|range| Pass::new(&steps, range)).collect()
        };
        let turns = (share + chunk..steps.len()).step_by(share);
        Worker {
            fill: passes(0..share, PASS),
            ring: passes(share..share + chunk + share, chunk),
            walk: turns.flat_map(|from| passes(from..from + share, PASS)).collect(),
            steps,
            absent: 0,
            turn: 0,
            timeout: TIMEOUT.as_nanos() as u64,
            undriven: 0,
        }
    }

    /// After a fill: copies the handles to the other steps of the same entries.
    fn learn(&mut self, load: &Load, thread: usize) {
        let share = load.share();
        let (fill, others) = self.steps.split_at_mut(share);
        for step in &mut others[load.chunk()..] {
            step.handle = fill[step.entry as usize - thread * share].handle;
        }
    }

    /// Repeats passes of `ops`, in turn, until each has taken [`LEAST`], or the stores are full.
    /// The first thread drives the stores that need it.
    fn work<V: Value, S: Store<K, V, Handle = H>>(
        &mut self,
        (stores, time, drives): (&[S], &Time, bool),
        ops: &[Op],
        order: Order,
    ) -> [Tally; 2] {
        let least = LEAST.as_secs_f64() * 1e9;
        let mut tallies = [Tally::default(); 2];
        self.turn = 0;
        while ops[0] == Op::Grow || tallies[..ops.len()].iter().any(|tally| tally.wall < least) {
            for (&op, tally) in ops.iter().zip(&mut tallies) {
                let turn = self.turn;
                let (passes, at) = match op {
                    Op::Grow if turn == self.fill.len() * stores.len() => return tallies,
                    Op::Grow => (&self.fill, turn % self.fill.len()),
                    Op::Remove => (&self.ring, (self.absent + 1) % self.ring.len()),
                    Op::Insert => (&self.ring, self.absent),
                    _ => (&self.walk, turn % self.walk.len()),
                };
                let store = match op {
                    Op::Grow => &stores[turn / self.fill.len()],
                    _ => &stores[0],
                };
                if op != Op::Unchanged {
                    self.timeout += 2 * u64::try_from(INTERVAL.as_nanos()).expect("milliseconds");
                }
                let pass = &passes[at];
                let steps = &mut self.steps[pass.steps.clone()];
                let began = Instant::now();
                let sum = walk_through(store, op, order, steps, time.now(), self.timeout);
                self.undriven += steps.len();
                if S::DRIVEN && drives && self.undriven >= PASS {
                    self.undriven = 0;
                    assert_eq!(store.advance(time.now().get()), 0, "{}: expired", S::NAME);
                }
                tally.wall += began.elapsed().as_secs_f64() * 1e9;
                let done = steps.len() as f64;
                tally.steps += done;
                let expected = match op {
                    Op::Get | Op::Replace => pass.values,
                    Op::Mixed => pass.mixed,
                    Op::Grow | Op::Insert => 0,
                    Op::Touch | Op::Unchanged | Op::Remove => pass.steps.len() as u64,
                };
                let unknown = !S::WORKS || matches!(op, Op::Replace | Op::Mixed) && !S::RETURNS_OLD;
                assert!(
                    unknown || sum == expected,
                    "{}: {}: {sum}, not {expected}",
                    S::NAME,
                    op.name()
                );
                if op == Op::Insert {
                    self.absent = (self.absent + 1) % self.ring.len();
                }
            }
            self.turn += 1;
        }
        tallies
    }
}

impl Pass {
    fn new<K, H>(all: &[Step<K, H>], steps: Range<usize>) -> Self {
        let entries = || all[steps.clone()].iter().map(|step| step.entry);
        let value = |entry: u32| u64::from(entry) + 1;
        Pass {
            values: entries().map(value).sum(),
            mixed: entries()
                .map(|entry| if mixed(entry) == Op::Touch { 1 } else { value(entry) })
                .sum(),
            steps,
        }
    }
}

/// The loop: calls `f` with each step, and returns the sum of what it returns.
#[inline(always)]
fn each<T>(steps: &mut [T], order: Order, mut f: impl FnMut(&mut T) -> u64) -> u64 {
    let zero = black_box(0_usize);
    let (mut sum, mut last) = (0_u64, 0_u64);
    match order {
        Order::Overlapped => {
            for step in steps {
                sum = sum.wrapping_add(f(step));
            }
        }
        Order::Dependent => {
            for at in 0..steps.len() {
                let place = at + (last as usize & zero);
                last = f(&mut steps[place]);
                sum = sum.wrapping_add(last);
            }
        }
    }
    sum
}

fn walk_through<K: Key, V: Value, S: Store<K, V>>(
    store: &S,
    op: Op,
    order: Order,
    steps: &mut [Step<K, S::Handle>],
    now: Now<'_>,
    timeout: u64,
) -> u64 {
    type At<K, S, V> = Step<K, <S as Store<K, V>>::Handle>;
    let number = |found: Option<u64>| found.map_or(0, |number| number + 1);
    let value = |step: &At<K, S, V>| V::make(u64::from(step.entry));
    let get = |step: &mut At<K, S, V>| number(store.get(&step.key, now));
    let touch = |step: &mut At<K, S, V>| {
        u64::from(store.touch(&step.key, step.handle, value(step), now, timeout))
    };
    let insert = |step: &mut At<K, S, V>| {
        let (old, handle) = store.insert(step.key.clone(), value(step), now, timeout);
        step.handle = handle;
        number(old)
    };
    match op {
        Op::Get => each(steps, order, get),
        Op::Touch | Op::Unchanged => each(steps, order, touch),
        Op::Remove => each(steps, order, |step| u64::from(store.remove(&step.key, now))),
        Op::Grow | Op::Insert | Op::Replace => each(steps, order, insert),
        Op::Mixed => each(steps, order, |step| match mixed(step.entry) {
            Op::Get => get(step),
            Op::Touch => touch(step),
            _ => insert(step),
        }),
    }
}

struct Lab<'a, K: Key, V: Value, S: Store<K, V>> {
    load: &'a Load,
    time: Time,
    workers: Vec<Worker<K, S::Handle>>,
    tallies: [Tally; OPS * 2],
    _values: PhantomData<V>,
}

impl<K: Key, V: Value, S: Store<K, V>> Lab<'_, K, V, S> {
    /// Runs `ops` on every thread, all at once, and adds up what they take. The processor time is
    /// that of the whole process until it is idle, so a store's own threads count; several
    /// operations share it as they share the threads' time.
    fn cell(&mut self, stores: &[S], ops: &[Op], order: Order) {
        let time = &self.time;
        let before = settled();
        let (_, parts) = at_once(&mut self.workers, |thread, worker| {
            stores[0].on_thread(|| worker.work((stores, time, thread == 0), ops, order))
        });
        if S::REAL {
            for store in stores {
                store.advance(0);
            }
        }
        let cpu = (settled() - before).as_nanos() as f64;
        let wall: f64 = parts.iter().flatten().map(|part| part.wall).sum();
        for (at, op) in ops.iter().enumerate() {
            let tally = &mut self.tallies[op.cell(order)];
            for part in &parts {
                tally.wall += part[at].wall;
                tally.cpu += cpu * part[at].wall / wall;
                tally.steps += part[at].steps;
            }
        }
    }

    fn fill(&mut self, batch: usize, order: Order) -> S {
        let setup = Setup {
            time: &self.time,
            entries: self.load.entries,
            timeout: TIMEOUT,
            interval: INTERVAL,
        };
        let mut stores: Vec<S> = (0..batch).map(|_| S::new(&setup)).collect();
        self.cell(&stores, &[Op::Grow], order);
        stores.pop().expect("at least one")
    }

    fn grow(&mut self, order: Order) {
        let batch = (FILL / self.load.entries).max(1);
        let least = LEAST.as_secs_f64() * 1e9;
        let cell = Op::Grow.cell(order);
        while self.tallies[cell].wall < least && self.tallies[cell].steps < ENOUGH {
            self.fill(batch, order);
        }
    }

    /// Gives all entries the same deadline, which [`Op::Unchanged`] leaves where it is.
    fn level(&mut self, store: &S) {
        let timeout = self.workers.iter().map(|worker| worker.timeout).max();
        for worker in &mut self.workers {
            worker.timeout = timeout.expect("a thread at least");
            let (now, share) = (self.time.now(), self.load.share());
            let order = Order::Overlapped;
            let steps = &mut worker.steps[share + self.load.chunk()..][..share];
            store.on_thread(|| walk_through(store, Op::Touch, order, steps, now, worker.timeout));
        }
    }

    fn check_live(&self, store: &S) {
        let absent = |worker: &Worker<_, _>| worker.ring[worker.absent].steps.len();
        let absent: usize = self.workers.iter().map(absent).sum();
        let expected = self.load.entries + self.load.threads * self.load.chunk() - absent;
        let live = store.live();
        assert!(!S::WORKS || live == expected, "{}: {live} live, not {expected}", S::NAME);
    }
}

pub fn run<K: Key, V: Value, S: Store<K, V>>(load: &Load) -> Course {
    let mut lab: Lab<'_, K, V, S> = Lab {
        load,
        time: load.kind.time(),
        workers: (0..load.threads).map(|thread| Worker::new(load, thread)).collect(),
        tallies: [Tally::default(); OPS * 2],
        _values: PhantomData,
    };
    // The first store of the process: its memory is fresh.
    let store = [lab.fill(1, Order::Overlapped)];
    if load.entries < FILL {
        // Too few insertions for a figure.
        lab.tallies[Op::Grow.cell(Order::Overlapped)] = Tally::default();
    }
    for (thread, worker) in lab.workers.iter_mut().enumerate() {
        worker.learn(load, thread);
    }
    lab.check_live(&store[0]);
    let cells: &[&[Op]] = match load.kind {
        Kind::Maps => {
            &[&[Op::Get], &[Op::Touch], &[Op::Replace], &[Op::Mixed], &[Op::Remove, Op::Insert]]
        }
        Kind::Queues => &[&[Op::Touch], &[Op::Unchanged], &[Op::Remove, Op::Insert]],
    };
    for &ops in cells {
        if ops == [Op::Unchanged] {
            lab.level(&store[0]);
        }
        let orders = if ops == [Op::Mixed] { &Order::ALL[..1] } else { &Order::ALL };
        for &order in orders {
            lab.cell(&store, ops, order);
        }
    }
    lab.check_live(&store[0]);
    drop(store);
    for order in Order::ALL {
        lab.grow(order);
    }
    lab.tallies.map(|tally| Took { cpu: tally.cpu / tally.steps, wall: tally.wall / tally.steps })
}
