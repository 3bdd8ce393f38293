//! What histories of pending values share: how a store is built, the values that wait in it, and
//! the calls that are about all of them.

use super::shared::{interval, is_behind, same, shards, tick_of, Span, Time, LAST, LONGEST};
use super::{capacity, perhaps, Found};
use arbitrary::{Result, Unstructured};
use expiry::{Lifetime, LifetimeError, Polled};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Setup {
    pub interval: Duration,
    pub shards: usize,
    pub capacity: Option<usize>,
    /// The default timeout; `None`: for ever.
    pub timeout: Option<Span>,
}

impl Setup {
    /// Of at most `most` values, if their number is bounded.
    pub fn of(bytes: &mut Unstructured<'_>, most: usize) -> Result<Self> {
        Ok(Setup {
            interval: interval(bytes)?,
            shards: shards(bytes)?,
            capacity: capacity(bytes, true, most)?,
            timeout: perhaps(bytes, |bytes| Ok(Span::Intervals(bytes.int_in_range(1..=99)?)))?,
        })
    }
}

/// How long a value stays.
#[derive(Debug, Clone, Copy)]
pub enum Stay {
    For(Span),
    Default,
    Ever,
}

pub fn stay(bytes: &mut Unstructured<'_>) -> Result<Stay> {
    Ok(Stay::For(match bytes.int_in_range(0..=17u8)? {
        0 | 1 => Span::Nanos(bytes.int_in_range(1..=1 << 32)?),
        2..=9 => Span::Intervals(bytes.int_in_range(1..=39)?),
        10 | 11 => Span::Intervals(bytes.int_in_range(1..=1_000_000)?),
        12 => Span::Intervals(bytes.int_in_range(1..=LONGEST)?),
        13 => *bytes.choose(&[Span::Nanos(0), Span::Intervals(LONGEST), Span::TooLong])?,
        14 | 15 => return Ok(Stay::Ever),
        _ => return Ok(Stay::Default),
    }))
}

/// How much time passes.
fn pass(bytes: &mut Unstructured<'_>) -> Result<Span> {
    Ok(match bytes.int_in_range(0..=15u8)? {
        0..=3 => Span::Nanos(bytes.arbitrary::<u32>()?.into()),
        4..=11 => Span::Intervals(bytes.int_in_range(0..=29)?),
        12..=14 => Span::Intervals(bytes.int_in_range(0..=99_999)?),
        _ => {
            let times = bytes.int_in_range(1..=8u64)?;
            Span::Intervals((times << 37) + bytes.int_in_range(0..=2u64)?)
        }
    })
}

/// A call that is about all values, or time that passes.
#[derive(Debug, Clone, Copy)]
pub enum All {
    Cancel,
    Pass(Span),
    PassToTheNext,
    Poll,
    PollInto(usize),
    ShutDown,
}

impl All {
    /// Reads one, after a number from 45 to 63.
    pub fn of(number: u8, bytes: &mut Unstructured<'_>) -> Result<Self> {
        Ok(match number {
            45 => All::Cancel,
            46..=50 => All::Pass(pass(bytes)?),
            51..=54 => All::PassToTheNext,
            55..=58 => All::Poll,
            59..=62 => All::PollInto(*bytes.choose(&[0, 1, 3, 20, 99])?),
            // One time in 256.
            _ if bytes.int_in_range(0..=3u8)? == 1 => All::ShutDown,
            _ => All::Cancel,
        })
    }
}

/// When values are due: in intervals; `None` is never.
pub struct Stays {
    pub time: Time,
    interval: Duration,
    /// The default timeout; `None`: for ever.
    timeout: Option<Span>,
    /// The interval of the last poll that left nothing due.
    caught_up: u64,
}

impl Stays {
    fn new(interval: Duration, timeout: Option<Span>) -> Self {
        Stays { time: Time::new(Duration::ZERO), interval, timeout, caught_up: 0 }
    }

    /// Time passes; some of the 64 bits are left for timeouts.
    fn pass(&mut self, by: Duration) {
        self.time.pass_below(by, 1 << 63);
    }

