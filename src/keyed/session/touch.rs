//! Touches, and which ones are to be told to somebody else.
//!
//! # Collected touches (Q14)
//!
//! ```text
//!   touch                                         take_touched
//!   lease: LIVE(i, d) -> LIVE(i, d')  (swap)      take the whole pile         (swap)
//!   flag := true   (read-modify-write)            of each: flag := false      (read-modify-write)
//!   if it was false: onto the pile    (swap)               report the lease, read after that
//! ```
//!
//! A touch that finds the flag set leaves its session to be reported by whoever clears it, who then reads the lease that the
//! touch has made (Release and Acquire of the flag). One that comes after the clearing puts the session on the pile again. Only
//! who sets the flag puts it there, and only who has taken it from there clears the flag: so while the flag is set the session is
//! on the pile, on its way there, or in the hands of a taking, once; nothing is lost, and nothing told twice. What is on the pile
//! names one stay of an id: of a later one the flag is another.

use super::{Inner, Session, SessionError, SessionId, SessionTracker};
use crate::core::prefetch;
use crate::inject::{hit, Bug};
use crate::keyed::store::{Found, Place, Touched};
use std::time::Duration;

/// As many misses as a core has outstanding, and then some.
const GROUP: usize = 64;

impl SessionTracker {
    /// Renews a session: it expires when it has not been touched for its own timeout from now on.
    ///
    /// ```
    /// # use expiry::{SessionError, SessionId, SessionTracker};
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// # let sessions = SessionTracker::builder().build()?;
    /// let id = sessions.create(ten, 7)?.id();
    /// sessions.touch(id)?; // ten seconds from now
    /// assert_eq!(sessions.touch(SessionId(1)), Err(SessionError::Unknown));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`], [`SessionError::Closing`].
    pub fn touch(&self, id: SessionId) -> Result<(), SessionError> {
        self.touch_at(self.store.engine.hash(id.0), id, None)
    }

