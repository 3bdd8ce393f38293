//! Looking at sessions.

use super::{Found, Inner, SessionId, SessionInfo, SessionTracker};
use crate::core::lease::{Lease, State};
use crate::keyed::StoreMetrics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

impl<T: 'static> Inner<T> {
    /// The tick at which what has this lease is due; `None` if it is being closed.
    pub(super) fn deadline_of(&self, lease: Lease) -> Option<u64> {
        let live = !lease.is(State::Closing);
        live.then(|| self.engine.deadlines.of(lease))
    }

    /// How long a session with this lease has left at `now`; `None` if it is being closed.
    pub(super) fn remaining(&self, lease: Lease, now: u64) -> Option<Duration> {
        let deadline = self.deadline_of(lease)?;
        Some(self.engine.deadlines.ticks().until(now, deadline))
    }
}

impl<T: Send + Sync + 'static> SessionTracker<Arc<T>> {
    /// The token of a session, also of one that is being closed: to push to its client, say.
    /// `None` if there is no such session, or the tracker does not [lend
    /// tokens](super::SessionTrackerBuilder::lend_tokens). The session may end meanwhile; the token
    /// stays as long as the caller keeps it. One look-up, and a reference count.
    ///
    /// ```
    /// use expiry::{NewSession, SessionTracker};
    /// use std::sync::{mpsc, Arc};
    /// use std::time::Duration;
    ///
    /// let sessions = SessionTracker::builder().with_tokens().lend_tokens().build()?;
    /// let (connection, client) = mpsc::channel();
    /// let new = NewSession::from(7).token(Arc::new(connection));
    /// let session = sessions.create(Duration::from_secs(10), new)?;
    /// if let Some(connection) = sessions.token(session.id()) {
    ///     connection.send("news")?;
    /// }
    /// assert_eq!(client.recv()?, "news");
    /// sessions.remove(session.id());
    /// assert!(sessions.token(session.id()).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn token(&self, id: SessionId) -> Option<Arc<T>> {
        let lend = self.shared.extra.lend?;
        // SAFETY: the tracker lends tokens, so only the seat's drop takes them. It comes after the
        // pin that the session was found under. `T` is `Sync`.
        self.with(id, |found| unsafe { Self::seat(found).token.with(lend) }).ok()
    }
}

impl<T: Send + 'static> SessionTracker<T> {
    fn look(&self, found: &Found<'_, T>, now: u64) -> SessionInfo {
        let (id, seat) = found.pair();
        seat.look(*id, self.store.remaining(found.lease, now))
    }

    /// Calls `f` with every session, each as it is just then, those included that are being closed;
    /// together they are no snapshot. A session that is there all the while is met exactly once,
    /// any other at most once. O(capacity). `f` may use the tracker.
    pub fn for_each(&self, mut f: impl FnMut(&SessionInfo)) {
        let now = self.store.engine.deadlines.now();
        self.store.each(|_pin, found| f(&self.look(found, now)));
    }

    /// Which sessions expire when: expiry time, counted from when the tracker was built, to
    /// sessions. Without those that are being closed, which do not expire. O(capacity); no
    /// snapshot.
    #[must_use]
    pub fn dump(&self) -> BTreeMap<Duration, Vec<SessionId>> {
        let interval = self.store.engine.deadlines.ticks().interval_nanos();
        let mut dump = BTreeMap::<_, Vec<SessionId>>::new();
        self.store.each(|_pin, found| {
            if let Some(deadline) = self.store.deadline_of(found.lease) {
                let expiry = Duration::from_nanos(deadline.saturating_mul(interval));
                let (id, _) = found.pair();
                dump.entry(expiry).or_default().push(*id);
            }
        });
        dump
    }

    /// The sessions that are being closed: [`set_closing`](Self::set_closing) has been called, and
    /// no caller has removed them yet. One that stays here was forgotten by the caller that was to
    /// remove it. O(capacity); no snapshot.
    #[must_use]
    pub fn closing(&self) -> Vec<SessionId> {
        let mut closing = Vec::new();
        self.for_each(|session| {
            if session.remaining.is_none() {
                closing.push(session.id);
            }
        });
        closing
    }

    /// The session, as it is just now. One whose time is up is there until the reaper, or a poll,
    /// has come to it.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<SessionInfo> {
        self.with(id, |found| self.look(found, self.store.engine.deadlines.now())).ok()
    }

    /// Whether there is such a session. One that is being closed is there.
    #[must_use]
    pub fn contains(&self, id: SessionId) -> bool {
        self.with(id, |_| ()).is_ok()
    }

    /// Number of sessions now, those included that are being closed, or that have expired and that
    /// no driver has come to yet. O(threads x shards).
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it has been doing. O(threads x shards).
    #[must_use]
    pub fn metrics(&self) -> StoreMetrics {
        self.shared.metrics()
    }
}
