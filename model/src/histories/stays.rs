//! What histories of pending values share: how a store of them is built, and how long they stay.

use super::shared::{interval, is_behind, shards, tick_of, Span, Time, LAST, LONGEST};
use super::{capacity, perhaps};
use arbitrary::{Result, Unstructured};
use expiry::{Lifetime, LifetimeError};
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
pub fn pass(bytes: &mut Unstructured<'_>) -> Result<Span> {
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

/// When values are due: in intervals; `None` is never.
pub struct Stays {
    pub time: Time,
    pub interval: Duration,
    /// The default timeout; `None`: for ever.
    timeout: Option<Span>,
    /// The interval of the last poll that left nothing due.
    pub caught_up: u64,
}

impl Stays {
    pub fn new(interval: Duration, timeout: Option<Span>) -> Self {
        Stays { time: Time::new(Duration::ZERO), interval, timeout, caught_up: 0 }
    }

    /// Time passes; some of the 64 bits are left for timeouts.
    pub fn pass(&mut self, by: Duration) {
        self.time.pass_below(by, 1 << 63);
    }

    /// How many intervals are over.
    pub fn tick(&self) -> u64 {
        (self.time.now / self.interval.as_nanos()) as u64
    }

    /// How long until the end of so many intervals.
    pub fn until(&self, intervals: u64) -> Duration {
        self.time.until(Span::Intervals(intervals).duration(self.interval).as_nanos())
    }

    /// Whether the time of a value with this deadline is up.
    pub fn are_over(&self, due: Option<u64>) -> bool {
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
