//! How sessions end.

use super::{SessionError, SessionId, SessionInfo, SessionTracker};
use crate::core::lease::State;
use crate::keyed::given::Item;
use crate::keyed::store::RemovalCause;
use crate::kit::polled::{poll_all, Polled};
use crate::kit::target::shutdowns;
use crate::time::NEVER;
use std::time::Duration;

impl<T: Send + 'static> SessionTracker<T> {
    /// Returns all sessions that have expired, in no order. Any number of threads may poll: they
    /// share the work, and each session is returned to one of them. Where there is a listener or a
    /// channel, that gets them, and this returns none.
    #[must_use]
    pub fn poll(&self) -> Vec<SessionInfo<T>> {
        poll_all(|into| self.poll_into(into, usize::MAX))
    }

    /// Ends what is due with at most about `budget` steps of work, and appends it to `into`;
    /// otherwise as [`poll`](Self::poll).
    pub fn poll_into(&self, into: &mut Vec<SessionInfo<T>>, budget: usize) -> Polled {
        self.shared.poll_into(into, budget)
    }

    /// How long until a session is due: zero if one is, `None` if none will be. As
    /// [`ExpiryQueue::wait_time`](crate::ExpiryQueue::wait_time).
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        self.shared.wait_time()
    }

    /// Begins to close a session: from now on no touch succeeds, and it does not expire. One of
    /// several closers gets `Ok`, and is to [remove](Self::remove) it; until a caller does, the
    /// session is [there](Self::closing).
    ///
    /// ```
    /// # use expiry::{SessionError, SessionId, SessionTracker};
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// # let sessions = SessionTracker::builder().build_manual()?;
    /// let id = sessions.create(ten, 7)?.id();
    /// sessions.set_closing(id)?;
    /// assert_eq!(sessions.set_closing(id), Err(SessionError::Closing)); // another one's business
    /// assert_eq!(sessions.touch(id), Err(SessionError::Closing));
    /// // ... what belongs to the session is released, and then:
    /// assert!(sessions.remove(id).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`]; [`SessionError::Closing`]: another caller has begun.
    pub fn set_closing(&self, id: SessionId) -> Result<(), SessionError> {
        let (pin, wanted) = (self.store.engine.pin(), self.wanted(&id));
        loop {
            let found = self.store.find(&pin, wanted).ok_or(SessionError::Unknown)?;
            if found.lease.is(State::Closing) {
                return Err(SessionError::Closing);
            }
            // The swap that a touch or an expiry would need.
            let closing = found.lease.with_state(State::Closing);
            if found.slot.swap_lease(found.lease, closing).is_ok() {
                return Ok(());
            }
        }
    }

    /// Ends a session, whether it lives or is being closed. Returns it, with its token, to one of
    /// several callers that remove it; `None` if there is none.
    pub fn remove(&self, id: SessionId) -> Option<SessionInfo<T>> {
        let (pin, wanted) = (self.store.engine.pin(), self.wanted(&id));
        let ended = self.store.remove(&pin, wanted)?;
        drop(pin);
        self.store.engine.admission.wake_owed();
        Some(SessionInfo::of(&self.shared, ended, RemovalCause::Removed, NEVER))
    }

    shutdowns! {
        "sessions", return SessionInfo<T>, by shared.store,
        /// Those that are being closed are among them.
    }
}
