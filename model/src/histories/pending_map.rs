//! `PendingMap`: every result, and the values that polls, `cancel_all` and `shutdown` return.

use super::shared::{same, set, Span};
use super::stays::{pass, stay, Setup, Stay, Stays};
use super::{each, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::{LifetimeError, PendingEntry, PendingMap, Polled, StoreError};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Histories of a `PendingMap`.
pub struct PendingUnderKeys;

/// Few, so that calls meet, or many, so that the index grows and shrinks.
type Key = u16;

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Insert(Key, Stay),
    TryInsert(Key, Stay),
    /// Inserts all keys from here on, so many of them.
    InsertMany(Key, usize, Stay),
    Take(Key),
    TakeMany(Key, usize),
    Touch(Key, Stay),
    Look(Key),
    CancelAll,
    Pass(Span),
    PassToTheNext,
    Poll,
    PollInto(usize),
    ShutDown,
}

fn key(bytes: &mut Unstructured<'_>) -> Result<Key> {
    bytes.int_in_range(0..=19)
}

impl Histories for PendingUnderKeys {
    type Setup = Setup;
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Setup> {
        Setup::of(bytes, 15)
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        Ok(match bytes.int_in_range(0..=63u8)? {
            0..=13 => Op::Insert(key(bytes)?, stay(bytes)?),
            14..=20 => Op::TryInsert(key(bytes)?, stay(bytes)?),
            21 | 22 => {
                let many = bytes.int_in_range(0..=1999)?;
                Op::InsertMany(bytes.int_in_range(0..=99)?, many, stay(bytes)?)
            }
            23..=32 => Op::Take(key(bytes)?),
            33 | 34 => Op::TakeMany(bytes.int_in_range(0..=99)?, bytes.int_in_range(0..=1999)?),
            35..=41 => Op::Touch(key(bytes)?, stay(bytes)?),
            42..=44 => Op::Look(key(bytes)?),
            45 => Op::CancelAll,
            46..=50 => Op::Pass(pass(bytes)?),
            51..=54 => Op::PassToTheNext,
            55..=58 => Op::Poll,
            59..=62 => Op::PollInto(*bytes.choose(&[0, 1, 3, 20, 99])?),
            // One time in 256.
            _ if bytes.int_in_range(0..=3u8)? == 1 => Op::ShutDown,
            _ => Op::CancelAll,
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(setup);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}

/// A value is the number of its insertion.
type Value = u64;

/// How many have come, and how many have left by which way.
#[derive(Debug, Default)]
struct Counts {
    inserted: u64,
    replaced: u64,
    taken: u64,
    expired: u64,
    closed: u64,
}

struct Run {
    map: PendingMap<Key, Value>,
    stays: Stays,
    capacity: usize,
    /// Values that are there, and when they are due.
    live: BTreeMap<Key, (Value, Option<u64>)>,
    /// What calls have ended, and no poll has returned yet.
    lapsed: BTreeMap<Value, Key>,
    counts: Counts,
    next: Value,
    shut: bool,
}

fn pairs(entries: Vec<PendingEntry<Key, Value>>) -> Vec<(Key, Value)> {
    entries.into_iter().map(|entry| (*entry.key(), entry.into_value())).collect()
}

impl Run {
    fn new(setup: &Setup) -> Self {
        let stays = Stays::new(setup.interval, setup.timeout);
        let mut builder = PendingMap::builder()
            .interval(setup.interval)
            .shards(setup.shards)
            .clock(stays.time.clock.clone());
        set!(builder.capacity(setup.capacity));
        set!(builder.timeout(setup.timeout.map(|span| span.duration(setup.interval))));
        Run {
            map: builder.build_manual().unwrap(),
            stays,
            capacity: setup.capacity.unwrap_or(usize::MAX),
            live: BTreeMap::new(),
            lapsed: BTreeMap::new(),
            counts: Counts::default(),
            next: 0,
            shut: false,
        }
    }

    /// When the next value is due.
    fn next_due(&self) -> Option<u64> {
        self.live.values().filter_map(|(_, due)| *due).min()
    }

    /// The value of this key has expired.
    fn expires(&mut self, key: Key) -> Found<Value> {
        let ended = self.live.remove(&key);
        let is_due = ended.is_some_and(|(_, due)| self.stays.are_over(due));
        prop_assert!(is_due, "{key} has expired early, or again: {ended:?}");
        self.counts.expired += 1;
        Ok(ended.map_or(0, |(value, _)| value))
    }

    /// Notes what a call has ended besides, which only some `may`. It was about `key`, whose value
    /// is `now` there.
    fn ends(&mut self, may: bool, key: Key, now: Option<Value>) -> Found {
        if self.map.metrics().total.expired == self.counts.expired {
            return Ok(());
        }
        prop_assert!(may, "it has ended what was due");
        let gone = |(&other, &(value, _)): (&Key, &(Value, _))| match other == key {
            true => now != Some(value),
            false => !self.map.contains_key(&other),
        };
        let gone: Vec<Key> =
            self.live.iter().filter(|&live| gone(live)).map(|(&key, _)| key).collect();
        for key in gone {
            let value = self.expires(key)?;
            self.lapsed.insert(value, key);
        }
        Ok(())
    }

    fn insert(&mut self, key: Key, stay: Stay, replaces: bool) -> Found {
        let value = self.next;
        self.next += 1;
        let to_full = self.live.len() >= self.capacity;
        let (lifetime, due) = self.stays.due(stay);
        let done = if replaces {
            self.map.insert(key, value, lifetime)
        } else {
            self.map.try_insert(key, value, lifetime).map(|()| None)
        };
        let done = done.map_err(|refused| {
            same!((*refused.entry.key(), refused.replaced), (key, None));
            same!(refused.to_string(), refused.error.to_string());
            same!(refused.entry.into_value(), value);
            Ok::<_, TestCaseError>(refused.error)
        });
        let done = match done {
            Ok(old) => Ok(old),
            Err(error) => Err(error?),
        };
        // What the key had before, unless its time was up and the call has ended it.
        let had = self.live.get(&key).map(|(value, _)| *value);
        let kept = match done {
            Ok(old) => old,
            Err(_) => had.filter(|_| self.map.contains_key(&key)),
        };
        let may = due.is_ok_and(|due| to_full || self.stays.is_behind(due));
        self.ends(may, key, kept)?;
        let had = self.live.get(&key).map(|(value, _)| *value);
        let expected = match due {
            Err(error) => Err(error.into()),
            Ok(_) if had.is_some() && !replaces => Err(StoreError::Occupied),
            Ok(_) if had.is_some() => Ok(had),
            Ok(_) if self.shut => Err(StoreError::Closed),
            Ok(_) if self.live.len() >= self.capacity => {
                let left = self.live.iter().find(|(_, (_, due))| self.stays.are_over(*due));
                prop_assert!(left.is_none(), "there is no room, and {left:?} is due");
                Err(StoreError::Full)
            }
            Ok(_) => Ok(None),
        };
        same!(done, expected);
        if let (Ok(old), Ok(due)) = (done, due) {
            self.live.insert(key, (value, due));
            match old {
                Some(_) => self.counts.replaced += 1,
                None => self.counts.inserted += 1,
            }
        }
        Ok(())
    }

    fn take(&mut self, key: Key) -> Found {
        let live = self.live.remove(&key).map(|(value, _)| value);
        self.counts.taken += u64::from(live.is_some());
        same!(self.map.take(&key), live);
        Ok(())
    }

    fn touch(&mut self, key: Key, stay: Stay) -> Found {
        let (lifetime, due) = self.stays.due(stay);
        let touched = self.map.touch(&key, lifetime);
        let had = self.live.get(&key).map(|(value, _)| *value);
        let may = due.is_ok_and(|due| self.stays.is_behind(due));
        self.ends(may, key, had.filter(|_| self.map.contains_key(&key)))?;
        let live = self.live.get_mut(&key);
        let expected: std::result::Result<bool, LifetimeError> = due.map(|_| live.is_some());
        if let (Some((_, until)), Ok(due)) = (live, due) {
            *until = due;
        }
        same!(touched, expected);
        Ok(())
    }

    fn look(&self, key: Key) -> Found {
        let live = self.live.get(&key);
        same!(self.map.contains_key(&key), live.is_some());
        same!(self.map.remaining(&key), live.map(|(_, due)| self.stays.left(*due)));
        Ok(())
    }

    /// Checks what a poll has returned: all that was due, unless there is more.
    fn polled(&mut self, expired: Vec<PendingEntry<Key, Value>>, polled: Option<Polled>) -> Found {
        for (key, value) in pairs(expired) {
            match self.lapsed.remove(&value) {
                Some(of) => same!(key, of),
                None => same!(value, self.expires(key)?),
            }
        }
        prop_assert!(self.lapsed.is_empty(), "left: {:?}", self.lapsed);
        if polled.is_some_and(|polled| polled.more) {
            return Ok(());
        }
        let left = self.live.iter().find(|(_, (_, due))| self.stays.are_over(*due));
        prop_assert!(left.is_none(), "left: {left:?}");
        self.stays.caught_up = self.stays.tick();
        if let (Some(polled), Some(next)) = (polled, self.next_due()) {
            let until = self.stays.until(next);
            prop_assert!(polled.next.is_some_and(|next| next <= until), "{polled:?}, {until:?}");
        }
        Ok(())
    }

    /// All that was there has been returned.
    fn emptied(&mut self, mut all: Vec<(Key, Value)>) -> Found<u64> {
        all.sort_unstable();
        let live = std::mem::take(&mut self.live);
        let live: Vec<_> = live.into_iter().map(|(key, (value, _))| (key, value)).collect();
        same!(&all, &live);
        Ok(live.len() as u64)
    }

    fn shut_down(&mut self) -> Found {
        let mut left = pairs(self.map.shutdown());
        left.retain(|(_, value)| self.lapsed.remove(value).is_none());
        prop_assert!(self.lapsed.is_empty(), "left: {:?}", self.lapsed);
        self.counts.closed += self.emptied(left)?;
        self.shut = true;
        Ok(())
    }

    fn step(&mut self, op: Op) -> Found {
        match op {
            Op::Insert(key, stay) => self.insert(key, stay, true)?,
            Op::TryInsert(key, stay) => self.insert(key, stay, false)?,
            Op::InsertMany(first, many, stay) if self.capacity == usize::MAX => {
                (first..).take(many).try_for_each(|key| self.insert(key, stay, true))?;
            }
            Op::InsertMany(first, _, stay) => self.insert(first, stay, true)?,
            Op::Take(key) => self.take(key)?,
            Op::TakeMany(first, many) => (first..).take(many).try_for_each(|key| self.take(key))?,
            Op::Touch(key, stay) => self.touch(key, stay)?,
            Op::Look(key) => self.look(key)?,
            Op::CancelAll => {
                let all = pairs(self.map.cancel_all());
                self.counts.taken += self.emptied(all)?;
            }
            Op::Pass(by) => self.stays.pass(by.duration(self.stays.interval)),
            Op::PassToTheNext => {
                let by = self.next_due().map_or(Duration::ZERO, |next| self.stays.until(next));
                self.stays.pass(by);
            }
            Op::Poll => {
                let expired = self.map.poll();
                self.polled(expired, None)?;
            }
            Op::PollInto(budget) => {
                let mut expired = Vec::new();
                let polled = self.map.poll_into(&mut expired, budget);
                self.polled(expired, Some(polled))?;
            }
            Op::ShutDown => self.shut_down()?,
        }
        let (total, counts) = (self.map.metrics().total, &self.counts);
        let told = [
            total.live,
            total.inserted,
            total.replaced,
            total.removed,
            total.expired,
            total.closed,
        ];
        let Counts { inserted, replaced, taken, expired, closed } = *counts;
        same!(told, [self.live.len() as u64, inserted, replaced, taken, expired, closed]);
        Ok(())
    }

    fn finish(mut self) -> Found {
        // Every value that is left expires, if time does not end before.
        let last = self.live.values().filter_map(|(_, due)| *due).max();
        self.stays.time.pass(last.map_or(Duration::ZERO, |last| self.stays.until(last)));
        self.step(Op::Poll)?;
        self.step(Op::ShutDown)?;
        self.step(Op::Insert(0, Stay::Ever))?;
        self.step(Op::Take(0))
    }
}
