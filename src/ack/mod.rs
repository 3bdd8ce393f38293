//! Ack trees: has everything derived from this message been processed?

mod builder;
mod deliver;
mod error;
mod metrics;
mod outcome;
#[cfg(all(test, not(expiry_loom)))]
mod tests;
mod trees;
mod tuple;

pub use builder::AckTrackerBuilder;
pub use deliver::Handler;
pub use error::AckError;
pub use metrics::{InFlight, Metrics, ShardMetrics};
pub use outcome::{Ack, Done, Outcome, Reason, Root, RootId};
pub use tuple::Tuple;

use crate::setup::Reaper;
use crate::time::Timeout;
#[cfg(doc)]
use crate::WhenFull;
use rand::{rngs::SmallRng, RngCore, SeedableRng};
use std::cell::RefCell;
use std::fmt;
#[cfg(feature = "async")]
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
#[cfg(feature = "async")]
use std::time::Instant;
use trees::Trees;

/// The receiving end of a tracker's channel.
///
/// # Examples
///
/// ```
/// use expiry::{edge, AckTracker, Outcomes, WhenFull};
///
/// /// Who has to send again.
/// fn failed(outcomes: &Outcomes) -> Vec<u64> {
///     let told = std::iter::from_fn(|| outcomes.try_next());
///     told.filter(|outcome| !outcome.is_acked()).map(|outcome| outcome.owner).collect()
/// }
///
/// let (tracker, outcomes) = AckTracker::builder().build_manual_with_channel(16, WhenFull::Wait)?;
/// let root = tracker.issue(edge(), 42)?;
/// tracker.fail(root)?;
/// assert_eq!(failed(&outcomes), [42]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Outcomes = crate::Receiver<Outcome>;

/// What becomes of a [`Tuple`] that is dropped without ack or fail, by a panic or an early return for instance.
///
/// ```
/// use expiry::{AckTracker, OnDrop, Tuple};
///
/// let tracker = AckTracker::builder().on_drop(OnDrop::Fail).build()?;
/// drop(Tuple::root(&tracker, 42)?);
/// assert_eq!(tracker.metrics().total.failed, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum OnDrop {
    /// Nothing: its trees time out. The safe choice where a tuple's work may have been handed on.
    #[default]
    LetTimeOut,
    /// Its trees fail at once. The quick choice.
    Fail,
}

/// What becomes of the roots that are still in flight when a tracker is shut down.
///
/// ```
/// use expiry::{edge, AckTracker, Fate};
/// use std::time::Duration;
///
/// let tracker = AckTracker::builder().build()?;
/// tracker.issue(edge(), 42)?;
/// assert_eq!(tracker.shutdown(Fate::Return)[0].owner, 42);
/// assert!(tracker.shutdown(Fate::Drain(Duration::from_secs(5))).is_empty()); // it was down before
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// New roots are refused; those in flight get up to this long to be acked, to fail or to time out. What is
    /// left then is cancelled. Real time, whatever the tracker's clock; a tracker without a reaper is polled meanwhile.
    Drain(Duration),
    /// Each gets the outcome [`Reason::Cancelled`], through the handler or the channel.
    Cancel,
    /// They are returned by [`AckTracker::shutdown`], as [`Reason::Cancelled`], and neither handler nor channel is told.
    /// Early arrivals are not among them.
    Return,
}

/// What a call of [`AckTracker::poll`] left behind.
///
/// ```
/// # use expiry::{edge, AckTracker, ManualClock};
/// # let clock = ManualClock::new();
/// # let tracker = AckTracker::builder().clock(clock.clone()).build_manual()?;
/// # tracker.issue(edge(), 42)?;
/// loop {
///     let polled = tracker.poll(1000);
///     if polled.more {
///         continue; // or do something else first
///     }
///     if tracker.is_empty() {
///         break; // a simulation is over; `next` may have something to do all the same
///     }
///     if let Some(next) = polled.next {
///         clock.advance(next); // or sleep, or wait until something comes in
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Polled {
    /// The budget ran out before the work did: call again at once. Also if another thread was at some of the
    /// shards, which were left out; then yield first.
    pub more: bool,
    /// How long from now until there may be something to do, if nothing else happens; `None` if never.
    ///
    /// An upper bound for who sleeps, and no sign that anything is in there: the old deadline of what has ended, or was renewed, counts until it has
    /// come, and so does giving memory back, up to a second after a burst. Whether all is done says `is_empty()`. What begins later with a
    /// nearer deadline does not wake who sleeps by this.
    pub next: Option<Duration>,
}

