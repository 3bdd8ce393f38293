//! A thread that calls the map, and the backend from which it loads.

use super::books::{Books, Call, Value, ANSWERS};
use super::{Map, HEAVIEST};
use crate::counts::counts;
use expiry::expiring_map::Loaded;
use expiry::RemovalCause::{Removed, Replaced};
use expiry::{Lifetimes, LoadError};
use model::mix::mix;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Acquire;
use std::thread;
use std::time::Duration;

/// Keys that half of the calls want.
const HOT: u64 = 16;
/// The most keys of a bulk load.
const BULK: usize = 8;
/// For how many stamps, a power of two, the backend stays as it is.
const WEATHER: u32 = 14;

counts! {
    /// What a thread's calls came to.
    Done {
        calls,
        loads,
        failed_loads,
        /// Calls that got the error of another call's load.
        failed_for_others,
    }
}

pub struct Caller<'a> {
    map: &'a Map,
    books: &'a Books,
    rng: SmallRng,
    pub done: Done,
    /// What the loads of the call under way came to.
    own: Vec<Value>,
}

impl<'a> Caller<'a> {
    pub fn new(map: &'a Map, books: &'a Books, seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(mix(seed));
        Caller { map, books, rng, done: Done::default(), own: Vec::new() }
    }

    fn key(&mut self) -> u64 {
        let is_hot = self.rng.random_bool(0.5);
        self.rng.random_range(0..if is_hot { HOT } else { self.books.shelves.len() as u64 })
    }

    /// Asks the backend, which is slow, fails, or is well, each for some time.
    fn ask(&mut self, call: &Call) -> Result<(Value, Lifetimes), Value> {
        self.books.load_begins(call);
        self.done.loads += 1;
        let weight = self.rng.random_range(1..=HEAVIEST);
        // The answer is what there is now.
        let answer = self.books.make(call.key, weight, true);
        self.own.push(answer.0.clone());
        let weather = mix(self.books.stamp() >> WEATHER) % 4;
        thread::yield_now();
        let most = if weather == 0 { 500 } else { 0 };
        thread::sleep(Duration::from_micros(self.rng.random_range(0..=most)));
        self.books.load_ends(call);
        if weather == 1 && self.rng.random_bool(0.5) {
            self.done.failed_loads += 1;
            return Err(answer.0);
        }
        Ok(answer)
    }

    /// Makes one call.
    pub fn step(&mut self) {
        let (key, weight) = (self.key(), self.rng.random_range(1..=HEAVIEST));
        let (map, books, call) = (self.map, self.books, self.books.call(key));
        self.done.calls += 1;
        match self.rng.random_range(0..16) {
            0..=5 => self.load(&call),
            6 | 7 => self.guard(&call),
            8 | 9 => self.many(&call),
            10 | 11 => _ = self.insert(key, weight),
            12 => {
                let removed = books.change(key, || map.remove(&key));
                removed.iter().for_each(|old| books.ledger.returned(old.value().number, Removed));
            }
            _ => map.get(&key).iter().for_each(|value| books.got(&call, value, false)),
        }
        self.own.drain(..).for_each(|made| books.returned(&made));
    }

    fn load(&mut self, call: &Call) {
        let map = self.map;
        let got = map.try_get_or_insert_with(&call.key, || self.ask(call));
        self.judge(call, got.as_deref());
    }

    /// Loads by a guard. If the load fails, one of the callers that wait loads.
    fn guard(&mut self, call: &Call) {
        match self.map.get_or_guard(&call.key).expect("neither closed nor recursive") {
            Loaded::Found(value) => self.books.got(call, &value, true),
            Loaded::Absent(mut guard) => {
                let _ = guard.reserve(HEAVIEST);
                if let Ok((value, lifetime)) = self.ask(call) {
                    let got = guard.insert_for(value, lifetime).map_err(LoadError::from);
                    self.judge(call, got.as_deref());
                }
            }
        }
    }

    fn many(&mut self, call: &Call) {
        let (map, books) = (self.map, self.books);
        let keys = (0..BULK).map(|_| self.key());
        let calls: HashMap<u64, Call> = keys.map(|key| (key, books.call(key))).collect();
        let got = map.try_get_or_insert_many(calls.keys(), |missing| {
            let asked = missing.iter().map(|&key| {
                let (value, lifetime) = self.ask(&calls[key])?;
                Ok((*key, value, lifetime))
            });
            asked.collect::<Result<Vec<_>, Value>>()
        });
        match got {
            Ok(values) => {
                values.iter().for_each(|(key, value)| books.got(&calls[key], value, true))
            }
            Err(error) => self.judge(call, Err(&error)),
        }
    }

    /// A call that loads got this value, or this error, from its own load or another call's.
    fn judge(&mut self, call: &Call, got: Result<&Value, &LoadError<u64, Value, Value>>) {
        match got {
            Ok(value) => self.books.got(call, value, true),
            Err(LoadError::Refused(_)) => {}
            Err(error) => {
                self.done.failed_for_others += u64::from(self.own.is_empty());
                let is_right = matches!(error, LoadError::Failed(error)
                    if error.returned.load(Acquire) > call.stamp);
                self.books.checks.expect(ANSWERS, is_right, || format!("{call:?} got {error:?}"));
            }
        }
    }

    /// Returns whether the value has replaced another one.
    pub fn insert(&mut self, key: u64, weight: u32) -> bool {
        let (value, lifetime) = self.books.make(key, weight, false);
        let insert = || self.map.insert_for(key, value.clone(), lifetime);
        let entered = self.books.change(key, insert);
        self.books.returned(&value);
        entered.is_ok_and(|old| {
            let ledger = &self.books.ledger;
            ledger.accepted(value.number);
            old.inspect(|old| ledger.returned(old.value().number, Replaced)).is_some()
        })
    }
}
