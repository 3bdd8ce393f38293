//! Makes the same calls on a tracker and on the oracle, and compares everything visible.

use super::model::{Counts, Ended, Entry, Limits, Model, Time};
use crate::histories::shared::{same, set, Told, LONGEST};
use crate::histories::Found as Check;
use expiry::{
    edge, AckError, AckTracker, Lifetime, ManualClock, Outcome, Reason, Root, RootId, ShutdownMode,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How a tracker is built.
#[derive(Debug, Clone)]
pub struct Setup {
    pub interval: Duration,
    /// The timeout in intervals and thousandths of them; `None` for off.
    pub timeout: Option<(u64, u64)>,
    pub idle_timeout: Option<(u64, u64)>,
    pub early_timeout: (u64, u64),
    pub early_capacity: usize,
    pub capacity: Option<usize>,
    pub shards: usize,
    /// 0.0, 0.5 or 1.0.
    pub sampling: f64,
    pub start: u64,
    pub seed: u64,
    pub keys: Keys,
    pub end: ShutdownMode,
}

/// A family of chosen ids.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    Sequential,
    EqualLowBits,
    EqualHighBits,
    Extremes,
    DenseBlocks,
    Random,
}

impl Keys {
    pub fn key(self, n: u64) -> u64 {
        match self {
            Keys::Sequential => n,
            Keys::EqualLowBits => n << 40 | 0xABCD,
            Keys::EqualHighBits => 0xFEDC << 48 | n,
            Keys::Extremes => match n % 4 {
                0 => n / 4,
                1 => u64::MAX - n / 4,
                2 => 1 << (n / 4 % 64),
                _ => u64::MAX >> (n / 4 % 64),
            },
            Keys::DenseBlocks => n / 64 * 1_000_003 * 4096 + n % 64,
            Keys::Random => (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Default,
    Tick,
    /// Thousandths of an interval.
    Short(u32),
    Nanos(u64),
    Never,
    TooLong,
    Longest,
}

#[derive(Debug, Clone, Copy)]
pub enum Xor {
    Zero,
    /// What is missing for the tree to be complete.
    Rest,
    Random,
}

#[derive(Debug, Clone, Copy)]
pub enum Move {
    Nanos(u64),
    /// Thousandths of an interval.
    Ticks(u64),
    /// Moves the clock to the next deadline, and this much before it.
    Due(u64),
    Back(u64),
    BackTicks(u64),
}

/// The root: one of the chosen ids of the pool, of those used lately, or of all issued ones.
#[derive(Debug, Clone, Copy)]
pub enum Pick {
    Pool(u64),
    Recent(u64),
    Issued(u64),
}

#[derive(Debug, Clone)]
pub enum Op {
    Issue(Xor, u64, Kind),
    IssueBatch(usize),
    Init(Pick, Xor, u64, Kind),
    InitBatch(u64, usize),
    Ack(Pick, Xor),
    AckBatch(bool, u64, usize),
    Fail(Pick, Option<u64>),
    Reset(Pick, Kind),
    Clock(Move),
    /// Calls `poll` once with this budget.
    Poll(usize),
    /// Calls with this budget until the work is done.
    Settle(usize),
    /// Acks everything in flight.
    Drain(bool),
    FailAll(u64),
    Look,
}

const OWNERS: u64 = 5;
pub const YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;
/// Clocks stay below this: two centuries.
const LAST: u64 = 200 * YEAR;

pub struct Run {
    setup: Setup,
    tracker: AckTracker,
    clock: ManualClock,
    told: Told<Outcome>,
    model: Model,
    timeout: Option<Duration>,
    recent: Vec<RootId>,
    issued: Vec<Root>,
    reading: u64,
    /// The clock's reading at the latest poll.
    polled: Time,
}

impl Run {
    pub fn new(setup: &Setup) -> Check<Run> {
        let clock = ManualClock::new();
        clock.set(setup.start);
        let told = Told::new();
        let tell = told.listener();
        let interval = setup.interval.as_nanos() as u64;
        let longer = |(ticks, part): (u64, u64)| {
            let ns = interval.saturating_mul(ticks.max(1)).min(LAST);
            Duration::from_nanos(ns + interval / 1000 * part)
        };
        let timeout = setup.timeout.map(longer);
        let idle_timeout = setup.idle_timeout.map(longer);
        let early_timeout = longer(setup.early_timeout);
        let mut builder = AckTracker::builder()
            .interval(setup.interval)
            .early_timeout(early_timeout)
            .early_capacity(setup.early_capacity)
            .shards(setup.shards)
            .latency_sampling(setup.sampling)
            .seed(setup.seed)
            .clock(clock.clone())
            .on_outcome(move |outcome: Outcome| tell(outcome));
        set!(builder.idle_timeout(idle_timeout));
        set!(builder.capacity(setup.capacity));
        builder = match timeout {
            Some(timeout) => builder.timeout(timeout),
            None => builder.timeouts_off(),
        };
        let tracker =
            builder.build_manual().map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(tracker.interval(), setup.interval);
        Ok(Run {
            setup: setup.clone(),
            tracker,
            clock,
            told,
            model: Model::new(Limits {
                interval: setup.interval,
                timeout,
                idle_timeout,
                early_timeout,
                early_capacity: setup.early_capacity,
                capacity: setup.capacity,
            }),
            timeout,
            polled: 0,
            recent: Vec::new(),
            issued: Vec::new(),
            reading: setup.start,
        })
    }

    fn root(&self, pick: Pick) -> RootId {
        let among = |n: u64, of: usize| (n % of.max(1) as u64) as usize;
        match pick {
            Pick::Issued(n) if !self.issued.is_empty() => {
                // Mostly the latest ones, which are likely to be in flight.
                let window = if n % 4 == 0 { usize::MAX } else { 16 }.min(self.issued.len());
                let at = self.issued.len() - 1 - among(n / 4, window);
                RootId::Issued(self.issued[at])
            }
            Pick::Recent(n) if !self.recent.is_empty() => {
                self.recent[self.recent.len() - 1 - among(n, self.recent.len().min(24))]
            }
            Pick::Issued(n) | Pick::Recent(n) | Pick::Pool(n) => {
                RootId::Chosen(self.setup.keys.key(n % 96))
            }
        }
    }

    fn chosen(&self, pick: Pick) -> u64 {
        match self.root(pick) {
            RootId::Chosen(id) => id,
            RootId::Issued(root) => self.setup.keys.key(root.to_bits() % 96),
        }
    }

    /// The root, if its state is known.
    fn sure(&self, pick: Pick) -> Option<RootId> {
        Some(self.root(pick)).filter(|&root| !self.is_unsure(root))
    }

    fn is_unsure(&self, root: RootId) -> bool {
        matches!(root, RootId::Chosen(id) if self.model.limbo.contains_key(&id))
    }

    fn kind(&self, kind: Kind) -> Lifetime {
        let (interval, nano) = (self.setup.interval, Duration::from_nanos(1));
        let longest = (interval.as_nanos() as u64).saturating_mul(LONGEST);
        Lifetime::After(match kind {
            Kind::Default => return Lifetime::Default,
            Kind::Never => return Lifetime::Never,
            // No duration of nanoseconds is too long for this interval.
            Kind::TooLong if longest == u64::MAX => return Lifetime::Never,
            Kind::TooLong => Duration::from_nanos(longest) + nano,
            Kind::Longest => Duration::from_nanos(longest.min(LAST)),
            Kind::Nanos(nanos) => Duration::from_nanos(nanos),
            Kind::Tick => interval,
            Kind::Short(parts) => (interval / 1000 * parts).max(nano),
        })
    }

    fn xor(&self, xor: Xor, root: Option<RootId>) -> u64 {
        match xor {
            Xor::Zero => 0,
            Xor::Random => edge(),
            Xor::Rest => root
                .and_then(|root| self.model.entries.get(&root))
                .map(|entry| entry.xor)
                .filter(|&xor| xor != 0)
                .unwrap_or_else(edge),
        }
    }

    fn used(&mut self, root: RootId) {
        if self.recent.len() > 4096 {
            self.recent.drain(..2048);
        }
        self.recent.push(root);
    }

    pub fn step(&mut self, op: &Op) -> Check {
        if !matches!(op, Op::Clock(_) | Op::Poll(_) | Op::Settle(_) | Op::Drain(_) | Op::Look) {
            self.catches_up()?;
        }
        match *op {
            Op::Issue(xor, owner, kind) => {
                let (xor, owner, timeout) = (self.xor(xor, None), owner % OWNERS, self.kind(kind));
                let expected = self.model.issue(timeout);
                let got = match timeout {
                    Lifetime::Default => self.tracker.issue(xor, owner),
                    timeout => self.tracker.issue_for(xor, owner, timeout),
                };
                prop_assert_eq!(got.map(|_| ()), expected);
                if let Ok(root) = got {
                    self.issued(root, xor, owner, timeout)?;
                }
            }
            Op::IssueBatch(n) => {
                let items: Vec<(u64, u64)> = (0..n as u64)
                    .map(|n| (if n % 7 == 6 { 0 } else { edge() }, n % OWNERS))
                    .collect();
                let mut into = Vec::new();
                let got = self.tracker.issue_many(&items, &mut into);
                let mut expected = Ok(());
                let mut roots = into.iter();
                for &(xor, owner) in &items {
                    expected = self.model.issue(Lifetime::Default);
                    if expected.is_err() {
                        break;
                    }
                    let Some(&root) = roots.next() else {
                        return Err(TestCaseError::fail(format!("{got:?}: too few were issued")));
                    };
                    self.issued(root, xor, owner, Lifetime::Default)?;
                }
                prop_assert_eq!(got, expected);
                prop_assert!(roots.next().is_none());
            }
            Op::Init(pick, xor, owner, kind) => {
                let (id, timeout, owner) = (self.chosen(pick), self.kind(kind), owner % OWNERS);
                let root = RootId::Chosen(id);
                if self.is_unsure(root) {
                    return Ok(());
                }
                let xor = self.xor(xor, Some(root));
                let expected = self.model.init(id, xor, owner, timeout);
                let got = match timeout {
                    Lifetime::Default => self.tracker.init(id, xor, owner),
                    timeout => self.tracker.init_for(id, xor, owner, timeout),
                };
                prop_assert_eq!(got, expected, "init of {}", root);
                self.used(root);
            }
            Op::InitBatch(first, n) => {
                let mut items = Vec::new();
                for n in (0..n as u64).map(|n| first.wrapping_add(n) % (1 << 16)) {
                    let id = self.setup.keys.key(n);
                    if !self.is_unsure(RootId::Chosen(id)) {
                        items.push((id, if n % 7 == 6 { 0 } else { edge() }, n % OWNERS));
                    }
                }
                let expected: Vec<Result<(), AckError>> = items
                    .iter()
                    .map(|&(id, xor, owner)| self.model.init(id, xor, owner, Lifetime::Default))
                    .collect();
                let mut got = Vec::new();
                self.tracker.init_many(&items, |at, result| {
                    assert_eq!(at, got.len(), "in order");
                    got.push(result);
                });
                prop_assert_eq!(got, expected);
                for &(id, ..) in items.iter().rev().take(16) {
                    self.used(RootId::Chosen(id));
                }
            }
            Op::Ack(pick, xor) => {
                let Some(root) = self.sure(pick) else { return Ok(()) };
                let xor = self.xor(xor, Some(root));
                let expected = self.model.ack(root, xor);
                prop_assert_eq!(self.tracker.ack(root, xor), expected, "ack of {}", root);
                self.used(root);
            }
            Op::AckBatch(issued, first, n) => self.ack_many(issued, first, n)?,
            Op::Fail(pick, by) => {
                let Some(root) = self.sure(pick) else { return Ok(()) };
                let expected = self.model.fail(root, by);
                let got = match by {
                    None => self.tracker.fail(root),
                    Some(by) => self.tracker.fail_by(root, by),
                };
                prop_assert_eq!(got, expected, "fail of {}", root);
                self.used(root);
            }
            Op::Reset(pick, kind) => {
                let Some(root) = self.sure(pick) else { return Ok(()) };
                let timeout = self.kind(kind);
                let expected = self.model.reset(root, timeout);
                let got = match timeout {
                    Lifetime::Default => self.tracker.reset_timeout(root),
                    timeout => self.tracker.reset_timeout_for(root, timeout),
                };
                prop_assert_eq!(got, expected, "reset of {}", root);
                self.used(root);
            }
            Op::Clock(by) => self.turn(by),
            Op::Poll(budget) => {
                self.poll(budget)?;
            }
            Op::Settle(budget) => self.settle(budget)?,
            Op::Drain(batch) => self.drain(batch)?,
            Op::FailAll(owner) => {
                let owner = owner % OWNERS;
                let expected = self.model.fail_all(owner);
                prop_assert_eq!(self.tracker.fail_all(owner), expected);
            }
            Op::Look => self.look()?,
        }
        self.compare()?;
        prop_assert_eq!(self.tracker.len() as u64, self.model.live(), "len");
        prop_assert_eq!(self.tracker.is_empty(), self.model.live() == 0);
        Ok(())
    }

    fn issued(&mut self, root: Root, xor: u64, owner: u64, timeout: Lifetime) -> Check {
        let is_new = !self.model.entries.contains_key(&RootId::Issued(root));
        prop_assert!(is_new, "{:?} was issued twice", root);
        self.model.issued(root, xor, owner, timeout);
        self.issued.push(root);
        self.used(RootId::Issued(root));
        Ok(())
    }

    fn ack_many(&mut self, issued: bool, first: u64, n: usize) -> Check {
        let mut items = Vec::new();
        for n in 0..n as u64 {
            let n = first.wrapping_add(n.wrapping_mul(5));
            let root = if issued {
                let Some(at) = n.checked_rem(self.issued.len() as u64) else {
                    return Ok(());
                };
                RootId::Issued(self.issued[at as usize])
            } else {
                RootId::Chosen(self.setup.keys.key(n % (1 << 16)))
            };
            if !self.is_unsure(root) {
                let xor = match n % 5 {
                    0 => Xor::Random,
                    1 => Xor::Zero,
                    _ => Xor::Rest,
                };
                items.push((root, self.xor(xor, Some(root))));
            }
        }
        self.acks(&items)
    }

    /// All in one batch.
    fn acks(&mut self, items: &[(RootId, u64)]) -> Check {
        let expected = items.iter().map(|&(root, xor)| self.model.ack(root, xor));
        let expected: Vec<_> = expected.collect();
        let mut got = Vec::new();
        self.tracker.ack_many(items, |at, result| {
            assert_eq!(at, got.len(), "in order");
            got.push(result);
        });
        same!(got, expected);
        Ok(())
    }

    fn drain(&mut self, batch: bool) -> Check {
        let mut items: Vec<(RootId, u64)> =
            self.model.in_flight().map(|(root, _, entry)| (root, entry.xor)).collect();
        items.sort_unstable();
        if batch {
            return self.acks(&items);
        }
        for (root, xor) in items {
            let expected = self.model.ack(root, xor);
            prop_assert_eq!(self.tracker.ack(root, xor), expected);
        }
        Ok(())
    }

    fn turn(&mut self, by: Move) {
        let part = self.setup.interval.as_nanos() as u64 / 1000;
        let to = match by {
            Move::Nanos(by) => self.reading.saturating_add(by),
            Move::Ticks(parts) => self.reading.saturating_add(part.saturating_mul(parts)),
            Move::Due(before) => match self.model.next_due() {
                None => self.reading,
                Some(due) => {
                    let due = due - Time::from(before) + Time::from(self.setup.start);
                    u64::try_from(due).map_or(self.reading, |due| due.max(self.reading))
                }
            },
            Move::Back(by) => self.reading.saturating_sub(by),
            Move::BackTicks(parts) => self.reading.saturating_sub(part.saturating_mul(parts)),
        };
        if to > LAST {
            return;
        }
        self.reading = to;
        self.clock.set(to);
        self.model.set_clock(Time::from(to) - Time::from(self.setup.start));
    }

    /// Polls once. Returns whether there is more to do.
    fn poll(&mut self, budget: usize) -> Check<bool> {
        let polled = self.tracker.poll(budget);
        if !polled.more {
            self.polled = self.polled.max(self.model.now);
        }
        let told = self.told.take();
        for outcome in &told {
            let Reason::TimedOut { due, seen } = outcome.reason else {
                return Err(TestCaseError::fail(format!("a poll told of {outcome:?}")));
            };
            let ended = self
                .model
                .timed_out(outcome.root, due.as_nanos() as Time, seen.as_nanos() as Time)
                .map_err(TestCaseError::fail)?;
            prop_assert_eq!(outcome.owner, ended.owner);
            self.latency(outcome, &ended)?;
        }
        let expired = self.tracker.metrics().total.early_expired;
        self.model.polled(!polled.more, expired).map_err(TestCaseError::fail)?;
        if !polled.more {
            // A poll may come for nothing, but never too late for something.
            let due = self.model.next_certain();
            let last = Time::from(u64::MAX - self.setup.start);
            if let Some(due) = due.filter(|&due| due < last) {
                let left = (due - self.model.now).max(0) as u128;
                prop_assert!(
                    polled.next.is_some_and(|next| next.as_nanos() <= left),
                    "next is {:?}, but something is due in {} ns",
                    polled.next,
                    left
                );
            }
            if self.model.now == self.model.high {
                prop_assert_ne!(polled.next, Some(Duration::ZERO), "due now, but no more?");
            }
        }
        Ok(polled.more)
    }

    /// A call that sets a deadline may poll first if the clock has jumped by 2^38 intervals since
    /// the last poll. This polls before it does, so that the outcomes are compared as after any
    /// other poll.
    fn catches_up(&mut self) -> Check {
        let interval = self.setup.interval.as_nanos() as Time;
        if (self.model.now - self.polled) / interval >= (1 << 38) - 1 {
            self.settle(usize::MAX)?;
        }
        Ok(())
    }

    pub fn settle(&mut self, budget: usize) -> Check {
        let mut calls = 0u64;
        while self.poll(budget)? {
            calls += 1;
            prop_assert!(calls < 3_000_000, "polling does not come to an end");
        }
        Ok(())
    }

    /// The tracker has delivered exactly the expected outcomes, each once.
    fn compare(&mut self) -> Check {
        let mut ended = std::mem::take(&mut self.model.ended);
        let mut told = self.told.take();
        told.sort_by_key(|outcome| outcome.root);
        ended.sort_by_key(|ended| ended.root);
        let tellings = told.iter().map(|told| (told.root, told.owner, told.reason));
        let ends = ended.iter().map(|ended| (ended.root, ended.owner, ended.reason));
        same!(tellings.collect::<Vec<_>>(), ends.collect::<Vec<_>>());
        for (told, ended) in told.iter().zip(&ended) {
            self.latency(told, ended)?;
        }
        Ok(())
    }

    /// Coarseness of latencies and ages, and their range.
    fn scale(&self) -> (i128, i128) {
        match self.timeout {
            None => (3_000_000, 40 * 24 * 3600 * 1_000_000_000),
            Some(timeout) => {
                let timeout = timeout.as_nanos() as i128;
                (3_000 + timeout / (1 << 24), timeout * 64)
            }
        }
    }

    fn latency(&self, outcome: &Outcome, ended: &Ended) -> Check {
        if self.setup.sampling != 0.5 {
            same!(outcome.latency.is_some(), self.setup.sampling == 1.0);
        }
        let Some(latency) = outcome.latency else { return Ok(()) };
        let (born, backwards) = ended.born;
        let (step, range) = self.scale();
        let lived = self.model.now - born;
        if backwards == self.model.backwards && lived < range {
            let latency = latency.as_nanos() as i128;
            prop_assert!((latency - lived).abs() <= step, "{:?} lived for {} ns", outcome, lived);
        }
        Ok(())
    }

    fn look(&self) -> Check {
        let metrics = self.tracker.metrics();
        let (total, counts) = (metrics.total, self.model.counts);
        let seen = Counts {
            inserted: total.inserted,
            acked: total.acked,
            failed: total.failed,
            expired: total.expired,
            late: total.late,
            duplicate: total.duplicate,
            early_held: total.early_held,
            early_merged: total.early_merged,
            early_expired: total.early_expired,
            early_refused: total.early_refused,
        };
        let early_expired = counts.early_expired + self.model.limbo_gone;
        same!(seen, Counts { early_expired, ..counts });
        same!((total.live, total.cancelled), (self.model.live(), 0));
        same!(total.lateness.total(), counts.expired);
        prop_assert_eq!(metrics.handler_panics + metrics.undelivered, 0);
        let sum = |f: fn(&expiry::ShardMetrics) -> u64| metrics.shards.iter().map(f).sum::<u64>();
        same!(metrics.shards.len(), self.setup.shards);
        let begun = [sum(|shard| shard.live), sum(|shard| shard.inserted)];
        prop_assert_eq!(begun, [total.live, total.inserted]);
        let ended = [sum(|shard| shard.acked), sum(|shard| shard.expired)];
        prop_assert_eq!(ended, [total.acked, total.expired]);
        let live = self.model.in_flight().count() as u64;
        prop_assert_eq!(
            total.inserted,
            total.acked + total.failed + total.expired + live,
            "every root that began has ended or is in flight"
        );
        self.look_in_flight()
    }

    fn look_in_flight(&self) -> Check {
        let live: HashMap<RootId, (u64, &Entry)> =
            self.model.in_flight().map(|(root, owner, entry)| (root, (owner, entry))).collect();
        let all = self.tracker.oldest(usize::MAX);
        prop_assert_eq!(all.len(), live.len());
        let (step, range) = self.scale();
        let now = self.model.now;
        let straight = self.model.backwards == 0;
        let mut seen = HashSet::new();
        for root in &all {
            let Some((owner, entry)) = live.get(&root.root) else {
                return Err(TestCaseError::fail(format!("{root:?} is not in flight")));
            };
            prop_assert!(seen.insert(root.root));
            prop_assert_eq!(root.owner, *owner);
            prop_assert_eq!(root.remaining.is_none(), entry.window.is_none());
            let lived = now - entry.born.0;
            if straight && lived < range {
                let age = root.age.as_nanos() as i128;
                prop_assert!((age - lived).abs() <= step, "{:?} is {} old", root, lived);
            }
            let last = Time::from(u64::MAX - self.setup.start);
            if let (true, Some(left), Some(window)) = (straight, root.remaining, entry.window) {
                if window.must < last {
                    let expected = (window.must - now).max(0) as u128;
                    prop_assert_eq!(left.as_nanos(), expected, "{:?}", root);
                }
            }
        }
        prop_assert!(all.windows(2).all(|two| two[0].age >= two[1].age));
        for owner in 0..OWNERS {
            let owned = self.tracker.owned_by(owner);
            let expected = live.iter().filter(|(_, (of, _))| *of == owner);
            let expected: HashSet<RootId> = expected.map(|(&root, _)| root).collect();
            same!(owned.len(), expected.len());
            same!(owned.iter().map(|root| root.root).collect::<HashSet<_>>(), expected);
        }
        for most in [0, 1, 7] {
            let some = self.tracker.oldest(most);
            prop_assert_eq!(some.len(), most.min(all.len()));
            let ages =
                |roots: &[expiry::InFlight]| roots.iter().map(|root| root.age).collect::<Vec<_>>();
            prop_assert_eq!(ages(&some), ages(&all[..some.len()]));
        }
        let bounds = [1, 1000, 1_000_000].map(Duration::from_micros);
        let counts = self.tracker.counts_by_age(&bounds);
        for at in 0..=bounds.len() {
            let from = if at == 0 { Duration::ZERO } else { bounds[at - 1] };
            let below = |age: Duration| bounds.get(at).map_or(true, |&bound| age < bound);
            let expected = all.iter().filter(|root| root.age >= from && below(root.age));
            prop_assert_eq!(counts[at], expected.count() as u64);
        }
        Ok(())
    }

    /// Everything adds up, and the shutdown delivers what is left, each once.
    pub fn finish(mut self) -> Check {
        self.settle(usize::MAX)?;
        self.look()?;
        let expected: HashMap<RootId, u64> =
            self.model.in_flight().map(|(root, owner, _)| (root, owner)).collect();
        let fate = self.setup.end;
        let returned = self.tracker.shutdown(fate);
        let told = self.told.take();
        let (list, none) =
            if fate == ShutdownMode::Return { (returned, told) } else { (told, returned) };
        prop_assert!(none.is_empty());
        prop_assert_eq!(list.len(), expected.len());
        let mut seen = HashSet::new();
        for outcome in list {
            prop_assert_eq!(outcome.reason, Reason::Cancelled);
            prop_assert_eq!(expected.get(&outcome.root), Some(&outcome.owner));
            prop_assert!(seen.insert(outcome.root));
        }
        Ok(())
    }
}
