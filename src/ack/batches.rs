//! The calls on many roots: one clock reading, and memory fetched ahead.

use super::{Ack, AckError, AckTracker, Root, RootId};
use crate::error::TokenError;
use crate::time::Lifetime;

impl AckTracker {
    /// Issues a root for each `(xor, owner)`, in order, and appends the roots to `into`. One clock
    /// reading serves all.
    ///
    /// # Errors
    ///
    /// As [`issue`](Self::issue); the roots issued until then are in `into`.
    pub fn issue_many(&self, items: &[(u64, u64)], into: &mut Vec<Root>) -> Result<(), AckError> {
        self.trees.issue_many(items, Lifetime::Default, into)
    }

    /// Issues many roots that have a timeout of their own; otherwise as
    /// [`issue_many`](Self::issue_many). A timeout that is zero or too long is refused with
    /// [`AckError::Lifetime`].
    pub fn issue_many_for(
        &self,
        items: &[(u64, u64)],
        timeout: impl Into<Lifetime>,
        into: &mut Vec<Root>,
    ) -> Result<(), AckError> {
        self.trees.issue_many(items, timeout.into(), into)
    }

    /// Inits each `(id, xor, owner)` and calls `each` with its place and result. The call fetches
    /// the memory of a group before it looks at the first member.
    ///
    /// ```
    /// # use expiry::{edge, AckError, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// let mut refused = Vec::new();
    /// tracker.init_many(&[(7, edge(), 42), (7, edge(), 42)], |at, result| {
    ///     if let Err(error) = result {
    ///         refused.push((at, error));
    ///     }
    /// });
    /// assert_eq!(refused, [(1, AckError::Duplicate)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn init_many(
        &self,
        items: &[(u64, u64, u64)],
        mut each: impl FnMut(usize, Result<(), AckError>),
    ) {
        let tokens = std::iter::repeat(());
        self.trees.init_many(items, tokens, Lifetime::Default, |at, done| {
            each(at, done.map_err(AckError::from));
        });
    }
}

impl<T: Send + 'static> AckTracker<T> {
    /// Inits many roots with a timeout of their own, and gives each the next of the `tokens`;
    /// otherwise as [`init_many`](AckTracker::init_many). If there are fewer tokens than `items`,
    /// the other items are left out.
    pub fn init_many_with_tokens(
        &self,
        items: &[(u64, u64, u64)],
        tokens: impl IntoIterator<Item = T>,
        timeout: impl Into<Lifetime>,
        each: impl FnMut(usize, Result<(), TokenError<T>>),
    ) {
        self.trees.init_many(items, tokens.into_iter(), timeout.into(), each);
    }

    /// Acks each `(root, xor)`, issued or chosen, and calls `each` with its place and result. The
    /// call fetches the memory of a group before it looks at the first member, which hides most of
    /// the latency of a large table.
    ///
    /// ```
    /// # use expiry::{edge, Ack, AckTracker};
    /// # let tracker = AckTracker::builder().build()?;
    /// let (one, other) = (edge(), edge());
    /// let root = tracker.issue(one ^ other, 42)?;
    /// let mut completed = 0;
    /// tracker.ack_many(&[(root, one), (root, other)], |_, acked| {
    ///     completed += usize::from(acked == Ok(Ack::Completed));
    /// });
    /// assert_eq!(completed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ack_many<R: Copy + Into<RootId>>(
        &self,
        items: &[(R, u64)],
        each: impl FnMut(usize, Result<Ack, AckError>),
    ) {
        self.trees.ack_many(items, each);
    }
}
