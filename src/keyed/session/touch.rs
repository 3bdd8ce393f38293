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
//!
//! # Touches that are never taken
//!
//! A session that ends stays on the pile. So the pile is pruned of ended sessions ([`pile`](super::pile)) when it has
//! become twice as long as the last pruning has left it, or when more than half of it has ended and a session is created.
//! Pruning leaves flags alone: a session that is left on the pile keeps its flag, and one that has ended has no use for it.

use super::pile::Pile;
use super::{Found, Session, SessionError, SessionId, SessionTracker};
use crate::core::engine::Pin;
use crate::keyed::store::{Place, Touched, Wanted};
use crossbeam_utils::CachePadded;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Touches that are collected.
pub(super) struct Touches {
    /// By shard.
    pub(super) piles: Box<[CachePadded<Pile>]>,
}

/// How many ended sessions on the piles are put up with.
#[cfg(not(expiry_loom))]
const ENDED: u64 = 64;
#[cfg(expiry_loom)]
const ENDED: u64 = 0;

/// As many misses as a core has outstanding, and then some.
const GROUP: usize = 64;

/// Why a granted timeout is not refused.
pub(super) const GRANTED: &str =
    "granted: not zero, not too long, which the builder has checked of both bounds";

impl SessionTracker {
    /// Renews a session: it expires when it has not been touched for its own timeout from now on.
    ///
    /// # Errors
    ///
    /// [`SessionError::Unknown`], [`SessionError::Closing`].
    pub fn touch(&self, id: SessionId) -> Result<(), SessionError> {
        self.touch_at(self.hash(id), id, None)
    }

    /// As [`touch`](Self::touch), this once with another timeout, as near to it as can be [granted](Self::grant).
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    pub fn touch_for(&self, id: SessionId, timeout: Duration) -> Result<(), SessionError> {
        self.touch_at(self.hash(id), id, Some(timeout))
    }

    /// As [`touch`](Self::touch), without the look-up.
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    pub fn touch_by(&self, session: &Session) -> Result<(), SessionError> {
        self.touch_by_for(session, session.timeout)
    }

    /// As [`touch_for`](Self::touch_for), without the look-up.
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    pub fn touch_by_for(&self, session: &Session, timeout: Duration) -> Result<(), SessionError> {
        if self.touched.is_none() {
            let touched = self.store.touch_at(session.place, self.granted(timeout), &*self.store);
            return match touched.expect(GRANTED) {
                Touched::Renewed(_) | Touched::Unchanged => Ok(()),
                Touched::Gone => Err(SessionError::Unknown),
                Touched::Closing => Err(SessionError::Closing),
            };
        }
        let pin = self.store.engine.pin();
        let mut lost = None;
        loop {
            let found = self.store.stay(&pin, session.place).ok_or(SessionError::Unknown)?;
            if let Some(touched) = self.renew(&pin, &found, &mut lost, timeout) {
                return touched;
            }
        }
    }

    /// As many [touches](Self::touch_for), and what became of each, in order. Memory is fetched for 64 at a time.
    pub fn touch_batch(&self, items: &[(SessionId, Duration)]) -> Vec<Result<(), SessionError>> {
        let engine = &self.store.engine;
        let mut done = Vec::with_capacity(items.len());
        let mut hashes = [0; GROUP];
        for items in items.chunks(GROUP) {
            // Those inside it then cost next to nothing.
            let _pin = engine.pin();
            for (hash, (id, _)) in hashes.iter_mut().zip(items) {
                *hash = engine.hash(id.0);
            }
            self.store.fetch(hashes[..items.len()].iter().copied());
            let touch = |(&hash, &(id, timeout))| self.touch_at(hash, id, Some(timeout));
            done.extend(hashes.iter().zip(items).map(touch));
        }
        done
    }

    /// Touches the session whose id belongs `at` this shard and hash, by its own timeout if there is no other.
    #[inline]
    fn touch_at(
        &self,
        hash: u32,
        id: SessionId,
        timeout: Option<Duration>,
    ) -> Result<(), SessionError> {
        let wanted = Wanted::new(hash, &id);
        let pin = self.store.engine.pin();
        let mut lost = None;
        loop {
            let found = self.store.find(&pin, wanted);
            let found = found.ok_or(SessionError::Unknown)?;
            let timeout = timeout.unwrap_or_else(|| Self::seat(&pin, &found).timeout());
            if let Some(touched) = self.renew(&pin, &found, &mut lost, timeout) {
                return touched;
            }
        }
    }

    /// Renews a session that was found; `None` if it has changed meanwhile. The caller is pinned.
    #[inline]
    pub(super) fn renew(
        &self,
        pin: &Pin,
        found: &Found<'_>,
        lost: &mut Option<Place>,
        timeout: Duration,
    ) -> Option<Result<(), SessionError>> {
        let renewed = self.store.renew(found, lost, self.granted(timeout), false, &*self.store);
        if !renewed.expect(GRANTED)?.is_alive() {
            return Some(Err(SessionError::Closing));
        }
        if self.touched.is_some() {
            let seat = Self::seat(pin, found);
            if seat.is_global() && seat.set_touched() {
                self.collect(found.place());
            }
        }
        Some(Ok(()))
    }

    /// Puts a session on the pile that [`take_touched`](Self::take_touched) takes.
    pub(super) fn collect(&self, place: Place) {
        if let Some(touched) = &self.touched {
            let shard = self.store.engine.shard_of_hash(place.hash);
            if touched.piles[shard].push(place) {
                self.prune(touched, shard);
            }
        }
    }

    /// Drops ended sessions from the pile of a shard.
    #[cold]
    fn prune(&self, touched: &Touches, shard: usize) {
        let engine = &self.store.engine;
        let pin = engine.pin();
        touched.piles[shard].prune(&pin, |place| self.store.stay(&pin, place).is_some());
        drop(pin);
        engine.settle();
    }

    /// Drops ended sessions from all piles if there are more of them than of others.
    #[inline]
    pub(super) fn prune_ended(&self) {
        if let Some(touched) = &self.touched {
            if self.store.ended_on_pile.load(Relaxed) > ENDED {
                self.prune_all(touched);
            }
        }
    }

    #[cold]
    fn prune_all(&self, touched: &Touches) {
        let ended = self.store.ended_on_pile.load(Relaxed);
        if 2 * ended > touched.piles.iter().map(|pile| pile.len()).sum() {
            self.store.ended_on_pile.fetch_sub(ended, Relaxed);
            (0..touched.piles.len()).for_each(|shard| self.prune(touched, shard));
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
        let now = self.store.engine.clock().now();
        let piles = self.touched.iter().flat_map(|touched| touched.piles.iter());
        for pile in piles {
            let pin = self.store.engine.pin();
            pile.take(&pin, |place| {
                let Some(found) = self.store.stay(&pin, place) else {
                    return;
                };
                Self::seat(&pin, &found).clear_touched();
                // After the flag: the lease of every touch that has left the telling to this.
                let Some(found) = self.store.stay(&pin, place) else {
                    return;
                };
                if let Some(left) = self.store.remaining(found.lease, now) {
                    // SAFETY: found after the pin.
                    all.push((unsafe { found.pair() }.0, left));
                }
            });
        }
        if self.touched.is_some() {
            self.store.ended_on_pile.store(0, Relaxed);
        }
        all
    }
}
