//! `ExpiringMap`: every result, every end that the listener receives, and the entries after each
//! step.

mod times;

use super::shared::{same, set, Told};
use super::{each, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::expiring_map::{Compute, Entry};
use expiry::{ExpiringMap, LifetimeError, LoadError, ManualClock, RemovalCause, StoreError};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;
use times::{lifetimes, term, ByValue, Term, BY_DEFAULT};

const INTERVAL: u64 = 1000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Histories of an `ExpiringMap`.
pub struct Map {
    /// With loads, of a map that reloads or has a policy. The fuzzer knows neither.
    pub loads: bool,
}

/// How a map is built; times are in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    live: Option<u64>,
    idle: Option<u64>,
    refresh: Option<u64>,
    /// Has the policy [`ByValue`].
    asks: bool,
}

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
    /// The load fails, or has a value with these times.
    Load(Option<(Term, Term)>),
    /// Of so many keys from this one on.
    LoadMany(u8),
    /// What is even.
    Retain,
    Iterate,
    Pass(u64),
    Poll(usize),
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
    type Setup = Setup;
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Self::Setup> {
        let time = |bytes: &mut Unstructured<'_>| bytes.int_in_range(INTERVAL..=9000);
        let (live, idle) = (perhaps(bytes, time)?, perhaps(bytes, time)?);
        let asks = self.loads && bytes.arbitrary()?;
        let reloads = live.filter(|_| self.loads && !asks);
        let refresh = reloads.map(|live| bytes.int_in_range(1..=live - 1)).transpose()?;
        Ok(Setup { live, idle, refresh, asks })
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        let key = bytes.int_in_range(0..=5u8)?;
        if self.loads && bytes.int_in_range(0..=3u8)? == 0 {
            let valid = |bytes: &mut Unstructured<'_>| {
                let or_default = |term| if term == Term::Zero { Term::Default } else { term };
                Ok((or_default(term(bytes)?), or_default(term(bytes)?)))
            };
            let load = match bytes.arbitrary()? {
                true => Act::Load(perhaps(bytes, valid)?),
                false => Act::LoadMany(bytes.int_in_range(1..=3)?),
            };
            return Ok(Op(key, load));
        }
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

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(*setup);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
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
    setup: Setup,
    entries: BTreeMap<String, Entered>,
    /// The ends that this step must deliver to the listener.
    ended: Vec<Ended>,
    values: u64,
}

impl Run {
    fn new(setup: Setup) -> Self {
        let (clock, told) = (ManualClock::new(), Told::new());
        let tell = told.listener();
        let mut builder = ExpiringMap::builder()
            .interval(ms(INTERVAL))
            .clock(clock.clone())
            .shards(2)
            .removal_listener(move |key: &String, value: &u64, cause| {
                tell((key.clone(), *value, cause))
            });
        set!(builder.time_to_live(setup.live.map(ms)));
        set!(builder.time_to_idle(setup.idle.map(ms)));
        set!(builder.refresh_after(setup.refresh.map(ms)));
        set!(builder.expiry(setup.asks.then_some(ByValue)));
        let map = builder.hasher(BuildHasherDefault::default()).build_manual().unwrap();
        let (entries, ended) = (BTreeMap::new(), Vec::new());
        Run { map: Arc::new(map), clock, told, now: 0, setup, entries, ended, values: 0 }
    }

