//! The settings that all store types share, checked in one place.

use crate::core::engine::{Config, Precision, Source};
use crate::error::BuildError;
use crate::hash::RandomState;
use crate::kit::reaper::Reaper;
use crate::time::{nanos, Clock, CoarseClock};
use rand::{rngs::SmallRng, RngCore, SeedableRng};
use std::sync::Arc;
use std::time::Duration;

/// No thread can be more punctual.
pub(crate) const SHORTEST: Duration = Duration::from_micros(10);

/// The engine's settings, as the stores' builders collect them.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub(crate) interval: Option<Duration>,
    pub(crate) shards: Option<usize>,
    pub(crate) capacity: Option<usize>,
    /// The capacity is a weight, of which an entry may take any share.
    pub(crate) weighs: bool,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) exact: bool,
    /// Steps of work before the reaper looks round again; 4096 unless set.
    pub(crate) budget: Option<usize>,
    /// Name of the store's own reaper thread; `expiry-reaper` unless set.
    pub(crate) name: Option<String>,
    pub(crate) reaper: Option<Reaper>,
    pub(crate) seed: Option<u64>,
    pub(crate) pause_grace: Option<Duration>,
    /// See [`Config::asymmetric`].
    pub(crate) asymmetric: bool,
}

impl Setup {
    pub(crate) fn by_milliseconds(interval: u64) -> Self {
        Setup { interval: Some(Duration::from_millis(interval)), ..Setup::default() }
    }

    /// Checks all of it, for an engine with these default timeouts, and makes the engine's
    /// configuration of it. Also returns the generator for other secrets.
    pub(crate) fn config(&self, timeouts: &[Duration]) -> Result<(Config, SmallRng), BuildError> {
        let precision = self.checked_precision(timeouts)?;
        let shards = self.shards.unwrap_or_else(|| {
            std::thread::available_parallelism()
                .map_or(4, std::num::NonZeroUsize::get)
                .next_power_of_two()
                .min(16)
        });
        if !shards.is_power_of_two() || shards > 256 {
            return Err(BuildError::BadShards { shards });
        }
        match self.capacity {
            Some(0) => return Err(BuildError::ZeroCapacity),
            Some(capacity) if !self.weighs && capacity as u64 > 1 << 31 => {
                return Err(BuildError::CapacityTooLarge { capacity })
            }
            _ => {}
        }
        if self.budget == Some(0) {
            return Err(BuildError::ZeroBudget);
        }
        if self.pause_grace.is_some_and(|threshold| threshold.is_zero()) {
            return Err(BuildError::ZeroPauseGrace);
        }
        let mut random = match self.seed {
            Some(seed) => SmallRng::seed_from_u64(seed),
            None => SmallRng::from_os_rng(),
        };
        let clock = self.clock.clone();
        let config = Config {
            shards,
            precision,
            capacity: self.capacity,
            clock: clock.map_or_else(|| Source::Default(CoarseClock::new()), Source::Custom),
            exact: self.exact,
            seed: random.next_u64(),
            pause_grace: self.pause_grace.map(nanos),
            asymmetric: self.asymmetric,
        };
        Ok((config, random))
    }

    /// The hasher of keys for which the caller has chosen none: that of the seed, if there is one.
    pub(crate) fn hasher(&self) -> RandomState {
        self.seed.map_or_else(RandomState::default, RandomState::seeded)
    }

    /// The precision with which the engine can keep all of the timeouts: by default a tick of a
    /// millisecond, or of the shortest timeout, and grains.
    fn checked_precision(&self, timeouts: &[Duration]) -> Result<Precision, BuildError> {
        for &timeout in timeouts {
            if timeout.is_zero() {
                return Err(BuildError::ZeroTimeout);
            }
            if timeout < SHORTEST {
                return Err(BuildError::TimeoutTooShort { timeout });
            }
        }
        let shortest = timeouts.iter().copied().min().unwrap_or(Duration::MAX);
        let interval = self.interval.unwrap_or(shortest.min(Duration::from_millis(1)));
        if interval < SHORTEST {
            return Err(BuildError::IntervalTooShort { interval });
        }
        let precision = match self.interval {
            Some(_) => Precision::Interval(nanos(interval)),
            None => Precision::Grains { interval: nanos(interval), shortest: nanos(shortest) },
        };
        let ticks = precision.ticks(0);
        for &timeout in timeouts {
            if interval > timeout {
                return Err(BuildError::IntervalAboveTimeout { interval, timeout });
            }
            if ticks.timeout(timeout).is_none() {
                let longest = ticks.longest();
                return Err(BuildError::TimeoutTooLong { timeout, longest });
            }
        }
        Ok(precision)
    }
}

