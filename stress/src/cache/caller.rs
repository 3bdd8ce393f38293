//! A thread that calls the map, and the backend from which it loads.

use super::books::{Books, Call, Fault, Made, Value, ANSWERS};
use super::{Map, HEAVIEST};
use crate::counts::counts;
use crate::ledger::number;
use crate::mix::mix;
use expiry::expiring_map::{Compute, Computed, Loaded};
use expiry::{Lifetimes, LoadError, Removed};
use rand::rngs::SmallRng;
use rand::Rng;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::future::{poll_fn, Future};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// Times to live, in nanoseconds.
const TTL: std::ops::Range<u64> = 2_000_000..100_000_000;
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
        panics,
        cancelled,
        /// Calls that got the error of another call's load.
        failed_for_others,
        refused,
    }
}

type Failure = Arc<Fault>;

/// What the loads of one call came to.
type Own = (Vec<Arc<Made>>, Vec<Failure>);

pub struct Caller<'a> {
    pub map: &'a Map,
    pub books: &'a Books,
    pub thread: usize,
    pub seed: u64,
    pub rng: RefCell<SmallRng>,
    pub values: u64,
    pub done: Done,
    own: Own,
}

impl<'a> Caller<'a> {
    pub fn new((map, books): (&'a Map, &'a Books), (thread, seed): (usize, u64)) -> Self {
        let rng = rand::SeedableRng::seed_from_u64(mix(seed ^ (thread as u64) << 32));
        let (rng, done, own) = (RefCell::new(rng), Done::default(), Own::default());
        Caller { map, books, thread, seed, rng, values: 0, done, own }
    }

    fn draw(&self, below: u64) -> u64 {
        self.rng.borrow_mut().random_range(0..below)
    }

    fn key(&self) -> u64 {
        let all = self.books.shelves.len() as u64;
        self.draw(if self.draw(2) == 0 { HOT.min(all) } else { all })
    }

    pub fn value(&mut self, key: u64, weight: u32, is_loaded: bool) -> (Value, Lifetimes) {
        let ttl = self.rng.borrow_mut().random_range(TTL);
        self.values += 1;
        let number = number(self.thread, self.values);
        self.books.make((number, key), (weight, ttl), is_loaded)
    }

    /// Asks the backend, which may be slow, fail, or panic, as it is just then.
    fn ask(&mut self, key: u64, call: u64) -> Result<(Value, Lifetimes), Failure> {
        let _loading = self.books.load(key, call);
        self.done.loads += 1;
        // What it reads is what there is now.
        let read = self.value(key, self.weight(), true);
        let weather = mix(self.seed ^ self.books.stamp() >> WEATHER) % 8;
        match (weather, self.draw(4)) {
            (0, 0) => thread::sleep(Duration::from_micros(self.draw(1000))),
            (1 | 2, 0 | 1) => {
                let fault = Arc::new(Fault { returned: AtomicU64::new(u64::MAX) });
                self.own.1.push(fault.clone());
                self.done.failed_loads += 1;
                return Err(fault);
            }
            (3, 0) => {
                self.done.panics += 1;
                resume_unwind(Box::new(()));
            }
            _ => thread::yield_now(),
        }
        self.own.0.push(read.0.made.clone());
        Ok(read)
    }

    fn weight(&self) -> u32 {
        1 + self.draw(u64::from(HEAVIEST)) as u32
    }

    /// Makes one call. A panic of a loader comes out of it, and ends here.
    pub fn step(&mut self) {
        let (key, form) = (self.key(), self.draw(16));
        let call = self.books.call(key);
        self.done.calls += 1;
        let ran = catch_unwind(AssertUnwindSafe(|| match form {
            0..=4 => self.load(&call),
            5 => self.guard(&call),
            6 | 7 => self.task(&call),
            8 | 9 => self.many(&call),
            10 => self.insert(key, self.weight()),
            11 => self.compute(&call),
            12 => {
                let removed = self.books.removal(key, || self.map.remove(&key));
                removed.iter().for_each(|old| self.books.ended(&old.value().made));
            }
            _ => {
                let found = self.map.get(&key);
                if let Some(value) = &found {
                    self.books.got(&call, value, 0);
                    self.books.ledger.accepted(value.made.number);
                }
            }
        }));
        let (made, faults) = std::mem::take(&mut self.own);
        made.iter().for_each(|made| self.books.returned(made));
        faults.iter().for_each(|fault| fault.returned.store(self.books.stamp(), Release));
        // A loader panics without a text.
        if let Err(panic) = ran.map_err(|panic| panic.is::<()>()) {
            self.expect(&call, panic, &"a panic that is no loader's");
        }
    }

    fn load(&mut self, call: &Call) {
        let (map, key) = (self.map, call.key);
        let got = map.try_get_or_insert_with(&key, || self.ask(key, call.stamp));
        self.judge(call, got.as_deref());
    }

    /// As [`load`](Self::load), by a guard: after a failure one of the callers that wait loads.
    fn guard(&mut self, call: &Call) {
        match self.map.get_or_guard(&call.key) {
            Ok(Loaded::Found(value)) => self.books.got(call, &value, 0),
            Ok(Loaded::Absent(mut guard)) => {
                let _ = guard.reserve(self.weight());
                if let Ok((value, lifetime)) = self.ask(call.key, call.stamp) {
                    let got = guard.insert_for(value, lifetime).map_err(LoadError::from);
                    self.judge(call, got.as_deref());
                }
            }
            Err(error) => self.expect(call, false, &error),
        }
    }