/// A random 64-bit edge id, never zero, from a generator that each thread has seeded from the OS.
///
/// With random ids, a tree completes falsely if the XOR of the ids outstanding happens to be zero: a chance of
/// 2^-64 for each ack. At 10,000 acks per second that is once in 58 million years
/// (2^64 / 10^4 s = 1.8 * 10^15 s; a widely copied text says 5.8).
///
/// ```
/// use expiry::{edge, AckTracker};
///
/// let tracker = AckTracker::builder().build()?;
/// let (first, second) = (edge(), edge());
/// let root = tracker.issue(first ^ second, 42)?;
/// tracker.ack(root, second)?;
/// tracker.ack(root, first)?;
/// assert!(tracker.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[inline]
pub fn edge() -> u64 {
    thread_local! {
        static GENERATOR: RefCell<SmallRng> = RefCell::new(SmallRng::from_os_rng());
    }
    let draw = |generator: &mut SmallRng| loop {
        let id = generator.next_u64();
        if id != 0 {
            return id;
        }
    };
    // A thread that is ending has no generator any more: make one for this call.
    GENERATOR
        .try_with(|generator| draw(&mut generator.borrow_mut()))
        .unwrap_or_else(|_| draw(&mut SmallRng::from_os_rng()))
}

/// Tracks trees of derived work, each with one 64-bit XOR, until everything in a tree has been
/// acked, something in it has failed, or its time is up: exactly one of these, told once.
///
/// # The idea
///
/// From Apache Storm's acker. A message is a *root*. Each piece of work derived from it is an *edge*, a
/// random 64-bit id. The tracker keeps the XOR of all ids it has seen for the root; each id is seen twice, once when the
/// work is created and once when it is done, so the XOR is zero when, and (but for a chance of 2^-64) only
/// when, everything is done. Memory per root is constant, however large its tree: 32 bytes and a
/// share of the tables.
///
/// # Issued and chosen roots
///
/// Operations take a [`RootId`]: a [`Root`] that [`issue`](Self::issue) returned, or any `u64` that the caller
/// chose, for roots that other processes name.
///
/// * **Issued** roots name one attempt. They are the faster kind (an id is its place), and late acks are impossible
///   to confuse with anything: they are refused as [`AckError::NotLive`].
/// * **Chosen** roots are found by a seeded hash. Acks may come before the init and wait for it. As a late ack
///   of an ended root looks like an early one of a new root, it is held, counted, and expires after
///   the [early timeout](AckTrackerBuilder::early_timeout): bounded, observable, harmless, provided that
///   **an id names one attempt**: replay a message under a new id.
///
/// # Progress, cost
///
/// `issue`, `init`, `ack`, `fail` and `reset_timeout` are lock-free and allocate nothing in the common path; no
/// thread waits for another, whether it is descheduled, growing a table or expiring a million entries. The
/// exceptions: [`shutdown`](Self::shutdown), delivery into a full channel under [`WhenFull::Wait`], and
/// [`reset_timeout`](Self::reset_timeout) after a jump of the clock by years. What an outcome's handler does is its own
/// affair. A lifecycle of an issued root is 6 atomic
/// read-modify-writes for init and three acks.
///
/// # Time
///
/// One reaper thread per tracker ends what is due; it sleeps until the next deadline, and for ever when there is none.
/// [`build_manual`](AckTrackerBuilder::build_manual) makes a tracker without it, driven by [`poll`](Self::poll).
/// State is in memory by design: after a restart, the sources of messages must replay what they have had no
/// outcome for.
///
/// # Example
///
/// ```
/// use expiry::{AckTracker, Tuple};
///
/// let tracker = AckTracker::builder()
///     .on_outcome(|outcome: &expiry::Outcome| println!("{outcome:?}"))
///     .build()?;
///
/// let mut line = Tuple::root(&tracker, 42)?;   // a message has come in
/// let word = line.emit();                      // a piece of work derived from it
/// line.ack()?;                                 // the message itself is done with
/// word.ack()?;                                 // and now everything is: the handler is told
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With ids from other processes, and without handles: an ack is the XOR of the edge that is done with and of those
/// derived from it.
///
/// ```
/// use expiry::{edge, Ack, AckTracker};
///
/// let tracker = AckTracker::builder().build()?;
/// let (message, first, second) = (7, edge(), edge());
/// let part = edge();
/// tracker.ack(message, first ^ part)?;             // came before the init: held for it
/// tracker.init(message, first ^ second, 42)?;
/// tracker.ack(message, second)?;
/// assert_eq!(tracker.ack(message, part)?, Ack::Completed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Simulated, without a thread:
///
/// ```
/// use expiry::{AckTracker, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let tracker = AckTracker::builder()
///     .timeout(Duration::from_secs(60))
///     .clock(clock.clone())
///     .on_outcome(|outcome: &expiry::Outcome| assert!(outcome.is_timed_out()))
///     .build_manual()?;
/// tracker.issue(expiry::edge(), 42)?;
/// loop {
///     let polled = tracker.poll(1000);
///     if polled.more {
///         continue;
///     }
///     let Some(next) = polled.next else { break };
///     clock.advance(next);
/// }
/// assert!(tracker.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AckTracker {
    trees: Arc<Trees>,
    reaper: Option<Reaper>,
    on_drop: OnDrop,
}