    /// How many intervals are over.
    fn tick(&self) -> u64 {
        (self.time.now / self.interval.as_nanos()) as u64
    }

    /// How long until the end of so many intervals.
    fn until(&self, intervals: u64) -> Duration {
        self.time.until(Span::Intervals(intervals).duration(self.interval).as_nanos())
    }

    /// Whether the time of a value with this deadline is up.
    fn are_over(&self, due: Option<u64>) -> bool {
        due.is_some_and(|due| due <= self.tick())
    }

    /// How long until then.
    pub fn left(&self, due: Option<u64>) -> Duration {
        due.map_or(Duration::MAX, |due| self.until(due))
    }

    /// The lifetime that the call gets, and when the value is due: at the end of an interval, never
    /// early, and late by less than one.
    pub fn due(&self, stay: Stay) -> (Lifetime, std::result::Result<Option<u64>, LifetimeError>) {
        let (lifetime, span) = match stay {
            Stay::For(span) => (span.duration(self.interval).into(), Some(span)),
            Stay::Default => (Lifetime::Default, self.timeout),
            Stay::Ever => (Lifetime::Never, None),
        };
        let Some(span) = span else {
            return (lifetime, Ok(None));
        };
        let nanos = span.duration(self.interval).as_nanos().min(LAST);
        let due = if nanos == 0 {
            Err(LifetimeError::Zero)
        } else if nanos > Span::Intervals(LONGEST).duration(self.interval).as_nanos() {
            Err(LifetimeError::TooLong)
        } else {
            let due = tick_of(self.time.now + nanos, self.interval.as_nanos());
            Ok(Some(due as u64))
        };
        (lifetime, due)
    }

    /// Whether a deadline is too late for a lease, until what is due has been ended.
    pub fn is_behind(&self, due: Option<u64>) -> bool {
        due.is_some_and(|due| is_behind(due.into(), self.caught_up.into()))
    }
}

/// A value is the number of its insertion.
pub type Value = usize;

/// A value, and what it is reached by.
type Pair<K> = (K, Value);

/// What a call that is about all values has returned.
type Returned<K> = (Vec<Pair<K>>, Option<Polled>);

/// Makes such a call. Returns what the store returns, which `$pair` makes a pair of, and what a
/// poll says.
macro_rules! all_of {
    ($store:expr, $all:expr, $pair:expr) => {{
        let (mut returned, mut polled) = (Vec::new(), None);
        match $all {
            All::Cancel => returned = $store.cancel_all(),
            All::Pass(_) | All::PassToTheNext => {}
            All::Poll => returned = $store.poll(),
            All::PollInto(budget) => polled = Some($store.poll_into(&mut returned, budget)),
            All::ShutDown => returned = $store.shutdown(),
        }
        (returned.into_iter().map($pair).collect::<Vec<_>>(), polled)
    }};
}
pub(crate) use all_of;

/// How many values have come, and how many have left by which way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub inserted: u64,
    pub replaced: u64,
    pub taken: u64,
    pub expired: u64,
    pub closed: u64,
}

/// The values of a store.
pub struct Waiting<K> {
    pub stays: Stays,
    pub capacity: usize,
    /// Those that are there, and when they are due.
    pub live: BTreeMap<K, (Value, Option<u64>)>,
    /// What calls have ended, and no poll has returned yet.
    lapsed: BTreeSet<Pair<K>>,
    pub counts: Counts,
    pub shut: bool,
}

impl<K: Copy + Ord + Debug + Display> Waiting<K> {
    pub fn new(setup: &Setup) -> Self {
        Waiting {
            stays: Stays::new(setup.interval, setup.timeout),
            capacity: setup.capacity.unwrap_or(usize::MAX),
            live: BTreeMap::new(),
            lapsed: BTreeSet::new(),
            counts: Counts::default(),
            shut: false,
        }
    }

    pub fn value(&self, key: K) -> Option<Value> {
        self.live.get(&key).map(|(value, _)| *value)
    }

    pub fn is_full(&self) -> bool {
        self.live.len() >= self.capacity
    }

