//! `TimeCacheMap` beside its promise. A look-up finds a value for an expiration from its last put.
//! When the window is over, no look-up finds it, and the listener has received it. In between
//! either may be so, but a value that has gone stays away (D2, M2, M4).

use super::shared::{Time, Told};
use super::steps;
use arbitrary::{Result, Unstructured};
use expiry::TimeCacheMap;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
enum Op {
    Put(u8),
    Get(u8),
    Remove(u8),
    Pass(Duration),
    Poll,
}

fn op(bytes: &mut Unstructured<'_>) -> Result<Op> {
    let key = bytes.int_in_range(0..=5u8)?;
    Ok(match bytes.int_in_range(0..=11u8)? {
        0..=3 => Op::Put(key),
        4..=6 => Op::Get(key),
        7 => Op::Remove(key),
        8..=10 => Op::Pass(Duration::from_nanos(bytes.int_in_range(0..=4_000_000_000)?)),
        _ => Op::Poll,
    })
}

/// A value and when it was put, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Put {
    value: u64,
    at: u128,
    /// It was looked for, and not found.
    gone: bool,
}

struct Run {
    map: TimeCacheMap<u8, u64>,
    time: Time,
    told: Told<(u8, u64)>,
    /// How long a value lives, at least and less than.
    window: (u128, u128),
    entries: BTreeMap<u8, Put>,
    /// Values that were replaced or removed when they were perhaps due already: the listener may
    /// have received them.
    displaced: Vec<(u8, Put)>,
    values: u64,
}

impl Run {
    fn may_have_gone(&self, put: &Put) -> bool {
        self.time.now >= put.at + self.window.0
    }

    fn must_have_gone(&self, put: &Put) -> bool {
        self.time.now >= put.at + self.window.1
    }

    fn look(&mut self, key: u8) {
        let found = self.map.get(&key).map(|value| *value);
        assert_eq!(self.map.contains_key(&key), found.is_some());
        let Some(put) = self.entries.get(&key).copied() else {
            return assert_eq!(found, None, "of {key}");
        };
        match found {
            Some(value) => {
                assert_eq!(value, put.value, "of {key}");
                assert!(!put.gone && !self.must_have_gone(&put), "{put:?} at {}", self.time.now);
            }
            None => {
                assert!(self.may_have_gone(&put), "{put:?} at {}", self.time.now);
                self.entries.entry(key).and_modify(|put| put.gone = true);
            }
        }
    }

    fn displace(&mut self, key: u8) {
        if let Some(put) = self.entries.remove(&key) {
            self.displaced.push((key, put));
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Put(key) => {
                self.values += 1;
                let (value, at) = (self.values, self.time.now);
                self.map.put(key, value).expect("there is memory");
                self.displace(key);
                let gone = false;
                self.entries.insert(key, Put { value, at, gone });
            }
            Op::Get(key) => self.look(key),
            Op::Remove(key) => {
                self.look(key);
                let here = self.entries.get(&key).filter(|put| !put.gone);
                let expected = here.map(|put| put.value);
                let removed = self.map.remove(&key).map(|ended| *ended.value());
                assert_eq!(removed, expected);
                self.displace(key);
            }
            Op::Pass(time) => self.time.pass(time),
            Op::Poll => {
                while self.map.poll(usize::MAX).more {}
                self.told();
                let late = |put: &Put| self.must_have_gone(put) || put.gone;
                let late = self.entries.values().find(|put| late(put));
                assert_eq!(late, None, "not told at {}", self.time.now);
            }
        }
        self.told();
    }

    /// The listener receives each value once, and not before its time.
    fn told(&mut self) {
        for (key, value) in self.told.take() {
            let is_it = |put: &Put| put.value == value;
            let here = self.entries.get(&key).copied().filter(is_it);
            let before = |(of, put): &(u8, Put)| *of == key && is_it(put);
            let put = match (here, self.displaced.iter().position(before)) {
                (Some(put), _) => {
                    self.entries.remove(&key);
                    put
                }
                (None, Some(at)) => self.displaced.remove(at).1,
                (None, None) => panic!("{value} of {key} is told, and was not there"),
            };
            assert!(self.may_have_gone(&put), "{put:?} is told at {}", self.time.now);
        }
        // A value that was due when it was displaced is delivered by now, or never.
        self.displaced.clear();
    }
}

/// Runs a history of one `TimeCacheMap`.
pub(crate) fn time_cache(bytes: &[u8]) {
    let bytes = &mut Unstructured::new(bytes);
    let expiration = bytes.int_in_range(1_000_000..=5_000_000_000u64);
    let buckets = bytes.int_in_range(0..=9usize);
    let (Ok(expiration), Ok(buckets), Ok(ops)) = (expiration, buckets, steps(bytes, op)) else {
        return;
    };
    let (time, told) = (Time::new(Duration::ZERO), Told::new());
    let tell = told.listener();
    let built = TimeCacheMap::builder(Duration::from_nanos(expiration))
        .buckets(buckets)
        .clock(time.clock.clone())
        .expiry_listener(move |key: &u8, value: &u64| tell((*key, *value)))
        .build_manual();
    let map = match built {
        Ok(map) => map,
        Err(error) => return assert!(buckets < 2, "{error}"),
    };
    let most = expiration + expiration.div_ceil(buckets as u64 - 1);
    let mut run = Run {
        map,
        time,
        told,
        window: (expiration.into(), most.into()),
        entries: BTreeMap::new(),
        displaced: Vec::new(),
        values: 0,
    };
    for &op in &ops {
        run.step(op);
    }
    run.step(Op::Pass(Duration::from_nanos(most)));
    run.step(Op::Poll);
    assert!(run.map.is_empty() && run.entries.is_empty());
}
