//! How a root ends, and what the owner gets.

use crate::kit::id::text_of_id;
use std::fmt;
use std::time::Duration;

/// A root that the engine issued: names one attempt, never reused for another.
///
/// A late ack of an earlier attempt cannot touch a later one: the id holds its slot, 16 bits that
/// count the slot's occupants, and 16 random bits. An old id is accepted again only when the count
/// has come round (2^16 - 1 occupants later, or sooner if memory was given back near that), and
/// then with odds of 1 in 65,536. An id of another tracker is no better than a guess, 1 in 65,536
/// or worse: ids are no secrets.
///
/// 64 bits, so that it can travel: [`to_bits`](Self::to_bits), [`from_bits`](Self::from_bits); with
/// the feature `serde` as a number. Displayed, and parsed, as `0x` and 16 hexadecimal digits.
///
/// ```
/// use expiry::{edge, AckTracker, Root};
///
/// let tracker = AckTracker::builder().build()?;
/// let edge = edge();
/// let bits = tracker.issue(edge, 42)?.to_bits(); // into a message
/// tracker.ack(Root::from_bits(bits), edge)?;     // and back
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Root(pub(crate) u64);

impl Root {
    /// The id as bits, for a wire format.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The id from its bits. Bits that no tracker issued name no live root, and are refused like
    /// one that has ended.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Root(bits)
    }
}

text_of_id!(Root);

/// Which root: issued by the engine, or chosen by the caller. The two never meet.
///
/// ```
/// use expiry::{edge, AckTracker, RootId};
///
/// let tracker = AckTracker::builder().build()?;
/// let issued = tracker.issue(edge(), 42)?;
/// tracker.init(7, edge(), 42)?;
/// for root in [RootId::Issued(issued), RootId::Chosen(7)] {
///     tracker.fail(root)?; // as all calls, of either kind
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RootId {
    /// Issued by the engine.
    Issued(Root),
    /// Chosen by the caller; any number, zero included.
    Chosen(u64),
}

impl From<Root> for RootId {
    #[inline]
    fn from(root: Root) -> Self {
        RootId::Issued(root)
    }
}

impl From<u64> for RootId {
    #[inline]
    fn from(id: u64) -> Self {
        RootId::Chosen(id)
    }
}

impl fmt::Display for RootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RootId::Issued(root) => write!(f, "issued:{root}"),
            RootId::Chosen(id) => write!(f, "chosen:{id}"),
        }
    }
}

/// Why a root ended.
///
/// ```
/// use expiry::{AckTracker, Outcome, Reason};
///
/// let builder = AckTracker::builder().on_outcome(|outcome: Outcome| match outcome.reason {
///     Reason::Acked => {}
///     Reason::Failed { by } => println!("{} failed, by {by:?}", outcome.owner),
///     Reason::TimedOut { due, seen } => {
///         println!("{} timed out, told {:?} late", outcome.owner, seen - due);
///     }
///     _ => println!("{} was cut short by the shutdown", outcome.owner),
/// });
/// let tracker = builder.build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Everything derived from it has been acked.
    Acked,
    /// It was failed.
    Failed {
        /// What the caller of [`fail_by`](crate::AckTracker::fail_by) named as the culprit; `None`
        /// for [`fail`](crate::AckTracker::fail), for a dropped tuple, and where the failure came
        /// before the root's init, or met it halfway.
        by: Option<u64>,
    },
    /// Its time ran out.
    TimedOut {
        /// When it was due: clock time since the tracker was built, rounded up to the interval.
        due: Duration,
        /// When the reaper (or `poll`) saw it, on the same scale. Never before `due`.
        seen: Duration,
    },
    /// The tracker was shut down first.
    Cancelled,
}

/// What became of a root: exactly one of these for each root that was tracked. It has the root's
/// token, by value.
///
/// ```
/// use expiry::{edge, AckTracker, WhenFull};
///
/// let (tracker, outcomes) = AckTracker::builder()
///     .latency_sampling(1.0)
///     .build_with_channel(16, WhenFull::Wait)?;
/// let edge = edge();
/// let root = tracker.issue(edge, 42)?;
/// tracker.ack(root, edge)?;
/// let outcome = outcomes.try_next().unwrap();
/// assert_eq!((outcome.root, outcome.owner, outcome.is_acked()), (root.into(), 42, true));
/// assert!(outcome.latency.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome<T = ()> {
    /// Which root.
    pub root: RootId,
    /// The number that came with its init.
    pub owner: u64,
    /// The token that came with its init; `()` if the tracker has none.
    pub token: T,
    /// Why it ended.
    pub reason: Reason,
    /// Time from the root's init to its end, by the tracker's clock, if this root was
    /// [sampled](crate::AckTrackerBuilder::latency_sampling), and the clock did not panic. Right for
    /// as long as the clock's nanoseconds fit in 64 bits, 584 years.
    pub latency: Option<Duration>,
}

impl<T> Outcome<T> {
    /// Whether everything was acked.
    #[must_use]
    pub fn is_acked(&self) -> bool {
        self.reason == Reason::Acked
    }

    /// Whether a call failed it.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        matches!(self.reason, Reason::Failed { .. })
    }

    /// Whether the tracker was shut down first.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.reason == Reason::Cancelled
    }

    /// Whether its time ran out.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self.reason, Reason::TimedOut { .. })
    }
}

/// What an ack did.
///
/// ```
/// use expiry::{edge, Ack, AckTracker};
///
/// let tracker = AckTracker::builder().build()?;
/// let (first, second) = (edge(), edge());
/// assert_eq!(tracker.ack(7, first)?, Ack::Held);
/// tracker.init(7, first ^ second, 42)?;
/// assert_eq!(tracker.ack(7, second)?, Ack::Completed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// Counted; more is outstanding.
    Pending,
    /// This was the last one: the root is acked, and this thread has delivered the outcome.
    Completed,
    /// The init has not come yet; the share is held for it. Only for roots chosen by the caller.
    Held,
}

/// What a fail, or a reset of a timeout, did.
///
/// ```
/// use expiry::{edge, AckTracker, Done, Outcome};
///
/// let tracker = AckTracker::builder()
///     .on_outcome(|outcome: Outcome| assert!(outcome.is_failed()))
///     .build()?;
/// assert_eq!(tracker.fail(7)?, Done::Held); // overtook its init, which it ends
/// tracker.init(7, edge(), 42)?;
/// assert!(tracker.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It took effect at once.
    Now,
    /// The init has not come yet. A fail is held for it. A reset only renews the wait of what came
    /// early, by the early timeout; the timeout asked for is not kept: give it to
    /// [`init_for`](crate::AckTracker::init_for). Only for roots chosen by the caller.
    Held,
}
