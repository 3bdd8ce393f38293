//! How sessions end.

use super::{Ended, Inner, SessionError, SessionId, SessionInfo, SessionTracker};
use crate::core::lease::Lease;
use crate::keyed::store::{Touched, Wanted};
use crate::kit::lifecycle::{shut, Reaping, Shut};
use crate::kit::panics::goes_on;
use crate::kit::polled::Polled;
use crate::kit::target::shutdowns;
use std::time::Duration;

impl<T: Send + 'static> SessionTracker<T> {
    /// What has expired, all of it. Several threads may poll: they share the work, and each session
    /// is given to one of them. A poll may return what another one under way has found so far. In
    /// no order. Where there is a handler, it gets them instead, and this is empty.
    #[must_use]
    pub fn poll(&self) -> Vec<SessionInfo<T>> {
        self.store.target.poll_all(|into| self.poll_into(into, usize::MAX))
    }

    /// Ends what is due with at most about `budget` steps of work, and appends it to `into`;
    /// otherwise as [`poll`](Self::poll).
    pub fn poll_into(&self, into: &mut Vec<SessionInfo<T>>, budget: usize) -> Polled {
        let before = into.len();
        let found = || {
            into.extend(self.store.target.lapsed().into_iter().flatten());
            into.len() > before
        };
        self.store.engine.poll_shared(budget, &*self.store, found)
    }

    /// How long until a session is due: zero if one is, `None` if none will be. As
    /// [`ExpiryQueue::wait_time`](crate::ExpiryQueue::wait_time).
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        // Sessions that a touch or a creation has ended, or a poll that is about to take them.
        if self.store.target.has_lapsed() {
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
        Some(self.store.info(&ended, ended.lease()))
    }

    shutdowns! {
        "sessions", return SessionInfo<T>, by store,
        /// Those that are being closed are among them.
    }

    fn left(&self) -> Vec<SessionInfo<T>> {
        self.store.kept.take()
    }
}

impl<T: 'static> Inner<T> {
    /// What an ended session was.
    pub(super) fn info(&self, ended: &Ended<'_, T>, lease: Lease) -> SessionInfo<T> {
        // If the clock panics, no time remains: the caller has ended the session, and reports it.
        let now = goes_on(|| self.engine.deadlines.clock().now()).unwrap_or(u64::MAX);
        let remaining = self.remaining(lease, now);
        // SAFETY: each of this module's ends calls this once, on the thread that made it.
        unsafe { ended.value().end(*ended.key(), remaining, self.lend) }
    }
}

impl<T: 'static> Shut for Inner<T> {
    fn shut(&self, reaper: Option<&Reaping>) {
        self.target.close();
        shut(&self.engine, reaper, self);
    }
}
