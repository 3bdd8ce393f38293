//! `PendingMap`: every result, and the values that polls, `cancel_all` and `shutdown` return.

use super::shared::{same, set};
use super::waiting::{all_of, stay, All, Counts, Setup, Stay, Value, Waiting};
use super::{each, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::{LifetimeError, PendingEntry, PendingMap, StoreError};
use proptest::prelude::*;

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
    All(All),
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
            number => Op::All(All::of(number, bytes)?),
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(setup);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}

struct Run {
    map: PendingMap<Key, Value>,
    waiting: Waiting<Key>,
    next: Value,
}

impl Run {
    fn new(setup: &Setup) -> Self {
        let waiting = Waiting::new(setup);
        let mut builder = PendingMap::builder()
            .interval(setup.interval)
            .shards(setup.shards)
            .clock(waiting.stays.time.clock.clone());
        set!(builder.capacity(setup.capacity));
        set!(builder.timeout(setup.timeout.map(|span| span.duration(setup.interval))));
        Run { map: builder.build_manual().unwrap(), waiting, next: 0 }
    }

    /// Notes what a call has ended besides, which only some `may`. It was about `key`, whose value
    /// is `now` there.
    fn ends(&mut self, may: bool, key: Key, now: Option<Value>) -> Found {
        if self.map.metrics().total.expired == self.waiting.counts.expired {
            return Ok(());
        }
        let gone = |other: Key, value| match other == key {
            true => now != Some(value),
            false => !self.map.contains_key(&other),
        };
        self.waiting.lapses(may, gone)
    }

    fn insert(&mut self, key: Key, stay: Stay, replaces: bool) -> Found {
        let value = self.next;
        self.next += 1;
        let to_full = self.waiting.is_full();
        let (lifetime, due) = self.waiting.stays.due(stay);
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
        let had = self.waiting.value(key);
        let kept = match done {
            Ok(old) => old,
            Err(_) => had.filter(|_| self.map.contains_key(&key)),
        };
        let may = due.is_ok_and(|due| to_full || self.waiting.stays.is_behind(due));
        self.ends(may, key, kept)?;
        let had = self.waiting.value(key);
        let expected = match due {
            Err(error) => Err(error.into()),
            Ok(_) if had.is_some() && !replaces => Err(StoreError::Occupied),
            Ok(_) if had.is_some() => Ok(had),
            Ok(_) if self.waiting.shut => Err(StoreError::Closed),
            Ok(_) if self.waiting.is_full() => {
                self.waiting.none_is_due()?;
                Err(StoreError::Full)
            }
            Ok(_) => Ok(None),
        };
        same!(done, expected);
        if let (Ok(old), Ok(due)) = (done, due) {
            self.waiting.live.insert(key, (value, due));
            match old {
                Some(_) => self.waiting.counts.replaced += 1,
                None => self.waiting.counts.inserted += 1,
            }
        }
        Ok(())
    }

    fn take(&mut self, key: Key) -> Found {
        self.waiting.taken(key, self.map.take(&key))
    }

    fn touch(&mut self, key: Key, stay: Stay) -> Found {
        let (lifetime, due) = self.waiting.stays.due(stay);
        let touched = self.map.touch(&key, lifetime);
        let had = self.waiting.value(key);
        let may = due.is_ok_and(|due| self.waiting.stays.is_behind(due));
        self.ends(may, key, had.filter(|_| self.map.contains_key(&key)))?;
        let live = self.waiting.live.get_mut(&key);
        let expected: std::result::Result<bool, LifetimeError> = due.map(|_| live.is_some());
        if let (Some((_, until)), Ok(due)) = (live, due) {
            *until = due;
        }
        same!(touched, expected);
        Ok(())
    }

    fn look(&self, key: Key) -> Found {
        let Waiting { live, stays, .. } = &self.waiting;
        let live = live.get(&key);
        same!(self.map.contains_key(&key), live.is_some());
        same!(self.map.remaining(&key), live.map(|(_, due)| stays.left(*due)));
        Ok(())
    }

    fn step(&mut self, op: Op) -> Found {
        match op {
            Op::Insert(key, stay) => self.insert(key, stay, true)?,
            Op::TryInsert(key, stay) => self.insert(key, stay, false)?,
            Op::InsertMany(first, many, stay) if self.waiting.capacity == usize::MAX => {
                (first..).take(many).try_for_each(|key| self.insert(key, stay, true))?;
            }
            Op::InsertMany(first, _, stay) => self.insert(first, stay, true)?,
            Op::Take(key) => self.take(key)?,
            Op::TakeMany(first, many) => (first..).take(many).try_for_each(|key| self.take(key))?,
            Op::Touch(key, stay) => self.touch(key, stay)?,
            Op::Look(key) => self.look(key)?,
            Op::All(all) => {
                let pair = |entry: PendingEntry<_, _>| (*entry.key(), entry.into_value());
                let returned = all_of!(self.map, all, pair);
                self.waiting.step(all, returned)?;
            }
        }
        let total = self.map.metrics().total;
        let told = [
            total.live,
            total.inserted,
            total.replaced,
            total.removed,
            total.expired,
            total.closed,
        ];
        let Counts { inserted, replaced, taken, expired, closed } = self.waiting.counts;
        same!(told, [self.waiting.live.len() as u64, inserted, replaced, taken, expired, closed]);
        Ok(())
    }

    fn finish(mut self) -> Found {
        self.waiting.pass_to_the_last();
        self.step(Op::All(All::Poll))?;
        self.step(Op::All(All::ShutDown))?;
        self.step(Op::Insert(0, Stay::Ever))?;
        self.step(Op::Take(0))
    }
}
