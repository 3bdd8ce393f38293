//! Keyed stores at work, with nothing expiring.
//!
//! [`run`] takes a fresh store through a fixed course; each thread has its share of the entries.
//!
//! | step | timed as |
//! |---|---|
//! | insert all, from a store of default size | insert, growing |
//! | get each, in random order (maps) | get |
//! | renew each, in another random order, for a later expiry than it has | renew |
//! | renew each twice while time stands still, the second time (queues) | renew, unchanged |
//! | 80 % get, 15 % renew, 5 % remove and insert another, at random (maps) | mixed |
//! | remove each, in a third random order | remove |
//! | insert all again | insert |
//!
//! In queues a pass takes ten simulated seconds (but for renewals that are to change nothing), and timeouts are 30 s. Every
//! tenth of a second the first thread polls: nothing is due, but what growth and moved deadlines have left to be looked at
//! is timed with them. In maps time is real, and the time to live an hour.

use super::{Key, Now, Store, Time, Value, INTERVAL};
use crate::lab::at_once;
use crate::process::{settled, Took};
use crate::wheel::permutation;
use crate::window::mix;
use expiry::{CoarseClock, ManualClock};
use std::time::Duration;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// The first insertion.
    Grow,
    /// Look-ups that find something.
    Get,
    /// Renewals that change the expiry time.
    Renew,
    /// Renewals that do not, by the interval.
    Unchanged,
    /// Of maps, all together.
    Mixed,
    /// Removals.
    Remove,
    /// Later insertions.
    Insert,
}

impl Op {
    /// Of maps, in the order in which they are printed.
    pub const MAPS: [Op; 6] = [
        Op::Grow,
        Op::Insert,
        Op::Get,
        Op::Renew,
        Op::Remove,
        Op::Mixed,
    ];

    /// Of queues.
    pub const QUEUES: [Op; 5] = [Op::Grow, Op::Insert, Op::Renew, Op::Unchanged, Op::Remove];

    /// What it is called in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Op::Grow => "insert, growing",
            Op::Get => "get",
            Op::Renew => "renew",
            Op::Unchanged => "renew, unchanged",
            Op::Mixed => "80 % get, 15 % renew, 5 % replace",
            Op::Remove => "remove",
            Op::Insert => "insert",
        }
    }
}

/// By [`Op`].
pub type Course = [Took; 7];

/// Maps, or queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// With values, by real time.
    Maps,
    /// Without, by simulated time.
    Queues,
}

impl Kind {
    fn timeout(self) -> Duration {
        match self {
            Kind::Maps => Duration::from_secs(3600),
            Kind::Queues => Duration::from_secs(30),
        }
    }

    /// Simulated time that a pass takes.
    fn pass(self) -> Duration {
        match self {
            Kind::Maps => Duration::ZERO,
            Kind::Queues => Duration::from_secs(10),
        }
    }
}

/// A load, and the orders drawn for it. Made once, used by everybody.
pub struct Load {
    /// Entries, all threads together.
    pub entries: usize,
    /// Threads.
    pub threads: usize,
    /// What.
    pub kind: Kind,
    /// For each thread and each step, the numbers of its entries.
    orders: Vec<[Vec<u32>; 4]>,
}

impl Load {
    /// A load of so many entries; each thread has the same number of them.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // tens of millions
    pub fn new(entries: usize, threads: usize, kind: Kind) -> Self {
        let share = (entries / threads).max(1);
        let orders = (0..threads).map(|thread| {
            let base = (thread * share) as u32;
            let drawn = |seed: u64| {
                let seed = ((thread as u64) << 40) + (seed << 48);
                let order = permutation(share, seed);
                order.into_iter().map(|at| base + at).collect()
            };
            let in_order = (base..base + share as u32).collect();
            [in_order, drawn(1), drawn(2), drawn(3)]
        });
        Load {
            entries: share * threads,
            threads,
            kind,
            orders: orders.collect(),
        }
    }
}

/// A step's order: as inserted, or one of those that were drawn.
#[derive(Clone, Copy)]
enum Order {
    AsInserted,
    First,
    Second,
    Third,
}

/// One operation to come.
struct Step<K, H> {
    key: K,
    handle: H,
    entry: u32,
}

/// One operation to come, of the mix.
enum Mix<K> {
    Get(K),
    Renew(K, u32),
    Replace { old: K, new: K, entry: u32 },
}

