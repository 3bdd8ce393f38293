//! Touches, and a report of them for another server.
//!
//! # Collected touches (Q14)
//!
//! ```text
//!   touch                                         take_touched, for each session that it meets
//!   lease: LIVE(i, d) -> LIVE(i, d')  (swap)      flag := false     (read-modify-write)
//!   flag := true         (read-modify-write)      if the flag was set: report the lease, read now
//! ```
//!
//! A touch of a global session swaps the lease first and sets the flag after that. A taking clears
//! the flag first and reads the lease after that. All changes of one flag have an order, so each
//! touch has one clearing that comes next after it:
//!
//! * That clearing finds the flag set, and its taking reports the session. No other clearing
//!   reports for this touch. So one taking reports each touch.
//! * That clearing reads the flag that the touch has set, or one that later touches have set again
//!   (Release and Acquire). So its taking reads the lease of this touch, or a newer one.
//! * A touch that finds the flag set leaves it set. The clearing that comes next reads a lease that
//!   is no older than this touch.
//! * Two takings may report one lease: the first comes between the swap of a touch and its flag,
//!   and the next finds the flag.
//!
//! No touch of a session that goes on living is lost. The next taking that begins after the touch
//! has returned meets the session: a walk meets each session that is there all the while exactly
//! once ([`SessionTracker::for_each`]). If that taking finds the flag cleared, another taking has
//! cleared it since the touch, and reports the touch.
//!
//! # What moves beside the walk
//!
//! * A session keeps its slot: the tracker replaces no value. Its flag lies in the slot, and goes
//!   where the session goes.
//! * Growth of the index moves words, not slots. The walk's cursor passes each hash once, and no
//!   migration moves a hash past the cursor (`core::index::walk`).
//! * An id that ends, and that a caller tracks again, gets a new [`Seat`](super::seat::Seat), with
//!   its flag clear. A touch of the old life has nothing to report any more. A touch of the new
//!   life sets the new flag. The walk may have passed the id by then: the next taking finds it.
//! * The walk is pinned while it has found a session, so no other session gets the slot between
//!   the clearing and the reading. A session that ends in between, or closes, is left out.

use super::{Found, Session, SessionError, SessionId, SessionTracker};
use crate::core::engine::BadTimeout;
use crate::keyed::store::{Life, Touched, Wanted};
use std::time::Duration;

/// More misses than a core has outstanding.
const GROUP: usize = 64;

/// Why a granted timeout is not refused.
const GRANTED: &str =
    "granted: not zero, not too long, which the builder has checked of both bounds";

