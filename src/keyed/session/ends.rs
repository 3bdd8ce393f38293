//! How sessions end.

use super::{SessionError, SessionId, SessionInfo, SessionTracker};
use crate::keyed::store::{RemovalCause, Touched, Wanted};
use crate::kit::polled::Polled;
use crate::kit::target::shutdowns;
use crate::time::NEVER;
use std::time::Duration;

impl<T: Send + 'static> SessionTracker<T> {
    /// Returns all sessions that have expired, in no order. Any number of threads may poll: they
    /// share the work, and each session is returned to one of them. Where there is a listener or a
    /// channel, that gets them, and this returns none.
    #[must_use]
    pub fn poll(&self) -> Vec<SessionInfo<T>> {
        self.shared.target.poll_all(|into| self.poll_into(into, usize::MAX))
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
        // Sessions that a touch or a creation has ended.
        if self.shared.target.has_lapsed() {
            return Some(Duration::ZERO);
        }
        self.store.engine.wait_time()
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
        let pin = self.store.engine.pin();
        let wanted = Wanted::new(&self.store.engine.keys, self.hash(id), &id);
        self.store.set_closing(&pin, wanted).map_err(|found| match found {
            Touched::Gone => SessionError::Unknown,
            _ => SessionError::Closing,
        })
    }

    /// Ends a session, whether it lives or is being closed. Returns it, with its token, to one of
    /// several callers that remove it; `None` if there is none.
    pub fn remove(&self, id: SessionId) -> Option<SessionInfo<T>> {
        let pin = self.store.engine.pin();
        let wanted = Wanted::new(&self.store.engine.keys, self.hash(id), &id);
        let ended = self.store.remove(&pin, wanted)?;
        drop(pin);
        self.store.engine.admission.wake_owed();
        Some(self.shared.item(ended, RemovalCause::Removed, NEVER))
    }

    shutdowns! {
        "sessions", return SessionInfo<T>, by shared.store,
        /// Those that are being closed are among them.
    }
}