/// Steps between two looks at the simulated clock.
const CHUNK: usize = 1024;

struct Lab<'a, K, V, S: Store<K, V>>
where
    K: Key,
    V: Value,
{
    store: S,
    load: &'a Load,
    time: Time,
    timeout: u64,
    handles: Vec<S::Handle>,
    took: Course,
    _entries: std::marker::PhantomData<(K, V)>,
}

impl<K: Key, V: Value, S: Store<K, V>> Lab<'_, K, V, S> {
    /// Does a thread's `work` on each thread, all at once, and adds up what `f` returns. Simulated time moves by `pass`.
    fn timed<T: Send>(
        &mut self,
        op: Option<Op>,
        pass: Duration,
        work: &mut [Vec<T>],
        f: impl Fn(&S, &mut T, Now<'_>) -> u64 + Sync,
    ) -> u64 {
        let (store, time) = (&self.store, &self.time);
        let steps: usize = work.iter().map(Vec::len).sum();
        let before = settled();
        let (wall, sums) = at_once(work, |thread, work| {
            let chunks = work.len().div_ceil(CHUNK).max(1);
            let step =
                (thread == 0).then(|| pass / u32::try_from(chunks).expect("tens of millions"));
            store.on_thread(|| work_through(store, time, step, work, &f))
        });
        if S::REAL {
            // What it has put off.
            self.store.advance(0);
        }
        let cpu = settled() - before;
        if let Some(op) = op {
            self.took[op as usize] = Took::of(cpu, wall, work.len(), steps);
        }
        sums.into_iter().fold(0, u64::wrapping_add)
    }

    fn work(&self, order: Order) -> Vec<Vec<Step<K, S::Handle>>> {
        let orders = self.load.orders.iter();
        orders
            .map(|orders| {
                orders[order as usize]
                    .iter()
                    .map(|&entry| Step {
                        key: K::make(u64::from(entry)),
                        handle: self.handles[entry as usize],
                        entry,
                    })
                    .collect()
            })
            .collect()
    }

    fn check(&self, what: &str, found: u64, expected: u64) {
        assert!(
            !S::WORKS || found == expected,
            "{}: {what}: {found}, not {expected}",
            S::NAME
        );
    }

    fn insert(&mut self, op: Op) {
        let (timeout, pass) = (self.timeout, self.load.kind.pass());
        let mut work = self.work(Order::AsInserted);
        self.timed(Some(op), pass, &mut work, |store, step, now| {
            let value = V::make(u64::from(step.entry));
            step.handle = store.insert(std::mem::take(&mut step.key), value, now, timeout);
            0
        });
        for step in work.into_iter().flatten() {
            self.handles[step.entry as usize] = step.handle;
        }
        self.check(
            "inserted",
            self.store.live() as u64,
            self.load.entries as u64,
        );
    }

    fn get(&mut self) {
        let mut work = self.work(Order::First);
        let sum = self.timed(
            Some(Op::Get),
            Duration::ZERO,
            &mut work,
            |store, step, now| store.get(&step.key, now).map_or(0, |value| value + 1),
        );
        let n = self.load.entries as u64;
        self.check("values found", sum, n * (n + 1) / 2);
    }

    fn renew(&mut self, op: Option<Op>, order: Order, pass: Duration) {
        let timeout = self.timeout;
        let mut work = self.work(order);
        let renewed = self.timed(op, pass, &mut work, |store, step, now| {
            let value = V::make(u64::from(step.entry));
            u64::from(store.renew(&mut step.key, step.handle, value, now, timeout))
        });
        self.check("renewed", renewed, self.load.entries as u64);
    }

    fn remove(&mut self) {
        let mut work = self.work(Order::Third);
        let pass = self.load.kind.pass();
        let removed = self.timed(Some(Op::Remove), pass, &mut work, |store, step, _| {
            u64::from(store.remove(&step.key))
        });
        self.check("removed", removed, self.load.entries as u64);
        self.check("left", self.store.live() as u64, 0);
    }

    /// The mix, drawn before: who is replaced has another key from then on.
    #[allow(clippy::cast_possible_truncation)] // tens of millions
    fn mixed(&mut self) {
        let (entries, threads) = (self.load.entries, self.load.threads);
        let share = entries / threads;
        let steps = share.min(4_000_000 / threads);
        let mut keys: Vec<u32> = (0..entries as u32).collect();
        let mut fresh = entries as u32;
        let mut expected = 0;
        let mut work: Vec<Vec<Mix<K>>> = (0..threads)
            .map(|thread| {
                let mut state = mix(thread as u64 + 1);
                let mut draw = |_| {
                    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    let drawn = mix(state);
                    let at = ((u128::from(drawn) * share as u128) >> 64) as usize;
                    let entry = &mut keys[thread * share + at];
                    let key = K::make(u64::from(*entry));
                    let percent = drawn % 100;
                    expected += match percent {
                        0..=79 => u64::from(*entry) + 1,
                        _ => 1,
                    };
                    match percent {
                        0..=79 => Mix::Get(key),
                        80..=94 => Mix::Renew(key, *entry),
                        _ => {
                            *entry = fresh;
                            fresh += 1;
                            Mix::Replace {
                                old: key,
                                new: K::make(u64::from(*entry)),
                                entry: *entry,
                            }
                        }
                    }
                };
                (0..steps).map(&mut draw).collect()
            })
            .collect();
        let timeout = self.timeout;
        let none = S::Handle::default();
        let sum = self.timed(
            Some(Op::Mixed),
            Duration::ZERO,
            &mut work,
            |store, step, now| match step {
                Mix::Get(key) => store.get(key, now).map_or(0, |value| value + 1),
                Mix::Renew(key, entry) => {
                    let value = V::make(u64::from(*entry));
                    u64::from(store.renew(key, none, value, now, timeout))
                }
                Mix::Replace { old, new, entry } => {
                    let removed = store.remove(old);
                    let value = V::make(u64::from(*entry));
                    store.insert(std::mem::take(new), value, now, timeout);
                    u64::from(removed)
                }
            },
        );
        self.check("the mix", sum, expected);
        self.check("after the mix", self.store.live() as u64, entries as u64);
    }
}

