//! `ExpiryQueue`, of either form of keys: every result, the keys that polls return and their order,
//! the wait time after each step, and the contents.

use super::shared::{interval, is_behind, same, set, shards, tick_of, Span, Time, LAST, LONGEST};
use super::{capacity, each, from_bytes, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::{Expired, ExpiryQueue, Handle, LifetimeError, StoreError, Updated};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::time::Duration;

/// Histories of an `ExpiryQueue` of keys `K`.
pub struct Queue<K> {
    /// Few keys and small budgets are more likely than in the corpus, and a bound on the entries is
    /// less likely.
    few: bool,
    keys: PhantomData<K>,
}

impl<K> Queue<K> {
    /// The settings of the property tests.
    pub const RANDOM: Self = Queue { few: true, keys: PhantomData };
    const KEPT: Self = Queue { few: false, keys: PhantomData };
}

/// Runs a history of a queue of integers, or of strings.
pub(crate) fn queue(bytes: &[u8]) {
    match bytes.first() {
        Some(first) if first & 1 == 1 => from_bytes(&bytes[1..], |_| Ok(Queue::<u64>::KEPT)),
        Some(_) => from_bytes(&bytes[1..], |_| Ok(Queue::<String>::KEPT)),
        None => {}
    }
}

fn term(bytes: &mut Unstructured<'_>) -> Result<Span> {
    Ok(match bytes.int_in_range(0..=18u8)? {
        0 | 1 => Span::Nanos(bytes.int_in_range(1..=1 << 32)?),
        2..=9 => Span::Intervals(bytes.int_in_range(1..=39)?),
        10..=13 => Span::Intervals(bytes.int_in_range(1..=1_000_000)?),
        14 => Span::Intervals(bytes.int_in_range(1..=LONGEST)?),
        15 => Span::Nanos(0),
        16 => Span::Intervals(LONGEST),
        17 => Span::TooLong,
        _ => Span::Endless,
    })
}

fn pass(bytes: &mut Unstructured<'_>) -> Result<Pass> {
    const HOUR: u64 = 3_600_000_000_000;
    let by = match bytes.int_in_range(0..=25u8)? {
        0 => Span::Nanos(0),
        1..=4 => Span::Nanos(bytes.arbitrary::<u32>()?.into()),
        5..=12 => Span::Intervals(bytes.int_in_range(0..=29)?),
        13..=16 => Span::Intervals(bytes.int_in_range(0..=99_999)?),
        17 | 18 => Span::Nanos(HOUR * u64::from(bytes.int_in_range(1..=99u32)?)),
        19..=24 => return Ok(Pass::ToTheNext),
        _ => {
            let times = bytes.int_in_range(1..=8u64)?;
            Span::Intervals((times << 37) + bytes.int_in_range(0..=2u64)?)
        }
    };
    Ok(Pass::By(by))
}

impl<K: Key> Histories for Queue<K> {
    type Setup = Setup;
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Setup> {
        Ok(Setup {
            interval: interval(bytes)?,
            start: Duration::from_nanos(
                perhaps(bytes, |bytes| bytes.arbitrary::<u32>())?.map_or(0, u64::from),
            ),
            shards: shards(bytes)?,
            capacity: capacity(bytes, self.few, 59)?,
            keys: {
                let most = if self.few { *bytes.choose(&[7, 79, 4999])? } else { 4999 };
                bytes.int_in_range(1..=most)?
            },
        })
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        let key = u64::from(bytes.arbitrary::<u16>()?);
        Ok(match bytes.int_in_range(0..=61u8)? {
            0..=15 => Op::Update(key, term(bytes)?),
            16 | 17 => Op::UpdateRow(key, bytes.int_in_range(1..=199)?, term(bytes)?),
            18..=25 => Op::Touch(key, term(bytes)?),
            26..=33 => Op::TouchBy(key, term(bytes)?),
            34..=38 => Op::Remove(key),
            39..=50 => Op::Pass(pass(bytes)?),
            51..=54 => Op::Poll,
            55..=60 => {
                let most = if self.few && bytes.arbitrary()? { 3 } else { 99 };
                Op::PollInto(bytes.int_in_range(0..=most)?)
            }
            _ => Op::Dump,
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::<K>::new(setup);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}

/// How many intervals ahead a poll looks.
const AHEAD: u64 = (1 << 30) - 1;

/// A key of either form: integers have no node, strings have one.
pub trait Key: Hash + Ord + Clone + Debug + Send + Sync + 'static {
    fn of(number: u64) -> Self;
}

impl Key for u64 {
    fn of(number: u64) -> Self {
        // 0 and the largest are among them.
        number.wrapping_sub(1)
    }
}

impl Key for String {
    fn of(number: u64) -> Self {
        format!("key {number}")
    }
}

#[derive(Debug, Clone)]
pub struct Setup {
    interval: Duration,
    /// What the clock says when the queue is built.
    start: Duration,
    shards: usize,
    capacity: Option<usize>,
    keys: u64,
}

#[derive(Debug, Clone, Copy)]
pub enum Pass {
    By(Span),
    ToTheNext,
}

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Update(u64, Span),
    /// Updates so many keys from this one on.
    UpdateRow(u64, u64, Span),
    Touch(u64, Span),
    TouchBy(u64, Span),
    Remove(u64),
    Pass(Pass),
    Poll,
    PollInto(usize),
    Dump,
}

/// A key that is there: when it is due, in intervals, and the number of its handle.
#[derive(Debug, Clone, Copy)]
struct Stay {
    due: u64,
    handle: usize,
}

struct Run<K: Key> {
    queue: ExpiryQueue<K>,
    time: Time,
    interval: Duration,
    capacity: usize,
    keys: u64,
    live: BTreeMap<K, Stay>,
    /// Stays that an update or a touch has ended, and that no poll has delivered yet.
    lapsed: BTreeSet<(K, Duration)>,
    /// When a wait may end before anything is due. That is when keys were due that have been
    /// removed or renewed since, or that expired in a poll with more to do. With keys due later
    /// than a poll has looked, it is also the end of that look.
    looks: BTreeSet<u64>,
    /// Up to when the queue has expired all that was due, at least and at most. The queue decides
    /// how far a small budget goes.
    caught_up: (u64, u64),
    /// Handles of all stays, with their keys.
    handles: Vec<(Handle, K)>,
    /// Number of expired keys, by the queue's count.
    expired: u64,
}

impl<K: Key> Run<K> {
    fn new(setup: &Setup) -> Self {
        let time = Time::new(setup.start);
        let mut builder = ExpiryQueue::builder()
            .interval(setup.interval)
            .shards(setup.shards)
            .clock(time.clock.clone());
        set!(builder.capacity(setup.capacity));
        Run {
            queue: builder.build_manual().unwrap(),
            time,
            interval: setup.interval,
            capacity: setup.capacity.unwrap_or(usize::MAX),
            keys: setup.keys,
            live: BTreeMap::new(),
            lapsed: BTreeSet::new(),
            looks: BTreeSet::new(),
            caught_up: (0, 0),
            handles: Vec::new(),
            expired: 0,
        }
    }

    /// The end of so many intervals, as a time since the queue was built.
    fn at(&self, intervals: u64) -> Duration {
        Span::Intervals(intervals).duration(self.interval)
    }

    /// How long until then.
    fn until(&self, intervals: u64) -> Duration {
        self.time.until(self.at(intervals).as_nanos())
    }

    /// How many intervals are over.
    fn tick(&self) -> u64 {
        (self.time.now / self.interval.as_nanos()) as u64
    }

    /// When an entry that begins now is due: the end of an interval, never early, and late by less
    /// than one (C1).
    fn due(&self, timeout: Duration) -> std::result::Result<u64, LifetimeError> {
        let (nanos, longest) = (timeout.as_nanos().min(LAST), self.at(LONGEST).as_nanos());
        if nanos == 0 {
            return Err(LifetimeError::Zero);
        }
        if nanos > longest {
            return Err(LifetimeError::TooLong);
        }
        Ok(tick_of(self.time.now + nanos, self.interval.as_nanos()) as u64)
    }

    /// Whether a deadline is too late for a lease in a queue that has caught up so far.
    fn is_behind(&self, due: std::result::Result<u64, LifetimeError>, caught_up: u64) -> bool {
        due.is_ok_and(|due| is_behind(due.into(), caught_up.into()))
    }

    /// The deadline of an accepted update or touch. It has ended what was due before that if the
    /// clock had jumped.
    fn renewal(&mut self, timeout: Duration) -> Found<std::result::Result<u64, LifetimeError>> {
        let due = self.due(timeout);
        let now = self.tick();
        let ended = self.queue.metrics().total.expired - self.expired;
        let all = self.live.values().filter(|stay| stay.due <= now).count() as u64;
        let (may, must) =
            (self.is_behind(due, self.caught_up.0), self.is_behind(due, self.caught_up.1));
        prop_assert!(
            ended == 0 && !(must && all > 0) || ended == all && may,
            "{ended} of {all} that are due have ended"
        );
        if may {
            self.looked(now);
        }
        if must || ended > 0 {
            self.expired += ended;
            self.caught_up = (now, now);
            let all = std::mem::take(&mut self.live).into_iter();
            let (over, live): (BTreeMap<_, _>, _) = all.partition(|(_, stay)| stay.due <= now);
            self.live = live;
            for (key, stay) in over {
                self.lapsed.insert((key, self.at(stay.due)));
            }
        }
        Ok(due)
    }

    /// A new key came while the queue was full. Checks what the queue has ended for it: some of
    /// what was due, if anything was.
    fn room_was_made(&mut self, refused: Option<StoreError>) -> Found {
        let now = self.tick();
        let due: Vec<K> = {
            let due = self.live.iter().filter(|(_, stay)| stay.due <= now);
            due.map(|(key, _)| key.clone()).collect()
        };
        let mut ended = 0;
        for key in &due {
            if !self.queue.contains(key) {
                let stay = self.live.remove(key).expect("it was there");
                self.lapsed.insert((key.clone(), self.at(stay.due)));
                ended += 1;
            }
        }
        prop_assert_eq!(ended, self.queue.metrics().total.expired - self.expired);
        match refused {
            None => prop_assert!(ended > 0),
            Some(StoreError::Full) => prop_assert!(due.is_empty(), "{due:?} are due"),
            Some(_) => prop_assert_eq!(ended, 0),
        }
        self.expired += ended;
        self.looked(now);
        Ok(())
    }

    /// From now on the key is due then.
    fn renew(&mut self, key: &K, due: u64) {
        if let Some(stay) = self.live.get_mut(key) {
            self.looks.insert(std::mem::replace(&mut stay.due, due));
        }
    }

    fn update(&mut self, number: u64, after: Span) -> Found {
        let (key, timeout) = (K::of(number % self.keys), after.duration(self.interval));
        let wants_room = self.live.len() >= self.capacity && !self.live.contains_key(&key);
        let updated = self.queue.update(key.clone(), timeout);
        if wants_room && !self.is_behind(self.due(timeout), self.caught_up.0) {
            self.room_was_made(updated.err())?;
        }
        let due = self.renewal(timeout)?;
        let before = self.live.get(&key).copied();
        let full = self.live.len() >= self.capacity;
        match (updated, due, before) {
            (Err(error), Err(due), _) => prop_assert_eq!(error, due.into()),
            (Err(StoreError::Full), Ok(_), None) => prop_assert!(full),
            (Ok(Updated::Inserted { expiry, handle }), Ok(due), None) => {
                prop_assert!(!full);
                same!(expiry, self.at(due));
                self.handles.push((handle, key.clone()));
                let handle = self.handles.len() - 1;
                self.live.insert(key, Stay { due, handle });
            }
            (Ok(Updated::Renewed { expiry }), Ok(due), Some(before)) => {
                same!(expiry, self.at(due));
                prop_assert_ne!(due, before.due);
                self.renew(&key, due);
            }
            (Ok(Updated::Unchanged), Ok(due), Some(before)) => prop_assert_eq!(due, before.due),
            other => prop_assert!(false, "{:?}", other),
        }
        Ok(())
    }

    fn touch(&mut self, number: u64, after: Span) -> Found {
        let (key, timeout) = (K::of(number % self.keys), after.duration(self.interval));
        let touched = self.queue.touch(&key, timeout);
        let due = self.renewal(timeout)?;
        prop_assert_eq!(touched, due.map(|_| self.live.contains_key(&key)));
        if let Ok(due) = due {
            self.renew(&key, due);
        }
        Ok(())
    }

    /// Touches mostly by one of the last handles: its key is there, or has ended, or ended and come
    /// again.
    fn touch_by(&mut self, pick: u64, after: Span) -> Found {
        let all = self.handles.len();
        let recent = if pick % 4 == 0 { all } else { all.min(40) };
        let Some(back) = (pick as usize / 4).checked_rem(recent) else {
            return Ok(());
        };
        let at = all - 1 - back;
        let (handle, key) = self.handles[at].clone();
        let timeout = after.duration(self.interval);
        let touched = self.queue.touch_by(handle, timeout);
        let due = self.renewal(timeout)?;
        let is_its = self.live.get(&key).is_some_and(|stay| stay.handle == at);
        prop_assert_eq!(touched, due.map(|_| is_its));
        if let (Ok(due), true) = (due, is_its) {
            self.renew(&key, due);
        }
        Ok(())
    }

    fn remove(&mut self, number: u64) -> Found {
        let key = K::of(number % self.keys);
        let stay = self.live.remove(&key);
        let expiry = stay.map(|stay| self.at(stay.due));
        prop_assert_eq!(self.queue.remove(&key), expiry);
        self.looks.extend(stay.map(|stay| stay.due));
        Ok(())
    }

    fn pass(&mut self, pass: Pass) {
        let by = match pass {
            Pass::By(span) => span.duration(self.interval),
            Pass::ToTheNext => {
                let next = self.live.values().map(|stay| stay.due).min();
                next.map_or(Duration::ZERO, |next| self.until(next))
            }
        };
        // Some of the 64 bits are left for timeouts.
        self.time.pass_below(by, 1 << 63);
    }

    /// A round has been made, perhaps in part.
    fn looked(&mut self, now: u64) {
        self.caught_up.1 = now;
        if self.live.values().any(|stay| stay.due > now + AHEAD) {
            self.looks.insert(now + AHEAD);
        }
    }

    /// Checks what a poll has returned: all that was due, unless there is more.
    fn polled(&mut self, expired: &[Expired<K>], more: bool) -> Found {
        prop_assert!(expired.windows(2).all(|two| two[0].expiry() <= two[1].expiry()));
        let now = self.tick();
        for one in expired {
            if self.lapsed.remove(&(one.key().clone(), one.expiry())) {
                continue;
            }
            self.expired += 1;
            let due = self.live.remove(one.key()).map(|stay| stay.due).filter(|&due| due <= now);
            prop_assert_eq!(due.map(|due| self.at(due)), Some(one.expiry()), "{:?}", one);
            self.looks.extend(due);
        }
        prop_assert!(self.lapsed.is_empty(), "left: {:?}", self.lapsed);
        self.looked(now);
        if !more {
            let left = self.live.iter().find(|(_, stay)| stay.due <= now);
            prop_assert!(left.is_none(), "left: {:?}", left);
            self.caught_up.0 = now;
            self.looks = self.looks.split_off(&(now + 1));
        }
        Ok(())
    }

    /// The wait is exact, or for an earlier look; never longer.
    fn wait(&self) -> Found {
        let wait = self.queue.wait_time();
        if !self.lapsed.is_empty() {
            prop_assert_eq!(wait, Some(Duration::ZERO));
            return Ok(());
        }
        let next = self.live.values().map(|stay| stay.due).min();
        let until = |due| self.until(due);
        let mut earlier = self.looks.range(..next.unwrap_or(u64::MAX));
        prop_assert!(
            wait == next.map(until) || earlier.any(|&due| wait == Some(until(due))),
            "{wait:?}, and the next is due in {:?}",
            next.map(until)
        );
        Ok(())
    }

    fn dump(&self) -> Found {
        let mut all = BTreeMap::<Duration, Vec<K>>::new();
        for (key, stay) in &self.live {
            all.entry(self.at(stay.due)).or_default().push(key.clone());
        }
        let mut dump = self.queue.dump();
        dump.values_mut().for_each(|keys| keys.sort_unstable());
        same!(dump, all);
        Ok(())
    }

    fn step(&mut self, op: Op) -> Found {
        match op {
            Op::Update(key, after) => self.update(key, after)?,
            Op::UpdateRow(first, n, after) => {
                (0..n).try_for_each(|at| self.update(first.wrapping_add(at), after))?;
            }
            Op::Touch(key, after) => self.touch(key, after)?,
            Op::TouchBy(pick, after) => self.touch_by(pick, after)?,
            Op::Remove(key) => self.remove(key)?,
            Op::Pass(pass) => self.pass(pass),
            Op::Poll => {
                let expired = self.queue.poll();
                self.polled(&expired, false)?;
            }
            Op::PollInto(budget) => {
                let mut expired = Vec::new();
                let more = self.queue.poll_into(&mut expired, budget).more;
                // A poll finishes a block of 16 slots that it has begun, and reports all that calls
                // have ended before.
                let most = budget.max(1) + 15 + self.lapsed.len();
                prop_assert!(expired.len() <= most, "{} for {}", expired.len(), budget);
                self.polled(&expired, more)?;
            }
            Op::Dump => self.dump()?,
        }
        prop_assert_eq!(self.queue.len(), self.live.len());
        self.wait()
    }

    fn finish(mut self) -> Found {
        self.dump()?;
        for number in 0..self.keys.min(8) {
            let key = K::of(number);
            same!(self.queue.contains(&key), self.live.contains_key(&key));
        }
        // The end of every other history is a shutdown.
        if self.handles.len() % 2 == 1 {
            return self.shut_down();
        }
        // Every key that is left expires, if time does not end before.
        let last = self.live.values().map(|stay| stay.due).max();
        self.time.pass(last.map_or(Duration::ZERO, |last| self.until(last)));
        self.step(Op::Poll)
    }

    /// It returns what is there, due or not, with what calls have ended and no poll has returned.
    fn shut_down(mut self) -> Found {
        let mut all = std::mem::take(&mut self.lapsed);
        let live = std::mem::take(&mut self.live).into_iter();
        all.extend(live.map(|(key, stay)| (key, self.at(stay.due))));
        let left = self.queue.shutdown();
        prop_assert!(left.windows(2).all(|two| two[0].expiry() <= two[1].expiry()));
        let left: Vec<_> = left.iter().map(|one| (one.key().clone(), one.expiry())).collect();
        same!(left.len(), all.len());
        same!(left.into_iter().collect::<BTreeSet<_>>(), all);
        let key = K::of(0);
        same!(self.queue.update(key.clone(), self.interval), Err(StoreError::Closed));
        same!(self.queue.touch(&key, self.interval), Ok(false));
        let touched = self.handles.last().map(|(it, _)| self.queue.touch_by(*it, self.interval));
        same!(touched, Some(Ok(false)));
        same!((self.queue.len(), self.queue.remove(&key)), (0, None));
        prop_assert!(self.queue.poll().is_empty() && self.queue.shutdown().is_empty());
        Ok(())
    }
}
