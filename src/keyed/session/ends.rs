//! How sessions end.

use super::{SessionError, SessionId, SessionInfo, SessionTracker};
use crate::core::lease::Lease;
use crate::inject::{hit, Bug};
use crate::keyed::store::Touched;
use crate::keyed::Ended;
use std::time::Duration;

impl SessionTracker {
    /// What has expired, all of it. Several threads may poll: they share the work, and each session is given to one of them. A poll
    /// may return what another one under way has found so far. In no order. Where there is a handler that is told instead, and
    /// this is empty.
    #[must_use]
    pub fn poll(&self) -> Vec<SessionInfo> {
        let mut expired = Vec::new();
        while self.poll_into(&mut expired, usize::MAX) {}
        expired
    }

    /// As [`poll`](Self::poll), with at most about `budget` steps of work. True if there is more to do.
    pub fn poll_into(&self, into: &mut Vec<SessionInfo>, budget: usize) -> bool {
        let before = into.len();
        let found = || {
            if let Some(expired) = &self.expired {
                into.extend(expired.take());
            }
            into.len() > before
        };
        self.store.engine.poll_shared(budget, &*self.store, found)
    }

    /// How long until a session is due: zero if one is, `None` if none will be. As
    /// [`ExpiryQueue::wait_time`](crate::ExpiryQueue::wait_time).
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        // Ended in a touch or a creation, or by a poll that is about to take it.
        if self
            .expired
            .as_ref()
            .is_some_and(|expired| !expired.is_empty())
        {
            return Some(Duration::ZERO);
        }
        self.store.engine.wait_time()
    }

    /// Begins to close a session: from now on no touch succeeds, and it does not expire. One of several closers is told `Ok`, and
    /// is to [remove](Self::remove) it; until somebody does it is [there](Self::closing).
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`]; [`SessionError::Closing`]: somebody else has begun.
    pub fn set_closing(&self, id: SessionId) -> Result<(), SessionError> {
        let any = |_: &SessionId| true;
        let wanted = self.store.wanted(id.0, &any);
        let _pin = self.store.pin(wanted.at.0);
        self.store.set_closing(wanted).map_err(|found| match found {
            Touched::Gone => SessionError::Unknown,
            _ => SessionError::Closing,
        })
    }

    /// Ends a session, whether it lives or is being closed. Returns it, to one of several who remove it; `None` if there is none.
    pub fn remove(&self, id: SessionId) -> Option<SessionInfo> {
        if hit(Bug::LostRemove) {
            return self.get(id);
        }
        let (ended, lease) = self.store.remove(id.0, |_| true)?;
        Some(self.ended(&ended, lease))
    }

    /// What it was, by who has ended it.
    fn ended(&self, ended: &Ended<SessionId, super::Seat>, lease: Lease) -> SessionInfo {
        let remaining = self.remaining(lease, self.store.engine.clock.now());
        ended.value().end(*ended.key(), remaining)
    }

    /// Ends all sessions, those included that are being closed, and stops the reaper, for which it waits. Returns what there was:
    /// a session that was created, and has been neither removed nor expired, is in here, once. From then on nothing can be created.
    ///
    /// In the handler it only stops the reaper, which then ends what there is, untold: look [at all](Self::for_each) first.
    #[must_use = "what is not looked at is lost"]
    pub fn shutdown(&self) -> Vec<SessionInfo> {
        let mut left = Vec::new();
        self.store.shut_with(self.reaper.as_ref(), |ended, lease| {
            left.push(self.ended(&ended, lease));
        });
        left
    }
}

impl Drop for SessionTracker {
    fn drop(&mut self) {
        self.store.shut(self.reaper.as_ref());
    }
}
