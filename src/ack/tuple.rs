//! Typed handles for tuples in one process: a second ack, or an emit after it, does not compile.

use super::error::AckError;
use super::outcome::{Ack, Root};
use super::{edge, AckTracker, OnDrop};
use crate::error::TokenError;
use crate::time::Lifetime;
use std::borrow::Borrow;
use std::marker::PhantomData;

/// One edge of one tree: this tuple's share in a root.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    root: Root,
    /// This tuple's own edge, XORed with those of the children it has emitted. Acking it settles
    /// its own and registers theirs in one step, so emitting costs no message.
    share: u64,
}

/// A tuple that is being processed: a node of one or more ack trees.
///
/// Made by [`root`](Self::root), [`emit`](Self::emit) and [`join`](Self::join), settled by
/// [`ack`](Self::ack) or [`fail`](Self::fail), each of which consumes it. So a second ack, an ack
/// after a fail, and an emit after the ack do not compile. As emitting takes `&mut self`, two
/// threads cannot lose each other's edges. A tuple may be sent to another thread.
///
/// `H` is how it holds the tracker: `&AckTracker`, or `Arc<AckTracker>` for threads that outlive
/// the scope (at the price of two reference counts per tuple; pass `tracker.clone()`, or
/// `&*tracker` to borrow). `T` is the tracker's token.
///
/// A tuple that is dropped unsettled does what the tracker was built to do ([`OnDrop`]): by default
/// its trees time out.
///
/// ```
/// use expiry::{Ack, AckTracker, Tuple};
///
/// let tracker = AckTracker::builder().build()?;
/// let mut line = Tuple::root(&tracker, 42)?;
/// let words = [line.emit(), line.emit()];
/// assert_eq!(line.ack()?, Ack::Pending);
/// let [first, second] = words;
/// assert_eq!(second.ack()?, Ack::Pending);
/// assert_eq!(first.ack()?, Ack::Completed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0382
/// # let tracker = expiry::AckTracker::builder().build_manual().unwrap();
/// let tuple = expiry::Tuple::root(&tracker, 1).unwrap();
/// tuple.ack().unwrap();
/// tuple.ack().unwrap(); // error: use of moved value
/// ```
///
/// ```compile_fail,E0382
/// # let tracker = expiry::AckTracker::builder().build_manual().unwrap();
/// let mut tuple = expiry::Tuple::root(&tracker, 1).unwrap();
/// tuple.ack().unwrap();
/// let child = tuple.emit(); // error: borrow of moved value
/// ```
#[must_use = "a tuple that is dropped unsettled times out, or fails"]
pub struct Tuple<H: Borrow<AckTracker<T>>, T: Send + 'static = ()> {
    tracker: H,
    first: Option<Anchor>,
    /// Further roots, of tuples that were joined. Empty, and unallocated, for all others.
    more: Vec<Anchor>,
    _tokens: PhantomData<fn(T)>,
}

impl<H: Borrow<AckTracker<T>>, T: Send + 'static> std::fmt::Debug for Tuple<H, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuple").field("roots", &self.roots().collect::<Vec<_>>()).finish()
    }
}

impl<H: Borrow<AckTracker>> Tuple<H> {
    /// Begins a tree: a message has come in. `owner` comes back with the outcome.
    ///
    /// # Errors
    ///
    /// As [`AckTracker::issue`].
    pub fn root(tracker: H, owner: u64) -> Result<Self, AckError> {
        Self::root_for(tracker, owner, Lifetime::Default)
    }

    /// Begins a tree that has a timeout of its own; otherwise as [`root`](Self::root). A timeout
    /// that is zero or too long is refused with [`AckError::Lifetime`].
    pub fn root_for(
        tracker: H,
        owner: u64,
        timeout: impl Into<Lifetime>,
    ) -> Result<Self, AckError> {
        Ok(Self::root_with_token(tracker, owner, (), timeout)?)
    }
}

