//! Does the same to an `ExpiringMap` and to the oracle, and compares every result, every end that the listener is told, and the entries
//! after each step.

use expiry::expiring_map::Entry;
use expiry::{Cause, ExpiringMap, Lifetime, ManualClock, StoreError, Timeout};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const INTERVAL: u64 = 1000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Insert(u8, Term, Term),
    Get(u8),
    Peek(u8),
    Remaining(u8),
    Touch(u8, Term),
    Remove(u8),
    /// If the value is even.
    RemoveIf(u8),
    OrInsert(u8),
    /// Through an entry, with something else between the look and the deed.
    Entry(u8, Deed, Meanwhile),
    Upsert(u8),
    /// What is even.
    Retain,
    Iterate,
    Pass(u64),
    Poll(usize),
}

#[derive(Debug, Clone, Copy)]
pub enum Term {
    Default,
    Never,
    Zero,
    After(u64),
}

#[derive(Debug, Clone, Copy)]
pub enum Deed {
    Insert,
    Remove,
}

#[derive(Debug, Clone, Copy)]
pub enum Meanwhile {
    Nothing,
    Insert,
    Remove,
    Touch,
    Pass(u64),
}

impl Term {
    fn timeout(self) -> Timeout {
        match self {
            Term::Default => Timeout::Default,
            Term::Never => Timeout::Never,
            Term::Zero => Timeout::After(Duration::ZERO),
            Term::After(after) => Timeout::After(ms(after)),
        }
    }

    /// `Err` if it is refused, `None` if it is for ever.
    fn resolve(self, default: Option<u64>) -> Result<Option<u64>, StoreError> {
        match self {
            Term::Default => Ok(default),
            Term::Never => Ok(None),
            Term::Zero => Err(StoreError::ZeroTimeout),
            Term::After(after) => Ok(Some(after)),
        }
    }
}

/// Some keys share their hash.
struct Few;

struct FewHasher(u64);

impl BuildHasher for Few {
    type Hasher = FewHasher;

    fn build_hasher(&self) -> FewHasher {
        FewHasher(0)
    }
}

impl Hasher for FewHasher {
    fn finish(&self) -> u64 {
        self.0 & 1
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.wrapping_add(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    }
}

/// An entry as the oracle has it. Times are in milliseconds; both ends are multiples of the interval.
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

fn round_up(time: u64) -> u64 {
    (0..).map(|n| time + n).find(|time| time % INTERVAL == 0).unwrap()
}

type Told = Arc<Mutex<Vec<(String, u64, Cause)>>>;

pub struct Run {
    map: Arc<ExpiringMap<String, u64, Few>>,
    clock: ManualClock,
    told: Told,
    now: u64,
    live: Option<u64>,
    idle: Option<u64>,
    entries: BTreeMap<String, Entered>,
    ended: Vec<(String, u64, Cause)>,
    values: u64,
}

impl Run {
    pub fn new(live: Option<u64>, idle: Option<u64>) -> Self {
        let clock = ManualClock::new();
        let told = Told::default();
        let listener = told.clone();
        let mut builder =
            ExpiringMap::builder().interval(ms(INTERVAL)).clock(clock.clone()).shards(2).on_end(
                move |key: &String, value: &u64, cause| {
                    listener.lock().unwrap().push((key.clone(), *value, cause));
                },
            );
        if let Some(live) = live {
            builder = builder.time_to_live(ms(live));
        }
        if let Some(idle) = idle {
            builder = builder.time_to_idle(ms(idle));
        }
        Run {
            map: Arc::new(builder.hasher(Few).build_manual().unwrap()),
            clock,
            told,
            now: 0,
            live,
            idle,
            entries: BTreeMap::new(),
            ended: Vec::new(),
            values: 0,
        }
    }

