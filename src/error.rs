//! Errors that all store types share.
//!
//! Each store type converts [`Closed`] and [`TokenError`] into its own error, in its own module.

use crate::ack::AckError;
use std::fmt;
use std::time::Duration;

/// Why a tracker, a queue or a map could not be built.
///
/// ```
/// use expiry::{AckTracker, BuildError};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// let refused = AckTracker::builder().timeout(second).interval(2 * second).build();
/// let interval = 2 * second;
/// assert_eq!(refused.err(), Some(BuildError::IntervalAboveTimeout { interval, timeout: second }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A timeout, a time to live, a time to idle or a refresh time is zero. For none leave it out;
    /// a tracker has [`timeouts_off`](crate::AckTrackerBuilder::timeouts_off).
    ZeroTimeout,
    /// A timeout is longer than this engine's ticks can express; use a longer interval.
    TimeoutTooLong {
        /// What was asked for.
        timeout: Duration,
        /// The longest there is at this interval.
        longest: Duration,
    },
    /// A timeout is below 10 microseconds: no thread can be that punctual.
    TimeoutTooShort {
        /// What was asked for.
        timeout: Duration,
    },
    /// The interval is below 10 microseconds: no thread can be that punctual.
    IntervalTooShort {
        /// What was asked for.
        interval: Duration,
    },
    /// The interval is above the timeout: an entry could live for several times its timeout.
    IntervalAboveTimeout {
        /// What was asked for.
        interval: Duration,
        /// The timeout that it is above.
        timeout: Duration,
    },
    /// The shortest timeout that is granted to sessions is above the longest.
    MinimumAboveMaximum {
        /// The shortest.
        minimum: Duration,
        /// The longest.
        maximum: Duration,
    },
    /// The number of shards is zero, above 256, or not a power of two.
    BadShards {
        /// What was asked for.
        shards: usize,
    },
    /// A capacity of zero can hold nothing. Leave it out for no bound.
    ZeroCapacity,
    /// The capacity is above the 2^31 entries that an engine can name.
    CapacityTooLarge {
        /// What was asked for.
        capacity: usize,
    },
    /// Both a capacity that refuses new keys, and one that evicts entries, were asked for.
    TwoBounds,
    /// Values would expire before they are due for a reload: the time to live is not above
    /// [`refresh_after`](crate::ExpiringMapBuilder::refresh_after).
    RefreshTooLate {
        /// What was asked for.
        refresh_after: Duration,
        /// The time to live, if there is one.
        time_to_live: Option<Duration>,
    },
    /// Settings bound the weight, and the program gives no weigher: call
    /// [`max_weight`](crate::ExpiringMapBuilder::max_weight).
    NoWeigher,
    /// The bound of a map can be changed if it was built with one of the same kind:
    /// [`max_capacity`](crate::ExpiringMapBuilder::max_capacity), or
    /// [`max_weight`](crate::ExpiringMapBuilder::max_weight).
    OtherBound,
    /// Fewer than two buckets cannot say how much longer an entry may live.
    TooFewBuckets {
        /// What was asked for.
        buckets: usize,
    },
    /// The sampling rate is not between 0.0 and 1.0.
    BadSamplingRate,
    /// Both a handler and a channel were asked for. Send from the handler to have both.
    TwoReceivers,
    /// A channel of zero length can hold nothing.
    ZeroChannel,
    /// The channel's length is above 2^31. All of it is allocated at once.
    ChannelTooLong {
        /// What was asked for.
        length: usize,
    },
    /// A budget of zero would never do anything.
    ZeroBudget,
    /// With a pause grace of zero every delay would count as a stall. Leave it out for none.
    ZeroPauseGrace,
    /// A store with a reaper, which sleeps by the machine's time, was to go by a clock that
    /// [only the program moves](crate::Clock::is_manual): build it with `build_manual`, and poll.
    ManualClock,
    /// The operating system gave no memory.
    OutOfMemory,
    /// The operating system gave no thread for the reaper, or for the listener.
    NoThread(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::ZeroTimeout => f.write_str("a timeout, a time to live, a time to idle or a refresh time is zero; for none leave it out, or (of a tracker) use timeouts_off()"),
            BuildError::TimeoutTooLong { timeout, longest } => write!(
                f,
                "a timeout of {timeout:?} is too long for this interval, at which {longest:?} is the longest; use a longer interval"
            ),
            BuildError::TimeoutTooShort { timeout } => {
                write!(f, "a timeout of {timeout:?} is too short; use at least 10 us")
            }
            BuildError::IntervalTooShort { interval } => {
                write!(f, "an interval of {interval:?} is too short; use at least 10 us")
            }
            BuildError::IntervalAboveTimeout { interval, timeout } => write!(
                f,
                "the interval, {interval:?}, is above the timeout, {timeout:?}; use an interval of at most the timeout"
            ),
            BuildError::MinimumAboveMaximum { minimum, maximum } => write!(
                f,
                "the minimum timeout, {minimum:?}, is above the maximum, {maximum:?}; use a minimum of at most the maximum"
            ),
            BuildError::BadShards { shards } => {
                write!(f, "{shards} shards; use a power of two from 1 to 256")
            }
            BuildError::ZeroCapacity => f.write_str("a capacity of zero can hold nothing; leave it out for no bound"),
            BuildError::CapacityTooLarge { capacity } => {
                write!(f, "a capacity of {capacity} is too large; use at most 2^31")
            }
            BuildError::TwoBounds => f.write_str("both capacity and max_capacity were asked for; use the first to refuse, the second to evict"),
            BuildError::RefreshTooLate { refresh_after, time_to_live: Some(live) } => write!(
                f,
                "refresh_after, {refresh_after:?}, is not below the time to live, {live:?}; use a shorter one"
            ),
            BuildError::RefreshTooLate { refresh_after, time_to_live: None } => write!(
                f,
                "refresh_after, {refresh_after:?}, needs a time to live above it; give the map one"
            ),
            BuildError::NoWeigher => f.write_str("max_weight of the settings needs a weigher; give one by the builder's max_weight"),
            BuildError::OtherBound => f.write_str("the map was built with another bound, or none; build it with max_capacity or max_weight to change that"),
            BuildError::TooFewBuckets { buckets } => {
                write!(f, "{buckets} buckets are too few; use at least 2")
            }
            BuildError::BadSamplingRate => f.write_str("the sampling rate must be between 0.0 and 1.0"),
            BuildError::TwoReceivers => f.write_str("both a handler and a channel were asked for; use one, or send from the handler"),
            BuildError::ZeroChannel => f.write_str("the channel's length must be at least 1"),
            BuildError::ChannelTooLong { length } => {
                write!(f, "a channel of {length} is too long; use at most 2^31")
            }
            BuildError::ZeroBudget => f.write_str("the budget must be at least 1"),
            BuildError::ZeroPauseGrace => f.write_str("with a pause grace of zero every delay would count as a stall; leave it out for none"),
            BuildError::ManualClock => f.write_str("a reaper thread does not notice that a manual clock was advanced; use build_manual, and poll"),
            BuildError::OutOfMemory => f.write_str("out of memory"),
            BuildError::NoThread(why) => {
                write!(f, "the operating system gave no thread: {why}")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// Makes a store's error of what the engine and all stores refuse with: `Full`, `OutOfMemory`,
/// `Closed`; and of a lifetime, or of a token's refusal, in a store that has these.
macro_rules! converts {
    ($error:ident) => {
        impl From<$crate::core::engine::Refused> for $error {
            fn from(why: $crate::core::engine::Refused) -> Self {
                use $crate::core::engine::Refused;
                match why {
                    Refused::Full => $error::Full,
                    Refused::OutOfMemory => $error::OutOfMemory,
                    Refused::Closed => $error::Closed,
                }
            }
        }

        #[cfg(feature = "async")]
        impl From<$crate::Closed> for $error {
            fn from(_: $crate::Closed) -> Self {
                $error::Closed
            }
        }
    };
    ($error:ident, lifetimes, tokens) => {
        $crate::error::converts!($error);

        impl From<$crate::LifetimeError> for $error {
            fn from(why: $crate::LifetimeError) -> Self {
                $error::Lifetime(why)
            }
        }

        impl<T> From<$crate::TokenError<T, $error>> for $error {
            fn from(refused: $crate::TokenError<T, $error>) -> Self {
                refused.error
            }
        }
    };
}

/// An error with a field `error`, which says why, and with what the call was given. Of the latter
/// nothing needs to be `Debug`.
macro_rules! gives_back {
    ($name:ident<$($given:ident),*> for $error:ident) => {
        impl<$($given),*> std::fmt::Debug for $name<$($given),*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct(stringify!($name));
                debug.field("error", &self.error).finish_non_exhaustive()
            }
        }

        impl<$($given),*> std::fmt::Display for $name<$($given),*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.error.fmt(f)
            }
        }

        impl<$($given),*> std::error::Error for $name<$($given),*> {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.error)
            }
        }

        impl<$($given),*> From<$name<$($given),*>> for $error {
            fn from(refused: $name<$($given),*>) -> Self {
                refused.error
            }
        }
    };
}

