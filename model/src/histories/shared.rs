//! What the drivers share: a clock that knows how much time has passed, the events that a listener
//! received, and settings that may be left out.

use arbitrary::{Result, Unstructured};
use expiry::ManualClock;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The end of time, in nanoseconds: 64 bits.
pub const LAST: u128 = u64::MAX as u128;
/// The longest timeout, in intervals.
pub const LONGEST: u64 = (1 << 39) - 2;

/// A lease expresses deadlines of fewer intervals after the time up to which all that was due has
/// been ended. Documented as 2^38 intervals by which the clock may run ahead, and the longest
/// timeout.
pub const EXPRESSED: u64 = (3 << 38) - 1;

/// Whether a call that sets this deadline ends what is due first, in a store that has caught up so
/// far. Both in ticks.
pub fn is_behind(due: u128, caught_up: u128) -> bool {
    due > expressible(caught_up + u128::from(EXPRESSED) - 1)
}

/// The tick of a deadline, rounded up.
pub fn tick_of(due: u128, interval: u128) -> u128 {
    expressible(due.min(LAST).div_ceil(interval))
}

/// One tick of 2^40 counts as the next: a lease means by it that the entry has no deadline.
fn expressible(tick: u128) -> u128 {
    tick + u128::from(tick & ((1 << 40) - 1) == (1 << 40) - 1)
}

/// A time in nanoseconds as a duration, cut off at the end of time.
pub fn nanos(time: u128) -> Duration {
    Duration::from_nanos(time.min(LAST) as u64)
}

/// A length of time that a history names.
#[derive(Debug, Clone, Copy)]
pub enum Span {
    Nanos(u64),
    Intervals(u64),
    /// One nanosecond more than the longest timeout.
    TooLong,
    Endless,
}

impl Span {
    pub fn duration(self, interval: Duration) -> Duration {
        let intervals = |n: u64| nanos(u128::from(n) * interval.as_nanos());
        match self {
            Span::Nanos(n) => Duration::from_nanos(n),
            Span::Intervals(n) => intervals(n),
            Span::TooLong => intervals(LONGEST) + Duration::from_nanos(1),
            Span::Endless => Duration::MAX,
        }
    }
}

/// A manual clock, and the nanoseconds since the store was built.
pub struct Time {
    pub clock: ManualClock,
    pub now: u128,
    /// When the clock stops.
    pub end: u128,
}

impl Time {
    /// The clock says `start` when the store is built.
    pub fn new(start: Duration) -> Self {
        let clock = ManualClock::new();
        clock.advance(start);
        Time { clock, now: 0, end: LAST - start.as_nanos() }
    }

    pub fn pass(&mut self, by: Duration) {
        self.clock.advance(by);
        self.now += by.as_nanos();
    }

    /// Time passes, unless so much would not leave enough of the 64 bits for timeouts.
    pub fn pass_below(&mut self, by: Duration, bound: u128) {
        if self.now + by.as_nanos() < bound {
            self.pass(by);
        }
    }

    /// How long until then; zero if that has passed.
    pub fn until(&self, time: u128) -> Duration {
        nanos(time.min(self.end).saturating_sub(self.now))
    }
}

/// Events that a listener received and the driver has not taken.
#[derive(Debug)]
pub struct Told<T>(Arc<Mutex<Vec<T>>>);

impl<T: Send + 'static> Told<T> {
    pub fn new() -> Self {
        Told(Arc::default())
    }

    /// What the listener of a store calls.
    pub fn listener(&self) -> impl Fn(T) + Send + Sync + 'static {
        let told = self.0.clone();
        move |event| told.lock().unwrap().push(event)
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Calls a setter of a builder, if there is a value for it.
macro_rules! set {
    ($builder:ident.$setter:ident($value:expr)) => {
        if let Some(value) = $value {
            $builder = $builder.$setter(value);
        }
    };
}
pub(crate) use set;

/// Compares what the store says with what the model says.
macro_rules! same {
    ($store:expr, $model:expr) => {
        prop_assert_eq!($store, $model, "the store, the model")
    };
}
pub(crate) use same;

/// One of the intervals that queues and trackers of sessions are built with.
pub fn interval(bytes: &mut Unstructured<'_>) -> Result<Duration> {
    let all = [10_000, 1_000_000, 12_345_678, 2_000_000_000];
    bytes.choose(&all).copied().map(Duration::from_nanos)
}

pub fn shards(bytes: &mut Unstructured<'_>) -> Result<usize> {
    bytes.choose(&[1, 2, 8]).copied()
}