/// A thread's work.
#[inline]
fn work_through<K: Key, V: Value, S: Store<K, V>, T>(
    store: &S,
    time: &Time,
    step: Option<Duration>,
    work: &mut [T],
    f: &impl Fn(&S, &mut T, Now<'_>) -> u64,
) -> u64 {
    let mut sum = 0_u64;
    let mut looked = time.now().told;
    for chunk in work.chunks_mut(CHUNK) {
        let now = time.now();
        for item in chunk {
            sum = sum.wrapping_add(f(store, item, now));
        }
        if let (Time::Simulated(clock), Some(step)) = (time, step) {
            clock.advance(step);
            let now = time.now().told;
            if u128::from(now - looked) >= INTERVAL.as_nanos() {
                looked = now;
                let expired = store.advance(now);
                assert_eq!(expired, 0, "{}: expired", S::NAME);
            }
        }
    }
    sum
}

/// A course with a fresh store.
#[allow(clippy::cast_possible_truncation)] // an hour
pub fn run<K: Key, V: Value, S: Store<K, V>>(load: &Load) -> Course {
    let time = match load.kind {
        Kind::Maps => Time::Real(CoarseClock::new()),
        Kind::Queues => Time::Simulated(ManualClock::new()),
    };
    let timeout = load.kind.timeout();
    let mut lab: Lab<'_, K, V, S> = Lab {
        store: S::new(&time, load.entries, timeout),
        load,
        time,
        timeout: timeout.as_nanos() as u64,
        handles: vec![S::Handle::default(); load.entries],
        took: Course::default(),
        _entries: std::marker::PhantomData,
    };
    lab.insert(Op::Grow);
    match load.kind {
        Kind::Maps => {
            lab.get();
            // Of an entry that is renewed within the interval the expiry time does not change.
            std::thread::sleep(INTERVAL * 2);
            lab.renew(Some(Op::Renew), Order::Second, Duration::ZERO);
            lab.remove();
            lab.insert(Op::Insert);
            lab.mixed();
        }
        Kind::Queues => {
            // Once untimed: from here on expiry times are spread at random, as they are in a queue after a while.
            let pass = load.kind.pass();
            lab.renew(None, Order::First, pass);
            lab.renew(Some(Op::Renew), Order::Second, pass);
            lab.renew(None, Order::First, Duration::ZERO);
            lab.renew(Some(Op::Unchanged), Order::Second, Duration::ZERO);
            lab.remove();
            lab.insert(Op::Insert);
        }
    }
    lab.took
}
