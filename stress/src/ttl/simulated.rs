//! Simulated time: a row's load on a map beside a sequential model of it.
//!
//! The model is a table of what each key has and until when: the deadline is the time to live after the insertion, rounded up to
//! the interval, as the map's documentation says. Apart from that, each end is held against the bare time to live.

use super::load::{Cache, Client, Load, Seen};
use super::value::{CacheKey, Value};
use super::{Setting, Summary};
use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::latency::Latency;
use crate::live::{Gauge, Live};
use crate::options::Ttl;
use expiry::expiring_map::Entry as Place;
use expiry::{Cause, Clock, ExpiringMap, ManualClock, StoreError, Timeout};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The checks of a simulated run.
pub const NAMES: [Check; 7] = [
    "results_agree",
    "ends_agree",
    "length_agrees",
    "none_early",
    "none_late",
    "values_intact",
    "no_surprises",
];

/// After how many requests something is shown. A power of two.
const SHOWN: u64 = 1 << 12;

/// An end that was told: of which value, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    number: u64,
    cause: &'static str,
}

/// A value in the model.
#[derive(Debug, Clone, Copy)]
struct Entry {
    number: u64,
    length: usize,
    /// When it was inserted, and for how long.
    made: u64,
    ttl: u64,
    /// The clock reading from which it is over.
    due: u64,
}

/// What the map ought to have.
#[derive(Debug, Default)]
struct Model {
    entries: HashMap<usize, Entry>,
    /// By when they are due.
    order: BTreeSet<(u64, usize)>,
}

impl Model {
    fn take(&mut self, key: usize) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.order.remove(&(entry.due, key));
        Some(entry)
    }

    fn put(&mut self, key: usize, entry: Entry) {
        self.order.insert((entry.due, key));
        self.entries.insert(key, entry);
    }

    /// Takes out something that is over at `now`.
    fn take_due(&mut self, now: u64) -> Option<Entry> {
        let &(due, key) = self.order.first()?;
        if due > now {
            return None;
        }
        self.take(key)
    }
}

/// The map and its model, and what is told of ends.
struct Both<'a, K: CacheKey> {
    map: Arc<ExpiringMap<K, Value>>,
    clock: ManualClock,
    model: Model,
    told: Arc<Mutex<Vec<End>>>,
    keys: &'a [K],
    checks: &'a Checks,
    /// Reading of the clock when the map was built, and the interval: what deadlines are rounded by.
    started: u64,
    interval: u64,
    inserted: u64,
    ended: u64,
    lateness: Latency,
}

fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::Expired => "expired",
        Cause::Removed => "removed",
        Cause::Replaced => "replaced",
        Cause::Closed => "closed",
        _ => "ended for no reason that this program knows",
    }
}

impl<'a, K: CacheKey> Both<'a, K> {
    fn new(
        keys: &'a [K],
        interval: Duration,
        seed: u64,
        checks: &'a Checks,
    ) -> Result<Self, Error> {
        let clock = ManualClock::new();
        // Not at a multiple of anything.
        clock.set(1_234_567_891);
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = told.clone();
        let map = ExpiringMap::builder()
            .interval(interval)
            .clock(clock.clone())
            .seed(seed)
            .on_end(move |_: &K, value: &Value, cause| {
                let number = if value.is_intact() { value.number } else { u64::MAX };
                let end = End { number, cause: name(cause) };
                listener.lock().unwrap_or_else(PoisonError::into_inner).push(end);
            })
            .build_manual()?;
        Ok(Both {
            map: Arc::new(map),
            started: clock.now(),
            clock,
            model: Model::default(),
            told,
            keys,
            checks,
            interval: interval.as_nanos() as u64,
            inserted: 0,
            ended: 0,
            lateness: Latency::new(),
        })
    }

    /// When a value that is inserted now is over.
    fn due(&self, ttl: u64) -> u64 {
        let after = self.clock.now() - self.started + ttl;
        self.started + after.div_ceil(self.interval) * self.interval
    }