/// Makes a builder's setters. A row has a setter's documentation, its name, its arguments, and the
/// field that it sets to an expression.
///
/// Before the rows come the setters that the builders of all stores have, whose settings are in a
/// field `setup`. A builder names what its store holds, and documents further its interval and its
/// capacity. The capacity is `expiring` where an insertion that finds the store full expires what
/// is due.
macro_rules! setters {
    (
        $things:literal,
        $(#[$interval:meta])* interval,
        $(#[$capacity:meta])* expiring capacity,
        $($own:tt)*
    ) => {
        $crate::kit::setup::setters! {
            $things,
            $(#[$interval])* interval,
            #[doc = concat!("The most ", $things, " there may be at once, exactly; unbounded")]
            /// unless set. Beyond it new ones are refused with
            /// [`StoreError::Full`](crate::StoreError::Full), unless one is due, which is then
            /// expired first. The inserting thread expires it, and so calls the listener: hold no
            /// lock there that the listener takes. What is due does not help in a shard that
            /// another thread drives, such as one whose listener takes its time.
            $(#[$capacity])*
            capacity,
            $($own)*
        }
    };
    (
        $things:literal,
        $(#[$interval:meta])* interval,
        $(#[$capacity:meta])* capacity,
        $($own:tt)*
    ) => {
        $crate::kit::setup::setters! {
            /// The granularity of time: deadlines are rounded up to it. At least 10 microseconds.
            $(#[$interval])*
            interval(interval: ::std::time::Duration) sets setup.interval = Some(interval);
            /// Into how many shards
            #[doc = concat!($things, " are spread: a power of two up to 256. Each thread that")]
            /// uses the store takes up to 128 bytes for each shard. Unless set, as many as there
            /// are cores, as a power of two, and at most 16.
            shards(shards: usize) sets setup.shards = Some(shards);
            $(#[$capacity])*
            capacity(capacity: usize) sets setup.capacity = Some(capacity);
            /// The clock to go by; [`CoarseClock`](crate::CoarseClock) unless set. One that does
            /// not run with real time is for [`build_manual`](Self::build_manual): a reaper thread
            /// sleeps by the machine's time. With a [`ManualClock`](crate::ManualClock) a store
            /// with a reaper is not built.
            clock(clock: impl $crate::Clock) sets setup.clock = Some(::std::sync::Arc::new(clock));
            /// The store's name: that of its reaper thread, of which Linux shows 15 bytes. It is
            /// `expiry-reaper` unless set.
            name(name: impl Into<String>) sets setup.name = Some(name.into());
            /// Lets a thread that other stores use too drive this one, instead of one of its own:
            /// see [`Reaper`](crate::Reaper). [`build_manual`](Self::build_manual) takes no notice
            /// of it.
            reaper(reaper: &$crate::Reaper) sets setup.reaper = Some(reaper.clone());
            /// How much the reaper does before it looks round again, 4096 unless set: expired
            #[doc = concat!($things, ", blocks, cascades.")]
            reaper_budget(budget: usize) sets setup.budget = Some(budget);
            /// Makes the hashing of integers reproducible, and the ids of issued roots; keys of
            /// other types go through a hasher first, which has a seed of its own. Not for
            /// production: a caller that knows the seed can choose keys that collide.
            seed(seed: u64) sets setup.seed = Some(seed);
            $($own)*
        }
    };
    ($(
        $(#[$meta:meta])*
        $name:ident($($value:ident: $type:ty),*) sets $($field:ident).+ = $to:expr;
    )*) => {$(
        $(#[$meta])*
        pub fn $name(mut self $(, $value: $type)*) -> Self {
            self.$($field).+ = $to;
            self
        }
    )*};
}

pub(crate) use setters;