    /// Checks that no value is due that a call, or a poll, was to end.
    pub fn none_is_due(&self) -> Found {
        let left = self.live.iter().find(|(_, (_, due))| self.stays.are_over(*due));
        prop_assert!(left.is_none(), "{left:?} is due");
        Ok(())
    }

    /// A value has expired.
    fn expires(&mut self, key: K) -> Found<Value> {
        let ended = self.live.remove(&key);
        let is_due = ended.is_some_and(|(_, due)| self.stays.are_over(due));
        prop_assert!(is_due, "{key} has expired early, or again: {ended:?}");
        self.counts.expired += 1;
        Ok(ended.map_or(0, |(value, _)| value))
    }

    /// A call has ended what is `gone` besides, if it may.
    pub fn lapses(&mut self, may: bool, gone: impl Fn(K, Value) -> bool) -> Found {
        let gone = self.live.iter().filter(|(&key, &(value, _))| gone(key, value));
        let gone: Vec<K> = gone.map(|(&key, _)| key).collect();
        prop_assert!(may || gone.is_empty(), "it has ended {gone:?}");
        gone.into_iter().try_for_each(|key| {
            let value = self.expires(key)?;
            self.lapsed.insert((key, value));
            Ok(())
        })
    }

    /// A take has returned `taken`.
    pub fn taken(&mut self, key: K, taken: Option<Value>) -> Found {
        let live = self.live.remove(&key).map(|(value, _)| value);
        self.counts.taken += u64::from(live.is_some());
        same!(taken, live);
        Ok(())
    }

    /// When the next value is due.
    fn next(&self) -> Option<u64> {
        self.live.values().filter_map(|(_, due)| *due).min()
    }

    /// Every value that is left is due, if time does not end before.
    pub fn pass_to_the_last(&mut self) {
        let last = self.live.values().filter_map(|(_, due)| *due).max();
        self.stays.time.pass(last.map_or(Duration::ZERO, |last| self.stays.until(last)));
    }

    /// Checks what such a call has returned, or lets time pass.
    pub fn step(&mut self, all: All, (mut returned, polled): Returned<K>) -> Found {
        match all {
            All::Cancel => self.counts.taken += self.emptied(returned)?,
            All::Pass(by) => self.stays.pass(by.duration(self.stays.interval)),
            All::PassToTheNext => {
                let by = self.next().map_or(Duration::ZERO, |next| self.stays.until(next));
                self.stays.pass(by);
            }
            All::Poll | All::PollInto(_) => self.polled(returned, polled)?,
            All::ShutDown => {
                returned.retain(|pair| !self.lapsed.remove(pair));
                prop_assert!(self.lapsed.is_empty(), "left: {:?}", self.lapsed);
                self.counts.closed += self.emptied(returned)?;
                self.shut = true;
            }
        }
        Ok(())
    }

    /// Checks what a poll has returned: all that was due, unless there is more.
    fn polled(&mut self, expired: Vec<Pair<K>>, polled: Option<Polled>) -> Found {
        for pair in expired {
            if !self.lapsed.remove(&pair) {
                same!(pair, (pair.0, self.expires(pair.0)?));
            }
        }
        prop_assert!(self.lapsed.is_empty(), "left: {:?}", self.lapsed);
        if polled.is_some_and(|polled| polled.more) {
            return Ok(());
        }
        self.none_is_due()?;
        self.stays.caught_up = self.stays.tick();
        if let (Some(polled), Some(next)) = (polled, self.next()) {
            let until = self.stays.until(next);
            prop_assert!(polled.next.is_some_and(|next| next <= until), "{polled:?}, {until:?}");
        }
        Ok(())
    }

    /// All that was there has been returned. Returns how much.
    fn emptied(&mut self, mut all: Vec<Pair<K>>) -> Found<u64> {
        all.sort_unstable();
        let live = std::mem::take(&mut self.live).into_iter();
        let live: Vec<_> = live.map(|(key, (value, _))| (key, value)).collect();
        same!(&all, &live);
        Ok(live.len() as u64)
    }
}
