//! What can go wrong, and what to do about it.

use std::fmt;
use std::time::Duration;

/// Why a tracker could not be built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The timeout is zero. Use [`timeouts_off`](crate::AckTrackerBuilder::timeouts_off) for none.
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
    /// The interval is above the timeout, so that a root could live for several times its timeout.
    IntervalAboveTimeout {
        /// What was asked for.
        interval: Duration,
        /// The timeout that it is above.
        timeout: Duration,
    },
    /// The number of shards is zero, above 256, or not a power of two.
    BadShards {
        /// What was asked for.
        shards: usize,
    },
    /// A capacity of zero can hold nothing. Leave it out for an unbounded tracker.
    ZeroCapacity,
    /// The capacity is above the 2^31 entries that an engine can name.
    CapacityTooLarge {
        /// What was asked for.
        capacity: usize,
    },
    /// The sampling rate is not between 0.0 and 1.0.
    BadSamplingRate,
    /// Both a handler and a channel were asked for. Send from the handler to have both.
    TwoReceivers,
    /// A channel of zero length can hold nothing.
    ZeroChannel,
    /// A budget of zero would never do anything.
    ZeroBudget,
    /// The operating system gave no memory.
    OutOfMemory,
    /// The operating system gave no thread for the reaper.
    NoThread(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::ZeroTimeout => {
                write!(f, "the timeout is zero; use timeouts_off() for no timeout")
            }
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
            BuildError::BadShards { shards } => write!(
                f,
                "{shards} shards; use a power of two from 1 to 256"
            ),
            BuildError::ZeroCapacity => write!(
                f,
                "a capacity of zero can hold nothing; leave it out for an unbounded tracker"
            ),
            BuildError::CapacityTooLarge { capacity } => {
                write!(f, "a capacity of {capacity} is too large; use at most 2^31")
            }
            BuildError::BadSamplingRate => {
                write!(f, "the sampling rate must be between 0.0 and 1.0")
            }
            BuildError::TwoReceivers => write!(
                f,
                "both a handler and a channel were asked for; use one, or send from the handler"
            ),
            BuildError::ZeroChannel => write!(f, "the channel's length must be at least 1"),
            BuildError::ZeroBudget => write!(f, "the budget must be at least 1"),
            BuildError::OutOfMemory => write!(f, "out of memory"),
            BuildError::NoThread(why) => write!(f, "no thread for the reaper: {why}"),
        }
    }
}

impl std::error::Error for BuildError {}

/// Why an operation on a tracker was refused. It has changed nothing, and nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AckError {
    /// An edge id of zero would change nothing in the XOR. Use [`edge`](crate::edge) for ids.
    ZeroEdge,
    /// The root is not in flight: it has been acked, has failed or has timed out already, or was
    /// never issued. Counted as late in the metrics.
    NotLive,
    /// The root is in flight already, under this id. Wait for its outcome, or use another id.
    Duplicate,
    /// Too many acks have come before their inits; see
    /// [`early_capacity`](crate::AckTrackerBuilder::early_capacity). Try again once the inits have come.
    EarlyFull,
    /// The tracker holds as many entries as its capacity allows. Try again once some have ended.
    Full,
    /// The operating system gave no memory for more entries.
    OutOfMemory,
    /// The tracker has been shut down.
    Closed,
    /// The timeout is zero.
    ZeroTimeout,
    /// The timeout is longer than this engine's ticks can express; use a longer interval.
    TimeoutTooLong,
}

impl fmt::Display for AckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AckError::ZeroEdge => "the edge id is zero, which changes nothing; use expiry::edge() for ids",
            AckError::NotLive => "the root is not in flight (any more): it was acked, failed or timed out before, or never issued; drop this ack, and replay the message under a new root if it is still wanted",
            AckError::Duplicate => "the root is in flight already; wait for its outcome or use another id",
            AckError::EarlyFull => "too many acks are waiting for their inits; try again once these have come, or raise early_capacity",
            AckError::Full => "the tracker is full; try again once entries have ended, or raise its capacity",
            AckError::OutOfMemory => "out of memory",
            AckError::Closed => "the tracker has been shut down; build another one",
            AckError::ZeroTimeout => "the timeout is zero; use Timeout::Never for none, or fail the root to end it now",
            AckError::TimeoutTooLong => "the timeout is too long for the tracker's interval; build it with a longer one",
        })
    }
}

impl std::error::Error for AckError {}