impl fmt::Debug for AckTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckTracker")
            .field("len", &self.len())
            .field("shards", &self.trees.engine.shards())
            .field("reaper", &self.reaper.is_some())
            .finish_non_exhaustive()
    }
}

impl AckTracker {
    /// Settings with defaults.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::AckTracker;
    /// # use std::time::Duration;
    /// let tracker = AckTracker::builder().timeout(Duration::from_secs(60)).build_manual()?;
    /// assert_eq!(tracker.interval(), Duration::from_millis(200)); // as nobody has said otherwise
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> AckTrackerBuilder {
        AckTrackerBuilder::default()
    }

    /// Begins to track a root and issues its id. `xor` is the XOR of the ids of its first edges; with 0, a root without
    /// edges, it completes at once. `owner` comes back with the outcome.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// let (first, second) = (edge(), edge());
    /// let root = tracker.issue(first ^ second, 42)?; // two pieces of work
    /// assert_eq!(tracker.ack(root, first)?, Ack::Pending);
    /// assert_eq!(tracker.ack(root, second)?, Ack::Completed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AckError::Full`], [`AckError::OutOfMemory`], [`AckError::Closed`].
    #[inline]
    pub fn issue(&self, xor: u64, owner: u64) -> Result<Root, AckError> {
        self.trees.issue(xor, owner, Timeout::Default)
    }