    /// As [`load`](Self::load), by a task. Some of them are cancelled.
    fn task(&mut self, call: &Call) {
        let (map, books, key) = (self.map, self.books, call.key);
        let polls = if self.draw(4) == 0 { 1 } else { u64::MAX };
        let got = within(
            polls,
            map.try_get_or_insert_async(&key, async {
                let loading = books.load(key, call.stamp);
                let mut is_first = true;
                poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if std::mem::take(&mut is_first) {
                        Poll::Pending
                    } else {
                        Poll::Ready(())
                    }
                })
                .await;
                drop(loading);
                self.ask(key, call.stamp)
            }),
        );
        match got {
            Some(got) => self.judge(call, got.as_deref()),
            None => self.done.cancelled += 1,
        }
    }

    /// What a load of one key has come to.
    fn judge(&mut self, call: &Call, got: Result<&Value, &LoadError<u64, Value, Failure>>) {
        let (made, failed) = (self.own.0.last(), self.own.1.last());
        match got {
            Ok(value) => {
                self.books.got(call, value, 0);
                let is_own = made.map_or(true, |own| Arc::ptr_eq(own, &value.made));
                // A reload that fails leaves the value that is there.
                self.expect(call, is_own && (failed.is_none() || value.copies == 0), value);
            }
            Err(error) => self.judge_error(call, error),
        }
    }

    fn judge_error(&mut self, call: &Call, error: &LoadError<u64, Value, Failure>) {
        match error {
            LoadError::Failed(fault) => {
                let is_right = match self.own.1.last() {
                    Some(own) => Arc::ptr_eq(own, fault),
                    None => fault.returned.load(Acquire) > call.stamp,
                };
                self.done.failed_for_others += u64::from(self.own.1.is_empty());
                self.expect(call, is_right, error);
            }
            LoadError::Refused(_) => self.done.refused += 1,
            _ => self.expect(call, false, error),
        }
    }

    fn many(&mut self, call: &Call) {
        let map = self.map;
        let mut calls = HashMap::from([(call.key, *call)]);
        for key in (1..BULK).map(|_| self.key()).collect::<Vec<_>>() {
            calls.entry(key).or_insert_with(|| self.books.call(key));
        }
        let got = map.try_get_or_insert_many(calls.keys(), |missing| {
            let loads = missing.iter().map(|&&key| {
                let leaves_out = self.draw(8) == 0;
                let read = (!leaves_out).then(|| self.ask(key, calls[&key].stamp)).transpose()?;
                Ok(read.map(|(value, lifetime)| (key, value, lifetime)))
            });
            let loads: Result<Vec<_>, Failure> = loads.collect();
            Ok(loads?.into_iter().flatten())
        });
        match got {
            Ok(values) => {
                values.iter().for_each(|(key, value)| self.books.got(&calls[key], value, 1));
                let is_right = |own: &Arc<Made>| {
                    values.get(&own.key).is_some_and(|value| Arc::ptr_eq(own, &value.made))
                };
                self.expect(call, self.own.0.iter().all(is_right), &values);
            }
            Err(error) => self.judge_error(call, &error),
        }
    }

    pub fn insert(&mut self, key: u64, weight: u32) {
        let (value, lifetime) = self.value(key, weight, false);
        let made = value.made.clone();
        match self.map.insert_for(key, value, lifetime) {
            Ok(old) => self.entered(&made, old),
            Err(_) => self.done.refused += 1,
        }
        self.own.0.push(made);
    }

    fn entered(&self, made: &Made, old: Option<Removed<'_, u64, Value>>) {
        self.books.ledger.accepted(made.number);
        old.iter().for_each(|old| self.books.ended(&old.value().made));
    }

    fn compute(&mut self, call: &Call) {
        let (map, books, key) = (self.map, self.books, call.key);
        let (value, lifetime) = self.value(key, self.weight(), false);
        let made = value.made;
        let put = || Compute::PutFor(Value { made: made.clone(), copies: 0 }, lifetime);
        let computed = if self.draw(3) == 0 {
            books.removal(key, || map.compute(key, |_| Compute::Remove))
        } else {
            map.compute(key, |old| {
                old.into_iter().for_each(|old| books.got(call, old, 0));
                put()
            })
        };
        match computed {
            Ok(Computed::Put { was, .. }) => self.entered(&made, was),
            Ok(Computed::Removed(old)) => books.ended(&old.value().made),
            Ok(_) => {}
            Err(_) => self.done.refused += 1,
        }
        self.own.0.push(made);
    }

    fn expect(&self, call: &Call, holds: bool, got: &dyn Debug) {
        self.books.checks.expect(ANSWERS, holds, || format!("{call:?} came to {got:?}"));
    }
}

/// Wakes a task by its thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on this thread, so often at most.
fn within<T>(polls: u64, future: impl Future<Output = T>) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    for poll in 1..=polls {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(got) => return Some(got),
            Poll::Pending if poll == polls => break,
            Poll::Pending => thread::park(),
        }
    }
    None
}
