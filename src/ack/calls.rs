//! The calls on one root: begin, ack, fail, and renew.

use super::{Ack, AckError, AckTracker, Done, Outcome, Root, RootId};
use crate::error::TokenError;
use crate::time::Lifetime;

impl AckTracker {
    /// Begins to track a root and issues its id. `xor` is the XOR of the ids of its first edges. A
    /// root without edges, with 0, completes at once. `owner` comes back with the outcome.
    ///
    /// # Errors
    ///
    /// [`AckError::Full`], [`AckError::OutOfMemory`], [`AckError::Closed`].
    #[inline]
    pub fn issue(&self, xor: u64, owner: u64) -> Result<Root, AckError> {
        Ok(self.trees.issue(xor, owner, (), Lifetime::Default)?)
    }

    /// Issues a root that has a timeout of its own; otherwise as [`issue`](Self::issue). A timeout
    /// that is zero or too long is refused with [`AckError::Lifetime`].
    #[inline]
    pub fn issue_for(
        &self,
        xor: u64,
        owner: u64,
        timeout: impl Into<Lifetime>,
    ) -> Result<Root, AckError> {
        Ok(self.trees.issue(xor, owner, (), timeout.into())?)
    }

    /// Begins to track a root under an id that the caller chose. `xor` and `owner` are as for
    /// [`issue`](Self::issue). Acks that came before count.
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
    /// [`AckError::Duplicate`] if the id is in flight already; that root is left as it is. And the
    /// errors of `issue`.
    #[inline]
    pub fn init(&self, id: u64, xor: u64, owner: u64) -> Result<(), AckError> {
        Ok(self.trees.init(id, xor, owner, (), Lifetime::Default)?)
    }

    /// Begins a root that has a timeout of its own; otherwise as [`init`](Self::init). A timeout
    /// that is zero or too long is refused with [`AckError::Lifetime`].
    #[inline]
    pub fn init_for(
        &self,
        id: u64,
        xor: u64,
        owner: u64,
        timeout: impl Into<Lifetime>,
    ) -> Result<(), AckError> {
        Ok(self.trees.init(id, xor, owner, (), timeout.into())?)
    }
}

impl<T: Send + 'static> AckTracker<T> {
    /// Issues a root with a token, which comes back in the outcome; otherwise as
    /// [`issue`](AckTracker::issue). `timeout` is a `Duration`, an `Instant` or a [`Lifetime`].
    ///
    /// # Errors
    ///
    /// [`TokenError`] gives the token back, with the errors of
    /// [`issue_for`](AckTracker::issue_for).
    #[inline]
    pub fn issue_with_token(
        &self,
        xor: u64,
        owner: u64,
        token: T,
        timeout: impl Into<Lifetime>,
    ) -> Result<Root, TokenError<T>> {
        self.trees.issue(xor, owner, token, timeout.into())
    }

    /// Begins a root with a token, which comes back in the outcome; otherwise as
    /// [`init`](AckTracker::init). If the root has failed before, this call delivers the outcome,
    /// with the token. `timeout` is a `Duration`, an `Instant` or a [`Lifetime`].
    ///
    /// # Errors
    ///
    /// [`TokenError`] gives the token back, with the errors of [`init_for`](AckTracker::init_for).
    #[inline]
    pub fn init_with_token(
        &self,
        id: u64,
        xor: u64,
        owner: u64,
        token: T,
        timeout: impl Into<Lifetime>,
    ) -> Result<(), TokenError<T>> {
        self.trees.init(id, xor, owner, token, timeout.into())
    }

    /// Acks: `xor` is the id of the edge that is done, XORed with the ids of the edges derived from
    /// it.
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
    /// # Errors
    ///
    /// As [`ack`](Self::ack).
    #[inline]
    pub fn fail(&self, root: impl Into<RootId>) -> Result<Done, AckError> {
        self.fail_with(root.into(), None)
    }

    /// Fails a root, and names `by` as the culprit in its outcome; otherwise as
    /// [`fail`](Self::fail). The outcome names none if the failure comes before the root's init, or
    /// meets it halfway.
    #[inline]
    pub fn fail_by(&self, root: impl Into<RootId>, by: u64) -> Result<Done, AckError> {
        self.fail_with(root.into(), Some(by))
    }

    /// Fails an issued root, and returns the outcome instead of delivering it.
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack).
    #[doc(hidden)] // for `expiry-topology`
    pub fn fail_undelivered(&self, root: Root) -> Result<Outcome<T>, AckError> {
        self.trees.fail_undelivered(root)
    }

    fn fail_with(&self, root: RootId, by: Option<u64>) -> Result<Done, AckError> {
        match root {
            RootId::Issued(root) => self.trees.fail_issued(root, by),
            RootId::Chosen(id) => self.trees.fail_chosen(id, by),
        }
    }

    /// Gives a root the *tracker's* timeout again, from now on. The tracker does not remember a
    /// timeout of the root's own: for those use [`reset_timeout_for`](Self::reset_timeout_for).
    /// When this returns `Ok(Done::Now)` the root is live and cannot expire by its old deadline.
    ///
    /// If the clock has jumped by 2^38 intervals (8 years at 1 ms) or more since the last poll, the
    /// call may have to poll first, or wait for the thread that does.
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
    #[doc(alias("heartbeat", "renew", "touch"))]
    pub fn reset_timeout(&self, root: impl Into<RootId>) -> Result<Done, AckError> {
        self.reset_timeout_for(root, Lifetime::Default)
    }

    /// Gives a root another timeout, from now on; it may be shorter.
    ///
    /// If calls overlap, a delayed call does not take back the deadline that another one has
    /// returned for. A call lowers a deadline only if it asked for a shorter timeout, and first
    /// looked at the root after the deadline was set. Otherwise it counts as the earlier one.
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack), and [`AckError::Lifetime`].
    pub fn reset_timeout_for(
        &self,
        root: impl Into<RootId>,
        timeout: impl Into<Lifetime>,
    ) -> Result<Done, AckError> {
        let timeout = timeout.into();
        match root.into() {
            RootId::Issued(root) => self.trees.reset_issued(root, timeout),
            RootId::Chosen(id) => self.trees.reset_chosen(id, timeout),
        }
    }
}
