//! `ExpiringMap` of a bounded capacity: every result, every end that the listener receives, and
//! that the bound holds.
//!
//! What the map evicts is its own choice, within what the builder promises: only where a call needs
//! room, no more than it needs, nothing while something is due, and not the entry that the call
//! replaces.

use super::shared::{same, shards, Told};
use super::{each, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::expiring_map::{Compute, Entry};
use expiry::{EvictionPolicy, ExpiringMap, Lifetime, ManualClock, RemovalCause, StoreError};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Histories of an `ExpiringMap` of a bounded capacity.
pub struct Bounded;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Refuses,
    Evicts(EvictionPolicy),
    Weighs(EvictionPolicy),
}

#[derive(Debug, Clone, Copy)]
pub struct Setup {
    kind: Kind,
    bound: u64,
    shards: usize,
}

type Key = u16;

/// How long an entry lives, in milliseconds, if not for ever; and what it weighs.
type Given = (Option<u64>, u64);

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Insert(Key, Given),
    /// Inserts so many keys from this one on.
    InsertRow(Key, u16, Given),
    Upsert(Key, Given),
    Compute(Key, Given),
    Load(Key, Given),
    /// Through an entry.
    Entry(Key, Given),
    Get(Key),
    Touch(Key, Option<u64>),
    Remove(Key),
    SetBound(u64),
    Pass(u64),
    Poll(usize),
}

fn key(bytes: &mut Unstructured<'_>) -> Result<Key> {
    let most = if bytes.arbitrary()? { 9 } else { 99 };
    bytes.int_in_range(0..=most)
}

fn lifetime(bytes: &mut Unstructured<'_>) -> Result<Option<u64>> {
    perhaps(bytes, |bytes| {
        let most = *bytes.choose(&[5, 500])?;
        bytes.int_in_range(1..=most)
    })
}

fn given(bytes: &mut Unstructured<'_>) -> Result<Given> {
    let most = *bytes.choose(&[1, 9, 60])?;
    Ok((lifetime(bytes)?, bytes.int_in_range(1..=most)?))
}