impl<H: Borrow<AckTracker<T>>, T: Send + 'static> Tuple<H, T> {
    /// Begins a tree with a token, which comes back in the outcome; otherwise as
    /// [`root_for`](Tuple::root_for).
    ///
    /// # Errors
    ///
    /// As [`AckTracker::issue_with_token`].
    pub fn root_with_token(
        tracker: H,
        owner: u64,
        token: T,
        timeout: impl Into<Lifetime>,
    ) -> Result<Self, TokenError<T>> {
        let share = edge();
        let root = tracker.borrow().issue_with_token(share, owner, token, timeout)?;
        let mut tuple = Self::unanchored(tracker);
        tuple.first = Some(Anchor { root, share });
        Ok(tuple)
    }

    /// A tuple that belongs to no tree: acking it does nothing, and so do its children's.
    pub fn unanchored(tracker: H) -> Self {
        Tuple { tracker, first: None, more: Vec::new(), _tokens: PhantomData }
    }

    /// Derives a child from this tuple, in all its trees. No message, no atomic operation: the tree
    /// learns of the child when this tuple is acked.
    pub fn emit(&mut self) -> Self
    where
        H: Clone,
    {
        Tuple {
            tracker: self.tracker.clone(),
            first: self.first.as_mut().map(child),
            more: self.more.iter_mut().map(child).collect(),
            _tokens: PhantomData,
        }
    }

    /// Derives a child from several tuples: it belongs to the trees of all of them, which all wait
    /// for it. `None` if there are no parents. The parents must be of one tracker, the first one's:
    /// trees of another would never hear of the child, and time out.
    ///
    /// ```
    /// # let tracker = expiry::AckTracker::builder().build_manual().unwrap();
    /// use expiry::Tuple;
    ///
    /// let mut a = Tuple::root(&tracker, 1).unwrap();
    /// let mut b = Tuple::root(&tracker, 2).unwrap();
    /// let both = Tuple::join([&mut a, &mut b]).unwrap();
    /// a.ack().unwrap();
    /// b.ack().unwrap();
    /// assert_eq!(tracker.len(), 2); // both wait for it
    /// both.ack().unwrap();
    /// assert!(tracker.is_empty());
    /// ```
    #[doc(alias = "anchor")]
    pub fn join<'a>(parents: impl IntoIterator<Item = &'a mut Self>) -> Option<Self>
    where
        H: Clone + 'a,
    {
        let mut joined: Option<Self> = None;
        for parent in parents {
            let part = parent.emit();
            match &mut joined {
                None => joined = Some(part),
                Some(joined) => joined.absorb(part),
            }
        }
        joined
    }

    /// Takes over another tuple's anchors. Two shares in one root become one, their XOR.
    fn absorb(&mut self, mut other: Self) {
        for anchor in other.settle() {
            let same =
                self.first.iter_mut().chain(&mut self.more).find(|mine| mine.root == anchor.root);
            match same {
                Some(mine) => mine.share ^= anchor.share,
                // `first` is filled before `more` is, so the anchors stay in order.
                None => match self.first {
                    None => self.first = Some(anchor),
                    Some(_) => self.more.push(anchor),
                },
            }
        }
    }

    /// The roots of the trees that this tuple belongs to.
    pub fn roots(&self) -> impl Iterator<Item = Root> + '_ {
        self.first.iter().chain(&self.more).map(|anchor| anchor.root)
    }

    /// Acks this tuple, which has been processed: settles its edge and registers its children's, in
    /// each of its trees. Returns [`Ack::Completed`] if that completed any tree.
    ///
    /// # Errors
    ///
    /// [`AckError::NotLive`] if any of its trees had ended before: timed out, or failed by another
    /// tuple. The others are settled all the same.
    pub fn ack(mut self) -> Result<Ack, AckError> {
        let mut result = Ok(Ack::Pending);
        for anchor in self.settle() {
            match self.tracker.borrow().ack(anchor.root, anchor.share) {
                // A share of zero (children cancel out its own edge, one in 2^64) needs no ack.
                Err(AckError::ZeroEdge) => {}
                Err(error) => result = Err(error),
                Ok(Ack::Completed) if result.is_ok() => result = Ok(Ack::Completed),
                Ok(_) => {}
            }
        }
        result
    }

    /// Fails each of its trees at once: the tuple could not be processed.
    ///
    /// # Errors
    ///
    /// [`AckError::NotLive`] if any of them had ended before. The others fail all the same.
    pub fn fail(mut self) -> Result<(), AckError> {
        self.fail_all(None)
    }

    /// Fails the trees, and names `by` as the culprit in their outcomes; otherwise as
    /// [`fail`](Self::fail).
    pub fn fail_by(mut self, by: u64) -> Result<(), AckError> {
        self.fail_all(Some(by))
    }

    /// Gives each of its trees the *tracker's* timeout again, from now on; see
    /// [`AckTracker::reset_timeout`].
    ///
    /// # Errors
    ///
    /// [`AckError::NotLive`] if any of them had ended before. The others are renewed all the same.
    pub fn reset_timeout(&self) -> Result<(), AckError> {
        self.reset_timeout_for(Lifetime::Default)
    }

    /// Gives each of its trees another timeout, from now on.
    ///
    /// # Errors
    ///
    /// As [`reset_timeout`](Self::reset_timeout), and [`AckError::Lifetime`].
    pub fn reset_timeout_for(&self, timeout: impl Into<Lifetime>) -> Result<(), AckError> {
        let timeout = timeout.into();
        let reset = |root| self.tracker.borrow().reset_timeout_for(root, timeout).err();
        self.roots().filter_map(reset).last().map_or(Ok(()), Err)
    }

    fn fail_all(&mut self, by: Option<u64>) -> Result<(), AckError> {
        let anchors = self.settle();
        let fail = |anchor: Anchor| self.tracker.borrow().trees.fail_issued(anchor.root, by).err();
        anchors.filter_map(fail).last().map_or(Ok(()), Err)
    }

    fn settle(&mut self) -> impl Iterator<Item = Anchor> {
        self.first.take().into_iter().chain(std::mem::take(&mut self.more))
    }
}

impl<H: Borrow<AckTracker<T>>, T: Send + 'static> Drop for Tuple<H, T> {
    fn drop(&mut self) {
        if self.tracker.borrow().on_drop == OnDrop::Fail {
            let _ = self.fail_all(None);
        }
    }
}

/// A new edge from `parent`, added to its share.
fn child(parent: &mut Anchor) -> Anchor {
    let share = edge();
    parent.share ^= share;
    Anchor { root: parent.root, share }
}
