//! How sessions end.

use super::{Ended, Inner, SessionError, SessionId, SessionInfo, SessionTracker};
use crate::core::lease::Lease;
use crate::keyed::store::{Touched, Wanted};
#[cfg(feature = "async")]
use crate::lifecycle::shut_soon;
use crate::lifecycle::{drain, shut, Reaper, Shut};
use crate::polled::Polled;
use std::time::Duration;

impl<T: Send + 'static> SessionTracker<T> {
    /// What has expired, all of it. Several threads may poll: they share the work, and each session
    /// is given to one of them. A poll may return what another one under way has found so far. In
    /// no order. Where there is a handler, it gets them instead, and this is empty.
    #[must_use]
    pub fn poll(&self) -> Vec<SessionInfo<T>> {
        let mut expired = Vec::new();
        while self.poll_into(&mut expired, usize::MAX).more {}
        expired
    }

    /// As [`poll`](Self::poll), with at most about `budget` steps of work.
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
        // Removed in a touch or a creation, or by a poll that is about to take it.
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
        let wanted = Wanted::new(self.hash(id), &id);
        self.store.set_closing(&pin, wanted).map_err(|found| match found {
            Touched::Gone => SessionError::Unknown,
            _ => SessionError::Closing,
        })
    }

    /// Ends a session, whether it lives or is being closed. Returns it, with its token, to one of
    /// several callers that remove it; `None` if there is none.
    pub fn remove(&self, id: SessionId) -> Option<SessionInfo<T>> {
        let pin = self.store.engine.pin();
        let wanted = Wanted::new(self.hash(id), &id);
        let (ended, lease) = self.store.remove(&pin, wanted)?;
        drop(pin);
        let info = self.store.info(&ended, lease);
        Some(info)
    }

    /// Waits for room, where the [capacity](super::SessionTrackerBuilder::capacity) is bounded: see
    /// [`CapacityReady`](crate::CapacityReady), which has an example. What is due makes room when a
    /// caller polls, or the reaper comes to it.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn room(&self) -> crate::CapacityReady<'_> {
        crate::CapacityReady::new(self.store.engine.admission.door())
    }

    /// Refuses new sessions, and waits until none is left, for at most `limit` of real time: they
    /// expire, or are removed. Returns whether none is left. Blocks; in a listener or a handler it
    /// does not wait. Polls meanwhile where there is no reaper. A [`shutdown`](Self::shutdown) ends
    /// what is left.
    pub fn drain(&self, limit: Duration) -> bool {
        drain(&self.store.engine, self.owner.reaper(), &*self.store, limit)
    }

    /// Ends all sessions, those included that are being closed, and stops the reaper, for which it
    /// waits. Returns what there was: a session that was created, and has been neither removed nor
    /// expired, is in here, once. From then on nothing can be created.
    ///
    /// In a handler or a waker that any store calls, this waits for no thread. Nothing can be
    /// created when it returns. The reaper, or the threads that drive the tracker at that moment,
    /// end the sessions soon after, and the next shutdown returns them.
    #[must_use = "what is not looked at is lost"]
    pub fn shutdown(&self) -> Vec<SessionInfo<T>> {
        self.store.kept.want();
        self.owner.shut();
        self.store.kept.take()
    }

    /// As [`shutdown`](Self::shutdown), without blocking the thread: nothing can be created when
    /// this returns. The reaper does the rest, and the future ends when it has, with the sessions
    /// that there were. A tracker that is polled has been shut down when this returns, and the
    /// future is ready.
    ///
    /// The shutdown goes on if the future is dropped; what there was then goes to the next one, be
    /// it this or [`shutdown`](Self::shutdown). Of two at once each may have some of it.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn shutdown_async(
        &self,
    ) -> impl std::future::Future<Output = Vec<SessionInfo<T>>> + Send + '_ {
        self.store.target.close();
        self.store.kept.want();
        let ended = shut_soon(&self.store.engine, self.owner.reaper(), &*self.store);
        async move {
            ended.await;
            self.store.kept.take()
        }
    }
}

impl<T: 'static> Inner<T> {
    /// What an ended session was.
    pub(super) fn info(&self, ended: &Ended<'_, T>, lease: Lease) -> SessionInfo<T> {
        let remaining = self.remaining(lease, self.engine.deadlines.clock().now());
        // SAFETY: each of this module's ends calls this once, on the thread that made it.
        unsafe { ended.value().end(*ended.key(), remaining) }
    }
}

impl<T: 'static> Shut for Inner<T> {
    fn shut(&self, reaper: Option<&Reaper>) {
        self.target.close();
        shut(&self.engine, reaper, self);
    }
}
