//! The errors of a tracker's calls.

use crate::error::converts;
use crate::time::LifetimeError;
use std::fmt;

/// Why an operation on a tracker was refused. It has changed nothing, and nothing is lost.
///
/// ```
/// use expiry::{edge, AckError, AckTracker};
///
/// let tracker = AckTracker::builder().capacity(1).build()?;
/// let root = tracker.issue(edge(), 42)?;
/// assert_eq!(tracker.issue(edge(), 43), Err(AckError::Full)); // take no more messages for now
/// tracker.fail(root)?;
/// assert_eq!(tracker.fail(root), Err(AckError::NotLive));     // too late: drop the work
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// Acks of too many roots have come before their inits; see
    /// [`early_capacity`](crate::AckTrackerBuilder::early_capacity). Try again once the inits have
    /// come.
    EarlyFull,
    /// The tracker holds as many entries as its capacity allows. Try again once some have ended.
    Full,
    /// The operating system gave no memory for more entries.
    OutOfMemory,
    /// So many roots share this one's hash that no index could part them. The process that chose
    /// them knows the tracker's [`seed`](crate::AckTrackerBuilder::seed).
    Collisions,
    /// The tracker has been shut down.
    Closed,
    /// The timeout is zero, or too long.
    Lifetime(LifetimeError),
}

impl fmt::Display for AckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AckError::Lifetime(why) => return why.fmt(f),
            AckError::ZeroEdge => "the edge id is zero, which changes nothing; use expiry::edge() for ids",
            AckError::NotLive => "the root is not in flight (any more): it was acked, failed or timed out before, or never issued; drop this ack, and replay the message under a new root if it is still wanted",
            AckError::Duplicate => "the root is in flight already; wait for its outcome or use another id",
            AckError::EarlyFull => "acks of too many roots are waiting for their inits; try again once these have come, or raise early_capacity",
            AckError::Full => "the tracker is full; try again once entries have ended, or raise its capacity",
            AckError::OutOfMemory => "out of memory",
            AckError::Collisions => "too many roots share this root's hash; do not give the tracker a seed that others know",
            AckError::Closed => "the tracker has been shut down; build another one",
        })
    }
}

impl std::error::Error for AckError {}

converts!(AckError, lifetimes, tokens);