pub(crate) use {converts, gives_back};

/// The store has been shut down: there will be no [`CapacityReady`](crate::CapacityReady) any more.
/// It converts into the error `Closed` of each store type.
///
/// ```
/// use expiry::{AckError, AckTracker, Closed, ShutdownMode};
///
/// let tracker = AckTracker::builder().build()?;
/// tracker.shutdown(ShutdownMode::Cancel);
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// assert_eq!(runtime.block_on(tracker.room()), Err(Closed));
/// assert_eq!(AckError::from(Closed), AckError::Closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "async")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

#[cfg(feature = "async")]
impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has been shut down")
    }
}

#[cfg(feature = "async")]
impl std::error::Error for Closed {}

/// Why a root, or a session, with a token was refused; it gives the token back. The error `E` is an
/// [`AckError`] of a root, and a [`StoreError`](crate::StoreError) of a session.
///
/// ```
/// use expiry::{edge, AckError, AckTracker, Lifetime};
///
/// let tracker = AckTracker::builder().with_tokens().capacity(1).build()?;
/// tracker.issue_with_token(edge(), 42, "first".to_string(), Lifetime::Default)?;
/// let refused = tracker.issue_with_token(edge(), 42, "second".to_string(), Lifetime::Default);
/// let refused = refused.unwrap_err();
/// assert_eq!((refused.error, refused.token.as_str()), (AckError::Full, "second"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub struct TokenError<T, E = AckError> {
    /// Why the root, or the session, is not tracked.
    pub error: E,
    /// The token that was to come back with its end.
    pub token: T,
}

impl<T, E: fmt::Debug> fmt::Debug for TokenError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T, E: fmt::Display> fmt::Display for TokenError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T, E: std::error::Error + 'static> std::error::Error for TokenError<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
