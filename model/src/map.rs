//! `ExpiringMap`: every result, every end that the listener receives, and the entries after each
//! step.

use crate::shared::{same, set, Told};
use crate::{each, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::expiring_map::{Compute, Entry};
use expiry::{
    ExpiringMap, Lifetime, LifetimeError, Lifetimes, ManualClock, RemovalCause, StoreError,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

const INTERVAL: u64 = 1000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Histories of an `ExpiringMap`.
pub struct Map;

/// A step, and the key that it is about.
#[derive(Debug, Clone, Copy)]
pub struct Op(u8, Act);

#[derive(Debug, Clone, Copy)]
enum Act {
    /// Inserts with this time to live, and this time to idle.
    Insert(Term, Term),
    Get,
    Peek,
    Remaining,
    Touch(Term),
    Remove,
    /// If the value is even.
    RemoveIf,
    OrInsert,
    /// Through an entry, with something else between the look and the deed.
    Entry(Deed, Meanwhile),
    Upsert,
    Compute(Decision),
    /// What is even.
    Retain,
    Iterate,
    Pass(u64),
    Poll(usize),
}

#[derive(Debug, Clone, Copy)]
enum Term {
    Default,
    Never,
    Zero,
    After(u64),
}

#[derive(Debug, Clone, Copy)]
enum Deed {
    Insert,
    Remove,
}

#[derive(Debug, Clone, Copy)]
enum Decision {
    Keep,
    Put(Term, Term),
    Touch(Term),
    Remove,
}

#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Nothing,
    Insert,
    Remove,
    Touch,
    Pass(u64),
}

fn term(bytes: &mut Unstructured<'_>) -> Result<Term> {
    Ok(match bytes.int_in_range(0..=13u8)? {
        0..=5 => Term::Default,
        6 => Term::Never,
        7 => Term::Zero,
        _ => Term::After(bytes.int_in_range(1..=8000)?),
    })
}

fn decision(bytes: &mut Unstructured<'_>) -> Result<Decision> {
    Ok(match bytes.int_in_range(0..=3u8)? {
        0 => Decision::Keep,
        1 => Decision::Put(term(bytes)?, term(bytes)?),
        2 => Decision::Touch(term(bytes)?),
        _ => Decision::Remove,
    })
}

fn meanwhile(bytes: &mut Unstructured<'_>) -> Result<Meanwhile> {
    Ok(match bytes.int_in_range(0..=7u8)? {
        0..=3 => Meanwhile::Nothing,
        4 => Meanwhile::Insert,
        5 => Meanwhile::Remove,
        6 => Meanwhile::Touch,
        _ => Meanwhile::Pass(bytes.int_in_range(0..=5000)?),
    })
}

impl Histories for Map {
    /// The time to live and the time to idle.
    type Setup = (Option<u64>, Option<u64>);
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Self::Setup> {
        let time = |bytes: &mut Unstructured<'_>| bytes.int_in_range(INTERVAL..=9000);
        Ok((perhaps(bytes, time)?, perhaps(bytes, time)?))
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        let key = bytes.int_in_range(0..=5u8)?;
        let act = match bytes.int_in_range(0..=35u8)? {
            0..=5 => Act::Insert(term(bytes)?, term(bytes)?),
            6..=9 => Act::Get,
            10 => Act::Peek,
            11 | 12 => Act::Remaining,
            13..=15 => Act::Touch(term(bytes)?),
            16 | 17 => Act::Remove,
            18 => Act::RemoveIf,
            19 => Act::OrInsert,
            20 | 21 => {
                let deed = *bytes.choose(&[Deed::Insert, Deed::Remove])?;
                Act::Entry(deed, meanwhile(bytes)?)
            }
            22 => Act::Upsert,
            23 => Act::Retain,
            24 => Act::Iterate,
            25..=28 => Act::Pass(bytes.int_in_range(0..=3000)?),
            29 => Act::Poll(bytes.int_in_range(1..=7)?),
            32..=35 => Act::Compute(decision(bytes)?),
            _ => Act::Poll(usize::MAX),
        };
        Ok(Op(key, act))
    }

    fn run(&self, &(live, idle): &Self::Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(live, idle);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}

impl Term {
    fn timeout(self) -> Lifetime {
        match self {
            Term::Default => Lifetime::Default,
            Term::Never => Lifetime::Never,
            Term::Zero => Lifetime::After(Duration::ZERO),
            Term::After(after) => Lifetime::After(ms(after)),
        }
    }

    /// `Err` if it is refused, `None` if it never ends.
    fn resolve(self, default: Option<u64>) -> std::result::Result<Option<u64>, LifetimeError> {
        match self {
            Term::Default => Ok(default),
            Term::Never => Ok(None),
            Term::Zero => Err(LifetimeError::Zero),
            Term::After(after) => Ok(Some(after)),
        }
    }
}

/// Gives some keys the same hash.
#[derive(Default)]
struct FewHashes(u64);

impl Hasher for FewHashes {
    fn finish(&self) -> u64 {
        self.0 & 1
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.wrapping_add(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    }
}

/// An entry as the model has it. Times are in milliseconds; both ends are multiples of the
/// interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Entered {
    value: u64,
    bound: u64,
    idle: Option<u64>,
    unused_until: u64,
}

impl Entered {
    fn end(&self) -> u64 {
        self.bound.min(self.unused_until)
    }
}

/// A removal: the key, the value, and why.
type Ended = (String, u64, RemovalCause);

struct Run {
    map: Arc<ExpiringMap<String, u64, BuildHasherDefault<FewHashes>>>,
    clock: ManualClock,
    told: Told<Ended>,
    now: u64,
    live: Option<u64>,
    idle: Option<u64>,
    entries: BTreeMap<String, Entered>,
    /// The ends that this step must deliver to the listener.
    ended: Vec<Ended>,
    values: u64,
}

impl Run {
    fn new(live: Option<u64>, idle: Option<u64>) -> Self {
        let (clock, told) = (ManualClock::new(), Told::new());
        let tell = told.listener();
        let mut builder = ExpiringMap::builder()
            .interval(ms(INTERVAL))
            .clock(clock.clone())
            .shards(2)
            .removal_listener(move |key: &String, value: &u64, cause| {
                tell((key.clone(), *value, cause))
            });
        set!(builder.time_to_live(live.map(ms)));
        set!(builder.time_to_idle(idle.map(ms)));
        let map = builder.hasher(BuildHasherDefault::default()).build_manual().unwrap();
        let (entries, ended) = (BTreeMap::new(), Vec::new());
        Run { map: Arc::new(map), clock, told, now: 0, live, idle, entries, ended, values: 0 }
    }

    fn fresh(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    fn end_after(&self, time: Option<u64>) -> u64 {
        time.map_or(u64::MAX, |time| (self.now + time).div_ceil(INTERVAL) * INTERVAL)
    }

    fn enter(&mut self, key: &str, value: u64, live: Option<u64>, idle: Option<u64>) {
        let (bound, unused_until) = (self.end_after(live), self.end_after(idle));
        let entered = Entered { value, bound, idle, unused_until };
        if let Some(old) = self.entries.insert(key.to_string(), entered) {
            let over = old.end() <= self.now;
            let cause = if over { RemovalCause::Expired } else { RemovalCause::Replaced };
            self.ended.push((key.to_string(), old.value, cause));
        }
    }

    fn leave(&mut self, key: &str, cause: RemovalCause) {
        let entered = self.entries.remove(key).unwrap();
        self.ended.push((key.to_string(), entered.value, cause));
    }

    fn living(&self, key: &str) -> Option<Entered> {
        self.entries.get(key).copied().filter(|entered| self.now < entered.end())
    }

    fn value(&self, key: &str) -> Option<u64> {
        self.living(key).map(|entered| entered.value)
    }

    fn uses(&mut self, key: &str) {
        let idle = self.entries.get(key).and_then(|entered| entered.idle);
        if let Some(idle) = idle {
            let unused_until = self.end_after(Some(idle));
            self.entries.entry(key.to_string()).and_modify(|it| it.unused_until = unused_until);
        }
    }

    fn touches(&mut self, key: &str, live: Option<u64>) {
        self.uses(key);
        self.entries.get_mut(key).unwrap().bound = self.end_after(live);
    }

    /// The map has removed the key, or has found no living entry.
    fn removes(&mut self, key: &str, removed: bool) {
        if self.entries.contains_key(key) {
            self.leave(key, if removed { RemovalCause::Removed } else { RemovalCause::Expired });
        }
    }

    fn pass(&mut self, time: u64) {
        self.clock.advance(ms(time));
        self.now += time;
    }

    fn step(&mut self, Op(key, act): Op) -> Found {
        let key = &*format!("key {key}");
        let owned = key.to_string();
        let here = self.value(key);
        let mut told = Vec::new();
        match act {
            Act::Insert(live, idle) => {
                let value = self.fresh();
                let life = Lifetimes::new().live(live.timeout()).idle(idle.timeout());
                let got = self.map.insert_for(owned, value, life);
                match (live.resolve(self.live), idle.resolve(self.idle)) {
                    (Ok(live), Ok(idle)) => {
                        same!(got.unwrap().map(|old| *old.value()), here);
                        self.enter(key, value, live, idle);
                    }
                    (Err(error), _) | (_, Err(error)) => {
                        let refused = got.unwrap_err();
                        let refused = (&*refused.key, refused.value, refused.error);
                        same!(refused, (key, value, error.into()));
                    }
                }
            }
            Act::Get => {
                same!(self.map.get(key).map(|value| *value), here);
                if here.is_some() {
                    self.uses(key);
                }
            }
            Act::Peek => {
                same!(self.map.peek(key).as_deref().copied(), here);
                same!(self.map.contains_key(key), here.is_some());
            }
            Act::Remaining => {
                let left = self.living(key).map(|entered| match entered.end() {
                    u64::MAX => Duration::MAX,
                    end => ms(end - self.now),
                });
                same!(self.map.remaining(key), left);
            }
            Act::Touch(time) => {
                let live = time.resolve(self.live);
                same!(self.map.touch_for(key, time.timeout()), live.map(|_| here.is_some()));
                if let (Ok(live), Some(_)) = (live, here) {
                    self.touches(key, live);
                }
            }
            Act::Remove => {
                let got = self.map.remove(key).map(|ended| *ended.value());
                same!(got, here);
                self.removes(key, got.is_some());
            }
            Act::RemoveIf => {
                let got = self.map.remove_if(key, |_, value| value % 2 == 0);
                let due = here.filter(|value| value % 2 == 0);
                same!(got.map(|ended| *ended.value()), due);
                if due.is_some() {
                    self.leave(key, RemovalCause::Removed);
                }
            }
            Act::OrInsert => {
                let value = self.fresh();
                same!(*self.map.entry(owned).or_insert(value).unwrap(), here.unwrap_or(value));
                match here {
                    Some(_) => self.uses(key),
                    None => self.enter(key, value, self.live, self.idle),
                }
            }
            Act::Entry(deed, meanwhile) => self.through_an_entry(key, deed, meanwhile)?,
            Act::Upsert => {
                let value = self.fresh();
                let mut seen = Vec::new();
                let got = self.map.upsert(owned, |old| {
                    seen.push(old.copied());
                    (value, value)
                });
                same!(got.unwrap(), value);
                same!(seen, [here]);
                self.enter(key, value, self.live, self.idle);
            }
            Act::Compute(decision) => self.computes(key, decision)?,
            Act::Retain => {
                self.map.retain(|_, value| value % 2 == 1);
                let keys: Vec<String> = self.entries.keys().cloned().collect();
                for key in keys {
                    if self.value(&key).is_some_and(|value| value % 2 == 0) {
                        self.leave(&key, RemovalCause::Removed);
                    }
                }
            }
            Act::Iterate => {
                let mut got: Vec<(String, u64)> =
                    self.map.iter().map(|entry| (entry.key().clone(), *entry)).collect();
                got.sort();
                let living = self.entries.keys().filter_map(|key| Some((key, self.value(key)?)));
                same!(got, living.map(|(key, value)| (key.clone(), value)).collect::<Vec<_>>());
            }
            Act::Pass(time) => self.pass(time),
            Act::Poll(budget) => {
                let more = self.map.poll(budget).more;
                told = self.told.take();
                // The map chooses which of the due entries a small budget expires.
                for (key, value, cause) in &told {
                    let due = self.entries.get(key).is_some_and(|entered| {
                        entered.value == *value && entered.end() <= self.now
                    });
                    prop_assert!(due && *cause == RemovalCause::Expired, "{key} {value} {cause:?}");
                    self.leave(key, RemovalCause::Expired);
                }
                let left = self.entries.values().find(|entered| entered.end() <= self.now);
                prop_assert!(more || left.is_none(), "left: {left:?}");
            }
        }
        self.compare(told)?;
        same!(self.map.len(), self.entries.len());
        Ok(())
    }

    /// The listener has received each end once.
    fn compare(&mut self, mut told: Vec<Ended>) -> Found {
        told.extend(self.told.take());
        told.sort_by_key(|told| told.1);
        self.ended.sort_by_key(|ended| ended.1);
        same!(told, std::mem::take(&mut self.ended));
        Ok(())
    }

    fn computes(&mut self, key: &str, decision: Decision) -> Found {
        let (here, value, mut seen) = (self.value(key), self.fresh(), Vec::new());
        let deed = match decision {
            Decision::Keep => Compute::Keep,
            Decision::Put(live, idle) => {
                let life = Lifetimes::new().live(live.timeout()).idle(idle.timeout());
                Compute::PutFor(value, life)
            }
            Decision::Touch(time) => Compute::Touch(time.timeout()),
            Decision::Remove => Compute::Remove,
        };
        let map = self.map.clone();
        let got = map.compute(key.to_string(), |old| {
            seen.push(old.copied());
            deed
        });
        same!(seen, [here]);
        // An entry whose time is up makes way, whatever is decided.
        match here {
            Some(_) => self.uses(key),
            None => self.removes(key, false),
        }
        let is = match decision {
            Decision::Keep => Ok(here),
            Decision::Put(live, idle) => match (live.resolve(self.live), idle.resolve(self.idle)) {
                (Ok(live), Ok(idle)) => {
                    self.enter(key, value, live, idle);
                    Ok(Some(value))
                }
                (Err(error), _) | (_, Err(error)) => Err((Some(value), error.into())),
            },
            Decision::Touch(time) => match time.resolve(self.live) {
                Ok(live) => {
                    if here.is_some() {
                        self.touches(key, live);
                    }
                    Ok(here)
                }
                Err(error) => Err((None, error.into())),
            },
            Decision::Remove => {
                self.removes(key, true);
                Ok(None)
            }
        };
        match got {
            Ok(got) => same!(Ok((got.was().copied(), got.is().copied())), is.map(|is| (here, is))),
            Err(refused) => {
                same!(refused.key, key);
                same!(Err((refused.value, refused.error)), is);
            }
        }
        Ok(())
    }

    fn through_an_entry(&mut self, key: &str, deed: Deed, meanwhile: Meanwhile) -> Found {
        let map = self.map.clone();
        let entry = map.entry(key.to_string());
        let before = self.value(key);
        if before.is_some() {
            self.uses(key);
        }
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Insert => {
                let value = self.fresh();
                map.insert(key.to_string(), value).unwrap();
                self.enter(key, value, self.live, self.idle);
            }
            Meanwhile::Remove => self.removes(key, map.remove(key).is_some()),
            Meanwhile::Touch => {
                if map.touch(key) {
                    self.touches(key, self.live);
                }
            }
            Meanwhile::Pass(time) => self.pass(time),
        }
        let value = self.fresh();
        let now = self.value(key);
        match (entry, deed) {
            (Entry::Occupied(entry), deed) if now != before => {
                same!(Some(*entry.get()), before);
                match deed {
                    Deed::Remove => prop_assert!(entry.remove().is_none()),
                    Deed::Insert => {
                        let refused = entry.insert(value).unwrap_err();
                        same!((refused.value, refused.error), (value, StoreError::Changed));
                    }
                }
            }
            (Entry::Occupied(entry), Deed::Remove) => {
                same!(entry.remove().map(|ended| *ended.value()), before);
                self.leave(key, RemovalCause::Removed);
            }
            (Entry::Occupied(entry), Deed::Insert) => {
                same!(entry.insert(value).ok().map(|old| *old), before);
                self.enter(key, value, self.live, self.idle);
            }
            (Entry::Vacant(entry), _) => {
                same!(before, None);
                let got = entry.insert(value).map(|entry| *entry).map_err(|refused| refused.error);
                if now.is_some() {
                    same!(got, Err(StoreError::Changed));
                    self.uses(key);
                } else {
                    same!(got, Ok(value));
                    self.enter(key, value, self.live, self.idle);
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Found {
        let keys: Vec<String> = self.entries.keys().cloned().collect();
        keys.iter().for_each(|key| self.leave(key, RemovalCause::Closed));
        self.map.shutdown();
        let refused = self.map.insert("late".to_string(), 0).unwrap_err();
        same!(refused.error, StoreError::Closed);
        let refused = self.map.upsert("late".to_string(), |_| (0, ())).unwrap_err();
        same!(refused.error, StoreError::Closed);
        prop_assert!(self.map.is_empty() && self.map.iter().next().is_none());
        for key in &keys {
            let found = self.map.get(key).is_some() || self.map.touch(key);
            prop_assert!(!found && self.map.remaining(key).is_none(), "{key} is there");
        }
        self.compare(Vec::new())
    }
}