    /// As [`issue`](Self::issue), with a timeout of its own.
    ///
    /// ```
    /// # use expiry::{edge, AckTracker, Timeout};
    /// # use std::time::Duration;
    /// # let tracker = AckTracker::builder().build()?;
    /// tracker.issue_with(edge(), 42, Timeout::After(Duration::from_secs(300)))?; // a long one
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`issue`](Self::issue), and [`AckError::ZeroTimeout`], [`AckError::TimeoutTooLong`].
    #[inline]
    pub fn issue_with(
        &self,
        xor: u64,
        owner: u64,
        timeout: impl Into<Timeout>,
    ) -> Result<Root, AckError> {
        self.trees.issue(xor, owner, timeout.into())
    }

    /// Begins to track a root under an id that the caller chose. `xor` and `owner` are as for
    /// [`issue`](Self::issue). Acks that came before are counted in (after a jump of the clock by years, it polls first, as
    /// [`reset_timeout`](Self::reset_timeout) does).
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// let work = edge();
    /// tracker.init(4711, work, 42)?;
    /// assert_eq!(tracker.init(4711, work, 42), Err(AckError::Duplicate));
    /// assert_eq!(tracker.ack(4711, work)?, Ack::Completed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AckError::Duplicate`] if the id is in flight already, which leaves it as it is, and those of `issue`.
    #[inline]
    pub fn init(&self, id: u64, xor: u64, owner: u64) -> Result<(), AckError> {
        self.trees.init(id, xor, owner, Timeout::Default)
    }

    /// As [`init`](Self::init), with a timeout of its own.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// use std::time::Duration;
    ///
    /// tracker.init_with(4711, edge(), 42, Duration::from_secs(5))?;
    /// assert!(tracker.owned_by(42)[0].remaining <= Some(Duration::from_secs(6)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`init`](Self::init), and [`AckError::ZeroTimeout`], [`AckError::TimeoutTooLong`].
    #[inline]
    pub fn init_with(
        &self,
        id: u64,
        xor: u64,
        owner: u64,
        timeout: impl Into<Timeout>,
    ) -> Result<(), AckError> {
        self.trees.init(id, xor, owner, timeout.into())
    }

    /// Acks: `xor` is the id of the edge that is done with, XORed with the ids of those derived from it.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// let (work, derived) = (edge(), edge());
    /// let root = tracker.issue(work, 42)?;
    /// assert_eq!(tracker.ack(root, work ^ derived)?, Ack::Pending); // done, and something came of it
    /// assert_eq!(tracker.ack(root, derived)?, Ack::Completed);
    /// assert_eq!(tracker.ack(root, derived), Err(AckError::NotLive));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// * [`AckError::ZeroEdge`] if `xor` is zero.
    /// * [`AckError::NotLive`] if the root has ended: a late ack.
    /// * For a chosen root that is not known, [`AckError::EarlyFull`], [`AckError::Full`],
    ///   [`AckError::OutOfMemory`] and [`AckError::Closed`] if it cannot be held.
    #[inline]
    pub fn ack(&self, root: impl Into<RootId>, xor: u64) -> Result<Ack, AckError> {
        match root.into() {
            RootId::Issued(root) => self.trees.ack_issued(root, xor),
            RootId::Chosen(id) => self.trees.ack_chosen(id, xor),
        }
    }

    /// Fails a root: whatever else is outstanding, it ends now.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// let root = tracker.issue(edge(), 42)?;
    /// tracker.fail(root)?;
    /// assert_eq!(tracker.fail(root), Err(AckError::NotLive)); // one outcome
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack).
    #[inline]
    pub fn fail(&self, root: impl Into<RootId>) -> Result<Done, AckError> {
        self.fail_with(root.into(), None)
    }

    /// As [`fail`](Self::fail), and the outcome says who did it.
    ///
    /// ```
    /// use expiry::{edge, AckTracker, Outcome, Reason};
    ///
    /// let tracker = AckTracker::builder()
    ///     .on_outcome(|outcome: &Outcome| assert_eq!(outcome.reason, Reason::Failed { by: Some(3) }))
    ///     .build()?;
    /// let root = tracker.issue(edge(), 42)?;
    /// tracker.fail_by(root, 3)?; // worker 3
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack).
    #[inline]
    pub fn fail_by(&self, root: impl Into<RootId>, by: u64) -> Result<Done, AckError> {
        self.fail_with(root.into(), Some(by))
    }

    fn fail_with(&self, root: RootId, by: Option<u64>) -> Result<Done, AckError> {
        match root {
            RootId::Issued(root) => self.trees.fail_issued(root, by),
            RootId::Chosen(id) => self.trees.fail_chosen(id, by),
        }
    }

    /// Gives a root the *tracker's* timeout again, from now on. A timeout of the root's own is not remembered: for those
    /// use [`reset_timeout_to`](Self::reset_timeout_to). When this returns `Ok(Done::Now)` the root is live and cannot
    /// expire by its old deadline.
    ///
    /// Where the clock has jumped by 2^38 intervals (8 years at 1 ms) since anything polled, it polls first, or waits
    /// for whoever does: a renewed deadline could not be told from one that has long passed.
    ///
    /// ```
    /// use expiry::{edge, AckTracker, ManualClock};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let tracker = AckTracker::builder()
    ///     .timeout(Duration::from_secs(10))
    ///     .clock(clock.clone())
    ///     .build_manual()?;
    /// let root = tracker.issue(edge(), 42)?;
    /// clock.advance(Duration::from_secs(8));
    /// tracker.reset_timeout(root)?;
    /// clock.advance(Duration::from_secs(8));
    /// tracker.poll(1000);
    /// assert_eq!(tracker.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack).
    #[doc(alias = "heartbeat")]
    #[doc(alias = "renew")]
    #[doc(alias = "touch")]
    pub fn reset_timeout(&self, root: impl Into<RootId>) -> Result<Done, AckError> {
        self.reset_timeout_to(root, Timeout::Default)
    }

    /// Gives a root another timeout, from now on; it may be shorter.
    ///
    /// Of calls that overlap, a delayed one does not take back what another one was told: a call
    /// lowers a deadline only if it asked for a shorter timeout, and first looked at the root after
    /// the deadline was set. Otherwise it counts as the earlier one.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// use std::time::Duration;
    ///
    /// let root = tracker.issue(edge(), 42)?;
    /// tracker.reset_timeout_to(root, Duration::from_secs(600))?; // it said that it needs longer
    /// assert!(tracker.owned_by(42)[0].remaining > Some(Duration::from_secs(60)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack), and [`AckError::ZeroTimeout`], [`AckError::TimeoutTooLong`].
    pub fn reset_timeout_to(
        &self,
        root: impl Into<RootId>,
        timeout: impl Into<Timeout>,
    ) -> Result<Done, AckError> {
        let timeout = timeout.into();
        match root.into() {
            RootId::Issued(root) => self.trees.reset_issued(root, timeout),
            RootId::Chosen(id) => self.trees.reset_chosen(id, timeout),
        }
    }

    /// Issues a root for each `(xor, owner)`, in order, and appends them to `into`. One clock reading for all.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// let edges: Vec<u64> = (0..100).map(|_| edge()).collect();
    /// let items: Vec<(u64, u64)> = edges.iter().map(|&edge| (edge, 42)).collect(); // with their owner
    /// let mut roots = Vec::new();
    /// tracker.issue_batch(&items, &mut roots)?;
    /// for (root, edge) in roots.into_iter().zip(edges) {
    ///     assert_eq!(tracker.ack(root, edge)?, Ack::Completed);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`issue`](Self::issue); the roots issued until then are in `into`.
    pub fn issue_batch(&self, items: &[(u64, u64)], into: &mut Vec<Root>) -> Result<(), AckError> {
        self.trees.issue_batch(items, Timeout::Default, into)
    }

    /// As [`issue_batch`](Self::issue_batch), with a timeout of their own.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// use expiry::Timeout;
    ///
    /// let mut roots = Vec::new();
    /// tracker.issue_batch_with(&[(edge(), 1), (edge(), 2)], Timeout::Never, &mut roots)?;
    /// assert_eq!(tracker.owned_by(1)[0].remaining, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`issue_with`](Self::issue_with); the roots issued until then are in `into`.
    pub fn issue_batch_with(
        &self,
        items: &[(u64, u64)],
        timeout: impl Into<Timeout>,
        into: &mut Vec<Root>,
    ) -> Result<(), AckError> {
        self.trees.issue_batch(items, timeout.into(), into)
    }

    /// Inits each `(id, xor, owner)` and calls `each` with its place and result. The
    /// memory of a group is fetched before its first member is looked at.
    ///
    /// ```
    /// # use expiry::{edge, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// let mut refused = Vec::new();
    /// tracker.init_batch(&[(7, edge(), 42), (7, edge(), 42)], |at, result| {
    ///     if let Err(error) = result {
    ///         refused.push((at, error));
    ///     }
    /// });
    /// assert_eq!(refused, [(1, AckError::Duplicate)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn init_batch(
        &self,
        items: &[(u64, u64, u64)],
        each: impl FnMut(usize, Result<(), AckError>),
    ) {
        self.trees.init_batch(items, Timeout::Default, each);
    }

    /// Acks each `(root, xor)` and calls `each` with its place and result. The memory of a group is
    /// fetched before its first member is looked at, which hides most of the latency of a large table.
    ///
    /// ```
    /// use expiry::{edge, AckTracker};
    ///
    /// let tracker = AckTracker::builder().build()?;
    /// let edges = [edge(), edge(), edge()];
    /// let mut roots = Vec::new();
    /// tracker.issue_batch(&edges.map(|edge| (edge, 42)), &mut roots)?;
    /// let acks: Vec<_> = roots.into_iter().zip(edges).collect();
    /// tracker.ack_batch(&acks, |at, acked| assert!(acked.is_ok(), "ack {at} came too late"));
    /// assert!(tracker.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ack_batch<R: AckMany>(
        &self,
        items: &[(R, u64)],
        each: impl FnMut(usize, Result<Ack, AckError>),
    ) {
        R::ack_many(self, items, each);
    }

    /// Ends what is due, with at most about `budget` steps of work. For trackers built without a
    /// reaper; harmless on others. Never waits: any number of threads may poll, each leaves out the shards that another one is
    /// at. A poll in a handler finds nothing.
    ///
    /// ```
    /// use expiry::{edge, AckTracker, ManualClock};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let tracker = AckTracker::builder()
    ///     .timeout(Duration::from_secs(30))
    ///     .clock(clock.clone())
    ///     .build_manual()?;
    /// tracker.issue(edge(), 42)?;
    /// let polled = tracker.poll(1000);
    /// assert!(!polled.more && polled.next <= Some(Duration::from_secs(31))); // nothing to do until then
    /// clock.advance(Duration::from_secs(31));
    /// tracker.poll(1000);
    /// assert_eq!(tracker.metrics().total.expired, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll(&self, budget: usize) -> Polled {
        let engine = &self.trees.engine;
        let now = engine.clock().now();
        let round = engine.poll_beside(now, budget.max(1), &*self.trees);
        #[cfg(feature = "async")]
        if engine.is_refusing() {
            engine.parted();
        }
        Polled {
            more: round.more || round.busy,
            next: round.next.map(|tick| engine.ticks().until(now, tick)),
        }
    }

    /// For models: the clock has come to `tick`.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn timer_fires(&self, tick: u64) {
        self.trees.engine.timer_fires(tick);
    }

    /// For models: how many chunks are on the first shard's ring, and which ones have their memory.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn chunks(&self) -> (u32, Vec<u32>) {
        self.trees.engine.chunks()
    }

    /// The longest timeout that the [interval](Self::interval) allows: 2^39 intervals, about.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// use std::time::Duration;
    ///
    /// assert!(tracker.longest_timeout() > Duration::from_secs(3600 * 24 * 365));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn longest_timeout(&self) -> Duration {
        self.trees.engine.ticks().longest()
    }

    /// The granularity of its deadlines.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// use std::time::Duration;
    ///
    /// assert_eq!(tracker.interval(), Duration::from_millis(100)); // a 300th of the timeout
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.trees.engine.ticks().interval()
    }

    /// Waits for room, where the [capacity](AckTrackerBuilder::capacity) is bounded: see [`Room`](crate::Room), which has an
    /// example. What [`AckError::EarlyFull`] refuses it does not wait for.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{edge, AckTracker};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let tracker = AckTracker::builder().capacity(1).build_manual()?;
    /// let first = tracker.issue(edge(), 42)?;
    /// let enter = async {
    ///     tracker.room().await?; // until the first one has ended
    ///     tracker.issue(edge(), 43)
    /// };
    /// let (second, _) = tokio::join!(enter, async { tracker.fail(first) });
    /// assert!(second.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn room(&self) -> crate::Room<'_> {
        crate::Room::new(self.trees.engine.door())
    }

    /// Stops the tracker: refuses new roots, settles the `fate` of those in flight, stops the reaper and waits for it.
    /// Returns the roots in flight under [`Fate::Return`], and nothing otherwise.
    ///
    /// Every root whose `issue` or `init` has returned `Ok` has had its outcome when this returns, or is in the
    /// returned list. Operations under way in other threads end as if they had come just before or just after;
    /// later ones are refused with [`AckError::Closed`] or [`AckError::NotLive`]. (A root whose `issue` or `init` is under way may be
    /// cancelled at once, whatever the limit of [`Fate::Drain`].) A second shutdown finds
    /// nothing to do.
    ///
    /// Blocks. A channel under [`WhenFull::Wait`] is treated as under [`WhenFull::Spill`] from here on. Not for calling
    /// from a handler: there it only refuses new roots, and if the handler was called by the reaper, or in a poll, asks the reaper to
    /// stop and to cancel what is left. That is also what it does where a waker calls it that was called there, or that of a task that waits
    /// for room, if there is a channel.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// use expiry::Fate;
    ///
    /// tracker.issue(edge(), 42)?;
    /// let left = tracker.shutdown(Fate::Return);
    /// assert_eq!((left[0].owner, left.len()), (42, 1));
    /// assert_eq!(tracker.issue(edge(), 43), Err(AckError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, fate: Fate) -> Vec<Outcome> {
        self.trees.engine.refuse();
        if self.trees.engine.is_driving() && self.reaper().is_none() {
            // A handler that a poll or a shutdown of this thread has called: it cannot wait for itself.
            return Vec::new();
        }
        self.trees.deliver.close();
        if let Some(reaper) = self.reaper() {
            // It cannot wait for itself, nor for a round that waits for this call; and when it stops, and closes the engine, it waits until
            // this thread has told.
            let is_awaited = reaper.is_current() || self.trees.engine.is_driving();
            if is_awaited || self.trees.is_telling() {
                reaper.ask();
                self.trees.engine.wake_reaper();
                return Vec::new();
            }
        } else if self.trees.is_telling() {
            // There is nobody to be asked.
            return Vec::new();
        }
        if let Fate::Drain(limit) = fate {
            let began = std::time::Instant::now();
            while !self.is_drained() && began.elapsed() < limit {
                if self.reaper().is_none() {
                    self.poll(4096);
                }
                std::thread::sleep(Duration::from_millis(1).min(limit));
            }
        }
        let mut returned = Vec::new();
        if fate == Fate::Return {
            self.trees
                .close(Some(&mut |outcome| returned.push(outcome)));
        } else {
            self.trees.close(None);
        }
        if let Some(reaper) = self.reaper() {
            reaper.join(&self.trees.engine);
        }
        #[cfg(feature = "async")]
        if fate == Fate::Return {
            // Of a future that was dropped, or has yet to end.
            returned.append(&mut self.trees.returned.take());
        }
        returned
    }

    /// The reaper, if there is one in this process.
    fn reaper(&self) -> Option<&Reaper> {
        Reaper::here(self.reaper.as_ref())
    }

    fn is_drained(&self) -> bool {
        self.trees.engine.is_vacant(&*self.trees)
    }
}

