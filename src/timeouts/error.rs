//! The errors of timeouts.

use crate::error::{converts, Closed};
use std::fmt;

/// Why a deadline could not be set, or was not kept.
///
/// ```
/// use expiry::timeouts::TimerError;
/// use expiry::Timeouts;
/// use std::{future::poll_fn, future::Future, pin::Pin, task::Poll, time::Duration};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let timeouts = Timeouts::builder().capacity(1).build()?;
/// let mut first = timeouts.sleep(Duration::from_secs(60));
/// let mut second = timeouts.sleep(Duration::from_secs(60));
/// // Only what has been polled takes a place.
/// assert!(poll_fn(|context| Poll::Ready(Pin::new(&mut first).poll(context))).await.is_pending());
/// assert_eq!((&mut second).await, Err(TimerError::Full));
/// drop(first);
/// timeouts.room().await?;                  // back-pressure; here there is room already
/// second.reset(Duration::from_millis(5));  // its time has run since `sleep` was called
/// assert_eq!((&mut second).await, Ok(())); // tried again
/// timeouts.shutdown();
/// assert_eq!(timeouts.sleep(Duration::from_secs(60)).await, Err(TimerError::Closed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimerError {
    /// As many wait as the [capacity](super::TimeoutsBuilder::capacity) allows. Polled again once
    /// some are through ([`room`](crate::Timeouts::room) waits for that), it tries again. An
    /// `.await` of a timeout has dropped the work inside: pin it where that matters.
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

converts!(TimerError);

/// Why a future did not get to its end: its time is up, or its deadline could not be registered.
///
/// ```
/// use expiry::timeouts::{TimeoutError, TimerError};
/// use expiry::Timeouts;
/// use std::{future::pending, io, time::Duration};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let timeouts = Timeouts::builder().build_manual()?;
/// let ended = timeouts.timeout(Duration::ZERO, pending::<()>()).await;
/// assert_eq!(ended, Err(TimeoutError::Elapsed)); // the work was too slow
/// timeouts.shutdown();
/// let ended = timeouts.timeout(Duration::from_secs(30), pending::<()>()).await;
/// assert_eq!(ended, Err(TimeoutError::Timer(TimerError::Closed))); // nobody watches any more
/// assert_eq!(io::Error::from(TimeoutError::Elapsed).kind(), io::ErrorKind::TimedOut);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeoutError {
    /// Its time is up.
    Elapsed,
    /// The deadline could not be set, or was not kept. The future inside is as it was: if it is
    /// pinned, it may be polled again; an `.await` has dropped it, perhaps half-way, as it was
    /// polled first.
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

impl From<Closed> for TimeoutError {
    fn from(closed: Closed) -> Self {
        TimeoutError::Timer(closed.into())
    }
}

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