    fn fresh(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    fn end_after(&self, time: Option<u64>) -> u64 {
        time.map_or(u64::MAX, |time| (self.now + time).div_ceil(INTERVAL) * INTERVAL)
    }

    /// An entry with these times, or those that the policy answers, unless they are refused. Where
    /// the policy keeps the lifetime the time to idle begins anew if the call `uses` the entry.
    fn enter(
        &mut self,
        key: &str,
        value: u64,
        given: (Term, Term),
        uses: bool,
    ) -> std::result::Result<(), LifetimeError> {
        let old = self.living(key);
        let says_nothing = given == BY_DEFAULT;
        let times = match old.filter(|_| self.setup.asks && says_nothing) {
            Some(old) => ByValue::updated(value, self.left(&old)),
            None if self.setup.asks && says_nothing => Some(ByValue::created(value)),
            None => Some(given),
        };
        let entered = match (times, old) {
            (Some((live, idle)), _) => {
                let bound = self.end_after(live.resolve(self.setup.live)?);
                let idle = idle.resolve(self.setup.idle)?;
                Entered { value, bound, idle, unused_until: self.end_after(idle) }
            }
            (None, old) => {
                let old = old.expect("it was asked about");
                let unused_until = if uses { self.end_after(old.idle) } else { old.unused_until };
                Entered { value, unused_until, ..old }
            }
        };
        if let Some(old) = self.entries.insert(key.to_string(), entered) {
            let over = old.end() <= self.now;
            let cause = if over { RemovalCause::Expired } else { RemovalCause::Replaced };
            self.ended.push((key.to_string(), old.value, cause));
        }
        Ok(())
    }

    fn enter_by_default(&mut self, key: &str, value: u64) {
        self.enter(key, value, BY_DEFAULT, false).expect("the settings are valid");
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

    fn remains(&self, key: &str) -> Option<Duration> {
        self.living(key).map(|entered| match entered.end() {
            u64::MAX => Duration::MAX,
            end => ms(end - self.now),
        })
    }

    fn left(&self, entered: &Entered) -> u64 {
        (entered.end() - self.now).min(10_000)
    }

    /// Whether a load of the key, which has a value, is a reload.
    fn is_stale(&self, key: &str) -> bool {
        let (Setup { live, refresh, .. }, entered) = (self.setup, self.entries[key]);
        let left = live.zip(refresh).map(|(live, refresh)| live - refresh);
        left.is_some_and(|left| entered.bound <= self.now + left)
    }

    /// Its time to idle begins anew.
    fn prolongs(&mut self, key: &str) -> Entered {
        let idle = self.entries[key].idle;
        let unused_until = self.end_after(idle);
        let entered = self.entries.get_mut(key).unwrap();
        entered.unused_until = unused_until;
        *entered
    }

    fn uses(&mut self, key: &str) {
        let entered = self.prolongs(key);
        let says = ByValue::read(entered.value, self.left(&entered));
        if let Some(time) = says.filter(|_| self.setup.asks) {
            self.ends_after(key, time).expect("the answer is valid");
        }
    }

    fn ends_after(&mut self, key: &str, time: Term) -> std::result::Result<(), LifetimeError> {
        let bound = self.end_after(time.resolve(self.setup.live)?);
        self.entries.get_mut(key).unwrap().bound = bound;
        Ok(())
    }

    fn touches(&mut self, key: &str, time: Term) -> std::result::Result<(), LifetimeError> {
        let old = self.entries[key];
        let time = match time {
            Term::Default if self.setup.asks => {
                ByValue::updated(old.value, self.left(&old)).map(|(live, _)| live)
            }
            time => Some(time),
        };
        time.map_or(Ok(()), |time| self.ends_after(key, time))?;
        self.prolongs(key);
        Ok(())
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

    fn step(&mut self, Op(number, act): Op) -> Found {
        let key = &*format!("key {number}");
        let owned = key.to_string();
        let here = self.value(key);
        let mut told = Vec::new();
        match act {
            Act::Insert(live, idle) => {
                let value = self.fresh();
                let got = self.map.insert_for(owned, value, lifetimes((live, idle)));
                let got = got.map(|old| old.map(|old| *old.value()));
                match self.enter(key, value, (live, idle), false) {
                    Ok(()) => same!(got.unwrap(), here),
                    Err(error) => {
                        // In a map with a policy an entry whose time is up makes way first.
                        if self.setup.asks && here.is_none() {
                            self.removes(key, false);
                        }
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
            Act::Remaining => same!(self.map.remaining(key), self.remains(key)),
            Act::Touch(time) => {
                let touched = self.map.touch_for(key, time.timeout());
                let is = match here {
                    Some(_) => self.touches(key, time).map(|()| true),
                    None => time.resolve(None).map(|_| false),
                };
                same!(touched, is);
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
                    None => self.enter_by_default(key, value),
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
                self.enter(key, value, BY_DEFAULT, true).expect("the settings are valid");
            }
            Act::Compute(decision) => self.computes(key, decision)?,
            Act::Load(result) => {
                let (value, mut called) = (self.fresh(), false);
                let load = || {
                    called = true;
                    result.map(|times| (value, lifetimes(times))).ok_or(())
                };
                let got = match self.map.try_get_or_insert_with(key, load) {
                    Ok(value) => Some(*value),
                    Err(LoadError::Failed(_)) => None,
                    Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
                };
                if here.is_some() {
                    self.uses(key);
                }
                let loads = here.is_none() || self.is_stale(key);
                let loaded = result.filter(|_| loads);
                if let Some(times) = loaded {
                    self.enter(key, value, times, false).expect("the times are valid");
                }
                same!((got, called), (loaded.map_or(here, |_| Some(value)), loads));
            }
            Act::LoadMany(count) => self.loads_many(number, count)?,
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

    /// As that many loads of single keys, none of which is a reload, and some of which come to
    /// nothing.
    fn loads_many(&mut self, first: u8, count: u8) -> Found {
        let keys: Vec<String> = (first..first + count).map(|key| format!("key {key}")).collect();
        let values: BTreeMap<&String, u64> = keys.iter().map(|key| (key, self.fresh())).collect();
        let (mut asked, mut missing, mut is) = (Vec::new(), Vec::new(), BTreeMap::new());
        let got = self.map.get_or_insert_many(&keys, |keys| {
            asked.extend_from_slice(keys);
            let loaded = keys.iter().map(|&key| (key.clone(), values[key]));
            loaded.filter(|(_, value)| value % 3 > 0).collect::<Vec<_>>()
        });
        for key in &keys {
            if let Some(here) = self.value(key) {
                self.uses(key);
                is.insert(key, here);
                continue;
            }
            missing.push(key);
            if values[key] % 3 > 0 {
                self.enter_by_default(key, values[key]);
                is.insert(key, values[key]);
            }
        }
        asked.sort();
        same!(asked, missing);
        same!(got.unwrap().into_iter().collect::<BTreeMap<_, _>>(), is);
        Ok(())
    }

    fn computes(&mut self, key: &str, decision: Decision) -> Found {
        let (here, value, mut seen) = (self.value(key), self.fresh(), Vec::new());
        let stands = here.zip(self.remains(key));
        let deed = match decision {
            Decision::Keep => Compute::Keep,
            Decision::Put(live, idle) => Compute::PutFor(value, lifetimes((live, idle))),
            Decision::Touch(time) => Compute::Touch(time.timeout()),
            Decision::Remove => Compute::Remove,
        };
        let map = self.map.clone();
        let got = map.compute(key.to_string(), |old| {
            seen.push(old.map(|old| (*old, old.remaining())));
            deed
        });
        same!(seen, [stands]);
        // An entry whose time is up makes way, whatever is decided.
        match (here, decision) {
            (Some(_), Decision::Keep) => self.uses(key),
            // Before the policy is asked, which a replacement asks first.
            (Some(_), Decision::Touch(_)) => _ = self.prolongs(key),
            (Some(_), _) => {}
            (None, _) => self.removes(key, false),
        }
        let is = match decision {
            Decision::Keep => Ok(here),
            Decision::Put(live, idle) => {
                let entered = self.enter(key, value, (live, idle), true);
                entered.map(|()| Some(value)).map_err(|error| (Some(value), error.into()))
            }
            Decision::Touch(time) => {
                let touched = match here {
                    Some(_) => self.touches(key, time),
                    None => time.resolve(None).map(|_| ()),
                };
                touched.map(|()| here).map_err(|error| (None, error.into()))
            }
            Decision::Remove => {
                self.removes(key, true);
                Ok(None)
            }
        };
        if is.is_err() && here.is_some() {
            self.prolongs(key);
        }
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
                self.enter_by_default(key, value);
            }
            Meanwhile::Remove => self.removes(key, map.remove(key).is_some()),
            Meanwhile::Touch => {
                if map.touch(key) {
                    self.touches(key, Term::Default).expect("the settings are valid");
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
                        if now.is_none() {
                            // An entry whose time is up makes way first.
                            self.removes(key, false);
                        }
                    }
                }
            }
            (Entry::Occupied(entry), Deed::Remove) => {
                same!(entry.remove().map(|ended| *ended.value()), before);
                self.leave(key, RemovalCause::Removed);
            }
            (Entry::Occupied(entry), Deed::Insert) => {
                same!(entry.insert(value).ok().map(|old| *old), before);
                self.enter_by_default(key, value);
            }
            (Entry::Vacant(entry), _) => {
                same!(before, None);
                let got = entry.insert(value).map(|entry| *entry).map_err(|refused| refused.error);
                if now.is_some() {
                    same!(got, Err(StoreError::Changed));
                    self.uses(key);
                } else {
                    same!(got, Ok(value));
                    self.enter_by_default(key, value);
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