/// 34 years, which every system's clock has to come.
#[cfg(feature = "async")]
const FAR: Duration = Duration::from_secs(1 << 30);

#[cfg(feature = "async")]
impl AckTracker {
    /// As [`shutdown`](Self::shutdown), without blocking the thread: new roots are refused when this returns, and the future ends when all
    /// is done. What there is to do, draining and cancelling, the reaper does: handlers are told on its thread. With
    /// [`Fate::Drain`] it looks every millisecond whether anything is left.
    ///
    /// The shutdown goes on if the future is dropped; another call waits for the same end. Of several limits the shortest counts, and another
    /// fate than `Drain` ends the draining. Roots under [`Fate::Return`] go to the first future that ends, or to a blocking `shutdown` with that
    /// fate; of two at once each may have some of them.
    ///
    /// A tracker without a reaper has to be polled on while it drains, by [`poll`](Self::poll), each of which wakes the future (which polls, too);
    /// the limit is looked at then. It cancels, or returns, what is left in this call, or in the future's last poll, and waits for other polls there.
    /// If the future is dropped before that, roots are refused and drain, and another shutdown cancels what is left.
    ///
    /// A handler or a waker may call it, as it may call [`shutdown`](Self::shutdown), but not block until it is done, which waits for them.
    ///
    /// ```
    /// use expiry::{edge, AckError, AckTracker, Fate};
    /// use std::time::Duration;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let tracker = std::sync::Arc::new(AckTracker::builder().build()?);
    /// let (id, edge) = (tracker.issue(7, 42)?, 7);
    /// let worker = tokio::spawn({
    ///     let tracker = tracker.clone();
    ///     async move { tracker.ack(id, edge) }
    /// });
    /// let drained = tracker.shutdown_async(Fate::Drain(Duration::from_secs(10)));
    /// assert_eq!(tracker.issue(1, 43), Err(AckError::Closed)); // from here on
    /// drained.await; // when the worker has acked
    /// assert!(worker.await?.is_ok() && tracker.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn shutdown_async(&self, fate: Fate) -> impl Future<Output = Vec<Outcome>> + Send + '_ {
        let engine = &self.trees.engine;
        engine.refuse();
        self.trees.deliver.close();
        if fate == Fate::Return {
            self.trees.returned.want();
        }
        let until = match (self.reaper(), fate) {
            (Some(reaper), Fate::Drain(limit)) => {
                reaper.ask_to_drain(engine, limit);
                None
            }
            (Some(reaper), _) => {
                reaper.ask();
                engine.wake_reaper();
                None
            }
            (None, Fate::Drain(limit)) => {
                let now = Instant::now();
                now.checked_add(limit).or_else(|| now.checked_add(FAR))
            }
            (None, _) => {
                self.close_by_hand();
                None
            }
        };
        async move {
            match self.reaper() {
                Some(reaper) => reaper.ended(engine).await,
                None => engine.until_parted(|| self.has_ended_by_hand(until)).await,
            }
            self.trees.returned.take()
        }
    }

    /// Whether a tracker without a reaper is shut down, draining done.
    fn has_ended_by_hand(&self, until: Option<Instant>) -> Option<()> {
        let engine = &self.trees.engine;
        let Some(until) = until else {
            return Some(());
        };
        engine.poll_beside(engine.clock().now(), 4096, &*self.trees);
        let over = self.is_drained() || Instant::now() >= until;
        over.then(|| self.close_by_hand())
    }

    fn close_by_hand(&self) {
        // In a handler, or a waker, only asked for, as by `shutdown`.
        if !self.trees.engine.is_driving() && !self.trees.is_telling() {
            self.trees.last();
        }
    }
}