    /// As [`touch`](Self::touch), this once with another timeout, as near to it as can be [granted](Self::grant).
    ///
    /// ```
    /// # use expiry::{SessionError, SessionId, SessionTracker};
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// # let sessions = SessionTracker::builder().build()?;
    /// let id = sessions.create(ten, 7)?.id();
    /// sessions.touch_for(id, 6 * ten)?;
    /// assert!(sessions.get(id).unwrap().remaining > Some(ten));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    pub fn touch_for(&self, id: SessionId, timeout: Duration) -> Result<(), SessionError> {
        self.touch_at(self.store.engine.hash(id.0), id, Some(timeout))
    }

    /// As [`touch`](Self::touch), without the look-up.
    ///
    /// ```
    /// # use expiry::{SessionError, SessionId, SessionTracker};
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// # let sessions = SessionTracker::builder().build()?;
    /// let session = sessions.create(ten, 7)?;
    /// sessions.touch_by(&session)?; // no look-up
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    pub fn touch_by(&self, session: &Session) -> Result<(), SessionError> {
        self.touch_by_for(session, session.timeout)
    }

    /// As [`touch_for`](Self::touch_for), without the look-up.
    ///
    /// ```
    /// # use expiry::{SessionError, SessionId, SessionTracker};
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// # let sessions = SessionTracker::builder().build()?;
    /// let session = sessions.create(ten, 7)?;
    /// sessions.touch_by_for(&session, 6 * ten)?;
    /// assert!(sessions.get(session.id()).unwrap().remaining > Some(ten));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    pub fn touch_by_for(&self, session: &Session, timeout: Duration) -> Result<(), SessionError> {
        if self.touched.is_none() {
            return match self.store.touch_at(session.place, self.deadline(timeout)) {
                Touched::Renewed | Touched::Unchanged => Ok(()),
                Touched::Gone => Err(SessionError::Unknown),
                Touched::Closing => Err(SessionError::Closing),
            };
        }
        let _pin = self.store.pin(self.store.engine.hash(session.place.bits).0);
        loop {
            let found = self
                .store
                .stay(session.place)
                .ok_or(SessionError::Unknown)?;
            if let Some(touched) = self.renew(&found, timeout) {
                return touched;
            }
        }
    }

    /// As many [touches](Self::touch_for), and what became of each, in order. Memory is fetched for 64 at a time.
    ///
    /// ```
    /// # use expiry::{SessionError, SessionId, SessionTracker};
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// # let sessions = SessionTracker::builder().build()?;
    /// let id = sessions.create(ten, 7)?.id();
    /// let touched = sessions.touch_batch(&[(id, ten), (SessionId(1), ten)]);
    /// assert_eq!(touched, [Ok(()), Err(SessionError::Unknown)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn touch_batch(&self, items: &[(SessionId, Duration)]) -> Vec<Result<(), SessionError>> {
        let engine = &self.store.engine;
        let mut done = Vec::with_capacity(items.len());
        let mut places = [(0usize, 0u32); GROUP];
        for items in items.chunks(GROUP) {
            // Those inside it then cost next to nothing.
            let _pin = self.store.pin(0);
            for (place, (id, _)) in places.iter_mut().zip(items) {
                *place = engine.hash(id.0);
                engine.index(place.0).prefetch(place.1);
            }
            for place in &places[..items.len()] {
                let candidate = engine.index(place.0).candidate(place.1);
                if let Some(slot) = candidate.and_then(|seen| engine.slot(seen.slot())) {
                    prefetch(slot);
                }
            }
            let touch = |(&place, &(id, timeout))| self.touch_at(place, id, Some(timeout));
            done.extend(places.iter().zip(items).map(touch));
        }
        done
    }

    /// Touches the session whose id belongs `at` this shard and hash, by its own timeout if there is no other.
    #[inline]
    fn touch_at(
        &self,
        at: (usize, u32),
        id: SessionId,
        timeout: Option<Duration>,
    ) -> Result<(), SessionError> {
        let any = |_: &SessionId| true;
        let wanted = Inner::wanted_at(at, id.0, &any);
        let _pin = self.store.pin(at.0);
        loop {
            let found = self.store.find(wanted).ok_or(SessionError::Unknown)?;
            let timeout = timeout.unwrap_or_else(|| Self::seat(&found).timeout());
            if let Some(touched) = self.renew(&found, timeout) {
                return touched;
            }
        }
    }

    /// Renews a session that was found; `None` if it has changed meanwhile. The caller is pinned.
    #[inline]
    pub(super) fn renew(
        &self,
        found: &Found<'_>,
        timeout: Duration,
    ) -> Option<Result<(), SessionError>> {
        if !self.store.renew(found, self.deadline(timeout))?.is_alive() {
            return Some(Err(SessionError::Closing));
        }
        if self.touched.is_some() {
            let seat = Self::seat(found);
            if seat.is_global() && seat.set_touched() && !hit(Bug::LostReport) {
                self.collect(Self::place(found));
            }
        }
        Some(Ok(()))
    }

    /// Puts a session on the pile that [`take_touched`](Self::take_touched) takes.
    pub(super) fn collect(&self, place: Place) {
        if let Some(touched) = &self.touched {
            touched[self.store.engine.hash(place.bits).0].push(place);
        }
    }

    /// The global sessions that were touched since they were last taken, each once, and how long each has left to live: for a
    /// follower that tells its leader, which [touches](Self::touch_batch) them for so long. Several threads may take: each touch
    /// is told to one of them. In no order.
    ///
    /// No touch is lost: it is told by a taking under way, or by the next one. (A touch that meets the first one of the same
    /// session, in another thread, is told with that.) Sessions that are being closed by then, or have ended, are left out. Empty
    /// unless the tracker was built to [collect touches](super::SessionTrackerBuilder::collect_touches).
    ///
    /// ```
    /// use expiry::SessionTracker;
    /// use std::time::Duration;
    ///
    /// let follower = SessionTracker::builder().collect_touches().build()?;
    /// let leader = SessionTracker::builder().build()?;
    /// let session = follower.create(Duration::from_secs(10), 7)?;
    /// leader.track(session.id(), session.timeout(), 7)?;
    /// follower.touch_by(&session)?;
    /// let touched = follower.take_touched();
    /// assert_eq!((touched.len(), touched[0].0), (1, session.id()));
    /// assert_eq!(leader.touch_batch(&touched), [Ok(())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn take_touched(&self) -> Vec<(SessionId, Duration)> {
        let mut all = Vec::new();
        let now = self.store.engine.clock.now();
        for (shard, pile) in self
            .touched
            .iter()
            .flat_map(|piles| piles.iter())
            .enumerate()
        {
            let _pin = self.store.pin(shard);
            for place in pile.take() {
                let Some(found) = self.store.stay(place) else {
                    continue;
                };
                Self::seat(&found).clear_touched();
                // After the flag: the lease of every touch that has left the telling to this.
                let Some(found) = self.store.stay(place) else {
                    continue;
                };
                if let Some(left) = self.remaining(found.lease, now) {
                    all.push((SessionId(place.bits), left));
                }
            }
        }
        all
    }
}
