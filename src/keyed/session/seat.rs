//! What a session has beside its lease.

use super::SessionId;
use crate::sync::cell::Given;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// No owner.
pub(super) const NOBODY: u64 = 0;

/// Known to the whole ensemble, not to this server only.
const GLOBAL: u32 = 1;
/// Touched since a taking last cleared this.
const TOUCHED: u32 = 2;
/// The session has ended, and the thread that ended it has looked at the other flags.
const ENDED: u32 = 4;
/// The session has ended, and the seat still has its token: the end has handed out a clone.
const LENT: u32 = 8;

/// Clones the token of a tracker that [lends](super::SessionTrackerBuilder::lend_tokens) tokens.
pub(super) type Lend<T> = fn(&T) -> T;

/// A session's value: 24 bytes, and its token.
pub(crate) struct Seat<T> {
    pub(super) owner: AtomicU64,
    /// As granted, in nanoseconds.
    timeout: u64,
    flags: AtomicU32,
    /// The thread that ends the session takes it. Where the tracker lends tokens, that thread takes
    /// a clone, and the token goes with the slot, after all threads that may be looking at it.
    pub(super) token: Given<T>,
}

#[cfg(not(expiry_loom))]
const _: () = assert!(std::mem::size_of::<Seat<()>>() == 24);

impl<T> Seat<T> {
    pub(super) fn new(timeout: Duration, owner: u64, global: bool, token: T) -> Self {
        Seat {
            owner: AtomicU64::new(owner),
            timeout: crate::time::nanos(timeout),
            flags: AtomicU32::new(if global { GLOBAL } else { 0 }),
            token: Given::new(token),
        }
    }

    /// The token of a session that did not get in.
    pub(super) fn into_token(self) -> T {
        // SAFETY: no other thread has come to it. `LENT` is not set: the seat drops no token.
        unsafe { self.token.take() }
    }

    /// Takes the token, or a clone where the tracker lends tokens.
    ///
    /// # Safety
    ///
    /// The caller has ended the session, and does this once.
    pub(super) unsafe fn take_token(&self, lend: Option<Lend<T>>) -> T {
        let Some(lend) = lend else {
            // SAFETY: the caller's. Only the thread that has ended the session touches its token.
            return unsafe { self.token.take() };
        };
        // Relaxed: the drop comes after the pins of all threads that may have found the session.
        self.flags.fetch_or(LENT, Ordering::Relaxed);
        // SAFETY: the tracker lends tokens, and the caller owns the slot.
        unsafe { self.token.with(lend) }
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout)
    }

    pub(super) fn is_global(&self) -> bool {
        // survives: stronger than needed, here and in `upgrade`: one word, with nothing behind it.
        // Kept: a caller that sees an upgrade may expect to see what was done before it.
        self.flags.load(Ordering::Acquire) & GLOBAL != 0
    }

    /// Makes the session global. `None` if it has ended: one word says which of the two came first.
    /// Otherwise whether this call did.
    pub(super) fn upgrade(&self) -> Option<bool> {
        let before = self.flags.fetch_or(GLOBAL, Ordering::AcqRel);
        (before & ENDED == 0).then_some(before & GLOBAL == 0)
    }

    /// Notes that the session has been touched, for the next taking that clears the flag.
    pub(super) fn set_touched(&self) {
        // A read-modify-write even if the flag is set. Release pairs with `clear_touched`: the
        // taking that clears this flag reads the lease that the touch has made.
        self.flags.fetch_or(TOUCHED, Ordering::AcqRel);
    }

    /// Clears the flag. Returns whether it was set: then the caller reports the session. Touches
    /// from here on are for the next taking.
    pub(super) fn clear_touched(&self) -> bool {
        // Acquire pairs with `set_touched`: the taking sees the leases of all touches that set the
        // flag, or found it set.
        self.flags.fetch_and(!TOUCHED, Ordering::AcqRel) & TOUCHED != 0
    }

    /// What the session was in the end, with its token.
    ///
    /// # Safety
    ///
    /// The caller has ended the session, and does this once.
    pub(super) unsafe fn end(
        &self,
        id: SessionId,
        remaining: Option<Duration>,
        lend: Option<Lend<T>>,
    ) -> SessionInfo<T> {
        // survives: stronger than needed: one word. The swap of the lease shows the owner.
        let flags = self.flags.fetch_or(ENDED, Ordering::AcqRel);
        // SAFETY: the caller's.
        self.info(id, flags, remaining, unsafe { self.take_token(lend) })
    }

    pub(super) fn look(&self, id: SessionId, remaining: Option<Duration>) -> SessionInfo {
        // survives: stronger than needed: one word, with nothing behind it.
        self.info(id, self.flags.load(Ordering::Acquire), remaining, ())
    }

    fn info<U>(
        &self,
        id: SessionId,
        flags: u32,
        remaining: Option<Duration>,
        token: U,
    ) -> SessionInfo<U> {
        // survives: stronger than needed: the owner is one word, with nothing behind it.
        SessionInfo {
            id,
            owner: self.owner.load(Ordering::Acquire),
            timeout: self.timeout(),
            is_global: flags & GLOBAL != 0,
            remaining,
            token,
        }
    }
}

impl<T> Drop for Seat<T> {
    fn drop(&mut self) {
        if self.flags.load(Ordering::Relaxed) & LENT != 0 {
            // SAFETY: no thread can have found the session any more, and its end took a clone.
            drop(unsafe { self.token.take() });
        }
    }
}

/// A session, as it was when it was looked at, or when it ended.
///
/// ```
/// # use expiry::SessionTracker;
/// # use std::time::Duration;
/// # let sessions = SessionTracker::builder().build_manual()?;
/// let id = sessions.create(Duration::from_secs(10), expiry::NewSession::from(7).local())?.id();
/// assert!(sessions.upgrade(id)?);
/// sessions.set_closing(id)?;
/// let info = sessions.get(id).unwrap();
/// assert_eq!((info.id, info.owner, info.is_global), (id, 7, true));
/// assert_eq!(info.remaining, None); // it is being closed, and does not expire
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SessionInfo<T = ()> {
    /// Its id.
    pub id: SessionId,
    /// The owner; 0: none.
    pub owner: u64,
    /// Its own timeout, as granted.
    pub timeout: Duration,
    /// Whether it is known to the whole ensemble, not to this server only.
    pub is_global: bool,
    /// How long until it is due, zero if it is; `None` if it is being closed: it does not expire.
    pub remaining: Option<Duration>,
    /// The token that came with its creation, of a session that has ended. `()` of one that is
    /// looked at, whose token [`SessionTracker::token`](crate::SessionTracker::token) lends, and
    /// where the tracker has no tokens.
    pub token: T,
}