    /// Holds what was told since the last time against what should have been.
    fn ends(&mut self, mut expected: Vec<(Entry, &'static str)>) {
        let now = self.clock.now();
        for (entry, cause) in &expected {
            self.ended += 1;
            if *cause == "expired" {
                let after = now - entry.made;
                self.checks.expect("none_early", after >= entry.ttl, || {
                    format!("{entry:?} was over {after} ns after it was inserted")
                });
                self.lateness.record_nanos(after.saturating_sub(entry.ttl));
            }
        }
        expected.sort_by_key(|(entry, _)| entry.number);
        let mut told =
            std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        told.sort_unstable();
        let same = told
            .iter()
            .copied()
            .eq(expected.iter().map(|(entry, cause)| End { number: entry.number, cause }));
        self.checks.expect("ends_agree", same, || {
            format!("told of {told:?}, should have been told of {expected:?}")
        });
    }

    fn result(&self, what: &str, key: usize, is: Option<u64>, should: Option<u64>) {
        self.checks.expect("results_agree", is == should, || {
            format!(
                "{what} of key {key}: value {is:?}, should be {should:?}, at {}",
                self.clock.now()
            )
        });
    }

    /// The model's entry of a key, taken out; and how it ends if it is over.
    fn take(&mut self, key: usize) -> (Option<Entry>, Vec<(Entry, &'static str)>) {
        match self.model.take(key) {
            Some(entry) if entry.due <= self.clock.now() => (None, vec![(entry, "expired")]),
            other => (other, Vec::new()),
        }
    }

    /// Polls for everything that is due.
    fn poll(&mut self) {
        while self.map.poll(usize::MAX) {}
        let now = self.clock.now();
        let expected =
            std::iter::from_fn(|| self.model.take_due(now)).map(|entry| (entry, "expired"));
        let expected = expected.collect();
        self.ends(expected);
        self.checks.equal(
            "length_agrees",
            "entries after a poll",
            self.map.len() as u64,
            self.model.entries.len() as u64,
        );
    }

    /// Ends everything.
    fn close(mut self) -> (u64, u64, Latency) {
        self.poll();
        let order = std::mem::take(&mut self.model.entries);
        let expected = order.into_values().map(|entry| (entry, "closed")).collect();
        let Ok(empty) = ExpiringMap::builder().build_manual() else {
            self.checks.violated("no_surprises", || "a map cannot be built any more".into());
            return (self.inserted, self.ended, self.lateness);
        };
        drop(std::mem::replace(&mut self.map, Arc::new(empty)));
        self.ends(expected);
        (self.inserted, self.ended, self.lateness)
    }

    /// Holds what a look at a key has found against the model.
    fn seen(&self, what: &str, key: usize, found: Option<&Value>) -> Option<Seen> {
        let now = self.clock.now();
        let entry = self.model.entries.get(&key).copied();
        let expected = entry.filter(|entry| entry.due > now);
        let found = found.map(|value| {
            self.checks.expect("values_intact", value.is_intact(), || {
                format!("value {} of key {key} is not intact", value.number)
            });
            (value.number, value.len())
        });
        self.result(what, key, found.map(|found| found.0), expected.map(|entry| entry.number));
        let over = |entry: &Entry| now >= entry.made + entry.ttl + self.interval;
        if let Some(entry) = entry.filter(|entry| found.is_some() && over(entry)) {
            self.checks.violated("none_late", || format!("{entry:?} was found at {now}"));
        }
        if let Some(entry) = entry.filter(|entry| found.is_none() && now < entry.made + entry.ttl) {
            self.checks.violated("none_early", || format!("{entry:?} was not found at {now}"));
        }
        let (number, length) = found?;
        let rest = entry.map_or(0, |entry| (entry.made + entry.ttl).saturating_sub(now));
        self.checks.expect(
            "values_intact",
            expected.is_none_or(|entry| entry.length == length),
            || format!("value {number} of key {key} has another length: {length}"),
        );
        Some(Seen { number, length, rest })
    }

    /// Puts a new value into the model and, by `into`, into the map. That says which value it has replaced.
    fn put(
        &mut self,
        key: usize,
        (length, ttl): (usize, u64),
        into: impl FnOnce(Value, Timeout) -> Result<Option<u64>, StoreError>,
    ) {
        let (number, made) = (self.inserted, self.clock.now());
        self.inserted += 1;
        let (old, mut ends) = self.take(key);
        let value = Value::new(number, made, ttl, length);
        match into(value, Timeout::After(Duration::from_nanos(ttl))) {
            Ok(replaced) => self.result("insert", key, replaced, old.map(|old| old.number)),
            Err(error) => {
                self.checks.violated("no_surprises", || format!("an insert was refused: {error}"))
            }
        }
        ends.extend(old.map(|old| (old, "replaced")));
        let due = self.due(ttl);
        let entry = Entry { number, length, made, ttl, due };
        self.model.put(key, entry);
        self.ends(ends);
    }
}

impl<K: CacheKey> Cache for Both<'_, K> {
    fn get(&mut self, key: usize) -> Option<Seen> {
        self.seen("get", key, self.map.get(&self.keys[key]).as_deref())
    }

    fn insert(&mut self, key: usize, length: usize, ttl: u64) {
        let (map, name) = (self.map.clone(), self.keys[key].clone());
        self.put(key, (length, ttl), |value, after| {
            let replaced = map.insert_with(name, value, after);
            let replaced = replaced.map_err(|refused| refused.error)?;
            Ok(replaced.map(|ended| ended.value().number))
        });
    }

    fn update(
        &mut self,
        key: usize,
        mut wanted: impl FnMut(Option<Seen>) -> Option<(usize, u64)>,
    ) -> bool {
        let map = self.map.clone();
        let place = map.entry(self.keys[key].clone());
        let found = match &place {
            Place::Occupied(entry) => Some(entry.get()),
            Place::Vacant(_) => None,
        };
        let seen = self.seen("entry", key, found);
        let Some(fresh) = wanted(seen) else {
            return false;
        };
        self.put(key, fresh, |value, after| {
            let inserted = match place {
                Place::Occupied(entry) => entry.insert_with(value, after).map(drop),
                Place::Vacant(entry) => entry.insert_with(value, after).map(drop),
            };
            inserted.map_err(|refused| refused.error)?;
            Ok(seen.map(|seen| seen.number))
        });
        true
    }

    fn remove(&mut self, key: usize) -> bool {
        let (old, mut ends) = self.take(key);
        let removed = self.map.remove(&self.keys[key]).map(|ended| ended.value().number);
        self.result("remove", key, removed, old.map(|old| old.number));
        ends.extend(old.map(|old| (old, "removed")));
        self.ends(ends);
        removed.is_some()
    }
}

/// Runs the row.
///
/// # Errors
///
/// If the map cannot be built.
pub fn run<K: CacheKey>(
    options: &Ttl,
    setting: &Setting,
    load: &Load,
    checks: &Checks,
) -> Result<Summary, Error> {
    let keys: Vec<K> = setting.keys();
    let mut both = Both::new(&keys, setting.interval, options.seed, checks)?;
    let mut rng = SmallRng::seed_from_u64(options.seed);
    let mut client = Client::new(&setting.row, !options.no_fill);
    let gap = setting.gap();
    let mut live = Live::new("ttl --simulated", Some(options.requests));
    let mut polls = 0u64;
    for number in 0..options.requests {
        // On average a gap.
        both.clock.advance(Duration::from_nanos(rng.random_range(0..=2 * gap)));
        let request = load.draw(&mut rng);
        client.request(&mut both, request);
        if rng.random_bool(options.polls) {
            both.poll();
            polls += 1;
        }
        if number % SHOWN == 0 {
            if interrupt::asked() {
                break;
            }
            live.show(number, || Gauge {
                done: number,
                live: both.model.entries.len() as u64,
                violations: checks.violations(),
                text: format!("{number} requests, {} values ended", both.ended),
                ..Gauge::default()
            });
        }
    }
    let series = live.finish();
    let (inserted, ended, lateness) = both.close();
    checks.equal("ends_agree", "ends of values", ended, inserted);
    let mut summary = Summary::new(client.done);
    summary.series = series;
    summary.counts.extend([("inserted", inserted), ("ended", ended), ("polls", polls)]);
    summary.latency.push(("expiry_lateness", lateness.percentiles()));
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map that is sound, a second of interval, after a few requests; spoilt, and asked again.
    fn failing(spoil: impl FnOnce(&mut Both<'_, u64>)) -> Vec<Check> {
        let checks = Checks::new(&NAMES);
        let keys = [0u64, 1, 2];
        let mut both = Both::new(&keys, Duration::from_secs(1), 1, &checks).unwrap();
        let second = 1_000_000_000;
        both.insert(0, 8, 10 * second);
        both.insert(1, 8, 20 * second);
        both.clock.advance(Duration::from_secs(5));
        assert!(both.get(0).is_some_and(|seen| seen.rest == 5 * second) && both.get(2).is_none());
        both.insert(0, 9, 10 * second);
        assert_eq!(checks.violations(), 0);
        spoil(&mut both);
        both.get(0);
        both.clock.advance(Duration::from_secs(11));
        both.get(0);
        both.poll();
        both.remove(1);
        both.close();
        checks.failing()
    }

    fn entry(both: &mut Both<'_, u64>, change: impl FnOnce(&mut Entry)) {
        let mut entry = both.model.take(0).unwrap();
        change(&mut entry);
        both.model.put(0, entry);
    }

    #[test]
    fn a_sound_run_passes() {
        assert!(failing(|_| {}).is_empty());
    }

    #[test]
    fn what_does_not_agree_is_seen() {
        assert_eq!(
            failing(|both| entry(both, |entry| entry.number = 9)),
            ["ends_agree", "results_agree"]
        );
        assert_eq!(failing(|both| entry(both, |entry| entry.length = 7)), ["values_intact"]);
        assert_eq!(
            failing(|both| assert!(both.model.take(0).is_some())),
            ["ends_agree", "results_agree"]
        );
        assert_eq!(
            failing(|both| both.told.lock().unwrap().push(End { number: 1, cause: "expired" })),
            ["ends_agree"]
        );
    }

    #[test]
    fn deadlines_out_of_the_window_are_seen() {
        let late = failing(|both| entry(both, |entry| (entry.made, entry.ttl) = (0, 1)));
        assert!(late.contains(&"none_late"), "{late:?}");
        let early = failing(|both| entry(both, |entry| entry.ttl *= 10));
        assert!(early.contains(&"none_early"), "{early:?}");
    }
}