impl Drop for AckTracker {
    /// As [`shutdown`](Self::shutdown) with [`Fate::Cancel`].
    fn drop(&mut self) {
        self.shutdown(Fate::Cancel);
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Root {}
    impl Sealed for u64 {}
}

/// Kinds of roots that can be acked in batches: [`Root`] and `u64`.
///
/// # Examples
///
/// ```
/// use expiry::{edge, AckMany, AckTracker};
///
/// /// How many of these came too late.
/// fn late<R: AckMany>(tracker: &AckTracker, acks: &[(R, u64)]) -> usize {
///     let mut late = 0;
///     tracker.ack_batch(acks, |_, acked| late += usize::from(acked.is_err()));
///     late
/// }
///
/// let tracker = AckTracker::builder().build_manual()?;
/// let (one, other) = (edge(), edge());
/// let issued = tracker.issue(one, 42)?;
/// let chosen = 7_u64;
/// tracker.init(chosen, other, 42)?;
/// assert_eq!((late(&tracker, &[(issued, one)]), late(&tracker, &[(chosen, other)])), (0, 0));
/// assert_eq!(late(&tracker, &[(issued, one)]), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait AckMany: sealed::Sealed + Sized {
    #[doc(hidden)]
    fn ack_many(
        tracker: &AckTracker,
        items: &[(Self, u64)],
        each: impl FnMut(usize, Result<Ack, AckError>),
    );
}

impl AckMany for Root {
    fn ack_many(
        tracker: &AckTracker,
        items: &[(Self, u64)],
        mut each: impl FnMut(usize, Result<Ack, AckError>),
    ) {
        const GROUP: usize = 16;
        for (group, items) in items.chunks(GROUP).enumerate() {
            for (root, _) in items {
                tracker.trees.prefetch_issued(*root);
            }
            for (at, &(root, xor)) in items.iter().enumerate() {
                each(group * GROUP + at, tracker.trees.ack_issued(root, xor));
            }
        }
    }
}

impl AckMany for u64 {
    fn ack_many(
        tracker: &AckTracker,
        items: &[(Self, u64)],
        each: impl FnMut(usize, Result<Ack, AckError>),
    ) {
        tracker.trees.ack_chosen_batch(items, each);
    }
}
