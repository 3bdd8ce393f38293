//! What can go wrong, and what to do about it.

use crate::core::engine::Refused;
use std::fmt;

/// Why a deadline could not be set, or was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimerError {
    /// As many wait as the [capacity](super::TimeoutsBuilder::capacity) allows. Nothing is lost: poll it again once some are through.
    Full,
    /// The operating system gave no memory. As [`Full`](Self::Full).
    OutOfMemory,
    /// The [`Timeouts`](crate::Timeouts) were shut down before the time was up.
    Closed,
}

impl fmt::Display for TimerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimerError::Full => "as many futures wait as the capacity allows; try again once some are through, or raise it",
            TimerError::OutOfMemory => "out of memory",
            TimerError::Closed => "the timeouts have been shut down",
        })
    }
}

impl std::error::Error for TimerError {}

impl From<Refused> for TimerError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => TimerError::Full,
            Refused::OutOfMemory => TimerError::OutOfMemory,
            Refused::Closed => TimerError::Closed,
        }
    }
}

/// Why a future did not get to its end: its time is up, or nobody could watch its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeoutError {
    /// Its time is up.
    Elapsed,
    /// The deadline could not be set, or was not kept. The future is as it was: it may be polled again.
    Timer(TimerError),
}

impl TimeoutError {
    /// Whether its time is up.
    #[must_use]
    pub fn is_elapsed(self) -> bool {
        self == TimeoutError::Elapsed
    }
}

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeoutError::Elapsed => f.write_str("the time is up"),
            TimeoutError::Timer(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for TimeoutError {}

impl From<TimerError> for TimeoutError {
    fn from(why: TimerError) -> Self {
        TimeoutError::Timer(why)
    }
}

impl From<TimeoutError> for std::io::Error {
    /// `TimedOut` where the time is up; otherwise as the [`TimerError`].
    fn from(why: TimeoutError) -> Self {
        match why {
            TimeoutError::Elapsed => std::io::Error::new(std::io::ErrorKind::TimedOut, why),
            TimeoutError::Timer(why) => why.into(),
        }
    }
}

impl From<TimerError> for std::io::Error {
    /// `OutOfMemory` where that is why, otherwise `Other`.
    fn from(why: TimerError) -> Self {
        let kind = match why {
            TimerError::OutOfMemory => std::io::ErrorKind::OutOfMemory,
            _ => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, why)
    }
}
