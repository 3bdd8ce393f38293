//! Entries whose time counts to the tick: one whose time is up is not found, be it that nobody has come to end it yet.
//!
//! Whoever tells that an entry's time is up makes it so first, and swaps its lease to LAPSED: otherwise a touch which had looked
//! at the clock before could bring it back, after somebody was told that it is gone (M2). It is then ended, and the
//! listener told, by the driver, or by who wants its place.

use super::idle::Policy;
use super::node::Ended;
use super::store::{Cause, Entered, Found, Store, Wanted};
use super::{Lifetime, StoreError};
use crate::core::lease::State;
use crate::inject::{hit, stall, Bug};
use crate::time::Timeout;

/// What an insertion came to.
pub(super) enum Put<'a, K: 'static, V: 'static> {
    /// There was nothing.
    Inserted,
    /// This is what there was.
    Replaced(Ended<K, V>),
    /// This is what there is; it was not to be replaced.
    Kept(Found<'a>),
}

impl<K: 'static, V: 'static, S> Store<K, V, S> {
    /// The deadline of an entry that begins now, and what else governs it.
    pub(super) fn term(&self, lifetime: Lifetime) -> Result<(u64, Option<Policy>), StoreError> {
        let bound = self.deadline(lifetime.live)?;
        let idle = match lifetime.idle {
            Timeout::Default => self.idle,
            Timeout::Never => None,
            Timeout::After(time) if time.is_zero() => return Err(StoreError::ZeroTimeout),
            Timeout::After(time) => {
                let ticks = &self.engine.ticks;
                Some(ticks.timeout(time).ok_or(StoreError::TimeoutTooLong)?)
            }
        };
        Ok(match idle {
            None => (bound, None),
            Some(idle) => {
                let deadline = self.idle_until(idle).min(bound);
                (deadline, Some(Policy::new(idle, bound)))
            }
        })
    }

    /// The entry of a key, if its time is not up. The caller is pinned.
    #[inline(always)]
    pub(super) fn living<F: Fn(&K) -> bool>(&self, wanted: Wanted<'_, F>) -> Option<Found<'_>> {
        loop {
            let found = self.find(wanted)?;
            let over = found.lease.state() != State::Replacing;
            if self.is_living(&found) || over && hit(Bug::Resurrect) {
                return Some(found);
            }
            if self.is_gone(&found) {
                return None;
            }
        }
    }

    /// Whether it was live when it was found, and its time is not up.
    #[inline(always)]
    pub(super) fn is_living(&self, found: &Found<'_>) -> bool {
        found.lease.state() == State::Live
            && !self.is_over(found.lease, self.engine.now_for_deadline().0)
    }

    /// Makes it so that an entry which is not living will not come back. False if it has changed meanwhile.
    #[cold]
    fn is_gone(&self, found: &Found<'_>) -> bool {
        match found.lease.state() {
            State::Replacing => {
                self.see_through(found);
                false
            }
            State::Live if hit(Bug::Unlapsed) => true,
            State::Live => {
                let lapsed = found.lease.with_state(State::Lapsed);
                found.slot.swap_lease(found.lease, lapsed).is_ok()
            }
            _ => true,
        }
    }

    /// Ends an entry that is not living, as expired, or sees through what is being replaced.
    fn make_way(&self, found: &Found<'_>) {
        if found.lease.state() == State::Replacing {
            self.see_through(found);
        } else {
            self.expire(found);
        }
    }

    /// Puts a node in under a key, or in the place of what lives there, if it `replaces`. The caller is pinned. In an error
    /// nothing has changed; the node is the caller's still if it is not in.
    pub(super) fn put<F: Fn(&K) -> bool>(
        &self,
        wanted: Wanted<'_, F>,
        word: u64,
        deadline: u64,
        replaces: bool,
    ) -> Result<Put<'_, K, V>, StoreError> {
        loop {
            let found = match self.find_or_enter(wanted, word, deadline)? {
                Entered::Done(_) | Entered::Closed => return Ok(Put::Inserted),
                Entered::Found(found) => found,
            };
            if !self.is_living(&found) {
                self.make_way(&found);
            } else if !replaces {
                return Ok(Put::Kept(found));
            } else if self.engine.is_refusing() {
                return Err(StoreError::Closed);
            } else if let Some(old) = self.replace(&found, word, deadline) {
                self.tell(&old, Cause::Replaced);
                return Ok(Put::Replaced(old));
            }
        }
    }

    /// Ends the entry of a key. Returns it, unless its time was up. The caller is pinned.
    pub(super) fn remove_living<F: Fn(&K) -> bool>(
        &self,
        wanted: Wanted<'_, F>,
    ) -> Option<Ended<K, V>> {
        loop {
            let found = self.find(wanted)?;
            if !self.is_living(&found) {
                self.make_way(&found);
            } else if self.engine.end(found.slot, found.lease).is_ok() {
                return Some(self.ended(&found.claim(), found.position, Cause::Removed));
            }
        }
    }

    /// As [`put`](Self::put), in the place of this very value, whatever its deadline is by now; nothing if it has ended.
    pub(super) fn put_for(
        &self,
        found: &Found<'_>,
        word: u64,
        deadline: u64,
    ) -> Option<Ended<K, V>> {
        let mut found = *found;
        loop {
            found = self.again(&found)?;
            if let Some(old) = self.replace(&found, word, deadline) {
                self.tell(&old, Cause::Replaced);
                return Some(old);
            }
        }
    }

    /// Ends this very value, whatever its deadline is by now; nothing if it has ended.
    pub(super) fn remove_this(&self, found: &Found<'_>) -> Option<Ended<K, V>> {
        let mut found = *found;
        loop {
            found = self.again(&found)?;
            if self.engine.end(found.slot, found.lease).is_ok() {
                return Some(self.ended(&found.claim(), found.position, Cause::Removed));
            }
        }
    }

    /// An entry that was found before, by a caller who has been pinned since, as it is now, if it is still living. If it is not, it
    /// will not come back.
    pub(super) fn again<'a>(&self, found: &Found<'a>) -> Option<Found<'a>> {
        loop {
            let now = found.again()?;
            if self.is_living(&now) {
                return Some(now);
            }
            if self.is_gone(&now) {
                return None;
            }
        }
    }

    /// Renews an entry: it lives for this long from now. False if it has ended.
    pub(super) fn touch_living<F: Fn(&K) -> bool>(
        &self,
        wanted: Wanted<'_, F>,
        deadline: u64,
    ) -> bool {
        loop {
            let Some(found) = self.living(wanted) else {
                return false;
            };
            stall(Bug::Unlapsed);
            let renewed = match self.policy(&found) {
                None => self.renew(&found, deadline).is_some(),
                Some(policy) => self.rebound(&found, policy, deadline),
            };
            if renewed {
                return true;
            }
        }
    }
}