impl Histories for Bounded {
    type Setup = Setup;
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Setup> {
        let policies = [
            EvictionPolicy::S3Fifo,
            EvictionPolicy::LeastRecentlyUsed,
            EvictionPolicy::SoonestDeadline,
        ];
        let policy = *bytes.choose(&policies)?;
        let kinds = [Kind::Refuses, Kind::Evicts(policy), Kind::Weighs(policy)];
        let most = *bytes.choose(&[5, 50, 500])?;
        Ok(Setup {
            kind: *bytes.choose(&kinds)?,
            bound: bytes.int_in_range(1..=most)?,
            shards: shards(bytes)?,
        })
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        Ok(match bytes.int_in_range(0..=31u8)? {
            0..=9 => Op::Insert(key(bytes)?, given(bytes)?),
            10 | 11 => Op::InsertRow(key(bytes)?, bytes.int_in_range(1..=199)?, given(bytes)?),
            12 => Op::Upsert(key(bytes)?, given(bytes)?),
            13 | 14 => Op::Compute(key(bytes)?, given(bytes)?),
            15 | 16 => Op::Load(key(bytes)?, given(bytes)?),
            17 => Op::Entry(key(bytes)?, given(bytes)?),
            18..=20 => Op::Get(key(bytes)?),
            21 | 22 => Op::Touch(key(bytes)?, lifetime(bytes)?),
            23..=25 => Op::Remove(key(bytes)?),
            26 => Op::SetBound(bytes.int_in_range(1..=99)?),
            27 | 28 => Op::Pass(bytes.int_in_range(1..=3)?),
            29 if bytes.int_in_range(0..=7u8)? == 0 => {
                Op::Pass(bytes.int_in_range(1..=8u64)? << 37)
            }
            29 => Op::Pass(bytes.int_in_range(0..=200)?),
            30 => Op::Poll(bytes.int_in_range(0..=3)?),
            _ => Op::Poll(usize::MAX),
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(*setup);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}

/// The number of a value, and what it weighs.
type Value = (u64, u64);

#[derive(Debug, Clone, Copy)]
struct Stay {
    value: Value,
    due: Option<u64>,
}

/// What a call may end besides what is due.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Evicts {
    Nothing,
    /// Room for so much, but not this key's entry.
    RoomFor(u64, Option<Key>),
}

struct Run {
    map: ExpiringMap<Key, Value>,
    clock: ManualClock,
    told: Told<(Key, Value, RemovalCause)>,
    setup: Setup,
    now: u64,
    live: BTreeMap<Key, Stay>,
    values: u64,
    /// How many entries were evicted, and how many calls found no room.
    evicted: u64,
    refused: u64,
}

fn time(lifetime: Option<u64>) -> Lifetime {
    lifetime.map_or(Lifetime::Never, |ms| Duration::from_millis(ms).into())
}

impl Run {
    fn new(setup: Setup) -> Self {
        let (clock, told) = (ManualClock::new(), Told::new());
        let tell = told.listener();
        let bound = setup.bound as usize;
        let builder = ExpiringMap::<Key, Value>::builder()
            .interval(Duration::from_millis(1))
            .shards(setup.shards)
            .clock(clock.clone())
            .removal_listener(move |&key: &Key, &value: &Value, cause| tell((key, value, cause)));
        let builder = match setup.kind {
            Kind::Refuses => builder.capacity(bound),
            Kind::Evicts(policy) => builder.max_capacity(bound).eviction_policy(policy),
            Kind::Weighs(policy) => {
                let weigh = |_: &Key, value: &Value| value.1 as u32;
                builder.max_weight(bound, weigh).eviction_policy(policy)
            }
        };
        let map = builder.build_manual().unwrap();
        let live = BTreeMap::new();
        Run { map, clock, told, setup, now: 0, live, values: 0, evicted: 0, refused: 0 }
    }

    fn fresh(&mut self, weight: u64) -> Value {
        self.values += 1;
        (self.values, weight)
    }

    /// What a value weighs in this map.
    fn weighs(&self, value: Value) -> u64 {
        if matches!(self.setup.kind, Kind::Weighs(_)) {
            value.1
        } else {
            1
        }
    }

    fn weight(&self) -> u64 {
        self.live.values().map(|stay| self.weighs(stay.value)).sum()
    }

    fn is_due(&self, stay: &Stay) -> bool {
        stay.due.is_some_and(|due| due <= self.now)
    }

    fn due(&self) -> Option<(&Key, &Stay)> {
        self.live.iter().find(|(_, stay)| self.is_due(stay))
    }

    fn living(&self, key: Key) -> Option<Value> {
        self.live.get(&key).filter(|stay| !self.is_due(stay)).map(|stay| stay.value)
    }

    /// Takes what the listener received. Each end is one that the call may make, or `own`: that of
    /// the entry that the call was about. Returns whether `own` was there.
    fn hear(&mut self, evicts: Evicts, own: Option<(Key, RemovalCause)>) -> Found<bool> {
        let mut was_own = false;
        for (key, value, cause) in self.told.take() {
            let Some(stay) = self.live.get(&key).copied() else {
                return Err(TestCaseError::fail(format!("{key} {value:?} {cause:?}: it is gone")));
            };
            same!(value, stay.value);
            match cause {
                RemovalCause::Expired => prop_assert!(self.is_due(&stay), "{key} is early"),
                RemovalCause::Size => {
                    self.may_evict(key, stay, evicts)?;
                    self.evicted += 1;
                }
                cause => {
                    same!(Some((key, cause)), own);
                    was_own = true;
                }
            }
            self.live.remove(&key);
        }
        Ok(was_own)
    }

    /// Checks that the call may evict this entry now.
    fn may_evict(&self, key: Key, stay: Stay, evicts: Evicts) -> Found {
        let Evicts::RoomFor(room, spared) = evicts else {
            return Err(TestCaseError::fail(format!("{key} was evicted by a call without need")));
        };
        prop_assert_ne!(spared, Some(key), "the call replaces it");
        prop_assert!(self.due().is_none(), "{:?} is due, and {key} was evicted", self.due());
        let too_heavy = self.weighs(stay.value) > self.setup.bound;
        let needed = self.weight() + room > self.setup.bound || too_heavy;
        prop_assert!(needed, "{key} was evicted, and there was room");
        let soonest = matches!(
            self.setup.kind,
            Kind::Evicts(EvictionPolicy::SoonestDeadline)
                | Kind::Weighs(EvictionPolicy::SoonestDeadline)
        );
        if soonest {
            let others = self.live.iter().filter(|(&other, _)| Some(other) != spared);
            let first = others.map(|(_, stay)| stay.due.unwrap_or(u64::MAX)).min();
            same!(Some(stay.due.unwrap_or(u64::MAX)), first);
        }
        Ok(())
    }

    /// A call wants to put this value in, and has returned `refused`. Checks what that has ended,
    /// and notes the entry. `before` is the living value that it has found.
    fn puts(
        &mut self,
        key: Key,
        value: Value,
        lifetime: Option<u64>,
        refused: Option<StoreError>,
    ) -> Found {
        let weight = self.weighs(value);
        let had = self.live.get(&key).copied().filter(|stay| !self.is_due(stay));
        let old = had.map_or(0, |stay| self.weighs(stay.value));
        let evicts = match self.setup.kind {
            Kind::Refuses => Evicts::Nothing,
            _ => Evicts::RoomFor(weight.saturating_sub(old), had.map(|_| key)),
        };
        let replaced = self.hear(evicts, Some((key, RemovalCause::Replaced)))?;
        let expected = if weight > self.setup.bound {
            Some(StoreError::TooHeavy)
        } else if self.setup.kind == Kind::Refuses
            && had.is_none()
            && self.live.len() as u64 >= self.setup.bound
        {
            prop_assert!(self.due().is_none(), "there is no room, and {:?} is due", self.due());
            self.refused += 1;
            Some(StoreError::Full)
        } else {
            None
        };
        same!(refused, expected);
        same!(replaced, had.is_some() && refused.is_none());
        if refused.is_none() {
            prop_assert!(!self.live.contains_key(&key), "the old entry has not ended");
            let due = lifetime.map(|lifetime| self.now + lifetime);
            self.live.insert(key, Stay { value, due });
        }
        Ok(())
    }

    fn insert(&mut self, key: Key, (lifetime, weight): Given) -> Found {
        let (value, here) = (self.fresh(weight), self.living(key));
        let done = self.map.insert_for(key, value, time(lifetime));
        let refused = match &done {
            Ok(old) => {
                same!(old.as_ref().map(|old| *old.value()), here);
                None
            }
            Err(refused) => {
                same!((refused.key, refused.value), (key, value));
                Some(refused.error)
            }
        };
        drop(done);
        self.puts(key, value, lifetime, refused)
    }

    fn upsert(&mut self, key: Key, (lifetime, weight): Given) -> Found {
        let (value, here) = (self.fresh(weight), self.living(key));
        let done = self.map.upsert_for(key, time(lifetime), |old| (value, old.copied()));
        let refused = match done {
            Ok(old) => {
                same!(old, here);
                None
            }
            Err(refused) => Some(refused.error),
        };
        self.puts(key, value, lifetime, refused)
    }

    fn compute(&mut self, key: Key, (lifetime, weight): Given) -> Found {
        let (value, here) = (self.fresh(weight), self.living(key));
        let mut seen = None;
        let done = self.map.compute(key, |old| {
            seen = old.map(|old| *old);
            Compute::PutFor(value, time(lifetime).into())
        });
        let refused = done.map(drop).map_err(|refused| refused.error).err();
        same!(seen, here);
        self.puts(key, value, lifetime, refused)
    }

    fn load(&mut self, key: Key, (lifetime, weight): Given) -> Found {
        let (value, here) = (self.fresh(weight), self.living(key));
        let mut called = false;
        let load = || {
            called = true;
            Ok::<_, ()>((value, time(lifetime).into()))
        };
        let (got, refused) = match self.map.try_get_or_insert_with(&key, load) {
            Ok(got) => (Some(*got), None),
            Err(expiry::LoadError::Refused(refused)) => (None, Some(refused.error)),
            Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        same!(called, here.is_none());
        if let Some(here) = here {
            same!(got, Some(here));
            return self.hear(Evicts::Nothing, None).map(drop);
        }
        same!(got, refused.is_none().then_some(value));
        self.puts(key, value, lifetime, refused)
    }

    fn through_an_entry(&mut self, key: Key, (lifetime, weight): Given) -> Found {
        let (value, here) = (self.fresh(weight), self.living(key));
        let refused = match self.map.entry(key) {
            Entry::Occupied(entry) => match entry.insert_for(value, time(lifetime)) {
                Ok(old) => {
                    same!(Some(*old.value()), here);
                    None
                }
                Err(refused) => Some(refused.error),
            },
            Entry::Vacant(entry) => {
                same!(here, None);
                entry.insert_for(value, time(lifetime)).map_err(|refused| refused.error).err()
            }
        };
        self.puts(key, value, lifetime, refused)
    }

    fn step(&mut self, op: Op) -> Found {
        match op {
            Op::Insert(key, given) => self.insert(key, given)?,
            Op::InsertRow(first, many, given) => {
                (first..first + many).try_for_each(|key| self.insert(key, given))?;
            }
            Op::Upsert(key, given) => self.upsert(key, given)?,
            Op::Compute(key, given) => self.compute(key, given)?,
            Op::Load(key, given) => self.load(key, given)?,
            Op::Entry(key, given) => self.through_an_entry(key, given)?,
            Op::Get(key) => same!(self.map.get(&key).map(|value| *value), self.living(key)),
            Op::Touch(key, lifetime) => {
                let here = self.living(key).is_some();
                same!(self.map.touch_for(&key, time(lifetime)), Ok(here));
                if here {
                    let due = lifetime.map(|lifetime| self.now + lifetime);
                    self.live.entry(key).and_modify(|stay| stay.due = due);
                }
            }
            Op::Remove(key) => {
                let here = self.living(key);
                same!(self.map.remove(&key).map(|ended| *ended.value()), here);
                let removed = self.hear(Evicts::Nothing, Some((key, RemovalCause::Removed)))?;
                same!(removed, here.is_some());
            }
            Op::SetBound(bound) => {
                match self.setup.kind {
                    Kind::Refuses => return Ok(()),
                    Kind::Evicts(_) => self.map.set_max_capacity(bound as usize).unwrap(),
                    Kind::Weighs(_) => self.map.set_max_weight(bound as usize).unwrap(),
                }
                self.setup.bound = bound;
                self.hear(Evicts::RoomFor(0, None), None)?;
            }
            // Some of the 64 bits of nanoseconds are left.
            Op::Pass(time) if self.now + time < 1 << 43 => {
                self.clock.advance(Duration::from_millis(time));
                self.now += time;
            }
            Op::Pass(_) => {}
            Op::Poll(budget) => {
                let more = self.map.poll(budget).more;
                self.hear(Evicts::Nothing, None)?;
                prop_assert!(more || self.due().is_none(), "left: {:?}", self.due());
            }
        }
        self.hear(Evicts::Nothing, None)?;
        let weight = self.weight();
        prop_assert!(weight <= self.setup.bound, "{weight} of {}", self.setup.bound);
        same!((self.map.weight(), self.map.len()), (Some(weight), self.live.len()));
        let total = self.map.metrics().total;
        let left = total.live + total.removed + total.evicted + total.expired + total.closed;
        same!((total.evicted, total.inserted), (self.evicted, left));
        same!(self.map.metrics().refused, self.refused);
        Ok(())
    }

    fn finish(self) -> Found {
        let mut all: Vec<_> = self.map.iter().map(|entry| (*entry.key(), *entry)).collect();
        all.sort_unstable();
        let living = self.live.keys().filter_map(|&key| Some((key, self.living(key)?)));
        same!(all, living.collect::<Vec<_>>());
        self.map.shutdown();
        let mut closed = self.told.take();
        closed.sort_unstable_by_key(|(key, ..)| *key);
        let of = |(&key, stay): (&Key, &Stay)| (key, stay.value, RemovalCause::Closed);
        same!(closed, self.live.iter().map(of).collect::<Vec<_>>());
        Ok(())
    }
}
