//! The owner of a session, and how far the session is known.
//!
//! The owner is a word beside the lease. A thread that writes it reads the lease afterwards, by a
//! read-modify-write. If the swap that ends the session comes later, the ending thread sees this
//! owner. If it came before, the writing thread sees that it was too late. An upgrade changes a
//! word in which the ending thread sets a flag: so one of the two sees the other.

use super::seat::NOBODY;
use super::{Found, SessionError, SessionId, SessionTracker};
use crate::core::lease::State;
use crate::keyed::store::HELD;
use crate::sync::Ordering;

impl<T: Send + 'static> SessionTracker<T> {
    /// Whether the session lives and is `owner`'s. A session without an owner becomes `owner`'s. If
    /// a check meets a [move](Self::set_owner), or a closing, either may be first.
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`], [`SessionError::Closing`], [`SessionError::Moved`].
    pub fn check(&self, id: SessionId, owner: u64) -> Result<(), SessionError> {
        self.with(id, |found| {
            Self::lives(found)?;
            let word = &Self::seat(found).owner;
            // survives: one word, with nothing behind it. `written` asks for the lease after it by
            // a read-modify-write, which models notice. Holds for the swap and for `set_owner`,
            // too.
            let mut held = word.load(Ordering::Acquire);
            if held == NOBODY && owner != NOBODY {
                match word.compare_exchange(NOBODY, owner, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return Self::written(found),
                    Err(now) => held = now,
                }
            }
            if held == owner {
                Ok(())
            } else {
                Err(SessionError::Moved { owner: held })
            }
        })?
    }

    /// Gives the session to `owner` (0: none). Returns the owner before. A move that meets the
    /// closing of the session may come after it, and before its end.
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`], [`SessionError::Closing`]. If the session has ended just now, the
    /// thread that ended it may have got either owner.
    pub fn set_owner(&self, id: SessionId, owner: u64) -> Result<u64, SessionError> {
        self.with(id, |found| {
            Self::lives(found)?;
            let word = &Self::seat(found).owner;
            let before = word.swap(owner, Ordering::AcqRel);
            Self::written(found).map(|()| before)
        })?
    }

    /// Whether the session lived when it was found.
    fn lives(found: &Found<'_, T>) -> Result<(), SessionError> {
        match found.lease.state() {
            State::Closing => Err(SessionError::Closing),
            _ => Ok(()),
        }
    }

    /// Whether the thread that ends the session will see the owner that the caller has written.
    fn written(found: &Found<'_, T>) -> Result<(), SessionError> {
        let lease = found.slot.lease_in_order();
        if lease.is_in(HELD) && lease.generation() == found.lease.generation() {
            Ok(())
        } else {
            Err(SessionError::Unknown)
        }
    }

    /// Makes a local session global, also one that is being closed. Returns `false` if it was
    /// global before: of several calls that meet one returns `true`.
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`]; then the thread that ended it got a local session.
    pub fn upgrade(&self, id: SessionId) -> Result<bool, SessionError> {
        let upgraded = self.with(id, |found| Self::seat(found).upgrade())?;
        upgraded.ok_or(SessionError::Unknown)
    }

    /// Whether the session is global.
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`].
    pub fn is_global(&self, id: SessionId) -> Result<bool, SessionError> {
        self.with(id, |found| Self::seat(found).is_global())
    }
}