    fn fresh(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    fn enter(&mut self, key: &str, value: u64, live: Option<u64>, idle: Option<u64>) {
        let after = |time: Option<u64>| time.map_or(u64::MAX, |time| round_up(self.now + time));
        let entered = Entered { value, bound: after(live), idle, unused_until: after(idle) };
        let old = self.entries.insert(key.to_string(), entered);
        if let Some(old) = old {
            let over = old.end() <= self.now;
            let cause = if over { Cause::Expired } else { Cause::Replaced };
            self.ended.push((key.to_string(), old.value, cause));
        }
    }

    fn leave(&mut self, key: &str, cause: Cause) {
        let entered = self.entries.remove(key).unwrap();
        self.ended.push((key.to_string(), entered.value, cause));
    }

    fn living(&self, key: &str) -> Option<Entered> {
        let now = self.now;
        self.entries.get(key).copied().filter(|entered| now < entered.end())
    }

    fn uses(&mut self, key: &str) {
        let now = self.now;
        if let Some(entered) = self.entries.get_mut(key) {
            if let Some(idle) = entered.idle {
                entered.unused_until = round_up(now + idle);
            }
        }
    }

    fn pass(&mut self, time: u64) {
        self.clock.advance(ms(time));
        self.now += time;
    }

    fn value(&self, key: &str) -> Option<u64> {
        self.living(key).map(|entered| entered.value)
    }

    pub fn step(&mut self, op: Op) -> Result<(), TestCaseError> {
        let name = |key: u8| format!("key {key}");
        match op {
            Op::Insert(key, live, idle) => {
                let key = name(key);
                let value = self.fresh();
                let life = Lifetime::new().live(live.timeout()).idle(idle.timeout());
                let got = self.map.insert_with(key.clone(), value, life);
                match (live.resolve(self.live), idle.resolve(self.idle)) {
                    (Ok(live), Ok(idle)) => {
                        let old = got.unwrap().map(|old| *old.value());
                        prop_assert_eq!(old, self.value(&key));
                        self.enter(&key, value, live, idle);
                    }
                    (Err(error), _) | (_, Err(error)) => {
                        let refused = got.unwrap_err();
                        prop_assert_eq!(
                            (refused.key, refused.value, refused.error),
                            (key, value, error)
                        );
                    }
                }
            }
            Op::Get(key) => {
                let key = name(key);
                let got = self.map.get(key.as_str()).map(|value| *value);
                prop_assert_eq!(got, self.value(&key));
                if got.is_some() {
                    self.uses(&key);
                }
            }
            Op::Peek(key) => {
                let key = name(key);
                prop_assert_eq!(self.map.peek(&key).as_deref().copied(), self.value(&key));
                prop_assert_eq!(self.map.contains_key(&key), self.living(&key).is_some());
            }
            Op::Remaining(key) => {
                let key = name(key);
                let left = self.living(&key).map(|entered| match entered.end() {
                    u64::MAX => Duration::MAX,
                    end => ms(end - self.now),
                });
                prop_assert_eq!(self.map.remaining(&key), left);
            }
            Op::Touch(key, time) => {
                let key = name(key);
                let got = self.map.touch_with(&key, time.timeout());
                match time.resolve(self.live) {
                    Err(error) => prop_assert_eq!(got, Err(error)),
                    Ok(live) => {
                        prop_assert_eq!(got, Ok(self.living(&key).is_some()));
                        if got == Ok(true) {
                            self.uses(&key);
                            let bound = live.map_or(u64::MAX, |live| round_up(self.now + live));
                            self.entries.get_mut(&key).unwrap().bound = bound;
                        }
                    }
                }
            }
            Op::Remove(key) => {
                let key = name(key);
                let got = self.map.remove(&key).map(|ended| *ended.value());
                prop_assert_eq!(got, self.value(&key));
                if self.entries.contains_key(&key) {
                    let cause = got.map_or(Cause::Expired, |_| Cause::Removed);
                    self.leave(&key, cause);
                }
            }
            Op::RemoveIf(key) => {
                let key = name(key);
                let got = self.map.remove_if(&key, |_, value| value % 2 == 0);
                let due = self.value(&key).filter(|value| value % 2 == 0);
                prop_assert_eq!(got.map(|ended| *ended.value()), due);
                if due.is_some() {
                    self.leave(&key, Cause::Removed);
                }
            }
            Op::OrInsert(key) => {
                let key = name(key);
                let value = self.fresh();
                let got = *self.map.entry(key.clone()).or_insert(value).unwrap();
                prop_assert_eq!(got, self.value(&key).unwrap_or(value));
                if got == value {
                    self.enter(&key, value, self.live, self.idle);
                } else {
                    self.uses(&key);
                }
            }
            Op::Entry(key, deed, meanwhile) => {
                self.through_an_entry(&name(key), deed, meanwhile)?
            }
            Op::Upsert(key) => {
                let key = name(key);
                let value = self.fresh();
                let mut seen = Vec::new();
                let got = self
                    .map
                    .upsert(key.clone(), |old| {
                        seen.push(old.copied());
                        (value, value)
                    })
                    .unwrap();
                prop_assert_eq!(got, value);
                prop_assert_eq!(seen, vec![self.value(&key)]);
                self.enter(&key, value, self.live, self.idle);
            }
            Op::Retain => {
                self.map.retain(|_, value| value % 2 == 1);
                let keys: Vec<String> = self.entries.keys().cloned().collect();
                for key in keys {
                    if self.value(&key).is_some_and(|value| value % 2 == 0) {
                        self.leave(&key, Cause::Removed);
                    }
                }
            }
            Op::Iterate => {
                let mut got: Vec<(String, u64)> =
                    self.map.iter().map(|entry| (entry.key().clone(), *entry)).collect();
                got.sort();
                let due: Vec<(String, u64)> = self
                    .entries
                    .keys()
                    .filter_map(|key| self.value(key).map(|value| (key.clone(), value)))
                    .collect();
                prop_assert_eq!(got, due);
            }
            Op::Pass(time) => self.pass(time),
            Op::Poll(budget) => {
                let more = self.map.poll(budget);
                let told = self.told.lock().unwrap().clone();
                // Which of what is due, a small budget leaves open.
                for (key, value, cause) in &told {
                    let due = self.entries.get(key).is_some_and(|entered| {
                        entered.value == *value && entered.end() <= self.now
                    });
                    prop_assert!(due && *cause == Cause::Expired, "{key} {value} {cause:?}");
                    self.leave(key, Cause::Expired);
                }
                if !more {
                    let left = self.entries.values().find(|entered| entered.end() <= self.now);
                    prop_assert_eq!(left, None);
                }
            }
        }
        let mut told = std::mem::take(&mut *self.told.lock().unwrap());
        told.sort_by_key(|told| told.1);
        self.ended.sort_by_key(|ended| ended.1);
        prop_assert_eq!(told, std::mem::take(&mut self.ended));
        prop_assert_eq!(self.map.len(), self.entries.len());
        Ok(())
    }

    fn through_an_entry(
        &mut self,
        key: &str,
        deed: Deed,
        meanwhile: Meanwhile,
    ) -> Result<(), TestCaseError> {
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
            Meanwhile::Remove => {
                let removed = map.remove(key).is_some();
                if self.entries.contains_key(key) {
                    self.leave(key, if removed { Cause::Removed } else { Cause::Expired });
                }
            }
            Meanwhile::Touch => {
                if map.touch(key) {
                    self.uses(key);
                    let bound = self.live.map_or(u64::MAX, |live| round_up(self.now + live));
                    self.entries.get_mut(key).unwrap().bound = bound;
                }
            }
            Meanwhile::Pass(time) => self.pass(time),
        }
        let value = self.fresh();
        let now = self.value(key);
        match (entry, deed) {
            (Entry::Occupied(entry), _) if now != before => {
                prop_assert_eq!(Some(*entry.get()), before);
                match deed {
                    Deed::Remove => prop_assert!(entry.remove().is_none()),
                    Deed::Insert => {
                        let refused = entry.insert(value).unwrap_err();
                        prop_assert_eq!(
                            (refused.value, refused.error),
                            (value, StoreError::Changed)
                        );
                    }
                }
            }
            (Entry::Occupied(entry), Deed::Remove) => {
                prop_assert_eq!(entry.remove().map(|ended| *ended.value()), before);
                self.leave(key, Cause::Removed);
            }
            (Entry::Occupied(entry), Deed::Insert) => {
                prop_assert_eq!(entry.insert(value).ok().map(|old| *old), before);
                self.enter(key, value, self.live, self.idle);
            }
            (Entry::Vacant(entry), _) => {
                prop_assert_eq!(before, None);
                let got = entry.insert(value).map(|entry| *entry).map_err(|refused| refused.error);
                if now.is_some() {
                    prop_assert_eq!(got, Err(StoreError::Changed));
                    self.uses(key);
                } else {
                    prop_assert_eq!(got, Ok(value));
                    self.enter(key, value, self.live, self.idle);
                }
            }
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<(), TestCaseError> {
        let keys: Vec<String> = self.entries.keys().cloned().collect();
        for key in keys {
            self.leave(&key, Cause::Closed);
        }
        self.map.shutdown();
        let refused = self.map.insert("late".to_string(), 0).unwrap_err();
        prop_assert_eq!(refused.error, StoreError::Closed);
        prop_assert!(self.map.is_empty() && self.map.iter().next().is_none());
        let mut told = std::mem::take(&mut *self.told.lock().unwrap());
        told.sort_by_key(|told| told.1);
        self.ended.sort_by_key(|ended| ended.1);
        prop_assert_eq!(told, self.ended);
        Ok(())
    }
}