impl<T: Send + 'static> SessionTracker<T> {
    /// Renews a session: it expires when it has not been touched for its own timeout from now on.
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`], [`SessionError::Closing`].
    #[doc(alias("heartbeat", "keep_alive", "renew"))]
    pub fn touch(&self, id: SessionId) -> Result<(), SessionError> {
        let hash = self.hash(id);
        self.catching_up(|| self.try_touch(hash, id, None))
    }

    /// Renews a session, this once with another timeout, as near to it as can be
    /// [granted](Self::grant); otherwise as [`touch`](Self::touch).
    pub fn touch_for(&self, id: SessionId, timeout: Duration) -> Result<(), SessionError> {
        let hash = self.hash(id);
        self.catching_up(|| self.try_touch(hash, id, Some(timeout)))
    }

    /// Renews a session by its handle, without the look-up; otherwise as [`touch`](Self::touch).
    pub fn touch_by(&self, session: &Session) -> Result<(), SessionError> {
        self.touch_by_for(session, session.timeout)
    }

    /// Renews a session by its handle, without the look-up, with another timeout; otherwise as
    /// [`touch_for`](Self::touch_for).
    pub fn touch_by_for(&self, session: &Session, timeout: Duration) -> Result<(), SessionError> {
        self.catching_up(|| {
            if !self.shared.extra.collects {
                return Ok(match self.store.touch_at(session.place, self.granted(timeout))? {
                    Touched::Renewed(_) | Touched::Unchanged => Ok(()),
                    Touched::Gone => Err(SessionError::Unknown),
                    Touched::Closing => Err(SessionError::Closing),
                });
            }
            let (pin, mut lost) = (self.store.engine.pin(), None);
            while let Some(found) = self.store.at(&pin, session.place) {
                if let Some(touched) = self.renew(&found, &mut lost, timeout)? {
                    return Ok(touched);
                }
            }
            Ok(Err(SessionError::Unknown))
        })
    }

    /// [Touches](Self::touch_for) many sessions, and returns what became of each, in order. Memory
    /// is fetched for 64 at a time.
    pub fn touch_many(&self, items: &[(SessionId, Duration)]) -> Vec<Result<(), SessionError>> {
        let engine = &self.store.engine;
        let (mut group, mut done) = (Vec::new(), Vec::with_capacity(items.len()));
        let mut items = items.iter();
        while self.store.fetch(&mut items, GROUP, |&&(id, _)| self.hash(id), &mut group) {
            // The pins taken inside this one cost next to nothing.
            let mut pin = engine.pin();
            for (hash, &(id, timeout)) in group.drain(..) {
                done.push(match self.try_touch(hash, id, Some(timeout)) {
                    Ok(touched) => touched,
                    // The driver is behind, and may call the handler: unpinned.
                    Err(_) => {
                        drop(pin);
                        let touched = self.catching_up(|| self.try_touch(hash, id, Some(timeout)));
                        pin = engine.pin();
                        touched
                    }
                });
            }
        }
        done
    }

    /// Touches the session of an id with this hash, for its own timeout if no other is given. An
    /// error if the driver is behind.
    #[inline]
    fn try_touch(
        &self,
        hash: u32,
        id: SessionId,
        timeout: Option<Duration>,
    ) -> Result<Result<(), SessionError>, BadTimeout> {
        let wanted = Wanted::new(&self.store.engine.keys, hash, &id);
        let (pin, mut lost) = (self.store.engine.pin(), None);
        while let Some(found) = self.store.find(&pin, wanted) {
            let timeout = timeout.unwrap_or_else(|| Self::seat(&found).timeout());
            if let Some(touched) = self.renew(&found, &mut lost, timeout)? {
                return Ok(touched);
            }
        }
        Ok(Err(SessionError::Unknown))
    }

    #[inline]
    fn catching_up<R>(&self, touch: impl FnMut() -> Result<R, BadTimeout>) -> R {
        self.store.engine.catching_up(&*self.shared, touch).expect(GRANTED)
    }

    /// Renews a session that was found; `None` if it has changed meanwhile. The caller is pinned.
    #[inline]
    pub(super) fn renew(
        &self,
        found: &Found<'_, T>,
        lost: &mut Option<Life>,
        timeout: Duration,
    ) -> Result<Option<Result<(), SessionError>>, BadTimeout> {
        let Some(touched) = self.store.renew(found, lost, self.granted(timeout), false)? else {
            return Ok(None);
        };
        if !touched.is_alive() {
            return Ok(Some(Err(SessionError::Closing)));
        }
        if self.shared.extra.collects {
            // After the swap of the lease: a taking that finds the flag finds this lease. The other
            // way round fails in model `q14_first_touch_and_taking`. Pairs with `take_touched`.
            let seat = Self::seat(found);
            if seat.is_global() {
                seat.set_touched();
            }
        }
        Ok(Some(Ok(())))
    }

    /// The global sessions that were touched since they were last taken, each with the time that it
    /// has left to live. A follower sends them to its leader, which [touches](Self::touch_many)
    /// each session for that time. Several threads may take: one of them gets each touch. In no
    /// order.
    ///
    /// No touch is lost: a taking that is under way reports it, or the next one. Sessions that are
    /// being closed by then, or have ended, are left out. Empty unless the tracker was built to
    /// [collect touches](super::SessionTrackerBuilder::collect_touches).
    ///
    /// O(capacity), however few sessions were touched: it walks all sessions, as
    /// [`for_each`](Self::for_each) does.
    ///
    /// ```
    /// use expiry::SessionTracker;
    /// use std::time::Duration;
    ///
    /// let follower = SessionTracker::builder().collect_touches().build_manual()?;
    /// let leader = SessionTracker::builder().build_manual()?;
    /// let session = follower.create(Duration::from_secs(10), 7)?;
    /// leader.track(session.id(), session.timeout(), 7)?;
    /// follower.touch_by(&session)?;
    /// let touched = follower.take_touched();
    /// assert_eq!((touched.len(), touched[0].0), (1, session.id()));
    /// assert_eq!(leader.touch_many(&touched), [Ok(())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn take_touched(&self) -> Vec<(SessionId, Duration)> {
        let mut all = Vec::new();
        if !self.shared.extra.collects {
            return all;
        }
        let now = self.store.engine.deadlines.now();
        self.store.each(|pin, found| {
            if !Self::seat(found).clear_touched() {
                return;
            }
            // After the flag: this reads the lease of every touch that has left its report to this
            // taking. A lease that was read before fails in model `q14_touch_and_taking`. Pairs
            // with `renew`.
            let Some(found) = self.store.at(pin, found.place()) else {
                return;
            };
            if let Some(left) = self.store.remaining(found.lease, now) {
                all.push((found.pair().0, left));
            }
        });
        all
    }
}
